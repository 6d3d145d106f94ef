//! GLM-4 (0414): norms on both sides, and neighbouring dims of a part of each head are rotated.

use super::{Absent, Bias, FamilyTable, Keys, Layers, Projections, RotaryKeys, StandardRotary, Tensors};
use super::{RotatedPart, llama};
use crate::config::layer::NormPlaces;
use crate::config::rope::RotaryPairing;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Glm4ForCausalLM",
    model_type: "glm4",
    keys: Keys {
        absent_head_dim: Absent::Is(128),
        absent_kv_heads: Absent::Is(2),
        rotary: RotaryKeys::Standard(StandardRotary {
            part: RotatedPart::Factor(0.5),
            pairing: RotaryPairing::Neighbours,
            ..llama::ROTARY
        }),
        ..llama::TABLE.keys
    },
    layers: Layers {
        output_bias: Bias::Never,
        mlp_bias: Bias::Never,
        norms: NormPlaces::Both,
        ..llama::TABLE.layers
    },
    tensors: Tensors {
        attention_norm_after: "post_self_attn_layernorm.weight",
        mlp_norm_after: "post_mlp_layernorm.weight",
        gate_up: Projections::Fused("mlp.gate_up_proj"),
        ..llama::TABLE.tensors
    },
    ..llama::TABLE
};
