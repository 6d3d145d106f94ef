//! GLM-4.5 to 4.7 with mixtures of experts: grouped attention, and the router of `DeepSeek` V3.

use super::{Absent, Bias, FamilyTable, GroupKeys, Keys, Layers, MixtureKeys, MixtureLayers};
use super::{
    PredictionKeys, PredictionNames, Renormalised, RotaryKeys, RotatedPart, SharedKeys, StandardRotary,
    WidthKeys, llama,
};
use crate::config::layer::{QkNorm, Scores};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Glm4MoeForCausalLM",
    model_type: "glm4_moe",
    keys: Keys {
        absent_head_dim: Absent::Is(128),
        absent_kv_heads: Absent::Is(8),
        rotary: RotaryKeys::Standard(StandardRotary { part: RotatedPart::Factor(0.5), ..llama::ROTARY }),
        prediction: Some(PREDICTION),
        ..llama::TABLE.keys
    },
    layers: Layers {
        output_bias: Bias::Never,
        mlp_bias: Bias::Never,
        qk_norm: Some(QkNorm::PerHead),
        qk_norm_key: Some("use_qk_norm"),
        ..llama::TABLE.layers
    },
    mixture: Some(MIXTURE),
    ..llama::TABLE
};

/// The prediction layers of `DeepSeek` V3.
pub(super) const PREDICTION: PredictionKeys =
    PredictionKeys { key: "num_nextn_predict_layers", absent: 0, names: PredictionNames::Numbers };

/// The mixture of `DeepSeek` V3.
pub(super) const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "n_routed_experts",
    chosen: "num_experts_per_tok",
    width: WidthKeys::Key("moe_intermediate_size"),
    shared: SharedKeys::Count("n_shared_experts"),
    layers: MixtureLayers::FromFirst,
    scores: Scores::Sigmoid,
    has_logit_bias: false,
    has_choice_bias: true,
    groups: GroupKeys::Always(2),
    renormalised: Renormalised::Key { absent: true, added: 1e-20 },
    factor: Some("routed_scaling_factor"),
};
