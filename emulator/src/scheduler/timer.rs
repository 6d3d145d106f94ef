//! The one timer: ends what has waited too long, whoever looks and whoever does not.
//!
//! Input: the time of the next limit, said whenever one begins. Output: at that time the machine's state ends the waits
//! whose limit is over (see [`State::next_expiry`]). Invariant: a limit is kept whatever the program's threads do meanwhile,
//! sleep, poll or compute. Does not: run in strict or timed mode, whose conductors take the same times from a virtual clock,
//! or end calls with a limit of their own, whose threads sleep no longer than that.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::machine::{Machine, State};

/// What the timer's thread sleeps on.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    next: Mutex<Next>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Next {
    at: Option<Instant>,
    is_closed: bool,
}

impl Alarm {
    /// Goes off at `at`, if not before.
    fn set(&self, at: Instant) {
        let mut next = self.lock();
        if next.at.is_none_or(|earlier| at < earlier) {
            next.at = Some(at);
            self.changed.notify_one();
        }
    }

    /// Sleeps until it goes off; false when it never will.
    fn wait(&self) -> bool {
        let mut next = self.lock();
        while !next.is_closed {
            let left = next.at.map(|at| at.saturating_duration_since(Instant::now()));
            next = match left {
                Some(left) if left.is_zero() => {
                    next.at = None;
                    return true;
                }
                Some(left) => self.changed.wait_timeout(next, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(next).unwrap_or_else(PoisonError::into_inner),
            };
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running thread; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Timer {
    alarm: Arc<Alarm>,
    handle: Option<JoinHandle<()>>,
}

impl Timer {
    /// Starts the thread for a machine without a conductor.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn start(machine: &Arc<Machine>) -> io::Result<Self> {
        let alarm = Arc::clone(&machine.lock().alarm);
        let (heard, machine) = (Arc::clone(&alarm), Arc::downgrade(machine));
        let handle = std::thread::Builder::new().name("ascend-timer".into()).spawn(move || run(&heard, &machine))?;
        Ok(Self { alarm, handle: Some(handle) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.alarm.lock().is_closed = true;
        self.alarm.changed.notify_one();
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != std::thread::current().id()
        {
            let _ = handle.join();
        }
    }
}

fn run(alarm: &Alarm, machine: &Weak<Machine>) {
    crate::runtime::thread::is_of_machine();
    while alarm.wait() {
        let Some(machine) = machine.upgrade() else { return };
        machine.update(State::expire);
    }
}

impl State {
    /// Something begins to wait, `until` then at most.
    pub(crate) fn limit(&mut self, until: Instant) {
        if !self.is_conducted() && self.alarm_at.is_none_or(|at| until < at) {
            self.alarm_at = Some(until);
            self.alarm.set(until);
        }
    }

    /// Ends what has waited too long, and sets the alarm for what is left.
    fn expire(&mut self) {
        self.alarm_at = None;
        self.expire_waits();
        self.expire_meetings();
        if let Some(next) = self.next_expiry() {
            self.limit(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_time_counts() {
        let alarm = Alarm::default();
        let now = Instant::now();
        alarm.set(now + Duration::from_secs(3600));
        alarm.set(now);
        alarm.set(now + Duration::from_secs(1800));
        assert!(alarm.wait(), "it goes off at once");
        assert_eq!(alarm.lock().at, None, "and says when again only if told");
        alarm.lock().is_closed = true;
        alarm.set(now);
        assert!(!alarm.wait());
    }
}
