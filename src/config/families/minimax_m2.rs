//! `MiniMax` M2: Mixtral's names, scores by sigmoid, and a part of each head is rotated.

use super::{Absent, FamilyTable, Keys, Layers, MixtureKeys, OwnProgram, RotaryKeys, RotatedPart};
use super::{StandardRotary, Windows, llama, mixtral};
use crate::config::layer::{QkNorm, Scores};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "MiniMaxM2ForCausalLM",
    model_type: "minimax_m2",
    keys: Keys {
        absent_head_dim: Absent::Is(128),
        rotary: RotaryKeys::Standard(StandardRotary {
            absent_theta: Some(5e6),
            part: RotatedPart::Dims("rotary_dim"),
            ..llama::ROTARY
        }),
        own_program: OwnProgram::Named(&["modeling_minimax_m2.MiniMaxM2ForCausalLM"]),
        ..mixtral::TABLE.keys
    },
    layers: Layers { qk_norm: Some(QkNorm::AllHeads), windows: Windows::None, ..mixtral::TABLE.layers },
    mixture: Some(MixtureKeys { scores: Scores::Sigmoid, has_choice_bias: true, ..mixtral::MIXTURE }),
    ..mixtral::TABLE
};
