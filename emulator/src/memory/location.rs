//! Whose memory bytes are.

/// Where an allocation lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// Memory of a card.
    Card(u32),
    /// Page-locked host memory.
    Host,
}
