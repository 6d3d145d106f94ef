//! Typed, strided access to device memory: the only module that touches raw memory.
//!
//! - No Rust reference to device memory ever exists: elements are copied. Operators that race on
//!   the same bytes corrupt only each other's numbers.
//! - Every access is checked against the [`MemorySpan`] first.
#![expect(
    unsafe_code,
    reason = "raw access to device memory; bounds are checked here, validity is promised by MemorySpan::from_raw"
)]

use std::marker::PhantomData;

use half::{bf16, f16};

/// A part of device memory.
#[derive(Clone, Copy, Debug)]
pub struct MemorySpan {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: an address and a length; every access is a bounds-checked copy of plain data.
unsafe impl Send for MemorySpan {}
// SAFETY: as for Send; shared use creates no references.
unsafe impl Sync for MemorySpan {}

/// Plain data: any bit pattern is a value.
///
/// # Safety
///
/// Implementors are valid for every bit pattern and have no padding bytes.
pub unsafe trait Pod: Copy + Default + Send + Sync + 'static {}

macro_rules! pod {
    ($($t:ty),*) => { $(
        // SAFETY: a number, or a transparent wrapper of u16: every bit pattern is valid, no
        // padding.
        unsafe impl Pod for $t {}
    )* };
}
pod!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64);

impl MemorySpan {
    /// Describes `bytes` bytes of memory at `base`.
    ///
    /// # Safety
    ///
    /// The memory stays allocated, readable and writable while this span or a copy exists.
    pub const unsafe fn from_raw(base: *mut u8, bytes: usize) -> Self {
        Self { base, bytes }
    }

    pub(crate) const fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns the address of `count` elements, `step` bytes apart, which must be inside the span.
    fn run(self, start: usize, step: isize, count: usize, size: usize) -> *mut u8 {
        assert!(count > 0, "empty ranges never reach memory");
        let travel = step.checked_mul(count as isize - 1);
        let last = travel.and_then(|travel| start.checked_add_signed(travel));
        let inside = |at: usize| at.checked_add(size).is_some_and(|end| end <= self.bytes);
        assert!(
            inside(start) && last.is_some_and(inside),
            "run of {count} elements of {size} bytes from byte {start} step {step} leaves a span of {} bytes",
            self.bytes
        );
        // SAFETY: inside the span (asserted above), which is one allocation.
        unsafe { self.base.add(start) }
    }

    /// Copies elements from byte `start` on, `step` bytes apart.
    ///
    /// # Panics
    ///
    /// Panics if an element is outside the span.
    pub fn read_run<T: Pod>(self, start: usize, step: isize, out: &mut [T]) {
        if out.is_empty() {
            return;
        }
        let size = size_of::<T>();
        let source = self.run(start, step, out.len(), size);
        if step == size as isize {
            let bytes = size_of_val(out);
            // SAFETY: the source was bounds-checked, `out` is exclusive memory of the same size,
            // and T is plain data.
            unsafe { std::ptr::copy_nonoverlapping(source, out.as_mut_ptr().cast::<u8>(), bytes) };
        } else if step == 0 {
            // SAFETY: bounds-checked; T takes any bit pattern.
            let value = unsafe { source.cast::<T>().read_unaligned() };
            out.fill(value);
        } else {
            for (i, slot) in out.iter_mut().enumerate() {
                let element = source.wrapping_offset(step * i as isize);
                // SAFETY: between the first and last element, which were bounds-checked; T takes
                // any bit pattern.
                *slot = unsafe { element.cast::<T>().read_unaligned() };
            }
        }
    }

    /// Copies rows of `len` adjacent elements from byte `start` on, `step` bytes apart.
    pub(crate) fn read_rows<T: Pod>(self, start: usize, step: isize, len: usize, out: &mut [T]) {
        /// Rows are short, and a constant size is copied without a call.
        const PIECE: usize = 32;
        if out.is_empty() {
            return;
        }
        assert!(out.len().is_multiple_of(len), "{} elements in rows of {len}", out.len());
        let (rows, bytes) = (out.len() / len, len * size_of::<T>());
        let source = self.run(start, step, rows, bytes);
        for (i, row) in out.chunks_exact_mut(len).enumerate() {
            let source = source.wrapping_offset(step * i as isize).cast_const();
            let target = row.as_mut_ptr().cast::<u8>();
            let whole = bytes / PIECE * PIECE;
            for at in (0..whole).step_by(PIECE) {
                let (from, to) = (source.wrapping_add(at), target.wrapping_add(at));
                // SAFETY: between the first and last row, which were bounds-checked; `row` is
                // exclusive memory of the same size, and T is plain data.
                unsafe { std::ptr::copy_nonoverlapping(from, to, PIECE) };
            }
            let (from, to) = (source.wrapping_add(whole), target.wrapping_add(whole));
            // SAFETY: as above, for the remaining bytes.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes - whole) };
        }
    }

    /// Copies `values` to the elements from byte `start` on, `step` bytes apart.
    pub(crate) fn write_run<T: Pod>(self, start: usize, step: isize, values: &[T]) {
        if values.is_empty() {
            return;
        }
        let size = size_of::<T>();
        let target = self.run(start, step, values.len(), size);
        if step == size as isize {
            let bytes = size_of_val(values);
            // SAFETY: the target was bounds-checked; `values` is memory of the same size outside
            // the device; T is plain data.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), target, bytes) };
        } else {
            for (i, value) in values.iter().enumerate() {
                let element = target.wrapping_offset(step * i as isize);
                // SAFETY: between the first and last element, which were bounds-checked.
                unsafe { element.cast::<T>().write_unaligned(*value) };
            }
        }
    }
}

/// Matrix rows that are read in place, usually in device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    base: *const u8,
    count: usize,
    bytes: usize,
    stride: isize,
    source: PhantomData<&'a MemorySpan>,
}

// SAFETY: addresses that are only read.
unsafe impl Send for Rows<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Rows<'_> {}

impl<'a> Rows<'a> {
    /// Describes `count` rows of `bytes` bytes from byte `start` on, `stride` bytes apart.
    pub(crate) fn in_span(
        span: &'a MemorySpan,
        start: usize,
        count: usize,
        bytes: usize,
        stride: isize,
    ) -> Self {
        assert!(count > 0, "rows to read");
        Self {
            base: span.run(start, stride, count, bytes).cast_const(),
            count,
            bytes,
            stride,
            source: PhantomData,
        }
    }

    /// Describes `count` rows of `len` elements, `stride` elements apart.
    pub(crate) fn in_slice<T: Pod>(values: &'a [T], stride: usize, count: usize, len: usize) -> Self {
        assert!(
            count > 0 && values.len() >= (count - 1) * stride + len,
            "{count} rows of {len}, {stride} apart, in {} elements",
            values.len()
        );
        let size = size_of::<T>();
        Self {
            base: values.as_ptr().cast(),
            count,
            bytes: len * size,
            stride: (stride * size) as isize,
            source: PhantomData,
        }
    }

    /// Returns `count` rows from `first` on.
    pub(crate) fn part(&self, first: usize, count: usize) -> Self {
        assert!(count > 0 && first + count <= self.count, "rows {first} + {count} of {}", self.count);
        Self { base: self.row(first), count, ..*self }
    }

    /// Returns `bytes` bytes of each row, from byte `start` on.
    pub(crate) fn columns(&self, start: usize, bytes: usize) -> Self {
        assert!(start + bytes <= self.bytes, "bytes {start} + {bytes} of {}", self.bytes);
        Self { base: self.base.wrapping_add(start), bytes, ..*self }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn stride(&self) -> isize {
        self.stride
    }

    /// Returns an address that is readable while the span's memory exists.
    pub(crate) fn row(&self, row: usize) -> *const u8 {
        assert!(row < self.count, "row {row} of {}", self.count);
        self.base.wrapping_offset(row as isize * self.stride)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The caller keeps the buffer alive.
    pub(crate) fn span_of<T: Pod>(buffer: &mut [T]) -> MemorySpan {
        let bytes = size_of_val(buffer);
        // SAFETY: the caller keeps the buffer alive and untouched (tests only).
        unsafe { MemorySpan::from_raw(buffer.as_mut_ptr().cast::<u8>(), bytes) }
    }

    #[test]
    fn runs_forward_backward_and_repeated() {
        let mut memory = [10i32, 11, 12, 13, 14, 15];
        let span = span_of(&mut memory);
        let mut out = [0i32; 3];
        span.read_run(4, 4, &mut out);
        assert_eq!(out, [11, 12, 13]);
        span.read_run(20, -8, &mut out);
        assert_eq!(out, [15, 13, 11]);
        span.read_run(8, 0, &mut out);
        assert_eq!(out, [12, 12, 12]);
        span.write_run(0, 8, &[1i32, 2, 3]);
        assert_eq!(memory, [1, 11, 2, 13, 3, 15]);
    }

    #[test]
    fn rows_of_any_length_forward_and_backward() {
        let mut memory: Vec<u16> = (0..200).collect();
        let span = span_of(&mut memory);
        for len in [1usize, 15, 16, 17, 40] {
            let mut out = vec![0u16; 3 * len];
            span.read_rows(4, 100, len, &mut out);
            let forward: Vec<u16> = (0..3 * len).map(|i| (2 + i / len * 50 + i % len) as u16).collect();
            assert_eq!(out, forward);
            span.read_rows(204, -100, len, &mut out);
            let backward: Vec<u16> = (0..3 * len).map(|i| (102 - i / len * 50 + i % len) as u16).collect();
            assert_eq!(out, backward);
        }
    }

    #[test]
    #[should_panic(expected = "leaves a span of 32 bytes")]
    fn a_row_past_the_end_is_refused() {
        let mut memory = [0u16; 16];
        span_of(&mut memory).read_rows(0, 20, 7, &mut [0u16; 14]);
    }

    #[test]
    #[should_panic(expected = "leaves a span of 16 bytes")]
    fn a_run_past_the_end_is_refused() {
        let mut memory = [0i32; 4];
        span_of(&mut memory).read_run(8, 4, &mut [0i32; 3]);
    }

    #[test]
    #[should_panic(expected = "leaves a span of 16 bytes")]
    fn a_run_before_the_start_is_refused() {
        let mut memory = [0i32; 4];
        span_of(&mut memory).write_run(4, -4, &[1i32, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "leaves a span of 16 bytes")]
    fn rows_past_the_end_are_refused() {
        let mut memory = [0i32; 4];
        let _ = Rows::in_span(&span_of(&mut memory), 4, 2, 8, 8);
    }

    #[test]
    fn rows_are_where_their_stride_says() {
        let mut memory = [0i32; 4];
        let span = span_of(&mut memory);
        let rows = Rows::in_span(&span, 8, 2, 8, -8);
        assert_eq!((rows.count(), rows.bytes()), (2, 8));
        assert_eq!(rows.row(1).addr() + 8, rows.row(0).addr());
        let part = rows.part(1, 1).columns(4, 4);
        assert_eq!((part.count(), part.bytes()), (1, 4));
        assert_eq!(part.row(0).addr(), rows.row(1).addr() + 4);
        let rows = Rows::in_slice(&[0_u16; 7], 4, 2, 3);
        assert_eq!((rows.row(1).addr() - rows.row(0).addr(), rows.bytes()), (8, 6));
    }

    #[test]
    #[should_panic(expected = "2 rows of 4, 4 apart, in 7 elements")]
    fn rows_past_the_end_of_a_slice_are_refused() {
        let _ = Rows::in_slice(&[0_u16; 7], 4, 2, 4);
    }
}
