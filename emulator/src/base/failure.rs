//! Refused calls and failed tasks: a code of the C ABI and a sentence.
//!
//! Invariant: a message names the object, the expected value and the value found. Codes use
//! AscendCL's numbering; `abi` translates them for HCCL and aclnn.

use std::fmt;
use std::sync::Arc;

use crate::base::report::ReportKind;
use crate::base::site::CallSite;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    /// Names the object, the expected value, the value found and the remedy.
    pub(crate) message: String,
    /// Set by [`Failure::found`] and [`Failure::quiet`].
    pub(crate) finding: Finding,
}

/// Report of strict mode about a returned failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The report kind that belongs to the code.
    ByCode,
    /// The failure was reported before, or the program did not cause it.
    Quiet,
    /// A report of this kind also names these earlier calls.
    Of(Box<(ReportKind, Vec<Arc<CallSite>>)>),
}

impl Failure {
    /// Peers receive this failure when a rank leaves a collective.
    pub(crate) fn left_by_peer(what: &str) -> Self {
        Self::new(code::REMOTE, format!("a peer left the collective: {what}"))
    }

    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), finding: Finding::ByCode }
    }

    /// The report names these earlier calls.
    pub(crate) fn found(self, kind: ReportKind, sites: Vec<Arc<CallSite>>) -> Self {
        Self { finding: Finding::Of(Box::new((kind, sites))), ..self }
    }

    /// The failure was reported before, or the program did not cause it.
    pub(crate) fn quiet(self) -> Self {
        Self { finding: Finding::Quiet, ..self }
    }

    pub(crate) fn finding(&self) -> Option<(ReportKind, Vec<Arc<CallSite>>)> {
        match &self.finding {
            Finding::Quiet => None,
            Finding::Of(found) => Some((**found).clone()),
            Finding::ByCode => code::finding(self.code).map(|kind| (kind, Vec::new())),
        }
    }

    /// The code answers a call and is not an error. It is returned but not recorded.
    pub(crate) fn answer(code: i32) -> Self {
        Self::new(code, "")
    }

    pub(crate) fn is_answer(&self) -> bool {
        self.message.is_empty()
    }

    pub(crate) fn not_modelled(name: &str, code: i32) -> Self {
        Self::new(code, format!("{name} is not modelled by this emulator (feature not supported)"))
    }

    pub(crate) fn null(argument: &str) -> Self {
        Self::new(code::INVALID_PARAM, format!("argument {argument} is NULL"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

pub(crate) mod code {
    use ascend_tp_sys as sys;

    use crate::base::report::ReportKind;

    pub(crate) const SUCCESS: i32 = sys::ACL_SUCCESS;
    pub(crate) const INVALID_PARAM: i32 = sys::ACL_ERROR_INVALID_PARAM;
    pub(crate) const UNINITIALIZED: i32 = sys::ACL_ERROR_UNINITIALIZE;
    pub(crate) const REPEAT_INITIALIZE: i32 = sys::ACL_ERROR_REPEAT_INITIALIZE;
    pub(crate) const REPEAT_FINALIZE: i32 = sys::ACL_ERROR_REPEAT_FINALIZE;
    /// An argument contradicts the runtime's state.
    pub(crate) const PARAM_INVALID: i32 = sys::ACL_ERROR_RT_PARAM_INVALID;
    pub(crate) const INVALID_DEVICE: i32 = sys::ACL_ERROR_RT_INVALID_DEVICEID;
    pub(crate) const CONTEXT_NULL: i32 = sys::ACL_ERROR_RT_CONTEXT_NULL;
    pub(crate) const STREAM_CONTEXT: i32 = sys::ACL_ERROR_RT_STREAM_CONTEXT;
    pub(crate) const EVENT_TIMESTAMP_INVALID: i32 = sys::ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID;
    pub(crate) const EVENT_TIMESTAMP_REVERSAL: i32 = sys::ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL;
    pub(crate) const STREAM_SUBSCRIBE: i32 = sys::ACL_ERROR_RT_STREAM_SUBSCRIBE;
    pub(crate) const THREAD_SUBSCRIBE: i32 = sys::ACL_ERROR_RT_THREAD_SUBSCRIBE;
    pub(crate) const STREAM_NO_CALLBACK: i32 = sys::ACL_ERROR_RT_STREAM_NO_CB_REG;
    pub(crate) const WAIT_TIMEOUT: i32 = sys::ACL_ERROR_RT_WAIT_TIMEOUT;
    pub(crate) const TASK_TIMEOUT: i32 = sys::ACL_ERROR_RT_TASK_TIMEOUT;
    pub(crate) const STREAM_ABORT: i32 = sys::ACL_ERROR_RT_STREAM_ABORT;
    pub(crate) const FEATURE_NOT_SUPPORTED: i32 = sys::ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    pub(crate) const MEMORY_ALLOCATION: i32 = sys::ACL_ERROR_RT_MEMORY_ALLOCATION;
    pub(crate) const NO_EVENT: i32 = sys::ACL_ERROR_RT_NO_EVENT_RESOURCE;
    pub(crate) const NO_STREAM: i32 = sys::ACL_ERROR_RT_NO_STREAM_RESOURCE;
    pub(crate) const NO_NOTIFY: i32 = sys::ACL_ERROR_RT_NO_NOTIFY_RESOURCE;
    pub(crate) const PROF_ALREADY_RUN: i32 = sys::ACL_ERROR_PROF_ALREADY_RUN;
    pub(crate) const PROF_NOT_RUN: i32 = sys::ACL_ERROR_PROF_NOT_RUN;
    pub(crate) const CAPTURE_DEPENDENCY: i32 = sys::ACL_ERROR_RT_CAPTURE_DEPENDENCY;
    /// A stream that joined a capture has not rejoined the captured stream.
    pub(crate) const STREAM_UNJOINED: i32 = sys::ACL_ERROR_RT_STREAM_UNJOINED;
    pub(crate) const MODEL_CAPTURED: i32 = sys::ACL_ERROR_RT_MODEL_CAPTURED;
    pub(crate) const STREAM_CAPTURED: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURED;
    pub(crate) const EVENT_CAPTURED: i32 = sys::ACL_ERROR_RT_EVENT_CAPTURED;
    pub(crate) const STREAM_NOT_CAPTURED: i32 = sys::ACL_ERROR_RT_STREAM_NOT_CAPTURED;
    /// A capture forbids this call on this thread.
    pub(crate) const CAPTURE_MODE_NOT_SUPPORT: i32 = sys::ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT;
    /// A capture forbids an asynchronous call that would block.
    pub(crate) const CAPTURE_MODE_BLOCK_ASYNC: i32 = sys::ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC;
    pub(crate) const STREAM_CAPTURE_IMPLICIT: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT;
    pub(crate) const STREAM_CAPTURE_CONFLICT: i32 = sys::ACL_ERROR_STREAM_CAPTURE_CONFLICT;
    pub(crate) const STREAM_TASK_GROUP_STATUS: i32 = sys::ACL_ERROR_STREAM_TASK_GROUP_STATUS;
    /// A stream without a task group enqueues while another stream of the capture records one.
    pub(crate) const STREAM_TASK_GROUP_INTR: i32 = sys::ACL_ERROR_STREAM_TASK_GROUP_INTR;
    pub(crate) const STREAM_CAPTURE_UNMATCHED: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED;
    pub(crate) const MODEL_RUNNING: i32 = sys::ACL_ERROR_RT_MODEL_RUNNING;
    pub(crate) const STREAM_CAPTURE_WRONG_THREAD: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD;
    pub(crate) const STREAM_CAPTURE_INVALIDATED: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED;
    pub(crate) const STREAM_MODEL: i32 = sys::ACL_ERROR_RT_STREAM_MODEL;
    pub(crate) const MODEL_CONTEXT: i32 = sys::ACL_ERROR_RT_MODEL_CONTEXT;
    pub(crate) const TASK_TYPE_NOT_SUPPORT: i32 = sys::ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT;
    pub(crate) const KERNEL_NOT_FOUND: i32 = sys::ACL_ERROR_KERNEL_NOT_FOUND;
    pub(crate) const INVALID_FILE: i32 = sys::ACL_ERROR_INVALID_FILE;
    pub(crate) const FILE_OPEN: i32 = sys::ACL_ERROR_RT_FILE_OPEN;
    pub(crate) const SYSPARAMOPT_NOT_SET: i32 = sys::ACL_ERROR_RT_SYSPARAMOPT_NOT_SET;
    pub(crate) const API_NOT_SUPPORT: i32 = sys::ACL_ERROR_API_NOT_SUPPORT;
    pub(crate) const FEATURE_UNSUPPORTED: i32 = sys::ACL_ERROR_FEATURE_UNSUPPORTED;
    pub(crate) const FAILURE: i32 = sys::ACL_ERROR_FAILURE;
    pub(crate) const INTERNAL: i32 = sys::ACL_ERROR_INTERNAL_ERROR;
    pub(crate) const LOST_HEARTBEAT: i32 = sys::ACL_ERROR_RT_LOST_HEARTBEAT;
    pub(crate) const AICORE_TIMEOUT: i32 = sys::ACL_ERROR_RT_AICORE_TIMEOUT;
    pub(crate) const AICORE_EXCEPTION: i32 = sys::ACL_ERROR_RT_AICORE_EXCEPTION;
    pub(crate) const VECTOR_CORE_TIMEOUT: i32 = sys::ACL_ERROR_RT_VECTOR_CORE_TIMEOUT;
    pub(crate) const VECTOR_CORE_EXCEPTION: i32 = sys::ACL_ERROR_RT_VECTOR_CORE_EXCEPTION;
    pub(crate) const STREAM_SYNC_TIMEOUT: i32 = sys::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
    pub(crate) const EVENT_SYNC_TIMEOUT: i32 = sys::ACL_ERROR_RT_EVENT_SYNC_TIMEOUT;
    /// A peer card left or failed during the wait.
    pub(crate) const REMOTE: i32 = sys::ACL_ERROR_RT_SUSPECT_REMOTE_ERROR;

    pub(crate) const NULL_POINTER_ACLNN: i32 = 161_001;
    pub(crate) const PARAM_INVALID_ACLNN: i32 = 161_002;
    pub(crate) const RUNTIME_ACLNN: i32 = 361_001;
    pub(crate) const INNER_NULL_ACLNN: i32 = 561_103;

    pub(crate) const HCCL_PARA: i32 = sys::HcclResult::HCCL_E_PARA.0 as i32;
    pub(crate) const HCCL_PTR: i32 = sys::HcclResult::HCCL_E_PTR.0 as i32;
    pub(crate) const HCCL_MEMORY: i32 = sys::HcclResult::HCCL_E_MEMORY.0 as i32;
    pub(crate) const HCCL_INTERNAL: i32 = sys::HcclResult::HCCL_E_INTERNAL.0 as i32;
    pub(crate) const HCCL_NOT_SUPPORT: i32 = sys::HcclResult::HCCL_E_NOT_SUPPORT.0 as i32;
    pub(crate) const HCCL_TIMEOUT: i32 = sys::HcclResult::HCCL_E_TIMEOUT.0 as i32;
    pub(crate) const HCCL_SYSCALL: i32 = sys::HcclResult::HCCL_E_SYSCALL.0 as i32;
    pub(crate) const HCCL_OPEN_FILE: i32 = sys::HcclResult::HCCL_E_OPEN_FILE_FAILURE.0 as i32;
    pub(crate) const HCCL_TCP_CONNECT: i32 = sys::HcclResult::HCCL_E_TCP_CONNECT.0 as i32;
    pub(crate) const HCCL_NETWORK: i32 = sys::HcclResult::HCCL_E_NETWORK.0 as i32;
    pub(crate) const HCCL_RUNTIME: i32 = sys::HcclResult::HCCL_E_RUNTIME.0 as i32;
    pub(crate) const HCCL_REMOTE: i32 = sys::HcclResult::HCCL_E_REMOTE.0 as i32;

    /// Returns the kind of mistake that a code indicates. `None` means that the card's state, a
    /// limit or a peer is the cause.
    pub(crate) fn finding(code: i32) -> Option<ReportKind> {
        match code {
            INVALID_PARAM
            | UNINITIALIZED
            | REPEAT_INITIALIZE
            | REPEAT_FINALIZE
            | PARAM_INVALID
            | INVALID_DEVICE
            | EVENT_TIMESTAMP_INVALID
            | EVENT_TIMESTAMP_REVERSAL
            | STREAM_SUBSCRIBE
            | THREAD_SUBSCRIBE
            | STREAM_NO_CALLBACK
            | AICORE_EXCEPTION
            | NULL_POINTER_ACLNN
            | PARAM_INVALID_ACLNN
            | INNER_NULL_ACLNN
            | HCCL_PARA
            | HCCL_PTR => Some(ReportKind::Misuse),
            CONTEXT_NULL | STREAM_CONTEXT => Some(ReportKind::WrongContext),
            _ => None,
        }
    }

    /// Codes below 1000 already belong to HCCL.
    pub(crate) fn to_hccl(code: i32) -> i32 {
        match code {
            0..1000 => code,
            INVALID_PARAM | PARAM_INVALID => HCCL_PARA,
            MEMORY_ALLOCATION => HCCL_MEMORY,
            FEATURE_NOT_SUPPORTED => HCCL_NOT_SUPPORT,
            INTERNAL => HCCL_INTERNAL,
            TASK_TIMEOUT => HCCL_TIMEOUT,
            REMOTE => HCCL_REMOTE,
            _ => HCCL_RUNTIME,
        }
    }

    pub(crate) fn to_aclnn(code: i32) -> i32 {
        match code / 1000 {
            0 | 161 | 361 | 561 => code,
            _ => RUNTIME_ACLNN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn codes_translate_to_the_other_libraries() {
        assert_eq!(code::to_hccl(code::HCCL_PTR), code::HCCL_PTR);
        assert_eq!(code::to_hccl(code::REMOTE), code::HCCL_REMOTE);
        assert_eq!(code::to_hccl(code::CONTEXT_NULL), code::HCCL_RUNTIME);
        assert_eq!(code::to_aclnn(code::PARAM_INVALID_ACLNN), code::PARAM_INVALID_ACLNN);
        assert_eq!(code::to_aclnn(code::STREAM_CONTEXT), code::RUNTIME_ACLNN);
    }
}
