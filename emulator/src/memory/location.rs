//! Locations of memory: card or host.

/// The location of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Card(u32),
    /// Page-locked host memory.
    Host,
}
