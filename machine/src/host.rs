//! Cost of C ABI calls on the calling thread.

use crate::profile::Profile;

/// Calls of one kind cost the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostCall {
    /// First phase of an operator.
    Plan,
    /// Operator's second phase, or a kernel launch.
    Launch,
    /// An HCCL call that enqueues a collective.
    Collective,
    /// Event record or wait.
    Event,
    /// A copy that blocks the thread.
    Copy,
    /// The replay of a captured graph.
    Replay,
    /// Profiler calls, without cost.
    Free,
    /// A call of any other kind.
    Other,
}

impl HostCall {
    /// Classifies a C function.
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
            _ if COLLECTIVES.contains(&function)
                || matches!(function, "HcclSend" | "HcclRecv" | "HcclBarrier") =>
            {
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
    /// Returns the time of the calling thread; `bytes` is the size of a copy.
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
