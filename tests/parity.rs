//! From a checkpoint to logits and tokens, compared with transformers.
#![expect(clippy::print_stdout, reason = "a test fails where it stands and shows its figures")]

use std::ops::ControlFlow;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{LogN, RopeScaling};
use ascend_tp::generate::verify::{Reference, verify};
use ascend_tp::generate::{Request, Session};
use ascend_tp::placement::Residual;
use ascend_tp::program::models::Head;

use crate::common::cases::is_sampled;
use crate::common::instruction_sets::run_under_each;
use crate::common::{cann, fixture, open, path, shipped, with_reference};

/// Logits are within the f32 bound, with the same greedy tokens, for both residual layouts.
fn agrees(name: &str) {
    let cann = cann(8);
    let (model, reference) = with_reference(name);
    for (at, cards) in [1, 2, 3, 4, 6, 8].into_iter().enumerate() {
        for (number, residual) in (name.len() + at..).zip([Residual::Replicate, Residual::Seq]) {
            if !is_sampled(number, 2) {
                continue;
            }
            let found = verify(&cann, &model, cards, DType::F32, residual, &reference)
                .unwrap_or_else(|error| panic!("{name} on {cards} cards, {residual:?}: {error}"));
            let logits = found.logits.as_ref().unwrap();
            let error = (logits.expected - logits.found).abs();
            println!(
                "{name} on {cards} cards, {residual:?}: {} values, logits off by {error:.1e}",
                found.values
            );
            assert!(found.passed(), "{name} on {cards} cards, {residual:?}: {found:#?}");
            assert!(error <= 1e-4 && found.values > 30 && found.rounded.is_none());
            let greedy = found.greedy.unwrap();
            assert_eq!(
                (&greedy.found, greedy.choices.len()),
                (&greedy.expected, 0),
                "{name} on {cards} cards"
            );
        }
    }
}

#[test]
fn qwen2_with_grouped_heads() {
    agrees("qwen2-gqa");
}

#[test]
fn qwen2_tied_with_sizes_that_do_not_divide() {
    agrees("qwen2-tied-uneven");
}

#[test]
fn qwen3_with_normed_queries_and_keys() {
    agrees("qwen3-qknorm");
}

#[test]
fn llama3_with_scaled_rotary_positions() {
    agrees("llama3-ropescaling");
}

#[test]
fn the_original_qwen_with_one_tensor_for_queries_keys_and_values() {
    agrees("qwen-v1-mha");
}

#[test]
fn sixteen_bit_types() {
    let cann = cann(8);
    for name in ["qwen2-gqa", "qwen3-qknorm", "llama3-ropescaling"] {
        let (model, reference) = with_reference(name);
        for dtype in [DType::F16, DType::BF16] {
            let found = verify(&cann, &model, 4, dtype, Residual::Replicate, &reference).unwrap();
            assert!(found.passed(), "{name} in {dtype}: {found:#?}");
        }
    }
}

/// Quantised products have the same integers on any number of cards. With f32 around the products,
/// logits differ from one card only by integers at a rounding edge.
#[test]
fn quantised_layers() {
    let cann = cann(8);
    let mut seed = 0;
    for name in ["qwen2-gqa", "qwen2-tied-uneven", "qwen-v1-mha", "qwen3-qknorm", "llama3-ropescaling"] {
        let (model, reference) = with_reference(name);
        for (at, cards) in [1, 2, 3, 8].into_iter().enumerate() {
            seed += 1;
            if !is_sampled(name.len() + at, 2) {
                continue;
            }
            let own = if seed % 2 == 0 { DType::F16 } else { DType::BF16 };
            let residual = if cards == 3 { Residual::Seq } else { Residual::Replicate };
            let precision = Precision::w8a8(own);
            let found = verify(&cann, &model, cards, precision, residual, &reference).unwrap();
            let place = format!("{name} in {precision} on {cards} cards");
            assert!(found.passed(), "{place}: {found:#?}");
            assert!(found.alone.values > 30 && found.alone.integers > 1000, "{place}: {:#?}", found.alone);
            let around = found.around.unwrap();
            println!(
                "{place}: {} integers equal, logits off by {:.1e} of {:.1e}",
                found.alone.integers,
                (around.expected - around.found).abs(),
                around.bound
            );
            assert!(around.bound < 0.1, "{place}: {around:#?}");
        }
    }
}

/// The original Qwen's scaling beyond the trained length is the same on one card and on three.
#[test]
fn lengths_beyond_the_trained_one_scale_alike_on_any_number_of_cards() {
    let cann = cann(8);
    let mut model = open(&fixture("qwen-v1-mha"));
    model.config.logn = Some(LogN { trained_length: 4 });
    model.config.rope.scaling = RopeScaling::QwenDynamicNtk { trained_length: 4 };
    let reference = Reference::without(model.config.vocab_size);
    let found = verify(&cann, &model, 3, DType::F32, Residual::Seq, &reference).unwrap();
    assert!(found.passed() && found.values > 30, "{found:#?}");
}

#[derive(serde::Deserialize)]
pub(crate) struct Case {
    prompt: String,
    pub(crate) prompt_ids: Vec<u32>,
    pub(crate) greedy_ids: Vec<u32>,
}

/// Returns prompts and tokens that transformers computed with the shipped model.
pub(crate) fn shipped_cases() -> Vec<Case> {
    let text = std::fs::read_to_string(path("models/kjv-qwen2/expected.json")).unwrap();
    let mut expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(expected["cases"].take()).unwrap()
}

#[test]
fn the_shipped_model_continues_its_prompts_on_any_number_of_cards() {
    let cann = cann(8);
    let model = shipped();
    let cases = shipped_cases();
    let prompts: Vec<Vec<u32>> = cases.iter().map(|case| case.prompt_ids.clone()).collect();
    for cards in [1, 2, 3, 4, 5, 7, 8] {
        let deployment = Deployment {
            precision: DType::F32.into(),
            batch: prompts.len(),
            longest_prompt: prompts.iter().map(Vec::len).max().unwrap(),
            context: prompts.iter().map(Vec::len).max().unwrap() + cases[0].greedy_ids.len(),
            head: Head::LastToken,
            ..Deployment::of(&model.config, cards)
        };
        let mut session = Session::builder(&cann, &model).deployment(deployment).start().unwrap();
        let max_new_tokens = Some(cases[0].greedy_ids.len());
        let request = |ids: &Vec<u32>| Request { max_new_tokens, ..Request::new(ids.as_slice()) };
        let requests: Vec<Request> = prompts.iter().map(request).collect();
        let found = session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap();
        for (case, sequence) in cases.iter().zip(&found.sequences) {
            assert_eq!(sequence.ids, case.greedy_ids, "{cards} cards, \"{}\"", case.prompt);
        }
    }
}

#[test]
fn every_instruction_set_gives_them() {
    // The remaining tests cover every kernel of a decoder in f32, 16-bit types and 8-bit weights.
    let but = [
        "every_instruction_set_gives_them",
        "qwen2_with_grouped_heads",
        "qwen3_with_normed_queries_and_keys",
        "llama3_with_scaled_rotary_positions",
        "the_original_qwen_with_one_tensor_for_queries_keys_and_values",
        "lengths_beyond_the_trained_one_scale_alike_on_any_number_of_cards",
        "the_shipped_model_continues_its_prompts_on_any_number_of_cards",
    ];
    run_under_each("parity", &but);
}
