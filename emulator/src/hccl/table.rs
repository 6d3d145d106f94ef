//! The table of a communicator: memory of one host, in which its processes lay their ranks' calls and see the others'.
//!
//! Input: calls and arrivals of ranks, by number of the collective. Output: the same, in every process that shows it; who came
//! last; that a collective is done. Layout: [`SLOTS`] slots, used in turn; in each four words of the collective
//! (ranks that have arrived, processes that have done their share, done, shared out) and a place for each rank's call. Every
//! word names the collective it is about, so a slot needs no clearing.
//!
//! Invariants: a call is whole while its word says that it is there: the word is taken back before the bytes of another are
//! written, and says the other's number after that. A slot is used again only when its last collective has ended in the
//! process that uses it. Then it is done, for nobody ends one before: all ranks have arrived and all shares are moved. So
//! whoever else may still look at the slot wants nothing of it but the word that says done, which is never taken back; the
//! calls are read only by processes that have yet to move data, or by such as look for a disagreement, and those see by the
//! word of a call that it is of another collective. Therefore no rank is more than [`SLOTS`] collectives ahead of another.
//! Does not: wake anybody (see `scheduler::bell`), compare calls or move data (see `at_table`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::memory::shared_words::SharedWords;

/// Collectives that can be on the table at once.
pub(crate) const SLOTS: u64 = 64;

/// The words of a slot, apart from the calls so that those who wait for one do not hold up those who write the other.
const SLOT_BYTES: usize = 64;
const ARRIVED: usize = 0;
const DONE: usize = 8;
const SHARED_OUT: usize = 16;
const SHARES: usize = 24;

/// The words of a call: stage and length.
const CALL_WORDS_BYTES: usize = 16;
const STAGE: usize = 0;
const LENGTH: usize = 8;

/// Bytes of a call without lists, at most, and of what it lists for one rank.
const CALL_BYTES: usize = 256;
const LISTED_BYTES: usize = 40;

/// Stages of a call, in the low bits of its word.
const CALLED: u64 = 1;
const REACHED: u64 = 2;
const STAGE_BITS: u32 = 2;

/// Ranks that have arrived, in the low bits of their word.
const COUNT_BITS: u32 = 16;

/// A communicator's table.
#[derive(Debug)]
pub(crate) struct Table {
    words: SharedWords,
    world: usize,
}

/// A rank's call as it lies on the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TableCall {
    pub(crate) bytes: Vec<u8>,
    /// Its stream has reached it.
    pub(crate) has_reached: bool,
}

impl Table {
    /// Bytes of the table of a communicator of `world` ranks.
    pub(crate) fn len_bytes(world: usize) -> usize {
        SLOTS as usize * slot_bytes(world)
    }

    /// The table in these [`Table::len_bytes`], which were zero when their process took them.
    pub(crate) fn new(words: SharedWords, world: usize) -> Self {
        Self { words, world }
    }

    /// Lays a rank's call of collective `number` on the table; false when it is too long.
    pub(crate) fn lay(&self, number: u64, rank: u32, call: &[u8]) -> bool {
        let at = self.call(number, rank);
        if call.len() > call_bytes(self.world) - CALL_WORDS_BYTES {
            return false;
        }
        // Whoever reads meanwhile finds no call here, neither the last one's word with other bytes nor the other way round.
        self.words.at_64(at + STAGE).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.words.bytes().write(at + CALL_WORDS_BYTES, call);
        self.words.at_64(at + LENGTH).store(call.len() as u64, Ordering::Relaxed);
        // In one order with the looks of others that lay theirs: of two calls that disagree one at least sees the other.
        self.words.at_64(at + STAGE).store(word(number, STAGE_BITS) | CALLED, Ordering::SeqCst);
        true
    }

    /// A rank's call of collective `number`, if it lies on the table.
    pub(crate) fn read(&self, number: u64, rank: u32) -> Option<TableCall> {
        let at = self.call(number, rank);
        let stage = self.words.at_64(at + STAGE);
        let of_number = |stage: &u64| stage >> STAGE_BITS == number + 1;
        let found = Some(stage.load(Ordering::SeqCst)).filter(of_number)?;
        let room = call_bytes(self.world) - CALL_WORDS_BYTES;
        let length = self.words.at_64(at + LENGTH).load(Ordering::Relaxed) as usize;
        let mut bytes = vec![0; length.min(room)];
        self.words.bytes().read(at + CALL_WORDS_BYTES, &mut bytes);
        // Its rank may have used the place again meanwhile, because the collective has ended.
        fence(Ordering::Acquire);
        Some(stage.load(Ordering::Relaxed)).filter(of_number)?;
        Some(TableCall { bytes, has_reached: found & REACHED != 0 })
    }

    /// A rank whose call lies on the table has reached it; true when it is the last of all.
    pub(crate) fn arrive(&self, number: u64, rank: u32) -> bool {
        let at = self.call(number, rank);
        self.words.at_64(at + STAGE).store(word(number, STAGE_BITS) | REACHED, Ordering::SeqCst);
        self.count(number, ARRIVED) == self.world as u64
    }

    /// This process has done its share of the work; true when it is the last of `processes`.
    pub(crate) fn end_share(&self, number: u64, processes: usize) -> bool {
        self.count(number, SHARES) == processes as u64
    }

    /// One more; gives how many there are. The last sees all that the others wrote before, in their buffers too.
    fn count(&self, number: u64, word_of: usize) -> u64 {
        let none = word(number, COUNT_BITS);
        let next = |found: u64| if found >> COUNT_BITS == number + 1 { found + 1 } else { none + 1 };
        let counted = self.head(number, word_of);
        let before = counted.fetch_update(Ordering::AcqRel, Ordering::Acquire, |found| Some(next(found)));
        next(before.unwrap_or_default()) - none
    }

    /// The results of all ranks are in their places.
    pub(crate) fn set_done(&self, number: u64) {
        self.raise(number, DONE);
    }

    /// Whether they are.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.is_raised(number, DONE)
    }

    /// Every process shall do its share of the work.
    pub(crate) fn share_out(&self, number: u64) {
        self.raise(number, SHARED_OUT);
    }

    /// Whether it shall.
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

/// A word about collective `number`, whose low bits are 0: memory that was never written is about none.
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

    fn table(world: usize) -> Table {
        let memory = Arc::new(Allocation::new(Table::len_bytes(world), Location::Host, None).expect("memory"));
        let words = SharedWords::of(memory.span(0, Table::len_bytes(world)), Table::len_bytes(world));
        Table::new(words.expect("aligned"), world)
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
        assert!(!table.lay(6, 0, &vec![0; Table::len_bytes(3)]));
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
        // One that not all came to: its slot serves all the same.
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
