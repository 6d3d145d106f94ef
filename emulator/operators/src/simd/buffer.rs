//! Large zeroed f32 buffers, on huge pages where available.
//!
//! They are page-aligned, so every vector load is aligned.
#![expect(unsafe_code, reason = "mapped bytes are read as numbers")]

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    pages: MmapMut,
    len: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(len: usize) -> Self {
        let pages = MmapMut::map_anon((len * size_of::<f32>()).max(1)).expect("memory for a buffer");
        // Huge pages are a hint.
        #[cfg(target_os = "linux")]
        let _ = pages.advise(memmap2::Advice::HugePage);
        Self { pages, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the mapping holds `len` elements, page-aligned and zeroed; the slice borrows
        // `self`.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeros_that_can_be_written() {
        let mut buffer = AlignedBuffer::new(5000);
        assert!(buffer.len() == 5000 && buffer.iter().all(|value| *value == 0.0));
        buffer[4999] = 2.5;
        assert_eq!(buffer[4998..], [0.0, 2.5]);
        assert!(AlignedBuffer::new(0).is_empty());
    }
}
