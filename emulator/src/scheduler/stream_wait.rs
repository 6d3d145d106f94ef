//! Streams that are held, and what ends the hold other than the thing they wait for: a time limit, or a value in memory.
//!
//! Input: limits set ahead of a wait (`aclrtWaitAndResetNotify`, `aclrtStreamWaitEventWithFlag`), waits for a value
//! (`aclrtValueWait`). Output: streams settled, with an error when the limit is over. Invariants: a limit belongs to the next
//! entry of its stream only; values are compared whenever work ends or a call changes the scheduling state, so nothing
//! polls. Does not: see a value that another process writes before the next such moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::machine::State;
use crate::memory::raw::RawSpan;
use crate::runtime::stream::Hold;

#[derive(Debug)]
struct Limited {
    until: Instant,
    limit: Duration,
}

/// How a value in memory is compared (`ACL_STREAM_WAIT_VALUE_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    /// The difference, as a signed number, is not negative.
    GreaterOrEqual,
    Equal,
    /// They share a set bit.
    And,
    /// Some bit is set in neither.
    Nor,
}

/// A wait for a value in memory.
#[derive(Debug, Clone)]
pub(crate) struct ValueWait {
    /// Eight bytes.
    pub(crate) place: RawSpan,
    pub(crate) value: u64,
    pub(crate) compare: Compare,
}

impl ValueWait {
    fn is_met(&self) -> bool {
        let mut found = [0_u64];
        self.place.read(0, &mut found);
        match self.compare {
            Compare::GreaterOrEqual => found[0].wrapping_sub(self.value).cast_signed() >= 0,
            Compare::Equal => found[0] == self.value,
            Compare::And => found[0] & self.value != 0,
            Compare::Nor => !(found[0] | self.value) != 0,
        }
    }
}

/// Limits and value waits of a machine's streams, by stream.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// For the wait that comes next.
    ahead: BTreeMap<u64, Duration>,
    limits: BTreeMap<u64, Limited>,
    values: BTreeMap<u64, ValueWait>,
}

impl Held {
    /// The stream is held no longer.
    pub(crate) fn forget(&mut self, stream: u64) {
        self.limits.remove(&stream);
        self.values.remove(&stream);
    }

    /// When the first limit is over.
    pub(crate) fn next_limit(&self) -> Option<Instant> {
        self.limits.values().map(|limited| limited.until).min()
    }
}

impl State {
    /// The next wait of a stream has a limit.
    pub(crate) fn limit_next_wait(&mut self, stream: u64, limit: Duration) {
        self.held.ahead.insert(stream, limit);
    }

    /// A wait of a stream was over at once: a limit set ahead of it has no object.
    pub(crate) fn drop_limit(&mut self, stream: u64) {
        self.held.ahead.remove(&stream);
    }

    /// A stream is held from now on.
    pub(crate) fn hold(&mut self, stream: u64, by: Hold) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.hold = Some(by);
        }
        if let Some(limit) = self.held.ahead.remove(&stream) {
            let until = self.now() + limit;
            self.held.limits.insert(stream, Limited { until, limit });
            self.limit(until);
        }
    }

    /// Fails the streams whose limit is over.
    pub(crate) fn expire_limits(&mut self) {
        if self.held.limits.is_empty() {
            return;
        }
        let now = self.now();
        let due = |(stream, limited): (&u64, &Limited)| (limited.until <= now).then_some(*stream);
        let due: Vec<u64> = self.held.limits.iter().filter_map(due).collect();
        for stream in due {
            let Some(limited) = self.held.limits.remove(&stream) else { continue };
            let what = match self.streams.get(&stream).and_then(|stream| stream.hold.clone()) {
                Some(Hold::Notify(notify)) => {
                    self.leave_notify(notify, stream);
                    format!("notify {notify} was not recorded")
                }
                Some(Hold::Signal(event)) => {
                    self.leave_signal(event, stream);
                    format!("event {event} was not recorded")
                }
                Some(Hold::Record(record)) => {
                    record.release(stream);
                    "the event was not recorded".to_owned()
                }
                _ => continue,
            };
            let what = format!("{what} within the limit of {} s", limited.limit.as_secs());
            self.settle(stream, Err(Failure::new(code::TASK_TIMEOUT, what)));
        }
    }

    /// A stream has reached a wait for a value.
    pub(crate) fn await_value(&mut self, wait: ValueWait, stream: u64) {
        if wait.is_met() {
            self.settle(stream, Ok(()));
        } else {
            self.hold(stream, Hold::Value(wait.place.address()));
            self.held.values.insert(stream, wait);
        }
    }

    /// Lets the streams go on whose value has come.
    pub(crate) fn recheck_values(&mut self) {
        if self.held.values.is_empty() {
            return;
        }
        let met: Vec<u64> =
            self.held.values.iter().filter(|(_, wait)| wait.is_met()).map(|(stream, _)| *stream).collect();
        for stream in met {
            self.settle(stream, Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::raw::{Allocation, Location};

    #[test]
    fn values_compare_as_documented() {
        let memory = Arc::new(Allocation::new(8, Location::Card(0), None).expect("mapping"));
        let is_met = |found: u64, compare, value| {
            memory.span(0, 8).write(0, &[found]);
            ValueWait { place: memory.span(0, 8), value, compare }.is_met()
        };
        assert!(is_met(5, Compare::GreaterOrEqual, 5) && is_met(2, Compare::GreaterOrEqual, u64::MAX));
        assert!(!is_met(4, Compare::GreaterOrEqual, 5));
        assert!(is_met(5, Compare::Equal, 5) && !is_met(6, Compare::Equal, 5));
        assert!(is_met(6, Compare::And, 2) && !is_met(6, Compare::And, 1));
        assert!(is_met(1, Compare::Nor, 2) && !is_met(!1, Compare::Nor, 1));
    }
}
