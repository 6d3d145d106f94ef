//! Rows of numbers as 8-bit integers with one scale each.
//!
//! Input → output: a row of floats → its scale, or its integers. Invariants: a row's scale is that of the whole row, whoever
//! holds a part of it; a row's largest magnitude becomes 127 or -127; a row with an infinite number or NaN is refused.

use crate::program::Form;

/// A number of a row has no 8-bit form.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} has no 8-bit form; run the checkpoint with --dtype bf16")]
pub(super) struct NotFinite(f32);

/// What a row is divided by.
pub(super) fn scale(row: &[f32]) -> Result<f32, NotFinite> {
    match row.iter().find(|x| !x.is_finite()) {
        Some(x) => Err(NotFinite(*x)),
        None => Ok(row.iter().fold(0.0, |largest: f32, x| largest.max(x.abs())) / Form::LARGEST),
    }
}

/// The 8-bit integers of a row.
pub(super) fn integers(row: &[f32], out: &mut [u8]) -> Result<(), NotFinite> {
    let scale = scale(row)?;
    for (byte, x) in out.iter_mut().zip(row) {
        let integer = if scale > 0.0 { (x / scale).round_ties_even() as i8 } else { 0 };
        *byte = integer.to_le_bytes()[0];
    }
    Ok(())
}
