//! Mutation tests of training. The plans of all layouts are free of races, and every missing
//! collective, event or scale is detected.
//!
//! Missing collectives and events are detected without a run: by `collective::verify` in programs,
//! and by `schedule::verify` in plans. A missing scale needs a run of three steps; losses, norms
//! and weights must differ. Three steps are needed until a wrong moment of a replica, which no
//! checkpoint contains, reaches other cards through a weight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ascend_tp::base::Number;
use ascend_tp::call::Call;
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::EngineOptions;
use ascend_tp::placement::{Placed, Residual};
use ascend_tp::program::{Kind, OpId};
use ascend_tp::schedule::plan::{Action, Tensor};
use ascend_tp::schedule::{self, Plan, Scheduling, Target, schedule};
use ascend_tp::train::data::Batch;
use ascend_tp::train::program::StepPart;
use ascend_tp::train::{Compiled, Layout, Lowered, Optimizer, Recipe, Schedule, ScheduleKind, Trainer, Zero};
use ascend_tp::train::{compile, lower, recipe};
use ascend_tp::{Cann, collective, program};

use super::lowered::{with_kind, without, without_member};
use super::plans::{exchanges, remove};
use crate::common::cann;
use crate::common::random::Random;

/// Sequences per step: not divisible by two or three data-parallel cards.
const SEQUENCES: usize = 5;
const STEPS: usize = 3;
/// Largest difference between two correct runs.
const BOUND: f64 = 1e-5;

/// Sequences, heads and vocabulary rarely divide by these sizes. Steps have one, two, three and
/// five micro-batches.
const LAYOUTS: [Layout; 24] = {
    use Residual::{Replicate, Seq};
    [
        layout(1, 2, Replicate, Zero::None, 5),
        layout(1, 2, Seq, Zero::None, 3),
        layout(1, 3, Replicate, Zero::None, 2),
        layout(1, 3, Seq, Zero::None, 5),
        layout(1, 4, Seq, Zero::None, 1),
        layout(2, 1, Replicate, Zero::None, 3),
        layout(2, 1, Replicate, Zero::Moments, 2),
        layout(2, 1, Replicate, Zero::Gradients, 1),
        layout(3, 1, Replicate, Zero::None, 1),
        layout(3, 1, Replicate, Zero::Moments, 2),
        layout(3, 1, Replicate, Zero::Gradients, 1),
        layout(2, 2, Replicate, Zero::None, 3),
        layout(2, 2, Replicate, Zero::Moments, 2),
        layout(2, 2, Replicate, Zero::Gradients, 1),
        layout(2, 2, Seq, Zero::None, 3),
        layout(2, 2, Seq, Zero::Moments, 3),
        layout(2, 2, Seq, Zero::Gradients, 2),
        layout(2, 3, Seq, Zero::None, 3),
        layout(2, 3, Seq, Zero::Gradients, 3),
        layout(2, 4, Seq, Zero::Moments, 3),
        layout(2, 1, Replicate, Zero::Weights, 1),
        layout(3, 1, Replicate, Zero::Weights, 2),
        layout(2, 2, Seq, Zero::Weights, 2),
        layout(3, 2, Replicate, Zero::Weights, 2),
    ]
};

/// Ring attention: sequences over several cards.
const RINGS: [Layout; 2] = {
    const RING: Layout = Layout { context: 2, ring: true, ..Layout::ONE };
    [
        Layout { micro_batch: 5, ..RING },
        Layout {
            context: 3,
            tensor: 2,
            micro_batch: 3,
            zero: Zero::Gradients,
            residual: Residual::Seq,
            ..RING
        },
    ]
};

const fn layout(data: usize, tensor: usize, residual: Residual, zero: Zero, micro_batch: usize) -> Layout {
    Layout { data, tensor, residual, zero, micro_batch, ..Layout::ONE }
}

/// One layer with grouped key heads, normed queries and keys, and sizes with few divisors.
fn config() -> ModelConfig {
    let published = include_str!("../fixtures/qwen3-qknorm/config.json");
    let mut json: serde_json::Value = serde_json::from_str(published).unwrap();
    let sizes = [("hidden_size", 6), ("head_dim", 4), ("intermediate_size", 10), ("vocab_size", 11)];
    for (key, size) in sizes.into_iter().chain([("num_hidden_layers", 1)]) {
        json[key] = size.into();
    }
    json["layer_types"] = serde_json::json!(["full_attention"]);
    ModelConfig::from_json(&json.to_string()).unwrap()
}

/// A learning rate with large updates, and an active gradient clip.
fn recipe(optimizer: Optimizer) -> Recipe {
    Recipe {
        steps: STEPS,
        global_batch: SEQUENCES,
        seq: 4,
        precision: recipe::TrainingPrecision::F32,
        clip_norm: 0.05,
        optimizer,
        schedule: Schedule { name: ScheduleKind::Constant, lr: 0.05, min_lr: 0.0, warmup_steps: 0 },
        ..Recipe::default()
    }
}

/// `eps` is as large as the gradients, so that it has an effect.
const ADAMW: Optimizer = Optimizer::Adamw { betas: [0.8, 0.9], eps: 1e-3, weight_decay: 0.2 };
const SGD: Optimizer = Optimizer::Sgd { momentum: 0.5, weight_decay: 0.2 };

/// Returns a weight with values from -1 to 1, plus 1 for norms.
fn weight(tensor: &Tensor) -> Vec<u8> {
    let start = if tensor.name.contains("norm") { 1.0 } else { 0.0 };
    let mut random = Random::of(&tensor.name);
    (0..tensor.shape.elems()).flat_map(|_| (start + random.unit()).to_le_bytes()).collect()
}

/// Ids of the whole vocabulary, two documents per sequence, some ignored labels.
fn batch(config: &ModelConfig, recipe: &Recipe, step: usize) -> Batch {
    let (sequences, seq) = (recipe.global_batch, recipe.seq);
    let mut random = Random::new(step as u64);
    let place = |at: usize| (at % seq) as i32;
    let first = seq as i32 / 2;
    Batch {
        step: step as u64,
        global_batch: sequences,
        sequence: seq,
        tokens: (0..sequences * (seq + 1)).map(|_| random.below(config.vocab_size as u64) as i32).collect(),
        ignore: (0..sequences * seq).map(|at| u8::from(at % 7 == 3)).collect(),
        positions: (0..sequences * seq).map(|at| place(at) % first).collect(),
        documents: (0..sequences * seq).map(|at| place(at) / first).collect(),
    }
}

/// Losses and norms by step, and the final weights and moments.
#[derive(Debug)]
struct Curve {
    steps: Vec<(f64, f64)>,
    parts: Vec<Vec<f32>>,
}

impl Curve {
    /// Returns the largest difference: absolute for losses, relative for norms and tensors.
    fn distance(&self, other: &Self) -> f64 {
        let mut most: f64 = 0.0;
        let mut off = |error: f64| most = if error.is_nan() { f64::INFINITY } else { most.max(error) };
        for ((loss, norm), (other_loss, other_norm)) in self.steps.iter().zip(&other.steps) {
            off((loss - other_loss).abs());
            off((norm - other_norm).abs() / norm);
        }
        for (part, other) in self.parts.iter().zip(&other.parts) {
            let size = part.iter().fold(0.0, |most: f32, x| most.max(x.abs())).max(f32::MIN_POSITIVE);
            part.iter().zip(other).for_each(|(a, b)| off(f64::from((a - b).abs() / size)));
        }
        most
    }
}

/// Runs a few steps. `None` if a card or the trainer returned an error.
fn curve(
    cann: &Arc<Cann>,
    config: &ModelConfig,
    recipe: &Recipe,
    layout: Layout,
    compiled: Compiled,
) -> Option<Curve> {
    let options = EngineOptions::default();
    let mut trainer = Trainer::start(cann, config, recipe, layout, compiled, &options, |shards| {
        shards.parts().try_for_each(|part| part.write(0, &part.tensor().cut(&weight(part.tensor()))))
    })
    .unwrap();
    let step = |trainer: &mut Trainer, step: usize| trainer.step(&batch(config, recipe, step)).ok();
    let steps: Option<Vec<_>> = (0..STEPS).map(|at| step(&mut trainer, at)).collect();
    let steps = steps?.into_iter().map(|step| (step.loss, step.grad_norm)).collect();
    let floats =
        |bytes: Vec<u8>| bytes.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
    let parts = trainer.parts().unwrap().into_iter().map(|part| floats(part.bytes)).collect();
    Some(Curve { steps, parts })
}

/// Results of the tests without a run.
#[derive(Default)]
struct Structure {
    collectives: usize,
    events: usize,
    /// Collectives with unused results.
    unread: BTreeSet<String>,
    survivors: Vec<String>,
}

fn is_unread(plans: &[Plan], places: &[(usize, usize)]) -> bool {
    places.iter().all(|(rank, at)| {
        let steps = &plans[*rank].steps;
        let results = steps[*at].writes();
        !steps
            .iter()
            .any(|step| step.reads().iter().any(|view| results.iter().any(|of| of.buffer == view.buffer)))
    })
}

impl Structure {
    fn part(&mut self, place: &str, part: StepPart, lowered: &Placed) {
        assert!(collective::verify(lowered).is_ok(), "{place}");
        for (id, op) in lowered.program.ops.iter().filter(|(_, op)| op.kind.is_movement()) {
            let members = 0..if op.operands.len() > 1 { op.operands.len() } else { 0 };
            let one_left = members.map(|member| without_member(lowered, id, member));
            for mutant in std::iter::once(without(lowered, id)).chain(one_left) {
                self.collectives += 1;
                if program::verify::verify(&mutant.program).is_ok() && collective::verify(&mutant).is_ok() {
                    self.survivors.push(format!("{place}: {}", program::text::op_text(&lowered.program, op)));
                }
            }
        }
        let mut plans = schedule(lowered, Scheduling::default()).unwrap();
        if let Err(problems) = schedule::verify(&plans) {
            panic!("{place}: {problems}");
        }
        // Taps only observe, and would have to move with the steps.
        plans.iter_mut().for_each(|plan| plan.taps.clear());
        // Middle micro-batches have the exchanges and events of the last one.
        if part != StepPart::Middle {
            self.steps_of_ranks(place, &mut plans);
            self.exchanges(place, &plans);
        }
    }

    /// Removes one event from the plan of each rank. Problems of a rank do not depend on other
    /// ranks, so each rank must be reported.
    fn steps_of_ranks(&mut self, place: &str, plans: &mut [Plan]) {
        let is_event =
            |plan: &Plan, at: usize| matches!(plan.steps[at].action, Action::Record(_) | Action::Wait(_));
        let events: Vec<Vec<usize>> = plans
            .iter()
            .map(|plan| (0..plan.steps.len()).filter(|at| is_event(plan, *at)).collect())
            .collect();
        for nth in 0..events.iter().map(Vec::len).max().unwrap_or(0) {
            let gone: Vec<Option<usize>> = events.iter().map(|events| events.get(nth).copied()).collect();
            let steps: Vec<_> =
                plans.iter_mut().zip(&gone).map(|(plan, at)| at.map(|at| plan.steps.remove(at))).collect();
            let found = schedule::verify(plans).err();
            let said: BTreeSet<usize> =
                found.iter().flat_map(|found| found.items()).filter_map(rank_of).collect();
            for (rank, (at, step)) in gone.iter().zip(steps).enumerate() {
                let (Some(at), Some(step)) = (at, step) else { continue };
                self.events += 1;
                if !said.contains(&rank) {
                    let note = plans[rank].notes.get(step.op).map(ToString::to_string).unwrap_or_default();
                    self.survivors
                        .push(format!("{place}: rank {rank} step {at} ({note}): {:?}", step.action));
                }
                plans[rank].steps.insert(*at, step);
            }
        }
    }

    /// Removes a collective from one rank, and from all. Ranks without a shard of the tensor do not
    /// take part.
    fn exchanges(&mut self, place: &str, plans: &[Plan]) {
        let mut places: BTreeMap<OpId, Vec<(usize, usize)>> = BTreeMap::new();
        for (rank, plan) in plans.iter().enumerate() {
            exchanges(plan)
                .into_iter()
                .for_each(|at| places.entry(plan.steps[at].op).or_default().push((rank, at)));
        }
        for (nth, (op, places)) in places.into_iter().enumerate() {
            let one = nth % places.len();
            for gone in [&places[one..=one], &places] {
                self.collectives += 1;
                let mut mutant = plans.to_vec();
                gone.iter().for_each(|(rank, at)| remove(&mut mutant[*rank], *at));
                if schedule::verify(&mutant).is_ok() {
                    let note = plans[0].notes.get(op).map(ToString::to_string).unwrap_or_default();
                    if is_unread(plans, &places) {
                        self.unread.insert(note);
                        continue;
                    }
                    self.survivors.push(format!("{place}: {note} of ranks and steps {gone:?}"));
                }
            }
        }
    }
}

fn rank_of(problem: &ascend_tp::base::Diagnostic) -> Option<usize> {
    problem.place.strip_prefix("rank ")?.split(' ').next()?.parse().ok()
}

fn structure(layouts: &[Layout]) {
    let config = config();
    let mut found = Structure::default();
    for (at, layout) in layouts.iter().enumerate() {
        let optimizer = if at % 4 == 3 { SGD } else { ADAMW };
        let Lowered { parts, .. } = lower(&config, &recipe(optimizer), layout).unwrap();
        for (part, lowered) in &parts {
            found.part(&format!("{layout:?}, {part:?}"), *part, lowered);
        }
    }
    let (collectives, events) = (found.collectives, found.events);
    assert!(
        collectives > 1000 && events > 2000,
        "only {collectives} collectives and {events} events were left out"
    );
    assert!(found.unread.is_empty(), "nobody reads {:?}", found.unread);
    assert!(found.survivors.is_empty(), "{} survive:\n{}", found.survivors.len(), found.survivors.join("\n"));
}

#[test]
fn training_plans_are_race_free_and_need_every_collective_and_event() {
    let (some, others) = LAYOUTS.split_at(15);
    let [some, others] = [some, others].map(|rows| rows.iter().copied().chain(RINGS).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        scope.spawn(|| structure(&some));
        structure(&others);
    });
}

/// Returns variants of an op without one factor each.
fn without_scales(kind: &Kind) -> Vec<Kind> {
    match *kind {
        Kind::Scale { .. } => vec![Kind::Scale { by: 1.0 }],
        Kind::Attention { .. } => vec![Kind::Attention { scale: 1.0 }],
        Kind::AttentionGrad { .. } => vec![Kind::AttentionGrad { scale: 1.0 }],
        Kind::RingAttention { ref axes, .. } => vec![Kind::RingAttention { axes: axes.clone(), scale: 1.0 }],
        Kind::RingAttentionGrad { ref axes, .. } => {
            vec![Kind::RingAttentionGrad { axes: axes.clone(), scale: 1.0 }]
        }
        Kind::ClipFactor { .. } => vec![Kind::ClipFactor { largest: 0.0 }],
        Kind::AdamW { beta1, beta2, epsilon, decay } => {
            let mut kinds = vec![
                Kind::AdamW { beta1: 0.0, beta2, epsilon, decay },
                Kind::AdamW { beta1, beta2: 0.0, epsilon, decay },
                Kind::AdamW { beta1, beta2, epsilon: 0.0, decay },
                Kind::AdamW { beta1, beta2, epsilon, decay: 0.0 },
            ];
            kinds.retain(|other| other != kind);
            kinds
        }
        _ => Vec::new(),
    }
}

fn calls_without_scales(call: &Call) -> Vec<Call> {
    let change = |change: &dyn Fn(&mut Call)| {
        let mut changed = call.clone();
        change(&mut changed);
        changed
    };
    let mut calls: Vec<Call> = match call {
        Call::Muls { .. } => vec![change(&|call| {
            if let Call::Muls { by, .. } = call {
                *by = Number::Float(1.0);
            }
        })],
        Call::FlashAttention { .. } | Call::FlashAttentionGrad { .. } => vec![change(&|call| match call {
            Call::FlashAttention { scale, .. } | Call::FlashAttentionGrad { scale, .. } => *scale = 1.0,
            _ => {}
        })],
        Call::AdamW { .. } => [0, 1, 2, 3]
            .into_iter()
            .map(|which| {
                change(&|call| {
                    if let Call::AdamW { beta1, beta2, decay, epsilon, .. } = call {
                        *[beta1, beta2, decay, epsilon][which] = 0.0;
                    }
                })
            })
            .collect(),
        _ => Vec::new(),
    };
    calls.retain(|other| other != call);
    calls
}

fn with_plans(compiled: &Compiled, part: StepPart, plans: &[Plan]) -> Compiled {
    let mut mutant = compiled.clone();
    mutant.plans.iter_mut().filter(|(known, _)| *known == part).for_each(|slot| slot.1 = plans.to_vec());
    mutant
}

#[test]
fn layouts_of_training_are_one_curve() {
    let (config, cards) = (config(), cann(8));
    for optimizer in [ADAMW, SGD] {
        let recipe = recipe(optimizer);
        let run = |layout: Layout| {
            curve(&cards, &config, &recipe, layout, compile(&config, &recipe, &layout, Target::ANY).unwrap())
                .unwrap()
        };
        let one = run(Layout { micro_batch: SEQUENCES, ..Layout::ONE });
        let is_of_optimizer = |(at, _): &(usize, Layout)| (at % 4 == 3) == (optimizer == SGD);
        let rows = LAYOUTS.into_iter().enumerate().filter(is_of_optimizer).map(|(_, layout)| layout);
        for row in rows.chain(RINGS) {
            let found = run(row);
            for ((loss, norm), (found_loss, found_norm)) in one.steps.iter().zip(&found.steps) {
                let is_close =
                    (loss - found_loss).abs() <= BOUND && (norm - found_norm).abs() <= 2.0 * BOUND * norm;
                assert!(
                    is_close,
                    "{row:?}: loss {found_loss}, norm {found_norm}, on one card {loss}, {norm}"
                );
            }
        }
    }
}

/// Removes each factor: of ops on all ranks, and of calls on rank 0, which has a shard of
/// everything.
fn scales(optimizer: Optimizer, layout: Layout) {
    let (config, cards, recipe) = (config(), cann(8), recipe(optimizer));
    let compiled = compile(&config, &recipe, &layout, Target::ANY).unwrap();
    let run = |compiled: Compiled| curve(&cards, &config, &recipe, layout, compiled);
    let right = run(compiled.clone()).unwrap();
    let (mut count, mut survivors) = (0, Vec::new());
    let mut judge = |what: String, mutant: Compiled| {
        count += 1;
        // An error, such as a non-finite loss, also detects the mutant.
        if run(mutant).is_some_and(|found| right.distance(&found) <= 2.0 * BOUND) {
            survivors.push(what);
        }
    };
    for (part, lowered) in &lower(&config, &recipe, &layout).unwrap().parts {
        for (id, op) in lowered.program.ops.iter() {
            for kind in without_scales(&op.kind) {
                let what = format!("{part:?}: {}: {kind:?}", program::text::op_text(&lowered.program, op));
                let plans = schedule(&with_kind(lowered, id, kind), Scheduling::default()).unwrap();
                judge(what, with_plans(&compiled, *part, &plans));
            }
        }
    }
    for (part, plans) in &compiled.plans {
        for (at, step) in plans[0].steps.iter().enumerate() {
            let Action::Launch(call) = &step.action else { continue };
            for call in calls_without_scales(call) {
                let mut mutant = plans.clone();
                let note = plans[0].notes.get(step.op).map(ToString::to_string).unwrap_or_default();
                let what = format!("{part:?}: rank 0 step {at} ({note}): {call}");
                mutant[0].steps[at].action = Action::Launch(Box::new(call));
                judge(what, with_plans(&compiled, *part, &mutant));
            }
        }
    }
    assert!(count > 60, "{layout:?}: only {count} factors were left out");
    assert!(survivors.is_empty(), "{layout:?}: {} survive:\n{}", survivors.len(), survivors.join("\n"));
}

#[test]
fn adamw_needs_every_factor() {
    scales(ADAMW, layout(2, 2, Residual::Seq, Zero::Gradients, 3));
}

#[test]
fn attention_in_a_ring_needs_every_factor() {
    scales(ADAMW, RINGS[0]);
}

#[test]
fn sgd_needs_every_factor() {
    scales(SGD, layout(2, 1, Residual::Replicate, Zero::Weights, 1));
}
