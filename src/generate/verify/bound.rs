//! How far apart two numbers may be that should be the same.
//!
//! Splitting changes the order of sums only. A product that sums `k` terms in f32 is off by about `√k · 2⁻²⁴` of its
//! magnitude in either order (rounding errors of random sign, Higham & Mary 2019, probabilistic error bounds); with 16-bit
//! activations every result, and every part of a split sum, is rounded once more, by `u = 2⁻¹¹` (f16) or `2⁻⁸` (bf16).
//! After `n` ops such errors have added up like `√n`. A value may differ by four times that, relative to its largest
//! element, which covers cancellation within a row.
//!
//! With quantised linear layers a row of activations is rounded to steps of 1/127 of its largest element, and a part of a
//! row, on a card of its own, to steps of its own. Each is off by half a step at most, so both are up to one step apart,
//! which comes to `u`; as far as numbers that are not quantised go, half a step is that of the activations and half that
//! of the weights.

use crate::base::{DType, Precision, Weights};
use crate::program::{Program, Role};

/// How many times the expected size of accumulated rounding errors a difference may be.
const SAFETY: f64 = 4.0;

/// A step of a quantised row, relative to the row's largest element: two roundings of an element, to half a step each, are
/// up to one step apart.
const STEP: f64 = 1.0 / 127.0;

/// The largest error that a value of the `ops`-th op may have, relative to its largest element; see the module's text.
pub(super) fn relative(program: &Program, precision: Precision, ops: usize) -> f64 {
    // Weights have the dims that a product sums last.
    let summed = program.with_role(Role::Param).filter_map(|id| program.values[id].shape.last()).max();
    let accumulated = (summed.copied().unwrap_or(1) as f64).sqrt() * 2.0_f64.powi(-24);
    let rounded = match precision.activations {
        DType::F16 => 2.0_f64.powi(-11),
        DType::BF16 => 2.0_f64.powi(-8),
        DType::F32 | DType::I32 | DType::I64 | DType::I8 | DType::U8 | DType::Bool => 0.0,
    };
    let quantised = if precision.weights == Weights::W8A8 { STEP } else { 0.0 };
    SAFETY * (accumulated + rounded + quantised) * (ops as f64).sqrt()
}

/// The largest element; NaN counts as none, and differs from everything.
pub(super) fn magnitude(values: &[f32]) -> f64 {
    values.iter().fold(0.0_f64, |largest, x| largest.max(f64::from(x.abs())))
}
