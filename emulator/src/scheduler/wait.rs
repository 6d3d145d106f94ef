//! What a blocked call waits for.
//!
//! Input: the call's own condition as data. Output: the same, for whoever looks whether it is fulfilled (see
//! `State::is_over`). Does not: block (see `turnstile`).

use std::sync::Arc;
use std::time::Instant;

use crate::runtime::event::EventRecord;

/// The condition of a blocked call.
#[derive(Debug, Clone)]
pub(crate) enum Wait {
    /// The first `target` entries of a stream have ended.
    Stream { stream: u64, target: u64 },
    /// A record of an event is done.
    Record(Arc<EventRecord>),
    /// All ranks of a communicator that is being built have come.
    Gathering { root: u64, rank: u32 },
    /// All processes of a communicator have entered it.
    Entering { group: u64 },
    /// A callback has been posted for a thread.
    Callback { thread: u64 },
    /// The cards of a timed machine have come to this time.
    Time(Instant),
}

impl Wait {
    /// The stream the call waits for.
    pub(crate) fn stream(&self) -> Option<u64> {
        match self {
            Self::Stream { stream, .. } => Some(*stream),
            Self::Record(record) => Some(record.stream),
            Self::Gathering { .. } | Self::Entering { .. } | Self::Callback { .. } | Self::Time(_) => None,
        }
    }
}
