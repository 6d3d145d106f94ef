//! Compares pipeline waits on the emulated clock with the inevitable waits of their pass order.
//!
//! The inevitable wait comes from a walk of the same order with the measured times of passes and
//! transfers, or from a formula.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use ascend_tp::base::Id;
use ascend_tp::config::ModelConfig;
use ascend_tp::device::KernelSource;
use ascend_tp::exec::Launching;
use ascend_tp::program::OpId;
use ascend_tp::schedule::pipeline::{Pass, Pipeline};
use ascend_tp::schedule::plan::{Action, EventId, Plan};
use ascend_tp::schedule::{OpPhase, OpPlace, StepOrder, Target};
use ascend_tp::timeline::Span;
use ascend_tp::train::{Layout, Recipe, lower};
use ascend_tp_machine::{Profile, Soc, Topology};
use ascend_tp_planner::rehearse::{Site, train};
use ascend_tp_planner::simulate::{self, SimulatedRank, Simulator};

const PIPELINES: [Pipeline; 5] = [
    Pipeline::GPipe,
    Pipeline::OneForwardOneBackward,
    Pipeline::Interleaved { chunks: 2 },
    Pipeline::ZeroBubbleH1,
    Pipeline::ZeroBubbleV,
];

const SIZES: [(usize, usize); 3] = [(2, 8), (4, 8), (4, 16)];

/// Allowed excess of waiting over the inevitable part of a step: two percentage points.
const MORE: f64 = 0.02;

/// Allowed relative difference between planner and emulated clock.
const AGREED: f64 = 0.02;

/// Equal stages: eight equal layers with small ends.
fn model() -> ModelConfig {
    let config = ModelConfig::preset("qwen3-32b").unwrap();
    ModelConfig {
        layers: 8,
        vocab_size: 1024,
        hidden_size: 2560,
        heads: 32,
        intermediate_size: 12800,
        ..config
    }
}

struct Seen {
    setting: train::TrainingSetting,
    plans: Vec<Arc<Plan>>,
    spans: Vec<Span>,
    places: Vec<Option<OpPlace>>,
}

impl Seen {
    fn of(pipeline: Pipeline, layout: Layout, micro_batches: usize) -> Self {
        let recipe =
            Recipe { seq: 1024, global_batch: micro_batches * layout.batch(), pipeline, ..Recipe::default() };
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
        let site =
            Site { cards: layout.cards(), servers: None, profile, topology, kernels: KernelSource::None };
        let setting =
            train::TrainingSetting { name: "eight layers".to_owned(), model: model(), recipe, layout, site };
        let rehearsal = train::TrainingRehearsal::run(&setting).unwrap();
        let lowered = lower(&setting.model, &setting.recipe, &setting.layout).unwrap();
        let runs = lowered.runs(&setting.recipe, &setting.layout).unwrap();
        let places = runs[0].programs.iter().flat_map(|(_, staged)| staged.places).copied().collect();
        let (plans, spans) = (rehearsal.programs()[0].clone(), rehearsal.phases()[0].spans.clone());
        Self { setting, plans, spans, places }
    }

    fn place(&self, op: OpId) -> Option<OpPlace> {
        self.places.get(op.index()).copied().flatten().filter(|place| place.when != OpPhase::Update)
    }

    fn passes(&self) -> impl Iterator<Item = (&Span, OpPlace)> {
        self.spans.iter().filter_map(|span| {
            let step = &self.plans[span.rank].steps[span.step];
            let is_operator = matches!(step.action, Action::Launch(_));
            Some((span, self.place(step.op).filter(|_| is_operator)?))
        })
    }

    /// Mean idle fraction between the first and last operator, and the nanoseconds of each part's
    /// passes.
    fn bubble(&self) -> (f64, BTreeMap<OpPlace, f64>) {
        let mut times: BTreeMap<OpPlace, f64> = BTreeMap::new();
        let (mut first, mut last) = (u64::MAX, 0);
        for (span, place) in self.passes() {
            (first, last) = (first.min(span.start_ns), last.max(span.end_ns));
            *times.entry(place).or_default() += (span.end_ns - span.start_ns) as f64;
        }
        let busy = times.values().sum::<f64>() / self.plans.len() as f64;
        (1.0 - busy / (last - first) as f64, times)
    }

    /// Simulates the same step with the planner, in the given step order.
    fn predicted(&self, order: StepOrder) -> Self {
        let train::TrainingSetting { model, recipe, layout, site, .. } = &self.setting;
        let lowered = lower(model, recipe, layout).unwrap();
        let plans =
            lowered.runs(recipe, layout).unwrap()[0].schedule(order, recipe, layout, Target::ANY).unwrap();
        let cards: Vec<usize> = (0..plans.len()).collect();
        let run = Simulator::new(&site.profile, &site.topology, &plans, &cards, None).run(Launching::Eager);
        let span = |rank: usize, step: usize, at: &simulate::SimulatedSpan| {
            let [start_ns, end_ns] = [at.start_us, at.end_us].map(|us| (1e3 * us) as u64);
            let stream = plans[rank].steps[step].stream;
            Span {
                rank,
                stream,
                step,
                operator: String::new(),
                arrived_ns: start_ns,
                start_ns,
                end_ns,
                work: None,
            }
        };
        let of_rank = |(rank, run): (usize, &SimulatedRank)| -> Vec<Span> {
            run.spans
                .iter()
                .enumerate()
                .filter_map(|(step, at)| Some(span(rank, step, at.as_ref()?)))
                .collect()
        };
        let spans = run.ranks.iter().enumerate().flat_map(of_rank).collect();
        let (setting, places) = (self.setting.clone(), self.places.clone());
        Self { setting, plans: plans.into_iter().map(Arc::new).collect(), spans, places }
    }

    fn took(&self) -> f64 {
        let first = self.spans.iter().map(|span| span.start_ns).min().unwrap();
        (self.spans.iter().map(|span| span.end_ns).max().unwrap() - first) as f64
    }

    /// Share of the time outside the inevitable bubble that operators fill, for stages with `cards`
    /// cards.
    fn busy(&self, cards: usize) -> f64 {
        let (bubble, mut of_stage) = self.bubble();
        of_stage.values_mut().for_each(|ns| *ns /= cards as f64);
        (1.0 - bubble) / (1.0 - self.inevitable(&of_stage))
    }

    /// The shortest transfer did not share its links.
    fn transfer(&self) -> f64 {
        let of_passes = self.spans.iter().filter(|span| {
            let step = &self.plans[span.rank].steps[span.step];
            matches!(&step.action, Action::Exchange(exchange) if exchange.kind.is_of_two())
                && self.place(step.op).is_some()
        });
        of_passes.map(|span| span.end_ns - span.start_ns).min().unwrap() as f64
    }

    /// The bubble of the order with measured times.
    fn inevitable(&self, times: &BTreeMap<OpPlace, f64>) -> f64 {
        let (stages, count) =
            (self.setting.layout.stages, self.setting.layout.micro_batches(&self.setting.recipe));
        let of = |part, when| times.get(&OpPlace { part, when }).copied().unwrap_or_default() / count as f64;
        let takes = |part, pass| match pass {
            Pass::Forward => of(part, OpPhase::Forward),
            Pass::InputGrad => of(part, OpPhase::InputGrad),
            Pass::WeightGrad => of(part, OpPhase::WeightGrad),
            Pass::Backward => of(part, OpPhase::InputGrad) + of(part, OpPhase::WeightGrad),
        };
        let walked = self.setting.recipe.pipeline.walk(stages, count, takes, self.transfer());
        let end = walked.iter().flatten().map(|walked| walked.end).fold(0.0, f64::max);
        let busy: f64 = walked.iter().flatten().map(|walked| walked.end - walked.start).sum();
        1.0 - busy / stages as f64 / end
    }

    fn longest_waits(&self) -> String {
        let mut found: Vec<(u64, String)> = Vec::new();
        for (rank, plan) in self.plans.iter().enumerate() {
            let of_rank: Vec<_> = self.passes().filter(|(span, _)| span.rank == rank).collect();
            for pair in of_rank.windows(2) {
                let (before, after) = (pair[0].0, pair[1].0);
                let waits = plan.steps[before.step..after.step].iter().filter_map(|step| match step.action {
                    Action::Wait(event) if step.stream == after.stream => Some(recorded_behind(plan, event)),
                    _ => None,
                });
                let text =
                    format!("stage {rank}, {:?}, for {}", pair[1].1, waits.collect::<Vec<_>>().join(", "));
                found.push((after.start_ns - before.end_ns, text));
            }
        }
        found.sort_by(|a, b| b.cmp(a));
        found.iter().take(8).map(|(ns, text)| format!("\n  {} us: {text}", ns / 1000)).collect()
    }
}

fn recorded_behind(plan: &Plan, event: EventId) -> String {
    let at = plan.steps.iter().position(|step| step.action == Action::Record(event)).unwrap();
    let step = &plan.steps[at];
    format!("{} of {}", step.stream.name(), plan.notes[step.op])
}

#[test]
fn stages_wait_as_long_as_their_order_makes_them() {
    for pipeline in PIPELINES {
        for (stages, micro_batches) in SIZES {
            let seen = Seen::of(pipeline, Layout { stages, ..Layout::ONE }, micro_batches);
            let (found, times) = seen.bubble();
            let expected = seen.inevitable(&times);
            let context = format!("{pipeline}, {stages} stages, {micro_batches} micro-batches");
            println!("{context}: {:.1} % of the step, {:.1} % inevitable", 100.0 * found, 100.0 * expected);
            assert!(
                (found - expected).abs() <= MORE,
                "{context}: {found}, not {expected}{}",
                seen.longest_waits()
            );
            // All passes of a micro-batch and both transfers, for every other stage.
            if pipeline == Pipeline::GPipe {
                let (p, m) = (stages as f64, micro_batches as f64);
                let of_one = times.values().sum::<f64>() / p / m;
                let formula = 1.0 - m * of_one / ((m + p - 1.0) * of_one + 2.0 * (p - 1.0) * seen.transfer());
                assert!((found - formula).abs() <= MORE, "{context}: {found}, by the formula {formula}");
            }
        }
    }
}

/// Transfers between stages do not delay the collectives of a stage. Operators of other passes fill
/// some waits for collectives, so the real step is shorter than in pass order.
#[test]
fn stages_of_several_cards_wait_no_longer_for_each_other() {
    let layout = Layout { stages: 2, tensor: 2, ..Layout::ONE };
    let mut of_gpipe = None;
    for pipeline in PIPELINES {
        let seen = Seen::of(pipeline, layout, 8);
        let (same, in_passes) = (seen.predicted(StepOrder::Overlapped), seen.predicted(StepOrder::Program));
        let predicted = same.took() / seen.took();
        assert!((predicted - 1.0).abs() <= AGREED, "{pipeline}: the planner says {predicted} times as long");
        let (before, longer) = (in_passes.busy(layout.tensor), in_passes.took() / seen.took());
        println!(
            "{pipeline}: in the order of its passes operators run {:.1} % of the time that is no bubble, and it takes {longer:.4} times \
             as long; {predicted:.4} predicted",
            100.0 * before
        );
        let of_gpipe = *of_gpipe.get_or_insert(before);
        assert!(before >= of_gpipe - MORE, "{pipeline}: {before}, gpipe {of_gpipe}");
        assert!(longer > 1.0, "{pipeline}: in the order of its passes it takes {longer} times as long");
    }
}
