//! Qwen1.5, Qwen2 and Qwen2.5.

use super::{Absent, Bias, FamilyTable, Keys, Layers, RotaryKeys, Windows, llama};
use crate::config::rope::RotaryPairing;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen2ForCausalLM",
    model_type: "qwen2",
    keys: Keys {
        absent_kv_heads: Absent::Problem,
        rotary: RotaryKeys::Standard {
            absent_theta: None,
            part: None,
            pairing: RotaryPairing::Halves,
            local_theta: None,
        },
        ..llama::TABLE.keys
    },
    layers: Layers {
        qkv_bias: Bias::Always,
        output_bias: Bias::Never,
        mlp_bias: Bias::Never,
        windows: Windows::ByFlag,
        ..llama::TABLE.layers
    },
    tensors: llama::TABLE.tensors,
};
