//! Random numbers of the storm. A seed identifies a program on every machine and in every version.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

#[derive(Debug, Clone)]
pub(crate) struct Random(SplitMix64);

/// Returns the first number of the sequence that starts at `key`.
#[must_use]
pub(crate) fn scramble(key: u64) -> u64 {
    SplitMix64::seed_from_u64(key).next_u64()
}

impl Random {
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub(crate) fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `end`, or 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true with `percent` in 100.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
