//! Ready work, sleeping threads and the next time limit.
//!
//! Invariant: work that became ready under the lock goes to the pool before the lock is released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::scheduler::alarm::Alarm;
use crate::scheduler::launch::ReadyLaunch;
use crate::scheduler::stream_wait::StreamWaits;

#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) ready: Vec<u64>,
    pub(crate) launches: Vec<ReadyLaunch>,
    pub(crate) waits: StreamWaits,
    /// Threads blocked on the machine's `progress`.
    pub(crate) watchers: usize,
    pub(crate) has_progressed: bool,
    /// Alarm of the first time limit. Unused if a conductor checks the limits.
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) alarm_at: Option<Instant>,
    /// Clock of a strict machine (advanced by steps) or of a timed machine. `None` means the host's
    /// clock.
    pub(crate) clock: Option<Instant>,
    pub(crate) exec_timeout: Duration,
}

impl Scheduler {
    /// `clock` is the start of the machine's own time.
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

    /// A step takes one microsecond.
    pub(crate) fn tick(&mut self) {
        self.clock = self.clock.map(|clock| clock + Duration::from_micros(1));
    }

    /// Nothing else can happen before `at`.
    pub(crate) fn advance_clock(&mut self, at: Instant) {
        self.clock = self.clock.map(|clock| clock.max(at));
    }

    /// The machine has waited this time for other processes.
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
