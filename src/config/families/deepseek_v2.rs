//! `DeepSeek` V2: latent attention, and groups of experts by their largest scores.

use super::{Bias, FamilyTable, GroupKeys, Keys, Layers, MixtureKeys, OwnProgram, Renormalised};
use super::{RotaryKeys, StandardRotary, glm4_moe, llama};
use crate::config::layer::Scores;
use crate::config::rope::RotaryPairing;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "DeepseekV2ForCausalLM",
    model_type: "deepseek_v2",
    keys: Keys {
        is_latent: true,
        rotary: RotaryKeys::Standard(StandardRotary { pairing: RotaryPairing::Neighbours, ..llama::ROTARY }),
        own_program: OwnProgram::Named(&[
            "modeling_deepseek.DeepseekV2Model",
            "modeling_deepseek.DeepseekV2ForCausalLM",
        ]),
        ..llama::TABLE.keys
    },
    layers: Layers {
        qkv_bias: Bias::Never,
        output_bias: Bias::Never,
        mlp_bias: Bias::Never,
        ..llama::TABLE.layers
    },
    mixture: Some(MixtureKeys {
        scores: Scores::Softmax,
        has_choice_bias: false,
        groups: GroupKeys::ByMethod(1),
        // transformers ignores the key, and published files say false.
        renormalised: Renormalised::Never,
        ..glm4_moe::MIXTURE
    }),
    ..llama::TABLE
};
