//! The exponential of a number that is not positive.
//!
//! - Invariants: the same bits on every machine, which `f64::exp` does not promise; a seed
//!   therefore gives the same token everywhere. The relative error is below 1e-9. Numbers below
//!   [`LEAST`] give 0.

use std::f64::consts::LOG2_E;

/// The least number with an exponential above 0. Its exponential is still a normal number.
const LEAST: f64 = -708.0;

/// 1.5 · 2⁵²: the sum of this and a small number is rounded to an integer.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// The leading 32 bits of ln 2, and the rest. A product of the first with a power is exact.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

/// Reciprocals of the factorials of 9 to 0.
const COEFFICIENTS: [f64; 10] = [
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// Returns `e` to the power of `x`, for `x` of at most 0.
#[inline]
pub(super) fn exp(x: f64) -> f64 {
    let within = if x > LEAST { x } else { LEAST };
    let shifted = within * LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = within - power * LN_2[0] - power * LN_2[1];
    let mut sum = 0.0;
    for coefficient in COEFFICIENTS {
        sum = sum * rest + coefficient;
    }
    // The low bits of `shifted` are the power of two.
    let scale = f64::from_bits((shifted.to_bits().wrapping_add(1023)) << 52);
    if x >= LEAST { sum * scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{LEAST, exp};

    #[test]
    fn the_error_is_below_a_billionth() {
        for step in 0..=708_000 {
            let x = -f64::from(step) / 1000.0;
            let (found, expected) = (exp(x), x.exp());
            assert!((found / expected - 1.0).abs() < 1e-9, "{x}: {found} is not {expected}");
        }
    }

    #[test]
    fn both_ends_are_exact() {
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        assert!(exp(LEAST).is_normal());
        assert_eq!((exp(LEAST - 0.001), exp(f64::MIN), exp(f64::NEG_INFINITY)), (0.0, 0.0, 0.0));
    }
}
