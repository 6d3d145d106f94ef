//! Why a call was refused or a task failed: one code of the C ABI and one sentence for the reader.
//!
//! Input: what a check found. Output: the code the C function returns and the text `aclGetRecentErrMsg` gives.
//! Invariant: a message names the thing, what was expected, what was found. Codes are kept in the numbering of
//! AscendCL; `abi` translates them for functions that return an `HcclResult` or an `aclnnStatus`.

use std::fmt;
use std::sync::Arc;

use crate::base::report::ReportKind;
use crate::base::site::Site;

/// A refused call or a failed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Code in the numbering of the library that raised it (see [`code`]).
    pub(crate) code: i32,
    /// One sentence: the thing, expected, found, what to do.
    pub(crate) message: String,
    /// What strict mode makes of it; set by [`Failure::found`] and [`Failure::quiet`].
    pub(crate) finding: Finding,
}

/// What strict mode reports when a call returns a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// What the code says.
    ByCode,
    /// Nothing: it was reported before, or is not the program's doing.
    Quiet,
    /// This kind, with these calls besides the one that failed.
    Of(Box<(ReportKind, Vec<Arc<Site>>)>),
}

impl Failure {
    /// What the peers of a rank that left a collective are told.
    pub(crate) fn left_by_peer(what: &str) -> Self {
        Self::new(code::REMOTE, format!("a peer left the collective: {what}"))
    }

    /// A failure with its code and message.
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), finding: Finding::ByCode }
    }

    /// The same, which strict mode reports as `kind`, naming the earlier calls at `sites`.
    pub(crate) fn found(self, kind: ReportKind, sites: Vec<Arc<Site>>) -> Self {
        Self { finding: Finding::Of(Box::new((kind, sites))), ..self }
    }

    /// The same, which strict mode does not report: it has, or it is not the program's doing.
    pub(crate) fn quiet(self) -> Self {
        Self { finding: Finding::Quiet, ..self }
    }

    /// What strict mode reports when a call returns this: the kind, and the earlier calls it names.
    pub(crate) fn finding(&self) -> Option<(ReportKind, Vec<Arc<Site>>)> {
        match &self.finding {
            Finding::Quiet => None,
            Finding::Of(found) => Some((**found).clone()),
            Finding::ByCode => code::finding(self.code).map(|kind| (kind, Vec::new())),
        }
    }

    /// A code that is the answer of a call, not a new failure: it is returned and not noted.
    pub(crate) fn answer(code: i32) -> Self {
        Self::new(code, "")
    }

    /// Whether this is only an answer.
    pub(crate) fn is_answer(&self) -> bool {
        self.message.is_empty()
    }

    /// A function that the emulator does not model.
    pub(crate) fn not_modelled(name: &str, code: i32) -> Self {
        Self::new(code, format!("{name} is not modelled by this emulator (feature not supported)"))
    }

    /// A required pointer argument was NULL.
    pub(crate) fn null(argument: &str) -> Self {
        Self::new(code::INVALID_PARAM, format!("argument {argument} is NULL"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

/// Codes the emulator returns, under the names it uses for them.
pub(crate) mod code {
    use ascend_tp_sys as sys;

    use crate::base::report::ReportKind;

    pub(crate) const SUCCESS: i32 = sys::ACL_SUCCESS;
    /// An argument is wrong in itself (NULL, zero, an unknown enum value).
    pub(crate) const INVALID_PARAM: i32 = sys::ACL_ERROR_INVALID_PARAM;
    /// aclInit has not been called.
    pub(crate) const UNINITIALIZED: i32 = sys::ACL_ERROR_UNINITIALIZE;
    /// aclInit has been called before.
    pub(crate) const REPEAT_INITIALIZE: i32 = sys::ACL_ERROR_REPEAT_INITIALIZE;
    /// aclFinalize without a preceding aclInit.
    pub(crate) const REPEAT_FINALIZE: i32 = sys::ACL_ERROR_REPEAT_FINALIZE;
    /// An argument disagrees with the state of the runtime.
    pub(crate) const PARAM_INVALID: i32 = sys::ACL_ERROR_RT_PARAM_INVALID;
    /// No such device, or the device is not set.
    pub(crate) const INVALID_DEVICE: i32 = sys::ACL_ERROR_RT_INVALID_DEVICEID;
    /// No context is current on this thread, or the context is gone.
    pub(crate) const CONTEXT_NULL: i32 = sys::ACL_ERROR_RT_CONTEXT_NULL;
    /// The stream does not belong to the current context.
    pub(crate) const STREAM_CONTEXT: i32 = sys::ACL_ERROR_RT_STREAM_CONTEXT;
    /// The event has no time stamp.
    pub(crate) const EVENT_TIMESTAMP_INVALID: i32 = sys::ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID;
    /// The end event was recorded before the start event.
    pub(crate) const EVENT_TIMESTAMP_REVERSAL: i32 = sys::ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL;
    /// A stream or thread is already, or not yet, subscribed for callbacks.
    pub(crate) const STREAM_SUBSCRIBE: i32 = sys::ACL_ERROR_RT_STREAM_SUBSCRIBE;
    /// The calling thread is not subscribed for callbacks.
    pub(crate) const THREAD_SUBSCRIBE: i32 = sys::ACL_ERROR_RT_THREAD_SUBSCRIBE;
    /// The stream has no thread that would run the callback.
    pub(crate) const STREAM_NO_CALLBACK: i32 = sys::ACL_ERROR_RT_STREAM_NO_CB_REG;
    /// Waiting for a report ended by its timeout.
    pub(crate) const WAIT_TIMEOUT: i32 = sys::ACL_ERROR_RT_WAIT_TIMEOUT;
    /// A task on the device took longer than allowed.
    pub(crate) const TASK_TIMEOUT: i32 = sys::ACL_ERROR_RT_TASK_TIMEOUT;
    /// The stream was aborted.
    pub(crate) const STREAM_ABORT: i32 = sys::ACL_ERROR_RT_STREAM_ABORT;
    /// The card or the emulator does not offer this.
    pub(crate) const FEATURE_NOT_SUPPORTED: i32 = sys::ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    /// Device or page-locked memory is exhausted.
    pub(crate) const MEMORY_ALLOCATION: i32 = sys::ACL_ERROR_RT_MEMORY_ALLOCATION;
    /// All event resources of the device are in use.
    pub(crate) const NO_EVENT: i32 = sys::ACL_ERROR_RT_NO_EVENT_RESOURCE;
    /// All stream resources of the device are in use.
    pub(crate) const NO_STREAM: i32 = sys::ACL_ERROR_RT_NO_STREAM_RESOURCE;
    /// All notify resources of the device are in use.
    pub(crate) const NO_NOTIFY: i32 = sys::ACL_ERROR_RT_NO_NOTIFY_RESOURCE;
    /// A device is profiled already, or a profiling session is still open.
    pub(crate) const PROF_ALREADY_RUN: i32 = sys::ACL_ERROR_PROF_ALREADY_RUN;
    /// No profiling session is open, or the configuration was not started.
    pub(crate) const PROF_NOT_RUN: i32 = sys::ACL_ERROR_PROF_NOT_RUN;
    /// A captured stream waits for an event its capture has not recorded.
    pub(crate) const CAPTURE_DEPENDENCY: i32 = sys::ACL_ERROR_RT_CAPTURE_DEPENDENCY;
    /// A stream that joined a capture does not lead back.
    pub(crate) const STREAM_UNJOINED: i32 = sys::ACL_ERROR_RT_STREAM_UNJOINED;
    /// The graph is being captured.
    pub(crate) const MODEL_CAPTURED: i32 = sys::ACL_ERROR_RT_MODEL_CAPTURED;
    /// The stream is being captured.
    pub(crate) const STREAM_CAPTURED: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURED;
    /// The event was recorded by a capture.
    pub(crate) const EVENT_CAPTURED: i32 = sys::ACL_ERROR_RT_EVENT_CAPTURED;
    /// The stream is not being captured.
    pub(crate) const STREAM_NOT_CAPTURED: i32 = sys::ACL_ERROR_RT_STREAM_NOT_CAPTURED;
    /// A capture forbids this call to this thread.
    pub(crate) const CAPTURE_MODE_NOT_SUPPORT: i32 = sys::ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT;
    /// A capture forbids an asynchronous call that would wait to this thread.
    pub(crate) const CAPTURE_MODE_BLOCK_ASYNC: i32 = sys::ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC;
    /// Default streams cannot be captured.
    pub(crate) const STREAM_CAPTURE_IMPLICIT: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT;
    /// Stream and event belong to different captures.
    pub(crate) const STREAM_CAPTURE_CONFLICT: i32 = sys::ACL_ERROR_STREAM_CAPTURE_CONFLICT;
    /// A task group is begun, ended or updated out of turn.
    pub(crate) const STREAM_TASK_GROUP_STATUS: i32 = sys::ACL_ERROR_STREAM_TASK_GROUP_STATUS;
    /// A stream without a task group enqueues while another of its capture records one.
    pub(crate) const STREAM_TASK_GROUP_INTR: i32 = sys::ACL_ERROR_STREAM_TASK_GROUP_INTR;
    /// The capture began on another stream.
    pub(crate) const STREAM_CAPTURE_UNMATCHED: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED;
    /// A replay of the graph has not ended.
    pub(crate) const MODEL_RUNNING: i32 = sys::ACL_ERROR_RT_MODEL_RUNNING;
    /// The capture began on another thread.
    pub(crate) const STREAM_CAPTURE_WRONG_THREAD: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD;
    /// A misuse has made the capture worthless.
    pub(crate) const STREAM_CAPTURE_INVALIDATED: i32 = sys::ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED;
    /// The stream is bound to another graph, or not to this one.
    pub(crate) const STREAM_MODEL: i32 = sys::ACL_ERROR_RT_STREAM_MODEL;
    /// The graph belongs to another context.
    pub(crate) const MODEL_CONTEXT: i32 = sys::ACL_ERROR_RT_MODEL_CONTEXT;
    /// Tasks of this type cannot be in a task group.
    pub(crate) const TASK_TYPE_NOT_SUPPORT: i32 = sys::ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT;
    /// No kernel of this name.
    pub(crate) const KERNEL_NOT_FOUND: i32 = sys::ACL_ERROR_KERNEL_NOT_FOUND;
    /// The file does not exist.
    pub(crate) const INVALID_FILE: i32 = sys::ACL_ERROR_INVALID_FILE;
    /// The file cannot be opened.
    pub(crate) const FILE_OPEN: i32 = sys::ACL_ERROR_RT_FILE_OPEN;
    /// A parameter of the process or context has not been set.
    pub(crate) const SYSPARAMOPT_NOT_SET: i32 = sys::ACL_ERROR_RT_SYSPARAMOPT_NOT_SET;
    /// AscendCL does not offer this.
    pub(crate) const API_NOT_SUPPORT: i32 = sys::ACL_ERROR_API_NOT_SUPPORT;
    /// AscendCL does not offer this any more.
    pub(crate) const FEATURE_UNSUPPORTED: i32 = sys::ACL_ERROR_FEATURE_UNSUPPORTED;
    /// AscendCL's word for what has no code of its own.
    pub(crate) const FAILURE: i32 = sys::ACL_ERROR_FAILURE;
    /// An invariant of the emulator broke.
    pub(crate) const INTERNAL: i32 = sys::ACL_ERROR_INTERNAL_ERROR;
    /// The card does not answer any more.
    pub(crate) const LOST_HEARTBEAT: i32 = sys::ACL_ERROR_RT_LOST_HEARTBEAT;
    /// A task on the device did not end in time.
    pub(crate) const AICORE_TIMEOUT: i32 = sys::ACL_ERROR_RT_AICORE_TIMEOUT;
    /// An operator failed on the device.
    pub(crate) const AICORE_EXCEPTION: i32 = sys::ACL_ERROR_RT_AICORE_EXCEPTION;
    /// A kernel of the vector cores did not end.
    pub(crate) const VECTOR_CORE_TIMEOUT: i32 = sys::ACL_ERROR_RT_VECTOR_CORE_TIMEOUT;
    /// A kernel failed on a vector core.
    pub(crate) const VECTOR_CORE_EXCEPTION: i32 = sys::ACL_ERROR_RT_VECTOR_CORE_EXCEPTION;
    /// aclrtSynchronizeStreamWithTimeout ran out of time.
    pub(crate) const STREAM_SYNC_TIMEOUT: i32 = sys::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
    /// aclrtSynchronizeEventWithTimeout ran out of time.
    pub(crate) const EVENT_SYNC_TIMEOUT: i32 = sys::ACL_ERROR_RT_EVENT_SYNC_TIMEOUT;
    /// A peer card left or failed while this one waited for it.
    pub(crate) const REMOTE: i32 = sys::ACL_ERROR_RT_SUSPECT_REMOTE_ERROR;

    /// aclnn: a required pointer is NULL.
    pub(crate) const NULL_POINTER_ACLNN: i32 = 161_001;
    /// aclnn: a parameter breaks the operator's rules.
    pub(crate) const PARAM_INVALID_ACLNN: i32 = 161_002;
    /// aclnn: the runtime below refused.
    pub(crate) const RUNTIME_ACLNN: i32 = 361_001;
    /// aclnn: a handle inside the library is NULL.
    pub(crate) const INNER_NULL_ACLNN: i32 = 561_103;

    /// HCCL: wrong parameter.
    pub(crate) const HCCL_PARA: i32 = sys::HcclResult::HCCL_E_PARA.0 as i32;
    /// HCCL: a required pointer is NULL.
    pub(crate) const HCCL_PTR: i32 = sys::HcclResult::HCCL_E_PTR.0 as i32;
    /// HCCL: memory is exhausted.
    pub(crate) const HCCL_MEMORY: i32 = sys::HcclResult::HCCL_E_MEMORY.0 as i32;
    /// HCCL: an invariant broke.
    pub(crate) const HCCL_INTERNAL: i32 = sys::HcclResult::HCCL_E_INTERNAL.0 as i32;
    /// HCCL: not offered on this card.
    pub(crate) const HCCL_NOT_SUPPORT: i32 = sys::HcclResult::HCCL_E_NOT_SUPPORT.0 as i32;
    /// HCCL: a rank did not come in time.
    pub(crate) const HCCL_TIMEOUT: i32 = sys::HcclResult::HCCL_E_TIMEOUT.0 as i32;
    /// HCCL: a call of the operating system failed.
    pub(crate) const HCCL_SYSCALL: i32 = sys::HcclResult::HCCL_E_SYSCALL.0 as i32;
    /// HCCL: a file cannot be read.
    pub(crate) const HCCL_OPEN_FILE: i32 = sys::HcclResult::HCCL_E_OPEN_FILE_FAILURE.0 as i32;
    /// HCCL: another process cannot be reached.
    pub(crate) const HCCL_TCP_CONNECT: i32 = sys::HcclResult::HCCL_E_TCP_CONNECT.0 as i32;
    /// HCCL: the network of this host cannot be used.
    pub(crate) const HCCL_NETWORK: i32 = sys::HcclResult::HCCL_E_NETWORK.0 as i32;
    /// HCCL: the runtime below refused.
    pub(crate) const HCCL_RUNTIME: i32 = sys::HcclResult::HCCL_E_RUNTIME.0 as i32;
    /// HCCL: a peer left or failed.
    pub(crate) const HCCL_REMOTE: i32 = sys::HcclResult::HCCL_E_REMOTE.0 as i32;

    /// What a code means for the program that got it; None: the card's state, a limit or a peer, not a mistake.
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

    /// The HCCL code that says the same as a runtime code; codes below 1000 are HCCL's own already.
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

    /// The aclnn status that says the same as a runtime code; aclnn's own codes pass.
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
