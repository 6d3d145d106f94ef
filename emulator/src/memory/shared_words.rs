//! Atomic words in memory that several processes share.
//!
//! Invariants: a word is inside the span, at a multiple of its size. Bytes are copied; a word that
//! is written after them and read before them orders the copies.
#![expect(unsafe_code, reason = "words of shared memory have no owner in this process")]

use std::sync::atomic::{AtomicU32, AtomicU64};

use super::raw::RawSpan;

#[derive(Debug, Clone)]
pub(crate) struct SharedWords {
    span: RawSpan,
}

impl SharedWords {
    /// Returns `None` if the length is not `len_bytes`, or the start is not a multiple of 8 bytes.
    pub(crate) fn of(span: RawSpan, len_bytes: usize) -> Option<Self> {
        let is_aligned = span.bytes().addr().is_multiple_of(align_of::<AtomicU64>());
        (is_aligned && span.len_bytes() == len_bytes).then_some(Self { span })
    }

    /// # Panics
    ///
    /// The word exceeds the span, or the offset is not a multiple of its size.
    pub(crate) fn at_32(&self, offset_bytes: usize) -> &AtomicU32 {
        let place = self.word(offset_bytes, size_of::<AtomicU32>());
        // SAFETY: `word` checked bounds and alignment. The memory stays mapped, and all access is
        // as a word.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    /// # Panics
    ///
    /// The word exceeds the span, or the offset is not a multiple of its size.
    pub(crate) fn at_64(&self, offset_bytes: usize) -> &AtomicU64 {
        let place = self.word(offset_bytes, size_of::<AtomicU64>());
        // SAFETY: `word` checked bounds and alignment. The memory stays mapped, and all access is
        // as a word.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    pub(crate) fn bytes(&self) -> &RawSpan {
        &self.span
    }

    fn word(&self, offset_bytes: usize, size: usize) -> *mut u8 {
        assert!(offset_bytes.is_multiple_of(size), "a word of {size} bytes at {offset_bytes}");
        self.span.at(offset_bytes, size)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::memory::location::Location;
    use crate::memory::raw::Allocation;

    fn words(bytes: usize) -> SharedWords {
        let memory = Arc::new(Allocation::new(bytes, Location::Host, None).expect("memory"));
        assert!(SharedWords::of(memory.span(1, bytes - 1), bytes - 1).is_none());
        SharedWords::of(memory.span(0, bytes), bytes).expect("aligned")
    }

    #[test]
    fn words_are_where_the_bytes_are() {
        let words = words(64);
        words.at_64(8).store(0x0102_0304_0506_0708, Ordering::Relaxed);
        assert_eq!(words.at_32(12).load(Ordering::Relaxed), 0x0102_0304);
        let mut bytes = [0_u8; 2];
        words.bytes().read(8, &mut bytes);
        assert_eq!(bytes, [8, 7]);
    }

    #[test]
    #[should_panic(expected = "leaves a span of 16 bytes")]
    fn a_word_beyond_the_span_is_refused() {
        let _ = words(16).at_64(16);
    }
}
