//! Packing of matrix rows that are read in place, in device memory, into slabs of words.
//!
//! - A slab is `[words][WIDTH]`: the first word of each row, then the next.
//! - A word has 32 bits: an f32, also a widened f16 or bf16, or two bf16 neighbours.
//! - A slab is packed in steps, which the product of another slab takes between its own.

use crate::simd::isa::{Isa, dispatched};

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use elsewhere::SlabPacking;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::SlabPacking;

/// Element type of a row, and form of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Singles,
    /// A word is a pair of bf16.
    Pairs,
    /// A word is an f16, widened.
    Halves,
    /// A word is a bf16, widened.
    Brains,
}

/// Bits of the least and, plus one, the greatest plain number without sign: `2^-56` and `2^56`.
const PLAIN: std::ops::Range<u32> = (127 - 56) << 23..(127 + 56) << 23;

dispatched! {
    /// Returns whether each number is zero or plain: products and up to 2^14 sums of such bf16 are
    /// zero, or neither too small nor too large for a normal f32.
    pub(crate) fn is_plain(values: &[f32]) -> bool {
        values.iter().fold(true, |all, value| {
            let bits = value.to_bits() & (u32::MAX >> 1);
            all & ((bits == 0) | (bits.wrapping_sub(PLAIN.start) < PLAIN.end - PLAIN.start))
        })
    }
}

/// Returns whether there are instructions for rows in place.
pub(crate) const fn is_possible(isa: Isa) -> bool {
    cfg!(target_arch = "x86_64") && matches!(isa, Isa::Avx512 | Isa::Avx512Bf16)
}
