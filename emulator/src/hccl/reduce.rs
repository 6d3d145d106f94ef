//! Reducing blocks of elements: `out[i] = x_0[i] op x_1[i] op … op x_(n-1)[i]`, in that order.
//!
//! Input: n spans of the same number of elements. Output: one span, or several copies of it. Accumulation: f32 for
//! fp16 and bfp16 with one rounding at the end, the type itself for fp32, two's complement wrap-around for integers;
//! max and min give NaN when a contribution is NaN. Invariants: the result does not depend on tiling or on the
//! instructions in use; a block reads all its inputs before it writes, so an output may be an input. Does not: split work
//! over threads (see `perform`).

use half::{bf16, f16};

use crate::hccl::{DataType, ReduceOp};
use crate::memory::raw::{Element, RawSpan};
use crate::nn::simd::isa::dispatched;

/// Elements accumulated at once. Few enough for the second-level cache; enough that each input is read and each output
/// written in long runs: with a run of 4 KiB of each of 16 vectors in turn, memory gives two thirds of its bandwidth.
const BLOCK: usize = 8192;

/// Element `first` onwards, `count` of them, of every span in `inputs`, reduced into the same place of every `outputs`.
pub(crate) fn reduce(
    inputs: &[RawSpan],
    outputs: &[RawSpan],
    dtype: DataType,
    op: ReduceOp,
    first: usize,
    count: usize,
) {
    let range = first..first + count;
    match dtype {
        DataType::Int8 => reduce_as::<i8>(inputs, outputs, op, range),
        DataType::Int16 => reduce_as::<i16>(inputs, outputs, op, range),
        DataType::Int32 => reduce_as::<i32>(inputs, outputs, op, range),
        DataType::Int64 => reduce_as::<i64>(inputs, outputs, op, range),
        DataType::Fp16 => reduce_as::<f16>(inputs, outputs, op, range),
        DataType::Bf16 => reduce_as::<bf16>(inputs, outputs, op, range),
        DataType::Fp32 => reduce_as::<f32>(inputs, outputs, op, range),
        // `CollectiveRule::reduction` refuses these before a call is enqueued.
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 | DataType::Fp64 => {
            unreachable!("{op} of {dtype} was not refused")
        }
    }
}

fn reduce_as<T: Reducible>(inputs: &[RawSpan], outputs: &[RawSpan], op: ReduceOp, range: std::ops::Range<usize>) {
    let mut narrow = [T::default(); BLOCK];
    let mut total = [T::Wide::default(); BLOCK];
    for start in range.clone().step_by(BLOCK) {
        let count = BLOCK.min(range.end - start);
        let offset_bytes = start * size_of::<T>();
        let (narrow, total) = (&mut narrow[..count], &mut total[..count]);
        for (rank, input) in inputs.iter().enumerate() {
            input.read(offset_bytes, narrow);
            let op = (rank > 0).then_some(op);
            T::accumulate(op, narrow, total);
        }
        T::narrow(total, narrow);
        for output in outputs {
            output.write(offset_bytes, narrow);
        }
    }
}

/// An element with the type it is accumulated in.
trait Reducible: Element {
    type Wide: Copy + Default;
    /// `total[i] = total[i] op from[i]`; without an operation, `total[i] = from[i]`.
    fn accumulate(op: Option<ReduceOp>, from: &[Self], total: &mut [Self::Wide]);
    fn narrow(from: &[Self::Wide], into: &mut [Self]);
}

macro_rules! reducible {
    ($($element:ty as $wide:ty: $widen:expr, $narrow:expr, $sum:expr, $prod:expr, $max:expr, $min:expr;)*) => { $(
        impl Reducible for $element {
            type Wide = $wide;
            fn accumulate(op: Option<ReduceOp>, from: &[Self], total: &mut [$wide]) {
                dispatched! {
                    fn accumulate(op: Option<ReduceOp>, from: &[$element], total: &mut [$wide]) {
                        let each = total.iter_mut().zip(from.iter().map(|narrow| $widen(*narrow)));
                        match op {
                            None => each.for_each(|(total, wide)| *total = wide),
                            Some(ReduceOp::Sum) => each.for_each(|(total, wide)| *total = $sum(*total, wide)),
                            Some(ReduceOp::Prod) => each.for_each(|(total, wide)| *total = $prod(*total, wide)),
                            Some(ReduceOp::Max) => each.for_each(|(total, wide)| *total = $max(*total, wide)),
                            Some(ReduceOp::Min) => each.for_each(|(total, wide)| *total = $min(*total, wide)),
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

/// As `f16::to_f32`, free of branches so that it vectorises: the bits in place are the value over 2^112. A signalling NaN
/// stays one until it is computed with or narrowed.
#[inline(always)]
fn widen_f16(value: f16) -> f32 {
    const INFINITY: u32 = 0x7c00 << 13;
    let bits = u32::from(value.to_bits());
    let (sign, rest) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    let scaled = (f32::from_bits(rest) * f32::from_bits((127 + 112) << 23)).to_bits();
    f32::from_bits(sign | if rest >= INFINITY { rest | 0x7f80_0000 } else { scaled })
}

/// As `f16::from_f32`: the nearest, ties to even; a NaN stays a quiet one.
#[inline(always)]
fn narrow_f16(value: f32) -> f16 {
    /// The least normal number, and the least that is beyond all.
    const NORMAL: u32 = (127 - 14) << 23;
    const BEYOND: u32 = (127 + 16) << 23;
    let bits = value.to_bits();
    let (sign, rest) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    // Rounds by what carries into the bits that stay; the exponent moves from bias 127 to 15.
    let normal = rest.wrapping_sub(112 << 23).wrapping_add(0xfff + ((rest >> 13) & 1)) >> 13;
    // Beside a half the last place of an f32 is the last of a subnormal f16.
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

/// As `bf16::from_f32`: the nearest, ties to even; a NaN stays a quiet one.
#[inline(always)]
fn narrow_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let narrow = if value.is_nan() { (bits >> 16) | 0x40 } else { nearest };
    bf16::from_bits(narrow as u16)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::location::Location;
    use crate::memory::raw::Allocation;

    fn span_of<T: Element>(values: &[T]) -> RawSpan {
        let allocation = Arc::new(Allocation::new(size_of_val(values), Location::Card(0), None).expect("mapping"));
        let span = allocation.span(0, size_of_val(values));
        span.write(0, values);
        span
    }

    fn reduced<T: Element>(inputs: &[Vec<T>], dtype: DataType, op: ReduceOp) -> Vec<T> {
        let spans: Vec<RawSpan> = inputs.iter().map(|values| span_of(values)).collect();
        let count = inputs[0].len();
        // In place: the outputs are the inputs.
        reduce(&spans, &spans, dtype, op, 0, count);
        let mut out = vec![T::default(); count];
        for span in &spans {
            span.read(0, &mut out);
        }
        out
    }

    #[test]
    fn integers_wrap_and_blocks_join() {
        let count = 2 * BLOCK + 7;
        let inputs: Vec<Vec<i8>> = (0..3).map(|rank| (0..count).map(|i| (i * 3 + rank) as i8).collect()).collect();
        let expected: Vec<i8> = (0..count).map(|i| (i * 9 + 3) as i8).collect();
        assert_eq!(reduced(&inputs, DataType::Int8, ReduceOp::Sum), expected);
        let least: Vec<i8> = (0..count).map(|i| (0..3).map(|rank| (i * 3 + rank) as i8).min().unwrap_or(0)).collect();
        assert_eq!(reduced(&inputs, DataType::Int8, ReduceOp::Min), least);
    }

    #[test]
    fn conversions_are_those_of_the_half_crate() {
        for bits in 0..=u16::MAX {
            let halves = (widen_f16(f16::from_bits(bits)), f16::from_bits(bits).to_f32());
            let brains = (widen_bf16(bf16::from_bits(bits)), bf16::from_bits(bits).to_f32());
            for (found, known) in [halves, brains] {
                assert!(found.to_bits() == known.to_bits() || found.is_nan() && known.is_nan(), "{bits:#x}");
            }
        }
        // Every exponent and sign, with the bits about the last place that stays in all combinations.
        let lows = [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff];
        for (high, low) in (0..1_u32 << 16).flat_map(|high| lows.map(|low| (high, low))) {
            let value = f32::from_bits(high << 16 | low);
            assert_eq!(narrow_f16(value).to_bits(), f16::from_f32(value).to_bits(), "{high:#x} {low:#x}");
            assert_eq!(narrow_bf16(value).to_bits(), bf16::from_f32(value).to_bits(), "{high:#x} {low:#x}");
        }
    }

    #[test]
    fn halves_round_once() {
        // In fp16 2048 + 1 rounds to 2048; summed in f32, 2048 + 1 + 1 is 2050 exactly.
        let inputs: Vec<Vec<f16>> = [2048.0, 1.0, 1.0].map(|x| vec![f16::from_f32(x)]).to_vec();
        assert_eq!(reduced(&inputs, DataType::Fp16, ReduceOp::Sum)[0].to_f32(), 2050.0);
        let inputs: Vec<Vec<bf16>> = [256.0, 1.0, 1.0].map(|x| vec![bf16::from_f32(x)]).to_vec();
        assert_eq!(reduced(&inputs, DataType::Bf16, ReduceOp::Sum)[0].to_f32(), 258.0);
    }

    #[test]
    fn order_is_rank_order_and_nan_wins() {
        let inputs = [1e8_f32, 1.0, -1e8].map(|x| vec![x]).to_vec();
        assert_eq!(reduced(&inputs, DataType::Fp32, ReduceOp::Sum), [(1e8_f32 + 1.0) - 1e8]);
        let with_nan = [1.0, f32::NAN, 3.0].map(|x| vec![x]).to_vec();
        assert!(reduced(&with_nan, DataType::Fp32, ReduceOp::Max)[0].is_nan());
        assert!(reduced(&with_nan, DataType::Fp32, ReduceOp::Min)[0].is_nan());
        let product = [2_i64, -3, 5].map(|x| vec![x]).to_vec();
        assert_eq!(reduced(&product, DataType::Int64, ReduceOp::Prod), [-30]);
    }
}
