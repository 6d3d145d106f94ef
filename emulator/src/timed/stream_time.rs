//! Virtual time of one stream.

use std::sync::Arc;

use crate::base::failure::Failure;
use crate::timed::timeline::LoadRun;

#[derive(Debug)]
pub(crate) struct StreamTime {
    /// Index of the stream on its card, in order of creation.
    ordinal: u32,
    /// End of the last entry.
    pub(super) at_ns: u64,
    /// Issue time of the running entry; the next field is the time when the stream reached it.
    issued_ns: u64,
    arrived_ns: u64,
    /// Idle time of the stream before the running entry was issued.
    starved_ns: u64,
    pub(super) ends_ns: Option<u64>,
    /// Failure of the running load, returned at its end.
    pub(super) outcome: Option<Failure>,
    /// True if an event of this stream is pending.
    pub(super) is_due: bool,
    /// Number of finished entries that a thread waits for.
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

    /// Extends the end of the stream's last entry to at least `ns`.
    pub(crate) fn raise(&mut self, ns: u64) {
        self.at_ns = self.at_ns.max(ns);
    }

    /// Records that the stream reached an entry at `now_ns` that was issued at `issued_ns`.
    pub(crate) fn begin(&mut self, issued_ns: u64, now_ns: u64) {
        (self.issued_ns, self.arrived_ns) = (issued_ns, now_ns);
        self.starved_ns = issued_ns.saturating_sub(self.at_ns);
    }

    /// Records the end of an entry. Returns true if the wait of a thread may have ended.
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
