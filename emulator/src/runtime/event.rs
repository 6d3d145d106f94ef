//! Events: marks in streams that other streams and threads wait for.
//!
//! Input: records and waits in program order. Output: held and released streams, time stamps. Invariants: a wait and a
//! query mean the last record enqueued before them, a later record does not move them; an event never recorded counts
//! as complete (AscendCL guide). Does not: own queues (see `stream`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::base::failure::Failure;
use crate::base::site::Site;
use crate::strict::clock::Clock;

/// `ACL_EVENT_SYNC`: streams may wait for it.
pub(crate) const SYNC: u32 = 1;
/// `ACL_EVENT_CAPTURE_STREAM_PROGRESS`: it may be queried for a stream's progress.
pub(crate) const STREAM_PROGRESS: u32 = 2;
/// `ACL_EVENT_TIME_LINE`: it keeps time stamps.
pub(crate) const TIME_LINE: u32 = 8;
/// `ACL_EVENT_EXTERNAL`: streams record, await and reset it as a word, also those that are captured, so that what updates a
/// graph can hold its replay (vllm-ascend updates the lengths of attention so).
pub(crate) const EXTERNAL: u32 = 0x20;
/// `ACL_EVENT_IPC`: other processes may open it.
pub(crate) const IPC: u32 = 0x40;

/// How an event was made, which decides what it may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// `aclrtCreateEvent`: everything but reset.
    Plain,
    /// `aclrtCreateEventWithFlag`: what the flags say, and reset.
    WithFlag,
    /// `aclrtCreateEventExWithFlag`: what the flags say.
    ExWithFlag,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) card: u32,
    pub(crate) kind: EventKind,
    pub(crate) flags: u32,
    /// The last record enqueued.
    pub(crate) latest: Option<Arc<EventRecord>>,
}

/// One enqueued record of an event.
#[derive(Debug)]
pub(crate) struct EventRecord {
    pub(crate) event: u64,
    /// The stream it is enqueued on.
    pub(crate) stream: u64,
    /// The call that enqueued it, in strict mode.
    pub(crate) site: Option<Arc<Site>>,
    progress: Mutex<EventProgress>,
}

#[derive(Debug, Default)]
struct EventProgress {
    at: Option<Instant>,
    /// Why the stream will never reach it.
    lost: Option<Failure>,
    waiting: Vec<u64>,
    /// What happened before it, in strict mode, once its stream has reached it.
    clock: Option<Clock>,
}

impl EventRecord {
    pub(crate) fn new(event: u64, stream: u64, site: Option<Arc<Site>>) -> Self {
        Self { event, stream, site, progress: Mutex::default() }
    }

    /// Forgets that a stream waits for it.
    pub(crate) fn release(&self, stream: u64) {
        self.lock().waiting.retain(|waiting| *waiting != stream);
    }

    /// Its stream has reached it, after what `clock` says.
    pub(crate) fn set_clock(&self, clock: Clock) {
        self.lock().clock = Some(clock);
    }

    /// What happened before it, in strict mode.
    pub(crate) fn clock(&self) -> Option<Clock> {
        self.lock().clock.clone()
    }

    /// When the stream reached it.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.lock().at
    }

    /// Its stream has reached it at `at`. Gives the streams that wait for it.
    pub(super) fn complete(&self, at: Instant) -> Vec<u64> {
        let mut progress = self.lock();
        progress.at = Some(at);
        std::mem::take(&mut progress.waiting)
    }

    /// Its stream will never reach it. Gives the streams that wait for it.
    pub(super) fn lose(&self, why: &Failure) -> Vec<u64> {
        let mut progress = self.lock();
        progress.lost = Some(why.clone());
        std::mem::take(&mut progress.waiting)
    }

    /// Lets a stream wait for it, which is settled once it is done; true when it is, or never will be.
    pub(crate) fn wait_unless_over(&self, stream: u64) -> bool {
        let mut progress = self.lock();
        let is_open = progress.at.is_none() && progress.lost.is_none();
        if is_open {
            progress.waiting.push(stream);
        }
        !is_open
    }

    /// Why it will never be done.
    pub(crate) fn lost(&self) -> Option<Failure> {
        self.lock().lost.clone()
    }

    fn lock(&self) -> MutexGuard<'_, EventProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
