//! Reducing blocks of elements: `out[i] = x_0[i] op x_1[i] op … op x_(n-1)[i]`, in that order.
//!
//! Input: n spans of the same number of elements. Output: one span, or several copies of it. Accumulation: f32 for
//! fp16 and bfp16 with one rounding at the end, the type itself for fp32, two's complement wrap-around for integers;
//! max and min give NaN when a contribution is NaN. Invariants: the result does not depend on tiling; a tile reads all
//! its inputs before it writes, so an output may be an input. Does not: split work over threads (see `perform`).

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::abi::raw::{Element, RawSpan};
use crate::collective::{DataType, ReduceOp};

/// Elements held in the first-level cache at once.
const BLOCK: usize = 1024;

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
    match op {
        ReduceOp::Sum => blocks::<T>(inputs, outputs, range, T::Wide::sum),
        ReduceOp::Prod => blocks::<T>(inputs, outputs, range, T::Wide::prod),
        ReduceOp::Max => blocks::<T>(inputs, outputs, range, T::Wide::max),
        ReduceOp::Min => blocks::<T>(inputs, outputs, range, T::Wide::min),
    }
}

fn blocks<T: Reducible>(
    inputs: &[RawSpan],
    outputs: &[RawSpan],
    range: std::ops::Range<usize>,
    combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    let mut narrow = [T::default(); BLOCK];
    let mut wide = [T::Wide::default(); BLOCK];
    let mut total = [T::Wide::default(); BLOCK];
    for start in range.clone().step_by(BLOCK) {
        let count = BLOCK.min(range.end - start);
        let offset_bytes = start * size_of::<T>();
        for (rank, input) in inputs.iter().enumerate() {
            let into = if rank == 0 { &mut total } else { &mut wide };
            input.read(offset_bytes, &mut narrow[..count]);
            T::widen(&narrow[..count], &mut into[..count]);
            if rank > 0 {
                for (total, wide) in total[..count].iter_mut().zip(&wide[..count]) {
                    *total = combine(*total, *wide);
                }
            }
        }
        T::narrow(&total[..count], &mut narrow[..count]);
        for output in outputs {
            output.write(offset_bytes, &narrow[..count]);
        }
    }
}

/// Arithmetic of an accumulator.
trait Accumulator: Copy + Default {
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
}

macro_rules! integer_accumulators {
    ($($integer:ty)*) => { $(
        impl Accumulator for $integer {
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }
        }
    )* };
}
integer_accumulators!(i8 i16 i32 i64);

impl Accumulator for f32 {
    fn sum(self, other: Self) -> Self {
        self + other
    }
    fn prod(self, other: Self) -> Self {
        self * other
    }
    fn max(self, other: Self) -> Self {
        if self > other || self.is_nan() { self } else { other }
    }
    fn min(self, other: Self) -> Self {
        if self < other || self.is_nan() { self } else { other }
    }
}

/// An element with the type it is accumulated in.
trait Reducible: Element {
    type Wide: Accumulator;
    fn widen(from: &[Self], into: &mut [Self::Wide]);
    fn narrow(from: &[Self::Wide], into: &mut [Self]);
}

macro_rules! accumulate_in_place {
    ($($element:ty)*) => { $(
        impl Reducible for $element {
            type Wide = Self;
            fn widen(from: &[Self], into: &mut [Self]) {
                into.copy_from_slice(from);
            }
            fn narrow(from: &[Self], into: &mut [Self]) {
                into.copy_from_slice(from);
            }
        }
    )* };
}
accumulate_in_place!(i8 i16 i32 i64 f32);

macro_rules! accumulate_in_f32 {
    ($($element:ty)*) => { $(
        impl Reducible for $element {
            type Wide = f32;
            fn widen(from: &[Self], into: &mut [f32]) {
                from.convert_to_f32_slice(into);
            }
            fn narrow(from: &[f32], into: &mut [Self]) {
                into.convert_from_f32_slice(from);
            }
        }
    )* };
}
accumulate_in_f32!(f16 bf16);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::abi::raw::{Allocation, Location};

    fn span_of<T: Element>(values: &[T]) -> RawSpan {
        let allocation = Arc::new(Allocation::new(size_of_val(values), Location::Card(0)).expect("mapping"));
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
