//! Mistral: a window in every layer, or in none.

use super::{Absent, Bias, FamilyTable, Keys, Layers, Windows, llama};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "MistralForCausalLM",
    model_type: "mistral",
    keys: Keys { absent_kv_heads: Absent::Is(8), ..llama::TABLE.keys },
    layers: Layers {
        qkv_bias: Bias::Never,
        output_bias: Bias::Never,
        mlp_bias: Bias::Never,
        windows: Windows::Every { absent: Some(4096) },
        ..llama::TABLE.layers
    },
    ..llama::TABLE
};
