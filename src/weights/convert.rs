//! Converts stored elements between types.
//!
//! Input and output: little-endian elements, as bytes, because data in a file may be unaligned.
//!
//! Invariants: equal types are copied bit for bit. Other conversions round to nearest, ties to
//! even. Finite numbers that overflow and non-finite numbers are reported.

use std::slice;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::base::DType;

/// Number of elements per conversion, so that intermediate values stay in the L1 cache.
pub(super) const BLOCK: usize = 1024;

/// A finite number that does not fit the target type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Overflow {
    pub(crate) index: usize,
    pub(crate) value: f32,
}

/// Returns whether [`convert`] supports this pair of types.
pub(super) const fn is_convertible(from: DType, to: DType) -> bool {
    (from.is_float() && to.is_float()) || from as u8 == to as u8
}

/// Converts all elements of `source` into `out`, which must have the exact length.
///
/// The caller has checked the pair of types with [`is_convertible`].
pub(crate) fn convert(from: DType, to: DType, source: &[u8], out: &mut [u8]) -> Result<(), Overflow> {
    if from == to {
        out.copy_from_slice(source);
        return Ok(());
    }
    convert_changed(from, to, source, out, |_, _| ())
}

/// Converts floats as [`convert`] does, and applies `change` to the f32 values in between. `change`
/// receives the index of the first value of a block.
pub(super) fn convert_changed(
    from: DType,
    to: DType,
    source: &[u8],
    out: &mut [u8],
    change: impl Fn(usize, &mut [f32]),
) -> Result<(), Overflow> {
    let mut values = [0f32; BLOCK];
    let blocks = source.chunks(BLOCK * from.size_bytes()).zip(out.chunks_mut(BLOCK * to.size_bytes()));
    for (block, (source, out)) in blocks.enumerate() {
        let values = &mut values[..source.len() / from.size_bytes()];
        decode(from, source, values);
        change(block * BLOCK, values);
        encode(to, values, out)
            .map_err(|index| Overflow { index: block * BLOCK + index, value: values[index] })?;
    }
    Ok(())
}

/// Number of elements per test for finite numbers. Blocks of this size make the exit checks cheap.
const TESTED: usize = 16 << 10;

/// Returns the index and the value of the first element that is NaN or infinite.
pub(crate) fn first_not_finite(dtype: DType, bytes: &[u8]) -> Option<(usize, f32)> {
    // The inner loop has no early exit, so that the compiler can vectorise it.
    fn first<const N: usize>(bytes: &[u8], has_one: impl Fn(&[[u8; N]]) -> bool) -> Option<usize> {
        let mut blocks = bytes.as_chunks::<N>().0.chunks(TESTED).enumerate();
        let (block, elements) = blocks.find(|(_, elements)| has_one(elements))?;
        let at = elements.iter().position(|element| has_one(slice::from_ref(element)))?;
        Some(block * TESTED + at)
    }
    // NaN and infinity have an exponent of all ones.
    let halves = |elements: &[[u8; 2]], exponent: u16| {
        elements
            .iter()
            .fold(false, |any, element| any | (u16::from_le_bytes(*element) & exponent == exponent))
    };
    let singles = |elements: &[[u8; 4]], exponent: u32| {
        elements
            .iter()
            .fold(false, |any, element| any | (u32::from_le_bytes(*element) & exponent == exponent))
    };
    let index = match dtype {
        DType::F16 => first(bytes, |elements| halves(elements, 0x7c00)),
        DType::BF16 => first(bytes, |elements| halves(elements, 0x7f80)),
        DType::F32 => first(bytes, |elements| singles(elements, 0x7f80_0000)),
        _ => None,
    }?;
    let mut value = [0.0];
    decode(dtype, &bytes[index * dtype.size_bytes()..][..dtype.size_bytes()], &mut value);
    Some((index, value[0]))
}

fn decode(from: DType, source: &[u8], values: &mut [f32]) {
    match from {
        DType::F16 => {
            let mut halves = [f16::ZERO; BLOCK];
            let halves = &mut halves[..values.len()];
            for (half, bytes) in halves.iter_mut().zip(source.as_chunks::<2>().0) {
                *half = f16::from_le_bytes(*bytes);
            }
            // The slice method converts several elements per instruction.
            halves.convert_to_f32_slice(values);
        }
        DType::BF16 => {
            for (value, bytes) in values.iter_mut().zip(source.as_chunks::<2>().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        // Offsets of quantised numbers are integers, and scales can be the lower half of one.
        DType::I8 => {
            for (value, byte) in values.iter_mut().zip(source) {
                *value = f32::from(i8::from_le_bytes([*byte]));
            }
        }
        DType::I32 => {
            for (value, bytes) in values.iter_mut().zip(source.as_chunks::<4>().0) {
                *value = i32::from_le_bytes(*bytes) as f32;
            }
        }
        DType::I64 => {
            for (value, bytes) in values.iter_mut().zip(source.as_chunks::<8>().0) {
                *value = f32::from_bits(u64::from_le_bytes(*bytes) as u32);
            }
        }
        _ => {
            for (value, bytes) in values.iter_mut().zip(source.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
    }
}

/// Writes the values. The error is the index of the first value that does not fit.
pub(super) fn encode(to: DType, values: &[f32], out: &mut [u8]) -> Result<(), usize> {
    match to {
        DType::F16 => {
            let mut halves = [f16::ZERO; BLOCK];
            let halves = &mut halves[..values.len()];
            halves.convert_from_f32_slice(values);
            for (bytes, half) in out.as_chunks_mut::<2>().0.iter_mut().zip(&*halves) {
                *bytes = half.to_le_bytes();
            }
            first_overflow(values, halves, |half| half.is_infinite())
        }
        DType::BF16 => {
            let mut halves = [bf16::ZERO; BLOCK];
            let halves = &mut halves[..values.len()];
            halves.convert_from_f32_slice(values);
            for (bytes, half) in out.as_chunks_mut::<2>().0.iter_mut().zip(&*halves) {
                *bytes = half.to_le_bytes();
            }
            first_overflow(values, halves, |half| half.is_infinite())
        }
        _ => {
            for (bytes, value) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
            Ok(())
        }
    }
}

fn first_overflow<H: Copy>(
    values: &[f32],
    halves: &[H],
    is_infinite: impl Fn(H) -> bool,
) -> Result<(), usize> {
    let overflow =
        values.iter().zip(halves).position(|(value, &half)| is_infinite(half) && value.is_finite());
    overflow.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::{BLOCK, Overflow, convert, first_not_finite, is_convertible};
    use crate::base::DType;

    const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

    fn bytes_of(dtype: DType, values: &[f32]) -> Vec<u8> {
        let element = |&value: &f32| match dtype {
            DType::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
            DType::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
            _ => value.to_le_bytes().to_vec(),
        };
        values.iter().flat_map(element).collect()
    }

    fn converted(from: DType, to: DType, values: &[f32]) -> Result<Vec<u8>, Overflow> {
        let mut out = vec![0; values.len() * to.size_bytes()];
        convert(from, to, &bytes_of(from, values), &mut out).map(|()| out)
    }

    #[test]
    fn exact_numbers_survive_every_pair() {
        let values: Vec<f32> = (0..2500).map(|index| (index % 255 - 127) as f32 / 8.0).collect();
        for from in FLOATS {
            for to in FLOATS {
                assert!(is_convertible(from, to));
                assert_eq!(converted(from, to, &values).unwrap(), bytes_of(to, &values), "{from} to {to}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        let bf16_tie = 1.0 + 2f32.powi(-8);
        let f16_tie = 1.0 + 2f32.powi(-11);
        for (to, tie, step) in [(DType::BF16, bf16_tie, 2f32.powi(-7)), (DType::F16, f16_tie, 2f32.powi(-10))]
        {
            let expected = bytes_of(to, &[1.0, 1.0 + step, 1.0 + 2.0 * step]);
            let values = [tie, tie + f32::EPSILON, tie + step];
            assert_eq!(converted(DType::F32, to, &values).unwrap(), expected);
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_found() {
        let mut values = vec![1.0; 1500];
        values[1200] = 70_000.0;
        let overflow = Overflow { index: 1200, value: bf16::from_f32(70_000.0).to_f32() };
        assert_eq!(converted(DType::BF16, DType::F16, &values), Err(overflow));
        assert!(converted(DType::F32, DType::BF16, &[f32::MAX]).is_err());
        let infinite = converted(DType::F32, DType::F16, &[f32::INFINITY, f32::NEG_INFINITY]).unwrap();
        assert_eq!(infinite, bytes_of(DType::F16, &[f32::INFINITY, f32::NEG_INFINITY]));
        let nan = converted(DType::F32, DType::F16, &[f32::NAN]).unwrap();
        assert!(f16::from_le_bytes([nan[0], nan[1]]).is_nan());
    }

    #[test]
    fn what_is_no_finite_number_is_found() {
        let mut values: Vec<f32> = (0..3 * BLOCK).map(|index| index as f32 - 1000.0).collect();
        for dtype in FLOATS {
            assert_eq!(first_not_finite(dtype, &bytes_of(dtype, &values)), None, "{dtype}");
        }
        for at in [0, BLOCK - 1, BLOCK, 3 * BLOCK - 1] {
            let kept = std::mem::replace(&mut values[at], f32::NEG_INFINITY);
            for dtype in FLOATS {
                let found = first_not_finite(dtype, &bytes_of(dtype, &values));
                assert_eq!(found, Some((at, f32::NEG_INFINITY)), "{dtype}");
            }
            values[at] = f32::NAN;
            for dtype in FLOATS {
                let (index, value) = first_not_finite(dtype, &bytes_of(dtype, &values)).unwrap();
                assert!(index == at && value.is_nan(), "{dtype}: {index}");
            }
            values[at] = kept;
        }
        assert_eq!(first_not_finite(DType::I64, &[0xff; 16]), None);
    }

    #[test]
    fn integers_are_only_copied() {
        assert!(is_convertible(DType::I64, DType::I64));
        assert!(!is_convertible(DType::I64, DType::F32));
        assert!(!is_convertible(DType::F32, DType::I32));
        let mut out = [0; 8];
        convert(DType::I64, DType::I64, &7i64.to_le_bytes(), &mut out).unwrap();
        assert_eq!(i64::from_le_bytes(out), 7);
    }
}
