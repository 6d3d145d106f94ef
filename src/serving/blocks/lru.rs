//! Order of last use: input is a use of an id, output is the id that was used least recently.
//!
//! Invariant: stamps are unique and grow. Not here: the meaning of the ids.

use std::collections::BTreeMap;

/// Ids in the order of their last use.
#[derive(Debug, Default)]
pub(super) struct Lru {
    order: BTreeMap<u64, u32>,
    next: u64,
}

impl Lru {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds an id as the most recently used one. Returns its stamp.
    pub(super) fn push(&mut self, id: u32) -> u64 {
        let stamp = self.next;
        self.next += 1;
        self.order.insert(stamp, id);
        stamp
    }

    pub(super) fn remove(&mut self, stamp: u64) {
        self.order.remove(&stamp);
    }

    /// Removes the id that was used least recently.
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.order.pop_first().map(|(_, id)| id)
    }
}
