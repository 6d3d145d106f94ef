//! Qwen3 with mixtures of experts, such as Qwen3-30B-A3B.

use super::{
    Absent, FamilyTable, GroupKeys, Keys, MixtureKeys, MixtureLayers, Renormalised, SharedKeys, WidthKeys,
    qwen3,
};
use crate::config::layer::Scores;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen3MoeForCausalLM",
    model_type: "qwen3_moe",
    keys: Keys { absent_head_dim: Absent::Derived, ..qwen3::TABLE.keys },
    mixture: Some(MIXTURE),
    ..qwen3::TABLE
};

/// A softmax over all experts.
pub(super) const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "num_experts",
    chosen: "num_experts_per_tok",
    width: WidthKeys::Key("moe_intermediate_size"),
    shared: SharedKeys::None,
    layers: MixtureLayers::Steps,
    scores: Scores::Softmax,
    has_logit_bias: false,
    has_choice_bias: false,
    groups: GroupKeys::None,
    renormalised: Renormalised::Key { absent: false, added: 0.0 },
    factor: None,
};
