//! Hardware limits of this host, as reference for measured times.
//!
//! All threads run each pass together between barriers; the best pass counts. Arithmetic stays in
//! registers, with enough independent chains to hide latency.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::simd::buffer::AlignedBuffer;
use crate::simd::isa::{Isa, isa};
use crate::simd::rates;

/// 128 MiB over all threads.
const BUFFER_LEN: usize = 32 << 20;
const LEAST_PASSES: usize = 3;
/// A few milliseconds per pass.
const CHAIN_STEPS: usize = 1_000_000;

/// Rates of this machine, over all measured threads.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MachineRates {
    /// Instruction set in use.
    pub isa: Isa,
    /// Number of threads that ran.
    pub threads: usize,
    /// Bandwidth of memory reads, in bytes per second.
    pub read_bytes_per_s: f64,
    /// Bandwidth of memory copies in bytes per second; bytes read and written count once each.
    pub copy_bytes_per_s: f64,
    /// Bandwidth of the f32 triad `a[i] = b[i] + s * c[i]` in bytes per second. As in STREAM, two
    /// reads and one write are counted.
    pub triad_bytes_per_s: f64,
    /// Peak rate of f32 multiply-adds, in operations per second (two each).
    pub peak_f32_flops: f64,
    /// Peak rate of bf16 multiply-adds into f32, in operations per second (two each). The f32 rate
    /// without an instruction for bf16 pairs.
    pub peak_bf16_flops: f64,
}

/// Measures `threads` threads at once, for about `budget` plus the time to touch the buffers.
///
/// # Panics
/// Panics if `threads` is 0, or the operating system refuses a thread or memory.
#[must_use]
pub fn measure(threads: usize, budget: Duration) -> MachineRates {
    assert!(threads > 0, "a measurement needs a thread");
    let team =
        Team { barrier: Barrier::new(threads), again: AtomicBool::new(true), threads, share: budget / 6 };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| team.part(false));
        }
        team.part(true)
    })
}

/// The first thread reads the clock.
struct Team {
    barrier: Barrier,
    again: AtomicBool,
    threads: usize,
    share: Duration,
}

impl Team {
    fn part(&self, is_first: bool) -> MachineRates {
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
        let peak =
            |operations: usize, pass: &mut dyn FnMut()| (self.threads * operations) as f64 / seconds(pass);
        let isa = isa();
        MachineRates {
            isa,
            threads: self.threads,
            read_bytes_per_s: 3.0 * bytes / read,
            copy_bytes_per_s: 2.0 * bytes / plain.min(streaming),
            triad_bytes_per_s: 3.0 * bytes / triad,
            peak_f32_flops: peak(rates::f32_operations(isa, CHAIN_STEPS), &mut || {
                rates::f32_chains(isa, CHAIN_STEPS);
            }),
            peak_bf16_flops: peak(rates::bf16_operations(isa, CHAIN_STEPS), &mut || {
                rates::bf16_chains(isa, CHAIN_STEPS);
            }),
        }
    }

    /// Returns the shortest of several joint passes; only the first thread's result counts.
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
            // The first thread writes `again` only after two more barriers.
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
        for rate in [
            limits.read_bytes_per_s,
            limits.copy_bytes_per_s,
            limits.triad_bytes_per_s,
            limits.peak_f32_flops,
        ] {
            assert!(rate.is_finite() && rate > 0.0, "{limits:?}");
        }
    }
}
