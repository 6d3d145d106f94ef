//! Where ranks wait for each other before they meet: a rank that cannot take its memory never comes
//! to a meeting, and the others must not wait for it there.
//!
//! Input → output: every local rank says that it is ready; whoever opens the gate hands all of them
//! the meetings. Invariant: a rank that ends without being ready closes the gate for all, however
//! it ends: its end of the channel is gone.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::device::RootInfo;

/// A group of ranks and the token by which they find each other.
pub(super) type GroupRoot = (Vec<usize>, RootInfo);

/// The meetings of all groups, which all ranks share.
pub(super) type GroupRoots = Arc<Vec<GroupRoot>>;

/// The gate of one process' ranks. Dropped before it is opened, it lets nobody pass.
#[derive(Default)]
pub(super) struct Gate {
    ranks: Vec<(Receiver<()>, Sender<GroupRoots>)>,
}

/// A rank's way through the gate. Dropped, it says that the rank will never be ready.
pub(super) struct Entrance {
    ready: Sender<()>,
    meetings: Receiver<GroupRoots>,
}

impl Gate {
    /// A way through for one more rank.
    pub(super) fn entrance(&mut self) -> Entrance {
        let ((ready, is_ready), (open, meetings)) = (bounded(1), bounded(1));
        self.ranks.push((is_ready, open));
        Entrance { ready, meetings }
    }

    /// Waits until all ranks are ready. Whether they are; false once one has failed.
    pub(super) fn wait(&self) -> bool {
        self.ranks.iter().all(|(ready, _)| ready.recv().is_ok())
    }

    /// Lets all ranks pass.
    pub(super) fn open(self, meetings: Vec<GroupRoot>) {
        let meetings = Arc::new(meetings);
        for (_, rank) in self.ranks {
            // A rank that is gone says why in its answer.
            let _gone = rank.send(Arc::clone(&meetings));
        }
    }
}

impl Entrance {
    /// The rank is ready: waits for the gate to open. None if a rank, here or in another process,
    /// will never be ready.
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
