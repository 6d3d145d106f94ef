//! Strided views of device memory: shape, strides and offset in elements over a [`MemorySpan`].
//!
//! Invariant: all elements are inside the span. [`StridedView::new`] checks this, and derived views
//! keep it.

use smallvec::SmallVec;

use super::dtype::AclType;
use super::raw::{MemorySpan, Pod, Rows};

/// Values without allocation up to eight dims.
type PerDim<T> = SmallVec<[T; 8]>;

/// A tensor over device memory.
#[derive(Debug)]
pub struct StridedView {
    span: MemorySpan,
    dtype: AclType,
    dims: PerDim<usize>,
    strides: PerDim<isize>,
    offset: isize,
}

/// Strides of a row-major tensor.
pub fn contiguous_strides(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i].max(1) as isize;
    }
    strides
}

/// Dims of extent 1 may have any stride; empty tensors are contiguous.
pub(crate) fn is_contiguous(dims: &[usize], strides: &[isize]) -> bool {
    if dims.contains(&0) {
        return true;
    }
    let mut expected = 1isize;
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        if dim != 1 {
            if stride != expected {
                return false;
            }
            expected *= dim as isize;
        }
    }
    true
}

/// Lowest and highest position; `None` without elements or on overflow.
pub(crate) fn extent(dims: &[usize], strides: &[isize], offset: isize) -> Option<(isize, isize)> {
    let (mut low, mut high) = (offset, offset);
    for (&dim, &stride) in dims.iter().zip(strides) {
        let reach = isize::try_from(dim.checked_sub(1)?).ok()?.checked_mul(stride)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    Some((low, high))
}

/// Copies as a whole, faster than element by element.
impl Clone for StridedView {
    fn clone(&self) -> Self {
        let (dims, strides) = self.layout();
        self.reviewed(dims, strides, self.offset)
    }
}

impl StridedView {
    /// Creates a view of `span`; strides and offset count elements.
    ///
    /// # Errors
    ///
    /// An element is outside the span.
    pub fn new(
        span: MemorySpan,
        dtype: AclType,
        dims: &[usize],
        strides: &[isize],
        offset: isize,
    ) -> Result<Self, String> {
        if dims.len() != strides.len() {
            return Err(format!("{} dims with {} strides", dims.len(), strides.len()));
        }
        if dims.iter().all(|&dim| dim > 0) {
            let capacity = (span.bytes() / dtype.size()) as isize;
            let (low, high) = extent(dims, strides, offset).ok_or("the extent of the tensor overflows")?;
            if low < 0 || high >= capacity {
                return Err(format!(
                    "elements {low}..={high} of a tensor with dims {dims:?}, strides {strides:?} and offset {offset} lie \
                     outside a memory range of {capacity} elements of {dtype}"
                ));
            }
        }
        Ok(Self { span, dtype, dims: PerDim::from_slice(dims), strides: PerDim::from_slice(strides), offset })
    }

    /// Returns the element type.
    pub const fn dtype(&self) -> AclType {
        self.dtype
    }

    /// Returns the extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the strides in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    fn start_byte(&self) -> usize {
        self.offset as usize * self.dtype.size()
    }

    fn layout(&self) -> (PerDim<usize>, PerDim<isize>) {
        (PerDim::from_slice(&self.dims), PerDim::from_slice(&self.strides))
    }

    fn reviewed(&self, dims: PerDim<usize>, strides: PerDim<isize>, offset: isize) -> Self {
        Self { span: self.span, dtype: self.dtype, dims, strides, offset }
    }

    /// Aligned at the last dim; extent 1 repeats.
    pub(crate) fn broadcast_to(&self, dims: &[usize]) -> Self {
        let missing = dims.len().checked_sub(self.rank()).expect("a broadcast never lowers the rank");
        let mut strides = PerDim::from_elem(0isize, dims.len());
        for (i, (&dim, &stride)) in self.dims.iter().zip(&self.strides).enumerate() {
            let target = dims[missing + i];
            assert!(dim == target || dim == 1, "{:?} does not broadcast to {dims:?}", self.dims);
            strides[missing + i] = if dim == target { stride } else { 0 };
        }
        self.reviewed(PerDim::from_slice(dims), strides, self.offset)
    }

    pub(crate) fn permute(&self, order: &[usize]) -> Self {
        assert_eq!(order.len(), self.rank(), "a permutation names every dim");
        let dims = order.iter().map(|&i| self.dims[i]).collect();
        let strides = order.iter().map(|&i| self.strides[i]).collect();
        self.reviewed(dims, strides, self.offset)
    }

    /// Swaps the last two dims.
    pub(crate) fn exchanged(&self) -> Self {
        let (mut dims, mut strides) = self.layout();
        let last = dims.len() - 1;
        dims.swap(last - 1, last);
        strides.swap(last - 1, last);
        self.reviewed(dims, strides, self.offset)
    }

    pub(crate) fn with_last(&self, dim: usize) -> Self {
        let mut order: PerDim<usize> = (0..self.rank()).filter(|&i| i != dim).collect();
        order.push(dim);
        self.permute(&order)
    }

    /// Selects `count` positions of `dim` from `start` on, `step` apart.
    pub(crate) fn slice(&self, dim: usize, start: usize, count: usize, step: usize) -> Self {
        assert!(
            count == 0 || start + (count - 1) * step < self.dims[dim],
            "slice {start} + {count} x {step} of extent {}",
            self.dims[dim]
        );
        let (mut dims, mut strides) = self.layout();
        let offset = if count == 0 { self.offset } else { self.offset + start as isize * strides[dim] };
        dims[dim] = count;
        strides[dim] *= step as isize;
        self.reviewed(dims, strides, offset)
    }

    pub(crate) fn at(&self, dim: usize, index: usize) -> Self {
        let mut view = self.slice(dim, index, 1, 1);
        view.dims.remove(dim);
        view.strides.remove(dim);
        view
    }

    /// The new dim of extent 1 is before `dim`.
    pub(crate) fn unsqueeze(&self, dim: usize) -> Self {
        let (mut dims, mut strides) = self.layout();
        dims.insert(dim, 1);
        strides.insert(dim, 0);
        self.reviewed(dims, strides, self.offset)
    }

    /// Real and imaginary parts in a new last dim of two.
    pub(crate) fn parts(&self) -> Self {
        assert_eq!(self.dtype, AclType::C64, "parts of numbers that have none");
        let (mut dims, mut strides) = self.layout();
        strides.iter_mut().for_each(|stride| *stride *= 2);
        dims.push(2);
        strides.push(1);
        Self { span: self.span, dtype: AclType::F32, dims, strides, offset: 2 * self.offset }
    }

    pub(crate) fn split(&self, dim: usize, outer: usize, inner: usize) -> Self {
        assert_eq!(self.dims[dim], outer * inner, "a split keeps the number of elements");
        let (mut dims, mut strides) = self.layout();
        dims[dim] = inner;
        dims.insert(dim, outer);
        strides.insert(dim, strides[dim] * inner as isize);
        self.reviewed(dims, strides, self.offset)
    }

    /// Merges dims with even steps into as few as possible.
    pub(crate) fn collapsed(&self) -> Self {
        let mut dims: PerDim<usize> = PerDim::new();
        let mut strides: PerDim<isize> = PerDim::new();
        for (&dim, &stride) in self.dims.iter().zip(&self.strides) {
            if dim == 1 {
                continue;
            }
            if let (Some(last_dim), Some(last_stride)) = (dims.last_mut(), strides.last_mut())
                && *last_stride == stride * dim as isize
            {
                *last_dim *= dim;
                *last_stride = stride;
            } else {
                dims.push(dim);
                strides.push(stride);
            }
        }
        if dims.is_empty() {
            dims.push(1);
            strides.push(1);
        }
        self.reviewed(dims, strides, self.offset)
    }

    /// Returns `count` rows of a matrix from `first` on, for in-place reads.
    pub(crate) fn rows(&self, first: usize, count: usize) -> Rows<'_> {
        let (&[extent, len], &[step, inner]) = (&self.dims[..], &self.strides[..]) else {
            panic!("rows of a view of dims {:?}", self.dims);
        };
        assert!(inner == 1 || len == 1, "rows of {len} elements that lie {inner} apart");
        assert!(first <= extent && count <= extent - first, "rows {first} + {count} of {extent}");
        let size = self.dtype.size();
        let start = (self.offset + first as isize * step) as usize * size;
        Rows::in_span(&self.span, start, count, len * size, step * size as isize)
    }

    /// Calls `body(byte, step, position, count)` for each evenly spaced part; `position` counts
    /// from `start`.
    fn runs(&self, start: usize, len: usize, mut body: impl FnMut(usize, isize, usize, usize)) {
        if len == 0 {
            return;
        }
        let size = self.dtype.size() as isize;
        let Some((&inner, &inner_stride)) = self.dims.last().zip(self.strides.last()) else {
            body(self.start_byte(), size, 0, 1);
            return;
        };
        let outer = self.rank() - 1;
        let mut column = start % inner;
        let mut coordinates = [0usize; 16];
        assert!(outer <= coordinates.len(), "tensors have at most 16 dims");
        let mut row = start / inner;
        let mut base = self.offset;
        for i in (0..outer).rev() {
            coordinates[i] = row % self.dims[i];
            row /= self.dims[i];
            base += coordinates[i] as isize * self.strides[i];
        }
        let mut done = 0;
        while done < len {
            let count = (inner - column).min(len - done);
            let first = base + column as isize * inner_stride;
            body((first * size) as usize, inner_stride * size, done, count);
            done += count;
            column = 0;
            for i in (0..outer).rev() {
                coordinates[i] += 1;
                base += self.strides[i];
                if coordinates[i] < self.dims[i] {
                    break;
                }
                base -= self.dims[i] as isize * self.strides[i];
                coordinates[i] = 0;
            }
        }
    }

    /// `T` has the element size.
    pub(crate) fn read<T: Pod>(&self, start: usize, out: &mut [T]) {
        assert_eq!(size_of::<T>(), self.dtype.size(), "reading {} as another size", self.dtype);
        if let (&[_, inner], &[step, 1]) = (&self.dims[..], &self.strides[..])
            && inner > 0
            && start.is_multiple_of(inner)
            && out.len().is_multiple_of(inner)
        {
            let size = self.dtype.size();
            let first = self.offset + (start / inner) as isize * step;
            self.span.read_rows(first as usize * size, step * size as isize, inner, out);
            return;
        }
        let len = out.len();
        self.runs(start, len, |byte, step, position, count| {
            self.span.read_run(byte, step, &mut out[position..position + count]);
        });
    }

    /// `T` has the element size.
    pub(crate) fn write<T: Pod>(&self, start: usize, values: &[T]) {
        assert_eq!(size_of::<T>(), self.dtype.size(), "writing {} as another size", self.dtype);
        self.runs(start, values.len(), |byte, step, position, count| {
            self.span.write_run(byte, step, &values[position..position + count]);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw::tests::span_of;
    use super::*;

    fn iota(n: usize) -> Vec<i32> {
        (0..n as i32).collect()
    }

    fn all(view: &StridedView) -> Vec<i32> {
        let mut out = vec![0i32; view.len()];
        view.read(0, &mut out);
        out
    }

    #[test]
    fn reads_any_range_of_a_permuted_view() {
        let mut memory = iota(24);
        let view = StridedView::new(span_of(&mut memory), AclType::I32, &[2, 3, 4], &[12, 4, 1], 0)
            .unwrap()
            .permute(&[2, 0, 1]);
        let whole = all(&view);
        assert_eq!(&whole[..6], &[0, 4, 8, 12, 16, 20]);
        for start in 0..24 {
            for len in 0..=24 - start {
                let mut out = vec![-1; len];
                view.read(start, &mut out);
                assert_eq!(out, whole[start..start + len]);
            }
        }
        assert_eq!(all(&view.collapsed()), whole);
    }

    #[test]
    fn broadcast_slice_split_and_at() {
        let mut memory = iota(6);
        let view = StridedView::new(span_of(&mut memory), AclType::I32, &[2, 3], &[3, 1], 0).unwrap();
        assert_eq!(all(&view.at(0, 1).broadcast_to(&[2, 3])), [3, 4, 5, 3, 4, 5]);
        assert_eq!(all(&view.slice(1, 0, 2, 2)), [0, 2, 3, 5]);
        assert_eq!(all(&view.split(1, 3, 1).with_last(0)), [0, 3, 1, 4, 2, 5]);
        assert_eq!(all(&view.unsqueeze(1).broadcast_to(&[2, 2, 3])), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    }

    #[test]
    fn writes_follow_negative_strides_and_offsets() {
        let mut memory = [0i32; 5];
        let view = StridedView::new(span_of(&mut memory), AclType::I32, &[3], &[-2], 4).unwrap();
        view.write(0, &[1i32, 2, 3]);
        assert_eq!(memory, [3, 0, 2, 0, 1]);
    }

    #[test]
    fn elements_outside_the_memory_are_refused() {
        let mut memory = iota(6);
        let error = StridedView::new(span_of(&mut memory), AclType::I32, &[2, 3], &[4, 1], 0).unwrap_err();
        assert!(error.contains("elements 0..=6") && error.contains("6 elements of INT32"), "{error}");
        assert!(
            StridedView::new(span_of(&mut memory), AclType::I32, &[2, 0], &[400, 1], 9).is_ok(),
            "no elements, no bytes"
        );
        assert!(StridedView::new(span_of(&mut memory), AclType::I32, &[2], &[-1], 0).is_err());
    }

    #[test]
    fn contiguity_ignores_dims_of_one_and_empty_tensors() {
        assert!(is_contiguous(&[2, 1, 3], &[3, 77, 1]));
        assert!(!is_contiguous(&[2, 3], &[1, 2]));
        assert!(is_contiguous(&[0, 3], &[9, 9]));
        assert_eq!(contiguous_strides(&[2, 3, 4]), [12, 4, 1]);
    }

    #[test]
    fn scalars_have_one_element() {
        let mut memory = [7i32];
        let view = StridedView::new(span_of(&mut memory), AclType::I32, &[], &[], 0).unwrap();
        assert_eq!(all(&view), [7]);
        assert_eq!(all(&view.broadcast_to(&[2, 2])), [7; 4]);
    }
}
