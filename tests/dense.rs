//! Mistral, Phi-3, GLM-4, `OLMo` 2, Gemma 2 and Gemma 3: logits and tokens of transformers, and
//! faults that must show.
#![expect(clippy::print_stdout, reason = "a test fails where it stands and shows its figures")]

use std::ops::ControlFlow;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{AttentionPart, GroupedAttention, ModelConfig, NormWeight, Rotary, RotaryPairing};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::verify::{Verification, verify, verify_on};
use ascend_tp::generate::{Request, Session};
use ascend_tp::placement::Residual;
use ascend_tp::program::models::Head;

use crate::common::cases::is_sampled;
use crate::common::{cann, with_reference};

const FAMILIES: [&str; 6] = ["mistral-sliding", "phi3", "glm4", "olmo2", "gemma2", "gemma3"];

pub(crate) fn passes(place: &str, found: &Verification) {
    assert!(found.passed(), "{place}: {found:#?}");
    let logits = found.logits.as_ref().unwrap();
    let error = (logits.expected - logits.found).abs();
    println!("{place}: {} values, logits off by {error:.1e}", found.values);
    assert!(error <= 1e-4 && found.values > 30, "{place}: logits off by {error:.1e}");
    let greedy = found.greedy.as_ref().unwrap();
    assert_eq!((&greedy.found, greedy.choices.len()), (&greedy.expected, 0), "{place}");
}

#[test]
fn logits_and_tokens_are_those_of_transformers() {
    let cann = cann(8);
    for (family, name) in FAMILIES.into_iter().enumerate() {
        let (model, reference) = with_reference(name);
        for (at, cards) in [1, 2, 3, 5, 8].into_iter().enumerate() {
            for residual in [Residual::Replicate, Residual::Seq] {
                let number = family + at + usize::from(residual == Residual::Seq);
                if cards == 1 && residual == Residual::Seq || !is_sampled(number, 5) {
                    continue;
                }
                let place = format!("{name} on {cards} cards, {residual:?}");
                let found = verify(&cann, &model, cards, DType::F32, residual, &reference)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                passes(&place, &found);
            }
        }
        for residual in [Residual::Replicate, Residual::Seq] {
            let place = format!("{name} in two stages of two cards, {residual:?}");
            let deployment = Deployment {
                stages: 2,
                residual,
                precision: DType::F32.into(),
                ..Deployment::of(&model.config, 4)
            };
            let options = EngineOptions::default();
            let found = verify_on(&cann, &model, &deployment, &reference, &options)
                .unwrap_or_else(|error| panic!("{place}: {error}"))
                .unwrap_or_else(|| panic!("{place}: nothing was compared"));
            passes(&place, &found);
        }
    }
}

#[test]
fn other_precisions_are_within_their_bounds() {
    let cann = cann(8);
    for (family, name) in FAMILIES.into_iter().enumerate() {
        let (model, reference) = with_reference(name);
        let quantised = [DType::BF16, DType::F16].map(Precision::w8a8);
        let precisions = [DType::F16, DType::BF16].map(Precision::from).into_iter().chain(quantised);
        for (number, precision) in (family..).zip(precisions) {
            for (at, cards) in [1, 3, 4].into_iter().enumerate() {
                if !is_sampled(number + at, 6) {
                    continue;
                }
                let residual = if cards == 4 { Residual::Seq } else { Residual::Replicate };
                let place = format!("{name} in {precision} on {cards} cards");
                let found = verify(&cann, &model, cards, precision, residual, &reference)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                assert!(found.passed(), "{place}: {found:#?}");
            }
        }
    }
}

/// A fault, and the fixture that must show it.
pub(crate) type Sabotage = (&'static str, &'static str, fn(&mut ModelConfig));

pub(crate) fn attention(config: &mut ModelConfig, change: impl Fn(usize, &mut GroupedAttention)) {
    let mut pattern = Vec::new();
    for layer in 0..config.layers {
        let mut described = *config.layer(layer);
        if let AttentionPart::Grouped(attention) = &mut described.attention {
            change(layer, attention);
        }
        pattern.push(described);
    }
    config.pattern = pattern;
}

fn windows(config: &mut ModelConfig, change: impl Fn(usize) -> Option<usize>) {
    attention(config, |_, attention| attention.window = attention.window.and_then(&change));
}

/// The traps of `facts/mixtures.md` that concern dense families.
fn sabotages() -> Vec<Sabotage> {
    vec![
        ("mistral-sliding", "no window", |config| windows(config, |_| None)),
        ("mistral-sliding", "a window one narrower", |config| windows(config, |window| Some(window - 1))),
        ("mistral-sliding", "a window one wider", |config| windows(config, |window| Some(window + 1))),
        ("gemma2", "no cap of scores", |config| attention(config, |_, attention| attention.score_cap = None)),
        ("gemma2", "no cap of logits", |config| config.logit_cap = None),
        ("gemma2", "no window", |config| windows(config, |_| None)),
        ("gemma2", "windows in the other layers", |config| {
            attention(config, |layer, attention| attention.window = (layer % 2 == 1).then_some(10));
        }),
        ("gemma2", "scores scaled by the head size", |config| {
            attention(config, |_, attention| attention.query_scalar = None);
        }),
        ("gemma2", "norms without one plus the weight", |config| config.norm_weight = NormWeight::Factor),
        ("gemma2", "embeddings that are not scaled", |config| config.scales_embedding = false),
        ("gemma3", "no window", |config| windows(config, |_| None)),
        ("gemma3", "a window one wider", |config| windows(config, |window| Some(window + 1))),
        ("gemma3", "one base for all layers", |config| {
            attention(config, |_, attention| attention.rotary = Rotary::Global);
        }),
        ("gemma3", "scores scaled by the head size", |config| {
            attention(config, |_, attention| attention.query_scalar = None);
        }),
        ("gemma3", "every second layer full", |config| {
            attention(config, |layer, attention| {
                let is_full = layer % 2 == 1;
                attention.window = (!is_full).then_some(8);
                attention.rotary = if is_full { Rotary::Global } else { Rotary::Local };
            });
        }),
        ("glm4", "the whole head rotated", |config| config.rope.part = 1.0),
        ("glm4", "halves rotated instead of neighbours", |config| {
            config.rope.pairing = RotaryPairing::Halves;
        }),
        ("phi3", "the whole head rotated", |config| config.rope.part = 1.0),
        ("phi3", "neighbours rotated instead of halves", |config| {
            config.rope.pairing = RotaryPairing::Neighbours;
        }),
        ("olmo2", "queries and keys without norms", |config| {
            attention(config, |_, attention| attention.qk_norm = None);
        }),
        ("glm4", "another base of the rotation", |config| config.rope.theta *= 2.0),
    ]
}

#[test]
fn no_trap_passes() {
    fails_with_each(sabotages());
}

/// Checks that `verify` fails with each fault.
pub(crate) fn fails_with_each(sabotages: Vec<Sabotage>) {
    let cann = cann(8);
    let mut passed = Vec::new();
    for (number, (name, fault, sabotage)) in sabotages.into_iter().enumerate() {
        if !is_sampled(number, 3) {
            continue;
        }
        let (mut model, reference) = with_reference(name);
        sabotage(&mut model.config);
        let found = verify(&cann, &model, 2, DType::F32, Residual::Replicate, &reference).unwrap();
        assert_eq!(found.first_difference, None, "{name}, {fault}: cards differ");
        if found.passed() {
            passed.push(format!("{name}, {fault}"));
        }
    }
    assert!(passed.is_empty(), "passed: {}", passed.join("; "));
}

/// Prompts that are longer than the windows, and shorter ones in the same batch.
#[test]
fn prompts_of_different_lengths_give_the_tokens_of_each_alone() {
    tokens_of_each_alone(&FAMILIES);
}

pub(crate) fn tokens_of_each_alone(families: &[&str]) {
    let cann = cann(8);
    for name in families {
        let (model, _) = with_reference(name);
        let prompt = |tokens: u32| -> Vec<u32> {
            (0..tokens).map(|at| (at * 37 + tokens) % (model.config.vocab_size as u32 - 3) + 3).collect()
        };
        let prompts = [prompt(31), prompt(5)];
        for cards in [1, 3] {
            let run = |prompts: &[Vec<u32>]| {
                let deployment = Deployment {
                    precision: DType::F32.into(),
                    batch: prompts.len(),
                    longest_prompt: 32,
                    context: 48,
                    head: Head::LastToken,
                    ..Deployment::of(&model.config, cards)
                };
                let mut session = Session::builder(&cann, &model).deployment(deployment).start().unwrap();
                let (stop_ids, max_new_tokens) = (Some(Vec::new()), Some(12));
                let request = |ids: &Vec<u32>| Request {
                    stop_ids: stop_ids.clone(),
                    max_new_tokens,
                    ..Request::new(ids.as_slice())
                };
                let requests: Vec<Request> = prompts.iter().map(request).collect();
                let found = session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap();
                found.sequences.into_iter().map(|sequence| sequence.ids).collect::<Vec<_>>()
            };
            let together = run(&prompts);
            let alone: Vec<Vec<u32>> =
                prompts.iter().flat_map(|prompt| run(std::slice::from_ref(prompt))).collect();
            assert_eq!(together, alone, "{name} on {cards} cards");
            assert!(together.iter().all(|ids| ids.len() == 12), "{name}");
        }
    }
}
