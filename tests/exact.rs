//! Exact sum order in training: the same bits of all weights, moments, losses and norms on every
//! layout and after every change of layout.

use std::collections::BTreeMap;
use std::path::Path;

use ascend_tp::config::ModelConfig;
use ascend_tp::device::KernelSource;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::placement::Residual;
use ascend_tp::schedule::Target;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::checkpoint::Checkpoint;
use ascend_tp::train::data::Batch;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compiled, Layout, Recipe, Recompute, Trainer, Zero, compile};

use crate::common::cann;
use crate::common::cases::is_sampled;
use crate::common::trainers::{save, whole_parts};
use crate::training::{Golden, follows};

const STEPS: usize = 8;
const ONE: Layout = Layout { micro_batch: 8, ..Layout::ONE };
const SEQ: Residual = Residual::Seq;

/// Layouts of at most eight cards: every axis alone and combined, each stage of `ZeRO`, each
/// recomputation mode.
const LAYOUTS: [Layout; 26] = [
    ONE,
    Layout { micro_batch: 1, ..ONE },
    Layout { micro_batch: 2, recompute: Recompute::Full, ..ONE },
    Layout { data: 2, micro_batch: 4, ..ONE },
    Layout { data: 2, micro_batch: 1, zero: Zero::Moments, ..ONE },
    Layout { data: 2, micro_batch: 2, zero: Zero::Weights, recompute: Recompute::Full, ..ONE },
    Layout { data: 4, micro_batch: 2, zero: Zero::Gradients, ..ONE },
    Layout { data: 4, micro_batch: 1, recompute: Recompute::Selective, ..ONE },
    Layout { data: 8, micro_batch: 1, zero: Zero::Weights, ..ONE },
    Layout { data: 8, replicas: 2, micro_batch: 1, zero: Zero::Gradients, ..ONE },
    Layout { tensor: 2, ..ONE },
    Layout { tensor: 2, micro_batch: 2, residual: SEQ, ..ONE },
    Layout { tensor: 4, micro_batch: 4, ..ONE },
    Layout { tensor: 4, residual: SEQ, recompute: Recompute::Layers(1), ..ONE },
    Layout { tensor: 8, ..ONE },
    Layout { tensor: 8, micro_batch: 1, residual: SEQ, ..ONE },
    Layout { data: 2, tensor: 2, micro_batch: 2, residual: SEQ, zero: Zero::Weights, ..ONE },
    Layout { data: 2, tensor: 4, micro_batch: 1, zero: Zero::Gradients, ..ONE },
    Layout { data: 4, tensor: 2, micro_batch: 2, residual: SEQ, zero: Zero::Moments, ..ONE },
    Layout { data: 4, replicas: 2, tensor: 2, micro_batch: 1, zero: Zero::Weights, ..ONE },
    Layout { stages: 2, micro_batch: 2, ..ONE },
    Layout { stages: 2, micro_batch: 1, recompute: Recompute::Full, ..ONE },
    Layout { stages: 2, data: 2, micro_batch: 2, zero: Zero::Weights, ..ONE },
    Layout { stages: 2, tensor: 2, micro_batch: 4, residual: SEQ, ..ONE },
    Layout { stages: 2, data: 2, tensor: 2, micro_batch: 1, zero: Zero::Moments, ..ONE },
    Layout { stages: 2, tensor: 4, micro_batch: 2, ..ONE },
];

pub(crate) fn small(tied_embeddings: bool) -> ModelConfig {
    let config = Golden::read("qwen2-gqa-adamw").model.config;
    ModelConfig {
        layers: 2,
        hidden_size: 16,
        intermediate_size: 48,
        vocab_size: 64,
        tied_embeddings,
        ..config
    }
}

pub(crate) fn recipe(precision: TrainingPrecision) -> Recipe {
    Recipe { steps: STEPS, seq: 8, global_batch: 8, precision, exact: true, ..Recipe::default() }
}

fn start(config: &ModelConfig, recipe: &Recipe, layout: Layout) -> Trainer {
    let compiled = compile(config, recipe, &layout, Target::ANY)
        .unwrap_or_else(|problems| panic!("{layout:?}: {problems}"));
    start_with(config, recipe, layout, compiled, KernelSource::None)
}

fn start_with(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: Layout,
    compiled: Compiled,
    kernels: KernelSource,
) -> Trainer {
    let cann = cann(layout.cards());
    let options = EngineOptions { kernels, ..EngineOptions::default() };
    let builder = Trainer::of_seed(&cann, config, 5).recipe(recipe.clone()).layout(layout);
    builder.compiled(compiled).engine(options).start().unwrap()
}

#[derive(PartialEq)]
pub(crate) struct RunResult {
    numbers: Vec<(u64, u64)>,
    tensors: BTreeMap<String, Vec<u8>>,
}

fn steps(trainer: &mut Trainer, config: &ModelConfig, recipe: &Recipe, to: usize) -> Vec<(u64, u64)> {
    let batch = |at: usize| Batch::scattered(at as u64, recipe.global_batch, recipe.seq, config.vocab_size);
    let mut numbers = Vec::new();
    while trainer.next_step() < to {
        let step = trainer.step(&batch(trainer.next_step())).unwrap();
        numbers.push((step.loss.to_bits(), step.grad_norm.to_bits()));
    }
    numbers
}

fn run(config: &ModelConfig, recipe: &Recipe, layout: Layout) -> RunResult {
    left(start(config, recipe, layout), config, recipe)
}

pub(crate) fn run_with(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: Layout,
    compiled: Compiled,
    kernels: KernelSource,
) -> RunResult {
    left(start_with(config, recipe, layout, compiled, kernels), config, recipe)
}

fn left(mut trainer: Trainer, config: &ModelConfig, recipe: &Recipe) -> RunResult {
    let numbers = steps(&mut trainer, config, recipe, recipe.steps);
    RunResult { numbers, tensors: whole_parts(&mut trainer) }
}

fn are_alike(config: &ModelConfig, recipe: &Recipe, layouts: &[Layout]) {
    let expected = run(config, recipe, layouts[0]);
    assert_eq!(expected.numbers.len(), recipe.steps);
    for layout in &layouts[1..] {
        let found = run(config, recipe, *layout);
        let others = expected.tensors.iter().filter(|(name, bytes)| found.tensors.get(*name) != Some(bytes));
        let others: Vec<&String> = others.map(|(name, _)| name).collect();
        assert!(others.is_empty(), "{layout:?}: other bits in {others:?}");
        assert!(found == expected, "{layout:?}: other losses or norms");
    }
}

#[test]
fn every_layout_has_the_same_bits_in_f32() {
    let recipe = Recipe { steps: 4, ..recipe(TrainingPrecision::F32) };
    let layouts = LAYOUTS.into_iter().enumerate().filter(|(number, _)| is_sampled(*number, 2));
    are_alike(&small(false), &recipe, &layouts.map(|(_, layout)| layout).collect::<Vec<_>>());
}

#[test]
fn every_layout_has_the_same_bits_in_bf16_with_a_tied_head() {
    let layouts = [1, 5, 9, 11, 13, 14, 17, 19, 24].map(|at| LAYOUTS[at]);
    let layouts = layouts.into_iter().enumerate().filter(|(number, _)| is_sampled(*number, 2));
    let recipe = Recipe { steps: 4, ..recipe(TrainingPrecision::Bf16) };
    let all: Vec<Layout> = [ONE].into_iter().chain(layouts.map(|(_, layout)| layout)).collect();
    are_alike(&small(true), &recipe, &all);
}

#[test]
fn f16_adapters_and_other_orders_of_stages_have_the_same_bits() {
    let f16 = Recipe { steps: 2, ..recipe(TrainingPrecision::F16) };
    are_alike(&small(false), &f16, &[ONE, LAYOUTS[16], LAYOUTS[24]]);
    let lora = Recipe {
        lora: Some("rank=2,alpha=4,targets=all-linear".parse().unwrap()),
        steps: 2,
        ..recipe(TrainingPrecision::F32)
    };
    are_alike(&small(false), &lora, &[ONE, LAYOUTS[16], LAYOUTS[13], LAYOUTS[24]]);
    for pipeline in [Pipeline::GPipe, Pipeline::ZeroBubbleH1] {
        let staged = Recipe { pipeline, steps: 2, ..recipe(TrainingPrecision::F32) };
        are_alike(&small(false), &staged, &[ONE, LAYOUTS[21], LAYOUTS[24]]);
    }
    let deep = ModelConfig { layers: 4, ..small(true) };
    for pipeline in [Pipeline::Interleaved { chunks: 2 }, Pipeline::ZeroBubbleV] {
        let staged = Recipe { pipeline, steps: 2, ..recipe(TrainingPrecision::F32) };
        are_alike(&deep, &staged, &[ONE, LAYOUTS[20], LAYOUTS[24]]);
    }
}

/// Soft caps, norms over all heads, scaled embeddings, one key head, and fused projections.
#[test]
fn every_family_has_the_same_bits() {
    let layouts = [
        ONE,
        Layout { tensor: 2, micro_batch: 2, residual: SEQ, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 1, zero: Zero::Weights, ..ONE },
        Layout { stages: 2, micro_batch: 4, recompute: Recompute::Full, ..ONE },
        Layout { context: 2, ..ONE },
    ];
    let full = Recipe { steps: 2, ..recipe(TrainingPrecision::F32) };
    let lora = Some("rank=2,alpha=4,targets=all-linear".parse().unwrap());
    let lora = Recipe { lora, ..full };
    let families = ["mistral-sliding", "phi3", "glm4", "olmo2", "gemma2", "gemma3"];
    for (at, name) in families.into_iter().enumerate() {
        let is_in = |(number, _): &(usize, Layout)| *number == 0 || is_sampled(at + number, 3);
        let layouts = layouts.into_iter().enumerate().filter(is_in).map(|(_, layout)| layout);
        let layouts: Vec<Layout> = layouts.collect();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let config = Model::open_config(&folder).unwrap();
        are_alike(&config, &full, &layouts);
        are_alike(&config, &lora, &layouts[..2]);
    }
}

#[test]
fn tokens_on_several_cards_have_the_same_bits() {
    let layouts = [
        ONE,
        Layout { context: 2, ..ONE },
        Layout { context: 4, micro_batch: 2, zero: Zero::Weights, ..ONE },
        Layout { context: 2, tensor: 2, residual: SEQ, ..ONE },
        Layout { context: 2, tensor: 4, micro_batch: 4, recompute: Recompute::Full, ..ONE },
        Layout { context: 2, data: 2, micro_batch: 2, zero: Zero::Moments, ..ONE },
        Layout { context: 4, data: 2, micro_batch: 1, zero: Zero::Gradients, ..ONE },
        Layout { context: 2, stages: 2, tensor: 2, micro_batch: 2, ..ONE },
    ];
    let several = Recipe { steps: 2, ..recipe(TrainingPrecision::F32) };
    are_alike(&small(false), &several, &layouts);
    let own = small(true);
    let own = ModelConfig { kv_heads: own.heads, ..own };
    are_alike(
        &own,
        &Recipe { precision: TrainingPrecision::Bf16, ..several },
        &[ONE, layouts[2], layouts[3], layouts[5]],
    );
}

#[test]
fn sizes_that_do_not_divide_have_the_same_bits() {
    let config = ModelConfig { hidden_size: 18, intermediate_size: 50, vocab_size: 259, ..small(false) };
    let several = Recipe { steps: 2, seq: 7, ..recipe(TrainingPrecision::F32) };
    let layouts = [
        ONE,
        Layout { tensor: 2, residual: SEQ, ..ONE },
        Layout { tensor: 4, micro_batch: 2, residual: SEQ, ..ONE },
        Layout { tensor: 8, ..ONE },
        Layout { data: 2, tensor: 4, micro_batch: 2, zero: Zero::Weights, ..ONE },
        Layout { context: 2, tensor: 2, micro_batch: 4, residual: SEQ, ..ONE },
        Layout { stages: 2, tensor: 4, micro_batch: 2, zero: Zero::Moments, ..ONE },
    ];
    are_alike(&config, &several, &layouts);
    let heads = ModelConfig { heads: 6, kv_heads: 3, tied_embeddings: true, ..config };
    let bf16 = Recipe { precision: TrainingPrecision::Bf16, ..several };
    are_alike(&heads, &bf16, &[ONE, layouts[1], Layout { data: 2, tensor: 2, micro_batch: 2, ..ONE }]);
}

#[test]
fn a_batch_that_is_no_power_of_two_has_the_same_bits() {
    let recipe = Recipe { steps: 2, global_batch: 6, ..recipe(TrainingPrecision::F32) };
    are_alike(&small(false), &recipe, &[ONE, LAYOUTS[1], LAYOUTS[4], LAYOUTS[6], LAYOUTS[18]]);
}

#[test]
fn a_run_goes_on_on_other_layouts_as_if_nothing_had_happened() {
    let (config, recipe) = (small(true), recipe(TrainingPrecision::F32));
    let expected = run(&config, &recipe, ONE);
    let mut numbers = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    let chain = [0, 19, 15, 24, 8, 13, 22];
    for (at, layout) in chain.into_iter().enumerate() {
        let mut trainer = start(&config, &recipe, LAYOUTS[layout]);
        if at > 0 {
            let saved = Checkpoint::latest(folder.path()).unwrap().unwrap();
            let progress = serde_json::from_value(saved.index().state.clone()).unwrap();
            trainer.restore(&saved, progress).unwrap();
        }
        let end = if at + 1 == chain.len() { STEPS } else { at + 1 };
        numbers.extend(steps(&mut trainer, &config, &recipe, end));
        save(&mut trainer, folder.path());
        if end == STEPS {
            assert!(
                RunResult { numbers: numbers.clone(), tensors: whole_parts(&mut trainer) } == expected,
                "after six resumes"
            );
        }
    }
}

/// Checks that the other tests are meaningful: without a fixed order the bits differ.
#[test]
fn without_one_order_layouts_have_other_bits() {
    let recipe = Recipe { exact: false, steps: 2, ..recipe(TrainingPrecision::F32) };
    let expected = run(&small(false), &recipe, ONE);
    for layout in [LAYOUTS[1], LAYOUTS[3], LAYOUTS[10], LAYOUTS[16], Layout { context: 2, ..ONE }] {
        assert!(run(&small(false), &recipe, layout) != expected, "{layout:?}");
    }
}

#[test]
fn exact_runs_follow_torch_within_the_usual_bounds() {
    let cases: [(&str, &[Layout]); 4] = [
        ("qwen2-gqa-adamw", &[LAYOUTS[16]]),
        ("llama3-sgd", &[Layout { data: 4, tensor: 2, micro_batch: 1, zero: Zero::Moments, ..ONE }]),
        (
            "qwen2-tied-uneven-masked",
            &[Layout { data: 2, tensor: 2, micro_batch: 2, zero: Zero::Moments, ..ONE }],
        ),
        ("qwen3-qknorm-bf16", &[Layout { micro_batch: 4, ..ONE }]),
    ];
    for (name, layouts) in cases {
        let mut golden = Golden::read(name);
        golden.recipe.exact = true;
        follows(&format!("{name}, exact"), &golden, layouts);
    }
}

#[test]
fn what_has_no_one_order_is_said_before_anything_runs() {
    let said = |config: &ModelConfig, layout: Layout| {
        compile(config, &recipe(TrainingPrecision::F32), &layout, Target::ANY).unwrap_err().to_string()
    };
    let text = said(&small(false), Layout { data: 3, tensor: 6, micro_batch: 3, context: 5, ..ONE });
    for part in [
        "found cp=5",
        "dp does not divide the 16 blocks",
        "found dp=3",
        "found tp=6",
        "found --micro-batch 3",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let heads = Golden::read("qwen2-tied-uneven-masked").model.config;
    let text = said(&heads, Layout { tensor: 4, ..ONE });
    assert!(
        text.contains("attention.out") && text.contains("cut a dim of 3 elements, so that one has none"),
        "{text}"
    );
}
