//! Events: marks in streams that other streams and threads wait for.
//!
//! Invariants: a wait or query refers to the last record enqueued before it. An event that was
//! never recorded counts as complete (AscendCL guide).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::base::failure::Failure;
use crate::base::site::CallSite;
use crate::strict::clock::ActorClock;

/// `ACL_EVENT_SYNC`: streams may wait for the event.
pub(crate) const SYNC: u32 = 1;
/// `ACL_EVENT_CAPTURE_STREAM_PROGRESS`: the program may query the stream's progress.
pub(crate) const STREAM_PROGRESS: u32 = 2;
/// `ACL_EVENT_TIME_LINE`: the event keeps time stamps.
pub(crate) const TIME_LINE: u32 = 8;
/// `ACL_EVENT_EXTERNAL`: streams set, await and reset the event as a word. Captured streams may do
/// so too: vllm-ascend updates the lengths of attention during a replay in this way.
pub(crate) const EXTERNAL: u32 = 0x20;
/// `ACL_EVENT_IPC`: other processes may open the event.
pub(crate) const IPC: u32 = 0x40;

/// The creating function decides the permitted uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// `aclrtCreateEvent` permits every use except reset.
    Plain,
    /// `aclrtCreateEventWithFlag` permits the uses of the flags, and reset.
    WithFlag,
    /// `aclrtCreateEventExWithFlag` permits the uses of the flags.
    ExWithFlag,
}

#[derive(Debug)]
pub(crate) struct EventState {
    pub(crate) card: u32,
    pub(crate) kind: EventKind,
    pub(crate) flags: u32,
    pub(crate) latest: Option<Arc<EventRecord>>,
}

#[derive(Debug)]
pub(crate) struct EventRecord {
    pub(crate) event: u64,
    pub(crate) stream: u64,
    /// `None` outside strict mode.
    pub(crate) site: Option<Arc<CallSite>>,
    progress: Mutex<EventProgress>,
}

#[derive(Debug, Default)]
struct EventProgress {
    at: Option<Instant>,
    /// Why the stream will never reach the record.
    lost: Option<Failure>,
    waiting: Vec<u64>,
    /// Work ordered before the record, in strict mode. Set when the stream reaches the record.
    clock: Option<ActorClock>,
}

impl EventRecord {
    pub(crate) fn new(event: u64, stream: u64, site: Option<Arc<CallSite>>) -> Self {
        Self { event, stream, site, progress: Mutex::default() }
    }

    pub(crate) fn release(&self, stream: u64) {
        self.lock().waiting.retain(|waiting| *waiting != stream);
    }

    pub(crate) fn set_clock(&self, clock: ActorClock) {
        self.lock().clock = Some(clock);
    }

    pub(crate) fn clock(&self) -> Option<ActorClock> {
        self.lock().clock.clone()
    }

    /// Returns the time at which the stream reached the record.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.lock().at
    }

    /// Returns the waiting streams.
    pub(super) fn complete(&self, at: Instant) -> Vec<u64> {
        let mut progress = self.lock();
        progress.at = Some(at);
        std::mem::take(&mut progress.waiting)
    }

    /// Returns the waiting streams.
    pub(super) fn lose(&self, why: &Failure) -> Vec<u64> {
        let mut progress = self.lock();
        progress.lost = Some(why.clone());
        std::mem::take(&mut progress.waiting)
    }

    /// Returns true if there is nothing to wait for.
    pub(crate) fn wait_unless_over(&self, stream: u64) -> bool {
        let mut progress = self.lock();
        let is_open = progress.at.is_none() && progress.lost.is_none();
        if is_open {
            progress.waiting.push(stream);
        }
        !is_open
    }

    pub(crate) fn lost(&self) -> Option<Failure> {
        self.lock().lost.clone()
    }

    fn lock(&self) -> MutexGuard<'_, EventProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
