//! Phi-3 and Phi-4-mini: fused projections, and a part of each head is rotated.

use super::{Bias, FamilyTable, Keys, Layers, OwnProgram, Projections, RotaryKeys, StandardRotary, Tensors};
use super::{RotatedPart, Windows, llama};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Phi3ForCausalLM",
    model_type: "phi3",
    keys: Keys {
        rotary: RotaryKeys::Standard(StandardRotary { part: RotatedPart::Factor(1.0), ..llama::ROTARY }),
        own_program: OwnProgram::Named(&["modeling_phi3.Phi3ForCausalLM"]),
        ..llama::TABLE.keys
    },
    layers: Layers {
        qkv_bias: Bias::Never,
        output_bias: Bias::Never,
        mlp_bias: Bias::Never,
        windows: Windows::Every { absent: None },
        ..llama::TABLE.layers
    },
    tensors: Tensors {
        qkv: Projections::Fused("self_attn.qkv_proj"),
        gate_up: Projections::Fused("mlp.gate_up_proj"),
        ..llama::TABLE.tensors
    },
    ..llama::TABLE
};
