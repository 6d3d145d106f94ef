//! Random numbers that depend only on a seed.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Seeds by a name, so that each tensor has other numbers.
    pub(crate) fn of(name: &str) -> Self {
        Self::new(name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into())))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// Returns a multiple of `2^-23` from -1 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.0.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.below(at as u64 + 1) as usize);
        }
        order
    }
}
