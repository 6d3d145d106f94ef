//! Synchronises the local ranks before they join communicators: a rank that cannot allocate its
//! memory never joins, so the other ranks must not wait for this rank.
//!
//! Invariant: a rank that ends early closes the gate, because its channel is dropped.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::device::RootInfo;

pub(super) type GroupRoot = (Vec<usize>, RootInfo);

pub(super) type GroupRoots = Arc<Vec<GroupRoot>>;

/// Dropping it before it opens releases the ranks without tokens.
#[derive(Default)]
pub(super) struct Gate {
    ranks: Vec<(Receiver<()>, Sender<GroupRoots>)>,
}

/// Dropping it reports that the rank will never be ready.
pub(super) struct Entrance {
    ready: Sender<()>,
    meetings: Receiver<GroupRoots>,
}

impl Gate {
    pub(super) fn entrance(&mut self) -> Entrance {
        let ((ready, is_ready), (open, meetings)) = (bounded(1), bounded(1));
        self.ranks.push((is_ready, open));
        Entrance { ready, meetings }
    }

    pub(super) fn wait(&self) -> bool {
        self.ranks.iter().all(|(ready, _)| ready.recv().is_ok())
    }

    pub(super) fn open(self, meetings: Vec<GroupRoot>) {
        let meetings = Arc::new(meetings);
        for (_, rank) in self.ranks {
            // A rank that is gone reports the cause in its answer.
            let _gone = rank.send(Arc::clone(&meetings));
        }
    }
}

impl Entrance {
    /// Waits for the gate to open. `None` if any rank, in any process, will never be ready.
    pub(super) fn pass(self) -> Option<GroupRoots> {
        self.ready.send(()).ok()?;
        self.meetings.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_pass_once_it_is_opened() {
        let mut gate = Gate::default();
        let entrances = [(); 3].map(|()| gate.entrance());
        thread::scope(|scope| {
            let ranks = entrances.map(|entrance| scope.spawn(|| entrance.pass().is_some()));
            assert!(gate.wait());
            gate.open(Vec::new());
            assert!(ranks.into_iter().all(|rank| rank.join().unwrap()));
        });
    }

    #[test]
    fn one_that_fails_closes_it_for_all() {
        let mut gate = Gate::default();
        let (entrances, failing) = ([(); 2].map(|()| gate.entrance()), gate.entrance());
        thread::scope(|scope| {
            let ranks = entrances.map(|entrance| scope.spawn(|| entrance.pass().is_some()));
            scope.spawn(|| drop(failing));
            assert!(!gate.wait());
            drop(gate);
            assert!(ranks.into_iter().all(|rank| !rank.join().unwrap()));
        });
    }
}
