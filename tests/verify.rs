//! `verify` with a reference: no healthy model fails and no sabotaged model passes, in any type.

mod model;
mod sabotage;

use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ascend_tp::Cann;
use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate;
use ascend_tp::generate::verify::{Difference, Reference, Verification, verify, verify_on};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp_emulator::{Config, Emulator};
use ascend_tp_sys::{HcclComm, HcclDataType, HcclReduceOp, HcclResult, Table, aclrtMemcpyKind, aclrtStream};
use tempfile::TempDir;

use crate::common::cann;
use crate::common::cases::{cases, seed};
use model::{Model, kinds};

/// Models of each kind.
const EACH: usize = 1;

fn seeds() -> Range<usize> {
    let count = cases(EACH) * kinds().len();
    let first = (seed() as usize - 1) * count;
    first..first + count
}

fn types() -> [Precision; 4] {
    [DType::F32.into(), DType::F16.into(), DType::BF16.into(), Precision::w8a8(DType::BF16)]
}

fn written(model: &Model, healthy: &Model, seed: u64) -> (TempDir, generate::Model, Reference) {
    let folder = tempfile::tempdir().unwrap();
    model.write(folder.path());
    let path = folder.path().join("expected.safetensors");
    healthy.write_reference(&path, seed);
    let model = generate::Model::open(folder.path()).unwrap_or_else(|problems| panic!("{problems}"));
    let reference = Reference::open(&path, model.config.vocab_size).unwrap();
    (folder, model, reference)
}

fn share(difference: &Option<Difference>) -> f64 {
    difference.as_ref().map_or(0.0, |d| (d.expected - d.found).abs() / d.bound)
}

fn figures(found: &Verification) -> String {
    let greedy = found.greedy.as_ref().unwrap();
    let margins = greedy.choices.iter().map(|choice| choice.margin / choice.bound).fold(0.0, f64::max);
    format!(
        "{:.3} of the bound at {}, logits {:.3}, rounded {:.3}, alone {:.3}, around {:.3}, {} other tokens, margins {margins:.3}",
        share(&found.closest),
        found.closest.as_ref().map_or("no op", |closest| closest.place.as_str()),
        share(&found.logits),
        share(&found.rounded),
        share(&found.alone.closest),
        share(&found.around),
        greedy.choices.len()
    )
}

#[test]
fn no_healthy_model_fails() {
    let cann = cann(8);
    let kinds = kinds();
    let models = seeds().map(|seed| {
        let (family, more) = &kinds[seed % kinds.len()];
        let model = Model::random(*family, more, seed as u64);
        (seed, format!("{family} {more}"), written(&model, &model, seed as u64))
    });
    let models: Vec<_> = models.collect();
    let (mut failed, mut others) = (Vec::new(), 0);
    for precision in types() {
        for (seed, kind, (_folder, model, reference)) in &models {
            let residual = if seed % 2 == 0 { Residual::Replicate } else { Residual::Seq };
            let found = verify(&cann, model, 2 + seed % 3, precision, residual, reference).unwrap();
            let what = format!("{kind} seed {seed} in {precision}: {}", figures(&found));
            println!("{what}");
            others += found.greedy.as_ref().unwrap().choices.len();
            if !found.passed() {
                failed.push(what);
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(others > 0);
}

#[test]
fn no_sabotage_passes() {
    let cann = cann(8);
    let models = sabotage::all().into_iter().enumerate().map(|(seed, (name, (family, more), sabotage))| {
        let healthy = Model::of_four_heads(family, &more, seed as u64);
        let mut model = healthy.clone();
        sabotage(&mut model);
        (name, written(&model, &healthy, seed as u64))
    });
    let models: Vec<_> = models.collect();
    let mut passed = Vec::new();
    for precision in types() {
        for (name, (_folder, model, reference)) in &models {
            let found = verify(&cann, model, 2, precision, Residual::Replicate, reference).unwrap();
            println!("{name} in {precision}: {}", figures(&found));
            if found.passed() {
                passed.push(format!("{name} in {precision}"));
            }
            // One card and two agree, although both are wrong.
            assert_eq!(found.first_difference, None, "{name} in {precision}");
        }
    }
    assert!(passed.is_empty(), "passed: {}", passed.join(", "));
}

/// `HcclAllReduce` of the emulator, for [`largest_of_each_card`].
static EMULATED: OnceLock<Arc<Table>> = OnceLock::new();

/// An `HcclAllReduce` that leaves the local values instead of the maximum.
#[expect(unsafe_code, reason = "a function of the C ABI in place of another")]
unsafe extern "C" fn largest_of_each_card(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    op: HcclReduceOp,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let table = EMULATED.get().unwrap();
    if op != HcclReduceOp::HCCL_REDUCE_MAX || dtype != HcclDataType::HCCL_DATA_TYPE_FP32 {
        // SAFETY: the arguments are the caller's.
        return unsafe { (table.HcclAllReduce)(send, recv, count, dtype, op, comm, stream) };
    }
    let bytes = 4 * count as usize;
    let kind = aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_DEVICE;
    // SAFETY: both buffers have `count` elements of f32.
    unsafe { (table.aclrtMemcpyAsync)(recv, bytes, send, bytes, kind, stream) };
    HcclResult::HCCL_SUCCESS
}

#[test]
fn a_scale_for_each_shard_of_a_row_fails() {
    let emulator = Emulator::new(Config::default()).unwrap();
    let healthy = emulator.table();
    EMULATED.set(Arc::clone(&healthy)).unwrap_or_else(|_| panic!("one test sets it"));
    let mut table = Table::clone(&healthy);
    table.HcclAllReduce = largest_of_each_card;
    let (family, more) = &kinds()[0];
    let (_folder, model, _) =
        written(&Model::of_four_heads(*family, more, 3), &Model::of_four_heads(*family, more, 3), 3);
    let reference = Reference::without(model.config.vocab_size);
    let run = |table| {
        let cann = Cann::new(table).unwrap();
        verify(&cann, &model, 2, Precision::w8a8(DType::BF16), Residual::Replicate, &reference).unwrap()
    };
    let found = run(healthy);
    assert!(found.passed() && found.alone.integers > 0, "{found:#?}");
    let found = run(Arc::new(table));
    let integers = found.alone.closest.as_ref().unwrap();
    assert!(!found.passed() && !integers.is_within() && integers.place.contains("quantise"), "{found:#?}");
    assert!(!found.around.unwrap().is_within());
}

/// Grids have partial sums in every product, with more roundings than one axis.
#[test]
fn no_healthy_model_fails_on_a_grid() {
    let (cann, kinds) = (cann(8), kinds());
    let mut failed = Vec::new();
    for seed in seeds() {
        let (family, more) = &kinds[seed % kinds.len()];
        let model = Model::random(*family, more, seed as u64);
        let (_folder, model, reference) = written(&model, &model, seed as u64);
        for precision in [DType::F16.into(), DType::BF16.into(), Precision::w8a8(DType::F16)] {
            let grid = Grid { rows: 2, depth: 1 };
            let deployment = Deployment { grid, precision, ..Deployment::of(&model.config, 4) };
            let found = verify_on(&cann, &model, &deployment, &reference, &EngineOptions::default())
                .unwrap()
                .unwrap();
            let what = format!("{family} {more} seed {seed} in {precision}: {}", figures(&found));
            println!("{what}");
            if !found.passed() {
                failed.push(format!("{what} {:?} {:?}", found.around, found.alone));
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}
