//! Counter-based random numbers: Philox 4x32-10.
//!
//! - Input: a key and a counter.
//! - Output: random bits.
//! - Invariants: stateless; the same key and counter give the same bits on every machine.
//!
//! Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Increments of the key after each round: the golden ratio and √3 − 1.
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Returns a number in [0, 1) for a seed, a sample and a position.
pub(super) fn uniform(seed: u64, sample: u64, position: u64) -> f64 {
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let ([p0, p1], [s0, s1]) = (halves(position), halves(sample));
    let [low, high, ..] = philox([p0, p1, s0, s1], halves(seed));
    let bits = u64::from(high) << 32 | u64::from(low);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let product = |at: usize| u64::from(counter[2 * at]) * u64::from(MULTIPLIERS[at]);
        let (first, second) = (product(0), product(1));
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::{philox, uniform};

    /// Known answers for 10 rounds, published by the authors with Random123.
    #[test]
    fn blocks_are_those_of_the_published_vectors() {
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let mut tenths = [0; 10];
        for position in 0..10_000 {
            let number = uniform(1, 2, position);
            assert!((0.0..1.0).contains(&number), "{number}");
            tenths[(number * 10.0) as usize] += 1;
        }
        // Mean 1000, standard deviation 30.
        assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
    }

    #[test]
    fn all_bits_of_seed_sample_and_position_count() {
        let first = uniform(0, 0, 0);
        for bit in 0..64 {
            let number = 1 << bit;
            for other in [uniform(number, 0, 0), uniform(0, number, 0), uniform(0, 0, number)] {
                assert_ne!(first.to_bits(), other.to_bits(), "bit {bit}");
            }
        }
    }
}
