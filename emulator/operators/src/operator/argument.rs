//! Arguments of a first-phase call as host values, and the tensors among them once they are checked.
//!
//! Input and output: values only. Invariant: what is here knows neither rows nor names of parameters.

use std::fmt;

use super::ViewIndex;
use crate::dtype::AclType;
use crate::fractal::Fractal;
use crate::view::{extent, is_contiguous};

/// Direction of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRole {
    /// It is read.
    Input,
    /// It is written.
    Output,
    /// Read and written; for address updates it counts as an input.
    InPlace,
}

impl fmt::Display for TensorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::InPlace => "in-place",
        })
    }
}

/// An `aclTensor` as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDesc {
    /// A code of `aclDataType`.
    pub dtype: i32,
    /// A code of `aclFormat`.
    pub format: i32,
    /// Dims of the view.
    pub dims: Vec<i64>,
    /// Strides of the view in elements.
    pub strides: Vec<i64>,
    /// Offset of the view in elements.
    pub offset: i64,
    /// Dims of the storage the view lies in.
    pub storage: Vec<i64>,
    /// Device address of the storage.
    pub address: usize,
    /// Its number among the library's objects, by which the shape that a run decides comes back to it.
    pub handle: usize,
}

/// What an `aclScalar` holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A floating point value of the given type.
    Float(f64, AclType),
    /// An integer or truth value of the given type.
    Int(i64, AclType),
}

impl Scalar {
    /// As a floating point number.
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Float(value, _) => value,
            Self::Int(value, _) => value as f64,
        }
    }

    /// As an integer; a fraction is cut off.
    pub(crate) fn as_i64(self) -> i64 {
        match self {
            Self::Float(value, _) => value as i64,
            Self::Int(value, _) => value,
        }
    }

    /// Its element type.
    pub(crate) const fn dtype(self) -> AclType {
        match self {
            Self::Float(_, dtype) | Self::Int(_, dtype) => dtype,
        }
    }

    /// As an element of type `dtype` holds it; anything but 0 is true.
    pub(crate) fn stored_as(self, dtype: AclType) -> Self {
        if dtype == AclType::Bool { Self::Int(i64::from(self.as_f64() != 0.0), dtype) } else { self }
    }

    /// As a lane value.
    pub(crate) fn lane<L: crate::lane::Lane>(self) -> L {
        match self {
            Self::Float(value, _) => L::from_f64(value),
            Self::Int(value, _) => L::from_i64(value),
        }
    }
}

/// One argument of a first-phase call, by its C type: pointers, none where they are NULL, and what is passed by value.
#[derive(Clone, Debug)]
pub enum CallArgument {
    /// Pointer to `aclTensor`.
    Tensor(Option<TensorDesc>),
    /// Pointer to `aclTensorList`.
    Tensors(Option<Vec<TensorDesc>>),
    /// Pointer to `aclScalar`.
    Scalar(Option<Scalar>),
    /// Pointer to `aclIntArray`.
    Ints(Option<Vec<i64>>),
    /// Pointer to `aclScalarList`.
    Scalars(Option<Vec<Scalar>>),
    /// Pointer to `aclBoolArray`.
    Flags(Option<Vec<bool>>),
    /// Any integer type.
    Int(i64),
    /// `double` or `float`.
    Float(f64),
    /// A truth value.
    Flag(bool),
    /// `char*`, none for NULL.
    Text(Option<String>),
    /// A code of `aclDataType`.
    DataType(i32),
}

/// A tensor that passed the checks of its row.
#[derive(Clone, Debug)]
pub struct CheckedTensor {
    /// Which of the views of the plan it is.
    pub slot: ViewIndex,
    /// Type of its elements.
    pub dtype: AclType,
    /// `aclFormat`, one of those whose elements lie as in ND unless `fractal` is given.
    pub(crate) format: i32,
    /// How its memory lies in blocks; strides then are those of its elements without them.
    pub fractal: Option<Fractal>,
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<isize>,
    /// Offset in elements.
    pub offset: isize,
    /// Device address of the storage.
    pub address: usize,
    /// Its number among the library's objects.
    pub handle: usize,
    /// Whether the operator reads or writes it.
    pub role: TensorRole,
}

impl CheckedTensor {
    /// Number of dims.
    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(&self.dims, &self.strides)
    }

    /// Whether the elements lie row-major without gaps once the last two dims are swapped.
    pub fn is_transposed(&self) -> bool {
        let (mut dims, mut strides) = (self.dims.clone(), self.strides.clone());
        let rank = dims.len();
        if rank < 2 {
            return false;
        }
        dims.swap(rank - 2, rank - 1);
        strides.swap(rank - 2, rank - 1);
        is_contiguous(&dims, &strides)
    }

    /// Bytes from the address to the end of the last element; 0 without elements.
    pub fn reach_bytes(&self) -> usize {
        if let Some(fractal) = self.fractal {
            return fractal.bytes();
        }
        match extent(&self.dims, &self.strides, self.offset) {
            Some((_, high)) => (high as usize + 1) * self.dtype.size(),
            None => 0,
        }
    }
}
