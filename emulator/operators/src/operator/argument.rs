//! Arguments of a first-phase call as host values, and checked tensors.

use std::fmt;

use super::ViewIndex;
use crate::dtype::AclType;
use crate::fractal::Fractal;
use crate::view::{extent, is_contiguous};

/// Access direction of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRole {
    /// The operator reads the tensor.
    Input,
    /// The operator writes the tensor.
    Output,
    /// Read and written; counts as an input for address updates.
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

/// Host description of an `aclTensor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDesc {
    /// Element type, an `aclDataType` code.
    pub dtype: i32,
    /// Storage format, an `aclFormat` code.
    pub format: i32,
    /// Extents of the view, outermost first.
    pub dims: Vec<i64>,
    /// Strides of the view in elements.
    pub strides: Vec<i64>,
    /// Offset of the view in elements.
    pub offset: i64,
    /// Extents of the underlying storage.
    pub storage: Vec<i64>,
    /// Device address of the storage.
    pub address: usize,
    /// Number of the library's object, used to report data-dependent shapes.
    pub handle: usize,
}

/// Value and type of an `aclScalar`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A floating point value of the given type.
    Float(f64, AclType),
    /// An integer or boolean of the given type.
    Int(i64, AclType),
}

impl Scalar {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Float(value, _) => value,
            Self::Int(value, _) => value as f64,
        }
    }

    pub(crate) fn as_i64(self) -> i64 {
        match self {
            Self::Float(value, _) => value as i64,
            Self::Int(value, _) => value,
        }
    }

    pub(crate) const fn dtype(self) -> AclType {
        match self {
            Self::Float(_, dtype) | Self::Int(_, dtype) => dtype,
        }
    }

    /// Every nonzero value is true.
    pub(crate) fn stored_as(self, dtype: AclType) -> Self {
        if dtype == AclType::Bool { Self::Int(i64::from(self.as_f64() != 0.0), dtype) } else { self }
    }

    pub(crate) fn lane<L: crate::lane::Lane>(self) -> L {
        match self {
            Self::Float(value, _) => L::from_f64(value),
            Self::Int(value, _) => L::from_i64(value),
        }
    }
}

/// One argument of a first-phase call, by its C type; NULL is `None`.
#[derive(Clone, Debug)]
pub enum CallArgument {
    /// Pointer to an `aclTensor`, or NULL.
    Tensor(Option<TensorDesc>),
    /// Pointer to an `aclTensorList`, or NULL.
    Tensors(Option<Vec<TensorDesc>>),
    /// Pointer to an `aclScalar`, or NULL.
    Scalar(Option<Scalar>),
    /// Pointer to an `aclIntArray`, or NULL.
    Ints(Option<Vec<i64>>),
    /// Pointer to an `aclScalarList`, or NULL.
    Scalars(Option<Vec<Scalar>>),
    /// Pointer to an `aclBoolArray`, or NULL.
    Flags(Option<Vec<bool>>),
    /// Integer of any C type.
    Int(i64),
    /// Floating point number, `double` or `float`.
    Float(f64),
    /// Boolean passed by value.
    Flag(bool),
    /// Text as `char*`, or NULL.
    Text(Option<String>),
    /// Element type as an `aclDataType` code.
    DataType(i32),
}

/// A tensor that passed all checks of the operator row.
#[derive(Clone, Debug)]
pub struct CheckedTensor {
    /// Index within the views of the plan.
    pub slot: ViewIndex,
    /// Type of the elements.
    pub dtype: AclType,
    /// Elements are ordered as in ND unless `fractal` is given.
    pub(crate) format: i32,
    /// Block layout; strides then describe the unblocked elements.
    pub fractal: Option<Fractal>,
    /// Extents of the tensor, outermost first.
    pub dims: Vec<usize>,
    /// Strides of the tensor, in elements.
    pub strides: Vec<isize>,
    /// Offset of the tensor, in elements.
    pub offset: isize,
    /// Device address of the storage.
    pub address: usize,
    /// Number of the library's object.
    pub handle: usize,
    /// Access direction of the operator.
    pub role: TensorRole,
}

impl CheckedTensor {
    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether elements are row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(&self.dims, &self.strides)
    }

    /// Returns whether the tensor is contiguous with swapped last dims.
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

    /// Returns the bytes from the address to the last element's end.
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
