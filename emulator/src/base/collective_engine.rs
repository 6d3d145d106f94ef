//! What runs the collectives of a card.

/// What runs the collectives of a card (`HCCL_OP_EXPANSION_MODE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectiveEngine {
    /// Tasks on streams of HCCL's own, as on an Atlas A2 unless it is told otherwise.
    #[default]
    Streams,
    /// Kernels of the vector cores (`AIV`).
    VectorCores,
}

impl CollectiveEngine {
    /// What a value of the variable means; one that a product has not is as if there were none (CANN environment variables).
    pub(crate) fn named(text: &str) -> Self {
        if text == "AIV" { Self::VectorCores } else { Self::Streams }
    }
}
