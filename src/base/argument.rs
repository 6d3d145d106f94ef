//! Arguments of library operators, in the order of the C function.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;

use super::DType;

/// A constant operand and its C type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A 32-bit float, for float tensors.
    Float(f64),
    /// A 64-bit integer, for integer tensors.
    Int(i64),
}

#[doc(hidden)]
impl Number {
    /// Returns the factor 1 in the type of a tensor.
    #[must_use]
    pub const fn one(dtype: DType) -> Self {
        if dtype.is_float() { Self::Float(1.0) } else { Self::Int(1) }
    }
}

impl fmt::Display for Number {
    /// A float always has a point, an exponent or `inf`, so that it differs from an integer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Int(x) => write!(f, "{x}"),
        }
    }
}

/// An argument of the C function that creates an operator. `T` is the tensor type.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument<T> {
    /// A tensor in the caller's representation.
    Tensor(T),
    /// A list of tensors.
    Tensors(Vec<T>),
    /// A constant operand of an operator.
    Scalar(Number),
    /// An array of integers.
    Ints(Vec<i64>),
    /// An optional tensor or array that is absent.
    Absent,
    /// An integer attribute of the operator.
    Int(i64),
    /// A float attribute of the operator.
    Float(f64),
    /// A boolean attribute of the operator.
    Bool(bool),
    /// An element type, as attribute.
    Type(DType),
    /// A string, such as a layout or the name of a communicator.
    Text(Cow<'static, CStr>),
}

impl<T> Argument<T> {
    /// Converts each tensor with `make`.
    ///
    /// # Errors
    /// Returns the first error of `make`.
    pub fn try_map<U, E>(self, mut make: impl FnMut(T) -> Result<U, E>) -> Result<Argument<U>, E> {
        Ok(match self {
            Self::Tensor(tensor) => Argument::Tensor(make(tensor)?),
            Self::Tensors(tensors) => {
                Argument::Tensors(tensors.into_iter().map(make).collect::<Result<_, E>>()?)
            }
            Self::Scalar(number) => Argument::Scalar(number),
            Self::Ints(numbers) => Argument::Ints(numbers),
            Self::Absent => Argument::Absent,
            Self::Int(number) => Argument::Int(number),
            Self::Float(number) => Argument::Float(number),
            Self::Bool(yes) => Argument::Bool(yes),
            Self::Type(dtype) => Argument::Type(dtype),
            Self::Text(text) => Argument::Text(text),
        })
    }
}

macro_rules! kinds {
    ($($type:ty => $kind:ident;)*) => { $(
        impl<T> From<$type> for Argument<T> {
            fn from(value: $type) -> Self {
                Self::$kind(value)
            }
        }
    )* };
}
kinds! {
    Number => Scalar;
    i64 => Int;
    f64 => Float;
    bool => Bool;
    DType => Type;
}

impl<T> From<&'static CStr> for Argument<T> {
    fn from(word: &'static CStr) -> Self {
        Self::Text(Cow::Borrowed(word))
    }
}

impl<T> From<CString> for Argument<T> {
    fn from(word: CString) -> Self {
        Self::Text(Cow::Owned(word))
    }
}

impl<T> From<usize> for Argument<T> {
    /// Converts a dim, size or count. No shape exceeds `i64::MAX`.
    fn from(number: usize) -> Self {
        Self::Int(number as i64)
    }
}
