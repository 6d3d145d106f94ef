//! Numbers in MXFP4, dequantised while they are read.
//!
//! Each block of 32 numbers has 16 bytes and one scale. A byte holds two numbers of four bits, the
//! first one in the low half. A number is a sign, two bits of exponent and one bit of mantissa
//! (E2M1). A scale byte `s` means the factor 2^(s - 127), and 255 means NaN (E8M0).
//!
//! Source: Open Compute Project, "Microscaling Formats (MX) Specification", version 1.0.
//!
//! Input: the tensors of the blocks and the scales. Output: floats.
//!
//! Invariant: only the bytes of the requested blocks are read. Results are exact in f32 and bf16.

use std::ops::Range;

use super::convert;
use super::slice::{self, Error, Stored};
use crate::base::DType;
use crate::program::Form;

/// Number of numbers in a block.
pub(super) const BLOCK: usize = Form::MXFP4_BLOCK;

/// Bytes of the numbers of a block.
const BLOCK_BYTES: usize = BLOCK / 2;

/// Values of the four-bit numbers without sign.
const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Number of blocks that are converted together.
const AT_ONCE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Mxfp4<'a> {
    blocks: Stored<'a>,
    scales: Stored<'a>,
    to: DType,
}

impl<'a> Mxfp4<'a> {
    /// Returns `elems` numbers of these tensors.
    pub(super) fn new(
        blocks: Stored<'a>,
        scales: Stored<'a>,
        elems: usize,
        to: DType,
    ) -> Result<Self, Error> {
        for (stored, expected) in [(blocks, elems / 2), (scales, elems / BLOCK)] {
            let tensor = stored.name.to_owned();
            if stored.dtype != DType::U8 || !to.is_float() {
                return Err(Error::DType { tensor, from: stored.dtype, to });
            }
            if stored.elems != expected {
                let reason = format!("expected {expected} bytes for {elems} numbers, found {}", stored.elems);
                return Err(Error::Source { tensor, reason });
            }
        }
        Ok(Self { blocks, scales, to })
    }

    /// Reads a range of numbers that starts and ends at a block.
    pub(super) fn read(&self, numbers: Range<usize>, raw: &mut Vec<u8>, out: &mut [u8]) -> Result<(), Error> {
        let first = numbers.start / BLOCK;
        let count = numbers.len() / BLOCK;
        let raw = slice::at_least(raw, count * (BLOCK_BYTES + 1));
        let (bytes, scales) = raw.split_at_mut(count * BLOCK_BYTES);
        self.blocks.read_bytes(first * BLOCK_BYTES, bytes)?;
        self.scales.read_bytes(first, scales)?;
        let size = self.to.size_bytes();
        let chunks = bytes.chunks(AT_ONCE * BLOCK_BYTES).zip(scales.chunks(AT_ONCE));
        for (chunk, ((bytes, scales), out)) in chunks.zip(out.chunks_mut(AT_ONCE * BLOCK * size)).enumerate()
        {
            let mut values = [0.0; AT_ONCE * BLOCK];
            let values = &mut values[..scales.len() * BLOCK];
            dequantise(bytes, scales, values);
            let index = |at: usize| (first + chunk * AT_ONCE) * BLOCK + at;
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let tensor = self.scales.name.to_owned();
                return Err(Error::NotFinite { tensor, index: index(at) / BLOCK, value: values[at] });
            }
            convert::encode(self.to, values, out).map_err(|at| Error::Overflow {
                tensor: self.blocks.name.to_owned(),
                value: values[at],
                to: self.to,
            })?;
        }
        Ok(())
    }
}

fn dequantise(bytes: &[u8], scales: &[u8], values: &mut [f32]) {
    let blocks = bytes.as_chunks::<BLOCK_BYTES>().0.iter().zip(scales);
    for ((bytes, scale), values) in blocks.zip(values.as_chunks_mut::<BLOCK>().0) {
        let scale = factor(*scale);
        for (byte, pair) in bytes.iter().zip(values.as_chunks_mut::<2>().0) {
            *pair = [byte & 15, byte >> 4].map(|number| {
                let value = VALUES[usize::from(number & 7)] * scale;
                if number & 8 == 0 { value } else { -value }
            });
        }
    }
}

/// Returns the factor of a scale byte. NaN makes each number of the block NaN, 0 included.
fn factor(scale: u8) -> f32 {
    match scale {
        // 2^-127 is subnormal in f32.
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(scale) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_and_scale_is_exact() {
        for scale in 0..=254_u8 {
            for code in 0..16_u8 {
                // The value from its bits, in f64: subnormal numbers have the exponent 0.
                let (exponent, mantissa) = (i32::from(code >> 1 & 3), f64::from(code & 1));
                let size = match exponent {
                    0 => mantissa * 0.5,
                    _ => (1.0 + mantissa * 0.5) * 2f64.powi(exponent - 1),
                };
                let sign = if code & 8 == 0 { 1.0 } else { -1.0 };
                let expected = sign * size * 2f64.powi(i32::from(scale) - 127);
                let mut values = [0.0; 32];
                dequantise(&[code << 4; 16], &[scale], &mut values);
                assert!(values.iter().step_by(2).all(|value| *value == 0.0), "low halves come first");
                let found = f64::from(values[1]);
                let is_too_large = expected.abs() > f64::from(f32::MAX);
                assert!(found == expected || is_too_large && found.is_infinite(), "{code} {scale}: {found}");
                if !is_too_large {
                    assert_eq!(f64::from(half::bf16::from_f64(expected)), expected, "exact in bf16");
                }
            }
        }
        let mut values = [0.0; 32];
        dequantise(&[0; 16], &[255], &mut values);
        assert!(values.iter().all(|value| value.is_nan()));
    }
}
