//! Programs with kernels give the same bits as programs with toolkit calls.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ascend_tp::base::{DType, Kernels};
use ascend_tp::compile::compile as compile_program;
use ascend_tp::device::KernelSource;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::placement::Residual;
use ascend_tp::program::compress::Compression;
use ascend_tp::program::models::RunShape;
use ascend_tp::program::{Builder, HostTensor, Kind};
use ascend_tp::schedule::plan::{Action, Plan};
use ascend_tp::schedule::{Joining, Scheduling, Target, schedule};
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Layout, Zero, compile};
use ascend_tp::{Mesh, Pins};

use crate::common::{Tensors, cann, run, start_with};
use crate::compress::{Case, numbers};
use crate::{exact, joined};

/// Compiles all kernels for this host once. Returns `None` without a compiler, and prints a note.
pub(crate) fn library() -> Option<KernelSource> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let compiler = super::compiler()?;
        let folder = tempfile::tempdir().expect("a folder").keep();
        let out = folder.join("kernels.so");
        let sources: Vec<PathBuf> = super::names(&super::kernels_folder(), ".cpp")
            .iter()
            .map(|name| super::kernels_folder().join(name))
            .filter(|path| Kernels::ALL.has(&path.file_stem().expect("a name").to_string_lossy()))
            .collect();
        assert_eq!(sources.len(), Kernels::ALL.names().count(), "every kernel that is launched has its file");
        compiler.build(&sources, &[], &out).unwrap_or_else(|error| panic!("{error}"));
        Some(out)
    };
    LIBRARY.get_or_init(build).clone().map(KernelSource::Library)
}

pub(super) fn count(plans: &[Plan], name: &str) -> usize {
    let is = |action: &Action| matches!(action, Action::Launch(call) if call.name() == name);
    plans[0].steps.iter().filter(|step| is(&step.action)).count()
}

#[test]
fn keys_turned_where_they_are_written_have_the_bits_of_calls() {
    let Some(kernels) = library() else { return };
    let cann = cann(3);
    for (preset, head_size) in [("qwen2.5-72b", 128), ("qwen3-32b", 16), ("llama-3-70b", 64)] {
        let config = joined::small(preset, head_size);
        for (cards, batch, sequence) in [(1, 1, 1), (2, 3, 1), (3, 2, 3)] {
            let residual = if sequence == 3 { Residual::Seq } else { Residual::Replicate };
            let shape = RunShape::new(batch, sequence, 2 * sequence + 1);
            for dtype in [DType::BF16, DType::F16] {
                let lowered = joined::lowered(&config, shape, dtype.into(), cards, residual);
                let params = joined::params(&lowered.program);
                let found = [Launching::Eager, Launching::Captured].map(|launching| {
                    [KernelSource::None, kernels.clone()].map(|kernels| {
                        let plans = schedule(
                            &lowered,
                            Scheduling {
                                joining: Joining::SideBySide,
                                target: Target::with_kernels(kernels.kernels()),
                                ..Scheduling::default()
                            },
                        )
                        .unwrap();
                        let written = count(&plans, "cache_write");
                        assert_eq!(
                            written,
                            if kernels == KernelSource::None { 0 } else { 2 },
                            "a launch a layer"
                        );
                        let options = EngineOptions { kernels, launching, ..EngineOptions::default() };
                        let mut engine = start_with(&cann, plans, &params, &options).unwrap();
                        [0, 1, 2].map(|at| {
                            let inputs = joined::inputs(&lowered.program, at.min(1) * sequence, at);
                            run(&mut engine, &inputs).unwrap()
                        })
                    })
                });
                for (calls, kernels) in found.iter().flat_map(|[calls, kernels]| calls.iter().zip(kernels)) {
                    assert_eq!(calls.outputs, kernels.outputs, "{preset}, {dtype} on {cards} cards");
                    for (id, part) in &kernels.parts {
                        let label = lowered.program.label(*id);
                        assert_eq!(
                            calls.parts.get(id),
                            Some(part),
                            "{preset}, {dtype} on {cards} cards: {label}"
                        );
                    }
                    assert_eq!(
                        calls.parts.len() - kernels.parts.len(),
                        2,
                        "turned keys are shown in the cache alone"
                    );
                }
            }
        }
    }
}

#[test]
fn sums_of_an_exact_run_have_the_bits_of_calls() {
    let Some(kernels) = library() else { return };
    let config = exact::small(false);
    for precision in [TrainingPrecision::F32, TrainingPrecision::Bf16] {
        let recipe = ascend_tp::train::Recipe { steps: 2, ..exact::recipe(precision) };
        for layout in [
            Layout { micro_batch: 8, ..Layout::ONE },
            Layout { data: 4, micro_batch: 2, zero: Zero::Gradients, ..Layout::ONE },
            Layout { tensor: 4, micro_batch: 4, ..Layout::ONE },
        ] {
            let left = [KernelSource::None, kernels.clone()].map(|source| {
                // The loss kernel rounds differently from the calls.
                let launched = if source == KernelSource::None {
                    Kernels::NONE
                } else {
                    Kernels::named(["ordered_sum", "grad_stats"])
                };
                let compiled = compile(&config, &recipe, &layout, Target::with_kernels(launched)).unwrap();
                let sums: usize = compiled.plans.iter().map(|(_, plans)| count(plans, "ordered_sum")).sum();
                assert_eq!(sums > 0, source != KernelSource::None, "{layout:?}: {sums} sums");
                exact::run_with(&config, &recipe, layout, compiled, source)
            });
            assert!(left[0] == left[1], "{precision:?}, {layout:?}");
        }
    }
}

/// Squares are rounded once and added in a tree of six levels. Sums of tiles are exact, so 640
/// numbers remain.
const SQUARES_ERROR: f64 = (1.0 + 6.0 + 640.0) / (1 << 24) as f64;

#[test]
fn squares_are_summed_within_the_bound_of_a_kernel_and_flaws_show() {
    let Some(kernels) = library() else { return };
    let cann = cann(1);
    for elems in [1 << 20, (1 << 20) + 7] {
        let mut build = Builder::new("squares");
        let x = build.input("x", [elems], DType::F32);
        let sum = build.matmul("a,a->", x, x);
        build.output("sum", sum);
        let program = build.finish().unwrap();
        let mesh = Mesh::tensor_parallel(1, 1, 1).unwrap();
        let plans = compile_program(
            &program,
            &mesh,
            &Pins::auto(Residual::Replicate),
            Target::with_kernels(kernels.kernels()),
        )
        .unwrap()
        .plans;
        assert_eq!((count(&plans, "grad_stats"), count(&plans, "aclnnMatmul")), (1, 0));
        let options = EngineOptions { kernels: kernels.clone(), ..EngineOptions::default() };
        let mut engine = start_with(&cann, plans, &Tensors::new(), &options).unwrap();
        let mut sum_of = |x: &[f32]| {
            let given = HostTensor::float([elems], DType::F32, x.to_vec());
            run(&mut engine, &Tensors::from([("x".to_owned(), given)])).unwrap().outputs["sum"].floats()[0]
        };
        let mut x: Vec<f32> = (0..elems).map(|at| ((at * 7919 % 4093) as f32 - 2000.0) / 512.0).collect();
        let expected: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        let error = (f64::from(sum_of(&x)) / expected - 1.0).abs();
        assert!(error <= SQUARES_ERROR, "{elems} elements: {error}");
        for flaw in [f32::NAN, f32::INFINITY] {
            x[elems - 1] = flaw;
            assert!(!sum_of(&x).is_finite(), "{flaw} is lost");
        }
    }
}

#[test]
fn an_exact_run_with_every_kernel_has_one_result_for_every_layout() {
    let Some(kernels) = library() else { return };
    let config = exact::small(false);
    let recipe = ascend_tp::train::Recipe { steps: 2, ..exact::recipe(TrainingPrecision::F32) };
    let layouts = [
        Layout { micro_batch: 8, ..Layout::ONE },
        Layout { data: 4, micro_batch: 2, zero: Zero::Gradients, ..Layout::ONE },
        Layout { tensor: 4, micro_batch: 4, ..Layout::ONE },
    ];
    let found = layouts.map(|layout| {
        let compiled = compile(&config, &recipe, &layout, Target::with_kernels(kernels.kernels())).unwrap();
        let losses: usize = compiled.plans.iter().map(|(_, plans)| count(plans, "vocab_ce_backward")).sum();
        assert!(losses > 0, "{layout:?}");
        exact::run_with(&config, &recipe, layout, compiled, kernels.clone())
    });
    assert!(found[0] == found[1] && found[0] == found[2]);
}

/// Rounding errors in f32 units: a difference, an exponential (two units), a quotient, a product,
/// and the subtraction at the label.
const GRADIENT_ERROR: f64 = 6.0 / (1 << 24) as f64;

/// Returns [`GRADIENT_ERROR`] plus a sum of exponentials: two trees of 6 levels, rescaled once per
/// tile of 4,096 and once per row.
fn sum_error(vocabulary: usize) -> f64 {
    GRADIENT_ERROR + (12 + 4 * (vocabulary.div_ceil(4096) + 2)) as f64 / (1 << 24) as f64
}

#[test]
fn a_loss_over_a_cut_vocabulary_is_within_the_bound_of_its_kernel() {
    let Some(kernels) = library() else { return };
    let (rows, vocabulary) = (5, 40_003);
    let element = |at: usize| ((at * 7919 % 4093) as f32 - 2000.0) / 512.0;
    let x: Vec<f32> = (0..rows * vocabulary).map(element).collect();
    let labels: Vec<i64> = (0..rows).map(|row| (row * 9_973 % vocabulary) as i64).collect();
    let dy: Vec<f32> = (0..rows).map(|row| element(row * 31 + 7)).collect();
    for cards in [1, 3] {
        let cann = cann(cards);
        let mut build = Builder::new("loss");
        let logits = build.input("x", [1, rows, vocabulary], DType::F32);
        let label = build.input("labels", [1, rows], DType::I64);
        let weight = build.input("dy", [1, rows], DType::F32);
        let largest = build.op(Kind::ReduceMax { dim: 2 }, &[logits]);
        let sum = build.op(Kind::SumExp, &[logits, largest]);
        let gradient = build.op(Kind::LogProbabilityGrad, &[logits, label, largest, sum, weight]);
        build.output("sum", sum);
        build.output("gradient", gradient);
        let program = build.finish().unwrap();
        let mesh = Mesh::tensor_parallel(cards, 1, 1).unwrap();
        let pins = Pins::default().value("x", &[(2, "tp")]);
        let plans =
            compile_program(&program, &mesh, &pins, Target::with_kernels(kernels.kernels())).unwrap().plans;
        for name in ["vocab_ce_forward", "vocab_ce_backward"] {
            assert_eq!(count(&plans, name), 1, "{name} on {cards} cards");
        }
        let options = EngineOptions { kernels: kernels.clone(), ..EngineOptions::default() };
        let mut engine = start_with(&cann, plans, &Tensors::new(), &options).unwrap();
        let given = Tensors::from([
            ("x".to_owned(), HostTensor::float([1, rows, vocabulary], DType::F32, x.clone())),
            ("labels".to_owned(), HostTensor::int([1, rows], DType::I64, labels.clone())),
            ("dy".to_owned(), HostTensor::float([1, rows], DType::F32, dy.clone())),
        ]);
        let found = run(&mut engine, &given).unwrap().outputs;
        let (sums, gradients) = (found["sum"].floats(), found["gradient"].floats());
        for row in 0..rows {
            let of_row = &x[row * vocabulary..(row + 1) * vocabulary];
            let largest = of_row.iter().copied().fold(f32::MIN, f32::max);
            let powers: Vec<f64> =
                of_row.iter().map(|x| (f64::from(*x) - f64::from(largest)).exp()).collect();
            let sum: f64 = powers.iter().sum();
            let error = (f64::from(sums[row]) / sum - 1.0).abs();
            assert!(error <= sum_error(vocabulary), "{cards} cards, row {row}: the sum is off by {error}");
            for (v, power) in powers.iter().enumerate() {
                let is_label = if v as i64 == labels[row] { 1.0 } else { 0.0 };
                let expected = (is_label - power / sum) * f64::from(dy[row]);
                let bound = (GRADIENT_ERROR + sum_error(vocabulary))
                    * f64::from(dy[row]).abs()
                    * (power / sum + is_label);
                let error = (f64::from(gradients[row * vocabulary + v]) - expected).abs();
                assert!(
                    error <= bound + f64::from(f32::MIN_POSITIVE),
                    "{cards} cards, row {row}, token {v}: {error}"
                );
            }
        }
    }
}

#[test]
fn the_greatest_elements_are_those_of_calls_and_of_equal_ones_the_first() {
    let Some(kernels) = library() else { return };
    for (share, columns) in [(0.1, 10_007), (0.99, 1_009)] {
        let case = Case { by: Compression::TopK { share }, cards: 2, across: 1, rows: 3, columns };
        let elems = case.rows * case.columns;
        assert_eq!(count(&case.plans(kernels.kernels()), "topk_threshold_choose"), 1);
        let mut engines = [KernelSource::None, kernels.clone()].map(|source| case.engine_with(source));
        for round in 0..3_u64 {
            let part = |card: u64| -> Vec<f32> {
                let all = numbers(round * 10 + card).take(elems);
                match round {
                    0 => all.collect(),
                    1 => all.map(|x| (x * 4.0).round() / 4.0).collect(),
                    _ => all.map(|x| if x > 0.999 { x } else { 0.0 }).collect(),
                }
            };
            let (parts, whole) = ([part(0), part(1)], vec![0.0; elems]);
            let [calls, kernel] = engines.each_mut().map(|engine| case.run(engine, &parts, &whole));
            assert!(calls == kernel, "{share} of {elems} elements, round {round}");
        }
    }
}

#[test]
fn a_plan_with_kernels_that_cards_have_not_is_refused() {
    let config = joined::small("llama-3-70b", 16);
    let shape = RunShape::new(1, 1, 4);
    let lowered = joined::lowered(&config, shape, DType::BF16.into(), 1, Residual::Replicate);
    let plans = schedule(
        &lowered,
        Scheduling {
            joining: Joining::SideBySide,
            target: Target::with_kernels(Kernels::ALL),
            ..Scheduling::default()
        },
    )
    .unwrap();
    let table = Emulator::new(Config::with_cards(1)).unwrap().table();
    let cann: Arc<ascend_tp::Cann> = ascend_tp::Cann::new(table).unwrap();
    let refused = start_with(&cann, plans, &joined::params(&lowered.program), &EngineOptions::default());
    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("expected cache_write") && text.contains("compiled for"), "{text}");
}
