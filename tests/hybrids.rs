//! Hybrids of attention and recurrent layers: logits, tokens and gradients of transformers on many
//! layouts, and faults that must show.

use ascend_tp::base::DType;
use ascend_tp::compile::Deployment;
use ascend_tp::config::{ModelConfig, NormWeight};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::verify::{verify, verify_on};
use ascend_tp::placement::{ExpertShards, Grid, Residual};

use crate::common::{cann, with_reference};
use crate::dense::{Sabotage, attention, fails_with_each, passes, tokens_of_each_alone};

/// A mixture of experts with 2 key heads, and a dense model with 3.
const FAMILIES: [&str; 2] = ["qwen3-next", "qwen3_5-dense"];

/// Cards that divide the key heads of one family, or of none, and more cards than key heads.
fn layouts(config: &ModelConfig, family: usize) -> Vec<Deployment> {
    use Residual::{Replicate, Seq};
    let of = |cards, residual| {
        let of = Deployment::of(config, cards);
        Deployment { residual, precision: DType::F32.into(), ..of }
    };
    if family == 0 {
        let staged = Deployment { stages: 2, ..of(4, Replicate) };
        vec![of(3, Seq), Deployment { experts: ExpertShards::Inner, ..of(8, Seq) }, staged]
    } else {
        let square = Deployment { grid: Grid { rows: 2, depth: 1 }, ..of(4, Seq) };
        vec![of(1, Replicate), of(2, Replicate), of(5, Seq), square]
    }
}

#[test]
fn logits_and_tokens_are_those_of_transformers() {
    let cann = cann(8);
    for (family, name) in FAMILIES.into_iter().enumerate() {
        let (model, reference) = with_reference(name);
        for deployment in layouts(&model.config, family) {
            let Deployment { cards, stages, grid, residual, .. } = deployment;
            let place = format!("{name}: {cards} cards, {stages} stages, {grid:?}, {residual:?}");
            let found = verify_on(&cann, &model, &deployment, &reference, &EngineOptions::default())
                .unwrap_or_else(|error| panic!("{place}: {error}"))
                .unwrap_or_else(|| panic!("{place}: nothing was compared"));
            passes(&place, &found);
        }
    }
}

#[test]
fn other_precisions_are_within_their_bounds() {
    let cann = cann(2);
    for (name, dtype) in FAMILIES.into_iter().zip([DType::BF16, DType::F16]) {
        let (model, reference) = with_reference(name);
        let found = verify(&cann, &model, 2, dtype, Residual::Replicate, &reference).unwrap();
        assert!(found.passed(), "{name} in {dtype}: {found:#?}");
    }
}

#[test]
fn prompts_of_different_lengths_give_the_tokens_of_each_alone() {
    tokens_of_each_alone(&FAMILIES);
}

fn without_gate(config: &mut ModelConfig) {
    attention(config, |_, attention| attention.has_output_gate = false);
}

fn whole_head_rotated(config: &mut ModelConfig) {
    config.rope.part = 1.0;
}

fn plain_norms(config: &mut ModelConfig) {
    config.norm_weight = NormWeight::Factor;
}

/// Faults that published programs had.
fn sabotages() -> Vec<Sabotage> {
    vec![
        ("qwen3-next", "no output gate", without_gate),
        ("qwen3-next", "the whole head rotated", whole_head_rotated),
        ("qwen3-next", "norms without one plus", plain_norms),
        ("qwen3_5-dense", "the whole head rotated", whole_head_rotated),
        ("qwen3_5-dense", "norms without one plus", plain_norms),
        ("qwen3_5-dense", "a larger epsilon", |config| config.norm_epsilon = 1e-3),
    ]
}

#[test]
fn no_trap_passes() {
    fails_with_each(sabotages());
}
