//! Notifies: one-bit flags between streams, set by one and awaited and cleared by another.
//!
//! Input: records and waits in stream order. Output: held and released streams. Invariant: one record releases one
//! wait; records do not add up. Does not: limit waits (see `scheduler::stream_wait`), or share between processes (see
//! `signal`, which a notify becomes when it is exported or imported).

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Notify {
    pub(crate) card: u32,
    pub(super) set: bool,
    pub(super) waiting: VecDeque<u64>,
}

impl Notify {
    pub(crate) fn new(card: u32) -> Self {
        Self { card, set: false, waiting: VecDeque::new() }
    }

    /// It is exported: whether it is set, unless a stream waits for it.
    pub(crate) fn export(&mut self) -> Option<bool> {
        self.waiting.is_empty().then(|| std::mem::take(&mut self.set))
    }
}
