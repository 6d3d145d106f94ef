//! Notifies: one-bit flags that one stream sets and another awaits and clears.
//!
//! Invariant: one record releases one wait; records do not accumulate. An exported or imported
//! notify becomes a `signal`.

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

    /// Clears and returns the flag. `None` if a stream waits.
    pub(crate) fn export(&mut self) -> Option<bool> {
        self.waiting.is_empty().then(|| std::mem::take(&mut self.set))
    }
}
