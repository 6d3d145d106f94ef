//! Return values of exported functions without a machine: the library's documented error code, or
//! NULL or 0.

use ascend_tp_sys::{
    ACL_ERROR_FEATURE_UNSUPPORTED, ACL_ERROR_INTERNAL_ERROR, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, HcclResult,
    Library,
};

use crate::process;

/// `ACLNN_ERR_RUNTIME_ERROR`; aclnn has no more specific code.
const ACLNN_RUNTIME_ERROR: i32 = 361_001;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The function exists but is not supported.
    NotSupported,
    /// The environment is invalid, or the process must not have a machine.
    NoMachine,
}

pub(crate) fn status(name: &str, library: Library, why: NoAnswer) -> i32 {
    match (library, why) {
        (Library::AscendCl, NoAnswer::NotSupported) if name.starts_with("aclrt") => {
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT
        }
        (Library::AscendCl, NoAnswer::NotSupported) => ACL_ERROR_FEATURE_UNSUPPORTED,
        (Library::AscendCl, NoAnswer::NoMachine) => ACL_ERROR_INTERNAL_ERROR,
        (Library::Hccl, NoAnswer::NotSupported) => HcclResult::HCCL_E_NOT_SUPPORT.0.cast_signed(),
        (Library::Hccl, NoAnswer::NoMachine) => HcclResult::HCCL_E_INTERNAL.0.cast_signed(),
        (Library::NnopBase | Library::OpApi, _) => ACLNN_RUNTIME_ERROR,
    }
}

pub(crate) trait MissingSymbolReply {
    fn none(name: &str, library: Library, why: NoAnswer) -> Self;
}

impl MissingSymbolReply for i32 {
    fn none(name: &str, library: Library, why: NoAnswer) -> Self {
        status(name, library, why)
    }
}

impl MissingSymbolReply for HcclResult {
    fn none(name: &str, library: Library, why: NoAnswer) -> Self {
        Self(status(name, library, why).cast_unsigned())
    }
}

macro_rules! values {
    ($($value:ty)*) => { $(
        impl MissingSymbolReply for $value {
            fn none(_: &str, _: Library, _: NoAnswer) -> Self {
                Self::default()
            }
        }
    )* };
}
values!(u16 u32 u64 usize f32);

impl MissingSymbolReply for () {
    fn none(_: &str, _: Library, _: NoAnswer) {}
}

impl<T> MissingSymbolReply for *const T {
    /// Functions that explain errors return the reason why there is no machine.
    fn none(name: &str, _: Library, why: NoAnswer) -> Self {
        match (name, why) {
            ("aclGetRecentErrMsg" | "HcclGetErrorString", NoAnswer::NoMachine) => {
                process::refusal().map_or(std::ptr::null(), |text| text.as_ptr().cast())
            }
            _ => std::ptr::null(),
        }
    }
}

impl<T> MissingSymbolReply for *mut T {
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
        assert_eq!(not_supported("aclrtCreateLabel", Library::AscendCl), 207_000);
        assert_eq!(not_supported("aclopCompileAndExecute", Library::AscendCl), 200_006);
        assert_eq!(not_supported("HcclGroupStart", Library::Hccl), 5);
        assert_eq!(not_supported("aclnnAbs", Library::OpApi), 361_001);
    }

    #[test]
    fn functions_that_return_values_return_none() {
        assert!(
            <*const u8 as MissingSymbolReply>::none(
                "aclrtGetSocName",
                Library::AscendCl,
                NoAnswer::NoMachine
            )
            .is_null()
        );
        assert_eq!(
            <u32 as MissingSymbolReply>::none(
                "HcclGetCommConfigCapability",
                Library::Hccl,
                NoAnswer::NoMachine
            ),
            0
        );
    }
}
