//! gpt-oss: sinks, a window in every second layer, biases everywhere, and clipped gates.

use super::{Absent, ActivationKeys, Bias, ExpertStack, ExpertTensors, FamilyTable, Keys, Layers};
use super::{MixtureKeys, Renormalised, RotaryKeys, StandardRotary, Tensors, Windows, llama, mixtral};
use crate::config::layer::Scores;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "GptOssForCausalLM",
    model_type: "gpt_oss",
    keys: Keys {
        absent_head_dim: Absent::Is(64),
        absent_kv_heads: Absent::Is(8),
        rotary: RotaryKeys::Standard(StandardRotary {
            absent_theta: Some(150_000.0),
            // The class of transformers scales a file without the key.
            needs_scaling: true,
            ..llama::ROTARY
        }),
        ..llama::TABLE.keys
    },
    layers: Layers {
        qkv_bias: Bias::Always,
        output_bias: Bias::Always,
        mlp_bias: Bias::Always,
        has_sinks: true,
        windows: Windows::AllBut { nth: 2, absent: Some(128) },
        activation: ActivationKeys::Clipped,
        ..llama::TABLE.layers
    },
    mixture: Some(MixtureKeys {
        scores: Scores::SoftmaxOfChosen,
        has_logit_bias: true,
        renormalised: Renormalised::Never,
        ..mixtral::MIXTURE
    }),
    tensors: Tensors {
        experts: ExpertTensors {
            router: "mlp.router",
            stack: ExpertStack::Interleaved,
            gate: "mlp.experts.gate_up_proj",
            up: "mlp.experts.gate_up_proj",
            down: "mlp.experts.down_proj",
            ..ExpertTensors::COMMON
        },
        ..llama::TABLE.tensors
    },
    ..llama::TABLE
};
