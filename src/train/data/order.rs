//! The order of an epoch's samples.
//!
//! Input: a seed, an epoch, the number of samples and a position. Output: the sample at the
//! position. Invariants: the order of each seed and epoch is a permutation. A sample is computed
//! without memory and without the samples before, so all steps cost the same.
//!
//! A Feistel network permutes the numbers below a power of four. A result outside the range goes
//! through the network again until it is inside ("cycle walking").
//!
//! # Source
//! Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (2002), sections 3 and 4. The mixing
//! function is the one of `SplitMix64`.

use crate::train::random::mixed;

/// Number of rounds. Small numbers have short halves and need many rounds.
const ROUNDS: u64 = 8;

/// Returns the sample at position `at` of an epoch with `count` samples.
pub(super) fn shuffled(seed: u64, epoch: u64, count: u64, position: u64) -> u64 {
    assert!(position < count, "position {position} of {count}");
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let key = mixed(mixed(seed) ^ epoch);
    let mut number = position;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..ROUNDS {
            // The constant makes the rounds different for all values of the halves.
            let added = mixed(key ^ mixed(right ^ ((round + 1) << 56)));
            (left, right) = (right, left ^ (added & mask));
        }
        number = (left << half) | right;
        if number < count {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::any;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn order(seed: u64, epoch: u64, count: u64) -> Vec<u64> {
        (0..count).map(|at| shuffled(seed, epoch, count, at)).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_permutation(seed in any::<u64>(), epoch in any::<u64>(), count in 1_u64..3000) {
            let mut found = order(seed, epoch, count);
            found.sort_unstable();
            prop_assert_eq!(found, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn numbers_of_all_sizes_stay_in_range(seed in any::<u64>(), count in 1_u64..=1 << 62, at in any::<u64>()) {
            prop_assert!(shuffled(seed, 0, count, at % count) < count);
        }
    }

    #[test]
    fn seeds_and_epochs_differ() {
        assert_ne!(order(1, 0, 100), order(2, 0, 100));
        assert_ne!(order(1, 0, 100), order(1, 1, 100));
        assert_ne!(order(1, 0, 100), order(0, 1, 100));
        assert_eq!(order(7, 3, 1), [0]);
        assert_ne!(order(1, 0, 1000), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn every_sample_comes_everywhere_equally_often() {
        // A cell expects n / 5 of n = count / 5 samples, with the variance of draws without
        // replacement. The bounds are seven standard deviations of 2,000 orders.
        for (count, bound) in [(5_u64, 126), (40, 321)] {
            let groups = 5;
            let mut cells = vec![0_i64; groups * groups];
            for seed in 0..2000 {
                for (at, sample) in order(seed, 0, count).into_iter().enumerate() {
                    let of = |number: usize| number * groups / usize::try_from(count).unwrap();
                    cells[of(at) * groups + of(usize::try_from(sample).unwrap())] += 1;
                }
            }
            let each = i64::try_from(2000 * count).unwrap() / 25;
            assert!(cells.iter().all(|cell| (cell - each).abs() <= bound), "{each}: {cells:?}");
        }
    }

    #[test]
    fn the_order_of_a_seed_never_changes() {
        // A run that is resumed by a later version of this program must get the same samples.
        assert_eq!(order(1234, 0, 10), FIRST);
    }

    const FIRST: [u64; 10] = [6, 1, 9, 0, 5, 7, 4, 3, 8, 2];
}
