//! Packing of matrix rows that are read in place, in device memory, into slabs of words.
//!
//! - A slab is `[words][WIDTH]`: the first word of each row, then the next.
//! - A word has 32 bits: an f32, also a widened f16 or bf16, or two bf16 neighbours.
//! - A slab is packed in steps, which the product of another slab takes between its own.

use crate::simd::isa::dispatched;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
mod source;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use elsewhere::SlabPacking;
use source::PLAIN;
pub(crate) use source::{PackSource, is_possible};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::SlabPacking;

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
