//! Gemma 2: norms on both sides with `1 + w`, soft caps, and a window in every second layer.

use super::{Absent, ActivationKeys, Bias, Caps, FamilyTable, Keys, Layers, Tensors, Windows, llama};
use crate::config::layer::{Activation, NormPlaces, NormWeight};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Gemma2ForCausalLM",
    model_type: "gemma2",
    keys: Keys {
        absent_head_dim: Absent::Is(256),
        absent_kv_heads: Absent::Is(4),
        tied: true,
        ..llama::TABLE.keys
    },
    layers: Layers {
        mlp_bias: Bias::Never,
        windows: Windows::AllBut { nth: 2, absent: Some(4096) },
        query_scalar: Some(256.0),
        caps: Caps::Keys { absent_scores: Some(50.0), absent_logits: Some(30.0) },
        activation: ActivationKeys::Hidden(Activation::GeluTanh),
        norms: NormPlaces::Both,
        norm_weight: NormWeight::OnePlus,
        scales_embedding: true,
        ..llama::TABLE.layers
    },
    tensors: Tensors { mlp_norm: "pre_feedforward_layernorm.weight", ..llama::TABLE.tensors },
    ..llama::TABLE
};
