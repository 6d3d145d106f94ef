//! The shape of a tensor, with element count and row-major strides.

use std::fmt;
use std::ops::Deref;

use smallvec::{SmallVec, smallvec};

/// A number per dim. Up to five dims are stored inline.
pub type Dims = SmallVec<[usize; 5]>;

/// Sizes of a tensor's dims, outermost first. A scalar has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(Dims);

impl Shape {
    /// Creates a shape from its sizes.
    #[must_use]
    #[doc(hidden)]
    pub fn new(sizes: impl Into<Vec<usize>>) -> Self {
        Self(sizes.into().into())
    }

    /// Returns the number of dims.
    #[must_use]
    #[doc(hidden)]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of elements, 1 for a scalar.
    #[must_use]
    #[doc(hidden)]
    pub fn elems(&self) -> usize {
        self.0.iter().product()
    }

    /// Returns the row-major strides, in elements.
    #[must_use]
    #[doc(hidden)]
    pub fn strides(&self) -> Dims {
        let mut strides: Dims = smallvec![1; self.0.len()];
        for dim in (1..self.0.len()).rev() {
            strides[dim - 1] = strides[dim] * self.0[dim];
        }
        strides
    }

    /// Returns the sizes as a slice.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    /// Returns the shape with size `size` at `dim`.
    #[must_use]
    #[doc(hidden)]
    pub fn with(&self, dim: usize, size: usize) -> Self {
        let mut sizes = self.0.clone();
        sizes[dim] = size;
        Self(sizes)
    }
}

/// Iterates over the positions of the elements of a strided view, in row-major order.
pub(crate) struct Positions {
    sizes: Dims,
    strides: Dims,
    index: Dims,
    position: usize,
    left: usize,
}

impl Positions {
    /// Starts at the first element, whose position is 0. There is a stride for each size.
    pub(crate) fn new(sizes: &[usize], strides: &[usize]) -> Self {
        assert_eq!(sizes.len(), strides.len(), "strides of {sizes:?}");
        Self {
            sizes: sizes.into(),
            strides: strides.into(),
            index: smallvec![0; sizes.len()],
            position: 0,
            left: sizes.iter().product(),
        }
    }
}

impl Iterator for Positions {
    type Item = usize;

    // Loops over millions of elements call this in builds for tests, where nothing is inlined.
    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let position = self.position;
        let (sizes, strides, index) = (&self.sizes[..], &self.strides[..], &mut self.index[..]);
        let mut dim = sizes.len();
        while dim > 0 {
            dim -= 1;
            index[dim] += 1;
            self.position += strides[dim];
            if index[dim] < sizes[dim] {
                break;
            }
            self.position -= strides[dim] * sizes[dim];
            index[dim] = 0;
        }
        Some(position)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        Self(SmallVec::from_slice(&sizes))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(sizes: Vec<usize>) -> Self {
        Self(sizes.into())
    }
}

impl From<Dims> for Shape {
    fn from(sizes: Dims) -> Self {
        Self(sizes)
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Self {
        Self(SmallVec::from_slice(sizes))
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Self {
        Self(sizes.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    /// Formats as `[2,3]`, a scalar as `[]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (dim, size) in self.0.iter().enumerate() {
            if dim > 0 {
                f.write_str(",")?;
            }
            write!(f, "{size}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_each_index() {
        let positions =
            |sizes: &[usize], strides: &[usize]| Positions::new(sizes, strides).collect::<Vec<_>>();
        assert_eq!(positions(&[], &[]), [0]);
        assert_eq!(positions(&[2, 0, 3], &[0, 3, 1]), [0_usize; 0]);
        assert_eq!(positions(&[2, 3], &[3, 1]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(positions(&[3, 2], &[1, 3]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(positions(&[2, 2, 2], &[10, 0, 1]), [0, 1, 0, 1, 10, 11, 10, 11]);
    }
}
