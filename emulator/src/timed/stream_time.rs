//! Virtual time of one stream.

use std::sync::Arc;

use crate::base::failure::Failure;
use crate::timed::timeline::LoadRun;

#[derive(Debug)]
pub(crate) struct StreamTime {
    /// Index on the card, in order of creation.
    ordinal: u32,
    pub(super) at_ns: u64,
    /// Issue of the running entry; the next field is its arrival.
    issued_ns: u64,
    arrived_ns: u64,
    /// Idle time before the running entry was issued.
    starved_ns: u64,
    pub(super) ends_ns: Option<u64>,
    /// Returned at the end of the load.
    pub(super) outcome: Option<Failure>,
    pub(super) is_due: bool,
    /// Finished entries that a thread waits for.
    pub(super) wake_at: u64,
}

impl StreamTime {
    pub(crate) fn new(ordinal: u32) -> Self {
        Self {
            ordinal,
            at_ns: 0,
            issued_ns: 0,
            arrived_ns: 0,
            starved_ns: 0,
            ends_ns: None,
            outcome: None,
            is_due: false,
            wake_at: u64::MAX,
        }
    }

    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// The last entry ends at `ns` or later.
    pub(crate) fn raise(&mut self, ns: u64) {
        self.at_ns = self.at_ns.max(ns);
    }

    pub(crate) fn begin(&mut self, issued_ns: u64, now_ns: u64) {
        (self.issued_ns, self.arrived_ns) = (issued_ns, now_ns);
        self.starved_ns = issued_ns.saturating_sub(self.at_ns);
    }

    pub(crate) fn end(&mut self, now_ns: u64, finished: u64) -> bool {
        self.raise(now_ns);
        finished >= self.wake_at
    }

    pub(super) fn run<'a>(
        &self,
        card: u32,
        tag: Option<&'a Arc<str>>,
        start_ns: u64,
        end_ns: u64,
    ) -> LoadRun<'a> {
        let Self { ordinal, issued_ns, starved_ns, arrived_ns, .. } = *self;
        LoadRun { card, stream: ordinal, tag, issued_ns, starved_ns, arrived_ns, start_ns, end_ns }
    }
}
