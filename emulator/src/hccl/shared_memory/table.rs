//! The rendezvous table of a communicator in shared memory, where processes publish the calls of
//! their ranks.
//!
//! Layout: [`SLOTS`] slots, used in turn. A slot has four words (arrived ranks, processes with a
//! finished share, done, shared out) and one entry per rank's call. Every word contains the number
//! of its collective, so a slot needs no clearing.
//!
//! Invariants:
//! - A call is complete while its stage word is valid. The writer invalidates the word before it
//!   writes the next call and then stores the new number.
//! - A process reuses a slot only after the slot's last collective has ended there. That collective
//!   is done everywhere: all ranks have arrived and all shares are copied.
//! - Other processes that still read the slot therefore need only its done word, which never
//!   decreases.
//! - Calls are read only by processes that still have to copy data or that compare calls. They
//!   recognise the call of another collective by its stage word.
//! - No rank is more than [`SLOTS`] collectives ahead of another.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::memory::shared_words::SharedWords;

/// Collectives that fit in the table.
pub(crate) const SLOTS: u64 = 64;

/// Size of a slot's words. Their own cache line keeps readers from slowing down the writers of
/// calls.
const SLOT_BYTES: usize = 64;
const ARRIVED: usize = 0;
const DONE: usize = 8;
const SHARED_OUT: usize = 16;
const SHARES: usize = 24;

/// Stage and length of a call.
const CALL_WORDS_BYTES: usize = 16;
const STAGE: usize = 0;
const LENGTH: usize = 8;

/// Maximum size of a call without lists; of list entries per rank.
const CALL_BYTES: usize = 256;
const LISTED_BYTES: usize = 40;

const CALLED: u64 = 1;
const REACHED: u64 = 2;
const STAGE_BITS: u32 = 2;

/// Low bits count the arrived ranks.
const COUNT_BITS: u32 = 16;

#[derive(Debug)]
pub(crate) struct SharedTable {
    words: SharedWords,
    world: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TableCall {
    pub(crate) bytes: Vec<u8>,
    pub(crate) has_reached: bool,
}

impl SharedTable {
    pub(crate) fn len_bytes(world: usize) -> usize {
        SLOTS as usize * slot_bytes(world)
    }

    /// Memory of [`SharedTable::len_bytes`] must have been zero at allocation.
    pub(crate) fn new(words: SharedWords, world: usize) -> Self {
        Self { words, world }
    }

    pub(crate) fn lay(&self, number: u64, rank: u32, call: &[u8]) -> bool {
        let at = self.call(number, rank);
        if call.len() > call_bytes(self.world) - CALL_WORDS_BYTES {
            return false;
        }
        // Prevents a reader from seeing a stage word with the bytes of another call.
        self.words.at_64(at + STAGE).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.words.bytes().write(at + CALL_WORDS_BYTES, call);
        self.words.at_64(at + LENGTH).store(call.len() as u64, Ordering::Relaxed);
        // `SeqCst` orders this store with the reads of other ranks: one of two disagreeing ranks
        // sees the other call.
        self.words.at_64(at + STAGE).store(word(number, STAGE_BITS) | CALLED, Ordering::SeqCst);
        true
    }

    pub(crate) fn read(&self, number: u64, rank: u32) -> Option<TableCall> {
        let at = self.call(number, rank);
        let stage = self.words.at_64(at + STAGE);
        let of_number = |stage: &u64| stage >> STAGE_BITS == number + 1;
        let found = Some(stage.load(Ordering::SeqCst)).filter(of_number)?;
        let room = call_bytes(self.world) - CALL_WORDS_BYTES;
        let length = self.words.at_64(at + LENGTH).load(Ordering::Relaxed) as usize;
        let mut bytes = vec![0; length.min(room)];
        self.words.bytes().read(at + CALL_WORDS_BYTES, &mut bytes);
        // If the collective has ended, the entry may have been reused.
        fence(Ordering::Acquire);
        Some(stage.load(Ordering::Relaxed)).filter(of_number)?;
        Some(TableCall { bytes, has_reached: found & REACHED != 0 })
    }

    /// Returns true for the last rank.
    pub(crate) fn arrive(&self, number: u64, rank: u32) -> bool {
        let at = self.call(number, rank);
        self.words.at_64(at + STAGE).store(word(number, STAGE_BITS) | REACHED, Ordering::SeqCst);
        self.count(number, ARRIVED) == self.world as u64
    }

    /// Returns true for the last of `processes`.
    pub(crate) fn end_share(&self, number: u64, processes: usize) -> bool {
        self.count(number, SHARES) == processes as u64
    }

    /// The last caller sees all earlier writes of the other processes, including their buffers.
    fn count(&self, number: u64, word_of: usize) -> u64 {
        let none = word(number, COUNT_BITS);
        let next = |found: u64| if found >> COUNT_BITS == number + 1 { found + 1 } else { none + 1 };
        let counted = self.head(number, word_of);
        let before = counted.fetch_update(Ordering::AcqRel, Ordering::Acquire, |found| Some(next(found)));
        next(before.unwrap_or_default()) - none
    }

    pub(crate) fn set_done(&self, number: u64) {
        self.raise(number, DONE);
    }

    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.is_raised(number, DONE)
    }

    pub(crate) fn share_out(&self, number: u64) {
        self.raise(number, SHARED_OUT);
    }

    pub(crate) fn is_shared_out(&self, number: u64) -> bool {
        self.is_raised(number, SHARED_OUT)
    }

    fn raise(&self, number: u64, word: usize) {
        self.head(number, word).fetch_max(number + 1, Ordering::AcqRel);
    }

    fn is_raised(&self, number: u64, word: usize) -> bool {
        self.head(number, word).load(Ordering::Acquire) > number
    }

    fn head(&self, number: u64, word: usize) -> &AtomicU64 {
        self.words.at_64(self.slot(number) + word)
    }

    fn slot(&self, number: u64) -> usize {
        (number % SLOTS) as usize * slot_bytes(self.world)
    }

    fn call(&self, number: u64, rank: u32) -> usize {
        self.slot(number) + SLOT_BYTES + rank as usize * call_bytes(self.world)
    }
}

/// The low bits are zero. Zeroed memory belongs to no collective.
fn word(number: u64, low_bits: u32) -> u64 {
    (number + 1) << low_bits
}

fn call_bytes(world: usize) -> usize {
    (CALL_WORDS_BYTES + CALL_BYTES + LISTED_BYTES * world).next_multiple_of(64)
}

fn slot_bytes(world: usize) -> usize {
    SLOT_BYTES + world * call_bytes(world)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::memory::location::Location;
    use crate::memory::raw::Allocation;

    fn table(world: usize) -> SharedTable {
        let memory =
            Arc::new(Allocation::new(SharedTable::len_bytes(world), Location::Host, None).expect("memory"));
        let words =
            SharedWords::of(memory.span(0, SharedTable::len_bytes(world)), SharedTable::len_bytes(world));
        SharedTable::new(words.expect("aligned"), world)
    }

    #[test]
    fn calls_are_read_as_they_were_laid_and_only_under_their_number() {
        let table = table(3);
        assert_eq!(table.read(0, 2), None);
        assert!(table.lay(5, 2, b"five"));
        assert_eq!(table.read(5, 2), Some(TableCall { bytes: b"five".to_vec(), has_reached: false }));
        assert!(!table.arrive(5, 2));
        assert_eq!(table.read(5, 2), Some(TableCall { bytes: b"five".to_vec(), has_reached: true }));
        assert_eq!((table.read(5, 1), table.read(5 + SLOTS, 2)), (None, None));
        assert!(table.lay(5 + SLOTS, 2, b"later"));
        assert_eq!(table.read(5, 2), None);
        assert!(!table.lay(6, 0, &vec![0; SharedTable::len_bytes(3)]));
    }

    #[test]
    fn a_slot_serves_one_collective_after_the_other() {
        let table = table(2);
        for number in [3, 3 + SLOTS, 3 + 2 * SLOTS] {
            assert!(!table.is_done(number) && !table.is_shared_out(number));
            assert_eq!((table.arrive(number, 0), table.arrive(number, 1)), (false, true));
            table.share_out(number);
            assert_eq!((table.end_share(number, 2), table.end_share(number, 2)), (false, true));
            table.set_done(number);
            assert!(table.is_done(number) && table.is_shared_out(number));
            assert!(number < SLOTS || table.is_done(number - SLOTS));
        }
        // A collective without all ranks. Its slot remains usable.
        assert!(!table.arrive(4, 0));
        assert_eq!((table.arrive(4 + SLOTS, 1), table.arrive(4 + SLOTS, 0)), (false, true));
    }

    #[test]
    fn one_of_many_is_last() {
        let table = table(8);
        for number in 0..20 {
            let last = AtomicU32::new(0);
            std::thread::scope(|scope| {
                for rank in 0..8 {
                    let (table, last) = (&table, &last);
                    scope.spawn(move || {
                        last.fetch_add(u32::from(table.arrive(number * SLOTS, rank)), Ordering::Relaxed)
                    });
                }
            });
            assert_eq!(last.into_inner(), 1);
        }
    }
}
