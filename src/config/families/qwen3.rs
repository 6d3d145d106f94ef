//! Qwen3, dense: each query and key head is normalised.

use super::{Absent, Bias, FamilyTable, Keys, Layers, llama, qwen2};
use crate::config::layer::QkNorm;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen3ForCausalLM",
    model_type: "qwen3",
    keys: Keys { absent_head_dim: Absent::Is(128), ..qwen2::TABLE.keys },
    layers: Layers {
        qkv_bias: Bias::If("attention_bias"),
        output_bias: Bias::If("attention_bias"),
        qk_norm: Some(QkNorm::PerHead),
        ..qwen2::TABLE.layers
    },
    ..llama::TABLE
};
