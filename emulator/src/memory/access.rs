//! Byte ranges that queued work reads or writes.
//!
//! Invariant: footprints use the program's addresses. Not here: the order of accesses (see
//! `strict::order`).

use std::sync::Arc;

use crate::memory::footprint::Footprint;
use crate::memory::location::Location;
use crate::memory::raw::RawSpan;

#[derive(Debug, Clone)]
pub(crate) struct MemoryAccess {
    pub(crate) span: RawSpan,
    pub(crate) mode: AccessMode,
    pub(crate) what: &'static str,
    shape: TouchedBytes,
}

#[derive(Debug, Clone)]
enum TouchedBytes {
    All,
    Part(Arc<Footprint>),
    /// Too many pieces for strict mode to watch.
    Unwatched,
}

impl MemoryAccess {
    pub(crate) fn read(what: &'static str, span: &RawSpan) -> Self {
        Self::new(what, span, AccessMode::Read)
    }

    pub(crate) fn write(what: &'static str, span: &RawSpan) -> Self {
        Self::new(what, span, AccessMode::Write)
    }

    pub(crate) fn new(what: &'static str, span: &RawSpan, mode: AccessMode) -> Self {
        Self { span: span.clone(), mode, what, shape: TouchedBytes::All }
    }

    /// `None` means too many pieces to watch.
    pub(crate) fn within(self, bytes: Option<Footprint>) -> Self {
        let shape = bytes.map_or(TouchedBytes::Unwatched, |bytes| TouchedBytes::Part(Arc::new(bytes)));
        Self { shape, ..self }
    }

    /// Both touch a byte that one of them writes.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        (self.mode == AccessMode::Write || other.mode == AccessMode::Write)
            && self.span.overlaps(&other.span)
            && match (self.footprint(), other.footprint()) {
                (Some(own), Some(others)) => own.meets(&others).is_some(),
                _ => true,
            }
    }

    pub(crate) fn is_on_host(&self) -> bool {
        self.span.allocation().is_some_and(|owner| owner.location() == Location::Host)
    }

    /// Returns `None` if the bytes are not watched.
    pub(crate) fn footprint(&self) -> Option<Footprint> {
        let start = self.span.address();
        match &self.shape {
            TouchedBytes::All => Some(Footprint::line(start..start + self.span.len_bytes())),
            TouchedBytes::Part(bytes) => Some(bytes.shifted(start)),
            TouchedBytes::Unwatched => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    Read,
    Write,
}
