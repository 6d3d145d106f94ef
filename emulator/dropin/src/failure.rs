//! What an exported function returns when no machine answers it.
//!
//! Input: the function's name, its library, and why there is no answer. Output: the documented code of that library, or
//! NULL or 0 from a function that returns a value. Does not: say anything; the machine does.

use ascend_tp_sys::{
    ACL_ERROR_FEATURE_UNSUPPORTED, ACL_ERROR_INTERNAL_ERROR, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, HcclResult, Library,
};

use crate::process;

/// aclnn has no code of its own for this: "an interface of the runtime below failed" (`ACLNN_ERR_RUNTIME_ERROR`).
const ACLNN_RUNTIME_ERROR: i32 = 361_001;

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The function exists and does nothing here.
    NotSupported,
    /// This process has no machine: its environment asks for an impossible one, or it may not have one.
    NoMachine,
}

/// The code of a function that returns a status.
pub(crate) fn status(name: &str, library: Library, why: NoAnswer) -> i32 {
    match (library, why) {
        (Library::AscendCl, NoAnswer::NotSupported) if name.starts_with("aclrt") => ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
        (Library::AscendCl, NoAnswer::NotSupported) => ACL_ERROR_FEATURE_UNSUPPORTED,
        (Library::AscendCl, NoAnswer::NoMachine) => ACL_ERROR_INTERNAL_ERROR,
        (Library::Hccl, NoAnswer::NotSupported) => HcclResult::HCCL_E_NOT_SUPPORT.0.cast_signed(),
        (Library::Hccl, NoAnswer::NoMachine) => HcclResult::HCCL_E_INTERNAL.0.cast_signed(),
        (Library::NnopBase | Library::OpApi, _) => ACLNN_RUNTIME_ERROR,
    }
}

/// A type some C function returns.
pub(crate) trait Answer {
    /// What a call without an answer returns.
    fn none(name: &str, library: Library, why: NoAnswer) -> Self;
}

impl Answer for i32 {
    fn none(name: &str, library: Library, why: NoAnswer) -> Self {
        status(name, library, why)
    }
}

impl Answer for HcclResult {
    fn none(name: &str, library: Library, why: NoAnswer) -> Self {
        Self(status(name, library, why).cast_unsigned())
    }
}

macro_rules! values {
    ($($value:ty)*) => { $(
        impl Answer for $value {
            fn none(_: &str, _: Library, _: NoAnswer) -> Self {
                Self::default()
            }
        }
    )* };
}
values!(u16 u32 u64 usize f32);

impl Answer for () {
    fn none(_: &str, _: Library, _: NoAnswer) {}
}

impl<T> Answer for *const T {
    /// The functions that explain an error explain why there is no machine.
    fn none(name: &str, _: Library, why: NoAnswer) -> Self {
        match (name, why) {
            ("aclGetRecentErrMsg" | "HcclGetErrorString", NoAnswer::NoMachine) => {
                process::refusal().map_or(std::ptr::null(), |text| text.as_ptr().cast())
            }
            _ => std::ptr::null(),
        }
    }
}

impl<T> Answer for *mut T {
    fn none(_: &str, _: Library, _: NoAnswer) -> Self {
        std::ptr::null_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_has_its_own_not_supported() {
        let not_supported = |name, library| status(name, library, NoAnswer::NotSupported);
        assert_eq!(not_supported("aclrtMemcpyBatch", Library::AscendCl), 207_000);
        assert_eq!(not_supported("aclopCompileAndExecute", Library::AscendCl), 200_006);
        assert_eq!(not_supported("HcclGroupStart", Library::Hccl), 5);
        assert_eq!(not_supported("aclnnAbs", Library::OpApi), 361_001);
    }

    #[test]
    fn functions_that_return_values_return_none() {
        assert!(<*const u8 as Answer>::none("aclrtGetSocName", Library::AscendCl, NoAnswer::NoMachine).is_null());
        assert_eq!(<u32 as Answer>::none("HcclGetCommConfigCapability", Library::Hccl, NoAnswer::NoMachine), 0);
    }
}
