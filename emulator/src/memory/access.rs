//! The bytes that queued work touches.
//!
//! Input: spans of memory, how they are touched and which bytes of them. Output: footprints, which strict mode compares.
//! Invariant: a footprint is one by the program's addresses. Does not: order accesses (see `strict::order`).

use std::sync::Arc;

use crate::memory::footprint::Footprint;
use crate::memory::raw::RawSpan;

/// Bytes a queued entry touches.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) span: RawSpan,
    pub(crate) mode: AccessMode,
    /// The parameter of the C function.
    pub(crate) what: &'static str,
    shape: TouchedBytes,
}

/// Which bytes of its span an access touches.
#[derive(Debug, Clone)]
enum TouchedBytes {
    All,
    /// These, counted from the first byte of the span.
    Part(Arc<Footprint>),
    /// So many pieces that strict mode does not watch them.
    Unwatched,
}

impl Access {
    /// `span` is read.
    pub(crate) fn read(what: &'static str, span: &RawSpan) -> Self {
        Self::new(what, span, AccessMode::Read)
    }

    /// `span` is written.
    pub(crate) fn write(what: &'static str, span: &RawSpan) -> Self {
        Self::new(what, span, AccessMode::Write)
    }

    /// All of `span` is touched.
    pub(crate) fn new(what: &'static str, span: &RawSpan, mode: AccessMode) -> Self {
        Self { span: span.clone(), mode, what, shape: TouchedBytes::All }
    }

    /// The same access to these bytes of its span only; None: in too many pieces to be watched.
    pub(crate) fn within(self, bytes: Option<Footprint>) -> Self {
        let shape = bytes.map_or(TouchedBytes::Unwatched, |bytes| TouchedBytes::Part(Arc::new(bytes)));
        Self { shape, ..self }
    }

    /// The bytes, by the program's addresses; None when they are not watched.
    pub(crate) fn footprint(&self) -> Option<Footprint> {
        let start = self.span.address();
        match &self.shape {
            TouchedBytes::All => Some(Footprint::line(start..start + self.span.len_bytes())),
            TouchedBytes::Part(bytes) => Some(bytes.shifted(start)),
            TouchedBytes::Unwatched => None,
        }
    }
}

/// How bytes are touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    Read,
    Write,
}
