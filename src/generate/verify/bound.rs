//! Bounds for the difference of two numbers that should agree.
//!
//! Splitting only changes the order of sums. A product over `k` terms in f32 has an error of about
//! `√k · 2⁻²⁴` of the magnitude, in any order (random signs; Higham & Mary 2019, probabilistic
//! error bounds). With 16-bit activations each result is rounded again, by `u = 2⁻¹¹` (f16) or
//! `2⁻⁸` (bf16). Squares of errors with random signs add up: `n` ops have `√n` times the error. The
//! bound is four times this, relative to the largest element, which covers cancellation within a
//! row.
//!
//! A sum over `p` cards has more roundings. Each partial sum is rounded by `u` times the partial
//! sum's size. The links add partial sums in 16 bits, with `p - 1` roundings. A partial sum can be
//! larger than the sum, so sizes are measured.
//!
//! Attention enlarges earlier roundings; `amplify` computes the factor. Later values inherit the
//! result.
//!
//! The norm behind the gated delta rule divides each row by its size. Rows of a head are small
//! where large terms cancel, and their errors have the size of the terms; `cancelled` computes the
//! factors. Up to the output of the layer, the smallest row counts. Later values inherit the factor
//! of the median row, because a sum over heads and tokens has few of the smallest rows.
//!
//! A quantised product multiplies integers. An integer can change if the value is off by half a
//! step: 1/254 of the row's largest element. In 16 bits any integer can, so each product adds one
//! step. With f32 around the products, an integer differs only within the float error of a rounding
//! edge. So a share of the integers can differ, which is twice the error relative to a step. If the
//! integers of a row `q` differ by `d`, the product adds a relative error of `√(Σ d² / Σ q²)`.
//!
//! A cache of integers has one scale per token and head, which is a step. `amplify` computes the
//! error of attention if each number is off by one step. Between one card and many all of it
//! counts, because a single number at a rounding edge can decide a result of few keys. Between
//! integers and floats, a number is off by at most half a step: a quarter of a squared step.

use super::amplify::Amplification;
use crate::base::{DType, KvType, Precision};
use crate::program::{Kind, Program, Role};

/// Bound as a multiple of the expected rounding error.
const SAFETY: f64 = 4.0;

/// A step of a quantised row, relative to the largest element.
const STEP: f64 = 1.0 / 127.0;

/// Roundings that affect a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Roundings {
    /// Number of ops up to and including the op of the value.
    pub(super) ops: usize,
    /// Additional roundings of sums over cards: squared sizes, relative to the sum.
    pub(super) sums: f64,
    /// Roundings that attention adds, in the unit of [`Roundings::sums`].
    pub(super) amplified: f64,
    /// Roundings that norms of cancelled rows add, in the unit of [`Roundings::ops`].
    pub(super) cancelled: f64,
    /// Factor of squared errors of the smallest cancelled row of the layer.
    pub(super) smallest_row: f64,
    /// Squared relative errors if each number of integer caches is off by one step, added over
    /// attention ops.
    pub(super) steps: f64,
    /// Squared relative errors of integers, added over quantised products.
    pub(super) integers: f64,
}

impl Roundings {
    /// Returns the roundings after `ops` ops, if any integer may differ.
    pub(super) fn after(self, program: &Program, precision: Precision, ops: usize) -> Self {
        let products: usize = program.ops.values()[..ops].iter().map(|op| quantised_products(&op.kind)).sum();
        let counted = Self { ops, ..self };
        let differing = counted.differing(program, precision);
        Self { integers: differing * products as f64 * STEP * STEP, ..counted }
    }

    /// As [`Self::after`], for the difference from a program with caches of floats.
    pub(super) fn against_floats(self, program: &Program, precision: Precision, ops: usize) -> Self {
        Self { steps: self.steps / 4.0, ..self.after(program, precision, ops) }
    }

    /// Returns the share of integers that may differ.
    fn differing(self, program: &Program, precision: Precision) -> f64 {
        (2.0 * relative(program, precision, Self { integers: 0.0, steps: 0.0, ..self }) / STEP).min(1.0)
    }

    /// Returns the roundings after attention.
    pub(super) fn amplified_by(self, Amplification { factor, steps }: Amplification) -> Self {
        let amplified = self.amplified + factor * (self.ops as f64 + self.sums + self.amplified);
        Self { amplified, steps: self.steps * (1.0 + factor) + steps, ..self }
    }

    /// Returns the roundings after a norm of cancelled rows with these factors of squared errors.
    pub(super) fn cancelled_by(self, [median, smallest_row]: [f64; 2]) -> Self {
        let amplified = self.amplified + median * (self.sums + self.amplified);
        let cancelled = self.cancelled + median * (self.ops as f64 + self.cancelled);
        Self { amplified, cancelled, smallest_row, ..self }
    }
}

/// Returns the number of products of quantised rows in an op.
pub(super) const fn quantised_products(kind: &Kind) -> usize {
    match kind {
        Kind::QuantMatMul { .. } | Kind::StaticMatMul { .. } => 1,
        Kind::QuantExperts => 2,
        _ => 0,
    }
}

/// Returns whether an op multiplies integers that are quantised at run time.
pub(super) const fn has_integers(kind: &Kind) -> bool {
    quantised_products(kind) > 0 || matches!(kind, Kind::QuantBlockAttention { .. })
}

/// Returns the additional roundings of a sum over cards. `sizes` are the largest elements of the
/// partial sums, relative to the sum. `cards` is the number of partial sums per element.
pub(super) fn of_parts(sizes: &[f64], cards: f64) -> f64 {
    let squares = sizes.iter().map(|size| size * size);
    let mean = squares.clone().sum::<f64>() / (sizes.len().max(1) as f64);
    let largest = squares.fold(1.0, f64::max);
    cards * mean + (cards - 1.0) * largest
}

/// Returns the largest error relative to the largest element; see the module documentation.
pub(super) fn relative(program: &Program, precision: Precision, roundings: Roundings) -> f64 {
    // A product sums over the last dim of the weight.
    let summed = program.with_role(Role::Param).filter_map(|id| program.values[id].shape.last()).max();
    let accumulated = (summed.copied().unwrap_or(1) as f64).sqrt() * 2.0_f64.powi(-24);
    let rounded = unit(precision.activations);
    let Roundings { ops, sums, amplified, cancelled, smallest_row, integers, steps } = roundings;
    // The roundings may be of a program with other caches.
    let steps = if precision.kv == KvType::Int8 { steps } else { 0.0 };
    let squares = (ops as f64 + cancelled) * (accumulated + rounded).powi(2)
        + (sums + amplified) * rounded * rounded
        + integers
        + steps;
    SAFETY * (squares * (1.0 + smallest_row)).sqrt()
}

/// Returns the relative rounding error of a type; 0 for f32, the type of accumulation, and for
/// integers.
pub(super) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2.0_f64.powi(-11),
        DType::BF16 => 2.0_f64.powi(-8),
        DType::F32 | DType::I32 | DType::I64 | DType::I8 | DType::U8 | DType::F8E4M3 | DType::Bool => 0.0,
    }
}

/// Returns the factors of squared errors of a norm of rows of `width` elements, for the median row
/// and for the smallest one. Errors have the size of the largest element of all rows. The safety
/// factor covers rows that are as much smaller.
pub(super) fn cancelled(values: &[f32], width: usize, epsilon: f64) -> [f64; 2] {
    let largest = magnitude(values);
    let factor = |row| {
        let factor = largest / magnitude(row).max(epsilon.sqrt()) / SAFETY;
        (factor * factor - 1.0).max(0.0)
    };
    let mut factors: Vec<f64> = values.chunks(width.max(1)).map(factor).collect();
    factors.sort_by(f64::total_cmp);
    [factors.len() / 2, factors.len().saturating_sub(1)].map(|at| factors.get(at).copied().unwrap_or(0.0))
}

/// Returns the largest absolute value. NaN is ignored.
pub(super) fn magnitude(values: &[f32]) -> f64 {
    values.iter().fold(0.0_f64, |largest, x| largest.max(f64::from(x.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_sum_are_rounded_by_their_own_size() {
        // Two partial sums of size √½ count as one rounding; the links add one.
        let half = 0.5_f64.sqrt();
        assert!((of_parts(&[half, half], 2.0) - 2.0).abs() < 1e-12);
        // Partial sums that cancel are larger than the sum.
        assert!((of_parts(&[3.0, 3.0], 2.0) - (18.0 + 9.0)).abs() < 1e-12);
        // Two shards with two partial sums each, on four cards.
        assert!((of_parts(&[half; 4], 2.0) - 2.0).abs() < 1e-12);
    }
}
