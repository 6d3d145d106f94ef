//! Qwen1.5, Qwen2 and Qwen2.5.

use super::{Absent, Bias, FamilyTable, Keys, Layers, RotaryKeys, StandardRotary, Windows, llama};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen2ForCausalLM",
    model_type: "qwen2",
    keys: Keys {
        absent_kv_heads: Absent::Problem,
        rotary: RotaryKeys::Standard(StandardRotary { absent_theta: None, ..llama::ROTARY }),
        ..llama::TABLE.keys
    },
    layers: Layers {
        qkv_bias: Bias::Always,
        output_bias: Bias::Never,
        mlp_bias: Bias::Never,
        windows: Windows::ByFlag,
        ..llama::TABLE.layers
    },
    ..llama::TABLE
};
