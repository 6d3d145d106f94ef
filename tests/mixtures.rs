//! Mixtures of experts: logits and tokens of transformers on many layouts, and faults that must
//! show.

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{
    Activation, AttentionPart, FeedForwardPart, LatentAttention, Mixture, ModelConfig, RopeScaling,
    RotaryPairing,
};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::verify::{verify, verify_on};
use ascend_tp::placement::{ExpertShards, Grid, Residual};

use crate::common::{cann, with_reference};
use crate::dense::{Sabotage, attention, fails_with_each, passes, tokens_of_each_alone};

const FAMILIES: [&str; 8] =
    ["qwen3-moe", "qwen2-moe", "mixtral", "glm4-moe", "minimax-m2", "gpt-oss", "deepseek-v2", "deepseek-v3"];

/// A cover of the pairs of cards, shardings of experts and residual streams, for most families. 8
/// cards have fewer experts than cards in some families, and no family divides by 3 and 5.
fn layouts(config: &ModelConfig, family: usize) -> Vec<Deployment> {
    use ExpertShards::{Inner, Whole};
    use Residual::{Replicate, Seq};
    let of = |cards, experts, residual| {
        let of = Deployment::of(config, cards);
        Deployment { experts, residual, precision: DType::F32.into(), ..of }
    };
    let staged = Deployment { stages: 2, ..of(4, Inner, Replicate) };
    let square = Deployment { grid: Grid { rows: 2, depth: 1 }, ..of(4, Whole, Seq) };
    let [a, b] = if family.is_multiple_of(2) { [Whole, Inner] } else { [Inner, Whole] };
    let last = if family.is_multiple_of(2) { staged } else { square };
    match family % 4 {
        0 | 3 => vec![of(1, Whole, Replicate), of(3, b, Replicate), of(8, b, Seq), last],
        _ => vec![of(2, a, Seq), of(5, a, Replicate), of(8, b, Replicate), last],
    }
}

#[test]
fn logits_and_tokens_are_those_of_transformers() {
    let cann = cann(8);
    for (family, name) in FAMILIES.into_iter().enumerate() {
        let (model, reference) = with_reference(name);
        for deployment in layouts(&model.config, family) {
            let Deployment { cards, stages, grid, experts, residual, .. } = deployment;
            let place =
                format!("{name}: {cards} cards, {stages} stages, {grid:?}, {experts:?}, {residual:?}");
            let found = verify_on(&cann, &model, &deployment, &reference, &EngineOptions::default())
                .unwrap_or_else(|error| panic!("{place}: {error}"))
                .unwrap_or_else(|| panic!("{place}: nothing was compared"));
            passes(&place, &found);
        }
    }
}

#[test]
fn other_precisions_are_within_their_bounds_with_the_choices_of_f32() {
    let cann = cann(8);
    let mut rows = 0;
    for (family, name) in FAMILIES.into_iter().enumerate() {
        let (model, reference) = with_reference(name);
        let dtype = if family.is_multiple_of(2) { DType::BF16 } else { DType::F16 };
        for cards in [1, 3] {
            let place = format!("{name} in {dtype} on {cards} cards");
            let found = verify(&cann, &model, cards, dtype, Residual::Replicate, &reference)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(found.passed(), "{place}: {found:#?}");
            let experts = found.experts.expect("the model chooses experts");
            assert!(experts.differing * 4 <= experts.rows, "{place}: {experts:?}");
            rows += experts.rows;
        }
    }
    assert!(rows > 1000, "{rows} choices");
}

/// gpt-oss has clipped gates and biases, which no quantised product has.
#[test]
fn quantised_experts_are_within_their_bounds_with_the_choices_of_f32() {
    let cann = cann(8);
    for (family, name) in FAMILIES.into_iter().enumerate() {
        let (model, reference) = with_reference(name);
        let own = if family.is_multiple_of(2) { DType::BF16 } else { DType::F16 };
        let cards = [1, 3, 2, 8][family % 4];
        let place = format!("{name} in w8a8 of {own} on {cards} cards");
        let found = verify(&cann, &model, cards, Precision::w8a8(own), Residual::Replicate, &reference);
        if name == "gpt-oss" {
            let found = found.expect_err("clipped gates").to_string();
            assert!(found.contains("experts with clipped gates and quantised weights"), "{found}");
            continue;
        }
        let found = found.unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(found.passed(), "{place}: {found:#?}");
        let experts = found.experts.expect("the model chooses experts");
        assert!(experts.differing * 2 <= experts.rows, "{place}: {experts:?}");
    }
}

#[test]
fn prompts_of_different_lengths_give_the_tokens_of_each_alone() {
    tokens_of_each_alone(&["qwen2-moe", "gpt-oss", "deepseek-v3"]);
}

fn mixtures(config: &mut ModelConfig, change: impl Fn(&mut Mixture)) {
    for layer in &mut config.pattern {
        if let FeedForwardPart::Mixture(mixture) = &mut layer.feed_forward {
            change(mixture);
        }
    }
}

fn renormalised(config: &mut ModelConfig, epsilon: Option<f64>) {
    mixtures(config, |mixture| mixture.router.renormalisation = epsilon);
}

fn without_bias(config: &mut ModelConfig) {
    mixtures(config, |mixture| mixture.router.has_choice_bias = false);
}

fn without_groups(config: &mut ModelConfig) {
    mixtures(config, |mixture| mixture.router.groups = None);
}

fn without_factor(config: &mut ModelConfig) {
    mixtures(config, |mixture| mixture.router.factor = 1.0);
}

fn latent(config: &mut ModelConfig, change: impl Fn(&mut LatentAttention)) {
    for layer in &mut config.pattern {
        let AttentionPart::Latent(latent) = &mut layer.attention else { panic!("another attention") };
        change(latent);
    }
}

/// Heads of both fixtures with latent attention have 12 + 8 dims.
fn without_score_factor(config: &mut ModelConfig) {
    latent(config, |latent| latent.scale = 20.0_f64.sqrt().recip());
}

fn without_qk_norm(config: &mut ModelConfig) {
    attention(config, |_, attention| attention.qk_norm = None);
}

/// Faults that published programs had.
fn sabotages() -> Vec<Sabotage> {
    vec![
        ("glm4-moe", "the whole head rotated", |config| config.rope.part = 1.0),
        ("glm4-moe", "no bias of the choice", without_bias),
        ("glm4-moe", "weights that are not renormalised", |config| renormalised(config, None)),
        ("glm4-moe", "queries and keys without norms", without_qk_norm),
        ("glm4-moe", "no factor of the weights", without_factor),
        ("gpt-oss", "no window", |config| attention(config, |_, attention| attention.window = None)),
        ("gpt-oss", "windows in the other layers", |config| {
            attention(config, |layer, attention| attention.window = (layer % 2 == 1).then_some(8));
        }),
        ("gpt-oss", "no limit of the gate", |config| {
            mixtures(config, |mixture| {
                mixture.activation = Activation::Clipped { limit: 1e6, slope: 1.702 };
            });
        }),
        ("gpt-oss", "no sinks", |config| attention(config, |_, attention| attention.has_sinks = false)),
        ("gpt-oss", "rounded borders of the scaling", |config| {
            let RopeScaling::Yarn { truncate, .. } = &mut config.rope.scaling else {
                panic!("another scaling")
            };
            *truncate = true;
        }),
        ("deepseek-v2", "no groups", without_groups),
        ("deepseek-v2", "no factor of the weights", without_factor),
        ("deepseek-v2", "no scaling of the rotation", |config| config.rope.scaling = RopeScaling::Default),
        ("deepseek-v2", "scores without the factor of the scaling", without_score_factor),
        ("deepseek-v3", "no groups", without_groups),
        ("deepseek-v3", "no factor of the weights", without_factor),
        ("deepseek-v3", "scores without the factor of the scaling", without_score_factor),
        ("deepseek-v3", "no bias of the choice", without_bias),
        ("deepseek-v3", "weights that are not renormalised", |config| renormalised(config, None)),
        ("deepseek-v3", "halves rotated instead of neighbours", |config| {
            config.rope.pairing = RotaryPairing::Halves;
        }),
        ("deepseek-v3", "no scaling of the rotation", |config| config.rope.scaling = RopeScaling::Default),
        ("minimax-m2", "no bias of the choice", without_bias),
        ("minimax-m2", "the whole head rotated", |config| config.rope.part = 1.0),
        ("mixtral", "another base of the rotation", |config| config.rope.theta *= 2.0),
        ("mixtral", "one expert fewer", |config| mixtures(config, |mixture| mixture.chosen -= 1)),
        ("qwen2-moe", "renormalised weights", |config| renormalised(config, Some(0.0))),
        ("qwen2-moe", "a shared expert without its gate", |config| {
            mixtures(config, |mixture| {
                mixture.shared.as_mut().expect("the family has a shared expert").has_gate = false;
            });
        }),
        ("qwen3-moe", "weights that are not renormalised", |config| renormalised(config, None)),
        ("qwen3-moe", "one expert fewer", |config| mixtures(config, |mixture| mixture.chosen -= 1)),
        ("qwen3-moe", "queries and keys without norms", without_qk_norm),
    ]
}

#[test]
fn no_trap_passes() {
    fails_with_each(sabotages());
}
