//! Ready work, sleeping threads and the next time limit.
//!
//! Input: streams with a possibly ready head, work, time limits. Output: the same, for the threads
//! that continue them. Invariant: work that became ready under the lock goes to the pool before the
//! lock is released. Not here: readiness (see `queues`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::scheduler::alarm::Alarm;
use crate::scheduler::launch::Launch;
use crate::scheduler::stream_wait::StreamWaits;

#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) ready: Vec<u64>,
    pub(crate) launches: Vec<Launch>,
    pub(crate) waits: StreamWaits,
    /// Number of threads blocked on the machine's `progress`.
    pub(crate) watchers: usize,
    /// A condition that a watcher waits for may have changed.
    pub(crate) has_progressed: bool,
    /// Alarm of the first time limit, and its time. Unused if a conductor checks the limits.
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) alarm_at: Option<Instant>,
    /// Clock of a strict machine, which advances with its steps, or of a timed machine. `None` if
    /// the host's clock applies.
    pub(crate) clock: Option<Instant>,
    pub(crate) exec_timeout: Duration,
}

impl Scheduler {
    /// Creates a scheduler without work. `clock` is the start of the machine's own time, if it has
    /// one.
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

    pub(crate) fn now(&self) -> Instant {
        self.clock.unwrap_or_else(Instant::now)
    }

    pub(crate) fn is_conducted(&self) -> bool {
        self.clock.is_some()
    }

    /// Advances a strict machine's clock by one step of a microsecond.
    pub(crate) fn tick(&mut self) {
        self.clock = self.clock.map(|clock| clock + Duration::from_micros(1));
    }

    /// Advances a strict machine's clock to `at`, because nothing else can happen before.
    pub(crate) fn advance_clock(&mut self, at: Instant) {
        self.clock = self.clock.map(|clock| clock.max(at));
    }

    /// Advances a strict machine's clock by the time it has waited for other processes.
    pub(crate) fn wind_clock(&mut self, by: Duration) {
        self.clock = self.clock.map(|clock| clock + by);
    }

    pub(crate) fn limit(&mut self, until: Instant) {
        if !self.is_conducted() && self.alarm_at.is_none_or(|at| until < at) {
            self.alarm_at = Some(until);
            self.alarm.set(until);
        }
    }
}
