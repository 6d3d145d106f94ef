//! `OLMo` 2: norms after both parts only, and all query or key heads of a token are normalised
//! together.

use super::{Bias, FamilyTable, Layers, llama};
use crate::config::layer::{NormPlaces, QkNorm};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Olmo2ForCausalLM",
    model_type: "olmo2",
    layers: Layers {
        mlp_bias: Bias::Never,
        qk_norm: Some(QkNorm::AllHeads),
        norms: NormPlaces::After,
        ..llama::TABLE.layers
    },
    ..llama::TABLE
};
