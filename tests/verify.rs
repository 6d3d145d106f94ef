//! `verify` with a reference: no healthy model fails and no sabotaged model passes, in any type.

mod model;
mod sabotage;

use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::base::{DType, Precision};
use ascend_tp::generate;
use ascend_tp::generate::verify::{Difference, Reference, Verification, verify};
use ascend_tp::placement::Residual;
use ascend_tp_emulator::{Config, Emulator};
use tempfile::TempDir;

use model::{Model, kinds};

/// Random models per kind; `VERIFY_MODELS` overrides it.
const EACH: usize = 1;

fn types() -> [Precision; 4] {
    [DType::F32.into(), DType::F16.into(), DType::BF16.into(), Precision::w8a8(DType::BF16)]
}

fn cards() -> Arc<Cann> {
    let emulator = Emulator::new(Config::default()).unwrap();
    Cann::new(emulator.table()).unwrap()
}

/// Writes a model, and the reference of the model that it should be.
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
        "{:.3} of the bound at {}, logits {:.3}, rounded {:.3}, {} other tokens, margins {margins:.3}",
        share(&found.closest),
        found.closest.as_ref().map_or("no op", |closest| closest.place.as_str()),
        share(&found.logits),
        share(&found.rounded),
        greedy.choices.len()
    )
}

#[test]
fn no_healthy_model_fails() {
    let each = std::env::var("VERIFY_MODELS").map_or(EACH, |each| each.parse().unwrap());
    let cann = cards();
    let kinds = kinds();
    let models = (0..each * kinds.len()).map(|seed| {
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
    // Otherwise the test shows nothing about nearly equal tokens.
    assert!(others > 0);
}

#[test]
fn no_sabotage_passes() {
    let cann = cards();
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
