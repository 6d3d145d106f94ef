//! Qwen3-Next: the gated delta rule in three of four layers, gated attention in the fourth, and the
//! mixture of Qwen2-MoE.

use super::{Absent, DeltaKeys, FamilyTable, Keys, Layers, MixtureKeys, PredictionKeys, PredictionNames};
use super::{Renormalised, RotaryKeys, RotatedPart, StandardRotary};
use super::{llama, qwen2_moe, qwen3};
use crate::config::layer::NormWeight;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen3NextForCausalLM",
    model_type: "qwen3_next",
    keys: Keys {
        absent_head_dim: Absent::Is(256),
        absent_kv_heads: Absent::Is(2),
        rotary: RotaryKeys::Standard(StandardRotary { part: RotatedPart::Factor(0.25), ..llama::ROTARY }),
        prediction: Some(PREDICTION),
        ..qwen3::TABLE.keys
    },
    layers: Layers {
        delta: Some(DeltaKeys::QWEN),
        output_gate: Some("attn_output_gate"),
        norm_weight: NormWeight::OnePlus,
        ..qwen3::TABLE.layers
    },
    mixture: Some(MixtureKeys {
        renormalised: Renormalised::Key { absent: true, added: 0.0 },
        ..qwen2_moe::MIXTURE
    }),
    tensors: qwen2_moe::TABLE.tensors,
    ..qwen3::TABLE
};

/// Published files have one layer and no key.
pub(super) const PREDICTION: PredictionKeys =
    PredictionKeys { key: "num_nextn_predict_layers", absent: 1, names: PredictionNames::Prefix("mtp.") };
