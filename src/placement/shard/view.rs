//! Host tensors of any element type. [`TensorView`] borrows and may be strided; [`Tensor`] owns and
//! is row-major.
//!
//! Invariants, checked in the constructor: every index of a view lies within its slice, and the
//! number of elements fits `usize`. Views are read-only.

use std::fmt;
use std::ops::Range;

use super::runs::Runs;
use crate::base::Shape;

/// A mismatch between a slice and a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The slice has another number of elements than the shape.
    #[error("tensor of shape {shape}: expected {expected} elements, found {found}")]
    Length {
        /// The requested shape of the tensor.
        shape: Shape,
        /// Number of elements of the shape.
        expected: usize,
        /// Number of elements in the slice.
        found: usize,
    },
    /// The number of elements overflows `usize`.
    #[error("tensor of shape {shape}: it has more elements than fit in memory")]
    TooLarge {
        /// The requested shape of the tensor.
        shape: Shape,
    },
    /// The number of strides is not the number of dims.
    #[error("tensor of shape {shape}: expected {} strides, one per dim, found {strides}", .shape.rank())]
    Strides {
        /// The requested shape of the tensor.
        shape: Shape,
        /// Number of strides that were given.
        strides: usize,
    },
    /// An element lies outside the slice.
    #[error(
        "tensor of shape {shape}, strides {strides:?}, offset {offset}: its last element lies outside the data: \
         expected at least {}, found {len} elements",
        match .last { Some(last) => format!("{} elements", last.saturating_add(1)), None => "more than memory holds".to_owned() }
    )]
    OutOfBounds {
        /// The requested shape of the tensor.
        shape: Shape,
        /// Stride of each dim, in elements.
        strides: Vec<usize>,
        /// Position of index 0, in elements.
        offset: usize,
        /// Position of the last index, or `None` if it overflows.
        last: Option<usize>,
        /// Number of elements in the slice.
        len: usize,
    },
    /// The dim does not have the requested range.
    #[error("tensor of shape {shape}: dim {dim} has no range {}..{}", .range.start, .range.end)]
    Range {
        /// The shape of the tensor.
        shape: Shape,
        /// The dim to narrow.
        dim: usize,
        /// The requested range of indices.
        range: Range<usize>,
    },
}

/// A borrowed tensor. Element `[i, j, …]` is `data[offset + i * strides[0] + j * strides[1] + …]`.
/// A stride of 0 repeats elements.
///
/// ```
/// use ascend_tp::TensorView;
///
/// let data = [1, 2, 3, 4, 5, 6];
/// let matrix = TensorView::contiguous(&data, [2, 3])?;
/// assert_eq!(matrix.to_vec(), data);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TensorView<'a, T> {
    data: &'a [T],
    shape: Shape,
    strides: Vec<usize>,
    offset: usize,
}

impl<'a, T> TensorView<'a, T> {
    /// Creates a row-major view of all of `data`.
    ///
    /// # Errors
    /// Returns [`ViewError::Length`] if the number of elements differs.
    pub fn contiguous(data: &'a [T], shape: impl Into<Shape>) -> Result<Self, ViewError> {
        let shape = shape.into();
        check_length(&shape, data.len())?;
        let strides = row_major_strides(&shape);
        Ok(Self { data, shape, strides, offset: 0 })
    }

    /// Creates a view with strides and an offset, in elements.
    ///
    /// # Errors
    /// Returns [`ViewError::Strides`] if the number of strides is not the rank,
    /// [`ViewError::OutOfBounds`] if an element lies outside `data`, and [`ViewError::TooLarge`] if
    /// the number of elements overflows. An empty view is never out of bounds.
    #[doc(hidden)]
    pub fn strided(
        data: &'a [T],
        shape: impl Into<Shape>,
        strides: impl Into<Vec<usize>>,
        offset: usize,
    ) -> Result<Self, ViewError> {
        let (shape, strides) = (shape.into(), strides.into());
        if strides.len() != shape.rank() {
            return Err(ViewError::Strides { shape, strides: strides.len() });
        }
        let Some(elems) = checked_elems(&shape) else { return Err(ViewError::TooLarge { shape }) };
        if elems > 0 {
            let last = shape
                .iter()
                .zip(&strides)
                .try_fold(offset, |last, (size, stride)| last.checked_add((size - 1).checked_mul(*stride)?));
            if last.is_none_or(|last| last >= data.len()) {
                return Err(ViewError::OutOfBounds { shape, strides, offset, last, len: data.len() });
            }
        }
        Ok(Self { data, shape, strides, offset })
    }

    /// Returns the size of each dim.
    #[must_use]
    #[doc(hidden)]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the stride of each dim, in elements.
    #[must_use]
    #[doc(hidden)]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Returns the position of index 0, in elements.
    #[must_use]
    #[doc(hidden)]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of elements.
    #[must_use]
    #[doc(hidden)]
    pub fn elems(&self) -> usize {
        // Zero first, because the product of the other sizes may overflow.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Returns the element at `index`, or `None` if the index has another rank or is out of bounds.
    #[must_use]
    #[doc(hidden)]
    pub fn get(&self, index: &[usize]) -> Option<&'a T> {
        if index.len() != self.shape.rank()
            || index.iter().zip(self.shape.iter()).any(|(index, size)| index >= size)
        {
            return None;
        }
        let position: usize = index.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum();
        self.data.get(self.offset + position)
    }

    /// Returns whether the elements are row-major and contiguous. True for empty tensors.
    #[must_use]
    #[doc(hidden)]
    pub fn is_contiguous(&self) -> bool {
        self.run_dim() == 0
    }

    /// Returns the row-major elements as one slice, if they are contiguous.
    #[must_use]
    #[doc(hidden)]
    pub fn as_slice(&self) -> Option<&'a [T]> {
        if self.shape.contains(&0) {
            return Some(&[]);
        }
        self.is_contiguous().then(|| &self.data[self.offset..][..self.elems()])
    }

    /// Returns the row-major elements as the longest possible contiguous slices of equal length.
    #[doc(hidden)]
    pub fn runs(&self) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
        self.row_runs(0, 0)
    }

    /// Restricts dim `dim` to the indices `range`.
    ///
    /// # Errors
    /// Returns [`ViewError::Range`] if the tensor has no such dim or range.
    #[doc(hidden)]
    pub fn narrow(&self, dim: usize, range: Range<usize>) -> Result<Self, ViewError> {
        if self.shape.get(dim).is_none_or(|size| range.start > range.end || range.end > *size) {
            return Err(ViewError::Range { shape: self.shape.clone(), dim, range });
        }
        Ok(self.cut(dim, range))
    }

    pub(super) fn cut(&self, dim: usize, range: Range<usize>) -> Self {
        let shape = self.shape.with(dim, range.len());
        // The offset of an empty view does not matter, and its strides may overflow.
        let skipped = if shape.contains(&0) { 0 } else { range.start * self.strides[dim] };
        Self { data: self.data, shape, strides: self.strides.clone(), offset: self.offset + skipped }
    }

    /// Returns the runs of one row: the elements of dims `dim..` at row-major index `row` of the
    /// dims before.
    fn row_runs(&self, dim: usize, row: usize) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
        let run_dim = self.run_dim().max(dim);
        let runs = Runs::new(&self.shape, &self.strides, self.offset, run_dim);
        let (data, length) = (self.data, runs.length());
        let of_row: usize = self.shape.get(dim..run_dim).unwrap_or_default().iter().product();
        runs.from(row * of_row).take(of_row).map(move |start| &data[start..][..length])
    }

    fn run_dim(&self) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        let mut step = 1;
        for dim in (0..self.shape.rank()).rev() {
            // The stride of a dim of size 1 has no effect.
            if self.shape[dim] != 1 && self.strides[dim] != step {
                return dim + 1;
            }
            step *= self.shape[dim];
        }
        0
    }
}

impl<T: Clone> TensorView<'_, T> {
    /// Copies the elements in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut elements = Vec::with_capacity(self.elems());
        self.append_row(0, 0, &mut elements);
        elements
    }

    /// Appends the elements of dims `dim..` at row-major index `row` of the dims before.
    pub(super) fn append_row(&self, dim: usize, row: usize, out: &mut Vec<T>) {
        for run in self.row_runs(dim, row) {
            out.extend_from_slice(run);
        }
    }
}

impl<T> Clone for TensorView<'_, T> {
    fn clone(&self) -> Self {
        Self {
            data: self.data,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            offset: self.offset,
        }
    }
}

impl<T> fmt::Debug for TensorView<'_, T> {
    /// Omits the elements, because a weight has millions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorView")
            .field("shape", &self.shape)
            .field("strides", &self.strides)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// An owned tensor in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor<T> {
    data: Vec<T>,
    shape: Shape,
}

impl<T> Tensor<T> {
    /// Creates a tensor of row-major elements.
    ///
    /// # Errors
    /// Returns [`ViewError::Length`] if the number of elements differs.
    #[doc(hidden)]
    pub fn new(data: Vec<T>, shape: impl Into<Shape>) -> Result<Self, ViewError> {
        let shape = shape.into();
        check_length(&shape, data.len())?;
        Ok(Self { data, shape })
    }

    pub(super) const fn from_parts(data: Vec<T>, shape: Shape) -> Self {
        Self { data, shape }
    }

    /// Returns the size of each dim.
    #[must_use]
    #[doc(hidden)]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the elements in row-major order.
    #[must_use]
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// Returns the elements in row-major order, without a copy.
    #[must_use]
    #[doc(hidden)]
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    /// Returns a view of the whole tensor.
    #[must_use]
    #[doc(hidden)]
    pub fn view(&self) -> TensorView<'_, T> {
        TensorView {
            data: &self.data,
            shape: self.shape.clone(),
            strides: row_major_strides(&self.shape),
            offset: 0,
        }
    }
}

/// Returns the number of elements, or `None` on overflow.
pub(super) fn checked_elems(shape: &Shape) -> Option<usize> {
    // Zero first, because the product of the other sizes may overflow.
    if shape.contains(&0) {
        Some(0)
    } else {
        shape.iter().try_fold(1usize, |elems, size| elems.checked_mul(*size))
    }
}

fn check_length(shape: &Shape, found: usize) -> Result<(), ViewError> {
    match checked_elems(shape) {
        Some(expected) if expected == found => Ok(()),
        Some(expected) => Err(ViewError::Length { shape: shape.clone(), expected, found }),
        None => Err(ViewError::TooLarge { shape: shape.clone() }),
    }
}

/// Returns row-major strides. An empty tensor has zeros, because its strides could overflow.
fn row_major_strides(shape: &Shape) -> Vec<usize> {
    if shape.contains(&0) { vec![0; shape.rank()] } else { shape.strides().into_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(data: &mut Vec<i32>) -> TensorView<'_, i32> {
        *data = (0..12).collect();
        TensorView::contiguous(data, [3, 4]).expect("twelve elements")
    }

    #[test]
    fn index_and_order_follow_the_strides() {
        let mut data = Vec::new();
        let view = matrix(&mut data);
        assert_eq!(view.get(&[2, 1]), Some(&9));
        let transposed = TensorView::strided(&data, [4, 3], [1, 4], 0).expect("within the data");
        assert_eq!(transposed.get(&[1, 2]), Some(&9));
        assert_eq!(transposed.to_vec(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        assert_eq!(transposed.runs().count(), 12);
        assert!(!transposed.is_contiguous());
        assert_eq!(transposed.as_slice(), None);
    }

    #[test]
    fn get_refuses_another_rank_and_outside() {
        let mut data = Vec::new();
        let view = matrix(&mut data);
        for index in [&[3, 0][..], &[0, 4], &[0], &[0, 0, 0], &[]] {
            assert_eq!(view.get(index), None);
        }
    }

    #[test]
    fn runs_are_as_long_as_memory_allows() {
        let mut data = Vec::new();
        let view = matrix(&mut data);
        assert_eq!(view.runs().collect::<Vec<_>>(), [&(0..12).collect::<Vec<_>>()[..]]);
        let rows = view.narrow(0, 1..3).expect("two rows");
        assert_eq!(rows.as_slice(), Some(&[4, 5, 6, 7, 8, 9, 10, 11][..]));
        let columns = view.narrow(1, 1..3).expect("two columns");
        assert_eq!(columns.runs().collect::<Vec<_>>(), [&[1, 2][..], &[5, 6], &[9, 10]]);
        assert_eq!(columns.offset(), 1);
    }

    #[test]
    fn a_stride_of_zero_repeats() {
        let view = TensorView::strided(&[7, 8], [3, 2], [0, 1], 0).expect("within the data");
        assert_eq!(view.to_vec(), [7, 8, 7, 8, 7, 8]);
    }

    #[test]
    fn strides_of_dims_of_size_one_do_not_matter() {
        let view = TensorView::strided(&[1, 2, 3], [1, 3, 1], [99, 1, 77], 0).expect("within the data");
        assert!(view.is_contiguous());
        assert_eq!(view.as_slice(), Some(&[1, 2, 3][..]));
    }

    #[test]
    fn scalars_and_empty_tensors_are_tensors() {
        let scalar = TensorView::contiguous(&[5], Shape::default()).expect("one element");
        assert_eq!((scalar.get(&[]), scalar.to_vec()), (Some(&5), vec![5]));
        let empty = TensorView::<i32>::contiguous(&[], [usize::MAX, 0, usize::MAX]).expect("no element");
        assert_eq!((empty.elems(), empty.runs().count()), (0, 0));
        assert!(empty.is_contiguous());
        let far = TensorView::<i32>::strided(&[], [2, 0], [usize::MAX, usize::MAX], 9).expect("no element");
        let narrowed = far.narrow(0, 2..2).expect("an empty range");
        assert_eq!((narrowed.as_slice(), narrowed.to_vec()), (Some(&[][..]), vec![]));
    }

    #[test]
    fn memory_that_does_not_fit_is_refused() {
        let message =
            |result: Result<TensorView<'_, i32>, ViewError>| result.expect_err("a refusal").to_string();
        assert_eq!(
            message(TensorView::contiguous(&[1, 2, 3], [2, 2])),
            "tensor of shape [2,2]: expected 4 elements, found 3"
        );
        assert_eq!(
            message(TensorView::strided(&[1, 2, 3], [2, 2], [2], 0)),
            "tensor of shape [2,2]: expected 2 strides, one per dim, found 1"
        );
        assert_eq!(
            message(TensorView::strided(&[1, 2, 3], [2, 2], [2, 1], 0)),
            "tensor of shape [2,2], strides [2, 1], offset 0: its last element lies outside the data: expected at least \
             4 elements, found 3 elements"
        );
        assert!(message(TensorView::strided(&[1], [3], [usize::MAX], 0)).contains("more than memory holds"));
        assert!(
            message(TensorView::strided(&[1], [usize::MAX, 2], [0, 0], 0)).contains("more elements than fit")
        );
        assert!(message(TensorView::contiguous(&[1], [usize::MAX, 2])).contains("more elements than fit"));
        assert!(Tensor::new(vec![1], [2]).is_err());
    }

    #[test]
    fn narrow_refuses_what_the_dim_has_not() {
        let mut data = Vec::new();
        let view = matrix(&mut data);
        #[expect(clippy::reversed_empty_ranges, reason = "the refusal under test")]
        for (dim, range) in [(2, 0..1), (1, 3..5), (0, 2..1)] {
            let error = view.narrow(dim, range.clone()).expect_err("a refusal");
            assert_eq!(
                error.to_string(),
                format!("tensor of shape [3,4]: dim {dim} has no range {}..{}", range.start, range.end)
            );
        }
    }
}
