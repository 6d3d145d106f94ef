//! What an operator of the library takes, in the order of its C function.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;

use super::DType;

/// A constant operand, with the type it is passed in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// For float tensors; passed as a 32-bit float.
    Float(f64),
    /// For integer tensors; passed as a 64-bit integer.
    Int(i64),
}

impl Number {
    /// The factor that changes nothing in tensors of that type.
    #[must_use]
    pub const fn one(dtype: DType) -> Self {
        if dtype.is_float() { Self::Float(1.0) } else { Self::Int(1) }
    }
}

impl fmt::Display for Number {
    /// A float always prints with a point, an exponent or as infinity, so that an integer is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Int(x) => write!(f, "{x}"),
        }
    }
}

/// An argument of a C function that plans an operator; `T` stands for its tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument<T> {
    /// One tensor, as the caller holds tensors.
    Tensor(T),
    /// Several tensors in one list.
    Tensors(Vec<T>),
    /// A constant operand.
    Scalar(Number),
    /// An array of integers.
    Ints(Vec<i64>),
    /// A tensor or an array that may be left out.
    Absent,
    /// An integer attribute.
    Int(i64),
    /// A float attribute.
    Float(f64),
    /// A yes or no.
    Bool(bool),
    /// An element type.
    Type(DType),
    /// A word, such as an order of dims or the name of a communicator.
    Text(Cow<'static, CStr>),
}

impl<T> Argument<T> {
    /// The same argument with each tensor made into another.
    ///
    /// # Errors
    /// The first failure of `make`.
    pub fn try_map<U, E>(self, mut make: impl FnMut(T) -> Result<U, E>) -> Result<Argument<U>, E> {
        Ok(match self {
            Self::Tensor(tensor) => Argument::Tensor(make(tensor)?),
            Self::Tensors(tensors) => Argument::Tensors(tensors.into_iter().map(make).collect::<Result<_, E>>()?),
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
    /// A dim, size or count; no shape holds more than `i64::MAX`.
    fn from(number: usize) -> Self {
        Self::Int(number as i64)
    }
}
