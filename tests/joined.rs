//! Ops that share a launch give the same bits as ops with separate launches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ascend_tp::base::{DType, Id, Kernels, Precision, Weights};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::device::Cann;
use ascend_tp::placement::{Placed, Residual};
use ascend_tp::program::models::{Head, RunShape, cache_inputs, decoder, run_of};
use ascend_tp::program::{HostTensor, Program, Role, Value, ValueId};
use ascend_tp::schedule::plan::{Action, Launched, Plan, Step};
use ascend_tp::schedule::{Joining, Scheduling, Target, schedule};
use ascend_tp::train::{Layout, Recipe, lower, recipe};
use ascend_tp::{Mesh, Pins, parallelize};

use crate::common::cases::is_sampled;
use crate::common::{Run, Tensors, cann, run, start};

/// A model of two layers with three key heads: three cards have one each, two share unevenly.
pub(crate) fn small(preset: &str, head_size: usize) -> ModelConfig {
    let mut config = ModelConfig::preset(preset).unwrap();
    (config.layers, config.kv_heads, config.heads, config.head_dim) = (2, 3, 6, head_size);
    (config.hidden_size, config.intermediate_size, config.vocab_size) = (40, 22, 30);
    config
}

fn has_bias(config: &ModelConfig) -> bool {
    config.layer(0).grouped().is_some_and(|attention| attention.qkv_bias)
}

fn drawn(value: &Value, seed: usize) -> HostTensor {
    let elems = value.shape.elems();
    let number = |at: usize| ((at + 1) * (2 * seed + 7919) % 257) as f32 / 128.0 - 1.0;
    match value.dtype {
        DType::I8 => HostTensor::int(
            value.shape.clone(),
            value.dtype,
            (0..elems).map(|at| (number(at) * 127.0) as i64).collect(),
        ),
        dtype if value.name.ends_with("_scale") => HostTensor::float(
            value.shape.clone(),
            dtype,
            (0..elems).map(|at| (number(at) + 2.0) / 512.0).collect(),
        ),
        dtype => {
            HostTensor::float(value.shape.clone(), dtype, (0..elems).map(|at| number(at) / 2.0).collect())
        }
    }
}

pub(crate) fn inputs(program: &Program, start: usize, seed: usize) -> Tensors {
    // Programs of training have no caches.
    let places =
        run_of(program).map(|shape| cache_inputs(shape, &vec![start..start + shape.sequence; shape.batch]));
    let place = |name: &str| {
        let place = places.iter().flatten().find(|(known, _)| *known == name);
        place.map(|(_, place)| place.clone())
    };
    let input = |id: ValueId| {
        let value = &program.values[id];
        let sizes = value.shape.sizes();
        let ints = |number: &dyn Fn(usize) -> usize| {
            let data = (0..value.shape.elems()).map(|at| number(at) as i64).collect();
            HostTensor::int(value.shape.clone(), value.dtype, data)
        };
        let tensor = match value.name.as_str() {
            "ids" => ints(&|at| (at * 7 + seed) % 30),
            "last" => ints(&|_| 0),
            "cos" | "sin" => {
                let (all, width) = (drawn(value, seed), sizes[2]);
                let data = (0..all.shape.elems())
                    .map(|at| all.floats()[at / width * width + at % (width / 2)])
                    .collect();
                HostTensor::float(value.shape.clone(), value.dtype, data)
            }
            name => place(name).unwrap_or_else(|| match value.dtype {
                DType::I64 => ints(&|at| (at * 7 + seed) % 30),
                // The mask of training hides later tokens.
                DType::Bool => ints(&|at| usize::from(at % sizes[2] > at / sizes[2] % sizes[1])),
                _ => drawn(value, seed),
            }),
        };
        (value.name.clone(), tensor)
    };
    program.with_role(Role::Input).map(input).collect()
}

fn runs(cann: &Arc<Cann>, plans: Vec<Plan>, program: &Program, sequence: usize) -> Vec<Run> {
    let mut engine = start(cann, plans, &params(program)).unwrap();
    [0, 1].map(|at| run(&mut engine, &inputs(program, at * sequence, at)).unwrap()).into()
}

/// Compares runs, and returns the values that only separate launches show.
fn compare(
    joined: &[Run],
    alone: &[Run],
    lowered: &Placed,
    last: Option<ValueId>,
    place: &str,
) -> BTreeSet<ValueId> {
    let mut missing = BTreeSet::new();
    for (joined, alone) in joined.iter().zip(alone) {
        for (id, expected) in alone.parts.iter().filter(|(id, _)| last.is_none_or(|last| **id < last)) {
            match joined.parts.get(id) {
                Some(found) => assert!(found == expected, "{place}: {}", lowered.program.label(*id)),
                None => drop(missing.insert(*id)),
            }
        }
    }
    missing
}

pub(crate) fn params(program: &Program) -> Tensors {
    let named = |id: ValueId| (program.values[id].name.clone(), drawn(&program.values[id], id.index()));
    program.with_role(Role::Param).map(named).collect()
}

pub(crate) fn lowered(
    config: &ModelConfig,
    run: RunShape,
    precision: Precision,
    cards: usize,
    residual: Residual,
) -> Placed {
    let program = decoder(config, run, precision, Head::LastLogits).unwrap();
    let mesh = Mesh::tensor_parallel(cards, config.kv_heads, config.heads_per_kv_head()).unwrap();
    parallelize(&program, &mesh, &Pins::auto(residual)).unwrap().lowered
}

#[test]
fn ops_of_one_launch_give_the_bits_of_launches_of_their_own() {
    let cann = cann(3);
    let models = [("qwen2.5-72b", 128), ("qwen-72b", 128), ("qwen3-32b", 16), ("llama-3-70b", 16)];
    for (model, (preset, head_size)) in models.into_iter().enumerate() {
        let config = small(preset, head_size);
        let shapes = [(1, 1, 1), (2, 1, 1), (3, 2, 1), (2, 1, 3), (3, 2, 3)];
        for (shape, (cards, batch, sequence)) in shapes.into_iter().enumerate() {
            let residual = if sequence == 3 { Residual::Seq } else { Residual::Replicate };
            let run = RunShape::new(batch, sequence, 2 * sequence + 1);
            let precisions = [DType::F32.into(), DType::BF16.into(), Precision::w8a8(DType::F16)];
            for (number, precision) in (model + shape..).zip(precisions) {
                if !is_sampled(number, 3) {
                    continue;
                }
                let lowered = lowered(&config, run, precision, cards, residual);
                let place = format!("{preset}, {precision:?}, {batch} of {sequence} tokens on {cards} cards");
                let program = &lowered.program;
                let joined = runs(
                    &cann,
                    schedule(&lowered, Scheduling { joining: Joining::SideBySide, ..Scheduling::default() })
                        .unwrap(),
                    program,
                    sequence,
                );
                let alone =
                    runs(&cann, schedule(&lowered, Scheduling::default()).unwrap(), program, sequence);
                // In 16-bit types, a fused bias or gate is rounded once instead of twice.
                let rounded = |name: &str| program.ops.values().iter().find(|op| op.kind.row().name == name);
                let first = if precision.activations == DType::F32 {
                    None
                } else if has_bias(&config) && precision.weights == Weights::Float {
                    rounded("add").map(|op| op.result())
                } else {
                    rounded("swiglu").map(|op| op.result())
                };
                let missing = compare(&joined, &alone, &lowered, first, &place);
                let biases = if has_bias(&config) { 2 * 3 } else { 0 };
                if first.is_none() {
                    assert_eq!(missing.len(), biases, "{place}: what a bias is added to is not shown");
                }
            }
        }
    }
}

/// In training, only ops that read each weight separately share launches. All results have the same
/// bits.
#[test]
fn ops_of_a_step_of_training_give_the_bits_of_launches_of_their_own() {
    let cann = cann(2);
    let config = small("qwen2.5-72b", 128);
    for precision in [recipe::TrainingPrecision::F32, recipe::TrainingPrecision::Bf16] {
        let recipe = Recipe { seq: 6, global_batch: 4, precision, ..Recipe::default() };
        let layout = Layout { tensor: 2, micro_batch: 2, ..Layout::ONE };
        let mut saved = 0;
        for (part, lowered) in lower(&config, &recipe, &layout).unwrap().parts {
            let program = &lowered.program;
            let (joined, alone) = (
                schedule(&lowered, Scheduling { joining: Joining::InPlace, ..Scheduling::default() })
                    .unwrap(),
                schedule(&lowered, Scheduling::default()).unwrap(),
            );
            let launches = |plans: &[Plan]| {
                let is_launch = |step: &&Step| matches!(step.action, Action::Launch(_));
                plans[0].steps.iter().filter(is_launch).count()
            };
            saved += launches(&alone) - launches(&joined);
            let run = |plans: Vec<Plan>| {
                let named =
                    |id: ValueId| (program.values[id].name.clone(), drawn(&program.values[id], id.index()));
                let params: Tensors = program.with_role(Role::Param).map(named).collect();
                run(&mut start(&cann, plans, &params).unwrap(), &inputs(program, 0, 1)).unwrap()
            };
            let missing =
                compare(&[run(joined)], &[run(alone)], &lowered, None, &format!("{part:?} in {precision:?}"));
            assert!(missing.is_empty(), "{missing:?}");
        }
        // Each micro-batch saves at least a norm and a rotary pair per layer.
        assert!(saved >= 2 * 3, "{saved}");
    }
}

fn launches(plan: &Plan) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for step in plan.steps.iter().filter(|step| plan.notes[step.op].layer == Some(1)) {
        let name = match &step.action {
            Action::Launch(call) => call.name(),
            Action::Exchange(exchange) => exchange.kind.name(),
            Action::Record(_) | Action::Wait(_) => continue,
        };
        *found.entry(name.to_owned()).or_default() += 1;
    }
    found
}

#[test]
fn a_layer_of_a_decode_step_is_at_most_twelve_launches() {
    for (preset, batch, most) in [
        ("qwen-72b", 1, 12),
        ("qwen2.5-72b", 1, 12),
        ("qwen2-72b", 1, 12),
        ("llama-3-70b", 1, 12),
        ("qwen2.5-72b", 64, 14),
        ("qwen2.5-0.5b", 1, 13),
        ("qwen3-32b", 1, 15),
    ] {
        let mut config = ModelConfig::preset(preset).unwrap();
        config.layers = 3;
        let cards = if preset == "qwen2.5-0.5b" { 2 } else { 8 };
        let deployment =
            Deployment { batch, longest_prompt: 2048, context: 4096, ..Deployment::of(&config, cards) };
        for plan in deployment.compile(&config).unwrap().decode {
            let found = launches(&plan);
            assert_eq!(found.values().sum::<usize>(), most, "{preset}, batch {batch}: {found:?}");
        }
    }
}

#[test]
fn with_kernels_a_layer_is_as_many_launches_at_any_batch() {
    for (preset, cards) in [("qwen2.5-72b", 8), ("qwen2.5-0.5b", 2)] {
        let mut config = ModelConfig::preset(preset).unwrap();
        config.layers = 3;
        for batch in [1, 7, 64] {
            let of = Deployment::of(&config, cards);
            let deployment = Deployment {
                batch,
                longest_prompt: 2048,
                context: 4096,
                target: Target { kernels: Kernels::ALL, ..of.target },
                ..of
            };
            for plan in deployment.compile(&config).unwrap().decode {
                let found = launches(&plan);
                assert_eq!(found.values().sum::<usize>(), 12, "{preset}, batch {batch}: {found:?}");
                assert_eq!(found["cache_write"], 1, "{preset}, batch {batch}");
            }
        }
    }
}

/// A stage launches a layer like a single stage does; ops of two stages share nothing.
#[test]
fn a_layer_of_a_stage_is_as_many_launches() {
    let mut config = ModelConfig::preset("qwen2.5-72b").unwrap();
    config.layers = 4;
    let of = Deployment { longest_prompt: 2048, context: 4096, ..Deployment::of(&config, 16) };
    let plans = Deployment { stages: 2, ..of }.compile(&config).unwrap().decode;
    for plan in &plans[..8] {
        let found = launches(plan);
        assert_eq!((found.values().sum::<usize>(), found["send"]), (13, 1), "{found:?}");
    }
}

#[test]
fn what_keeps_a_launch_apart_is_said() {
    let mut config = ModelConfig::preset("qwen2.5-72b").unwrap();
    config.layers = 1;
    let reasons = |run: RunShape, cards: usize| -> BTreeSet<String> {
        let lowered = lowered(&config, run, DType::BF16.into(), cards, Residual::Replicate);
        let plan = schedule(&lowered, Scheduling { joining: Joining::SideBySide, ..Scheduling::default() })
            .unwrap()
            .remove(0);
        let reason = |launch: &Launched| {
            if let Launched::Apart(reason) = launch { Some(reason.clone()) } else { None }
        };
        plan.notes.values().iter().filter_map(|note| reason(&note.launch)).collect()
    };
    let of = |reasons: &[&str]| reasons.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let run = |batch, sequence| RunShape::new(batch, sequence, 4096);
    for cards in [1, 8] {
        assert_eq!(reasons(run(1, 1), cards), of(&[]));
    }
    let rows = "the new keys and values are not adjacent in memory";
    assert_eq!(reasons(run(64, 1), 8), of(&["queries and keys are parts of wider rows", rows]));
    assert_eq!(
        reasons(run(1, 2048), 8),
        of(&["a joint result of 5242880 bytes would be copied apart", rows])
    );
}
