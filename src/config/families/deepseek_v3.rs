//! `DeepSeek` V3, V3.1 and R1, and Kimi K2: latent attention, and groups of experts that a bias
//! balances.

use super::glm4_moe::PREDICTION;
use super::{FamilyTable, Keys, OwnProgram, RotaryKeys, StandardRotary, Tower};
use super::{deepseek_v2, glm4_moe, llama};
use crate::config::rope::RotaryPairing;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "DeepseekV3ForCausalLM",
    model_type: "deepseek_v3",
    other_model_types: &["kimi_k2"],
    towers: &[Tower {
        architecture: "KimiK25ForConditionalGeneration",
        model_type: "kimi_k25",
        absent: "{}",
    }],
    keys: Keys {
        rotary: RotaryKeys::Standard(StandardRotary {
            pairing: RotaryPairing::Neighbours,
            interleave: Some("rope_interleave"),
            ..llama::ROTARY
        }),
        prediction: Some(PREDICTION),
        own_program: OwnProgram::Named(&[
            "modeling_deepseek.DeepseekV3Model",
            "modeling_deepseek.DeepseekV3ForCausalLM",
            "modeling_kimi_k25.KimiK25ForConditionalGeneration",
        ]),
        ..deepseek_v2::TABLE.keys
    },
    mixture: Some(glm4_moe::MIXTURE),
    ..deepseek_v2::TABLE
};
