//! Where ranks wait for each other before they meet: a rank that cannot take its memory never comes to a meeting, and the
//! others must not wait for it there.
//!
//! Input → output: every local rank says that it is ready; whoever opens the gate hands all of them the meetings.
//! Invariant: a rank that will never be ready closes the gate for all at once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::device::RootInfo;

/// A group of ranks and the token by which they find each other.
pub(super) type Meeting = (Vec<usize>, RootInfo);

/// The gate of one process' ranks.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: usize,
    failed: bool,
    open: Option<Arc<Vec<Meeting>>>,
}

impl Gate {
    /// A rank is ready: waits for the gate to open. None as soon as a rank has failed.
    pub(super) fn pass(&self) -> Option<Arc<Vec<Meeting>>> {
        let mut state = self.lock();
        state.ready += 1;
        self.changed.notify_all();
        loop {
            if state.failed {
                return None;
            }
            if let Some(meetings) = &state.open {
                return Some(Arc::clone(meetings));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `ranks` ranks are ready. Whether they are; false as soon as one has failed.
    pub(super) fn wait_for(&self, ranks: usize) -> bool {
        let mut state = self.lock();
        while state.ready < ranks && !state.failed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.failed
    }

    /// Lets all ranks pass.
    pub(super) fn open(&self, meetings: Vec<Meeting>) {
        self.lock().open = Some(Arc::new(meetings));
        self.changed.notify_all();
    }

    /// A rank, here or in another process, will never be ready.
    pub(super) fn fail(&self) {
        self.lock().failed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_pass_once_it_is_opened() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.pass().is_some())).collect();
            assert!(gate.wait_for(3));
            gate.open(Vec::new());
            assert!(ranks.into_iter().all(|rank| rank.join().unwrap()));
        });
    }

    #[test]
    fn one_that_fails_closes_it_for_all() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..2).map(|_| scope.spawn(|| gate.pass().is_some())).collect();
            scope.spawn(|| gate.fail());
            assert!(!gate.wait_for(3));
            assert!(ranks.into_iter().all(|rank| !rank.join().unwrap()));
        });
    }
}
