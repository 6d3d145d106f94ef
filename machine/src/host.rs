//! What calls of the C ABI cost the calling thread.
//!
//! Input: the name of a C function and the bytes it moves. Output: microseconds of the thread. One table, by kind of call.

use crate::profile::Profile;

/// Kinds of calls that cost alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostCall {
    /// First phase of an operator.
    Plan,
    /// Second phase of an operator, or a kernel launch.
    Launch,
    /// A call of HCCL that enqueues a collective.
    Collective,
    /// A record of or a wait for an event.
    Event,
    /// A copy that the thread waits for.
    Copy,
    /// The replay of a captured graph.
    Replay,
    /// A tool's call, which a run without the tool does not make.
    Free,
    /// A call of any other kind.
    Other,
}

impl HostCall {
    /// The kind of a C function.
    #[must_use]
    pub fn of(function: &str) -> Self {
        const COLLECTIVES: [&str; 12] = [
            "HcclAllReduce",
            "HcclAllGather",
            "HcclAllGatherV",
            "HcclReduceScatter",
            "HcclReduceScatterV",
            "HcclAlltoAll",
            "HcclAlltoAllV",
            "HcclAlltoAllVC",
            "HcclBroadcast",
            "HcclReduce",
            "HcclScatter",
            "HcclBatchSendRecv",
        ];
        match function {
            _ if function.starts_with("aclnn") && function.ends_with("GetWorkspaceSize") => Self::Plan,
            "aclnnInit" | "aclnnFinalize" => Self::Other,
            _ if function.starts_with("aclnn") || function.starts_with("aclrtLaunchKernel") => Self::Launch,
            _ if COLLECTIVES.contains(&function) || matches!(function, "HcclSend" | "HcclRecv" | "HcclBarrier") => {
                Self::Collective
            }
            "aclrtRecordEvent" | "aclrtStreamWaitEvent" => Self::Event,
            "aclrtMemcpy" | "aclrtMemset" => Self::Copy,
            "aclmdlRIExecuteAsync" => Self::Replay,
            _ if function.starts_with("aclprof") => Self::Free,
            _ => Self::Other,
        }
    }
}

impl Profile {
    /// Time of the calling thread, in microseconds; `bytes` are those of a copy.
    #[must_use]
    pub fn host_us(&self, call: HostCall, bytes: f64) -> f64 {
        let host = &self.coefficients.host;
        match call {
            HostCall::Plan => host.plan_us,
            HostCall::Launch => host.launch_us,
            HostCall::Collective => host.collective_us,
            HostCall::Event => host.event_us,
            HostCall::Copy => host.copy_us + bytes / host.copy_bytes_per_us,
            HostCall::Replay => host.replay_us,
            HostCall::Free => 0.0,
            HostCall::Other => host.call_us,
        }
    }
}
