//! Reading a part of a stored tensor.
//!
//! Input → output: a tensor's bytes, seen from some element on as a row-major shape, and a range per dim → the elements
//! inside all ranges, contiguous, in the wanted type. Invariants: only bytes inside the ranges are read; a run of
//! elements that lie together in the file is converted as one. It does not allocate.

use std::ops::Range;

use super::convert;
use crate::base::{DType, Dims, Shape};

/// Why a slice cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No tensor has the name.
    #[error("{tensor}: no such tensor in {checkpoint}")]
    UnknownTensor {
        /// The name.
        tensor: String,
        /// The folder or file that was opened.
        checkpoint: String,
    },
    /// The view is larger than what the tensor has from the offset on.
    #[error(
        "{tensor}: a view of shape {view} from element {offset} on: \
         expected at most {elems} elements in all, the tensor's"
    )]
    ViewOutOfTensor {
        /// The name.
        tensor: String,
        /// First element of the view.
        offset: usize,
        /// Shape of the view.
        view: Shape,
        /// Elements of the tensor.
        elems: usize,
    },
    /// The ranges do not fit the view.
    #[error("{tensor}: ranges {ranges:?} of a view of shape {view}: expected one range inside each dim")]
    RangesOutOfView {
        /// The name.
        tensor: String,
        /// Shape of the view.
        view: Shape,
        /// The ranges.
        ranges: Vec<Range<usize>>,
    },
    /// The stored type cannot become the wanted one.
    #[error("{tensor}: expected a tensor that can be read as {to}, found {from}")]
    DType {
        /// The name.
        tensor: String,
        /// Stored type.
        from: DType,
        /// Wanted type.
        to: DType,
    },
    /// A stored number is too large for the wanted type.
    #[error("{tensor}: the number {value} does not fit {to}; choose a type with a larger range, such as bf16")]
    Overflow {
        /// The name.
        tensor: String,
        /// The number.
        value: f32,
        /// Wanted type.
        to: DType,
    },
    /// The buffer is of another size than the slice.
    #[error("{tensor}: expected a buffer of {expected} bytes for the slice, found {found}")]
    BufferSize {
        /// The name.
        tensor: String,
        /// Bytes of the slice.
        expected: usize,
        /// Bytes of the buffer.
        found: usize,
    },
}

/// A stored tensor and what is wanted of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) tensor: &'a str,
    pub(super) dtype: DType,
    /// All bytes of the tensor.
    pub(super) stored: &'a [u8],
    /// First element of the view.
    pub(super) offset: usize,
    pub(super) view: &'a Shape,
    pub(super) ranges: &'a [Range<usize>],
    pub(super) to: DType,
}

impl Request<'_> {
    /// The bytes of the tensor from the first of the slice's elements to the last. Only for a slice that was checked.
    pub(super) fn span(&self) -> Range<usize> {
        let strides = self.view.strides();
        let at = |end: fn(&Range<usize>) -> usize| {
            self.ranges.iter().zip(&strides).map(|(range, stride)| end(range) * stride).sum::<usize>()
        };
        let size = self.dtype.size_bytes();
        if self.ranges.iter().any(|range| range.is_empty()) {
            return 0..0;
        }
        (self.offset + at(|range| range.start)) * size..(self.offset + at(|range| range.end - 1) + 1) * size
    }

    /// The slice's elements, if they lie together as they are wanted.
    ///
    /// # Errors
    /// Not a slice of this tensor.
    pub(super) fn as_it_lies(&self) -> Result<Option<Range<usize>>, Error> {
        self.check(self.ranges.iter().map(ExactSizeIterator::len).product::<usize>() * self.to.size_bytes())?;
        let mut runs = Runs::new(self.view, self.ranges);
        let is_one = runs.next().is_some() && runs.next().is_none();
        Ok((is_one && self.dtype == self.to).then(|| self.span()))
    }

    /// Reads the slice into `out`.
    pub(super) fn read(&self, out: &mut [u8]) -> Result<(), Error> {
        self.check(out.len())?;
        let runs = Runs::new(self.view, self.ranges);
        let (from_bytes, to_bytes) = (self.dtype.size_bytes(), self.to.size_bytes());
        // No run, or none with elements.
        if out.is_empty() {
            return Ok(());
        }
        let (run_bytes, stored_bytes) = (runs.length * to_bytes, runs.length * from_bytes);
        for (start, out) in runs.zip(out.chunks_mut(run_bytes)) {
            let first = (self.offset + start) * from_bytes;
            convert::convert(self.dtype, self.to, &self.stored[first..first + stored_bytes], out).map_err(
                |overflow| Error::Overflow { tensor: self.tensor.to_owned(), value: overflow.value, to: self.to },
            )?;
        }
        Ok(())
    }

    fn check(&self, out_bytes: usize) -> Result<(), Error> {
        let tensor = || self.tensor.to_owned();
        if !convert::is_convertible(self.dtype, self.to) {
            return Err(Error::DType { tensor: tensor(), from: self.dtype, to: self.to });
        }
        let elems = self.stored.len() / self.dtype.size_bytes();
        let view_elems = self.view.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        if view_elems.and_then(|view| view.checked_add(self.offset)).is_none_or(|end| end > elems) {
            return Err(Error::ViewOutOfTensor {
                tensor: tensor(),
                offset: self.offset,
                view: self.view.clone(),
                elems,
            });
        }
        let inside = |(range, &size): (&Range<usize>, &usize)| range.start <= range.end && range.end <= size;
        if self.ranges.len() != self.view.rank() || !self.ranges.iter().zip(self.view.iter()).all(inside) {
            return Err(Error::RangesOutOfView {
                tensor: tensor(),
                view: self.view.clone(),
                ranges: self.ranges.to_vec(),
            });
        }
        // Every range is inside its dim, so this product is at most that of the view.
        let expected = self.ranges.iter().map(ExactSizeIterator::len).product::<usize>() * self.to.size_bytes();
        if expected != out_bytes {
            return Err(Error::BufferSize { tensor: tensor(), expected, found: out_bytes });
        }
        Ok(())
    }
}

/// The first elements, in order, of the runs that a slice consists of.
#[derive(Clone, Debug)]
pub(super) struct Runs<'a> {
    /// Elements of each run.
    length: usize,
    /// The dims outside a run, which are counted through.
    outer: &'a [Range<usize>],
    strides: Dims,
    /// Where inside the run's own dims a run begins.
    base: usize,
    /// Indices of the next run, `None` after the last.
    next: Option<Vec<usize>>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(view: &Shape, ranges: &'a [Range<usize>]) -> Self {
        let strides = view.strides();
        // Inner dims that are taken whole belong to the run, and so does the first one outside of them.
        let whole = |dim: usize| ranges[dim].len() == view[dim];
        let inner = (0..view.rank()).rev().take_while(|&dim| whole(dim)).count();
        let outer = view.rank().saturating_sub(inner + 1);
        let length = ranges[outer..].iter().map(ExactSizeIterator::len).product();
        let base = ranges[outer..].iter().zip(&strides[outer..]).map(|(range, stride)| range.start * stride).sum();
        let next =
            ranges.iter().all(|range| !range.is_empty()).then(|| ranges[..outer].iter().map(|r| r.start).collect());
        Self { length, outer: &ranges[..outer], strides, base, next }
    }
}

impl Runs<'_> {
    /// Elements of each run.
    pub(super) const fn length(&self) -> usize {
        self.length
    }
}

impl Iterator for Runs<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let indices = self.next.as_mut()?;
        let start = self.base + indices.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum::<usize>();
        for dim in (0..indices.len()).rev() {
            indices[dim] += 1;
            if indices[dim] < self.outer[dim].end {
                return Some(start);
            }
            indices[dim] = self.outer[dim].start;
        }
        // Every index went round.
        self.next = None;
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::{Just, Strategy, prop};
    use proptest::{prop_assert_eq, proptest};

    use super::{Error, Request, Runs};
    use crate::base::{DType, Shape};

    fn numbers(count: usize) -> Vec<u8> {
        (0..count).flat_map(|index| (index as f32).to_le_bytes()).collect()
    }

    fn request<'a>(stored: &'a [u8], offset: usize, view: &'a Shape, ranges: &'a [Range<usize>]) -> Request<'a> {
        Request { tensor: "w", dtype: DType::F32, stored, offset, view, ranges, to: DType::F32 }
    }

    fn read(request: &Request<'_>, elems: usize) -> Result<Vec<f32>, Error> {
        let mut out = vec![0xff; elems * 4];
        request.read(&mut out)?;
        assert!(request.span().len() >= elems * 4 && request.span().end <= request.stored.len());
        Ok(out.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    #[test]
    fn a_span_reaches_from_the_first_element_to_the_last() {
        let view = Shape::from([4, 6]);
        let stored = numbers(25);
        let span = |ranges: &[Range<usize>]| request(&stored, 1, &view, ranges).span();
        assert_eq!(span(&[0..4, 0..6]), 4..100);
        assert_eq!(span(&[1..3, 2..4]), 4 * (1 + 8)..4 * (1 + 15 + 1));
        assert_eq!(span(&[1..1, 0..6]), 0..0);
    }

    #[test]
    fn rows_are_one_run_and_columns_many() {
        let view = Shape::from([4, 6]);
        let runs = |ranges: &[Range<usize>]| {
            let runs = Runs::new(&view, ranges);
            (runs.length, runs.collect::<Vec<_>>())
        };
        assert_eq!(runs(&[1..3, 0..6]), (12, vec![6]));
        assert_eq!(runs(&[1..3, 2..4]), (2, vec![8, 14]));
        assert_eq!(runs(&[0..4, 0..6]), (24, vec![0]));
        assert_eq!(runs(&[2..2, 0..6]).1, Vec::<usize>::new());
        let scalar = Shape::default();
        assert_eq!(Runs::new(&scalar, &[]).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_fused_weight_is_cut_in_each_block() {
        // [3, heads, dim, hidden] seen in a stored [3 * heads * dim, hidden], from the second block on.
        let (heads, dim, hidden) = (4, 2, 5);
        let stored = numbers(3 * heads * dim * hidden);
        let view = Shape::from([heads, dim, hidden]);
        let slice = read(&request(&stored, heads * dim * hidden, &view, &[1..2, 0..2, 0..5]), 10).unwrap();
        let first = (heads * dim * hidden + dim * hidden) as f32;
        assert_eq!(slice, (0..10).map(|index| first + index as f32).collect::<Vec<_>>());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let stored = numbers(12);
        let view = Shape::from([3, 4]);
        let error = |request: &Request<'_>, bytes: usize| request.read(&mut vec![0; bytes]).unwrap_err().to_string();
        assert_eq!(
            error(&request(&stored, 1, &view, &[0..3, 0..4]), 48),
            "w: a view of shape [3,4] from element 1 on: expected at most 12 elements in all, the tensor's"
        );
        assert_eq!(
            error(&request(&stored, 0, &view, &[0..3, 2..5]), 36),
            "w: ranges [0..3, 2..5] of a view of shape [3,4]: expected one range inside each dim"
        );
        assert_eq!(
            error(&request(&stored, 0, &view, std::slice::from_ref(&(0..3))), 12),
            "w: ranges [0..3] of a view of shape [3,4]: expected one range inside each dim"
        );
        assert_eq!(
            error(&request(&stored, 0, &view, &[0..3, 1..2]), 8),
            "w: expected a buffer of 12 bytes for the slice, found 8"
        );
        let integers = Request { to: DType::I64, ..request(&stored, 0, &view, &[0..3, 1..2]) };
        assert_eq!(error(&integers, 24), "w: expected a tensor that can be read as i64, found f32");
        let huge = Shape::from([usize::MAX, 2]);
        assert!(matches!(
            request(&stored, 0, &huge, &[0..1, 0..1]).read(&mut [0; 4]),
            Err(Error::ViewOutOfTensor { .. })
        ));
        let large = 1e6f32.to_le_bytes();
        let (one, first) = (Shape::from([1]), 0..1);
        let narrow = Request { to: DType::F16, ..request(&large, 0, &one, std::slice::from_ref(&first)) };
        assert_eq!(
            error(&narrow, 2),
            "w: the number 1000000 does not fit f16; choose a type with a larger range, such as bf16"
        );
    }

    fn sizes_and_ranges() -> impl Strategy<Value = (usize, Vec<usize>, Vec<Range<usize>>)> {
        prop::collection::vec(1..5usize, 0..5).prop_flat_map(|sizes| {
            let ranges: Vec<_> =
                sizes.iter().map(|&size| (0..=size, 0..=size).prop_map(|(a, b)| a.min(b)..a.max(b)).boxed()).collect();
            (0..4usize, Just(sizes), ranges)
        })
    }

    proptest! {
        #[test]
        fn a_slice_is_the_elements_inside_all_ranges((offset, sizes, ranges) in sizes_and_ranges()) {
            let view = Shape::new(sizes);
            let strides = view.strides();
            let inside = |element: &usize| {
                (0..view.rank()).all(|dim| ranges[dim].contains(&(element / strides[dim] % view[dim])))
            };
            let elements = (0..view.elems()).filter(inside);
            let expected: Vec<f32> = elements.map(|element| (offset + element) as f32).collect();
            let stored = numbers(offset + view.elems());
            prop_assert_eq!(read(&request(&stored, offset, &view, &ranges), expected.len()).unwrap(), expected);
        }
    }
}
