//! Hunyuan V1, dense, 0.5B to 7B: each query and key head is normalised after the rotation.

use super::{Bias, FamilyTable, Keys, Layers, RotaryKeys, StandardRotary, Tensors, llama};
use crate::config::layer::QkNorm;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "HunYuanDenseV1ForCausalLM",
    model_type: "hunyuan_v1_dense",
    keys: Keys {
        rotary: RotaryKeys::Standard(StandardRotary { has_alpha: true, ..llama::ROTARY }),
        ..llama::TABLE.keys
    },
    layers: Layers { mlp_bias: Bias::Never, qk_norm: Some(QkNorm::PerRotatedHead), ..llama::TABLE.layers },
    tensors: Tensors {
        query_norm: "self_attn.query_layernorm.weight",
        key_norm: "self_attn.key_layernorm.weight",
        ..llama::TABLE.tensors
    },
    ..llama::TABLE
};
