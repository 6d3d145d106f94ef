//! Work that has become ready under the machine's lock.
//!
//! Input: heads of queues, collectives whose ranks have all arrived. Output: the same, for whoever runs them. Does not: run
//! anything (see `machine`, and the conductors of strict and timed mode).

use crate::hccl::meeting::Meeting;
use crate::hccl::shared_work::SharedWork;
use crate::runtime::callback::HostFunction;
use crate::scheduler::pool::Task;

/// Work for the pool.
pub(crate) enum Launch {
    /// The head of a stream.
    Task { stream: u64, name: &'static str, task: Task, is_brief: bool },
    /// A collective all of whose ranks have arrived.
    Meeting(Box<Meeting>),
    /// This process's share of one that several processes move together.
    Share(Box<SharedWork>),
    /// A function of the program, for the card's own thread: it may block, and must not take a core from the cards.
    HostFunction { stream: u64, card: u32, body: HostFunction },
}

impl Launch {
    /// Whether a thread of the pool runs it; what waits for other processes or for the program has threads of its own.
    pub(crate) fn is_for_pool(&self) -> bool {
        match self {
            Self::Task { .. } | Self::Share(_) => true,
            Self::Meeting(meeting) => !meeting.is_with_others(),
            Self::HostFunction { .. } => false,
        }
    }

    /// Whether it takes less than to wake a thread for it.
    pub(crate) fn is_done_at_once(&self) -> bool {
        match self {
            Self::Task { is_brief, .. } => *is_brief,
            Self::Meeting(meeting) => meeting.is_done_at_once(),
            Self::Share(_) | Self::HostFunction { .. } => false,
        }
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task { stream, name, .. } => write!(f, "Task({name} on stream {stream})"),
            Self::Meeting(meeting) => write!(f, "{meeting:?}"),
            Self::Share(work) => write!(f, "{work:?}"),
            Self::HostFunction { stream, .. } => write!(f, "HostFunction(on stream {stream})"),
        }
    }
}
