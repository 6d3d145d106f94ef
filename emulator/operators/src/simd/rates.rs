//! Loops at machine speed: memory reads, copies and triads, and register multiply-adds.
#![expect(unsafe_code, reason = "vector instructions, chosen at run time")]

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use crate::simd::isa::{Isa, dispatched};
use crate::simd::streaming;

pub(crate) const BLOCK: usize = 64;
/// Two pages, so that both prefetchers stay busy.
const AHEAD_BYTES: usize = 8192;

#[derive(Clone, Copy)]
pub(crate) enum Cache {
    First,
    Second,
}

/// The address may be invalid.
#[inline(always)]
pub(crate) fn prefetch(cache: Cache, address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match cache {
            // SAFETY: a hint that accepts any address.
            Cache::First => unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) },
            // SAFETY: as above.
            Cache::Second => unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) },
        }
    }
    #[cfg(target_arch = "aarch64")]
    match cache {
        // SAFETY: a hint that accepts any address. Stable Rust has no function for it.
        Cache::First => unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
        },
        // SAFETY: as above.
        Cache::Second => unsafe {
            std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
        },
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (cache, address);
}

dispatched! {
    fn fold(values: &[f32]) -> u32 {
        let mut folded = [0_u32; BLOCK];
        for block in values.chunks_exact(BLOCK) {
            for line in block.chunks_exact(16) {
                prefetch(Cache::First, line.as_ptr().cast::<u8>().wrapping_add(AHEAD_BYTES));
            }
            for (sum, value) in folded.iter_mut().zip(block) {
                *sum ^= value.to_bits();
            }
        }
        folded.iter().fold(0, |all, part| all ^ part)
    }
}

pub(crate) fn read(values: &[f32]) {
    black_box(fold(values));
}

dispatched! {
    /// The triad of STREAM: `a[i] = b[i] + scale * c[i]`.
    pub(crate) fn triad(a: &mut [f32], b: &[f32], c: &[f32], scale: f32) -> () {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = b + scale * c;
        }
    }
}

pub(crate) fn copy_streaming(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: equal lengths, and the target is exclusive.
    unsafe { streaming::copy_streaming(from.as_ptr().cast(), to.as_mut_ptr().cast(), size_of_val(to)) };
}

/// Two units with latencies of four to six cycles need eight to twelve chains; there are 32
/// registers.
const CHAINS: usize = 24;
const AVX2_CHAINS: usize = 12;
/// Chains of separate multiply and add.
const PORTABLE_CHAINS: usize = 12;

pub(crate) const fn f32_operations(isa: Isa, steps: usize) -> usize {
    let lanes = match isa {
        Isa::Portable => 4 * PORTABLE_CHAINS,
        Isa::Neon => 4 * CHAINS,
        Isa::Avx2 => 8 * AVX2_CHAINS,
        Isa::Avx512 | Isa::Avx512Bf16 => 16 * CHAINS,
    };
    2 * lanes * steps
}

pub(crate) const fn bf16_operations(isa: Isa, steps: usize) -> usize {
    let pairs = if matches!(isa, Isa::Avx512Bf16) { 2 } else { 1 };
    pairs * f32_operations(isa, steps)
}

pub(crate) fn f32_chains(isa: Isa, steps: usize) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a set in use is available (`Isa::is_available`).
        Isa::Avx512 | Isa::Avx512Bf16 => unsafe { x86::f32_avx512(steps) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { x86::f32_avx2(steps) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::Neon => unsafe { f32_neon(steps) },
        _ => f32_portable(steps),
    }
}

/// A processor without such an instruction runs f32 multiply-adds.
pub(crate) fn bf16_chains(isa: Isa, steps: usize) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a set in use is available (`Isa::is_available`).
        Isa::Avx512Bf16 => unsafe { x86::bf16_avx512(steps) },
        _ => f32_chains(isa, steps),
    }
}

/// Returns whether this processor multiplies f32 clearly faster than pairs of bf16. Some processors
/// split the instruction for pairs.
pub(crate) fn are_singles_faster(isa: Isa) -> bool {
    const STEPS: usize = 2000;
    const RUNS: usize = 8;
    static ARE_FASTER: OnceLock<bool> = OnceLock::new();
    *ARE_FASTER.get_or_init(|| {
        let rate = |operations: usize, chains: fn(Isa, usize)| {
            let seconds = (0..RUNS).map(|_| {
                let start = Instant::now();
                chains(isa, STEPS);
                start.elapsed().as_secs_f64()
            });
            operations as f64 / seconds.fold(f64::INFINITY, f64::min)
        };
        rate(f32_operations(isa, STEPS), f32_chains) > 1.25 * rate(bf16_operations(isa, STEPS), bf16_chains)
    })
}

/// Multiplies and adds separately.
fn f32_portable(steps: usize) {
    let (factor, term) = (black_box(0.5_f32), black_box(0.25_f32));
    let mut chains = [black_box(1.0_f32); 4 * PORTABLE_CHAINS];
    for _ in 0..steps {
        chains = chains.map(|value| value * factor + term);
    }
    black_box(chains);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn f32_neon(steps: usize) {
    use std::arch::aarch64::{vdupq_n_f32, vfmaq_f32};
    let (factor, term) = (vdupq_n_f32(black_box(0.5)), vdupq_n_f32(black_box(0.25)));
    let mut chains = [vdupq_n_f32(black_box(1.0)); CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            *chain = vfmaq_f32(term, *chain, factor);
        }
    }
    black_box(chains);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512bh, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_set1_epi32,
        _mm512_set1_ps,
    };
    use std::hint::black_box;

    use super::{AVX2_CHAINS, CHAINS};

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn f32_avx2(steps: usize) {
        let (factor, term) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(0.25)));
        let mut chains = [_mm256_set1_ps(black_box(1.0)); AVX2_CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, term);
            }
        }
        black_box(chains);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn f32_avx512(steps: usize) {
        let (factor, term) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
        let mut chains = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = _mm512_fmadd_ps(*chain, factor, term);
            }
        }
        black_box(chains);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn bf16_avx512(steps: usize) {
        let pairs = _mm512_set1_epi32(black_box(0x3f80_3f80));
        // SAFETY: the vectors have the same size; any bits are bf16 pairs.
        let pairs: __m512bh = unsafe { std::mem::transmute(pairs) };
        let mut chains = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = _mm512_dpbf16_ps(*chain, pairs, pairs);
            }
        }
        black_box(chains);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_over_memory_reach_every_element() {
        let mut values = vec![0.0_f32; 3 * BLOCK];
        for at in [0, 17, BLOCK, 3 * BLOCK - 1] {
            values[at] = 1.5;
            assert_eq!(fold(&values), 1.5_f32.to_bits(), "element {at}");
            values[at] = 0.0;
        }
    }

    #[test]
    fn copies_and_scaled_sums_are_exact() {
        let len = 2 * BLOCK;
        let mut from = super::super::buffer::AlignedBuffer::new(len);
        let mut to = super::super::buffer::AlignedBuffer::new(len);
        from.iter_mut().enumerate().for_each(|(at, value)| *value = at as f32);
        copy_streaming(&from, &mut to);
        assert_eq!(*to, *from);
        triad(&mut to, &from, &vec![2.0; len], 0.5);
        assert!(to.iter().enumerate().all(|(at, value)| *value == at as f32 + 1.0));
    }

    #[test]
    fn chains_run_for_every_instruction_set_of_this_processor() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            f32_chains(isa, 3);
            bf16_chains(isa, 3);
            assert_eq!(f32_operations(isa, 3) % 6, 0);
        }
    }
}
