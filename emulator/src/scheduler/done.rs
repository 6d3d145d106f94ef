//! How far a stream has come, for the threads that wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, OnceLock};

use crate::scheduler::bell::Bell;

/// What a thread that waits for a stream watches.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Entries that have ended, to be looked at without the machine's lock.
    pub(super) finished: AtomicU64,
    pub(super) changed: Condvar,
    /// On which threads sleep instead, once there is one.
    pub(super) bell: OnceLock<Arc<Bell>>,
}

impl Done {
    /// So many entries have ended.
    pub(crate) fn set(&self, finished: u64) {
        self.finished.store(finished, Ordering::Release);
    }

    /// Lets the threads that wait look again.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
        if let Some(bell) = self.bell.get() {
            bell.wake();
        }
    }
}
