//! Progress of a stream, for waiting threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, OnceLock};

use crate::scheduler::bell::Bell;

#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Ended entries, readable without the machine's lock.
    pub(super) finished: AtomicU64,
    pub(super) changed: Condvar,
    /// Threads sleep on these notifications instead, if set.
    pub(super) bell: OnceLock<Arc<Bell>>,
}

impl Done {
    pub(crate) fn set(&self, finished: u64) {
        self.finished.store(finished, Ordering::Release);
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_all();
        if let Some(bell) = self.bell.get() {
            bell.wake();
        }
    }
}
