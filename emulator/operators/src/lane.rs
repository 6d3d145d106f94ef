//! Lanes: number types of kernel arithmetic (`f32`, `f64`, `i64`), and conversions from and to
//! element types.
//!
//! Stores round once, to nearest, ties to even. f16 and bf16 widen exactly to f32. Integers and
//! booleans use i64 and wrap when stored, as on the device. A float stored to an integer truncates
//! towards zero and saturates; NaN becomes 0.

use std::cell::RefCell;

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::dtype::AclType;
use super::raw::Pod;
use super::view::StridedView;
use crate::simd::isa::dispatched;

/// Fits the first-level cache, and is large enough to vectorise.
pub(crate) const BLOCK: usize = 1024;

thread_local! {
    /// Reused, because clearing costs as much as converting.
    static HALVES: RefCell<[u16; BLOCK]> = const { RefCell::new([0; BLOCK]) };
}

fn load_halves(view: &StridedView, start: usize, out: &mut [f32], convert: impl Fn(&mut [u16], &mut [f32])) {
    HALVES.with_borrow_mut(|halves| {
        for (i, chunk) in out.chunks_mut(BLOCK).enumerate() {
            let halves = &mut halves[..chunk.len()];
            view.read(start + i * BLOCK, halves);
            convert(halves, chunk);
        }
    });
}

fn store_halves(view: &StridedView, start: usize, values: &[f32], convert: impl Fn(&[f32], &mut [u16])) {
    HALVES.with_borrow_mut(|halves| {
        for (i, chunk) in values.chunks(BLOCK).enumerate() {
            let halves = &mut halves[..chunk.len()];
            convert(chunk, halves);
            view.write(start + i * BLOCK, halves);
        }
    });
}

pub(crate) trait Lane: Copy + Default + PartialOrd + Send + Sync + std::fmt::Debug + 'static {
    /// Loads row-major elements from `start` on, of any type.
    fn load(view: &StridedView, start: usize, out: &mut [Self]);
    fn store(view: &StridedView, start: usize, values: &[Self]);
    fn from_bool(value: bool) -> Self;
    fn from_f64(value: f64) -> Self;
    fn from_i64(value: i64) -> Self;
    fn is_nan(self) -> bool;
    /// Rounds like type `dtype`.
    fn rounded(self, dtype: AclType) -> Self;
}

fn load_through<T: Pod, L>(view: &StridedView, start: usize, out: &mut [L], convert: impl Fn(T) -> L) {
    let mut buffer = [T::default(); BLOCK];
    for (i, chunk) in out.chunks_mut(BLOCK).enumerate() {
        let read = &mut buffer[..chunk.len()];
        view.read(start + i * BLOCK, read);
        for (slot, &value) in chunk.iter_mut().zip(read.iter()) {
            *slot = convert(value);
        }
    }
}

fn store_through<T: Pod, L: Copy>(view: &StridedView, start: usize, values: &[L], convert: impl Fn(L) -> T) {
    let mut buffer = [T::default(); BLOCK];
    for (i, chunk) in values.chunks(BLOCK).enumerate() {
        let write = &mut buffer[..chunk.len()];
        for (slot, &value) in write.iter_mut().zip(chunk) {
            *slot = convert(value);
        }
        view.write(start + i * BLOCK, write);
    }
}

macro_rules! numeric {
    ($call:ident, $view:expr, $start:expr, $data:expr, $lane:ty; $($special:tt)*) => {
        match $view.dtype() {
            AclType::I8 => numeric!(@ $call, i8, $view, $start, $data, $lane),
            AclType::I16 => numeric!(@ $call, i16, $view, $start, $data, $lane),
            AclType::I32 => numeric!(@ $call, i32, $view, $start, $data, $lane),
            AclType::U8 => numeric!(@ $call, u8, $view, $start, $data, $lane),
            AclType::U16 => numeric!(@ $call, u16, $view, $start, $data, $lane),
            AclType::U32 => numeric!(@ $call, u32, $view, $start, $data, $lane),
            AclType::U64 => numeric!(@ $call, u64, $view, $start, $data, $lane),
            AclType::C64 => panic!("complex numbers are computed as two parts"),
            $($special)*
        }
    };
    (@ load_through, $t:ty, $view:expr, $start:expr, $data:expr, $lane:ty) => {
        load_through::<$t, $lane>($view, $start, $data, |v| v as $lane)
    };
    (@ store_through, $t:ty, $view:expr, $start:expr, $data:expr, $lane:ty) => {
        store_through::<$t, $lane>($view, $start, $data, |v| v as $t)
    };
}

impl Lane for f32 {
    fn load(view: &StridedView, start: usize, out: &mut [Self]) {
        numeric!(load_through, view, start, out, Self;
            AclType::F32 => view.read(start, out),
            AclType::F16 => load_halves(view, start, out, |bits, out| {
                bits.reinterpret_cast_mut::<f16>().convert_to_f32_slice(out);
            }),
            AclType::BF16 => load_halves(view, start, out, |bits, out| widen_bf16(bits, out)),
            AclType::F64 => load_through::<f64, Self>(view, start, out, |v| v as Self),
            AclType::I64 => load_through::<i64, Self>(view, start, out, |v| v as Self),
            AclType::Bool => load_through::<u8, Self>(view, start, out, |v| Self::from_bool(v != 0)),
        );
    }

    fn store(view: &StridedView, start: usize, values: &[Self]) {
        numeric!(store_through, view, start, values, Self;
            AclType::F32 => view.write(start, values),
            AclType::F16 => store_halves(view, start, values, |values, bits| {
                bits.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values);
            }),
            AclType::BF16 => store_halves(view, start, values, narrow_bf16),
            AclType::F64 => store_through::<f64, Self>(view, start, values, f64::from),
            AclType::I64 => store_through::<i64, Self>(view, start, values, |v| v as i64),
            AclType::Bool => store_through::<u8, Self>(view, start, values, |v| u8::from(v != 0.0)),
        );
    }

    fn from_bool(value: bool) -> Self {
        if value { 1.0 } else { 0.0 }
    }

    fn from_f64(value: f64) -> Self {
        value as Self
    }

    fn from_i64(value: i64) -> Self {
        value as Self
    }

    fn is_nan(self) -> bool {
        Self::is_nan(self)
    }

    fn rounded(self, dtype: AclType) -> Self {
        match dtype {
            AclType::F16 => f16::from_f32(self).to_f32(),
            AclType::BF16 => Self::from_bits(u32::from(bf16_bits(self)) << 16),
            _ => self,
        }
    }
}

dispatched! {
    fn widen_bf16(from: &[u16], into: &mut [f32]) {
        for (wide, &bits) in into.iter_mut().zip(from) {
            *wide = f32::from_bits(u32::from(bits) << 16);
        }
    }
}

dispatched! {
    fn narrow_bf16(from: &[f32], into: &mut [u16]) {
        for (bits, &wide) in into.iter_mut().zip(from) {
            *bits = bf16_bits(wide);
        }
    }
}

/// Returns the nearest bf16, ties to even; NaN stays quiet. Branch-free so that loops vectorise.
#[inline(always)]
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { rounded }
}

/// Rounds an inexact value towards zero and sets the last bit. Rounding the result to 16 bits then
/// equals one rounding of `value`. Plain f32 would round twice, and the `half` crate inspects only
/// the upper half of the bits.
fn sticky(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || !near.is_finite() {
        return near;
    }
    let beyond = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

/// Applies [`sticky`] to an integer.
fn sticky_whole(value: i64) -> f32 {
    let shift = 38 - value.unsigned_abs().leading_zeros().min(38);
    let kept = value >> shift;
    let lost = i64::from(kept << shift != value);
    // Exact: at most 27 bits remain.
    sticky((kept | lost) as f64) * (1u64 << shift) as f32
}

impl Lane for f64 {
    fn load(view: &StridedView, start: usize, out: &mut [Self]) {
        numeric!(load_through, view, start, out, Self;
            AclType::F64 => view.read(start, out),
            AclType::F32 => load_through::<f32, Self>(view, start, out, Self::from),
            AclType::F16 => load_through::<f16, Self>(view, start, out, f16::to_f64),
            AclType::BF16 => load_through::<bf16, Self>(view, start, out, bf16::to_f64),
            AclType::I64 => load_through::<i64, Self>(view, start, out, |v| v as Self),
            AclType::Bool => load_through::<u8, Self>(view, start, out, |v| Self::from_bool(v != 0)),
        );
    }

    fn store(view: &StridedView, start: usize, values: &[Self]) {
        numeric!(store_through, view, start, values, Self;
            AclType::F64 => view.write(start, values),
            AclType::F32 => store_through::<f32, Self>(view, start, values, |v| v as f32),
            AclType::F16 => store_through::<f16, Self>(view, start, values, |v| f16::from_f32(sticky(v))),
            AclType::BF16 => store_through::<bf16, Self>(view, start, values, |v| bf16::from_f32(sticky(v))),
            AclType::I64 => store_through::<i64, Self>(view, start, values, |v| v as i64),
            AclType::Bool => store_through::<u8, Self>(view, start, values, |v| u8::from(v != 0.0)),
        );
    }

    fn from_bool(value: bool) -> Self {
        if value { 1.0 } else { 0.0 }
    }

    fn from_f64(value: f64) -> Self {
        value
    }

    fn from_i64(value: i64) -> Self {
        value as Self
    }

    fn is_nan(self) -> bool {
        Self::is_nan(self)
    }

    fn rounded(self, dtype: AclType) -> Self {
        match dtype {
            AclType::F16 => f16::from_f32(sticky(self)).to_f64(),
            AclType::BF16 => bf16::from_f32(sticky(self)).to_f64(),
            AclType::F32 => Self::from(self as f32),
            _ => self,
        }
    }
}

impl Lane for i64 {
    fn load(view: &StridedView, start: usize, out: &mut [Self]) {
        numeric!(load_through, view, start, out, Self;
            AclType::I64 => view.read(start, out),
            AclType::F32 => load_through::<f32, Self>(view, start, out, |v| v as Self),
            AclType::F64 => load_through::<f64, Self>(view, start, out, |v| v as Self),
            AclType::F16 => load_through::<f16, Self>(view, start, out, |v| v.to_f32() as Self),
            AclType::BF16 => load_through::<bf16, Self>(view, start, out, |v| v.to_f32() as Self),
            AclType::Bool => load_through::<u8, Self>(view, start, out, |v| Self::from(v != 0)),
        );
    }

    fn store(view: &StridedView, start: usize, values: &[Self]) {
        numeric!(store_through, view, start, values, Self;
            AclType::I64 => view.write(start, values),
            AclType::F32 => store_through::<f32, Self>(view, start, values, |v| v as f32),
            AclType::F64 => store_through::<f64, Self>(view, start, values, |v| v as f64),
            AclType::F16 => store_through::<f16, Self>(view, start, values, |v| f16::from_f32(sticky_whole(v))),
            AclType::BF16 => store_through::<bf16, Self>(view, start, values, |v| bf16::from_f32(sticky_whole(v))),
            AclType::Bool => store_through::<u8, Self>(view, start, values, |v| u8::from(v != 0)),
        );
    }

    fn from_bool(value: bool) -> Self {
        Self::from(value)
    }

    fn from_f64(value: f64) -> Self {
        value as Self
    }

    fn from_i64(value: i64) -> Self {
        value
    }

    fn is_nan(self) -> bool {
        false
    }

    fn rounded(self, dtype: AclType) -> Self {
        match dtype {
            AclType::I8 => Self::from(self as i8),
            AclType::I16 => Self::from(self as i16),
            AclType::I32 => Self::from(self as i32),
            AclType::U8 => Self::from(self as u8),
            AclType::U16 => Self::from(self as u16),
            AclType::U32 => Self::from(self as u32),
            AclType::Bool => Self::from(self != 0),
            _ => self,
        }
    }
}

/// Arithmetic, which wraps for integers.
pub(crate) trait Arithmetic: Lane {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Integer division by zero gives zero.
    fn over(self, other: Self) -> Self;
}

macro_rules! float_arithmetic {
    ($($t:ty),*) => { $(impl Arithmetic for $t {
        fn plus(self, other: Self) -> Self {
            self + other
        }
        fn minus(self, other: Self) -> Self {
            self - other
        }
        fn times(self, other: Self) -> Self {
            self * other
        }
        fn over(self, other: Self) -> Self {
            self / other
        }
    })* };
}
float_arithmetic!(f32, f64);

impl Arithmetic for i64 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    fn over(self, other: Self) -> Self {
        if other == 0 { 0 } else { self.wrapping_div(other) }
    }
}

/// `$lane` is the lane type of `$dtype`.
macro_rules! with_lane {
    ($dtype:expr, $lane:ident => $body:expr) => {
        match $dtype.lane() {
            $crate::dtype::LaneKind::Single => {
                type $lane = f32;
                $body
            }
            $crate::dtype::LaneKind::Double => {
                type $lane = f64;
                $body
            }
            $crate::dtype::LaneKind::Integer => {
                type $lane = i64;
                $body
            }
        }
    };
}
pub(crate) use with_lane;

#[cfg(test)]
mod tests {
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

    use super::super::raw::tests::span_of;
    use super::*;

    #[test]
    fn every_type_round_trips_small_integers_through_every_lane() {
        for dtype in AclType::ALL {
            let mut memory = vec![0u8; 16 * dtype.size()];
            let view = StridedView::new(span_of(&mut memory), dtype, &[16], &[1], 0).unwrap();
            let values: Vec<i64> =
                (0..16).map(|i| if dtype == AclType::Bool { i % 2 } else { i * 5 }).collect();
            i64::store(&view, 0, &values);
            let (mut ints, mut singles, mut doubles) = ([0i64; 16], [0f32; 16], [0f64; 16]);
            i64::load(&view, 0, &mut ints);
            f32::load(&view, 0, &mut singles);
            f64::load(&view, 0, &mut doubles);
            for i in 0..16 {
                assert_eq!(
                    (ints[i], singles[i], doubles[i]),
                    (values[i], values[i] as f32, values[i] as f64),
                    "{dtype}"
                );
            }
            f32::store(&view, 0, &singles);
            f64::store(&view, 0, &doubles);
            i64::load(&view, 0, &mut ints);
            assert_eq!(ints[..], values[..], "{dtype}");
        }
    }

    #[test]
    fn wide_numbers_are_rounded_to_16_bits_once() {
        // Slightly above a midpoint, which f32 or the upper half of the f64 bits does not show.
        for (value, half, brain) in [
            (1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1.0 + 2f64.powi(-10), 1.0),
            (1.0 + 2f64.powi(-8) + 2f64.powi(-40), 1.0 + 2f64.powi(-8), 1.0 + 2f64.powi(-7)),
            (1.0 + 3.0 * 2f64.powi(-11) - 2f64.powi(-40), 1.0 + 2f64.powi(-10), 1.0),
        ] {
            assert_eq!([AclType::F16, AclType::BF16].map(|dtype| value.rounded(dtype)), [half, brain]);
            assert_eq!([AclType::F16, AclType::BF16].map(|dtype| (-value).rounded(dtype)), [-half, -brain]);
        }
        let mut memory = [0u16; 3];
        let view = StridedView::new(span_of(&mut memory), AclType::BF16, &[3], &[1], 0).unwrap();
        i64::store(&view, 0, &[(1 << 40) + (1 << 32) + 1, -(1 << 62) - (1 << 54) - 1, (1 << 40) + (1 << 32)]);
        let stored = memory.map(|bits| bf16::from_bits(bits).to_f64());
        let power = |exponent: i32| 2f64.powi(exponent);
        assert_eq!(stored, [power(40) + power(33), -power(62) - power(55), power(40)]);
    }

    #[test]
    fn bf16_rounds_like_the_half_crate() {
        let mut random = SplitMix64::seed_from_u64(1);
        for _ in 0..100_000 {
            let value = f32::from_bits(random.next_u64() as u32);
            let expected = bf16::from_f32(value);
            assert!(
                bf16_bits(value) == expected.to_bits()
                    || value.is_nan() && bf16::from_bits(bf16_bits(value)).is_nan()
            );
        }
        assert_eq!(bf16_bits(f32::INFINITY), bf16::INFINITY.to_bits());
        assert_eq!(bf16_bits(f32::MAX), bf16::INFINITY.to_bits());
    }

    #[test]
    fn floats_to_integers_truncate_saturate_and_zero_nan() {
        let mut memory = [0i8; 4];
        let view = StridedView::new(span_of(&mut memory), AclType::I8, &[4], &[1], 0).unwrap();
        f32::store(&view, 0, &[-1.9, 300.0, f32::NAN, 2.5]);
        assert_eq!(memory, [-1, 127, 0, 2]);
    }

    #[test]
    fn integers_wrap_when_stored() {
        let mut memory = [0u8; 2];
        let view = StridedView::new(span_of(&mut memory), AclType::U8, &[2], &[1], 0).unwrap();
        i64::store(&view, 0, &[256 + 7, -1]);
        assert_eq!(memory, [7, 255]);
        assert_eq!(300i64.rounded(AclType::I8), 44);
    }

    #[test]
    fn long_ranges_cross_blocks() {
        let mut memory = vec![f16::ZERO; 3 * BLOCK + 5];
        let view = StridedView::new(span_of(&mut memory), AclType::F16, &[memory.len()], &[1], 0).unwrap();
        let values: Vec<f32> = (0..view.len()).map(|i| (i % 512) as f32).collect();
        f32::store(&view, 0, &values);
        let mut back = vec![0f32; values.len() - 3];
        f32::load(&view, 3, &mut back);
        assert_eq!(back, values[3..]);
    }
}
