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
