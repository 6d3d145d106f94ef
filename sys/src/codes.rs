//! Names of status codes of AscendCL, aclnn and HCCL, for messages. A code of a newer CANN has no
//! name here.

use crate::bindings::{HcclResult, aclError, aclnnStatus};
use crate::names::{ACL_ERRORS, HCCL_RESULTS};

/// Returns the C name of an AscendCL status, for example `ACL_ERROR_RT_MEMORY_ALLOCATION`.
const fn acl_error_name(code: aclError) -> Option<&'static str> {
    name_of(code as i64, ACL_ERRORS)
}

/// Returns the C name of an HCCL status, for example `HCCL_E_PARA`.
#[must_use]
pub const fn hccl_result_name(result: HcclResult) -> Option<&'static str> {
    name_of(result.0 as i64, HCCL_RESULTS)
}

/// Returns the name paired with `code`.
const fn name_of(code: i64, names: &[(i64, &'static str)]) -> Option<&'static str> {
    let mut at = 0;
    while at < names.len() {
        if names[at].0 == code {
            return Some(names[at].1);
        }
        at += 1;
    }
    None
}

/// Returns the documented name of an aclnn status, for example `ACLNN_ERR_PARAM_INVALID`.
///
/// Statuses that aclnn passes on from AscendCL keep their AscendCL name. No CANN header declares
/// the aclnn codes, so the values are written here.
#[must_use]
pub const fn aclnn_status_name(status: aclnnStatus) -> Option<&'static str> {
    match status {
        0 => Some("ACLNN_SUCCESS"),
        161_001 => Some("ACLNN_ERR_PARAM_NULLPTR"),
        161_002 => Some("ACLNN_ERR_PARAM_INVALID"),
        361_001 => Some("ACLNN_ERR_RUNTIME_ERROR"),
        561_000 => Some("ACLNN_ERR_INNER"),
        561_001 => Some("ACLNN_ERR_INNER_INFERSHAPE_ERROR"),
        561_002 => Some("ACLNN_ERR_INNER_TILING_ERROR"),
        561_003 => Some("ACLNN_ERR_INNER_FIND_KERNEL_ERROR"),
        561_101 => Some("ACLNN_ERR_INNER_CREATE_EXECUTOR"),
        561_102 => Some("ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR"),
        561_103 => Some("ACLNN_ERR_INNER_NULLPTR"),
        561_107 => Some("ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND"),
        561_112 => Some("ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND"),
        other => acl_error_name(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_have_their_c_name() {
        assert_eq!(acl_error_name(207_001), Some("ACL_ERROR_RT_MEMORY_ALLOCATION"));
        assert_eq!(acl_error_name(100_002), Some("ACL_ERROR_REPEAT_INITIALIZE"));
        assert_eq!(acl_error_name(0), Some("ACL_SUCCESS"));
        assert_eq!(hccl_result_name(HcclResult(1)), Some("HCCL_E_PARA"));
        assert_eq!(hccl_result_name(HcclResult(1041)), Some("HCCL_E_IN_STATUS"));
        assert_eq!(aclnn_status_name(161_002), Some("ACLNN_ERR_PARAM_INVALID"));
        assert_eq!(aclnn_status_name(107_002), Some("ACL_ERROR_RT_CONTEXT_NULL"));
    }

    #[test]
    fn an_unknown_code_has_none() {
        assert_eq!(acl_error_name(1), None);
        assert_eq!(hccl_result_name(HcclResult(999)), None);
        assert_eq!(aclnn_status_name(-1), None);
    }
}
