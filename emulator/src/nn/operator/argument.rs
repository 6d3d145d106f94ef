//! Arguments of a first-phase call as host values, and the tensors among them once they are checked.
//!
//! Input and output: values only. Invariant: what is here knows neither rows nor names of parameters.

use std::fmt;

use super::ViewIndex;
use crate::nn::dtype::DType;
use crate::nn::fractal::Fractal;
use crate::nn::view::{extent, is_contiguous};

/// Direction of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Input,
    Output,
    /// Read and written; for address updates it counts as an input.
    InPlace,
}

impl fmt::Display for Role {
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
pub(crate) struct TensorDesc {
    /// A code of `aclDataType`.
    pub(crate) dtype: i32,
    /// A code of `aclFormat`.
    pub(crate) format: i32,
    /// Dims of the view.
    pub(crate) dims: Vec<i64>,
    /// View strides in elements.
    pub(crate) strides: Vec<i64>,
    /// View offset in elements.
    pub(crate) offset: i64,
    /// Dims of the storage the view lies in.
    pub(crate) storage: Vec<i64>,
    /// Device address of the storage.
    pub(crate) address: usize,
    /// Its number among the library's objects, by which the shape that a run decides comes back to it.
    pub(crate) handle: usize,
}

/// What an `aclScalar` holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    /// A floating point value of the given type.
    Float(f64, DType),
    /// An integer or truth value of the given type.
    Int(i64, DType),
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
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::Float(_, dtype) | Self::Int(_, dtype) => dtype,
        }
    }

    /// As an element of type `dtype` holds it; anything but 0 is true.
    pub(crate) fn stored_as(self, dtype: DType) -> Self {
        if dtype == DType::Bool { Self::Int(i64::from(self.as_f64() != 0.0), dtype) } else { self }
    }

    /// As a lane value.
    pub(crate) fn lane<L: crate::nn::lane::Lane>(self) -> L {
        match self {
            Self::Float(value, _) => L::from_f64(value),
            Self::Int(value, _) => L::from_i64(value),
        }
    }
}

/// One argument of a first-phase call, by its C type: pointers to `aclTensor`, `aclTensorList`, `aclScalar`, `aclIntArray`,
/// `aclScalarList` and `aclBoolArray`, none where they are NULL; then what is passed by value.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    Tensor(Option<TensorDesc>),
    Tensors(Option<Vec<TensorDesc>>),
    Scalar(Option<Scalar>),
    Ints(Option<Vec<i64>>),
    Scalars(Option<Vec<Scalar>>),
    Flags(Option<Vec<bool>>),
    /// Any integer type.
    Int(i64),
    /// `double` or `float`.
    Float(f64),
    Flag(bool),
    /// `char*`, none for NULL.
    Text(Option<String>),
    /// A code of `aclDataType`.
    DataType(i32),
}

/// A tensor that passed the checks of its row.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// Which of the views of the plan it is.
    pub(crate) slot: ViewIndex,
    pub(crate) dtype: DType,
    /// `aclFormat`, one of those whose elements lie as in ND unless `fractal` is given.
    pub(crate) format: i32,
    /// How its memory lies in blocks; strides then are those of its elements without them.
    pub(crate) fractal: Option<Fractal>,
    pub(crate) dims: Vec<usize>,
    /// Strides in elements.
    pub(crate) strides: Vec<isize>,
    /// Offset in elements.
    pub(crate) offset: isize,
    /// Device address of the storage.
    pub(crate) address: usize,
    /// Its number among the library's objects.
    pub(crate) handle: usize,
    pub(crate) role: Role,
}

impl Tensor {
    /// Number of dims.
    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether the elements lie row-major without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        is_contiguous(&self.dims, &self.strides)
    }

    /// Whether the elements lie row-major without gaps once the last two dims are swapped.
    pub(crate) fn is_transposed(&self) -> bool {
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
    pub(crate) fn reach_bytes(&self) -> usize {
        if let Some(fractal) = self.fractal {
            return fractal.bytes();
        }
        match extent(&self.dims, &self.strides, self.offset) {
            Some((_, high)) => (high as usize + 1) * self.dtype.size(),
            None => 0,
        }
    }
}
