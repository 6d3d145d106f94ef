//! Names of status codes, for messages.
//!
//! Input: a status of AscendCL, aclnn or HCCL. Output: its C name, if this project knows it.
//! What it does not do: judge a status; a code of a newer CANN simply has no name here.

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "names most status codes"))]
use crate::bindings::*;

/// The C name of a status of AscendCL, such as `ACL_ERROR_RT_MEMORY_ALLOCATION`.
#[must_use]
pub const fn acl_error_name(code: aclError) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident,)*) => { match code { $( $name => Some(stringify!($name)), )* _ => None } };
    }
    names! {
        ACL_SUCCESS,
        ACL_ERROR_INVALID_PARAM,
        ACL_ERROR_UNINITIALIZE,
        ACL_ERROR_REPEAT_INITIALIZE,
        ACL_ERROR_INVALID_FILE,
        ACL_ERROR_WRITE_FILE,
        ACL_ERROR_INVALID_FILE_SIZE,
        ACL_ERROR_PARSE_FILE,
        ACL_ERROR_OP_NOT_FOUND,
        ACL_ERROR_OP_LOAD_FAILED,
        ACL_ERROR_UNSUPPORTED_DATA_TYPE,
        ACL_ERROR_FORMAT_NOT_MATCH,
        ACL_ERROR_KERNEL_NOT_FOUND,
        ACL_ERROR_INVALID_QUEUE_ID,
        ACL_ERROR_REPEAT_SUBSCRIBE,
        ACL_ERROR_STREAM_NOT_SUBSCRIBE,
        ACL_ERROR_THREAD_NOT_SUBSCRIBE,
        ACL_ERROR_WAIT_CALLBACK_TIMEOUT,
        ACL_ERROR_REPEAT_FINALIZE,
        ACL_ERROR_COMPILING_STUB_MODE,
        ACL_ERROR_PROF_ALREADY_RUN,
        ACL_ERROR_PROF_NOT_RUN,
        ACL_ERROR_INVALID_OPP_PATH,
        ACL_ERROR_BAD_ALLOC,
        ACL_ERROR_API_NOT_SUPPORT,
        ACL_ERROR_INVALID_DEVICE,
        ACL_ERROR_MEMORY_ADDRESS_UNALIGNED,
        ACL_ERROR_RESOURCE_NOT_MATCH,
        ACL_ERROR_INVALID_RESOURCE_HANDLE,
        ACL_ERROR_FEATURE_UNSUPPORTED,
        ACL_ERROR_STORAGE_OVER_LIMIT,
        ACL_ERROR_INTERNAL_ERROR,
        ACL_ERROR_FAILURE,
        ACL_ERROR_GE_FAILURE,
        ACL_ERROR_RT_FAILURE,
        ACL_ERROR_DRV_FAILURE,
        ACL_ERROR_PROFILING_FAILURE,
        ACL_ERROR_RT_PARAM_INVALID,
        ACL_ERROR_RT_INVALID_DEVICEID,
        ACL_ERROR_RT_CONTEXT_NULL,
        ACL_ERROR_RT_STREAM_CONTEXT,
        ACL_ERROR_RT_MODEL_CONTEXT,
        ACL_ERROR_RT_STREAM_MODEL,
        ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
        ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL,
        ACL_ERROR_RT_ADDR_UNALIGNED,
        ACL_ERROR_RT_FILE_OPEN,
        ACL_ERROR_RT_FILE_WRITE,
        ACL_ERROR_RT_STREAM_SUBSCRIBE,
        ACL_ERROR_RT_THREAD_SUBSCRIBE,
        ACL_ERROR_RT_GROUP_NOT_SET,
        ACL_ERROR_RT_GROUP_NOT_CREATE,
        ACL_ERROR_RT_STREAM_NO_CB_REG,
        ACL_ERROR_RT_INVALID_MEMORY_TYPE,
        ACL_ERROR_RT_INVALID_HANDLE,
        ACL_ERROR_RT_INVALID_MALLOC_TYPE,
        ACL_ERROR_RT_WAIT_TIMEOUT,
        ACL_ERROR_RT_TASK_TIMEOUT,
        ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
        ACL_ERROR_RT_DEVICE_TASK_ABORT,
        ACL_ERROR_RT_STREAM_ABORT,
        ACL_ERROR_RT_SUSPECT_REMOTE_ERROR,
        ACL_ERROR_RT_CAPTURE_DEPENDENCY,
        ACL_ERROR_RT_STREAM_UNJOINED,
        ACL_ERROR_RT_MODEL_CAPTURED,
        ACL_ERROR_RT_STREAM_CAPTURED,
        ACL_ERROR_RT_EVENT_CAPTURED,
        ACL_ERROR_RT_STREAM_NOT_CAPTURED,
        ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
        ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
        ACL_ERROR_STREAM_CAPTURE_CONFLICT,
        ACL_ERROR_STREAM_TASK_GROUP_STATUS,
        ACL_ERROR_STREAM_TASK_GROUP_INTR,
        ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
        ACL_ERROR_RT_MODEL_RUNNING,
        ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
        ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC,
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
        ACL_ERROR_RT_MEMORY_ALLOCATION,
        ACL_ERROR_RT_MEMORY_FREE,
        ACL_ERROR_RT_AICORE_OVER_FLOW,
        ACL_ERROR_RT_NO_DEVICE,
        ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
        ACL_ERROR_RT_NO_PERMISSION,
        ACL_ERROR_RT_NO_EVENT_RESOURCE,
        ACL_ERROR_RT_NO_STREAM_RESOURCE,
        ACL_ERROR_RT_NO_NOTIFY_RESOURCE,
        ACL_ERROR_RT_NO_MODEL_RESOURCE,
        ACL_ERROR_RT_OVER_LIMIT,
        ACL_ERROR_RT_QUEUE_EMPTY,
        ACL_ERROR_RT_QUEUE_FULL,
        ACL_ERROR_RT_REPEATED_INIT,
        ACL_ERROR_RT_INTERNAL_ERROR,
        ACL_ERROR_RT_TS_ERROR,
        ACL_ERROR_RT_STREAM_TASK_FULL,
        ACL_ERROR_RT_STREAM_TASK_EMPTY,
        ACL_ERROR_RT_STREAM_NOT_COMPLETE,
        ACL_ERROR_RT_END_OF_SEQUENCE,
        ACL_ERROR_RT_EVENT_NOT_COMPLETE,
        ACL_ERROR_RT_CONTEXT_RELEASE_ERROR,
        ACL_ERROR_RT_SOC_VERSION,
        ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT,
        ACL_ERROR_RT_LOST_HEARTBEAT,
        ACL_ERROR_RT_MODEL_EXECUTE,
        ACL_ERROR_RT_REPORT_TIMEOUT,
        ACL_ERROR_RT_SYS_DMA,
        ACL_ERROR_RT_AICORE_TIMEOUT,
        ACL_ERROR_RT_AICORE_EXCEPTION,
        ACL_ERROR_RT_AICORE_TRAP_EXCEPTION,
        ACL_ERROR_RT_AICPU_TIMEOUT,
        ACL_ERROR_RT_AICPU_EXCEPTION,
        ACL_ERROR_RT_IPC_ERROR,
        ACL_ERROR_RT_MODEL_ABORT_NORMAL,
        ACL_ERROR_RT_KERNEL_LOOKUP,
        ACL_ERROR_RT_LABEL_CONTEXT,
        ACL_ERROR_RT_DEV_SETUP_ERROR,
        ACL_ERROR_RT_VECTOR_CORE_TIMEOUT,
        ACL_ERROR_RT_VECTOR_CORE_EXCEPTION,
        ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION,
        ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
        ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
        ACL_ERROR_RT_DRV_INTERNAL_ERROR,
        ACL_ERROR_RT_AICPU_INTERNAL_ERROR,
        ACL_ERROR_RT_SOCKET_CLOSE,
        ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
    }
}

/// The C name of a status of HCCL, such as `HCCL_E_PARA`.
#[must_use]
pub const fn hccl_result_name(result: HcclResult) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident,)*) => { match result { $( HcclResult::$name => Some(stringify!($name)), )* _ => None } };
    }
    names! {
        HCCL_SUCCESS,
        HCCL_E_PARA,
        HCCL_E_PTR,
        HCCL_E_MEMORY,
        HCCL_E_INTERNAL,
        HCCL_E_NOT_SUPPORT,
        HCCL_E_NOT_FOUND,
        HCCL_E_UNAVAIL,
        HCCL_E_SYSCALL,
        HCCL_E_TIMEOUT,
        HCCL_E_OPEN_FILE_FAILURE,
        HCCL_E_TCP_CONNECT,
        HCCL_E_ROCE_CONNECT,
        HCCL_E_TCP_TRANSFER,
        HCCL_E_ROCE_TRANSFER,
        HCCL_E_RUNTIME,
        HCCL_E_DRV,
        HCCL_E_PROFILING,
        HCCL_E_CCE,
        HCCL_E_NETWORK,
        HCCL_E_AGAIN,
        HCCL_E_REMOTE,
        HCCL_E_SUSPENDING,
        HCCL_E_OPRETRY_FAIL,
        HCCL_E_OOM,
        HCCL_E_IN_STATUS,
    }
}

/// The name the operator documentation gives a status of aclnn, such as `ACLNN_ERR_PARAM_INVALID`.
///
/// Statuses that aclnn passes on from AscendCL keep their AscendCL name. No header of CANN declares the aclnn codes, so
/// their values stand here.
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
