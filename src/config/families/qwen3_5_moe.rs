//! Qwen3.5 and Qwen3.6 with mixtures of experts in all layers.

use super::{
    Absent, DeltaTensors, FamilyTable, Intermediate, Keys, MixtureKeys, MixtureLayers, Renormalised,
};
use super::{Tensors, Tower, qwen2_moe, qwen3_5};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen3_5MoeForCausalLM",
    model_type: "qwen3_5_moe_text",
    other_model_types: &["qwen3_5_moe"],
    towers: &[Tower {
        architecture: "Qwen3_5MoeForConditionalGeneration",
        model_type: "qwen3_5_moe",
        absent: "{}",
    }],
    keys: Keys {
        absent_kv_heads: Absent::Is(2),
        intermediate: Intermediate::OfExperts,
        ..qwen3_5::TABLE.keys
    },
    mixture: Some(MixtureKeys {
        layers: MixtureLayers::All,
        renormalised: Renormalised::Always(0.0),
        ..qwen2_moe::MIXTURE
    }),
    tensors: Tensors { delta: DeltaTensors::QWEN3_5, ..qwen2_moe::TABLE.tensors },
    ..qwen3_5::TABLE
};
