//! Pending data transfers of this process, and their failures.
//!
//! Invariants:
//! - Data reaches a buffer only while a thread expects it there, complete and once.
//! - Every wait ends by data or failure. The machine's timer fails a wait that takes too long.
//! - Small data may arrive before it is expected and is stored until then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::wire::{Address, CommunicatorToken};
use crate::base::failure::{Failure, code};
use crate::hccl::key::Key;
use crate::memory::raw::RawSpan;

/// Larger transfers need a request.
pub(crate) const EAGER_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct PendingTransfers {
    notes: Mutex<PendingNotes>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PendingNotes {
    expected: BTreeMap<Address, ExpectedData>,
    wanted: BTreeSet<Address>,
    /// Data that arrived before it was expected.
    early: BTreeMap<Address, EarlyData>,
    failed: BTreeMap<(CommunicatorToken, Key), Failure>,
    gone: BTreeMap<u128, LostPeer>,
}

/// In general and for each communicator with ranks there.
#[derive(Debug)]
struct LostPeer {
    failure: Failure,
    by_communicator: BTreeMap<CommunicatorToken, Failure>,
}

impl PendingNotes {
    fn loss(&self, peer: u128, communicator: CommunicatorToken) -> Option<Failure> {
        let gone = self.gone.get(&peer)?;
        Some(gone.by_communicator.get(&communicator).unwrap_or(&gone.failure).clone())
    }
}

#[derive(Debug)]
struct ExpectedData {
    peer: u128,
    place: RawSpan,
    arrived_bytes: usize,
}

#[derive(Debug)]
struct EarlyData {
    peer: u128,
    bytes: Vec<u8>,
    arrived_bytes: usize,
}

impl PendingTransfers {
    pub(crate) fn expect(&self, address: Address, place: RawSpan, peer: u128) -> Result<(), Failure> {
        let mut notes = self.lock();
        let early = notes.early.remove(&address);
        let arrived_bytes = early.as_ref().map_or(0, |early| early.arrived_bytes);
        if let Some(early) = early {
            check_length(&address, early.bytes.len(), place.len_bytes())?;
            place.write(0, &early.bytes);
        }
        if arrived_bytes < place.len_bytes() {
            notes.expected.insert(address, ExpectedData { peer, place, arrived_bytes });
        }
        Ok(())
    }

    pub(crate) fn want(&self, address: Address) {
        self.lock().wanted.insert(address);
        self.changed.notify_all();
    }

    /// Fails if the two processes disagree about the transfer.
    pub(crate) fn deliver(
        &self,
        address: &Address,
        peer: u128,
        offset: u64,
        total: u64,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let (offset, total) = (offset as usize, total as usize);
        check_length(address, offset.saturating_add(bytes.len()).max(total), total)?;
        let place = {
            let mut notes = self.lock();
            if notes.failed.contains_key(&(address.communicator, address.key)) {
                return Ok(());
            }
            match notes.expected.get(address) {
                Some(expected) => expected.place.clone(),
                None if total <= EAGER_BYTES => {
                    let fresh = || EarlyData { peer, bytes: vec![0; total], arrived_bytes: 0 };
                    let early = notes.early.entry(*address).or_insert_with(fresh);
                    check_length(address, total, early.bytes.len())?;
                    early.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
                    early.arrived_bytes += bytes.len();
                    return Ok(());
                }
                None => return Ok(()),
            }
        };
        check_length(address, total, place.len_bytes())?;
        place.write(offset, bytes);
        let mut notes = self.lock();
        if let Some(expected) = notes.expected.get_mut(address) {
            expected.arrived_bytes += bytes.len();
            if expected.arrived_bytes == expected.place.len_bytes() {
                notes.expected.remove(address);
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Takes the first request of `addresses`.
    ///
    /// Fails with the matching, or if a process is lost.
    pub(crate) fn take_wanted(&self, addresses: &[(Address, u128)]) -> Result<Option<Address>, Failure> {
        let wanted = |notes: &mut PendingNotes| {
            let found =
                addresses.iter().map(|(address, _)| *address).find(|address| notes.wanted.remove(address));
            match found {
                Some(address) => Some(Ok(Some(address))),
                None if addresses.is_empty() => Some(Ok(None)),
                None => {
                    let gone =
                        addresses.iter().find_map(|(address, peer)| notes.loss(*peer, address.communicator));
                    gone.map(Err)
                }
            }
        };
        let matching = addresses.first().map(|(address, _)| (address.communicator, address.key));
        self.wait(matching, wanted)
    }

    /// Fails with the matching, or if a process is lost before it has sent its data.
    pub(crate) fn await_all(&self, addresses: &[Address]) -> Result<(), Failure> {
        let complete = |notes: &mut PendingNotes| {
            let open = |address: &&Address| notes.expected.contains_key(address);
            if !addresses.iter().any(|address| open(&address)) {
                return Some(Ok(()));
            }
            let loss = |address: &Address| notes.loss(notes.expected[address].peer, address.communicator);
            addresses.iter().filter(open).find_map(loss).map(Err)
        };
        let matching = addresses.first().map(|address| (address.communicator, address.key));
        self.wait(matching, complete)
    }

    /// Returns why a transfer on a closed link cannot continue. Waits for the link's reader, which
    /// knows the reason.
    pub(crate) fn reason(&self, address: &Address, peer: u128) -> Failure {
        let lost = |notes: &mut PendingNotes| notes.loss(peer, address.communicator).map(Ok);
        self.wait(Some((address.communicator, address.key)), lost).unwrap_or_else(|failure| failure)
    }

    fn wait<T>(
        &self,
        matching: Option<(CommunicatorToken, Key)>,
        mut done: impl FnMut(&mut PendingNotes) -> Option<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut notes = self.lock();
        loop {
            if let Some(failure) = matching.and_then(|matching| notes.failed.get(&matching)) {
                return Err(failure.clone());
            }
            if let Some(outcome) = done(&mut notes) {
                return outcome;
            }
            notes = self.changed.wait(notes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn expire(&self, communicator: CommunicatorToken, key: Key, limit: Duration) {
        let notes = self.lock();
        let of_matching = |address: &&Address| (address.communicator, address.key) == (communicator, key);
        let senders: BTreeSet<u32> =
            notes.expected.keys().filter(of_matching).map(|address| address.from).collect();
        drop(notes);
        let who = if senders.is_empty() {
            "other ranks are not ready to receive".to_owned()
        } else {
            format!("the data of ranks {senders:?} has not come")
        };
        let what = format!("no data after {} s (HCCL_EXEC_TIMEOUT); {who}", limit.as_secs());
        self.fail(communicator, key, &Failure::new(code::TASK_TIMEOUT, what));
    }

    pub(crate) fn fail(&self, communicator: CommunicatorToken, key: Key, failure: &Failure) {
        self.lock().failed.entry((communicator, key)).or_insert_with(|| failure.clone());
        self.changed.notify_all();
    }

    /// Unsent data of a lost process will never arrive. `by_communicator` holds the failure for
    /// each communicator.
    pub(crate) fn lose(
        &self,
        peer: u128,
        failure: Failure,
        by_communicator: BTreeMap<CommunicatorToken, Failure>,
    ) {
        let mut notes = self.lock();
        notes.gone.insert(peer, LostPeer { failure, by_communicator });
        notes.early.retain(|_, early| early.peer != peer || early.arrived_bytes == early.bytes.len());
        self.changed.notify_all();
    }

    pub(crate) fn meet(&self, peer: u128) {
        self.lock().gone.remove(&peer);
    }

    pub(crate) fn end(&self, communicator: CommunicatorToken, key: Key) {
        let is_of = |address: &Address| (address.communicator, address.key) == (communicator, key);
        let mut notes = self.lock();
        notes.expected.retain(|address, _| !is_of(address));
        notes.wanted.retain(|address| !is_of(address));
        notes.early.retain(|address, _| !is_of(address));
    }

    /// Keeps the entries that a running matching waits for.
    pub(crate) fn forget(&self, communicator: CommunicatorToken) {
        let mut notes = self.lock();
        let running: BTreeSet<Key> = notes
            .expected
            .keys()
            .filter(|address| address.communicator == communicator)
            .map(|address| address.key)
            .collect();
        notes.wanted.retain(|address| address.communicator != communicator || running.contains(&address.key));
        notes
            .early
            .retain(|address, _| address.communicator != communicator || running.contains(&address.key));
        notes.failed.retain(|(of, key), _| *of != communicator || running.contains(key));
    }

    fn lock(&self) -> MutexGuard<'_, PendingNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_length(address: &Address, found: usize, expected: usize) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let (from, to, key) = (address.from, address.to, address.key);
    let what = format!("{key}: rank {from} sends {found} bytes to rank {to}, which expects {expected}");
    Err(Failure::new(code::HCCL_INTERNAL, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::location::Location;
    use crate::memory::raw::Allocation;
    use std::sync::Arc;

    const KEY: Key = Key::Collective(4);

    fn address(step: u32) -> Address {
        Address { communicator: CommunicatorToken(1), key: KEY, step, from: 0, to: 1 }
    }

    fn place(bytes: usize) -> RawSpan {
        Arc::new(Allocation::new(bytes, Location::Host, None).expect("memory")).span(0, bytes)
    }

    fn bytes(span: &RawSpan) -> Vec<u8> {
        let mut bytes = vec![0; span.len_bytes()];
        span.read(0, &mut bytes);
        bytes
    }

    #[test]
    fn data_comes_before_or_after_it_is_expected() {
        let pending = PendingTransfers::default();
        let (early, late) = (place(4), place(4));
        pending.deliver(&address(0), 9, 0, 4, &[1, 2, 3, 4]).expect("kept");
        pending.expect(address(0), early.clone(), 9).expect("fits");
        pending.expect(address(1), late.clone(), 9).expect("noted");
        pending.deliver(&address(1), 9, 2, 4, &[7, 8]).expect("second half");
        pending.deliver(&address(1), 9, 0, 4, &[5, 6]).expect("first half");
        pending.await_all(&[address(0), address(1)]).expect("complete");
        assert_eq!((bytes(&early), bytes(&late)), (vec![1, 2, 3, 4], vec![5, 6, 7, 8]));
    }

    #[test]
    fn waits_end_when_the_sender_is_gone_but_not_for_what_has_come() {
        let pending = PendingTransfers::default();
        pending.deliver(&address(0), 9, 0, 1, &[1]).expect("kept");
        pending.lose(9, Failure::new(code::REMOTE, "rank 0 died"), BTreeMap::new());
        pending.expect(address(0), place(1), 9).expect("whole");
        pending.await_all(&[address(0)]).expect("it came before the death");
        pending.expect(address(1), place(1), 9).expect("noted");
        assert_eq!(pending.await_all(&[address(1)]).expect_err("gone").message, "rank 0 died");
        let wanted = pending.take_wanted(&[(address(2), 9)]);
        assert_eq!(wanted.expect_err("gone").message, "rank 0 died");
    }

    #[test]
    fn lengths_that_disagree_and_deadlines_are_failures() {
        let pending = PendingTransfers::default();
        pending.expect(address(0), place(8), 9).expect("noted");
        let text = pending.deliver(&address(0), 9, 0, 4, &[0; 4]).expect_err("short").message;
        assert_eq!(text, "collective 4: rank 0 sends 4 bytes to rank 1, which expects 8");
        pending.expire(CommunicatorToken(1), KEY, Duration::from_secs(3));
        let text = pending.await_all(&[address(0)]).expect_err("late").message;
        assert_eq!(text, "no data after 3 s (HCCL_EXEC_TIMEOUT); the data of ranks {0} has not come");
        pending.fail(CommunicatorToken(1), KEY, &Failure::new(code::REMOTE, "a later failure"));
        assert_eq!(pending.await_all(&[address(0)]).expect_err("failed").message, text, "the first counts");
    }

    #[test]
    fn what_is_wanted_is_taken_once() {
        let pending = PendingTransfers::default();
        pending.want(address(3));
        let asked = [(address(2), 9), (address(3), 9)];
        assert_eq!(pending.take_wanted(&asked), Ok(Some(address(3))));
        pending.fail(CommunicatorToken(1), KEY, &Failure::new(code::REMOTE, "broken"));
        assert_eq!(pending.take_wanted(&asked).expect_err("failed").message, "broken");
        assert_eq!(pending.take_wanted(&[]), Ok(None));
    }
}
