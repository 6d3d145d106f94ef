//! How much of the exchanges of a step of training no operator hides, beside what no order of the same steps could hide, and what memory
//! that takes: on the planner's clock, of the plans that `train` runs.

use ascend_tp::base::{Bytes, Kernels};
use ascend_tp::config::ModelConfig;
use ascend_tp::machine::{Profile, Soc, Topology};
use ascend_tp::placement::Residual;
use ascend_tp::schedule::plan::{Action, Plan, Region, StreamKind};
use ascend_tp::schedule::schedule;
use ascend_tp::train::{Layout, Recipe, Zero, lower, recipe};
use ascend_tp_planner::simulate::{Awaited, Exposed, Issue, Limit, RankRun, Simulator, Span, exposed, least_us};

/// Six layers between a small embedding and head, so that these are no large part of a step.
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
    Recipe { seq: 1024, global_batch: 2 * layout.batch(), precision: recipe::Precision::Bf16, ..Recipe::default() }
}

/// Layouts; of each how many times the least the step may take, and how much may be exposed of what is in the order of the program. With
/// one micro-batch at a time a layer's products along the sequence wait for each other's exchanges, which the least counts in part alone.
const LAYOUTS: [(&str, Layout, f64, f64); 3] = [
    ("dp=8, ZeRO 1", Layout { data: 8, zero: Zero::Moments, micro_batch: 4, ..Layout::ONE }, 1.02, 0.3),
    ("dp=8, ZeRO 3", Layout { data: 8, zero: Zero::Weights, micro_batch: 4, ..Layout::ONE }, 1.02, 0.05),
    (
        "dp=2, tp=4, along the sequence, ZeRO 1",
        Layout { data: 2, tensor: 4, residual: Residual::Seq, zero: Zero::Moments, micro_batch: 4, ..Layout::ONE },
        1.22,
        0.55,
    ),
];

/// One rank's run of a program.
struct Seen {
    plan: Plan,
    run: RankRun,
}

impl Seen {
    fn of(plans: Vec<Plan>) -> Self {
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
        let cards: Vec<usize> = (0..plans.len()).collect();
        let run = Simulator::new(&profile, &topology, &plans, &cards, None).run(Issue::Eager).ranks.swap_remove(0);
        Self { plan: plans.into_iter().next().unwrap(), run }
    }

    fn exposed_us(&self) -> f64 {
        exposed(&self.plan, &self.run.spans).iter().map(|found| found.us).sum()
    }

    fn arena(&self) -> Bytes {
        self.plan.region_bytes(Region::Arena)
    }

    fn bytes(&self) -> u64 {
        Region::ALL.iter().map(|region| self.plan.region_bytes(*region).0).sum()
    }
}

#[test]
fn exchanges_are_hidden_but_for_what_no_order_hides() {
    for (name, layout, most, most_exposed) in LAYOUTS {
        let recipe = recipe(&layout);
        let lowered = lower(&model(), &recipe, &layout).unwrap();
        let (mut step_us, mut least, mut exposed_us, mut before_us) = (0.0, 0.0, 0.0, 0.0);
        for (run, (_, placed)) in lowered.runs(&recipe, &layout).unwrap().iter().zip(&lowered.parts) {
            let seen = Seen::of(run.schedule(&recipe, &layout, Kernels::NONE).unwrap());
            let before = Seen::of(schedule(placed).unwrap());
            step_us += seen.run.duration_us;
            least += least_us(&seen.plan, &seen.run.spans);
            exposed_us += seen.exposed_us();
            before_us += before.exposed_us();
            let (now, then) = (seen.bytes(), before.bytes());
            println!("{name}: arena {} of {then}, in the order of the program {}", seen.arena(), before.arena());
            assert!(now as f64 <= 1.05 * then as f64, "{name}: {now} bytes, in the order of the program {then}");
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

/// What an exposed exchange is said to begin behind ended when it began, and what waits for it begins when it ends.
#[test]
fn what_is_exposed_has_the_reason_that_events_give() {
    let (_, layout, ..) = LAYOUTS[1];
    let recipe = recipe(&layout);
    let lowered = lower(&model(), &recipe, &layout).unwrap();
    let Seen { plan, run } = Seen::of(schedule(&lowered.parts[0].1).unwrap());
    let found = exposed(&plan, &run.spans);
    assert!(!found.is_empty());
    let end = |at: usize| run.spans[at].unwrap().end_us;
    for Exposed { step, us, limit, awaited } in found {
        let Span { start_us, end_us } = run.spans[step].unwrap();
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
                let Action::Exchange(exchange) = &plan.steps[step].action else { panic!("{step} is no exchange") };
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
            let Action::Exchange(exchange) = &plan.steps[step].action else { panic!("{step} is no exchange") };
            let reads = plan.steps[at].reads().iter().any(|view| view.buffer == exchange.recv.buffer);
            assert!(!reads || kind == Awaited::Value);
        }
    }
}
