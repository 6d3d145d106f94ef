//! Mixtral: Mistral with a mixture of experts in every layer.

use super::{ExpertTensors, FamilyTable, GroupKeys, Keys, Layers, MixtureKeys, MixtureLayers, Renormalised};
use super::{RotaryKeys, SharedKeys, StandardRotary, Tensors, WidthKeys, Windows, llama, mistral};
use crate::config::layer::Scores;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "MixtralForCausalLM",
    model_type: "mixtral",
    keys: Keys {
        rotary: RotaryKeys::Standard(StandardRotary { absent_theta: Some(1e6), ..llama::ROTARY }),
        ..mistral::TABLE.keys
    },
    layers: Layers { windows: Windows::Every { absent: None }, ..mistral::TABLE.layers },
    mixture: Some(MIXTURE),
    tensors: Tensors { experts: EXPERTS, ..mistral::TABLE.tensors },
    ..mistral::TABLE
};

pub(super) const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "num_local_experts",
    chosen: "num_experts_per_tok",
    width: WidthKeys::Intermediate,
    shared: SharedKeys::None,
    layers: MixtureLayers::All,
    scores: Scores::Softmax,
    has_logit_bias: false,
    has_choice_bias: false,
    groups: GroupKeys::None,
    renormalised: Renormalised::Always(0.0),
    factor: None,
};

pub(super) const EXPERTS: ExpertTensors = ExpertTensors {
    router: "block_sparse_moe.gate",
    choice_bias: "block_sparse_moe.e_score_correction_bias",
    // `w2` is the down projection.
    gate: "block_sparse_moe.experts.{}.w1",
    up: "block_sparse_moe.experts.{}.w3",
    down: "block_sparse_moe.experts.{}.w2",
    ..ExpertTensors::COMMON
};
