//! Conversion of the C arguments of a first phase. Objects are copied, so the caller may destroy
//! them afterwards.

use std::ffi::{CStr, c_char};

use ascend_tp_emulator_operators::operator::CallArgument;
use ascend_tp_sys::{
    aclBoolArray, aclDataType, aclIntArray, aclScalar, aclScalarList, aclTensor, aclTensorList,
};

use crate::base::failure::{Failure, code};
use crate::nn::objects::Live;

#[derive(Clone, Copy, Debug)]
pub(in crate::abi) enum CArgument {
    Tensor(*const aclTensor),
    Tensors(*const aclTensorList),
    Scalar(*const aclScalar),
    Scalars(*const aclScalarList),
    Ints(*const aclIntArray),
    Flags(*const aclBoolArray),
    /// NULL or a C string.
    Text(*const c_char),
    Int(i64),
    Float(f64),
    Flag(bool),
    DataType(aclDataType),
}

macro_rules! arguments {
    ($( $of:ty => $argument:expr; )*) => { $(
        impl From<$of> for CArgument {
            #[inline]
            fn from(value: $of) -> Self {
                let argument: fn($of) -> Self = $argument;
                argument(value)
            }
        }
    )* };
}
arguments! {
    *const aclTensor => Self::Tensor;
    *mut aclTensor => |tensor| Self::Tensor(tensor);
    *const aclTensorList => Self::Tensors;
    *mut aclTensorList => |list| Self::Tensors(list);
    *const aclScalar => Self::Scalar;
    *mut aclScalar => |scalar| Self::Scalar(scalar);
    *const aclScalarList => Self::Scalars;
    *const aclIntArray => Self::Ints;
    *const aclBoolArray => Self::Flags;
    *const c_char => Self::Text;
    *mut c_char => |text| Self::Text(text);
    i8 => |value| Self::Int(value.into());
    i32 => |value| Self::Int(value.into());
    i64 => Self::Int;
    // -1 means "none" for some arguments and arrives as `u64::MAX`.
    u64 => |value| Self::Int(value.cast_signed());
    f32 => |value| Self::Float(value.into());
    f64 => Self::Float;
    bool => Self::Flag;
    aclDataType => Self::DataType;
}

impl CArgument {
    /// `name` is used in messages.
    ///
    /// # Safety
    ///
    /// A text is NULL or a C string.
    pub(super) unsafe fn on_host(self, name: &str, objects: &Live) -> Result<CallArgument, Failure> {
        Ok(match self {
            Self::Tensor(handle) => {
                CallArgument::Tensor(given(handle, || Ok(objects.tensor(name, handle)?.clone()))?)
            }
            Self::Tensors(handle) => CallArgument::Tensors(given(handle, || objects.tensors(name, handle))?),
            Self::Scalar(handle) => CallArgument::Scalar(given(handle, || objects.scalar(name, handle))?),
            Self::Scalars(handle) => CallArgument::Scalars(given(handle, || objects.scalars(name, handle))?),
            Self::Ints(handle) => {
                CallArgument::Ints(given(handle, || Ok(objects.ints(name, handle)?.to_vec()))?)
            }
            Self::Flags(handle) => {
                CallArgument::Flags(given(handle, || Ok(objects.flags(name, handle)?.to_vec()))?)
            }
            Self::Text(text) => CallArgument::Text(given(text, || {
                // SAFETY: not NULL, so a C string by this function's contract.
                let text = unsafe { CStr::from_ptr(text) };
                text.to_str().map(str::to_owned).map_err(|_| {
                    Failure::new(
                        code::PARAM_INVALID_ACLNN,
                        format!("{name}: expected UTF-8 text, found {text:?}"),
                    )
                })
            })?),
            Self::Int(value) => CallArgument::Int(value),
            Self::Float(value) => CallArgument::Float(value),
            Self::Flag(value) => CallArgument::Flag(value),
            Self::DataType(value) => CallArgument::DataType(value.0),
        })
    }
}

fn given<T, V>(pointer: *const T, value: impl FnOnce() -> Result<V, Failure>) -> Result<Option<V>, Failure> {
    if pointer.is_null() { Ok(None) } else { value().map(Some) }
}
