//! Two weight axes and a depth axis: training against torch's curve, serving against transformers'
//! logits, and the communication of each axis.
#![expect(clippy::print_stdout, reason = "a test fails where it stands and shows its figures")]

use std::collections::{BTreeMap, BTreeSet};

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::generate::Model;
use ascend_tp::generate::verify::{Reference, verify_on};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::program::models::Head;
use ascend_tp::schedule::Target;
use ascend_tp::schedule::launch::exchange;
use ascend_tp::schedule::plan::Action;
use ascend_tp::train::recipe::TrainingPrecision as TrainedIn;
use ascend_tp::train::{Layout, Recipe, Recompute, Zero, compile};
use ascend_tp_emulator::{Lane, Mode, Numbers, Recording};

use crate::common::cases::{first_cases, is_sampled};
use crate::common::trainers::{cards, runs_in_any_order, saved, start, whole_parts};
use crate::common::{cann, fixture, open, with_reference};
use crate::context::{model, packed, recipe};
use crate::serving_stages::generate;
use crate::training::{Golden, follows};

const ONE: Layout = Layout::ONE;

const fn grid(columns: usize, rows: usize, depth: usize) -> Layout {
    Layout { tensor: columns * rows, grid: Grid { rows, depth }, micro_batch: 4, ..ONE }
}

#[test]
fn grids_give_the_curve_of_adamw_with_grouped_heads() {
    let layouts = [
        grid(2, 2, 1),
        Layout { residual: Residual::Seq, ..grid(2, 2, 1) },
        Layout { residual: Residual::Seq, ..grid(2, 3, 1) },
        grid(3, 2, 1),
        grid(2, 2, 2),
        Layout { residual: Residual::Seq, zero: Zero::Weights, ..grid(2, 2, 2) },
        Layout { data: 2, residual: Residual::Seq, ..grid(2, 2, 1) },
        Layout { data: 2, zero: Zero::Moments, ..grid(2, 2, 1) },
        Layout {
            data: 2,
            micro_batch: 2,
            zero: Zero::Gradients,
            recompute: Recompute::Full,
            ..grid(1, 2, 2)
        },
        grid(1, 4, 1),
    ];
    follows("qwen2-gqa-adamw", &Golden::read("qwen2-gqa-adamw"), &layouts);
}

fn serves(name: &str) {
    let cann = cann(8);
    let (model, reference) = with_reference(name);
    let shapes = [(2, 2), (2, 4), (4, 2), (3, 2), (2, 3), (1, 3)];
    for (shape, (columns, rows)) in (name.len()..).zip(shapes) {
        for (number, residual) in (shape..).zip([Residual::Replicate, Residual::Seq]) {
            if !is_sampled(number, 2) {
                continue;
            }
            let place = format!("{name} on {columns} columns and {rows} rows, {residual:?}");
            let of = Deployment::of(&model.config, columns * rows);
            let deployment =
                Deployment { grid: Grid { rows, depth: 1 }, precision: DType::F32.into(), residual, ..of };
            let options = EngineOptions::default();
            let found = verify_on(&cann, &model, &deployment, &reference, &options)
                .unwrap_or_else(|error| panic!("{place}: {error}"))
                .unwrap();
            let logits = found.logits.as_ref().unwrap();
            let error = (logits.expected - logits.found).abs();
            println!("{place}: {} values, logits off by {error:.1e}", found.values);
            assert!(found.passed() && error <= 1e-4 && found.values > 30, "{place}: {found:#?}");
            let greedy = found.greedy.unwrap();
            assert_eq!((&greedy.found, greedy.choices.len()), (&greedy.expected, 0), "{place}");
        }
    }
}

#[test]
fn grouped_heads_are_served() {
    serves("qwen2-gqa");
}

#[test]
fn tied_weights_of_sizes_that_do_not_divide_are_served() {
    serves("qwen2-tied-uneven");
}

#[test]
fn normed_heads_and_the_original_qwen_are_served() {
    serves("qwen3-qknorm");
    serves("qwen-v1-mha");
}

#[test]
fn sixteen_and_eight_bits_are_served() {
    let cann = cann(8);
    for name in ["qwen2-gqa", "llama3-ropescaling"] {
        let model = Model::open(&fixture(name)).unwrap();
        let path = fixture(name).join("expected.safetensors");
        let reference = Reference::open(&path, model.config.vocab_size).unwrap();
        for precision in [DType::BF16.into(), Precision::w8a8(DType::F16)] {
            let (grid, options) = (Grid { rows: 2, depth: 1 }, EngineOptions::default());
            let of = Deployment::of(&model.config, 8);
            let deployment = Deployment { grid, precision, residual: Residual::Seq, ..of };
            let found = verify_on(&cann, &model, &deployment, &reference, &options).unwrap();
            assert!(found.as_ref().unwrap().passed(), "{name} in {precision}: {found:#?}");
        }
    }
}

/// Prompts distributed over a depth axis, with or without stages and capture: the tokens of one
/// card in any order, without reports.
#[test]
fn prompts_are_dealt_over_a_depth_in_any_order() {
    let model = open(&fixture("qwen2-gqa"));
    let alone = Deployment {
        precision: DType::F32.into(),
        batch: 2,
        longest_prompt: 40,
        context: 48,
        head: Head::LastToken,
        ..Deployment::of(&model.config, 1)
    };
    let (expected, _) = generate(Mode::Parallel, &model, alone, Launching::Eager);
    let grids = [(8, 1, 2, 2), (4, 1, 2, 1), (6, 1, 3, 1), (8, 2, 2, 1), (2, 1, 1, 2)];
    let modes = [(Mode::Strict { seed: 1 }, Launching::Eager), (Mode::Parallel, Launching::Captured)];
    for (grid, (cards, stages, rows, depth)) in grids.into_iter().enumerate() {
        let deployment = Deployment { cards, stages, grid: Grid { rows, depth }, ..alone };
        for (number, (mode, launching)) in (grid..).zip(modes) {
            if !is_sampled(number, 2) {
                continue;
            }
            let (found, reports) = generate(mode, &model, deployment, launching);
            assert_eq!(reports, Vec::<String>::new(), "{deployment:?}");
            assert_eq!(found, expected, "{deployment:?}");
        }
    }
}

#[test]
fn grids_give_the_curves_of_other_models() {
    let layouts = [
        Layout { residual: Residual::Seq, micro_batch: 6, zero: Zero::Moments, data: 2, ..grid(2, 3, 1) },
        Layout { micro_batch: 5, zero: Zero::Weights, ..grid(3, 2, 2) },
    ];
    follows("qwen2-tied-uneven-masked", &Golden::read("qwen2-tied-uneven-masked"), &layouts);
    follows(
        "llama3-sgd",
        &Golden::read("llama3-sgd"),
        &[Layout { residual: Residual::Seq, ..grid(4, 2, 1) }],
    );
    let mut golden = Golden::read("qwen3-qknorm-bf16");
    let layouts = [Layout { data: 2, micro_batch: 2, zero: Zero::Weights, ..grid(2, 2, 1) }];
    follows("qwen3-qknorm-bf16", &golden, &layouts);
    golden.recipe.precision = TrainedIn::F16;
    follows("in f16", &golden, &layouts);
}

#[test]
fn a_card_holds_its_share_of_every_matrix() {
    let golden = Golden::read("llama3-sgd");
    for (zero, parts) in [(Zero::None, 4), (Zero::Moments, 4), (Zero::Weights, 8)] {
        let layout = Layout { zero, ..grid(2, 2, 2) };
        let compiled = compile(&golden.model.config, &golden.recipe, &layout, Target::ANY).unwrap();
        for tensor in compiled.sharding.tensors().iter().filter(|tensor| tensor.shape.rank() > 1) {
            let parts = if tensor.source.is_some() || zero == Zero::None { parts } else { 8 };
            for rank in 0..8 {
                let elems: usize = tensor.ranges[rank].iter().map(|range| range.len()).product();
                assert!(elems * parts <= tensor.shape.elems() + 64 * parts, "{}, {zero:?}", tensor.name);
            }
        }
    }
}

#[test]
fn grids_train_in_any_order() {
    let config = model();
    let layouts = [
        Layout { residual: Residual::Seq, zero: Zero::Weights, micro_batch: 2, ..grid(2, 2, 2) },
        Layout { data: 2, zero: Zero::Moments, micro_batch: 2, ..grid(2, 2, 1) },
        Layout { stages: 2, micro_batch: 2, ..grid(2, 2, 1) },
    ];
    for layout in first_cases(&layouts, 2) {
        let recipe = Recipe { seq: 6, ..recipe() };
        runs_in_any_order(&config, &recipe, *layout, &packed(0, &recipe, config.vocab_size));
    }
}

#[test]
fn checkpoints_go_on_with_and_without_a_grid() {
    let (config, recipe) = (model(), recipe());
    let layouts = [
        grid(1, 1, 1),
        Layout { zero: Zero::Weights, ..grid(3, 2, 2) },
        Layout { data: 2, tensor: 3, micro_batch: 2, zero: Zero::Moments, ..ONE },
    ];
    let batch = |step: u64| packed(step, &recipe, config.vocab_size);
    for from in layouts {
        let (_emulator, cann) = cards(Mode::Parallel, from.cards());
        let mut trainer = start(&cann, &config, &recipe, from);
        trainer.step(&batch(0)).unwrap();
        let (_folder, saved) = saved(&mut trainer);
        let (kept, progress) = (whole_parts(&mut trainer), trainer.progress());
        let expected = trainer.step(&batch(1)).unwrap().loss;
        for to in layouts {
            let (_emulator, cann) = cards(Mode::Parallel, to.cards());
            let mut other = start(&cann, &config, &recipe, to);
            other.restore(&saved, progress).unwrap();
            assert_eq!(kept, whole_parts(&mut other), "{from:?} to {to:?}");
            let loss = other.step(&batch(1)).unwrap().loss;
            assert!((loss - expected).abs() <= 1e-5, "{from:?} to {to:?}: {loss} {expected}");
        }
    }
}

#[test]
fn the_cards_send_the_bytes_of_the_plans() {
    let golden = Golden::read("qwen2-gqa-adamw");
    let layout = Layout { residual: Residual::Seq, micro_batch: 8, zero: Zero::Weights, ..grid(2, 2, 2) };
    let mode = Mode::Timed { numbers: Numbers::Real };
    let (emulator, cann) = cards(mode, layout.cards());
    let mut trainer = golden.start_on(&cann, layout, &EngineOptions::default()).unwrap();
    emulator.clear_timeline();
    emulator.record_timeline(Recording::Everything);
    trainer.step(&golden.batches[0]).unwrap();
    let mut found: BTreeMap<(u32, Vec<u32>), (u32, f64)> = BTreeMap::new();
    for span in emulator.timeline().iter().filter(|span| span.lane == Lane::Communication) {
        let sums = found.entry((span.card, span.group.as_deref().unwrap().to_vec())).or_default();
        *sums = (sums.0 + 1, sums.1 + span.bytes);
    }
    let compiled = compile(&golden.model.config, &golden.recipe, &layout, Target::ANY).unwrap();
    let mut expected: BTreeMap<(u32, Vec<u32>), (u32, f64)> = BTreeMap::new();
    for plan in compiled.plans.iter().flat_map(|(_, plans)| plans) {
        for step in &plan.steps {
            let Action::Exchange(collective) = &step.action else { continue };
            let group = plan.groups[collective.group].iter().map(|rank| *rank as u32).collect();
            let sums = expected.entry((plan.rank as u32, group)).or_default();
            *sums = (sums.0 + 1, sums.1 + exchange(collective).1);
        }
    }
    assert_eq!(found, expected);
    let sizes: BTreeSet<usize> = found.keys().map(|(_, group)| group.len()).collect();
    assert!(sizes.is_superset(&BTreeSet::from([2, 4, 8])), "{sizes:?}");
}

#[test]
fn what_a_grid_does_not_take_is_refused() {
    let golden = Golden::read("qwen2-gqa-adamw");
    let refused = |exact: bool, layout: Layout| {
        let recipe = Recipe { exact, ..golden.recipe.clone() };
        compile(&golden.model.config, &recipe, &layout, Target::ANY).unwrap_err().to_string()
    };
    for (exact, layout, part) in [
        (
            false,
            Layout { context: 2, ..grid(2, 2, 1) },
            "layout: context: tokens of a sequence cannot be distributed",
        ),
        (
            false,
            Layout { micro_batch: 1, ..grid(2, 2, 2) },
            "layout: depth: distributes the sequences of a micro-batch",
        ),
        (false, Layout { tensor: 3, ..grid(2, 2, 1) }, "layout: rows: do not divide the cards"),
        (true, grid(2, 2, 1), "--exact: sums over two axes are added in the order of the cards"),
    ] {
        let said = refused(exact, layout);
        assert!(said.contains(part), "{said}");
    }
    let deployment =
        Deployment { grid: Grid { rows: 2, depth: 2 }, ..Deployment::of(&golden.model.config, 8) };
    let said = deployment.compile(&golden.model.config).unwrap_err().to_string();
    assert!(said.contains("tp_depth: distributes the sequences of a batch"), "{said}");
}
