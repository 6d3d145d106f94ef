//! Work that became ready under the machine's lock.
//!
//! Not here: execution (see `machine`, and the conductors of strict and timed mode).

use crate::hccl::matching::Matching;
use crate::hccl::shared_memory::work::SharedWork;
use crate::runtime::callback::HostFunction;
use crate::scheduler::pool::StreamTask;

pub(crate) enum ReadyLaunch {
    /// The head of a stream.
    Task { stream: u64, name: &'static str, task: StreamTask, is_brief: bool },
    /// A collective with all ranks arrived.
    Matching(Box<Matching>),
    /// This process's share of a collective.
    Share(Box<SharedWork>),
    /// A function of the program. It may block, so it runs on the card's own thread.
    HostFunction { stream: u64, card: u32, body: HostFunction },
}

impl ReadyLaunch {
    /// Returns whether a pool thread runs the work. Work that waits for other processes or for the
    /// program has separate threads.
    pub(crate) fn is_for_pool(&self) -> bool {
        match self {
            Self::Task { .. } | Self::Share(_) => true,
            Self::Matching(matching) => !matching.is_with_others(),
            Self::HostFunction { .. } => false,
        }
    }

    pub(crate) fn is_done_at_once(&self) -> bool {
        match self {
            Self::Task { is_brief, .. } => *is_brief,
            Self::Matching(matching) => matching.is_done_at_once(),
            Self::Share(_) | Self::HostFunction { .. } => false,
        }
    }
}

impl std::fmt::Debug for ReadyLaunch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task { stream, name, .. } => write!(f, "Task({name} on stream {stream})"),
            Self::Matching(matching) => write!(f, "{matching:?}"),
            Self::Share(work) => write!(f, "{work:?}"),
            Self::HostFunction { stream, .. } => write!(f, "HostFunction(on stream {stream})"),
        }
    }
}
