//! A group of processes that have met. A world of one process needs no store and no threads, but
//! behaves the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use super::error::{EnvironmentError, Error, PeerFailure};
use super::store::{ExchangeSequence, Peer, Store, connect};
use super::{World, place::MeetingPlace};

/// Callback for progress messages of the rendezvous: unreachable addresses immediately, other waits
/// after 3 s and then every 30 s.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// The processes of a world. They exchange small data and are notified when a process fails.
///
/// Dropping the group notifies the other processes that this process has finished.
///
/// ```
/// use std::sync::Arc;
///
/// use ascend_tp::{EngineOptions, ProcessGroup, World};
///
/// let group = Arc::new(ProcessGroup::join(&World::alone())?);
/// let options = EngineOptions { group, ..EngineOptions::default() };
/// # drop(options);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ProcessGroup {
    rank: usize,
    size: usize,
    card: Option<usize>,
    store: Option<Store>,
}

impl ProcessGroup {
    /// Creates a group of one process.
    #[must_use]
    #[doc(hidden)]
    pub fn alone() -> Self {
        Self { rank: 0, size: 1, card: None, store: None }
    }

    /// Meets the other processes of a world.
    ///
    /// # Errors
    /// The place is taken, unreachable or a name without an address; ranks, which are named, did
    /// not come in time; or processes disagree about the world.
    pub fn join(world: &World) -> Result<Self, Error> {
        let nobody: Notice = Arc::new(|_| ());
        Self::join_telling(world, &nobody)
    }

    /// Like [`ProcessGroup::join`], with progress messages.
    ///
    /// # Errors
    /// As [`ProcessGroup::join`].
    #[doc(hidden)]
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
        // Do not wait for a name that can get no address.
        if let Err(what) = connect::check_name(&world.place)
            && !world.waits_for_names
        {
            let (problems, variables) = (vec![what], Vec::new());
            return Err(Error::Environment(Box::new(EnvironmentError { problems, variables })));
        }
        let store = Store::meet(&world.place, me, world.timeout, notice)?;
        let card = store.peers().get(world.rank).and_then(|peer| peer.card);
        Ok(Self { rank: world.rank, size: world.size, card, store: Some(store) })
    }

    /// Returns this process's rank.
    #[must_use]
    #[doc(hidden)]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of processes.
    #[must_use]
    #[doc(hidden)]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Returns this process's card, if known from its launcher or its position on the host.
    #[must_use]
    #[doc(hidden)]
    pub const fn card(&self) -> Option<usize> {
        self.card
    }

    /// Returns all processes by rank; empty in a world of one.
    #[must_use]
    #[doc(hidden)]
    pub fn peers(&self) -> &[Peer] {
        self.store.as_ref().map_or(&[], Store::peers)
    }

    /// Returns whether this is rank 0.
    #[must_use]
    #[doc(hidden)]
    pub const fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Sends bytes to all processes and returns the bytes of all, by rank. All processes must make
    /// the same exchanges in the same order. `what` names the exchange in messages.
    ///
    /// # Errors
    /// Another process failed, ended, or is at another exchange.
    #[doc(hidden)]
    pub fn exchange(&self, what: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, PeerFailure> {
        self.exchange_in(ExchangeSequence::Main, what, bytes)
    }

    /// Like [`ProcessGroup::exchange`], for a second thread in each process, with a separate order.
    ///
    /// # Errors
    /// As [`ProcessGroup::exchange`].
    #[doc(hidden)]
    pub fn exchange_aside(&self, what: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, PeerFailure> {
        self.exchange_in(ExchangeSequence::Aside, what, bytes)
    }

    fn exchange_in(
        &self,
        sequence: ExchangeSequence,
        what: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, PeerFailure> {
        match &self.store {
            Some(store) => store.exchange(sequence, what, bytes),
            None => Ok(vec![bytes]),
        }
    }

    /// Tells all other processes that this one fails, so that they end too.
    #[doc(hidden)]
    pub fn fail(&self, text: &str) {
        if let Some(store) = &self.store {
            store.fail(text);
        }
    }

    /// Returns the first failure of another process known within `limit`.
    #[must_use]
    #[doc(hidden)]
    pub fn failure_within(&self, limit: Duration) -> Option<PeerFailure> {
        self.store.as_ref().and_then(|store| store.failure_within(limit))
    }

    /// Calls `listener` on a thread of the group with the first failure of another process, even a
    /// past one. The listener must not wait for this group.
    #[doc(hidden)]
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

/// Boot id and network namespace: containers with separate networks count as separate hosts.
fn host_id() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| host_name());
    let network = fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino());
    format!("{}-{network}", boot.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_an_address_is_refused_at_once_unless_names_come_later() {
        let place = MeetingPlace::Tcp { host: "no-such-host.invalid".to_owned(), port: 9 };
        for rank in 0..2 {
            let world = World { rank, size: 2, place: place.clone(), ..World::alone() };
            let Err(Error::Environment(error)) = ProcessGroup::join(&world) else {
                panic!("rank {rank} found a host")
            };
            assert!(
                error.problems[0].contains("on no-such-host.invalid, a name without an address"),
                "{error}"
            );
        }
        let timeout = Duration::from_millis(50);
        let world = World { rank: 1, size: 2, place, timeout, waits_for_names: true, ..World::alone() };
        let Err(Error::Meeting(text)) = ProcessGroup::join(&world) else { panic!("a pod did not wait") };
        assert!(text.starts_with("rank 0 did not answer at no-such-host.invalid:9 within"), "{text}");
    }

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
