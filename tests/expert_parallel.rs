//! Training with experts sharded over an axis that also distributes sequences: gradients of
//! transformers and of one card on each layout, and which collectives there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::base::DType;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::placement::{EXPERTS, ExpertShards, Residual};
use ascend_tp::program::op::Kind;
use ascend_tp::program::tree::SumOrder;
use ascend_tp::program::{HostTensor, Role, ValueId};
use ascend_tp::schedule::Target;
use ascend_tp::train::checkpoint::export;
use ascend_tp::train::choices::BatchChoices;
use ascend_tp::train::data::Batch;
use ascend_tp::train::init::{self, Init};
use ascend_tp::train::verify::{Gradients, gradients};
use ascend_tp::train::{
    Layout, Recipe, Recompute, StepOutcome, Trainer, TrainingPrecision, Zero, compile, layouts, lower,
};
use ascend_tp::weights::Checkpoint;
use ascend_tp::world::ProcessGroup;

use crate::common::cases::{cases, first_cases, is_sampled};
use crate::common::trainers::{saved, start, whole_parts};
use crate::common::{self, cann, fixture, open};
use crate::gradients::{Fixture, bound_of, params_of};

/// Returns layouts with experts on two or four cards, with all other forms of parallelism.
fn all_layouts() -> Vec<Layout> {
    let of = |data, expert| Layout { data, expert, micro_batch: 2, ..Layout::ONE };
    vec![
        of(4, 2),
        of(4, 4),
        Layout { tensor: 2, ..of(2, 2) },
        Layout { tensor: 2, experts: ExpertShards::Inner, residual: Residual::Seq, ..of(2, 2) },
        Layout { stages: 2, ..of(2, 2) },
        Layout { zero: Zero::Moments, ..of(4, 2) },
        Layout { zero: Zero::Gradients, recompute: Recompute::Full, ..of(4, 2) },
        Layout { zero: Zero::Weights, ..of(4, 2) },
        Layout { zero: Zero::Weights, tensor: 2, ..of(4, 4) },
        Layout { zero: Zero::Moments, context: 2, ..of(2, 2) },
        Layout { context: 2, ring: true, ..of(2, 2) },
        Layout { zero: Zero::Weights, replicas: 2, ..of(4, 2) },
    ]
}

#[test]
fn gradients_are_those_of_transformers() {
    let cann = cann(8);
    let of = |data, expert| Layout { data, expert, ..Layout::ONE };
    for name in ["qwen3-moe", "mixtral", "deepseek-v2", "deepseek-v3", "gpt-oss"] {
        let fixture = Fixture::read(name);
        // Both sequences of the reference, on two cards or on half of four.
        for layout in [
            of(2, 2),
            Layout { tensor: 2, ..of(2, 2) },
            Layout { zero: Zero::Weights, ..of(2, 2) },
            Layout { residual: Residual::Seq, tensor: 3, ..of(2, 2) },
            of(4, 2),
        ] {
            let mesh = layout.mesh(&fixture.config).unwrap();
            let loss = fixture.loss_program();
            let pins =
                layouts::pins(&fixture.config, &loss, &mesh, &layout, SumOrder::AsTheyCome, 0).unwrap();
            let place = format!("{name} on {mesh}");
            fixture.agrees_on(&cann, &mesh, &pins.among(&fixture.program), &place, bound_of(name));
        }
    }
}

pub(crate) fn step(cann: &Arc<Cann>, model: &Model, recipe: &Recipe, layout: Layout) -> Gradients {
    routed_step(cann, model, recipe, layout, None)
}

fn routed_step(
    cann: &Arc<Cann>,
    model: &Model,
    recipe: &Recipe,
    layout: Layout,
    given: Option<&BatchChoices>,
) -> Gradients {
    gradients(cann, &model.config, recipe, layout, &EngineOptions::default(), given, |shards| {
        let inits = shards.parts().map(|part| (part.tensor().name.clone(), Init::Uniform)).collect();
        init::fill_beside(&model.checkpoint, shards, &inits, 0)
    })
    .unwrap_or_else(|error| panic!("{} on {layout:?}: {error}", model.config.family))
}

/// Checks that a step on a layout has the loss and the gradients of one card.
pub(crate) fn has_the_gradients_of_one_card(
    cann: &Arc<Cann>,
    model: &Model,
    recipe: &Recipe,
    layout: Layout,
) {
    let place = format!("{} on {layout:?}", model.config.family);
    // The auxiliary loss is of the sequences of a micro-batch.
    let one = step(cann, model, recipe, Layout { micro_batch: layout.batch(), ..Layout::ONE });
    let many = step(cann, model, recipe, layout);
    let worst = one.deviations(&many).into_iter().max_by(|a, b| a.relative().total_cmp(&b.relative()));
    let worst = worst.unwrap();
    assert!(worst.relative() <= Gradients::bound(&model.config), "{place}: {worst:?}");
    assert!((many.loss / one.loss - 1.0).abs() <= 1e-5, "{place}");
    assert!((many.norm / one.norm - 1.0).abs() <= 2e-5, "{place}");
}

#[test]
fn a_step_has_the_gradients_of_one_card() {
    let cann = cann(8);
    // Qwen's ten experts are uneven on four cards, and so are the six of gpt-oss.
    for (family, name) in ["qwen3-moe", "mixtral", "gpt-oss"].into_iter().enumerate() {
        let model = open(&fixture(name));
        let recipe = Recipe { global_batch: 16, seq: 6, aux_loss: 0.02, ..Recipe::default() };
        for (number, layout) in all_layouts().into_iter().enumerate() {
            if is_sampled(family + number, 2) {
                has_the_gradients_of_one_card(&cann, &model, &recipe, layout);
            }
        }
    }
}

/// Roundings of bf16 change choices. With the choices of one card in f32, the gradients are within
/// three times the error of one card; with other choices they are not.
#[test]
fn a_step_in_bf16_has_the_gradients_of_one_card_on_the_same_choices() {
    let cann = cann(8);
    let of = |data, expert| Layout { data, expert, ..Layout::ONE };
    let layouts = [
        Layout { tensor: 2, ..of(2, 2) },
        Layout { context: 2, ..of(2, 2) },
        Layout { stages: 2, micro_batch: 1, zero: Zero::Moments, ..of(2, 1) },
        Layout { tensor: 3, residual: Residual::Seq, recompute: Recompute::Full, ..of(1, 1) },
    ];
    for (family, name) in ["qwen3-moe", "glm4-moe", "mixtral"].into_iter().enumerate() {
        let model = open(&fixture(name));
        let exact = Recipe { global_batch: 3, seq: 8, ..Recipe::default() };
        let recipe = Recipe { precision: TrainingPrecision::Bf16, ..exact.clone() };
        let one = Layout { micro_batch: 3, ..Layout::ONE };
        let expected = step(&cann, &model, &exact, one);
        let choices = expected.choices.as_ref().unwrap();
        let rounded = routed_step(&cann, &model, &recipe, one, Some(choices));
        let bounds = Gradients::bounds_of_rounded(&expected.deviations(&rounded));
        let first_outside = |found: &Gradients| {
            let deviations = expected.deviations(found).into_iter().zip(&bounds);
            deviations.filter(|(deviation, bound)| deviation.relative() > **bound).map(|(it, _)| it).next()
        };
        for (number, layout) in layouts.into_iter().enumerate() {
            if !is_sampled(family + number, 4) {
                continue;
            }
            let many = routed_step(&cann, &model, &recipe, layout, Some(choices));
            assert_eq!(first_outside(&many), None, "{name} on {layout:?}: {bounds:?}");
            let rows = many.choices.unwrap().compared_with(choices).rows;
            assert_eq!(rows, recipe.global_batch * recipe.seq * model.config.mixtures().count());
        }
        if family == 0 {
            let first = BatchChoices::of_first(None, &model.config, &recipe, &ProcessGroup::alone()).unwrap();
            let other = routed_step(&cann, &model, &recipe, one, Some(&first));
            assert!(first_outside(&other).is_some(), "{name} has these gradients on the first experts");
        }
    }
}

/// The files have gate and up projections in alternate columns, and inputs before outputs.
#[test]
fn trained_experts_are_exported_in_the_order_of_their_files() {
    let fixture = Fixture::read("gpt-oss");
    let precision = TrainingPrecision::Bf16;
    let recipe = Recipe { precision, global_batch: 4, seq: 6, ..Recipe::default() };
    let layout = Layout { data: 2, expert: 2, tensor: 2, micro_batch: 2, ..Layout::ONE };
    let cann = cann(4);
    let mut trainer = start(&cann, &fixture.config, &recipe, layout);
    trainer.step(&Batch::scattered(0, recipe.global_batch, recipe.seq, fixture.config.vocab_size)).unwrap();
    let whole = whole_parts(&mut trainer);
    let (folder, checkpoint) = saved(&mut trainer);
    let exported = folder.path().join("exported");
    export(&checkpoint, &common::fixture("gpt-oss"), None, DType::F32, &exported).unwrap();
    let params = params_of(&fixture.loss_program(), &Checkpoint::open(&exported).unwrap());
    for (name, found) in &params {
        let trained = HostTensor::from_bytes(found.shape.clone(), DType::F32, &whole[name]);
        assert_eq!(found.floats(), trained.floats(), "{name}");
    }
    assert!(params.keys().any(|name| name.ends_with("experts.gate_up_bias")), "{:?}", params.keys());
}

#[test]
fn experts_are_sharded_and_only_tokens_are_exchanged_for_them() {
    let config = open(&fixture("mixtral")).config;
    let recipe = Recipe { global_batch: 4, seq: 6, ..Recipe::default() };
    for zero in [Zero::None, Zero::Weights] {
        let layout = Layout { data: 4, expert: 2, zero, ..Layout::ONE };
        let placed = &lower(&config, &recipe, &layout).unwrap().parts[0].1;
        let (program, mesh) = (&placed.program, &placed.mesh);
        let over_experts = mesh.named(EXPERTS)[0];
        let is_expert = |id: &ValueId| {
            let name = &program.values[*id].name;
            name.contains("experts.gate_up") || name.contains("experts.down")
        };
        let mut params = program.with_role(Role::Param).filter(is_expert);
        assert!(params.all(|id| placed.layouts[id].dims[0].contains(&over_experts)), "{zero:?}");
        let mut of_tokens = BTreeSet::new();
        for op in program.ops.values().iter().filter(|op| op.kind.axes().contains(&over_experts)) {
            let name = op.kind.row().name;
            if op.operands.iter().chain(&op.results).any(is_expert) {
                panic!("{zero:?}: {name} over {EXPERTS} of {:?}", program.values[op.operands[0]]);
            }
            if program.values[op.operands[0]].shape.rank() == 3 {
                of_tokens.insert(name);
            }
        }
        assert!(of_tokens.is_superset(&BTreeSet::from(["all_gather", "reduce_scatter"])), "{of_tokens:?}");
        // Each card multiplies its own half of the experts, by the tokens of two cards.
        let experts = program.ops.values().iter().filter(|op| matches!(op.kind, Kind::Experts));
        for op in experts {
            let [x, gate_up] = [0, 3].map(|operand| {
                let id = op.operands[operand];
                placed.layouts[id].local_shape(mesh, &program.values[id].shape, 0)
            });
            assert_eq!((x[0], gate_up[0]), (2, 4), "{zero:?}");
        }
    }
}

#[test]
fn what_has_no_one_order_of_sums_is_refused() {
    let recipe = Recipe { global_batch: 2, seq: 4, exact: true, ..Recipe::default() };
    let message = |name: &str| {
        let config = open(&fixture(name)).config;
        compile(&config, &recipe, &Layout::ONE, Target::ANY).unwrap_err().to_string()
    };
    let biased = message("gpt-oss");
    assert!(biased.contains("experts with biases, in a fixed order"), "{biased}");
    let recurrent = message("qwen3-next");
    assert!(recurrent.contains("the gradients of convolutions have no fixed order of sums"), "{recurrent}");
}

/// A lowered program can have ops between a choice and the sum with its bias.
#[test]
fn checkpoints_have_each_bias_of_a_choice_once() {
    let config = open(&fixture("deepseek-v3")).config;
    let recipe = Recipe { global_batch: 16, seq: 6, router_bias_rate: 0.01, ..Recipe::default() };
    for layout in first_cases(&all_layouts()[2..], 2) {
        let compiled = compile(&config, &recipe, layout, Target::ANY)
            .unwrap_or_else(|problems| panic!("{layout:?}: {problems}"));
        for layer in [1, 2] {
            let bias = format!("model.layers.{layer}.mlp.gate.e_score_correction_bias");
            assert!(compiled.sharding.has(&bias), "{layout:?}: {bias}");
        }
    }
}

#[test]
fn cards_without_experts_are_refused() {
    let refused = |name: &str, layout: Layout| {
        let config = open(&fixture(name)).config;
        let recipe = Recipe { global_batch: 16, seq: 4, ..Recipe::default() };
        compile(&config, &recipe, &layout, Target::ANY).unwrap_err().to_string()
    };
    let message = refused("qwen2-gqa", Layout { data: 2, expert: 2, ..Layout::ONE });
    assert!(message.starts_with("layout: expert: shares experts, and the model has none"), "{message}");
    let message = refused("mixtral", Layout { data: 16, expert: 16, ..Layout::ONE });
    assert!(message.contains("expected at most 8, found 16"), "{message}");
    let message = refused("mixtral", Layout { data: 4, expert: 3, ..Layout::ONE });
    assert!(message.contains("does not divide the data-parallel cards"), "{message}");
}

/// Steps of a run. In the suite, two layouts run the first [`FEW`] steps. `cargo xtask soak suite
/// expert_parallel::` runs all steps on all layouts.
const SIXTY: usize = 60;
const FEW: usize = 6;
/// Micro-batches have the same sequences on each layout, because the auxiliary loss is of the
/// sequences of a micro-batch.
const ONE: Layout = Layout { micro_batch: 4, ..Layout::ONE };

fn layouts_of_runs() -> [Layout; 6] {
    let of = |data, expert| Layout { data, expert, micro_batch: 4 / data, ..Layout::ONE };
    [
        Layout { zero: Zero::Weights, ..of(4, 2) },
        Layout { stages: 2, ..of(2, 2) },
        of(4, 4),
        Layout { tensor: 2, ..of(2, 2) },
        of(4, 2),
        Layout { zero: Zero::Moments, ..of(4, 2) },
    ]
}

fn run(cann: &Arc<Cann>, model: &Model, recipe: &Recipe, layout: Layout) -> Vec<StepOutcome> {
    let builder = Trainer::of_model(cann, model).recipe(recipe.clone()).layout(layout);
    let mut trainer = builder.start().unwrap_or_else(|error| panic!("{layout:?}: {error}"));
    let batch = |step| Batch::scattered(step, recipe.global_batch, recipe.seq, model.config.vocab_size);
    (0..recipe.steps as u64).map(|step| trainer.step(&batch(step)).unwrap()).collect()
}

/// Returns the tokens that each expert of each layer received.
fn tokens(step: &StepOutcome) -> &[Vec<u64>] {
    &step.routers.as_ref().unwrap().tokens
}

#[test]
fn an_exact_run_has_the_bits_of_one_card() {
    let cann = cann(8);
    let steps = cases(FEW).min(SIXTY);
    let of =
        |precision| Recipe { precision, steps, global_batch: 8, seq: 8, exact: true, ..Recipe::default() };
    let balanced = Recipe { aux_loss: 0.02, z_loss: 1e-3, ..of(TrainingPrecision::F32) };
    let biased = Recipe { router_bias_rate: 0.01, ..of(TrainingPrecision::Bf16) };
    let rows = [("qwen3-moe", balanced.clone()), ("deepseek-v3", biased), ("mixtral", balanced)];
    for (name, recipe) in first_cases(&rows, 2) {
        let model = open(&fixture(name));
        let bits = |recipe: &Recipe, layout: Layout| {
            let numbers = |step: &StepOutcome| {
                let routers = step.routers.as_ref().unwrap();
                let losses = [Some(step.loss), Some(step.grad_norm), routers.aux_loss, routers.z_loss];
                (losses.map(|loss| loss.map(f64::to_bits)), tokens(step).to_vec())
            };
            run(&cann, &model, recipe, layout).iter().map(numbers).collect::<Vec<_>>()
        };
        let one = bits(recipe, ONE);
        for layout in first_cases(&layouts_of_runs(), 2) {
            let many = bits(recipe, *layout);
            for (step, (found, expected)) in many.iter().zip(&one).enumerate() {
                assert_eq!(found, expected, "{name} on {layout:?}, step {step}");
            }
        }
        let usual = Recipe { exact: false, ..recipe.clone() };
        let [one, many] = [ONE, layouts_of_runs()[0]].map(|layout| bits(&usual, layout));
        assert_ne!(one, many, "{name} has these bits in any order");
    }
}

#[test]
fn a_run_follows_one_card() {
    let cann = cann(8);
    let model = open(&fixture("qwen3-moe"));
    let steps = cases(FEW).min(SIXTY);
    let recipe = Recipe { steps, global_batch: 8, seq: 8, aux_loss: 0.02, ..Recipe::default() };
    let one = run(&cann, &model, &recipe, ONE);
    for layout in first_cases(&layouts_of_runs(), 2) {
        let mut compared = 0;
        for (found, expected) in run(&cann, &model, &recipe, *layout).iter().zip(&one) {
            let place = format!("{layout:?}, step {}", expected.step);
            let [own, other] = [found, expected].map(|step| step.routers.as_ref().unwrap());
            // A rounding can change one choice of the step, and then the following steps differ.
            let changed = tokens(found).iter().flatten().zip(tokens(expected).iter().flatten());
            let changed: u64 = changed.map(|(a, b)| a.abs_diff(*b)).sum();
            if changed > 0 {
                println!("{place}: {} choices differ", changed / 2);
                assert!(changed <= 2, "{place}: {changed} counts differ");
                break;
            }
            let relative = |found: f64, expected: f64| (found / expected - 1.0).abs();
            let off = [
                relative(found.loss, expected.loss),
                relative(own.aux_loss.unwrap(), other.aux_loss.unwrap()),
                relative(found.grad_norm, expected.grad_norm) / 2.0,
            ];
            assert!(off.iter().all(|off| *off <= 1e-5), "{place}: {off:?}");
            compared += 1;
        }
        println!("{layout:?}: {compared} steps agree");
        assert!(compared >= FEW, "{layout:?}: {compared} steps");
    }
}
