//! What a timed machine keeps of a stream.

use std::sync::Arc;

use crate::base::failure::Failure;
use crate::timed::timeline::LoadRun;

/// What a timed machine keeps of a stream.
#[derive(Debug)]
pub(crate) struct StreamTime {
    /// Its number on its card, in the order of making.
    ordinal: u32,
    /// When its last entry ended.
    pub(super) at_ns: u64,
    /// When the entry under way was issued, and when the stream came to it.
    issued_ns: u64,
    arrived_ns: u64,
    /// How long the stream had nothing to do before the entry under way was issued.
    starved_ns: u64,
    /// The load under way ends then.
    pub(super) ends_ns: Option<u64>,
    /// Why the load under way fails when it ends.
    pub(super) outcome: Option<Failure>,
    /// An event of this stream is ahead.
    pub(super) is_due: bool,
    /// A thread waits for this many entries to end.
    pub(super) wake_at: u64,
}

impl StreamTime {
    /// Of the `ordinal`-th stream of its card.
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

    /// When the last entry ended.
    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// The stream is not done with what it did last before this.
    pub(crate) fn raise(&mut self, ns: u64) {
        self.at_ns = self.at_ns.max(ns);
    }

    /// The stream has come at `now_ns` to an entry issued at `issued_ns`.
    pub(crate) fn begin(&mut self, issued_ns: u64, now_ns: u64) {
        (self.issued_ns, self.arrived_ns) = (issued_ns, now_ns);
        self.starved_ns = issued_ns.saturating_sub(self.at_ns);
    }

    /// The entry under way has ended; whether that may be the end of a thread's wait.
    pub(crate) fn end(&mut self, now_ns: u64, finished: u64) -> bool {
        self.raise(now_ns);
        finished >= self.wake_at
    }

    pub(super) fn run<'a>(&self, card: u32, tag: Option<&'a Arc<str>>, start_ns: u64, end_ns: u64) -> LoadRun<'a> {
        let Self { ordinal, issued_ns, starved_ns, arrived_ns, .. } = *self;
        LoadRun { card, stream: ordinal, tag, issued_ns, starved_ns, arrived_ns, start_ns, end_ns }
    }
}
