//! Pipeline stages: torch's curves, the gradients of one card, any order of the ranks, checkpoints
//! on other meshes, and refusals.

use ascend_tp::config::{Lora, ModelConfig};
use ascend_tp::emulator::Mode;
use ascend_tp::exec::EngineOptions;
use ascend_tp::placement::Residual;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::schedule::plan::{Action, CollectiveKind, Plan, Region, Step};
use ascend_tp::schedule::{Ranks, Staged, StagedStep, StepOrder, Target, schedule_stages, verify};
use ascend_tp::train::data::Batch;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::verify::{Gradients, gradients};
use ascend_tp::train::{Layout, Recipe, Recompute, Trainer, Zero, compile, init, lower};

use crate::common::cases::is_sampled;
use crate::common::shipped;
use crate::common::trainers::{cards, runs_in_any_order, saved, start, whole_parts};
use crate::training::{Golden, follows};

const ONE: Layout = Layout::ONE;
const TWO: Layout = Layout { stages: 2, ..ONE };

pub(crate) const PIPELINES: [Pipeline; 5] = [
    Pipeline::OneForwardOneBackward,
    Pipeline::GPipe,
    Pipeline::ZeroBubbleH1,
    Pipeline::Interleaved { chunks: 2 },
    Pipeline::ZeroBubbleV,
];

fn golden(name: &str, pipeline: Pipeline, layouts: &[Layout]) {
    let mut golden = Golden::read(name);
    golden.recipe.pipeline = pipeline;
    follows(&format!("{name}, {pipeline}"), &golden, layouts);
}

#[test]
fn adamw_in_two_stages() {
    let layouts = [
        Layout { micro_batch: 2, ..TWO },
        Layout { tensor: 2, micro_batch: 4, ..TWO },
        Layout { data: 2, micro_batch: 1, ..TWO },
        Layout { data: 2, tensor: 2, micro_batch: 2, residual: Residual::Seq, zero: Zero::Moments, ..TWO },
        Layout { data: 2, micro_batch: 2, zero: Zero::Weights, recompute: Recompute::Full, ..TWO },
    ];
    golden("qwen2-gqa-adamw", Pipeline::OneForwardOneBackward, &layouts);
    golden("qwen2-gqa-adamw", Pipeline::GPipe, &layouts[..2]);
    golden("qwen2-gqa-adamw", Pipeline::ZeroBubbleH1, &layouts[1..4]);
}

#[test]
fn tied_weights_masked_labels_and_sizes_that_do_not_divide_in_two_stages() {
    let layouts = [
        Layout { micro_batch: 5, ..TWO },
        Layout { tensor: 3, micro_batch: 4, residual: Residual::Seq, ..TWO },
        Layout { data: 2, tensor: 2, micro_batch: 2, zero: Zero::Gradients, ..TWO },
        Layout { data: 3, micro_batch: 1, zero: Zero::Weights, ..TWO },
    ];
    golden("qwen2-tied-uneven-masked", Pipeline::OneForwardOneBackward, &layouts);
    golden("qwen2-tied-uneven-masked", Pipeline::ZeroBubbleH1, &layouts[..1]);
}

#[test]
fn sgd_and_16_bits_in_two_stages() {
    golden("llama3-sgd", Pipeline::GPipe, &[Layout { micro_batch: 1, ..TWO }, Layout { data: 2, ..TWO }]);
    let layouts = [Layout { micro_batch: 2, ..TWO }, Layout { tensor: 2, micro_batch: 1, ..TWO }];
    golden("qwen3-qknorm-bf16", Pipeline::OneForwardOneBackward, &layouts);
    let mut golden = Golden::read("qwen3-qknorm-bf16");
    golden.recipe.precision = TrainingPrecision::F16;
    follows("in f16", &golden, &[Layout { data: 2, micro_batch: 2, zero: Zero::Moments, ..TWO }]);
}

/// The shipped model of eight layers with several parts per stage, compared with its own curve on
/// one card.
#[test]
fn several_parts_a_stage_of_the_shipped_model() {
    let model = shipped();
    let recipe = Recipe { steps: 3, seq: 16, global_batch: 8, ..Recipe::default() };
    let batch =
        |at: usize| Batch::scattered(at as u64, recipe.global_batch, recipe.seq, model.config.vocab_size);
    let batches: Vec<Batch> = (0..recipe.steps).map(batch).collect();
    let mut golden = Golden { model, recipe, batches, expected: Vec::new() };
    let mut one = golden.start(Layout { micro_batch: 8, ..ONE }).unwrap();
    let steps = golden.batches.iter().map(|batch| one.step(batch).unwrap());
    golden.expected = steps.map(|step| (step.loss, step.grad_norm)).collect();
    let orders = [
        (
            Pipeline::Interleaved { chunks: 2 },
            [Layout { micro_batch: 2, ..TWO }, Layout { stages: 4, tensor: 2, ..ONE }],
        ),
        (Pipeline::ZeroBubbleV, [Layout { data: 2, tensor: 2, ..TWO }, Layout { stages: 4, ..ONE }]),
    ];
    for (pipeline, layouts) in orders {
        golden.recipe.pipeline = pipeline;
        follows(&format!("kjv-qwen2, {pipeline}"), &golden, &layouts);
    }
}

fn deep(layers: usize, tied: bool) -> ModelConfig {
    let config = Golden::read("qwen2-gqa-adamw").model.config;
    ModelConfig { layers, tied_embeddings: tied, ..config }
}

fn recipe(pipeline: Pipeline) -> Recipe {
    Recipe { seq: 8, global_batch: 12, pipeline, ..Recipe::default() }
}

fn gradients_of(config: &ModelConfig, recipe: &Recipe, layout: Layout) -> Gradients {
    let (_emulator, cann) = cards(Mode::Parallel, layout.cards());
    let inits = compile(config, recipe, &layout, Target::ANY).unwrap().inits;
    let fill = |shards: &ascend_tp::exec::Shards<'_>| init::fill(shards, &inits, 5);
    gradients(&cann, config, recipe, layout, &EngineOptions::default(), None, fill).unwrap()
}

/// Layers that do not divide by the stages, in every schedule: the same gradients as on one card.
#[test]
fn gradients_of_uneven_stages_are_one_cards() {
    for (layers, tied) in [(5, false), (7, true)] {
        let config = deep(layers, tied);
        let expected = gradients_of(&config, &recipe(Pipeline::GPipe), Layout { micro_batch: 12, ..ONE });
        for (number, pipeline) in PIPELINES.into_iter().enumerate() {
            for (at, layout) in [
                Layout { stages: 3, micro_batch: 2, ..ONE },
                Layout { tensor: 2, micro_batch: 3, ..TWO },
                Layout { stages: 3, data: 2, micro_batch: 1, recompute: Recompute::Selective, ..ONE },
            ]
            .into_iter()
            .enumerate()
            {
                let is_left_out = !is_sampled(number + at + usize::from(tied), 2);
                if is_left_out || layout.stages * pipeline.chunks() > layers {
                    continue;
                }
                let found = gradients_of(&config, &recipe(pipeline), layout);
                let context = format!("{layers} layers, tied {tied}, {pipeline}, {layout:?}");
                assert_eq!(found.tensors.len(), expected.tensors.len(), "{context}");
                let off = expected.deviations(&found).iter().map(|of| of.relative()).fold(0.0, f64::max);
                println!("{context}: off by {off:.1e}");
                assert!(off <= Gradients::bound(&config), "{context}: {:?}", expected.deviations(&found)[0]);
                assert!(
                    (found.loss - expected.loss).abs() <= 1e-5,
                    "{context}: {} {}",
                    found.loss,
                    expected.loss
                );
                assert!(
                    (found.norm / expected.norm - 1.0).abs() <= 2e-5,
                    "{context}: {} {}",
                    found.norm,
                    expected.norm
                );
            }
        }
    }
}

fn steps(trainer: &mut Trainer, config: &ModelConfig, recipe: &Recipe, count: usize) -> Vec<f64> {
    let batch = |at: usize| Batch::scattered(at as u64, recipe.global_batch, recipe.seq, config.vocab_size);
    (0..count).map(|at| trainer.step(&batch(at)).unwrap().loss).collect()
}

#[test]
fn stages_run_in_any_order() {
    let config = deep(4, true);
    let tensor = Layout { tensor: 2, ..TWO };
    let layouts = PIPELINES.into_iter().zip([tensor, TWO, TWO, tensor, TWO]);
    for (number, (pipeline, layout)) in layouts.enumerate() {
        if !is_sampled(number, 2) {
            continue;
        }
        let recipe = Recipe { global_batch: 4, seq: 4, ..recipe(pipeline) };
        let batch = Batch::scattered(0, recipe.global_batch, recipe.seq, config.vocab_size);
        runs_in_any_order(&config, &recipe, layout, &batch);
    }
}

#[test]
fn checkpoints_go_on_with_and_without_stages() {
    let config = deep(3, true);
    let recipe = recipe(Pipeline::OneForwardOneBackward);
    let layouts = [
        Layout { micro_batch: 4, ..TWO },
        Layout { data: 2, tensor: 2, micro_batch: 3, zero: Zero::Moments, ..ONE },
        Layout { stages: 3, data: 2, micro_batch: 2, zero: Zero::Weights, ..ONE },
    ];
    let whole = {
        let (_emulator, cann) = cards(Mode::Parallel, 1);
        let layout = Layout { micro_batch: 12, ..ONE };
        steps(&mut start(&cann, &config, &recipe, layout), &config, &recipe, 4)
    };
    for from in layouts {
        let (_emulator, cann) = cards(Mode::Parallel, from.cards());
        let mut trainer = start(&cann, &config, &recipe, from);
        steps(&mut trainer, &config, &recipe, 2);
        let (_folder, saved) = saved(&mut trainer);
        for to in layouts {
            let (_emulator, cann) = cards(Mode::Parallel, to.cards());
            let mut other = start(&cann, &config, &recipe, to);
            other.restore(&saved, trainer.progress()).unwrap();
            let (own, found) = (whole_parts(&mut trainer), whole_parts(&mut other));
            assert_eq!(own, found, "{from:?} to {to:?}");
            for (at, expected) in whole.iter().enumerate().skip(2) {
                let batch = Batch::scattered(at as u64, recipe.global_batch, recipe.seq, config.vocab_size);
                let loss = other.step(&batch).unwrap().loss;
                assert!((loss - expected).abs() <= 1e-5, "{from:?} to {to:?}: {loss} {expected}");
            }
        }
    }
}

#[test]
fn adapters_alone_are_trained_over_stages() {
    let config = deep(3, true);
    let lora: Lora = "rank=4,alpha=8,targets=all-linear".parse().unwrap();
    let recipe = Recipe { lora: Some(lora), ..recipe(Pipeline::OneForwardOneBackward) };
    let run = |layout: Layout| {
        let (_emulator, cann) = cards(Mode::Parallel, layout.cards());
        steps(&mut start(&cann, &config, &recipe, layout), &config, &recipe, 3)
    };
    let (one, many) =
        (run(Layout { micro_batch: 12, ..ONE }), run(Layout { tensor: 2, micro_batch: 3, ..TWO }));
    assert!(one.iter().zip(&many).all(|(a, b)| (a - b).abs() <= 1e-5), "{one:?} {many:?}");
}

#[test]
fn what_no_pipeline_can_be_is_said_before_anything_runs() {
    let config = deep(3, false);
    let said = |pipeline: Pipeline, layout: Layout| {
        compile(&config, &recipe(pipeline), &layout, Target::ANY).unwrap_err().to_string()
    };
    let usual = Pipeline::OneForwardOneBackward;
    let text = said(usual, Layout { stages: 4, ..ONE });
    assert!(
        text.contains("pipeline: stages: need one layer each") && text.contains("at most 3 parts"),
        "{text}"
    );
    let text = said(usual, Layout { micro_batch: 12, ..TWO });
    assert!(text.contains("pipeline: micro-batches: are fewer than the stages"), "{text}");
    let text = said(Pipeline::Interleaved { chunks: 2 }, TWO);
    assert!(text.contains("at most 3 parts") && text.contains("found 4 of 2 stages"), "{text}");
    let text = compile(
        &deep(4, false),
        &recipe(Pipeline::Interleaved { chunks: 2 }),
        &Layout { micro_batch: 4, ..TWO },
        Target::ANY,
    );
    let text = text.unwrap_err().to_string();
    assert!(
        text.contains("a multiple of the stages for an interleaved schedule")
            && text.contains("a multiple of 2, found 3"),
        "{text}"
    );
}

fn plans(recipe: &Recipe, layout: Layout) -> Vec<Plan> {
    compile(&deep(4, false), recipe, &layout, Target::ANY).unwrap().plans.swap_remove(0).1
}

#[test]
fn a_transfer_that_one_side_lacks_is_found() {
    let sound = plans(&recipe(Pipeline::OneForwardOneBackward), TWO);
    assert!(verify(&sound).is_ok());
    for rank in 0..2 {
        let is_send = |step: &Step| matches!(&step.action, Action::Exchange(of) if matches!(of.kind, CollectiveKind::Send { .. }));
        let mut plans = sound.clone();
        let at = plans[rank].steps.iter().rposition(is_send).unwrap();
        plans[rank].steps.remove(at);
        let text = verify(&plans).unwrap_err().to_string();
        assert!(text.contains("sends and receives do not match"), "{text}");
    }
}

#[test]
fn no_op_is_lost() {
    let (config, recipe) = (deep(4, false), recipe(Pipeline::OneForwardOneBackward));
    let lowered = lower(&config, &recipe, &Layout { micro_batch: 6, ..TWO }).unwrap();
    let staged = |at: usize| Staged { placed: &lowered.parts[at].1, places: &lowered.places[at], like: None };
    let (first, last) = (staged(0), staged(1));
    let plans = |pipeline: Pipeline, programs: &[Staged<'_>], micro_batches: &[usize]| {
        let homes = &lowered.homes;
        let step = StagedStep { name: "step", pipeline, stages: 2, programs, homes, micro_batches };
        schedule_stages(&step, StepOrder::Overlapped, Target::ANY, Ranks::All)
    };
    let found = plans(recipe.pipeline, &[last], &[0]).unwrap();
    let calls = |plan: &Plan, name: &str| {
        let is_call = |step: &&Step| matches!(&step.action, Action::Launch(call) if call.name() == name);
        plan.steps.iter().filter(is_call).count()
    };
    let layers = found.iter().map(|plan| calls(plan, "aclnnFlashAttentionScore")).collect::<Vec<_>>();
    assert_eq!(layers, [2, 2], "each stage has two layers");
    let said = |pipeline, programs: &[Staged<'_>], micro_batches: &[usize]| {
        plans(pipeline, programs, micro_batches).unwrap_err().to_string()
    };
    let usual = recipe.pipeline;
    let fewer = Staged { places: &lowered.places[0][1..], ..first };
    let interleaved = Pipeline::Interleaved { chunks: 2 };
    for (text, expected) in [
        (said(usual, &[], &[]), "step: has no micro-batch"),
        (said(usual, &[first, last], &[]), "step: has no micro-batch"),
        (
            said(usual, &[first, last], &[0, 2]),
            "a micro-batch has no program: expected one of 2 programs, found program 2",
        ),
        (
            said(usual, &[first, last], &[1, 0]),
            "has ops behind micro-batches: expected only the last has, found program 1",
        ),
        (
            said(usual, &[first, last], &[1, 1]),
            "no micro-batch has a program: expected one has, found program 0",
        ),
        (said(usual, &[fewer, last], &[0, 1]), "places are not of the ops"),
        (
            said(interleaved, &[last], &[0]),
            "the order does not take the micro-batches: expected what interleaved=2 divides",
        ),
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

/// In 1F1B, a stage keeps as many activations as there are later stages; in `GPipe`, all
/// micro-batches.
#[test]
fn activations_that_live_at_once_follow_the_order() {
    let arena = |pipeline: Pipeline, layout: Layout| -> Vec<u64> {
        let recipe = Recipe { seq: 128, ..recipe(pipeline) };
        plans(&recipe, layout).iter().map(|plan| plan.region_bytes(Region::Arena).0).collect()
    };
    let layout = Layout { stages: 4, ..ONE };
    let (gpipe, usual) = (arena(Pipeline::GPipe, layout), arena(Pipeline::OneForwardOneBackward, layout));
    println!("arenas of stages: gpipe {gpipe:?}, 1f1b {usual:?}");
    assert!(usual.iter().zip(&gpipe).all(|(usual, gpipe)| usual < gpipe), "{usual:?} {gpipe:?}");
    // Live activations: 3 of 12 micro-batches on the second stage and 2 on the third.
    assert!(usual[1] > usual[2], "{usual:?}");
}
