//! Slots of recurrent layers: one state per sequence, and snapshots of states at block borders.
//!
//! - Input: sequences that start and end, and the content before each saved state.
//! - Output: slot ids and snapshot ids.
//! - Invariants: snapshots take at most the budget in bytes. A reserved snapshot is found only
//!   after [`SlotPool::commit`].
//! - Not here: the copies themselves. A step loads snapshots before its programs and saves them
//!   after. So a step can evict the snapshot that it loads.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::lru::Lru;
use super::prefix::Content;
use crate::base::{Id as _, define_id};

define_id!(
    /// The state of one sequence in all recurrent layers. If drafts are verified, a slot has one
    /// state per draft position.
    SlotId,
    "slot"
);

impl SlotId {
    /// The slot of padding rows.
    pub const NULL: Self = Self(0);
}

define_id!(
    /// A saved state of a sequence at a block border.
    SnapshotId,
    "snapshot"
);

#[derive(Clone, Debug, Default)]
struct Snapshot {
    content: Option<Arc<Content>>,
    stamp: u64,
}

/// Slots, and the index of snapshots.
#[derive(Debug)]
pub struct SlotPool {
    free: Vec<SlotId>,
    is_taken: Vec<bool>,
    snapshots: Vec<Snapshot>,
    free_snapshots: Vec<SnapshotId>,
    /// Committed snapshots in the order of last use.
    used: Lru,
    index: FxHashMap<u128, SnapshotId>,
}

impl SlotPool {
    /// Creates a pool of `slots` slots, the null slot included. Snapshots of `snapshot_bytes` each
    /// take at most `budget_bytes`.
    #[must_use]
    pub fn new(slots: u32, snapshot_bytes: u64, budget_bytes: u64) -> Self {
        let snapshots = budget_bytes.checked_div(snapshot_bytes).unwrap_or(0);
        let snapshots = u32::try_from(snapshots).unwrap_or(u32::MAX);
        Self {
            free: (1..slots).rev().map(SlotId).collect(),
            is_taken: vec![false; slots as usize],
            snapshots: vec![Snapshot::default(); snapshots as usize],
            free_snapshots: (0..snapshots).rev().map(SnapshotId).collect(),
            used: Lru::default(),
            index: FxHashMap::default(),
        }
    }

    /// Returns the number of free slots.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of snapshots that fit the budget.
    #[must_use]
    pub fn snapshots(&self) -> usize {
        self.snapshots.len()
    }

    /// Takes a slot. Returns `None` if all slots are taken.
    pub fn allocate(&mut self) -> Option<SlotId> {
        let id = self.free.pop()?;
        self.is_taken[id.index()] = true;
        Some(id)
    }

    /// Returns a slot to the pool.
    ///
    /// # Panics
    /// The slot is free.
    pub fn release(&mut self, id: SlotId) {
        assert!(self.is_taken[id.index()], "{id} is released while free");
        self.is_taken[id.index()] = false;
        self.free.push(id);
    }

    /// Returns the snapshot of the state after this content. Compares the tokens in addition to
    /// the hash.
    #[must_use]
    pub fn find(&self, content: &Content) -> Option<SnapshotId> {
        let id = *self.index.get(&content.hash())?;
        let found = self.snapshots[id.index()].content.as_deref()?;
        (found == content).then_some(id)
    }

    /// Marks a committed snapshot as the most recently used one.
    pub fn touch(&mut self, id: SnapshotId) {
        let snapshot = &mut self.snapshots[id.index()];
        if snapshot.content.is_some() {
            self.used.remove(snapshot.stamp);
            snapshot.stamp = self.used.push(id.0);
        }
    }

    /// Takes a snapshot for a save. If none is free, the least recently used one is forgotten.
    /// Returns `None` if the budget is zero or all snapshots are reserved.
    pub fn reserve(&mut self) -> Option<SnapshotId> {
        if let Some(id) = self.free_snapshots.pop() {
            return Some(id);
        }
        let id = SnapshotId(self.used.pop()?);
        if let Some(content) = self.snapshots[id.index()].content.take() {
            self.index.remove(&content.hash());
        }
        Some(id)
    }

    /// Makes a reserved snapshot available to prefix hits.
    ///
    /// If the index has a snapshot with the same hash, the reserved one becomes free.
    pub fn commit(&mut self, id: SnapshotId, content: &Arc<Content>) {
        if self.index.contains_key(&content.hash()) {
            self.discard(id);
            return;
        }
        self.index.insert(content.hash(), id);
        self.snapshots[id.index()] =
            Snapshot { content: Some(Arc::clone(content)), stamp: self.used.push(id.0) };
    }

    /// Frees all snapshots, reserved ones included.
    pub(super) fn forget(&mut self) {
        self.snapshots.fill(Snapshot::default());
        self.free_snapshots = (0..self.snapshots.len()).rev().map(SnapshotId::from_index).collect();
        self.used = Lru::default();
        self.index.clear();
    }

    /// Frees a reserved snapshot of a void row.
    pub fn discard(&mut self, id: SnapshotId) {
        self.free_snapshots.push(id);
    }
}
