//! Locations of memory: card or host.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Card(u32),
    Host,
}
