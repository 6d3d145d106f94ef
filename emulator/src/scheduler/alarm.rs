//! The alarm of the timer thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Alarm {
    next: Mutex<AlarmTime>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AlarmTime {
    at: Option<Instant>,
    is_closed: bool,
}

impl Alarm {
    pub(super) fn set(&self, at: Instant) {
        let mut next = self.lock();
        if next.at.is_none_or(|earlier| at < earlier) {
            next.at = Some(at);
            self.changed.notify_one();
        }
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    pub(super) fn wait(&self) -> bool {
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

    fn lock(&self) -> MutexGuard<'_, AlarmTime> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
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
