//! How far apart two numbers may be that should be the same.
//!
//! Splitting changes the order of sums only. A product that sums `k` terms in f32 is off by about
//! `√k · 2⁻²⁴` of its magnitude in either order (rounding errors of random sign, Higham & Mary
//! 2019, probabilistic error bounds). With 16-bit activations every result is rounded once more, by
//! `u = 2⁻¹¹` (f16) or `2⁻⁸` (bf16). Errors of random sign add like their squares: after `n` ops
//! they are `√n` times as large. A value may differ by four times that, relative to its largest
//! element, which covers cancellation within a row.
//!
//! A sum over `p` cards is rounded more often. Each part is rounded, by `u` of the part's own size.
//! The links add the parts in 16 bits, which rounds `p - 1` times. A part can be larger than the
//! sum, so the sizes of the parts are measured.
//!
//! Attention enlarges the roundings before it, by what `amplify` finds for the queries, keys and
//! values at hand. What it adds goes on to later values.
//!
//! A quantised product multiplies integers. Where its operand is off by half a step of its row,
//! 1/254 of the row's largest element, an integer may be another one. In 16 bits that may be any of
//! them, so each product adds a step. With f32 around the products an integer differs only where
//! the value is within the float error of a rounding edge. Where integers of a row `q` differ by
//! `d`, the row is off by `√(Σ d² / Σ q²)` of its length, which the product adds.

use crate::base::{DType, Precision};
use crate::program::{Kind, Program, Role};

/// How many times the expected size of accumulated rounding errors a difference may be.
const SAFETY: f64 = 4.0;

/// A step of a quantised row, relative to the row's largest element.
const STEP: f64 = 1.0 / 127.0;

/// What was rounded on the way to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Roundings {
    /// Ops before the value, its own included.
    pub(super) ops: usize,
    /// Further roundings to the type of the activations, of sums over cards: the sum of the squares
    /// of their sizes, relative to the sum.
    pub(super) sums: f64,
    /// What attention adds to the roundings before it, in the unit of [`Roundings::sums`].
    pub(super) amplified: f64,
    /// Squares of the errors of rows of integers, relative to their lengths, added over quantised
    /// products.
    pub(super) integers: f64,
}

impl Roundings {
    /// The same before the result of the first `ops` ops of a program, any of whose integers may
    /// differ.
    pub(super) fn of(self, program: &Program, ops: usize) -> Self {
        let is_quantised = |kind: &Kind| matches!(kind, Kind::QuantMatMul { .. });
        let products = program.ops.values()[..ops].iter().filter(|op| is_quantised(&op.kind)).count();
        Self { ops, integers: products as f64 * STEP * STEP, ..self }
    }

    /// The same behind attention that enlarges squares of errors by this factor.
    pub(super) fn amplified_by(self, factor: f64) -> Self {
        Self { amplified: self.amplified + factor * (self.ops as f64 + self.sums + self.amplified), ..self }
    }
}

/// The roundings of a sum of parts, beyond the one that every result has: that of one card. `sizes`
/// are the largest elements of the parts relative to that of the sum, and `cards` have a part of
/// each element.
pub(super) fn of_parts(sizes: &[f64], cards: f64) -> f64 {
    let squares = sizes.iter().map(|size| size * size);
    let mean = squares.clone().sum::<f64>() / (sizes.len().max(1) as f64);
    let largest = squares.fold(1.0, f64::max);
    cards * mean + (cards - 1.0) * largest
}

/// The largest error that a value may have, relative to its largest element; see the module's text.
pub(super) fn relative(program: &Program, precision: Precision, roundings: Roundings) -> f64 {
    // Weights have the dims that a product sums last.
    let summed = program.with_role(Role::Param).filter_map(|id| program.values[id].shape.last()).max();
    let accumulated = (summed.copied().unwrap_or(1) as f64).sqrt() * 2.0_f64.powi(-24);
    let rounded = unit(precision.activations);
    let Roundings { ops, sums, amplified, integers } = roundings;
    let squares =
        ops as f64 * (accumulated + rounded).powi(2) + (sums + amplified) * rounded * rounded + integers;
    SAFETY * squares.sqrt()
}

/// A rounding to a type, relative to the number; 0 for f32, in which sums are added, and for types
/// without roundings.
pub(super) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2.0_f64.powi(-11),
        DType::BF16 => 2.0_f64.powi(-8),
        DType::F32 | DType::I32 | DType::I64 | DType::I8 | DType::U8 | DType::Bool => 0.0,
    }
}

/// The largest element; NaN counts as none, and differs from everything.
pub(super) fn magnitude(values: &[f32]) -> f64 {
    values.iter().fold(0.0_f64, |largest, x| largest.max(f64::from(x.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_sum_are_rounded_by_their_own_size() {
        // Two parts of √½ of the sum are one rounding together; the links add once.
        let half = 0.5_f64.sqrt();
        assert!((of_parts(&[half, half], 2.0) - 2.0).abs() < 1e-12);
        // Parts that cancel are larger than the sum.
        assert!((of_parts(&[3.0, 3.0], 2.0) - (18.0 + 9.0)).abs() < 1e-12);
        // Shards of two parts each, on four cards.
        assert!((of_parts(&[half; 4], 2.0) - 2.0).abs() < 1e-12);
    }
}
