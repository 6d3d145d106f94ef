//! C arguments of a first phase as host values.
//!
//! Input: one argument of any type the operators' prototypes use. Output: an [`Argument`]. Invariant: what a handle names
//! is copied, so the caller may destroy the object as soon as the call returns.

use std::ffi::{CStr, c_char};

use ascend_tp_sys::{aclBoolArray, aclDataType, aclIntArray, aclScalar, aclScalarList, aclTensor, aclTensorList};

use crate::base::failure::{Failure, code};
use crate::nn::objects::Live;
use crate::nn::operator::Argument;

/// A C type that appears in the prototype of an operator.
pub(super) trait CArgument {
    /// The argument as a host value; `name` is for messages.
    ///
    /// # Safety
    /// A `char` pointer is NULL or a C string.
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure>;
}

macro_rules! by_value {
    ($($t:ty => $wrap:expr),* $(,)?) => { $(
        impl CArgument for $t {
            unsafe fn argument(self, _name: &str, _objects: &Live) -> Result<Argument, Failure> {
                let wrap: fn($t) -> Argument = $wrap;
                Ok(wrap(self))
            }
        }
    )* };
}
by_value! {
    i8 => |value| Argument::Int(i64::from(value)),
    i32 => |value| Argument::Int(i64::from(value)),
    i64 => Argument::Int,
    // -1, which is a legal "none" for some, arrives as the greatest number.
    u64 => |value| Argument::Int(value.cast_signed()),
    f32 => |value| Argument::Float(f64::from(value)),
    f64 => Argument::Float,
    bool => Argument::Flag,
    aclDataType => |value| Argument::DataType(value.0),
}

impl CArgument for *const aclTensor {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        let tensor = if self.is_null() { None } else { Some(objects.tensor(name, self)?.clone()) };
        Ok(Argument::Tensor(tensor))
    }
}

impl CArgument for *mut aclTensor {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        // SAFETY: passes on the caller's promise.
        unsafe { self.cast_const().argument(name, objects) }
    }
}

impl CArgument for *const aclTensorList {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        let tensors = if self.is_null() { None } else { Some(objects.tensors(name, self)?) };
        Ok(Argument::Tensors(tensors))
    }
}

impl CArgument for *const aclScalar {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        let scalar = if self.is_null() { None } else { Some(objects.scalar(name, self)?) };
        Ok(Argument::Scalar(scalar))
    }
}

impl CArgument for *const aclIntArray {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        let values = if self.is_null() { None } else { Some(objects.ints(name, self)?.to_vec()) };
        Ok(Argument::Ints(values))
    }
}

impl CArgument for *const aclBoolArray {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        let values = if self.is_null() { None } else { Some(objects.flags(name, self)?.to_vec()) };
        Ok(Argument::Flags(values))
    }
}

impl CArgument for *const aclScalarList {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        let values = if self.is_null() { None } else { Some(objects.scalars(name, self)?) };
        Ok(Argument::Scalars(values))
    }
}

impl CArgument for *mut aclTensorList {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        // SAFETY: passes on the caller's promise.
        unsafe { self.cast_const().argument(name, objects) }
    }
}

impl CArgument for *const c_char {
    unsafe fn argument(self, name: &str, objects: &Live) -> Result<Argument, Failure> {
        // SAFETY: passes on the caller's promise; text is only read.
        unsafe { self.cast_mut().argument(name, objects) }
    }
}

impl CArgument for *mut c_char {
    unsafe fn argument(self, name: &str, _objects: &Live) -> Result<Argument, Failure> {
        if self.is_null() {
            return Ok(Argument::Text(None));
        }
        // SAFETY: not NULL, so a C string by this function's contract.
        let text = unsafe { CStr::from_ptr(self) };
        let text = text.to_str().map_err(|_| {
            Failure::new(code::PARAM_INVALID_ACLNN, format!("{name}: expected UTF-8 text, found {text:?}"))
        })?;
        Ok(Argument::Text(Some(text.to_owned())))
    }
}
