//! Losses of routers, and tokens per expert: against transformers, and on layouts against one card.

use std::collections::BTreeMap;

use ascend_tp::base::{DType, Id};
use ascend_tp::config::ModelConfig;
use ascend_tp::emulator::Mode;
use ascend_tp::placement::Residual;
use ascend_tp::program::grad::gradients;
use ascend_tp::program::models::{self, RouterLosses};
use ascend_tp::program::{Builder, Form, HostTensor, Program, Role, Source, interpret};
use ascend_tp::schedule::{Scheduling, Target, schedule};
use ascend_tp::train::checkpoint::export;
use ascend_tp::train::data::Batch;
use ascend_tp::train::{Layout, Recipe, Recompute, RouterOutcome, Zero, compile};
use ascend_tp::weights::Checkpoint;
use ascend_tp::{Mesh, parallelize};

use crate::common::trainers::{cards, saved, start, whole_parts};
use crate::common::{Tensors, cann, fixture, run, start as start_engine};
use crate::gradients::{inputs, params_of, pins};

const BOUND: f64 = 1e-5;

struct Routers {
    config: ModelConfig,
    program: Program,
    params: Tensors,
    inputs: Tensors,
    tokens: usize,
}

impl Routers {
    /// Builds the sums over routers, and the router gradients of one sum. The cotangent of this
    /// sum is `factor(layers, experts, tokens)`.
    fn read(name: &str, losses: RouterLosses, factor: fn(f64, f64, f64) -> f64) -> Self {
        let folder = fixture(name);
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let config = ModelConfig::from_json(&text).unwrap();
        let reference = Checkpoint::open_file(&folder.join("expected.safetensors")).unwrap();
        let (shape, ids) = reference.read_i64("input_ids").unwrap();
        let (b, s) = (shape[0], shape[1]);
        let mut build = Builder::new(name);
        let loss = models::loss(&mut build, &config, [b, s], DType::F32, None, false, losses);
        let sums = loss.routers.unwrap();
        let sum = sums.balance.or(sums.squares).unwrap();
        let seed = build.input("scale", [], DType::F32);
        let is_router = |name: &str| {
            let ends = ["gate.weight", "router.weight"];
            ends.iter().any(|end| name.ends_with(end)) && !name.contains("shared")
        };
        let name_of = |build: &Builder, id| build.program().values[id].name.clone();
        let mut routers = loss.params;
        routers.retain(|param| is_router(&name_of(&build, param.id())));
        let found = gradients(&mut build, &[(sum, seed)], &routers);
        build.output("sum", sum);
        build.output("tokens", sums.tokens);
        for (layer, gradient) in found.into_iter().enumerate() {
            build.output(&format!("layers.{layer}.grad"), gradient.unwrap());
        }
        let program = build.finish().unwrap_or_else(|problems| panic!("{name}: {problems}"));
        let params = params_of(&program, &Checkpoint::open(&folder).unwrap());
        let mut inputs = inputs(&config, b, s, &ids);
        let (layers, experts) = (config.layers as f64, config.mixtures().next().unwrap().1.experts as f64);
        let scale = factor(layers, experts, (b * s) as f64) as f32;
        inputs.insert("scale".to_owned(), HostTensor::float([], DType::F32, vec![scale]));
        inputs.retain(|name, _| program.find(Role::Input, name).is_some());
        Self { config, program, params, inputs, tokens: b * s }
    }

    fn on_host(&self) -> (Tensors, Vec<HostTensor>) {
        let values = interpret(&self.program, |_, value| {
            self.params.get(&value.name).unwrap_or_else(|| &self.inputs[&value.name]).clone()
        });
        let outputs = self.program.outputs.iter();
        (outputs.map(|(name, id)| (name.clone(), values[id.index()].clone())).collect(), values)
    }

    fn scale(&self) -> f64 {
        f64::from(self.inputs["scale"].floats()[0])
    }

    /// Runs the program on meshes, and returns the outputs of each.
    fn on_meshes(&self) -> Vec<(String, Tensors)> {
        let cann = cann(8);
        let meshes = [(1, 1), (1, 3), (2, 1), (2, 2)];
        let cases = meshes.into_iter().flat_map(|mesh| [(mesh, Residual::Replicate), (mesh, Residual::Seq)]);
        let outputs = |((dp, tp), residual)| {
            let Self { config, program, .. } = self;
            let mesh = Mesh::tensor_parallel(tp, config.kv_heads, config.heads_per_kv_head()).unwrap();
            let mesh = mesh.under(&[("dp", dp)]).unwrap();
            let split = parallelize(program, &mesh, &pins(program, residual)).unwrap();
            let plans = schedule(&split.lowered, Scheduling::default()).unwrap();
            let mut engine = start_engine(&cann, plans, &self.params).unwrap();
            (format!("{mesh}, {residual:?}"), run(&mut engine, &self.inputs).unwrap().outputs)
        };
        cases.map(outputs).collect()
    }
}

/// Returns the tokens of each expert, which the reference stores as i32.
fn counts(routing: &Checkpoint, layer: usize, experts: usize) -> Vec<f32> {
    let tensor = format!("layers.{layer}.counts");
    let source = Source { tensor, element_offset: 0, form: Form::Numbers };
    let mut bytes = vec![0; experts * 4];
    let ranges = vec![0..experts; 1];
    routing.read_param(&source, &[experts].into(), &ranges, DType::I32, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|count| i32::from_le_bytes(*count) as f32).collect()
}

/// Returns the largest difference over the largest expected element.
fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let errors = found.iter().zip(expected).map(|(a, b)| f64::from((a - b).abs() / largest));
    errors.fold(0.0, |most, error| if error.is_nan() { f64::INFINITY } else { most.max(error) })
}

#[test]
fn the_auxiliary_loss_is_that_of_transformers_on_any_mesh() {
    let losses = RouterLosses { balance: true, squares: false };
    for name in ["mixtral", "qwen2-moe", "qwen3-moe", "gpt-oss"] {
        let routers =
            Routers::read(name, losses, |layers, experts, tokens| experts / (layers * tokens).powi(2));
        let routing = Checkpoint::open_file(&fixture(name).join("routing.safetensors")).unwrap();
        let expected = routing.read_f32("aux_loss").unwrap().1[0];
        let (host, _) = routers.on_host();
        for (place, outputs) in [("the host".to_owned(), host)].into_iter().chain(routers.on_meshes()) {
            let found = routers.scale() * f64::from(outputs["sum"].floats()[0]);
            let error = (found / f64::from(expected) - 1.0).abs();
            assert!(error <= BOUND, "{name} on {place}: {found}, expected {expected}");
            let experts = outputs["tokens"].shape[1];
            for layer in 0..routers.config.layers {
                let counts = counts(&routing, layer, experts);
                let found = &outputs["tokens"].floats()[layer * experts..(layer + 1) * experts];
                assert_eq!(found, counts, "{name} on {place}: layer {layer}");
                let (_, gradient) = routing.read_f32(&format!("layers.{layer}.aux_grad")).unwrap();
                let error = distance(outputs[&format!("layers.{layer}.grad")].floats(), &gradient);
                assert!(error <= BOUND, "{name} on {place}: layer {layer} is off by {error:.1e}");
            }
        }
    }
}

#[test]
fn the_z_loss_is_the_mean_square_of_the_logits_sums_on_any_mesh() {
    let losses = RouterLosses { balance: false, squares: true };
    let routers = Routers::read("qwen3-moe", losses, |layers, _, tokens| (layers * tokens).recip());
    let (host, values) = routers.on_host();
    let is_logits = |name: &str| name.starts_with("layers.") && name.ends_with("router.logits");
    let logits = routers.program.values.iter().filter(|(_, value)| is_logits(&value.name));
    let mut squares = Vec::new();
    for (id, value) in logits {
        let experts = value.shape[2];
        let sums = values[id.index()].floats().chunks(experts);
        squares.extend(sums.map(|row| row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln().powi(2)));
    }
    assert_eq!(squares.len(), routers.config.layers * routers.tokens);
    let expected = squares.iter().sum::<f64>() / squares.len() as f64;
    let places = [("the host".to_owned(), host.clone())].into_iter().chain(routers.on_meshes());
    for (place, outputs) in places {
        let found = routers.scale() * f64::from(outputs["sum"].floats()[0]);
        assert!((found / expected - 1.0).abs() <= BOUND, "{place}: {found}, expected {expected}");
        for layer in 0..routers.config.layers {
            let name = format!("layers.{layer}.grad");
            let error = distance(outputs[&name].floats(), host[&name].floats());
            assert!(error <= BOUND, "{place}: layer {layer} is off by {error:.1e}");
        }
    }
}

fn bf16(number: f32) -> f32 {
    HostTensor::float([1], DType::BF16, vec![number]).floats()[0]
}

fn recipe() -> Recipe {
    // The last micro-batch has fewer sequences than the first one.
    Recipe { steps: 2, global_batch: 6, seq: 8, aux_loss: 0.05, z_loss: 0.01, ..Recipe::default() }
}

fn config(name: &str) -> ModelConfig {
    ModelConfig::from_json(&std::fs::read_to_string(fixture(name).join("config.json")).unwrap()).unwrap()
}

/// Returns layouts with four sequences in each micro-batch.
fn layouts() -> Vec<Layout> {
    let one = Layout { micro_batch: 4, ..Layout::ONE };
    vec![
        Layout { recompute: Recompute::Full, ..one },
        Layout { tensor: 2, residual: Residual::Seq, ..one },
        Layout { data: 2, micro_batch: 2, zero: Zero::Gradients, ..one },
        Layout { data: 2, tensor: 2, micro_batch: 2, zero: Zero::Weights, ..one },
        Layout { stages: 2, data: 2, micro_batch: 2, ..one },
        Layout { context: 2, ..one },
        Layout { data: 4, expert: 2, micro_batch: 1, ..Layout::ONE },
    ]
}

#[test]
fn a_step_has_the_losses_and_the_counts_of_one_card() {
    let (config, recipe) = (config("mixtral"), recipe());
    let (_, cann) = cards(Mode::Parallel, 4);
    let steps = |recipe: &Recipe, layout: Layout| {
        let mut trainer = start(&cann, &config, recipe, layout);
        let batch = |step| Batch::scattered(step, recipe.global_batch, recipe.seq, config.vocab_size);
        let outcomes: Vec<_> = (0..2).map(|step| trainer.step(&batch(step)).unwrap()).collect();
        (outcomes, whole_parts(&mut trainer))
    };
    let (expected, _) = steps(&recipe, Layout { micro_batch: 4, ..Layout::ONE });
    for layout in layouts() {
        let (found, _) = steps(&recipe, layout);
        for (found, expected) in found.iter().zip(&expected) {
            let (own, one) = (found.routers.as_ref().unwrap(), expected.routers.as_ref().unwrap());
            let all = [
                (found.loss, expected.loss),
                (found.grad_norm, expected.grad_norm),
                (own.aux_loss.unwrap(), one.aux_loss.unwrap()),
                (own.z_loss.unwrap(), one.z_loss.unwrap()),
            ];
            for (found, expected) in all {
                assert!((found / expected - 1.0).abs() <= 2.0 * BOUND, "{layout:?}: {found}, not {expected}");
            }
            assert_eq!(own.tokens, one.tokens, "{layout:?}");
        }
    }
    // Six sequences of eight tokens choose two experts in each layer.
    let routers: &RouterOutcome = expected[0].routers.as_ref().unwrap();
    assert!(routers.tokens.iter().all(|layer| layer.iter().sum::<u64>() == 6 * 8 * 2), "{routers:?}");
    assert!(routers.largest_over_mean() > 1.0, "{routers:?}");
    // Without coefficients, the loss of the first step is the same and its gradients are not.
    let (plain, _) =
        steps(&Recipe { aux_loss: 0.0, z_loss: 0.0, ..recipe }, Layout { micro_batch: 4, ..Layout::ONE });
    assert_eq!(
        (plain[0].loss, &plain[0].routers.as_ref().unwrap().tokens),
        (expected[0].loss, &routers.tokens)
    );
    assert_eq!(plain[0].routers.as_ref().unwrap().aux_loss, None);
    assert!(plain[0].grad_norm != expected[0].grad_norm);
}

#[test]
fn losses_of_routers_that_the_model_does_not_have_are_refused() {
    let refused = |name: &str, recipe: Recipe| {
        compile(&config(name), &recipe, &Layout::ONE, Target::ANY).unwrap_err().to_string()
    };
    let plain = Recipe { global_batch: 1, seq: 4, ..Recipe::default() };
    let message = refused("qwen2-gqa", Recipe { aux_loss: 0.01, ..plain.clone() });
    assert!(message.starts_with("recipe: aux_loss: the model has no router"), "{message}");
    let message = refused("qwen2-gqa", Recipe { z_loss: 0.01, ..plain.clone() });
    assert!(message.ends_with("remove --z-loss"), "{message}");
    let message = refused("glm4-moe", Recipe { aux_loss: 0.01, ..plain });
    assert!(message.contains("by sigmoid"), "{message}");
}

#[test]
fn biases_of_choices_move_towards_the_mean_load_and_are_resumed() {
    let config = config("deepseek-v3");
    let rate = 0.01_f32;
    let recipe =
        Recipe { steps: 4, aux_loss: 0.0, z_loss: 0.0, router_bias_rate: f64::from(rate), ..recipe() };
    let (_, cann) = cards(Mode::Parallel, 4);
    let batch = |step| Batch::scattered(step, recipe.global_batch, recipe.seq, config.vocab_size);
    let bits = |parts: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
        parts
            .iter()
            .filter(|(name, _)| name.ends_with("correction_bias"))
            .map(|(name, bytes)| (name.clone(), bytes.clone()))
            .collect()
    };
    let one = Layout { micro_batch: 4, ..Layout::ONE };
    // Each step moves each bias by the rate.
    let mut trainer = start(&cann, &config, &recipe, one);
    let mut expected = vec![vec![0.0_f32; 12]; config.mixtures().count()];
    let mut counts = Vec::new();
    for step in 0..4 {
        let routers = trainer.step(&batch(step)).unwrap().routers.unwrap();
        for (biases, tokens) in expected.iter_mut().zip(&routers.tokens) {
            let mean = tokens.iter().sum::<u64>() as f64 / tokens.len() as f64;
            for (bias, tokens) in biases.iter_mut().zip(tokens) {
                *bias += rate * (mean - *tokens as f64).partial_cmp(&0.0).unwrap() as i8 as f32;
            }
        }
        counts.push(routers.tokens);
    }
    let whole = whole_parts(&mut trainer);
    let expected: Vec<u8> = expected.iter().flatten().flat_map(|bias| bias.to_le_bytes()).collect();
    assert_eq!(bits(&whole).into_values().flatten().collect::<Vec<u8>>(), expected);
    assert!(!whole.keys().any(|name| name.contains("moment.") && name.contains("correction_bias")));
    // An exported model in bf16 has the biases in f32.
    let (folder, checkpoint) = saved(&mut trainer);
    let model = folder.path().join("exported");
    export(&checkpoint, &fixture("deepseek-v3"), None, DType::BF16, &model).unwrap();
    let exported = Checkpoint::open(&model).unwrap();
    let read = |name: &String| exported.read_f32(name).unwrap().1;
    let biases: Vec<f32> = bits(&whole).keys().flat_map(read).collect();
    assert_eq!(biases.iter().flat_map(|bias| bias.to_le_bytes()).collect::<Vec<u8>>(), expected);
    assert!(biases.iter().any(|bias| *bias != bf16(*bias)), "{biases:?}");
    // Other layouts have the same biases, also if a run is interrupted.
    for layout in [
        Layout { data: 2, tensor: 2, micro_batch: 2, zero: Zero::Weights, ..Layout::ONE },
        Layout { data: 4, expert: 2, micro_batch: 1, ..Layout::ONE },
        Layout { stages: 2, data: 2, micro_batch: 2, ..Layout::ONE },
    ] {
        let mut first = start(&cann, &config, &recipe, layout);
        (0..2).for_each(|step| {
            assert_eq!(first.step(&batch(step)).unwrap().routers.unwrap().tokens, counts[step as usize]);
        });
        let (_folder, checkpoint) = saved(&mut first);
        let mut second = start(&cann, &config, &recipe, one);
        second.restore(&checkpoint, first.progress()).unwrap();
        (2..4).for_each(|step| {
            assert_eq!(second.step(&batch(step)).unwrap().routers.unwrap().tokens, counts[step as usize]);
        });
        assert_eq!(bits(&whole_parts(&mut second)), bits(&whole), "{layout:?}");
    }
    let refused =
        |name: &str| compile(&self::config(name), &recipe, &one, Target::ANY).unwrap_err().to_string();
    let message = refused("mixtral");
    assert!(message.contains("router_bias_rate: the model has no biases of choices"), "{message}");
}
