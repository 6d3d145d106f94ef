//! What is ready, who sleeps, and when the first limit is over.
//!
//! Input: streams whose head may have become ready, work, limits. Output: the same, for whoever goes on with them. Invariant:
//! work that became ready under the lock goes to the pool before it is released. Does not: decide what is ready (see
//! `queues`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::scheduler::alarm::Alarm;
use crate::scheduler::launch::Launch;
use crate::scheduler::stream_wait::StreamWaits;

/// The part of the state that is the scheduler's.
#[derive(Debug)]
pub(crate) struct Scheduler {
    /// Streams whose head may have become ready.
    pub(crate) ready: Vec<u64>,
    /// Work that became ready.
    pub(crate) launches: Vec<Launch>,
    /// Limits and value waits of streams.
    pub(crate) waits: StreamWaits,
    /// Threads blocked on the machine's `progress`.
    pub(crate) watchers: usize,
    /// Something a watcher may wait for has changed.
    pub(crate) has_progressed: bool,
    /// Goes off when the first limit is over, where no conductor sees to that; and for when it is set.
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) alarm_at: Option<Instant>,
    /// The time of a strict machine, which goes on with its steps, or of a timed one; None where the host's clock counts.
    pub(crate) clock: Option<Instant>,
    /// How long a collective waits for its last rank.
    pub(crate) exec_timeout: Duration,
}

impl Scheduler {
    /// A scheduler without work; `clock` is where the machine's own time begins, if it has one.
    pub(crate) fn new(clock: Option<Instant>, exec_timeout: Duration) -> Self {
        Self {
            ready: Vec::new(),
            launches: Vec::new(),
            waits: StreamWaits::default(),
            watchers: 0,
            has_progressed: false,
            alarm: Arc::default(),
            alarm_at: None,
            clock,
            exec_timeout,
        }
    }

    /// Now, for time stamps and limits.
    pub(crate) fn now(&self) -> Instant {
        self.clock.unwrap_or_else(Instant::now)
    }

    /// Whether a conductor starts what is ready.
    pub(crate) fn is_conducted(&self) -> bool {
        self.clock.is_some()
    }

    /// A step of a strict machine takes a microsecond of its time.
    pub(crate) fn tick(&mut self) {
        self.clock = self.clock.map(|clock| clock + Duration::from_micros(1));
    }

    /// A strict machine's time goes on to `at`, because nothing else can happen before.
    pub(crate) fn advance_clock(&mut self, at: Instant) {
        self.clock = self.clock.map(|clock| clock.max(at));
    }

    /// A strict machine's time goes on by so much, which it has waited for other processes.
    pub(crate) fn wind_clock(&mut self, by: Duration) {
        self.clock = self.clock.map(|clock| clock + by);
    }

    /// Something in a queue begins to wait, `until` then at most.
    pub(crate) fn limit(&mut self, until: Instant) {
        if !self.is_conducted() && self.alarm_at.is_none_or(|at| until < at) {
            self.alarm_at = Some(until);
            self.alarm.set(until);
        }
    }
}
