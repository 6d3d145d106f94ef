//! What this machine can do at most: the rates that measured times are held against.
//!
//! Input: a number of threads and a time to spend. Output: [`Limits`]: bandwidth of memory and peak rates of arithmetic,
//! all threads together, each the best of several passes.
//! Invariants: the threads are started once and make every pass together, a barrier before and after it; each touches its
//! own part of buffers that are several times larger than the caches; arithmetic runs in registers, in more independent
//! chains than its latency takes.
//! Does not: know operators, cards or collectives.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::simd::buffer::AlignedBuffer;
use crate::simd::isa::{Isa, isa};
use crate::simd::rates;

/// Elements of each of the three buffers, over all threads: 128 MiB.
const BUFFER_LEN: usize = 32 << 20;
/// Fewest passes of a measurement.
const LEAST_PASSES: usize = 3;
/// Steps of each chain in a pass of arithmetic: some milliseconds.
const CHAIN_STEPS: usize = 1_000_000;

/// Rates of this machine, of all measured threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The instruction set in use.
    pub isa: Isa,
    /// Threads that ran.
    pub threads: usize,
    /// Bytes a second of reading memory.
    pub read_bytes_per_s: f64,
    /// Bytes a second of copying memory: the bytes read and the bytes written, each counted once.
    pub copy_bytes_per_s: f64,
    /// Bytes a second of `a[i] = b[i] + s * c[i]` in f32, counted as STREAM does: two reads and a write, whether or not the
    /// caches also read what is written.
    pub triad_bytes_per_s: f64,
    /// Operations a second of multiply-adds of f32, two each.
    pub peak_f32_flops: f64,
    /// Operations a second of multiply-adds of bf16 into f32, two each: that of the instruction for pairs where the
    /// instruction set in use has it, else the rate of f32.
    pub peak_bf16_flops: f64,
}

/// Measures on `threads` threads at once, for about `budget` beside the time it takes to touch the buffers.
///
/// # Panics
/// If `threads` is 0, or the operating system refuses a thread or memory.
#[must_use]
pub fn measure(threads: usize, budget: Duration) -> Limits {
    assert!(threads > 0, "a measurement needs a thread");
    let team = Team { barrier: Barrier::new(threads), again: AtomicBool::new(true), threads, share: budget / 6 };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| team.part(false));
        }
        team.part(true)
    })
}

/// Threads that measure together. The first one holds the clock.
struct Team {
    barrier: Barrier,
    again: AtomicBool,
    threads: usize,
    /// The time of one measurement.
    share: Duration,
}

impl Team {
    fn part(&self, is_first: bool) -> Limits {
        let len = (BUFFER_LEN / self.threads).next_multiple_of(rates::BLOCK);
        let [mut a, b, c] = [0.0, 1.0, 2.0].map(|value| {
            let mut buffer = AlignedBuffer::new(len);
            buffer.fill(value);
            buffer
        });
        let bytes = (self.threads * len * size_of::<f32>()) as f64;
        let seconds = |pass: &mut dyn FnMut()| self.best(is_first, pass).as_secs_f64();
        let plain = seconds(&mut || a.copy_from_slice(&b));
        let streaming = seconds(&mut || rates::copy_streaming(&b, &mut a));
        let triad = seconds(&mut || rates::triad(&mut a, &b, &c, 3.0));
        let read = seconds(&mut || [&a, &b, &c].into_iter().for_each(|buffer| rates::read(buffer)));
        let peak = |operations: usize, pass: &mut dyn FnMut()| (self.threads * operations) as f64 / seconds(pass);
        let isa = isa();
        Limits {
            isa,
            threads: self.threads,
            read_bytes_per_s: 3.0 * bytes / read,
            copy_bytes_per_s: 2.0 * bytes / plain.min(streaming),
            triad_bytes_per_s: 3.0 * bytes / triad,
            peak_f32_flops: peak(rates::f32_operations(isa, CHAIN_STEPS), &mut || rates::f32_chains(isa, CHAIN_STEPS)),
            peak_bf16_flops: peak(rates::bf16_operations(isa, CHAIN_STEPS), &mut || {
                rates::bf16_chains(isa, CHAIN_STEPS);
            }),
        }
    }

    /// The shortest of several passes that all threads make together. Only the first thread's answer counts.
    fn best(&self, is_first: bool, pass: &mut dyn FnMut()) -> Duration {
        let (mut best, mut spent, mut passes) = (Duration::MAX, Duration::ZERO, 0);
        loop {
            self.barrier.wait();
            let start = Instant::now();
            pass();
            self.barrier.wait();
            let took = start.elapsed();
            (best, spent, passes) = (best.min(took), spent + took, passes + 1);
            if is_first {
                self.again.store(passes < LEAST_PASSES || spent < self.share, Ordering::Relaxed);
            }
            // What was stored is seen by all, and stored again only after two more barriers.
            self.barrier.wait();
            if !self.again.load(Ordering::Relaxed) {
                return best;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_measured_and_pairs_of_bf16_are_no_slower_than_f32() {
        let limits = measure(2, Duration::ZERO);
        assert_eq!((limits.threads, limits.isa), (2, isa()));
        for rate in [limits.read_bytes_per_s, limits.copy_bytes_per_s, limits.triad_bytes_per_s, limits.peak_f32_flops]
        {
            assert!(rate.is_finite() && rate > 0.0, "{limits:?}");
        }
    }
}
