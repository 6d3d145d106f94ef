//! Layers with a window have separate caches: the bits of whole caches, in bounded memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use ascend_tp::base::DType;
use ascend_tp::compile::{CompiledProgram, Deployment, compile, pins};
use ascend_tp::device::Cann;
use ascend_tp::exec::{Engine, EngineOptions, ProgramId};
use ascend_tp::generate::drafts::LookupOptions;
use ascend_tp::generate::inputs::{InputBuilder, InputRow, SequenceInput, padded_ids};
use ascend_tp::generate::{DECODE, Model, PREFILL, Request, Sequence, Session};
use ascend_tp::placement::{ExpertShards, Mesh, Residual};
use ascend_tp::program::models::{Head, RunShape, SequenceBlocks, decoder, input, sequence_blocks};
use ascend_tp::schedule::plan::Region;
use ascend_tp::schedule::{Plan, Target};
use ascend_tp::weights::fill_from;

use crate::common::{cann, fixture, open};

/// All layers with a window, and two models with a window in some layers. Gemma 2 caps scores.
const MODELS: [&str; 3] = ["mistral-sliding", "gemma2", "gemma3"];

fn ids(model: &Model, count: usize) -> Vec<u32> {
    let vocabulary = model.config.vocab_size;
    (0..count).map(|at| ((at * at * 31 + at * 7) % (vocabulary - 3) + 3) as u32).collect()
}

/// An engine that reads one sequence. Its blocks are a ring.
struct Reader<'a> {
    engine: Engine,
    model: &'a Model,
    inputs: InputBuilder,
    ids: &'a [u32],
}

impl<'a> Reader<'a> {
    fn new(cann: &Arc<Cann>, model: &'a Model, ids: &'a [u32], dtype: DType, plans: Vec<Vec<Plan>>) -> Self {
        let mut engine = Engine::start(cann, plans, &EngineOptions::default()).unwrap();
        engine.load(|shards| fill_from(&model.checkpoint, shards, &|_| ())).unwrap();
        Self { engine, model, inputs: InputBuilder::new(&model.config, dtype), ids }
    }

    /// Returns the bits of the logits of tokens from `start`.
    fn logits(&mut self, program: ProgramId, run: RunShape, head: Head, start: usize) -> Vec<u32> {
        let ids = &self.ids[start..start + run.sequence];
        let of_group = |blocks| SequenceBlocks { first: 0, blocks };
        let groups = run
            .groups()
            .map(|(_, group)| of_group(sequence_blocks(run.batch, group.blocks).swap_remove(0).cycle()));
        let tokens = SequenceInput { ids, start, prompt_length: self.model.config.max_positions };
        let row = InputRow { tokens, groups: groups.collect(), state: None, adapter: None };
        let inputs = self.inputs.inputs(run, head, &[row]);
        let inputs = inputs.with(input::IDS, padded_ids(run.sequence, std::iter::once(ids)));
        let outputs = self.engine.run(program, &inputs).unwrap().only().unwrap();
        outputs.floats().iter().map(|logit| logit.to_bits()).collect()
    }
}

#[test]
fn caches_behind_a_window_give_the_bits_of_whole_caches() {
    const PROMPT: usize = 40;
    const TOKENS: usize = 300;
    let cann = cann(1);
    for name in MODELS {
        let model = open(&fixture(name));
        let (config, ids) = (&model.config, ids(&model, TOKENS));
        for dtype in [DType::F32, DType::BF16] {
            // All layers read one table of all tokens.
            let whole = RunShape::new(1, TOKENS, TOKENS);
            let program = decoder(config, whole, dtype, Head::AllLogits).unwrap();
            let mesh = Mesh::new(&[("tp", 1)]).unwrap();
            let pins = pins(config, &program, &mesh, Residual::Replicate, ExpertShards::Whole);
            let CompiledProgram { plans, .. } = compile(&program, &mesh, &pins, Target::ANY).unwrap();
            let mut reader = Reader::new(&cann, &model, &ids, dtype, vec![plans]);
            let expected = reader.logits(ProgramId(0), whole, Head::AllLogits, 0);
            let expected: Vec<&[u32]> = expected.chunks(config.vocab_size).collect();
            for block_tokens in [16, 128] {
                let deployment = Deployment {
                    precision: dtype.into(),
                    longest_prompt: PROMPT,
                    context: TOKENS,
                    block_tokens,
                    ..Deployment::of(config, 1)
                };
                let (prompt, step) = (deployment.prompts(config, PROMPT), deployment.step(config));
                let windowed = step.windowed.unwrap_or(step.caches);
                assert_eq!(windowed.window, config.window(), "{name}");
                assert!(windowed.length() < TOKENS, "{name}: a table of {} rows", windowed.length());
                let plans = deployment.compile(config).unwrap().into_vec();
                let mut reader = Reader::new(&cann, &model, &ids, dtype, plans);
                let found = reader.logits(PREFILL, prompt, Head::LastLogits, 0);
                assert!(found == expected[PROMPT - 1], "{name} in {dtype}, blocks of {block_tokens}: prompt");
                for (start, expected) in expected.iter().enumerate().skip(PROMPT) {
                    let found = reader.logits(DECODE, step, Head::LastLogits, start);
                    assert!(found == *expected, "{name} in {dtype}, blocks of {block_tokens}: {start}");
                }
            }
        }
    }
}

fn deployment(model: &Model, context: usize) -> Deployment {
    Deployment {
        precision: DType::BF16.into(),
        batch: 2,
        longest_prompt: 32,
        context,
        block_tokens: 16,
        ..Deployment::of(&model.config, 1)
    }
}

#[test]
fn a_sequence_holds_the_blocks_of_its_window_however_long_it_is() {
    let cann = cann(1);
    for name in MODELS {
        let model = open(&fixture(name));
        let window = model.config.window().unwrap();
        for drafts in [0, 3] {
            let deployment = Deployment { drafts, ..deployment(&model, 480) };
            let builder = Session::builder(&cann, &model).deployment(deployment);
            let builder = match drafts {
                0 => builder,
                drafts => builder.speculate(LookupOptions { drafts, sizes: 1..=3 }),
            };
            let mut session = builder.start().unwrap();
            let caches = deployment.caches(&model.config);
            let at = caches.iter().position(|size| size.window.is_some()).unwrap();
            let [chunk, rows] = [32, deployment.block_tokens];
            let most = (window + chunk).div_ceil(rows) + 1;
            let ids = ids(&model, 200);
            for length in [200, 90] {
                let stop_ids = Some(Vec::new());
                let request = Request {
                    stop_ids,
                    max_new_tokens: Some(480 - 200),
                    ..Request::new(ids[..length].to_vec())
                };
                session.enqueue(&request, 1).unwrap();
            }
            let (mut steps, mut most_held) = (0, vec![0; caches.len()]);
            while session.step(&mut |_, _| ControlFlow::Continue(())).unwrap().is_some() {
                // At most one planned step has not completed.
                let load = session.load().remove(0);
                for (group, size) in caches.iter().enumerate() {
                    let held = size.blocks.in_pool() - load.available_blocks[group];
                    most_held[group] = most_held[group].max(held);
                    if group == at {
                        assert!(held <= load.running * most, "{name}, step {steps}: {held} blocks held");
                    }
                }
                steps += 1;
            }
            assert!(steps > 50);
            if at > 0 {
                assert!(most_held[0] > 480 / rows, "the layers without a window keep all blocks");
            }
            let load = session.load().remove(0);
            let all: Vec<usize> = caches.iter().map(|size| size.blocks.in_pool()).collect();
            assert_eq!(load.available_blocks, all, "a block leaked");
        }
    }
}

#[test]
fn a_longer_context_takes_no_memory_for_windows() {
    for name in MODELS {
        let model = open(&fixture(name));
        let bytes = |context: usize| {
            let programs = deployment(&model, context).compile_serving(&model.config).unwrap();
            programs.plans[0][0].region_bytes(Region::States).0
        };
        let [short, long] = [256, 512].map(bytes);
        // Blocks of 16 tokens for 256 more tokens of 2 sequences, in layers without a window.
        let attentions = model.config.attentions();
        let full = attentions.filter(|attention| attention.window.is_none()).count();
        let row = 2 * 2 * model.config.kv_width();
        assert_eq!(long - short, (full * 2 * 256 * row) as u64, "{name}");
    }
}

fn answer(session: &mut Session, ids: &[u32]) -> Sequence {
    let request = Request {
        stop_ids: Some(Vec::new()),
        max_new_tokens: Some(24),
        log_probabilities: Some(2),
        ..Request::new(ids)
    };
    let found = session.generate(&[request], &mut |_| ControlFlow::Continue(())).unwrap();
    found.sequences.into_iter().next().unwrap()
}

#[test]
fn a_prefix_hit_needs_the_blocks_of_the_last_window_only() {
    let cann = cann(1);
    for name in MODELS {
        let model = open(&fixture(name));
        let ids = ids(&model, 300);
        let session = || Session::builder(&cann, &model).deployment(deployment(&model, 400)).start().unwrap();
        let mut shared = session();
        let first = answer(&mut shared, &ids);
        assert_eq!(first.cached_tokens, 0);
        let again = answer(&mut shared, &ids);
        // All full blocks before the last token.
        assert_eq!(again.cached_tokens, 299 / 16 * 16, "{name}");
        assert_eq!(Sequence { cached_tokens: 0, ..again }, first, "{name}");
        let mut other = ids[..280].to_vec();
        other.extend([5, 9, 11]);
        let alone = answer(&mut session(), &other);
        let hit = answer(&mut shared, &other);
        assert!(hit.cached_tokens > 0, "{name}: {}", hit.cached_tokens);
        assert_eq!(Sequence { cached_tokens: 0, ..hit }, alone, "{name}");
    }
}
