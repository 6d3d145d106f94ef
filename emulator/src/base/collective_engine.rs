//! Engines that execute collectives.

/// Engine that executes the collectives of a card (`HCCL_OP_EXPANSION_MODE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectiveEngine {
    /// Tasks on internal streams, the default on an Atlas A2.
    #[default]
    Streams,
    /// Kernels of the vector cores (`AIV`).
    VectorCores,
}

impl CollectiveEngine {
    /// An engine that the product lacks counts as unset (CANN environment variables).
    pub(crate) fn named(text: &str) -> Self {
        if text == "AIV" { Self::VectorCores } else { Self::Streams }
    }
}
