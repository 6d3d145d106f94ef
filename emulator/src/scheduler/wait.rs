//! Conditions of blocked calls as data (see `MachineState::is_over`).

use std::sync::Arc;
use std::time::Instant;

use crate::runtime::event::EventRecord;

#[derive(Debug, Clone)]
pub(crate) enum Wait {
    /// The first `target` entries have ended.
    Stream { stream: u64, target: u64 },
    /// A record is complete.
    Record(Arc<EventRecord>),
    /// The last rank has arrived at a new communicator.
    Rendezvous { root: u64, rank: u32 },
    /// The last process has entered a communicator.
    Entering { communicator: u64 },
    /// A callback is pending.
    Callback { thread: u64 },
    /// The cards of a timed machine have reached this time.
    Time(Instant),
}

impl Wait {
    pub(crate) fn stream(&self) -> Option<u64> {
        match self {
            Self::Stream { stream, .. } => Some(*stream),
            Self::Record(record) => Some(record.stream),
            Self::Rendezvous { .. } | Self::Entering { .. } | Self::Callback { .. } | Self::Time(_) => None,
        }
    }
}
