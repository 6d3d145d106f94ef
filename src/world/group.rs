//! The processes of a world, once they have met.
//!
//! Input → output: a [`World`] → a [`ProcessGroup`]. Invariant: a world of one has no store, no threads and nobody to wait
//! for; everything else is the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Error, PeerFailure};
use super::store::{Peer, Sequence, Store};
use super::{World, place::MeetingPlace};

/// Is told what is waited for while processes meet: at once what cannot be reached at all, the rest after 3 s and then every 30 s.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// The processes of a world: they know each other, exchange small things and learn when one of them fails.
///
/// Dropping it says to the others that this process has done its work.
#[derive(Debug)]
pub struct ProcessGroup {
    rank: usize,
    size: usize,
    card: Option<usize>,
    store: Option<Store>,
}

impl ProcessGroup {
    /// This process only.
    #[must_use]
    pub fn alone() -> Self {
        Self { rank: 0, size: 1, card: None, store: None }
    }

    /// Meets the other processes of a world.
    ///
    /// # Errors
    /// The place is taken or out of reach, ranks did not come in time (named), or processes disagree about the world.
    pub fn join(world: &World) -> Result<Self, Error> {
        let nobody: Notice = Arc::new(|_| ());
        Self::join_telling(world, &nobody)
    }

    /// As [`ProcessGroup::join`], telling what is waited for.
    ///
    /// # Errors
    /// As for [`ProcessGroup::join`].
    pub fn join_telling(world: &World, notice: &Notice) -> Result<Self, Error> {
        if world.place == MeetingPlace::Nowhere {
            return Ok(Self { rank: world.rank, size: world.size, card: world.card, store: None });
        }
        let visible = world.visible.as_deref();
        let me = Peer {
            rank: world.rank,
            size: world.size,
            process_id: std::process::id(),
            host: host_name(),
            host_id: host_id(),
            local_rank: world.local_rank,
            card: world.card,
            physical_card: world.card.and_then(|card| visible.and_then(|visible| visible.get(card).copied())),
        };
        let store = Store::meet(&world.place, me, world.timeout, notice)?;
        let card = store.peers().get(world.rank).and_then(|peer| peer.card);
        Ok(Self { rank: world.rank, size: world.size, card, store: Some(store) })
    }

    /// Rank of this process.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The card of this process, where its launcher or its place on the host gives one.
    #[must_use]
    pub const fn card(&self) -> Option<usize> {
        self.card
    }

    /// All processes, by rank; none in a world of one.
    #[must_use]
    pub fn peers(&self) -> &[Peer] {
        self.store.as_ref().map_or(&[], Store::peers)
    }

    /// Whether this is the process that speaks for all.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Gives bytes and gets everybody's, by rank; waits until all have given. Every process makes the same exchanges in the
    /// same order; `what` names one for messages.
    ///
    /// # Errors
    /// Another process failed or ended, or is at another exchange.
    pub fn exchange(&self, what: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, PeerFailure> {
        self.exchange_in(Sequence::Main, what, bytes)
    }

    /// As [`ProcessGroup::exchange`], for one thread of each process that works beside the one which makes the others: these
    /// exchanges have an order of their own, and neither kind waits for the other.
    ///
    /// # Errors
    /// As for [`ProcessGroup::exchange`].
    pub fn exchange_aside(&self, what: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, PeerFailure> {
        self.exchange_in(Sequence::Aside, what, bytes)
    }

    fn exchange_in(&self, sequence: Sequence, what: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, PeerFailure> {
        match &self.store {
            Some(store) => store.exchange(sequence, what, bytes),
            None => Ok(vec![bytes]),
        }
    }

    /// Tells all other processes that this one fails; they end too.
    pub fn fail(&self, text: &str) {
        if let Some(store) = &self.store {
            store.fail(text);
        }
    }

    /// The first failure of another process, if one is known within `limit`.
    #[must_use]
    pub fn failure_within(&self, limit: Duration) -> Option<PeerFailure> {
        self.store.as_ref().and_then(|store| store.failure_within(limit))
    }

    /// Has `listener` called, on a thread of the group, with the first failure of another process; at once if there was
    /// one. It must not wait for this group.
    pub fn on_failure(&self, listener: impl FnOnce(&PeerFailure) + Send + 'static) {
        if let Some(store) = &self.store {
            store.on_failure(Box::new(listener));
        }
    }
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "this host".to_owned() } else { name.trim().to_owned() }
}

/// What tells this host from others: its boot, and the network it is in. Containers of one host are hosts of their own if
/// they have networks of their own.
fn host_id() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| host_name());
    let network = fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino());
    format!("{}-{network}", boot.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_of_one_has_nobody_to_wait_for() {
        let group = ProcessGroup::join(&World::alone()).unwrap();
        assert_eq!((group.rank(), group.size(), group.card()), (0, 1, None));
        assert_eq!(group.exchange("numbers", vec![7]), Ok(vec![vec![7]]));
        group.fail("nobody hears");
        assert_eq!(group.failure_within(Duration::from_secs(60)), None);
        assert!(group.is_first() && group.peers().is_empty());
    }
}
