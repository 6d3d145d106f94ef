//! Rows that can be packed, and the numbers in them.

use crate::simd::isa::Isa;

/// Element type of a row, and form of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackSource {
    Singles,
    /// A word is a pair of bf16.
    Pairs,
    /// A word is an f16, widened.
    Halves,
    /// A word is a bf16, widened.
    Brains,
}

/// Bits of the least and, plus one, the greatest plain number without sign: `2^-56` and `2^56`.
pub(super) const PLAIN: std::ops::Range<u32> = (127 - 56) << 23..(127 + 56) << 23;

/// Returns whether there are instructions for rows in place.
pub(crate) const fn is_possible(isa: Isa) -> bool {
    cfg!(target_arch = "x86_64") && matches!(isa, Isa::Avx512 | Isa::Avx512Bf16)
}
