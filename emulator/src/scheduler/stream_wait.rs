//! Waits of streams for values in memory, and time limits of waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::memory::raw::RawSpan;

#[derive(Debug)]
pub(super) struct WaitLimit {
    pub(super) until: Instant,
    pub(super) limit: Duration,
}

/// The comparisons `ACL_STREAM_WAIT_VALUE_…` of CANN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    /// The signed difference is not negative.
    GreaterOrEqual,
    Equal,
    /// A bit is set in both values.
    And,
    /// Some bit is clear in both values.
    Nor,
}

#[derive(Debug, Clone)]
pub(crate) struct ValueWait {
    /// Eight bytes to compare.
    pub(crate) place: RawSpan,
    pub(crate) value: u64,
    pub(crate) compare: Compare,
}

impl ValueWait {
    pub(super) fn is_met(&self) -> bool {
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

/// Time limits and value waits, by stream.
#[derive(Debug, Default)]
pub(crate) struct StreamWaits {
    /// Limits for the next wait.
    pub(super) ahead: BTreeMap<u64, Duration>,
    pub(super) limits: BTreeMap<u64, WaitLimit>,
    pub(super) values: BTreeMap<u64, ValueWait>,
}

impl StreamWaits {
    pub(crate) fn forget(&mut self, stream: u64) {
        self.limits.remove(&stream);
        self.values.remove(&stream);
    }

    pub(crate) fn next_limit(&self) -> Option<Instant> {
        self.limits.values().map(|limited| limited.until).min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::location::Location;
    use crate::memory::raw::Allocation;

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
