//! Quantises rows of floats to 8-bit integers with one scale per row.
//!
//! Input: a whole row of finite floats; the reader rejects other values. Output: the scale or the
//! integers of the row.
//!
//! Invariant: the largest magnitude of a row becomes 127 or -127.

use crate::program::Form;

pub(super) fn scale(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |largest: f32, x| largest.max(x.abs())) / Form::LARGEST
}

pub(super) fn integers(row: &[f32], out: &mut [u8]) {
    let scale = scale(row);
    for (byte, x) in out.iter_mut().zip(row) {
        let integer = if scale > 0.0 { (x / scale).round_ties_even() as i8 } else { 0 };
        *byte = integer.to_le_bytes()[0];
    }
}
