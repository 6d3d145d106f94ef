//! Measures, on the planner's clock, the exposed communication and the memory of training plans.
//! Compares them with the limit that no order of the steps can beat.

use std::collections::BTreeMap;

use ascend_tp::base::Bytes;
use ascend_tp::call::View;
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp::machine::{Profile, Soc, Topology};
use ascend_tp::placement::Residual;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::schedule::plan::{Action, CollectiveKind, Plan, Region, Step, StreamKind};
use ascend_tp::schedule::{Scheduling, StepOrder, Target, schedule, verify};
use ascend_tp::train::{Layout, Recipe, Zero, lower, recipe};
use ascend_tp_planner::simulate::{
    Awaited, Exposed, Limit, SimulatedRank, SimulatedSpan, Simulator, exposed, least_us,
};

use crate::pipeline::PIPELINES;

/// Six layers between a small embedding and head, which take little of a step.
fn model() -> ModelConfig {
    let config = ModelConfig::preset("qwen2.5-0.5b").unwrap();
    ModelConfig {
        layers: 6,
        vocab_size: 8192,
        hidden_size: 2048,
        heads: 16,
        kv_heads: 8,
        intermediate_size: 8192,
        ..config
    }
}

fn recipe(layout: &Layout) -> Recipe {
    let micro_batches = if layout.stages > 1 { 4 * layout.stages } else { 2 };
    Recipe {
        seq: 1024,
        global_batch: micro_batches * layout.batch(),
        precision: recipe::TrainingPrecision::Bf16,
        ..Recipe::default()
    }
}

/// Layouts with two limits: step time relative to the lower bound, and exposed communication
/// relative to program order. With one micro-batch and sequence parallelism, products wait for
/// exchanges, which the lower bound only partly includes.
const LAYOUTS: [(&str, Layout, f64, f64); 3] = [
    ("dp=8, ZeRO 1", Layout { data: 8, zero: Zero::Moments, micro_batch: 4, ..Layout::ONE }, 1.03, 0.33),
    ("dp=8, ZeRO 3", Layout { data: 8, zero: Zero::Weights, micro_batch: 4, ..Layout::ONE }, 1.02, 0.05),
    (
        "dp=2, tp=4, along the sequence, ZeRO 1",
        Layout {
            data: 2,
            tensor: 4,
            residual: Residual::Seq,
            zero: Zero::Moments,
            micro_batch: 4,
            ..Layout::ONE
        },
        1.22,
        0.72,
    ),
];

struct Seen {
    plan: Plan,
    run: SimulatedRank,
}

impl Seen {
    fn all(plans: Vec<Plan>) -> Vec<Self> {
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
        let cards: Vec<usize> = (0..plans.len()).collect();
        let ranks = Simulator::new(&profile, &topology, &plans, &cards, None).run(Launching::Eager).ranks;
        plans.into_iter().zip(ranks).map(|(plan, run)| Self { plan, run }).collect()
    }

    fn of(plans: Vec<Plan>) -> Self {
        Self::all(plans).swap_remove(0)
    }

    fn exposed_us(&self) -> f64 {
        let is_collective =
            |found: &&Exposed| self.plan.steps[found.step].stream == StreamKind::Communication;
        exposed(&self.plan, &self.run.spans).iter().filter(is_collective).map(|found| found.us).sum()
    }

    fn arena(&self) -> Bytes {
        self.plan.region_bytes(Region::Arena)
    }

    fn bytes(&self) -> u64 {
        Region::ALL.iter().map(|region| self.plan.region_bytes(*region).0).sum()
    }
}

const MOST_BYTES: f64 = 1.0 + 1.0 / 32.0;

#[test]
fn exchanges_are_hidden_but_for_what_no_order_hides() {
    for (name, layout, most, most_exposed) in LAYOUTS {
        let recipe = recipe(&layout);
        let lowered = lower(&model(), &recipe, &layout).unwrap();
        let (mut step_us, mut least, mut exposed_us, mut before_us) = (0.0, 0.0, 0.0, 0.0);
        for run in lowered.runs(&recipe, &layout).unwrap() {
            let seen = Seen::of(run.schedule(StepOrder::Overlapped, &recipe, &layout, Target::ANY).unwrap());
            let before = Seen::of(run.schedule(StepOrder::Program, &recipe, &layout, Target::ANY).unwrap());
            step_us += seen.run.duration_us;
            least += least_us(&seen.plan, &seen.run.spans);
            exposed_us += seen.exposed_us();
            before_us += before.exposed_us();
            let (now, then) = (seen.bytes(), before.bytes());
            println!(
                "{name}: arena {} of {then}, in the order of the program {}",
                seen.arena(),
                before.arena()
            );
            assert!(
                now as f64 <= MOST_BYTES * then as f64,
                "{name}: {now} bytes, in the order of the program {then}"
            );
        }
        println!(
            "{name}: {step_us:.0} us, at least {least:.0}; {exposed_us:.0} us exposed, in the order of the program {before_us:.0}"
        );
        assert!(
            exposed_us < most_exposed * before_us,
            "{name}: {exposed_us} us exposed, in the order of the program {before_us}"
        );
        assert!(step_us < most * least, "{name}: {step_us} us, at least {least}");
    }
}

/// Pipeline layouts, with the limit of exposed collectives relative to program order.
const STAGES: [(&str, Pipeline, Layout, f64); 4] = [
    (
        "pp=2, dp=4, ZeRO 1",
        Pipeline::OneForwardOneBackward,
        Layout { stages: 2, data: 4, zero: Zero::Moments, ..Layout::ONE },
        0.62,
    ),
    (
        "pp=2, dp=4, ZeRO 3",
        Pipeline::OneForwardOneBackward,
        Layout { stages: 2, data: 4, zero: Zero::Weights, ..Layout::ONE },
        0.55,
    ),
    (
        "pp=2, tp=4, along the sequence",
        Pipeline::OneForwardOneBackward,
        Layout { stages: 2, tensor: 4, residual: Residual::Seq, ..Layout::ONE },
        0.55,
    ),
    (
        "pp=3, tp=2, along the sequence",
        Pipeline::ZeroBubbleH1,
        Layout { stages: 3, tensor: 2, residual: Residual::Seq, ..Layout::ONE },
        0.7,
    ),
];

#[test]
fn exchanges_of_stages_are_hidden_and_no_step_is_longer() {
    for (name, pipeline, layout, most_exposed) in STAGES {
        let recipe = Recipe { pipeline, ..recipe(&layout) };
        let lowered = lower(&model(), &recipe, &layout).unwrap();
        let runs = lowered.runs(&recipe, &layout).unwrap();
        let of = |order| Seen::all(runs[0].schedule(order, &recipe, &layout, Target::ANY).unwrap());
        let [before, now] = [StepOrder::Program, StepOrder::Overlapped].map(of);
        let step_us = |seen: &[Seen]| seen.iter().map(|seen| seen.run.duration_us).fold(0.0, f64::max);
        let exposed_us = |seen: &[Seen]| seen.iter().map(Seen::exposed_us).sum::<f64>() / seen.len() as f64;
        let (step, step_before) = (step_us(&now), step_us(&before));
        let (exposed, exposed_before) = (exposed_us(&now), exposed_us(&before));
        println!(
            "{name}: {step:.0} us, {exposed:.0} exposed; in the order of the passes {step_before:.0}, {exposed_before:.0}"
        );
        assert!(step < step_before, "{name}: {step} us, in the order of the passes {step_before}");
        assert!(exposed < most_exposed * exposed_before, "{name}: {exposed} us exposed, {exposed_before}");
        for (rank, (now, before)) in now.iter().zip(&before).enumerate() {
            let (now, then) = (now.bytes() as f64, before.bytes() as f64);
            assert!(
                now <= MOST_BYTES * then,
                "{name}, rank {rank}: {now} bytes, in the order of the passes {then}"
            );
        }
    }
}

fn small(order: StepOrder, pipeline: Pipeline) -> Vec<Plan> {
    let config =
        ModelConfig { layers: 4, vocab_size: 64, hidden_size: 64, intermediate_size: 128, ..model() };
    let config = ModelConfig { heads: 4, kv_heads: 2, ..config };
    let layout = Layout { stages: 2, tensor: 2, residual: Residual::Seq, ..Layout::ONE };
    let recipe = Recipe { seq: 16, global_batch: 4, pipeline, ..Recipe::default() };
    let lowered = lower(&config, &recipe, &layout).unwrap();
    lowered.runs(&recipe, &layout).unwrap()[0].schedule(order, &recipe, &layout, Target::ANY).unwrap()
}

#[test]
fn steps_of_stages_that_touch_the_same_bytes_keep_their_order() {
    let kept = |plan: &Plan| -> Vec<Step> {
        let is_kept = |step: &&Step| matches!(step.action, Action::Launch(_) | Action::Exchange(_));
        plan.steps.iter().filter(is_kept).cloned().collect()
    };
    let touches = |step: &Step| {
        let of = |view: &View| {
            let size = view.dtype.size_bytes();
            (view.buffer, view.span().start * size, view.span().end * size)
        };
        (
            step.reads().into_iter().map(of).collect::<Vec<_>>(),
            step.writes().into_iter().map(of).collect::<Vec<_>>(),
        )
    };
    for pipeline in PIPELINES {
        let [before, after] = [StepOrder::Program, StepOrder::Overlapped].map(|order| small(order, pipeline));
        let mut moved = 0;
        for (before, after) in before.iter().zip(&after) {
            let (steps, others) = (kept(before), kept(after));
            assert_eq!(steps.len(), others.len(), "{pipeline}");
            let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            others
                .iter()
                .enumerate()
                .for_each(|(at, step)| places.entry(format!("{step:?}")).or_default().push(at));
            let place = |step: &Step| places.get_mut(&format!("{step:?}")).unwrap().remove(0);
            let places: Vec<usize> = steps.iter().map(place).collect();
            moved += places.windows(2).filter(|pair| pair[0] > pair[1]).count();
            for is_sent in [false, true] {
                let is_of = |step: &Step| match &step.action {
                    Action::Exchange(exchange) => match exchange.kind {
                        CollectiveKind::Send { .. } => is_sent,
                        CollectiveKind::Receive { .. } => !is_sent,
                        _ => false,
                    },
                    _ => false,
                };
                let of_transfers = steps.iter().zip(&places).filter(|(step, _)| is_of(step));
                assert!(of_transfers.map(|(_, place)| *place).is_sorted(), "{pipeline}");
            }
            let all: Vec<_> = steps.iter().map(touches).collect();
            let meets = |xs: &[_], ys: &[_]| {
                let meet = |(a, start, end): &(_, usize, usize), (b, from, to): &(_, usize, usize)| {
                    a == b && start < to && from < end
                };
                xs.iter().any(|x| ys.iter().any(|y| meet(x, y)))
            };
            for (at, (reads, writes)) in all.iter().enumerate() {
                for (earlier, (others, written)) in all[..at].iter().enumerate() {
                    if meets(writes, written) || meets(writes, others) || meets(reads, written) {
                        assert!(
                            places[earlier] < places[at],
                            "{pipeline}: {:?} was before {:?}",
                            steps[earlier],
                            steps[at]
                        );
                    }
                }
            }
        }
        assert!(moved > 0, "{pipeline}: nothing was moved");
    }
}

/// A missing exchange, two swapped exchanges of a communicator, or a missing wait are found before
/// anything runs.
#[test]
fn mutants_of_overlapped_stages_are_found() {
    let sound = small(StepOrder::Overlapped, Pipeline::OneForwardOneBackward);
    assert!(verify(&sound).is_ok());
    let noticed = |rank: usize, what: &str, change: &dyn Fn(&mut Vec<Step>)| {
        let mut plans = sound.clone();
        change(&mut plans[rank].steps);
        assert!(verify(&plans).is_err(), "rank {rank}: {what}");
    };
    let mut made = [0; 3];
    for (rank, plan) in sound.iter().enumerate() {
        let exchanges: Vec<(usize, &Step)> = plan
            .steps
            .iter()
            .enumerate()
            .filter(|(_, step)| matches!(step.action, Action::Exchange(_)))
            .collect();
        for (at, _) in exchanges.iter().step_by(11) {
            noticed(rank, &format!("exchange {at} is left out"), &|steps| _ = steps.remove(*at));
            made[0] += 1;
        }
        let transfers: Vec<usize> = exchanges
            .iter()
            .filter(|(_, step)| step.stream == StreamKind::Transfers)
            .map(|(at, _)| *at)
            .collect();
        for pair in transfers.windows(2).step_by(3) {
            noticed(rank, &format!("transfers {pair:?} are exchanged"), &|steps| {
                steps.swap(pair[0], pair[1]);
            });
            made[1] += 1;
        }
        let waits = plan.steps.iter().enumerate().filter(|(_, step)| matches!(step.action, Action::Wait(_)));
        for (at, _) in waits.step_by(17) {
            noticed(rank, &format!("wait {at} is left out"), &|steps| _ = steps.remove(at));
            made[2] += 1;
        }
    }
    println!("{made:?} exchanges, transfers and waits");
    assert!(made.iter().all(|made| *made >= 10), "{made:?}");
}

/// An exposed exchange starts when its reported cause ends, and dependent work starts when it ends.
#[test]
fn what_is_exposed_has_the_reason_that_events_give() {
    let (_, layout, ..) = LAYOUTS[1];
    let recipe = recipe(&layout);
    let lowered = lower(&model(), &recipe, &layout).unwrap();
    let Seen { plan, run } = Seen::of(schedule(&lowered.parts[0].1, Scheduling::default()).unwrap());
    let found = exposed(&plan, &run.spans);
    assert!(!found.is_empty());
    let end = |at: usize| run.spans[at].unwrap().end_us;
    for Exposed { step, us, limit, awaited } in found {
        let SimulatedSpan { start_us, end_us } = run.spans[step].unwrap();
        assert!(us > 0.0 && us <= end_us - start_us + 1e-6);
        let of_stream = |wanted: StreamKind| {
            let steps = plan.steps.iter().enumerate();
            steps
                .filter(move |(_, other)| other.stream == wanted)
                .map(|(at, _)| at)
                .filter(|at| run.spans[*at].is_some())
        };
        match limit {
            Limit::Links => {
                let before = of_stream(StreamKind::Communication).rfind(|at| *at < step).unwrap();
                assert!((end(before) - start_us).abs() < 1e-3);
            }
            Limit::Made(by) | Limit::Memory(by) => {
                assert!(by < step && (end(by) - start_us).abs() < 30.0, "{} {start_us}", end(by));
                let Action::Exchange(exchange) = &plan.steps[step].action else {
                    panic!("{step} is no exchange")
                };
                let made = plan.steps[by].writes().iter().any(|view| view.buffer == exchange.send.buffer);
                assert!(
                    made || limit == Limit::Memory(by)
                        || plan.steps[by].reads().iter().any(|view| view.buffer == exchange.recv.buffer)
                );
            }
            Limit::Issue => {}
        }
        if let Some((at, kind)) = awaited {
            assert!(run.spans[at].unwrap().start_us >= end_us - 1e-3);
            let Action::Exchange(exchange) = &plan.steps[step].action else {
                panic!("{step} is no exchange")
            };
            let reads = plan.steps[at].reads().iter().any(|view| view.buffer == exchange.recv.buffer);
            assert!(!reads || kind == Awaited::Value);
        }
    }
}
