//! Random numbers of strict mode. A seed gives the same numbers on every host and in every version.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

#[derive(Debug, Clone)]
pub(crate) struct StrictRandom(SplitMix64);

impl StrictRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The result is in `0..bound`; `bound` must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // High word of the product: probabilities differ by at most bound / 2^64.
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        let mut random = StrictRandom::new(1_234_567);
        // High words of 6457827717110365317 and 3203168211198807973.
        assert_eq!([random.below(1 << 32), random.below(1 << 32)], [1_503_580_183, 745_795_716]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all() {
        let mut random = StrictRandom::new(0);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|count| (120..280).contains(count)), "{seen:?}");
        assert_eq!(random.below(1), 0);
    }
}
