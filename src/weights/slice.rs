//! Reads a slice of a stored tensor.
//!
//! Input: a stored tensor, viewed from an offset as a row-major shape, and one range per dim.
//! Output: the elements inside all ranges, contiguous, in the requested type.
//!
//! Invariants: only bytes inside the ranges are read. Elements that are contiguous in the file are
//! read and converted together.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::adapter::Delta;
use super::convert;
use crate::base::{DType, Shape};
use crate::exec;
use crate::placement::shard::runs::Runs;

/// The reason why a slice cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint has no tensor of this name.
    #[error("{tensor}: no such tensor in {checkpoint}")]
    UnknownTensor {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// The opened folder or file.
        checkpoint: String,
    },
    /// The tensors of a param cannot be derived from its source.
    #[error("{tensor}: not the tensors of a param: {reason}")]
    Source {
        /// Pattern of the tensor names.
        tensor: String,
        /// Description of the problem.
        reason: String,
    },
    /// The view extends beyond the end of the tensor.
    #[error(
        "{tensor}: a view of shape {view} from element {offset} on: \
         expected at most {elems} elements in all, the tensor's"
    )]
    ViewOutOfTensor {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// First element of the view.
        offset: usize,
        /// Shape of the view.
        view: Shape,
        /// Number of elements of the tensor.
        elems: usize,
    },
    /// The ranges do not fit the view.
    #[error("{tensor}: ranges {ranges:?} of a view of shape {view}: expected one range inside each dim")]
    RangesOutOfView {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// Shape of the view.
        view: Shape,
        /// Requested range of each dim.
        ranges: Vec<Range<usize>>,
    },
    /// The stored type cannot be converted to the requested type.
    #[error("{tensor}: expected a tensor that can be read as {to}, found {from}")]
    DType {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// Element type in the file.
        from: DType,
        /// The requested element type.
        to: DType,
    },
    /// A stored number is too large for the requested type.
    #[error(
        "{tensor}: the number {value} does not fit {to}; choose a type with a larger range, such as bf16"
    )]
    Overflow {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// The number that was found.
        value: f32,
        /// The requested element type.
        to: DType,
    },
    /// A stored number is NaN or infinite. Programs cannot use such weights.
    #[error(
        "{tensor}: element {index} is {value}: expected finite numbers; \
         the file is damaged, or the run that wrote it had diverged"
    )]
    NotFinite {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// Row-major index of the element in the stored tensor.
        index: usize,
        /// The number that was found.
        value: f32,
    },
    /// The buffer and the slice have different sizes.
    #[error("{tensor}: expected a buffer of {expected} bytes for the slice, found {found}")]
    BufferSize {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// Size of the slice in bytes.
        expected: usize,
        /// Size of the buffer in bytes.
        found: usize,
    },
    /// The file cannot be read at this place.
    #[error("{tensor}: cannot be read: {reason}")]
    Read {
        /// Tensor name in the checkpoint.
        tensor: String,
        /// Error message of the operating system.
        reason: String,
    },
}

impl From<Error> for exec::Error {
    fn from(error: Error) -> Self {
        Self::fill(error)
    }
}

/// Number of bytes per read. A buffer of this size stays in a core's cache.
pub(super) const PIECE_BYTES: usize = 512 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: DType,
    pub(super) file: &'a File,
    pub(super) first_byte: usize,
    pub(super) elems: usize,
    /// Low-rank update that is added to the tensor.
    pub(super) delta: Option<&'a Delta>,
}

impl Stored<'_> {
    /// Reads bytes of the tensor from byte `first` on. Weights are read only here.
    pub(super) fn read_bytes(&self, first: usize, out: &mut [u8]) -> Result<(), Error> {
        #[cfg(test)]
        READ_BYTES.set(READ_BYTES.get() + out.len());
        self.file
            .read_exact_at(out, (self.first_byte + first) as u64)
            .map_err(|error| Error::Read { tensor: self.name.to_owned(), reason: error.to_string() })
    }
}

#[cfg(test)]
thread_local! {
    /// Number of bytes that this thread has read.
    pub(super) static READ_BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A view of a stored tensor from an offset on, with another element type.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredView<'a> {
    stored: Stored<'a>,
    offset: usize,
    to: DType,
}

impl<'a> StoredView<'a> {
    /// Creates a view that has the elements of `shape`.
    pub(super) fn new(stored: Stored<'a>, offset: usize, shape: &Shape, to: DType) -> Result<Self, Error> {
        let tensor = || stored.name.to_owned();
        if !convert::is_convertible(stored.dtype, to) {
            return Err(Error::DType { tensor: tensor(), from: stored.dtype, to });
        }
        let elems = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        if elems.and_then(|elems| elems.checked_add(offset)).is_none_or(|end| end > stored.elems) {
            return Err(Error::ViewOutOfTensor {
                tensor: tensor(),
                offset,
                view: shape.clone(),
                elems: stored.elems,
            });
        }
        Ok(Self { stored, offset, to })
    }

    /// Creates a view of scales or offsets of quantised numbers; see
    /// [`Form::QuantParams`](crate::program::Form::QuantParams).
    pub(super) fn of_quant_params(stored: Stored<'a>, offset: usize, shape: &Shape) -> Result<Self, Error> {
        let view = Self::new(stored, offset, shape, stored.dtype)?;
        Ok(Self { to: DType::F32, ..view })
    }

    /// Returns the size of a stored element in bytes.
    pub(super) const fn stored_bytes(&self) -> usize {
        self.stored.dtype.size_bytes()
    }

    pub(super) fn read_slice(
        &self,
        shape: &Shape,
        ranges: &[Range<usize>],
        out: &mut [u8],
    ) -> Result<(), Error> {
        check_slice(self.stored.name, shape, ranges, self.to, out.len())?;
        let runs = Runs::of_part(shape, ranges);
        if out.is_empty() {
            return Ok(());
        }
        let length = runs.length();
        let mut raw = Vec::new();
        for (start, out) in runs.zip(out.chunks_mut(length * self.to.size_bytes())) {
            self.read(start..start + length, &mut raw, out)?;
        }
        Ok(())
    }

    /// Reads a contiguous range of the view. `raw` is a buffer for the stored elements.
    pub(super) fn read(
        &self,
        elements: Range<usize>,
        raw: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let size = self.stored.dtype.size_bytes();
        let byte = |element: usize| (self.offset + element) * size;
        if self.stored.dtype == self.to && self.stored.delta.is_none() {
            self.stored.read_bytes(byte(elements.start), out)?;
            return self.check_finite(elements.start, out);
        }
        let at_once = PIECE_BYTES / size;
        for (start, out) in
            elements.clone().step_by(at_once).zip(out.chunks_mut(at_once * self.to.size_bytes()))
        {
            let bytes = (elements.end - start).min(at_once) * size;
            let raw = at_least(raw, bytes);
            self.stored.read_bytes(byte(start), raw)?;
            self.check_finite(start, raw)?;
            let (from, to) = (self.stored.dtype, self.to);
            let converted = match self.stored.delta {
                None if !from.is_float() => convert::convert_changed(from, to, raw, out, |_, _| ()),
                None => convert::convert(from, to, raw, out),
                Some(delta) => {
                    let first = self.offset + start;
                    convert::convert_changed(from, to, raw, out, |index, numbers| {
                        delta.add(first + index, numbers);
                    })
                }
            };
            converted.map_err(|overflow| Error::Overflow {
                tensor: self.stored.name.to_owned(),
                value: overflow.value,
                to,
            })?;
        }
        Ok(())
    }

    /// Returns an error if a stored element is NaN or infinite. `first` is the index of the first
    /// element within the view.
    fn check_finite(&self, first: usize, bytes: &[u8]) -> Result<(), Error> {
        match convert::first_not_finite(self.stored.dtype, bytes) {
            None => Ok(()),
            Some((index, value)) => Err(Error::NotFinite {
                tensor: self.stored.name.to_owned(),
                index: self.offset + first + index,
                value,
            }),
        }
    }
}

/// Checks that the ranges are inside a shape, and that their elements have `bytes` bytes.
pub(super) fn check_slice(
    tensor: &str,
    shape: &Shape,
    ranges: &[Range<usize>],
    to: DType,
    bytes: usize,
) -> Result<(), Error> {
    let tensor = || tensor.to_owned();
    let inside = |(range, &size): (&Range<usize>, &usize)| range.start <= range.end && range.end <= size;
    if ranges.len() != shape.rank() || !ranges.iter().zip(shape.iter()).all(inside) {
        return Err(Error::RangesOutOfView {
            tensor: tensor(),
            view: shape.clone(),
            ranges: ranges.to_vec(),
        });
    }
    let expected = ranges.iter().map(ExactSizeIterator::len).product::<usize>() * to.size_bytes();
    if expected != bytes {
        return Err(Error::BufferSize { tensor: tensor(), expected, found: bytes });
    }
    Ok(())
}

/// Returns the first `bytes` bytes of a buffer and grows the buffer if necessary.
pub(super) fn at_least(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::ops::Range;

    use proptest::prelude::{Just, Strategy, prop};
    use proptest::{prop_assert_eq, proptest};

    use super::{Error, Stored, StoredView};
    use crate::base::{DType, Shape};

    fn numbers(count: usize) -> Vec<u8> {
        (0..count).flat_map(|index| (index as f32).to_le_bytes()).collect()
    }

    fn file(count: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&numbers(count)).unwrap();
        file
    }

    fn stored(file: &File) -> Stored<'_> {
        let elems = usize::try_from(file.metadata().unwrap().len()).unwrap() / 4;
        Stored { name: "w", dtype: DType::F32, file, first_byte: 0, elems, delta: None }
    }

    fn read(file: &File, offset: usize, view: &Shape, ranges: &[Range<usize>]) -> Result<Vec<f32>, Error> {
        let mut out = vec![0xff; ranges.iter().map(Range::len).product::<usize>() * 4];
        StoredView::new(stored(file), offset, view, DType::F32)?.read_slice(view, ranges, &mut out)?;
        Ok(out.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    #[test]
    fn a_fused_weight_is_cut_in_each_block() {
        // The view `[3, heads, dim, hidden]` of a stored `[3 * heads * dim, hidden]`, from the
        // second block on.
        let (heads, dim, hidden) = (4, 2, 5);
        let file = file(3 * heads * dim * hidden);
        let view = Shape::from([heads, dim, hidden]);
        let slice = read(&file, heads * dim * hidden, &view, &[1..2, 0..2, 0..5]).unwrap();
        let first = (heads * dim * hidden + dim * hidden) as f32;
        assert_eq!(slice, (0..10).map(|index| first + index as f32).collect::<Vec<_>>());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let file = file(12);
        let view = Shape::from([3, 4]);
        let error = |offset: usize, ranges: &[Range<usize>], bytes: usize| {
            let stored = StoredView::new(stored(&file), offset, &view, DType::F32);
            let read = stored.and_then(|stored| stored.read_slice(&view, ranges, &mut vec![0; bytes]));
            read.unwrap_err().to_string()
        };
        assert_eq!(
            error(1, &[0..3, 0..4], 48),
            "w: a view of shape [3,4] from element 1 on: expected at most 12 elements in all, the tensor's"
        );
        assert_eq!(
            error(0, &[0..3, 2..5], 36),
            "w: ranges [0..3, 2..5] of a view of shape [3,4]: expected one range inside each dim"
        );
        assert_eq!(
            error(0, std::slice::from_ref(&(0..3)), 12),
            "w: ranges [0..3] of a view of shape [3,4]: expected one range inside each dim"
        );
        assert_eq!(error(0, &[0..3, 1..2], 8), "w: expected a buffer of 12 bytes for the slice, found 8");
        let integers = StoredView::new(stored(&file), 0, &view, DType::I64).unwrap_err();
        assert_eq!(integers.to_string(), "w: expected a tensor that can be read as i64, found f32");
        let one = Shape::from([1]);
        let huge = Shape::from([usize::MAX, 2]);
        assert!(matches!(
            StoredView::new(stored(&file), 0, &huge, DType::F32),
            Err(Error::ViewOutOfTensor { .. })
        ));
        let beyond = StoredView::new(Stored { elems: 13, ..stored(&file) }, 12, &one, DType::F32).unwrap();
        let cut =
            beyond.read_slice(&one, std::slice::from_ref(&(0..1)), &mut [0; 4]).unwrap_err().to_string();
        assert!(cut.starts_with("w: cannot be read: "), "{cut}");
        let mut large = tempfile::tempfile().unwrap();
        large.write_all(&1e6f32.to_le_bytes()).unwrap();
        let narrow = StoredView::new(stored(&large), 0, &one, DType::F16).unwrap();
        assert_eq!(
            narrow.read_slice(&one, std::slice::from_ref(&(0..1)), &mut [0; 2]).unwrap_err().to_string(),
            "w: the number 1000000 does not fit f16; choose a type with a larger range, such as bf16"
        );
    }

    fn sizes_and_ranges() -> impl Strategy<Value = (usize, Vec<usize>, Vec<Range<usize>>)> {
        prop::collection::vec(1..5usize, 0..5).prop_flat_map(|sizes| {
            let ranges: Vec<_> = sizes
                .iter()
                .map(|&size| (0..=size, 0..=size).prop_map(|(a, b)| a.min(b)..a.max(b)).boxed())
                .collect();
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
            let expected: Vec<usize> = elements.collect();
            let expected: Vec<f32> = expected.into_iter().map(|element| (offset + element) as f32).collect();
            let file = file(offset + view.elems());
            prop_assert_eq!(read(&file, offset, &view, &ranges).unwrap(), expected);
        }
    }
}
