//! Rows of numbers as 8-bit integers with one scale each.
//!
//! Input → output: a row of floats → its scale, or its integers. Invariants: a row's scale is that
//! of the whole row, whoever holds a part of it; a row's largest magnitude becomes 127 or -127.
//! Numbers are finite: reading refuses others.

use crate::program::Form;

/// What a row is divided by.
pub(super) fn scale(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |largest: f32, x| largest.max(x.abs())) / Form::LARGEST
}

/// The 8-bit integers of a row.
pub(super) fn integers(row: &[f32], out: &mut [u8]) {
    let scale = scale(row);
    for (byte, x) in out.iter_mut().zip(row) {
        let integer = if scale > 0.0 { (x / scale).round_ties_even() as i8 } else { 0 };
        *byte = integer.to_le_bytes()[0];
    }
}
