//! Drafts of the next tokens, and prompt lookup.
//!
//! - Input: the ids of one sequence, as they grow.
//! - Output: the tokens that followed the last earlier occurrence of the sequence's last n-gram,
//!   and the number of drafts that the request's own choices confirm.
//! - Invariants: drafts depend on the ids alone. A draft counts if and only if the request's
//!   sampler chooses the same token at its position, so drafts change no output.
//! - Not here: the run that computes the logits of all drafts.
//!
//! A new token and each draft take constant amortised time per n-gram size. The ids of a sequence
//! take 4 to 8 bytes per token. Each n-gram size takes 5.4 to 10.7 bytes per token if no n-gram
//! occurs twice, and less otherwise. With sizes 1 to 4 a token takes at most 51 bytes.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::RangeInclusive;

use crate::base::{Diagnostic, Diagnostics};
use crate::program::models::PROPOSING_TOKENS;

/// How a session drafts tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speculation {
    /// Prompt lookup.
    Lookup(LookupOptions),
    /// The layer for multi-token prediction of the model, which proposes one draft on the cards.
    Prediction,
}

impl Speculation {
    /// Returns the maximum number of drafts of a sequence in a step.
    #[must_use]
    pub const fn drafts(&self) -> usize {
        match self {
            Self::Lookup(options) => options.drafts,
            Self::Prediction => PROPOSING_TOKENS - 1,
        }
    }

    /// Returns the settings of prompt lookup.
    pub(super) fn lookup(&self) -> Option<&LookupOptions> {
        match self {
            Self::Lookup(options) => Some(options),
            Self::Prediction => None,
        }
    }
}

impl From<LookupOptions> for Speculation {
    fn from(options: LookupOptions) -> Self {
        Self::Lookup(options)
    }
}

/// Settings of prompt lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupOptions {
    /// Maximum number of drafts.
    pub drafts: usize,
    /// Sizes of the n-grams, in tokens. The longest size with an earlier occurrence decides.
    pub sizes: RangeInclusive<usize>,
}

impl Default for LookupOptions {
    fn default() -> Self {
        Self { drafts: 4, sizes: 2..=4 }
    }
}

impl LookupOptions {
    /// Checks that there is a draft and an n-gram.
    ///
    /// # Errors
    /// Returns every option that is out of range.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        if self.drafts == 0 {
            problems.push(Diagnostic::new("drafts", "none are proposed").expected("at least 1").found(0));
        }
        if *self.sizes.start() == 0 || self.sizes.is_empty() {
            let problem = Diagnostic::new("drafts: sizes of n-grams", "out of range");
            let found = format!("{} to {}", self.sizes.start(), self.sizes.end());
            problems.push(problem.expected("from at least 1 to at least the same").found(found));
        }
        problems.into_result(())
    }
}

/// The ids of one sequence, with the last place of each n-gram.
#[derive(Debug)]
pub struct PromptLookup {
    drafts: usize,
    ids: Vec<u32>,
    /// One index per size, from the shortest.
    indexes: Vec<NgramIndex>,
}

impl PromptLookup {
    /// Creates an empty sequence.
    ///
    /// # Errors
    /// Returns every option that is out of range.
    pub fn new(options: &LookupOptions) -> Result<Self, Diagnostics> {
        options.check()?;
        let key = RandomState::new().hash_one(0u8);
        let indexes = options.sizes.clone().map(|size| NgramIndex::new(size, key)).collect();
        Ok(Self { drafts: options.drafts, ids: Vec::new(), indexes })
    }

    /// Appends tokens to the sequence.
    pub fn append(&mut self, ids: &[u32]) {
        for id in ids {
            // The n-gram before this token now has a token that follows.
            for index in &mut self.indexes {
                index.insert(&self.ids, self.ids.len());
            }
            self.ids.push(*id);
        }
    }

    /// Replaces `drafts` by the tokens that followed the last earlier occurrence of the sequence's
    /// end. If the occurrence overlaps the end, the drafts repeat periodically.
    ///
    /// Without an earlier occurrence, `drafts` is empty.
    pub fn propose(&self, drafts: &mut Vec<u32>) {
        drafts.clear();
        let Some(start) = self.indexes.iter().rev().find_map(|index| index.last(&self.ids)) else { return };
        for at in start..start + self.drafts {
            // After the end of the sequence, the drafts continue.
            let next = self.ids.get(at).copied().unwrap_or_else(|| drafts[at - self.ids.len()]);
            drafts.push(next);
        }
    }
}

/// Returns the number of accepted drafts. `chosen` are the tokens that the request's own sampler
/// chose at the positions of the drafts, each after the drafts before it.
///
/// The sequence continues with the accepted drafts and the next chosen token.
#[must_use]
pub fn accept(drafts: &[u32], chosen: &[u32]) -> usize {
    drafts.iter().zip(chosen).take_while(|(draft, chosen)| draft == chosen).count()
}

/// The last place of each n-gram of one size: a hash table with open addressing.
///
/// A slot has the end position of an n-gram. The ids before it are the n-gram.
#[derive(Debug)]
struct NgramIndex {
    size: usize,
    /// Random key of the hash function, so that no text can force collisions.
    key: u64,
    /// End positions; 0 is an empty slot. The length is a power of two.
    slots: Vec<u32>,
    used: usize,
}

impl NgramIndex {
    const FIRST_SLOTS: usize = 16;

    fn new(size: usize, key: u64) -> Self {
        Self { size, key, slots: vec![0; Self::FIRST_SLOTS], used: 0 }
    }

    /// Stores the n-gram that ends before `end`, if there is one.
    fn insert(&mut self, ids: &[u32], end: usize) {
        let Some(ngram) = self.ngram(ids, end) else { return };
        let slot = self.slot(ids, ngram);
        let is_new = self.slots[slot] == 0;
        // Positions are below 2³²: no model has a longer context.
        self.slots[slot] = end as u32;
        self.used += usize::from(is_new);
        if 4 * self.used > 3 * self.slots.len() {
            let larger = vec![0; 2 * self.slots.len()];
            for end in std::mem::replace(&mut self.slots, larger) {
                if let Some(ngram) = self.ngram(ids, end as usize) {
                    let slot = self.slot(ids, ngram);
                    self.slots[slot] = end;
                }
            }
        }
    }

    /// Returns the end of the last stored occurrence of the n-gram at the end of `ids`.
    fn last(&self, ids: &[u32]) -> Option<usize> {
        let ngram = self.ngram(ids, ids.len())?;
        let end = self.slots[self.slot(ids, ngram)];
        (end != 0).then_some(end as usize)
    }

    fn ngram<'a>(&self, ids: &'a [u32], end: usize) -> Option<&'a [u32]> {
        Some(&ids[end.checked_sub(self.size)?..end])
    }

    /// Returns the slot of an n-gram, or the empty slot where it belongs.
    fn slot(&self, ids: &[u32], ngram: &[u32]) -> usize {
        let mask = self.slots.len() - 1;
        let hash = ngram.iter().fold(self.key, |hash, id| mixed(hash ^ u64::from(*id)));
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] as usize {
                0 => return slot,
                end if self.ngram(ids, end) == Some(ngram) => return slot,
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// Distributes the bits of a number (the finaliser of `SplitMix64`).
const fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::prop;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn lookup(drafts: usize, sizes: RangeInclusive<usize>, ids: &[u32]) -> PromptLookup {
        let mut lookup = PromptLookup::new(&LookupOptions { drafts, sizes }).unwrap();
        lookup.append(ids);
        lookup
    }

    fn proposed(drafts: usize, sizes: RangeInclusive<usize>, ids: &[u32]) -> Vec<u32> {
        let mut found = vec![99];
        lookup(drafts, sizes, ids).propose(&mut found);
        found
    }

    /// Searches all earlier places, the last first.
    fn searched(drafts: usize, sizes: RangeInclusive<usize>, ids: &[u32]) -> Vec<u32> {
        for size in sizes.rev().filter(|size| *size <= ids.len()) {
            let end = &ids[ids.len() - size..];
            if let Some(start) = (0..ids.len() - size).rev().find(|start| ids[*start..].starts_with(end)) {
                let period = ids.len() - size - start;
                let following = &ids[start + size..];
                return following[..period].iter().copied().cycle().take(drafts).collect();
            }
        }
        Vec::new()
    }

    #[test]
    fn the_longest_and_then_the_last_occurrence_decides() {
        let ids = [1, 2, 3, 10, 9, 2, 3, 20, 8, 3, 30, 1, 2, 3];
        assert_eq!(proposed(3, 1..=4, &ids), [10, 9, 2], "1 2 3");
        assert_eq!(proposed(3, 1..=2, &ids), [20, 8, 3], "2 3");
        assert_eq!(proposed(3, 1..=1, &ids), [30, 1, 2], "3");
        assert!(proposed(2, 1..=4, &[1, 2, 3]).is_empty());
        assert!(proposed(2, 1..=4, &[]).is_empty());
        assert!(proposed(2, 2..=4, &[7]).is_empty());
    }

    #[test]
    fn an_overlapping_occurrence_repeats() {
        assert_eq!(proposed(5, 1..=3, &[4, 4]), [4; 5]);
        assert_eq!(proposed(5, 1..=3, &[1, 2, 3, 1, 2, 3, 1]), [2, 3, 1, 2, 3]);
    }

    #[test]
    fn drafts_count_up_to_the_first_other_choice() {
        assert_eq!(accept(&[1, 2, 3], &[1, 2, 3, 4]), 3);
        assert_eq!(accept(&[1, 2, 3], &[1, 5, 3, 4]), 1);
        assert_eq!(accept(&[1, 2, 3], &[5]), 0);
        assert_eq!(accept(&[1, 2, 3], &[1]), 1);
        assert_eq!(accept(&[], &[5]), 0);
    }

    #[test]
    fn options_without_meaning_come_at_once() {
        #[expect(clippy::reversed_empty_ranges, reason = "the range is wrong")]
        let options = LookupOptions { drafts: 0, sizes: 3..=2 };
        let expected = "drafts: none are proposed: expected at least 1, found 0\n\
            drafts: sizes of n-grams: out of range: expected from at least 1 to at least the same, found 3 to 2";
        assert_eq!(options.check().unwrap_err().to_string(), expected);
        assert!(LookupOptions { drafts: 1, sizes: 0..=2 }.check().is_err());
        assert_eq!(LookupOptions::default().check(), Ok(()));
    }

    /// A sequence without a repeated token fills every slot that it needs.
    #[test]
    fn memory_is_what_the_module_states() {
        for length in [1_000u32, 10_000, 12_289, 100_000] {
            let lookup = lookup(4, 1..=4, &(0..length).collect::<Vec<_>>());
            for index in &lookup.indexes {
                let bytes = 4.0 * index.slots.len() as f64 / f64::from(length);
                assert!((5.3..10.8).contains(&bytes), "{length} tokens, size {}: {bytes}", index.size);
            }
        }
    }

    proptest! {
        #[test]
        fn proposals_are_those_of_a_search(
            ids in prop::collection::vec(0u32..5, 0..150),
            drafts in 1usize..9,
            shortest in 1usize..3,
            more in 0usize..3,
        ) {
            let sizes = shortest..=shortest + more;
            let mut lookup = lookup(drafts, sizes.clone(), &[]);
            let mut found = Vec::new();
            for length in 0..=ids.len() {
                lookup.propose(&mut found);
                prop_assert_eq!(&found, &searched(drafts, sizes.clone(), &ids[..length]));
                prop_assert!(found.is_empty() || found.len() == drafts);
                lookup.append(&ids[length..ids.len().min(length + 1)]);
            }
        }

        /// The sequence is the same with drafts of any quality.
        #[test]
        fn accepted_drafts_and_the_next_choice_are_the_sequence_without_drafts(
            choices in prop::collection::vec(0u32..3, 1..60),
        ) {
            let mut lookup = lookup(4, 1..=3, &[0, 1, 2]);
            let (mut sequence, mut drafts) = (Vec::new(), Vec::new());
            while sequence.len() < choices.len() {
                lookup.propose(&mut drafts);
                let chosen = &choices[sequence.len()..choices.len().min(sequence.len() + drafts.len() + 1)];
                let count = (accept(&drafts, chosen) + 1).min(chosen.len());
                sequence.extend_from_slice(&chosen[..count]);
                lookup.append(&chosen[..count]);
            }
            prop_assert_eq!(sequence, choices);
        }
    }
}
