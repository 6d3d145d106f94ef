//! Random schedules of a session: arrivals, cancels, shared prefixes, chunks, preemptions, drafts
//! and samples. Each request gets the tokens and log-probabilities that it gets alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ascend_tp::base::{DType, KvType};
use ascend_tp::compile::Deployment;
use ascend_tp::config::AttentionPart;
use ascend_tp::emulator::{Config, Mode};
use ascend_tp::generate::drafts::{LookupOptions, Speculation};
use ascend_tp::generate::{
    Model, Request, RequestKey, SamplingOptions, Sequence, SequenceEvent, SequenceKey, Session,
};
use ascend_tp::placement::Grid;
use ascend_tp::program::tree::SumOrder;

use crate::common::cases::{cases, seed};
use crate::common::random::Random;
use crate::common::{fixture, machine, open};
use crate::lora::adapter_of_rank;
use crate::prediction::{glm_with_prediction, predictable};

const CONTEXT: usize = 112;

/// Context of some models with windows. Tables then start behind the first tokens.
const LONG_CONTEXT: usize = 304;

/// Context of models with recurrent layers. Prompts then have several blocks.
const HYBRID_CONTEXT: usize = 176;

/// Uneven heads, windows, soft caps, frequencies that depend on the prompt, experts, recurrent
/// layers, and adapters.
const MODELS: [&str; 8] = [
    "qwen2-tied-uneven",
    "gemma2",
    "qwen3-qknorm",
    "qwen3-next",
    "mistral-sliding",
    "qwen-v1-mha",
    "gemma3",
    "qwen3-moe",
];

/// Window of the softmax attention in a variant of the model with recurrent layers. A sequence then
/// has a state and a table that starts behind its first tokens.
const HYBRID_WINDOW: usize = 80;

/// One random schedule.
struct Schedule {
    random: Random,
    deployment: Deployment,
    mode: Mode,
    requests: Vec<ScheduledRequest>,
}

struct ScheduledRequest {
    request: Request,
    samples: u32,
    is_cancelled: bool,
}

impl Schedule {
    fn new(model: &Model, number: u64) -> Self {
        let mut random = Random::new(number);
        let cards = 1 + random.below(2) as usize;
        let is_hybrid = model.config.remembered_tokens().is_some();
        let drafts = if is_hybrid { 0 } else { [0, 0, 2, 4][random.below(4) as usize] };
        // Tensor parallel, two stages, or two pools of blocks.
        let (stages, depth) =
            if cards == 1 { (1, 1) } else { [(1, 1), (2, 1), (1, 2)][random.below(3) as usize] };
        let has_window = model.config.window().is_some();
        let is_long = has_window && random.below(2) == 0;
        let context = match (is_hybrid, is_long) {
            (true, _) => HYBRID_CONTEXT,
            (false, true) => LONG_CONTEXT,
            (false, false) => CONTEXT,
        };
        let block_tokens = match (is_hybrid, is_long) {
            (true, _) => 64,
            (false, true) => [16, 16, 128][random.below(3) as usize],
            (false, false) => 16,
        };
        let deployment = Deployment {
            precision: [DType::BF16, DType::F32][random.below(2) as usize].into(),
            batch: 2 + random.below(5) as usize,
            longest_prompt: [7, 32, 48][random.below(3) as usize],
            context,
            // Enough for one sequence at least.
            cache_blocks: Some(context.div_ceil(block_tokens) + 1 + random.below(8) as usize),
            block_tokens,
            drafts,
            stages,
            grid: Grid { rows: 1, depth },
            scores_prompts: depth == 1,
            // Few candidates often do not suffice.
            candidates: [0, 3, 20][random.below(3) as usize],
            order: if depth == 1 && random.below(2) == 0 { SumOrder::Tree } else { SumOrder::AsTheyCome },
            ..Deployment::of(&model.config, cards)
        };
        // Threads take turns in strict mode, which takes three times as long.
        let mode = if random.below(8) == 0 { Mode::Strict { seed: number } } else { Mode::Parallel };
        let count = 5 + random.below(8) as usize;
        let requests = (0..count).map(|_| ScheduledRequest::new(&mut random, model, &deployment)).collect();
        Self { random, deployment, mode, requests }
    }

    fn start(&self, model: &Model, deployment: Deployment) -> Session {
        let (_emulator, cann) = machine(Config { mode: self.mode, ..Config::with_cards(deployment.cards) });
        let builder = Session::builder(&cann, model).deployment(deployment);
        let builder = match deployment.drafts {
            0 => builder,
            _ if deployment.predicts => builder.speculate(Speculation::Prediction),
            drafts => builder.speculate(LookupOptions { drafts, sizes: 1..=3 }),
        };
        builder.start().unwrap()
    }

    /// Returns the sequences of each request alone, read in one chunk, with empty caches and all
    /// logits.
    fn alone(&self, model: &Model) -> Vec<Vec<Sequence>> {
        let deployment = Deployment {
            batch: self.deployment.grid.depth,
            longest_prompt: self.deployment.context - 1,
            cache_blocks: None,
            drafts: 0,
            predicts: false,
            candidates: 0,
            ..self.deployment
        };
        let mut session = self.start(model, deployment);
        let of = |scheduled: &ScheduledRequest| {
            let sample = |sample| {
                session.clear_caches().unwrap();
                let request = Request { sample: u64::from(sample), ..scheduled.request.clone() };
                let found = session.generate(&[request], &mut |_| ControlFlow::Continue(())).unwrap();
                found.sequences.into_iter().next().unwrap()
            };
            (0..scheduled.samples).map(sample).collect()
        };
        self.requests.iter().map(of).collect()
    }

    /// Runs the schedule. Returns the sequences that ended, and counts of preemptions, hits and
    /// accepted drafts.
    fn run(&mut self, model: &Model) -> (BTreeMap<(usize, u32), Sequence>, [u64; 3]) {
        let mut session = self.start(model, self.deployment);
        let mut keys: Vec<RequestKey> = Vec::new();
        let mut ends: BTreeMap<(usize, u32), Sequence> = BTreeMap::new();
        let mut lengths: BTreeMap<SequenceKey, usize> = BTreeMap::new();
        while keys.len() < self.requests.len() || !session.is_idle() {
            while keys.len() < self.requests.len() && (session.is_idle() || self.random.below(3) == 0) {
                let ScheduledRequest { request, samples, .. } = &self.requests[keys.len()];
                keys.push(session.enqueue(request, *samples).unwrap());
            }
            let mut receive = |key: SequenceKey, event: SequenceEvent<'_>| {
                match event {
                    SequenceEvent::Token(..) => *lengths.entry(key).or_default() += 1,
                    SequenceEvent::End(_, sequence) => {
                        let request = keys.iter().position(|own| *own == key.request).unwrap();
                        assert_eq!(lengths.get(&key).copied().unwrap_or(0), sequence.ids.len());
                        assert!(ends.insert((request, key.sample), sequence.clone()).is_none());
                    }
                    SequenceEvent::Failed(error) => panic!("{error}"),
                }
                ControlFlow::Continue(())
            };
            let progress = session.step(&mut receive).unwrap();
            assert!(progress.is_some() || session.is_idle(), "no sequence runs");
            for (at, scheduled) in self.requests.iter().enumerate().take(keys.len()) {
                if scheduled.is_cancelled && self.random.below(6) == 0 {
                    session.cancel(keys[at]);
                }
            }
        }
        let load = session.load();
        assert!(load.iter().all(|load| (load.running, load.waiting) == (0, 0)), "{load:?}");
        let caches = self.deployment.caches(&model.config);
        let all: Vec<usize> = caches.iter().map(|size| size.blocks.in_pool()).collect();
        assert!(load.iter().all(|load| load.available_blocks == all), "a block leaked: {load:?}");
        let counts = load.iter().fold([0; 3], |[a, b, c], load| {
            [a + load.preemptions, b + load.hit_tokens, c + load.accepted_drafts]
        });
        (ends, counts)
    }
}

impl Schedule {
    /// Compares the sequences of all requests that were not cancelled.
    fn compare(&self, number: u64, expected: &[Vec<Sequence>], found: &BTreeMap<(usize, u32), Sequence>) {
        for (request, sequences) in expected.iter().enumerate() {
            for (sample, expected) in (0..).zip(sequences) {
                let Some(found) = found.get(&(request, sample)) else {
                    assert!(self.requests[request].is_cancelled, "schedule {number}, request {request}");
                    continue;
                };
                let expected = Sequence { cached_tokens: found.cached_tokens, ..expected.clone() };
                assert_eq!(found, &expected, "schedule {number}, request {request}, sample {sample}");
            }
        }
    }
}

impl ScheduledRequest {
    fn new(random: &mut Random, model: &Model, deployment: &Deployment) -> Self {
        // Prompts share prefixes of one text, which repeats itself, so that drafts are found.
        let vocabulary = model.config.vocab_size as u64;
        let text = |at: u64, of: u64| ((at % 11) * 37 + of * 101 + at / 40) % (vocabulary - 3) + 3;
        let longest = match deployment.context {
            LONG_CONTEXT => 240,
            HYBRID_CONTEXT => 110,
            _ => 50,
        };
        let (of, shared) = (random.below(2), random.below(longest));
        let mut ids: Vec<u32> = (0..shared).map(|at| text(at, of) as u32).collect();
        ids.extend((0..1 + random.below(20)).map(|_| (random.below(vocabulary - 3) + 3) as u32));
        let sampled = SamplingOptions { temperature: 0.8, seed: random.below(9), ..Default::default() };
        let sampling = match random.below(4) {
            0 => SamplingOptions::default(),
            1 => SamplingOptions { top_p: Some(0.3), presence_penalty: 0.5, ..sampled },
            2 => SamplingOptions { top_k: Some(5), min_p: Some(0.01), ..sampled },
            _ => sampled,
        };
        let mut adapters = vec![None];
        adapters.extend(model.config.adapters.names().map(|name| Some(name.to_owned())));
        let request = Request {
            adapter: adapters.swap_remove(random.below(adapters.len() as u64) as usize),
            max_new_tokens: Some(1 + random.below(40) as usize),
            stop_ids: if random.below(2) == 0 { Some(Vec::new()) } else { None },
            log_probabilities: (random.below(2) == 0).then_some(2),
            prompt_log_probabilities: (deployment.scores_prompts && random.below(3) == 0).then_some(1),
            sampling,
            priority: random.below(3) as i32,
            ..Request::new(ids)
        };
        Self {
            request,
            samples: if random.below(4) == 0 { 3 } else { 1 },
            is_cancelled: random.below(5) == 0,
        }
    }
}

/// Requests of this model choose one of two adapters, or none.
const MODEL_WITH_ADAPTERS: &str = "qwen3-qknorm";

fn open_model(name: &str) -> Model {
    let model = open(&fixture(name));
    if name != MODEL_WITH_ADAPTERS {
        return model;
    }
    let few = adapter_of_rank(&model, &["q_proj", "down_proj"], 2);
    let all = adapter_of_rank(&model, &["all-linear"], 5);
    model.with_adapters(&[("few", few.path()), ("all", all.path())]).unwrap()
}

fn hybrid_with_window() -> Model {
    let mut model = open(&fixture("qwen3-next"));
    for layer in &mut model.config.pattern {
        if let AttentionPart::Grouped(attention) = &mut layer.attention {
            attention.window = Some(HYBRID_WINDOW);
        }
    }
    assert_eq!(model.config.window(), Some(HYBRID_WINDOW));
    model
}

/// Half of the schedules. The other half runs at the same time, because the threads of one
/// emulated machine often wait for each other.
#[test]
fn a_request_gets_in_even_schedules_what_it_gets_alone() {
    run_schedules(0);
}

#[test]
fn a_request_gets_in_odd_schedules_what_it_gets_alone() {
    run_schedules(1);
}

/// Prediction layers with random weights, and one that often proposes the model's choice.
#[test]
fn a_request_with_predicted_drafts_gets_what_it_gets_alone() {
    let (predictable, glm) = (predictable("deepseek-v3"), glm_with_prediction());
    let models = [open(&fixture("deepseek-v3")), open(predictable.path()), open(glm.path())];
    let (mut counts, mut accepted) = ([0; 3], 0);
    for number in 0..cases(9) as u64 {
        let model = &models[number as usize % models.len()];
        let mut schedule = Schedule::new(model, seed() * 1_000_000 + 500 + number);
        schedule.deployment.stages = 1;
        schedule.deployment.grid = Grid::LINE;
        schedule.deployment.drafts = 1;
        schedule.deployment.predicts = true;
        if number % 2 == 0 {
            // Few blocks, so that sequences are preempted.
            schedule.deployment.cache_blocks = Some(CONTEXT.div_ceil(16) + 1);
        }
        let expected = schedule.alone(model);
        let (found, found_counts) = schedule.run(model);
        schedule.compare(number, &expected, &found);
        accepted += if number % 3 == 1 { found_counts[2] } else { 0 };
        counts.iter_mut().zip(found_counts).for_each(|(all, found)| *all += u64::from(found > 0));
    }
    assert!(counts.iter().all(|count| *count > 0) && accepted > 50, "{counts:?}, {accepted} accepted");
}

/// Keys and values are quantised when they are written, so chunks, drafts, prefixes and preempted
/// sequences read the same integers. Heads of 32 numbers are read in the fused operator.
#[test]
fn a_request_over_integer_caches_gets_what_it_gets_alone() {
    let names = ["qwen3-qknorm", "gemma3", "gemma2", "qwen3-moe"];
    let models: Vec<Model> = names.into_iter().map(open_model).collect();
    let (mut hit, mut drafted) = (0, 0);
    for number in 0..cases(8) {
        let model = &models[number % models.len()];
        let mut schedule = Schedule::new(model, seed() * 1_000_000 + 700 + number as u64);
        let deployment = &mut schedule.deployment;
        deployment.precision = deployment.precision.with_kv(KvType::Int8);
        deployment.block_tokens = 32;
        deployment.cache_blocks = Some(deployment.context.div_ceil(32) + 2 + number % 3);
        let expected = schedule.alone(model);
        let (found, [_, hits, accepted]) = schedule.run(model);
        (hit, drafted) = (hit + u64::from(hits > 0), drafted + u64::from(accepted > 0));
        schedule.compare(number as u64, &expected, &found);
    }
    assert!(hit >= 1 && drafted >= 1, "{hit} schedules with hits, {drafted} with drafts");
}

/// Eight blocks and the null block. Each sequence grows to five blocks.
#[test]
fn a_preempted_sequence_over_integer_caches_goes_on_with_the_same_bits() {
    let model = open(&fixture("qwen3-qknorm"));
    let of = Deployment::of(&model.config, 1);
    let precision = of.precision.with_kv(KvType::Int8);
    let (batch, longest_prompt, context) = (3, 64, 160);
    let (cache_blocks, block_tokens) = (Some(9), 32);
    let deployment =
        Deployment { precision, batch, longest_prompt, context, cache_blocks, block_tokens, ..of };
    goes_on_after_preemption(&model, deployment);
}

/// Runs every second schedule, from number `first` on.
fn run_schedules(first: usize) {
    let mut models = Vec::from(MODELS.map(open_model));
    models.push(hybrid_with_window());
    let (mut preempted, mut hit, mut drafted) = (0, 0, 0);
    for number in (first..cases(24)).step_by(2) {
        let model = &models[number % models.len()];
        let number = number as u64;
        let mut schedule = Schedule::new(model, seed() * 1_000_000 + number);
        let expected = schedule.alone(model);
        let (found, [preemptions, hits, accepted]) = schedule.run(model);
        drafted += u64::from(accepted > 0);
        (preempted, hit) = (preempted + u64::from(preemptions > 0), hit + u64::from(hits > 0));
        schedule.compare(number, &expected, &found);
    }
    let counts = format!("{preempted} schedules with preemptions, {hit} with hits, {drafted} with drafts");
    assert!(preempted >= 1 && hit >= 3 && drafted >= 1, "{counts}");
}

/// Random schedules of hybrids rarely preempt, because a sequence gets whole blocks of 64 tokens.
#[test]
fn a_preempted_hybrid_goes_on_with_the_same_bits() {
    for model in [open(&fixture("qwen3-next")), hybrid_with_window()] {
        let deployment = Deployment {
            precision: DType::BF16.into(),
            batch: 3,
            longest_prompt: 64,
            context: 160,
            // Four blocks and the null block. Each sequence grows to three blocks.
            cache_blocks: Some(5),
            block_tokens: 64,
            ..Deployment::of(&model.config, 1)
        };
        goes_on_after_preemption(&model, deployment);
    }
}

/// Compares three sequences that do not fit the caches together with each sequence alone.
fn goes_on_after_preemption(model: &Model, deployment: Deployment) {
    let (_emulator, cann) = machine(Config::with_cards(1));
    let start = |deployment| Session::builder(&cann, model).deployment(deployment).start().unwrap();
    let requests = [3, 5, 7].map(|of| Request {
        max_new_tokens: Some(85),
        stop_ids: Some(Vec::new()),
        log_probabilities: Some(2),
        ..Request::new((0..52).map(|at| (at * of + at * at) % 140 + 4).collect::<Vec<u32>>())
    });
    let answers = |session: &mut Session, requests: &[Request]| {
        session.generate(requests, &mut |_| ControlFlow::Continue(())).unwrap().sequences
    };
    let mut together = start(deployment);
    let found = answers(&mut together, &requests);
    assert!(together.load()[0].preemptions > 0, "{:?}", together.load());
    let mut alone = start(Deployment { cache_blocks: None, ..deployment });
    for (request, found) in requests.iter().zip(&found) {
        let expected = answers(&mut alone, std::slice::from_ref(request)).remove(0);
        assert_eq!(found, &Sequence { cached_tokens: found.cached_tokens, ..expected });
    }
}
