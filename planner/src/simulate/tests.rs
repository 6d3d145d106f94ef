//! Checks the simulation against manual sums and general invariants.

use ascend_tp_machine::Soc;

use super::*;
use ascend_tp::base::DType;
use ascend_tp::compile::{Deployment, Programs};
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::Residual;
use ascend_tp::program::models::Head;
use ascend_tp::schedule::{Ranks, Target};
use ascend_tp::train::{self, Layout, Recipe};

fn compiled(layers: usize, cards: usize) -> Programs {
    let mut config = ModelConfig::preset("qwen2.5-72b").unwrap();
    config.layers = layers;
    let deployment = Deployment {
        precision: DType::BF16.into(),
        residual: Residual::Seq,
        batch: 4,
        longest_prompt: 64,
        context: 128,
        head: Head::LastToken,
        ..Deployment::of(&config, cards)
    };
    deployment.compile(&config).unwrap()
}

fn run(plans: &[Plan], launching: Launching) -> SimulatedRun {
    let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(2));
    let cards: Vec<usize> = (0..plans.len()).collect();
    Simulator::new(&profile, &topology, plans, &cards, None).run(launching)
}

#[test]
fn one_captured_card_is_the_sum_of_its_kernels() {
    let plans = compiled(1, 1).decode;
    let found = run(&plans, Launching::Captured);
    let profile = Profile::of(Soc::Ascend910B3);
    let host = &profile.coefficients.host;
    let plan = &plans[0];
    let mut kernels_us = 0.0;
    for step in &plan.steps {
        let Action::Launch(call) = &step.action else { panic!("one card exchanges nothing") };
        kernels_us += OperatorCost::of(&profile, &Work::of(&launch(call))).duration_us + host.replay_node_us;
    }
    let copy = |bytes: u64| host.call_us + host.wake_us + profile.host_us(HostCall::Copy, bytes as f64);
    let inputs_us = copy(plan.region_bytes(Region::Inputs).0) + host.replay_us;
    let outputs_us: f64 = plan.outputs.iter().map(|output| copy(plan.buffers[output.buffer].bytes.0)).sum();
    // The second stream is empty: only call and wake-up count.
    let expected = inputs_us + kernels_us + host.wake_us + host.call_us + host.wake_us + outputs_us;
    let breakdown = found.breakdown;
    assert!((breakdown.duration_us - expected).abs() < 1e-6, "{breakdown:?} {expected}");
    assert!((breakdown.kernels_us - kernels_us).abs() < 1e-6 && breakdown.collectives == 0, "{breakdown:?}");
    assert_eq!(breakdown.kernels, plan.steps.len());
}

/// The other ranks have equal shards.
#[test]
fn the_first_rank_of_each_stage_predicts_the_step_of_all() {
    let config = ModelConfig { layers: 2, ..ModelConfig::preset("qwen3-32b").unwrap() };
    let recipe = Recipe { seq: 512, global_batch: 8, ..Recipe::default() };
    let target = Target::of(Soc::Ascend910B3, ascend_tp::base::Kernels::NONE);
    let layouts = [
        Layout { tensor: 2, data: 2, zero: train::Zero::Moments, residual: Residual::Seq, ..Layout::ONE },
        Layout { context: 2, data: 2, zero: train::Zero::Weights, ..Layout::ONE },
        Layout { tensor: 2, stages: 2, ..Layout::ONE },
    ];
    for layout in layouts {
        let lowered = train::lower(&config, &recipe, &layout).unwrap();
        for program in lowered.runs(&recipe, &layout).unwrap() {
            let order = ascend_tp::schedule::StepOrder::Overlapped;
            let all = program.schedule(order, &recipe, &layout, target).unwrap();
            let first = program.schedule_ranks(Ranks::First, order, &recipe, &layout, target).unwrap();
            assert_eq!((all.len(), first.len()), (4, layout.stages));
            let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
            let duration_us = |plans: &[Plan]| {
                let simulator = Simulator::new(&profile, &topology, plans, &[0, 1, 2, 3], None);
                simulator.run(Launching::Eager).breakdown.duration_us
            };
            let (of_all, of_first) = (duration_us(&all), duration_us(&first));
            assert!(
                (of_first / of_all - 1.0).abs() < 0.01,
                "{layout:?} {:?}: {of_first} {of_all}",
                program.part
            );
        }
    }
}

#[test]
fn steps_of_a_stream_follow_each_other_and_ranks_meet() {
    for cards in [3, 8] {
        let programs = compiled(2, cards);
        for plans in [&programs.prefill, &programs.decode] {
            for launching in [Launching::Eager, Launching::Captured] {
                let found = run(plans, launching);
                for (plan, rank) in plans.iter().zip(&found.ranks) {
                    assert_eq!(rank.spans.len(), plan.steps.len());
                    let mut ends = [0.0_f64; 2];
                    for (step, span) in plan.steps.iter().zip(&rank.spans) {
                        let Some(span) = span else { continue };
                        let end = &mut ends[step.stream as usize];
                        assert!(span.start_us >= *end && span.end_us > span.start_us);
                        *end = span.end_us;
                    }
                    assert!(rank.duration_us > ends[0].max(ends[1]));
                }
                let exchanges = |rank: usize| {
                    let steps = plans[rank].steps.iter().zip(&found.ranks[rank].spans);
                    steps
                        .filter(|(step, _)| matches!(step.action, Action::Exchange(_)))
                        .map(|(_, span)| *span)
                        .collect::<Vec<_>>()
                };
                assert!(!exchanges(0).is_empty());
                assert!((1..cards).all(|rank| exchanges(rank) == exchanges(0)));
                let parts = found.breakdown;
                let whole = parts.kernels_us + parts.exposed_us + parts.idle_us;
                assert!((whole - parts.duration_us).abs() < 1e-6, "{parts:?}");
            }
        }
    }
}

#[test]
fn a_slow_host_holds_back_single_calls_and_not_a_replay() {
    let plans = compiled(4, 8).decode;
    let (mut profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
    let cards: Vec<usize> = (0..8).collect();
    let captured =
        Simulator::new(&profile, &topology, &plans, &cards, None).run(Launching::Captured).breakdown;
    profile.coefficients.host.launch_us = 100.0;
    let simulator = Simulator::new(&profile, &topology, &plans, &cards, None);
    assert_eq!(simulator.run(Launching::Captured).breakdown, captured);
    let eager = simulator.run(Launching::Eager).breakdown;
    assert!(
        eager.duration_us > 100.0 * eager.kernels as f64 && eager.idle_us > 0.5 * eager.duration_us,
        "{eager:?}"
    );
    assert_eq!((captured.kernels, captured.collectives), (eager.kernels, eager.collectives));
}

#[test]
fn groups_that_share_a_bus_slow_each_other_down() {
    let text = "name = 'box'\n[[levels]]\nname = 'pcie'\nfabric = 'bus'\ncards = 8\nbytes_per_us = 64000.0\nlatency_us = 0.2\n";
    let bus = Topology::parse("box", text).unwrap();
    let profile = Profile::of(Soc::Ascend910B3);
    let cards: Vec<usize> = (0..8).collect();
    let mut config = ModelConfig::preset("qwen2.5-72b").unwrap();
    (config.layers, config.kv_heads, config.heads) = (1, 2, 16);
    let deployment = Deployment {
        precision: DType::BF16.into(),
        residual: Residual::Seq,
        longest_prompt: 64,
        context: 65,
        head: Head::LastToken,
        ..Deployment::of(&config, 8)
    };
    let plans = deployment.compile(&config).unwrap().prefill;
    let on_bus = shared_buses(&profile, &bus, plans[0].groups.values(), &cards);
    let sizes: Vec<usize> = plans[0].groups.values().iter().map(Vec::len).collect();
    for (factor, size) in on_bus.iter().zip(&sizes) {
        let groups = sizes.iter().filter(|other| *other == size).count() as f64;
        assert!((factor - groups).abs() < 1e-3 * groups, "{on_bus:?} of groups of {sizes:?}");
    }
    assert!(
        shared_buses(&profile, &Topology::atlas_a2(1), plans[0].groups.values(), &cards)
            .iter()
            .all(|factor| (factor - 1.0).abs() < 1e-9)
    );
}

/// With a fixed order of sums, the norm of all gradients runs on one core.
#[test]
fn a_step_without_one_order_of_sums_is_the_shorter() {
    let config = ModelConfig { layers: 2, ..ModelConfig::preset("qwen2.5-72b").unwrap() };
    let us = |exact| {
        let layout = Layout { data: 8, ..Layout::ONE };
        let compiled =
            train::compile(&config, &Recipe { exact, ..Recipe::default() }, &layout, Target::ANY).unwrap();
        run(&compiled.plans[0].1, Launching::Eager).breakdown.duration_us
    };
    let (usual, exact) = (us(false), us(true));
    assert!(usual < exact, "{usual} us beside {exact}");
}
