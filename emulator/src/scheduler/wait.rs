//! Conditions of blocked calls.
//!
//! Input: the condition of a call as data. Output: the same, for the code that checks it (see
//! `State::is_over`). Not here: blocking (see `turnstile`).

use std::sync::Arc;
use std::time::Instant;

use crate::runtime::event::EventRecord;

#[derive(Debug, Clone)]
pub(crate) enum Wait {
    /// The first `target` entries of a stream have ended.
    Stream { stream: u64, target: u64 },
    /// A record of an event is complete.
    Record(Arc<EventRecord>),
    /// The last rank of a communicator under construction has arrived.
    Rendezvous { root: u64, rank: u32 },
    /// The last process of a communicator has entered it.
    Entering { communicator: u64 },
    /// A callback is pending for a thread.
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
