//! Reduction arithmetic of collectives: `total[i] = total[i] op from[i]`.
//!
//! Invariants: results do not depend on the instruction set. fp16 and bfp16 accumulate in f32 with
//! one rounding; integers wrap around. NaN wins in max and min.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::raw::Pod;
use crate::simd::isa::dispatched;

/// Reduction operation of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CombineOp {
    /// Sum of all contributions.
    Sum,
    /// Product of all contributions.
    Prod,
    /// Greatest of all contributions.
    Max,
    /// Least of all contributions.
    Min,
}

impl fmt::Display for CombineOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
        })
    }
}

/// An element that can be reduced in a wider accumulator type.
pub trait Reducible: Pod {
    /// Accumulator type of the element.
    type Wide: Copy + Default;
    /// Computes `total[i] = total[i] op from[i]`; without an operation, `total[i] = from[i]`.
    fn accumulate(op: Option<CombineOp>, from: &[Self], total: &mut [Self::Wide]);
    /// Stores `into[i] = from[i]`, rounded to nearest, ties to even.
    fn narrow(from: &[Self::Wide], into: &mut [Self]);
}

macro_rules! reducible {
    ($($element:ty as $wide:ty: $widen:expr, $narrow:expr, $sum:expr, $prod:expr, $max:expr, $min:expr;)*) => { $(
        impl Reducible for $element {
            type Wide = $wide;
            fn accumulate(op: Option<CombineOp>, from: &[Self], total: &mut [$wide]) {
                dispatched! {
                    fn accumulate(op: Option<CombineOp>, from: &[$element], total: &mut [$wide]) {
                        let each = total.iter_mut().zip(from.iter().map(|narrow| $widen(*narrow)));
                        match op {
                            None => each.for_each(|(total, wide)| *total = wide),
                            Some(CombineOp::Sum) => each.for_each(|(total, wide)| *total = $sum(*total, wide)),
                            Some(CombineOp::Prod) => each.for_each(|(total, wide)| *total = $prod(*total, wide)),
                            Some(CombineOp::Max) => each.for_each(|(total, wide)| *total = $max(*total, wide)),
                            Some(CombineOp::Min) => each.for_each(|(total, wide)| *total = $min(*total, wide)),
                        }
                    }
                }
                accumulate(op, from, total);
            }
            fn narrow(from: &[$wide], into: &mut [Self]) {
                dispatched! {
                    fn narrow(from: &[$wide], into: &mut [$element]) {
                        into.iter_mut().zip(from).for_each(|(narrow, wide)| *narrow = $narrow(*wide));
                    }
                }
                narrow(from, into);
            }
        }
    )* };
}
reducible! {
    i8 as i8: same, same, i8::wrapping_add, i8::wrapping_mul, Ord::max, Ord::min;
    i16 as i16: same, same, i16::wrapping_add, i16::wrapping_mul, Ord::max, Ord::min;
    i32 as i32: same, same, i32::wrapping_add, i32::wrapping_mul, Ord::max, Ord::min;
    i64 as i64: same, same, i64::wrapping_add, i64::wrapping_mul, Ord::max, Ord::min;
    f32 as f32: same, same, sum, prod, max, min;
    f16 as f32: widen_f16, narrow_f16, sum, prod, max, min;
    bf16 as f32: widen_bf16, narrow_bf16, sum, prod, max, min;
}

fn same<T>(value: T) -> T {
    value
}

fn sum(a: f32, b: f32) -> f32 {
    a + b
}

fn prod(a: f32, b: f32) -> f32 {
    a * b
}

fn max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

fn min(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}

/// Works like `f16::to_f32`, without branches so that loops vectorise. The shifted bits are the
/// value over 2^112. A signalling NaN stays signalling.
#[inline(always)]
fn widen_f16(value: f16) -> f32 {
    const INFINITY: u32 = 0x7c00 << 13;
    let bits = u32::from(value.to_bits());
    let (sign, rest) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    let scaled = (f32::from_bits(rest) * f32::from_bits((127 + 112) << 23)).to_bits();
    f32::from_bits(sign | if rest >= INFINITY { rest | 0x7f80_0000 } else { scaled })
}

/// Rounds to nearest even, like `f16::from_f32`.
#[inline(always)]
fn narrow_f16(value: f32) -> f16 {
    /// Bits of f32: the least normal f16, and the least value that overflows f16.
    const NORMAL: u32 = (127 - 14) << 23;
    const BEYOND: u32 = (127 + 16) << 23;
    let bits = value.to_bits();
    let (sign, rest) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    // The constant carries into the kept bits; the exponent bias changes from 127 to 15.
    let normal = rest.wrapping_sub(112 << 23).wrapping_add(0xfff + ((rest >> 13) & 1)) >> 13;
    // After adding 0.5, the last places of f32 and subnormal f16 coincide.
    let subnormal = (f32::from_bits(rest) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let finite = if rest < NORMAL { subnormal } else { normal };
    let number = if rest >= BEYOND { 0x7c00 } else { finite };
    let narrow = if rest > 0x7f80_0000 { 0x7e00 | ((rest >> 13) & 0x3ff) } else { number };
    f16::from_bits((sign | narrow) as u16)
}

#[inline(always)]
fn widen_bf16(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// Rounds to nearest even, like `bf16::from_f32`.
#[inline(always)]
fn narrow_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let narrow = if value.is_nan() { (bits >> 16) | 0x40 } else { nearest };
    bf16::from_bits(narrow as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_those_of_the_half_crate() {
        for bits in 0..=u16::MAX {
            let halves = (widen_f16(f16::from_bits(bits)), f16::from_bits(bits).to_f32());
            let brains = (widen_bf16(bf16::from_bits(bits)), bf16::from_bits(bits).to_f32());
            for (found, known) in [halves, brains] {
                assert!(found.to_bits() == known.to_bits() || found.is_nan() && known.is_nan(), "{bits:#x}");
            }
        }
        // All exponents, with all kinds of bits around the last kept place.
        let lows = [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff];
        for (high, low) in (0..1_u32 << 16).flat_map(|high| lows.map(|low| (high, low))) {
            let value = f32::from_bits(high << 16 | low);
            assert_eq!(narrow_f16(value).to_bits(), f16::from_f32(value).to_bits(), "{high:#x} {low:#x}");
            assert_eq!(narrow_bf16(value).to_bits(), bf16::from_f32(value).to_bits(), "{high:#x} {low:#x}");
        }
    }
}
