//! Splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators"). A seed
//! gives the same numbers on every host and in every version.

#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The result is in `0..bound`; `bound` must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // High word of the product: probabilities differ by at most bound / 2^64.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all() {
        let mut random = Random::new(0);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|count| (120..280).contains(count)), "{seen:?}");
        assert_eq!(random.below(1), 0);
    }
}
