//! Arithmetic over blocks of f32: exponentials, activations, sums, maxima.
//!
//! Invariants: all instruction sets give the same bits; nothing is fused, and sums use a fixed
//! number of lanes. [`exp`] is within 1 ulp over the whole range, including subnormals, NaN and
//! infinities.

use std::ops::Range;

use crate::simd::isa::dispatched;

/// The widest vector, so that all instruction sets reduce in the same order.
const WIDTH: usize = 16;

/// Splits `x = n ln 2 + r` with integer `n` and `|r| <= ln(2) / 2`, so `e^x = 2^n e^r`.
///
/// The product of `n` and the upper part of ln 2 is exact: the part has 10 bits and `n` has 8.
/// `e^r` is `1 + r + r^2 p(r)` with the Cephes polynomial (`expf.c`), error below 2^-26. The power
/// of two is applied in two factors, so subnormal results are rounded once.
#[inline(always)]
fn exponential(x: f32) -> f32 {
    /// e^x is 0 below the first bound, infinite above the second.
    const RANGE: (f32, f32) = (-104.0, 89.0);
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    /// Moves the nearest integer into the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // These comparisons keep NaN.
    let x = if x < RANGE.0 { RANGE.0 } else { x };
    let x = if x > RANGE.1 { RANGE.1 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let r = x - whole * LN_2.0 - whole * LN_2.1;
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + coefficient;
    }
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23) as u32);
    (p * (r * r) + r + 1.0) * power(n >> 1) * power(n - (n >> 1))
}

/// Combines pairwise; fixed-size arrays stay in registers.
#[inline(always)]
fn folded(lanes: [f32; WIDTH], with: impl Fn(f32, f32) -> f32) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| with(lanes[i], lanes[i + 8]));
    let four: [f32; 4] = std::array::from_fn(|i| with(eight[i], eight[i + 4]));
    with(with(four[0], four[2]), with(four[1], four[3]))
}

dispatched! {
    pub(crate) fn exp(values: &mut [f32]) {
        for value in values {
            *value = exponential(*value);
        }
    }
}

dispatched! {
    /// Each value becomes `e^(x - shift)`; returns the sum.
    pub(crate) fn exp_shifted(values: &mut [f32], shift: f32) -> f32 {
        let mut sums = [0f32; WIDTH];
        let mut chunks = values.chunks_exact_mut(WIDTH);
        for chunk in &mut chunks {
            for (value, sum) in chunk.iter_mut().zip(&mut sums) {
                *value = exponential(*value - shift);
                *sum += *value;
            }
        }
        for (value, sum) in chunks.into_remainder().iter_mut().zip(&mut sums) {
            *value = exponential(*value - shift);
            *sum += *value;
        }
        folded(sums, |a, b| a + b)
    }
}

dispatched! {
    /// Each value becomes `e^(x * scale - shift) * factor`.
    pub(crate) fn exp_scaled(values: &mut [f32], scale: f32, shift: f32, factor: f32) {
        for value in values {
            *value = exponential(*value * scale - shift) * factor;
        }
    }
}

dispatched! {
    /// Gradients of softmax results become gradients of the input, times `scale`. `total` is the
    /// dot product of results and gradients.
    pub(crate) fn softmax_grad(grads: &mut [f32], results: &[f32], total: f32, scale: f32) {
        for (grad, result) in grads.iter_mut().zip(results) {
            *grad = result * (*grad - total) * scale;
        }
    }
}

dispatched! {
    /// Ignores NaN; minus infinity without a number.
    pub(crate) fn greatest(values: &[f32]) -> f32 {
        let pick = |a: f32, b: f32| if b > a { b } else { a };
        let mut best = [f32::NEG_INFINITY; WIDTH];
        let chunks = values.chunks_exact(WIDTH);
        for (value, best) in chunks.remainder().iter().zip(&mut best) {
            *best = pick(*best, *value);
        }
        for chunk in chunks {
            for (value, best) in chunk.iter().zip(&mut best) {
                *best = pick(*best, *value);
            }
        }
        folded(best, pick)
    }
}

dispatched! {
    pub(crate) fn sum(values: &[f32]) -> f32 {
        let mut sums = [0f32; WIDTH];
        let chunks = values.chunks_exact(WIDTH);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (value, sum) in chunk.iter().zip(&mut sums) {
                *sum += value;
            }
        }
        for (value, sum) in rest.iter().zip(&mut sums) {
            *sum += value;
        }
        folded(sums, |a, b| a + b)
    }
}

dispatched! {
    pub(crate) fn sum_of_squares(values: &[f32]) -> f32 {
        let mut sums = [0f32; WIDTH];
        let chunks = values.chunks_exact(WIDTH);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (value, sum) in chunk.iter().zip(&mut sums) {
                *sum += value * value;
            }
        }
        for (value, sum) in rest.iter().zip(&mut sums) {
            *sum += value * value;
        }
        folded(sums, |a, b| a + b)
    }
}

dispatched! {
    pub(crate) fn dot(values: &[f32], others: &[f32]) -> f32 {
        let mut sums = [0f32; WIDTH];
        let (chunks, rest) = (values.chunks_exact(WIDTH), values.len() / WIDTH * WIDTH);
        let rest = values[rest..].iter().zip(&others[rest..]);
        for (chunk, others) in chunks.zip(others.chunks_exact(WIDTH)) {
            for ((value, other), sum) in chunk.iter().zip(others).zip(&mut sums) {
                *sum += value * other;
            }
        }
        for ((value, other), sum) in rest.zip(&mut sums) {
            *sum += value * other;
        }
        folded(sums, |a, b| a + b)
    }
}

dispatched! {
    pub(crate) fn add(values: &mut [f32], others: &[f32]) {
        for (value, other) in values.iter_mut().zip(others) {
            *value += other;
        }
    }
}

dispatched! {
    /// Computes `values[i] += first[i] * second[i]` for each `i`.
    pub(crate) fn add_products(values: &mut [f32], first: &[f32], second: &[f32]) {
        for ((value, first), second) in values.iter_mut().zip(first).zip(second) {
            *value += first * second;
        }
    }
}

dispatched! {
    pub(crate) fn multiply(values: &mut [f32], others: &[f32]) {
        for (value, other) in values.iter_mut().zip(others) {
            *value *= other;
        }
    }
}

dispatched! {
    pub(crate) fn subtract(values: &mut [f32], by: f32) {
        for value in values {
            *value -= by;
        }
    }
}

dispatched! {
    pub(crate) fn divide(values: &mut [f32], by: f32) {
        for value in values {
            *value /= by;
        }
    }
}

dispatched! {
    pub(crate) fn scale(values: &mut [f32], by: f32) {
        for value in values {
            *value *= by;
        }
    }
}

dispatched! {
    /// Computes `values[i] += others[i] * by` for each `i`.
    pub(crate) fn add_scaled(values: &mut [f32], others: &[f32], by: f32) {
        for (value, other) in values.iter_mut().zip(others) {
            *value += other * by;
        }
    }
}

dispatched! {
    /// Computes `values[i] = values[i] * by + others[i] * others_by` for each `i`.
    pub(crate) fn scale_and_add(values: &mut [f32], by: f32, others: &[f32], others_by: f32) {
        for (value, other) in values.iter_mut().zip(others) {
            *value = *value * by + other * others_by;
        }
    }
}

/// Counting per block vectorises.
#[inline(always)]
fn has(values: &[f32], wanted: impl Fn(f32) -> bool) -> bool {
    values
        .chunks(16 * WIDTH)
        .any(|chunk| chunk.iter().map(|value| u32::from(wanted(*value))).sum::<u32>() > 0)
}

dispatched! {
    pub(crate) fn are_finite(values: &[f32]) -> bool {
        /// Exponent bits, all set in infinity and NaN.
        const EXPONENT: u32 = f32::INFINITY.to_bits();
        !has(values, |value| value.to_bits() & EXPONENT == EXPONENT)
    }
}

dispatched! {
    pub(crate) fn has_zero(values: &[f32]) -> bool {
        has(values, |value| value == 0.0)
    }
}

dispatched! {
    /// Returns the range from the first to the last zero byte, and number of zero bytes.
    pub(crate) fn zeros(bytes: &[u8]) -> (Range<usize>, usize) {
        const CHUNK: usize = 64;
        let (mut first, mut end, mut count) = (bytes.len(), 0, 0);
        for (i, chunk) in bytes.chunks(CHUNK).enumerate() {
            let found = chunk.iter().map(|&byte| u8::from(byte == 0)).sum::<u8>();
            if found > 0 {
                if count == 0 {
                    first = i * CHUNK + chunk.iter().take_while(|&&byte| byte != 0).count();
                }
                end = i * CHUNK + chunk.len() - chunk.iter().rev().take_while(|&&byte| byte != 0).count();
                count += usize::from(found);
            }
        }
        (first.min(end)..end, count)
    }
}

dispatched! {
    /// Each value becomes `value * factor * scale`, with its own scale.
    pub(crate) fn normalise(values: &mut [f32], factor: f32, scales: &[f32]) {
        for (value, scale) in values.iter_mut().zip(scales) {
            *value = *value * factor * scale;
        }
    }
}

dispatched! {
    /// Rotates each pair `(a[i], b[i])`; cosines and sines for `a`, then for `b`.
    pub(crate) fn turn(a: &mut [f32], b: &mut [f32], cosines: [&[f32]; 2], sines: [&[f32]; 2]) {
        let angles = cosines[0].iter().zip(cosines[1]).zip(sines[0].iter().zip(sines[1]));
        for ((a, b), ((cos_a, cos_b), (sin_a, sin_b))) in a.iter_mut().zip(b.iter_mut()).zip(angles) {
            (*a, *b) = (*a * cos_a - *b * sin_a, *b * cos_b + *a * sin_b);
        }
    }
}

dispatched! {
    pub(crate) fn sigmoid(values: &mut [f32]) {
        for value in values {
            *value = 1.0 / (1.0 + exponential(-*value));
        }
    }
}

dispatched! {
    pub(crate) fn silu(values: &mut [f32]) {
        for value in values {
            *value /= 1.0 + exponential(-*value);
        }
    }
}

/// Returns the sigmoid of `x`, and derivative of `x * sigmoid(x)`.
#[inline(always)]
fn silu_slope(x: f32) -> (f32, f32) {
    let share = 1.0 / (1.0 + exponential(-x));
    (share, share * (1.0 + x * (1.0 - share)))
}

dispatched! {
    pub(crate) fn silu_grad(grads: &mut [f32], values: &[f32]) {
        for (grad, value) in grads.iter_mut().zip(values) {
            *grad *= silu_slope(*value).1;
        }
    }
}

dispatched! {
    /// Replaces both operands of `silu(gate) * up` by their gradients.
    pub(crate) fn swiglu_grad(gates: &mut [f32], ups: &mut [f32], grads: &[f32]) {
        for ((gate, up), grad) in gates.iter_mut().zip(ups).zip(grads) {
            let (share, slope) = silu_slope(*gate);
            (*gate, *up) = (grad * slope * *up, grad * (share * *gate));
        }
    }
}

dispatched! {
    /// Replaces `gate` by `silu(gate) * up`.
    pub(crate) fn swiglu(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + exponential(-*gate)) * up;
        }
    }
}

dispatched! {
    /// Computes the tanh form of GELU: `x * sigmoid(2 u)` with `u = sqrt(2 / pi) * (x + 0.044715
    /// x^3)`.
    pub(crate) fn gelu(values: &mut [f32]) {
        const TWICE: f32 = 1.595_769_2;
        for value in values {
            let x = *value;
            *value = x / (1.0 + exponential(-TWICE * (x + 0.044_715 * x * x * x)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(found: f32, exact: f64) -> f64 {
        // Subnormal numbers have the spacing of the least normal number.
        let e = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
        (f64::from(found) - exact).abs() / (e - 23.0).exp2()
    }

    #[test]
    fn exponentials_of_the_whole_range_are_within_a_unit() {
        let (mut worst, mut at) = (0f64, 0f32);
        // Both signs, all exponents and all NaN classes.
        for base in (0..=u32::MAX).step_by(613 * 64) {
            let inputs: Vec<f32> = (0..64).map(|i| f32::from_bits(base.wrapping_add(613 * i))).collect();
            let mut found = inputs.clone();
            exp(&mut found);
            for (&x, &y) in inputs.iter().zip(&found) {
                let exact = f64::from(x).exp();
                if x.is_nan() {
                    assert!(y.is_nan(), "{x:?}");
                } else if exact > f64::from(f32::MAX) {
                    assert_eq!(y, f32::INFINITY, "{x:?}");
                } else if units(y, exact) > worst {
                    (worst, at) = (units(y, exact), x);
                }
            }
        }
        assert!(worst <= 1.0, "{worst} units at {at:?}");
    }

    #[test]
    fn exponentials_of_special_values() {
        let mut values = [0.0, -0.0, f32::NEG_INFINITY, f32::INFINITY, 1e-30, f32::MIN, f32::MAX];
        exp(&mut values);
        assert_eq!(values, [1.0, 1.0, 0.0, f32::INFINITY, 1.0, 0.0, f32::INFINITY]);
    }

    #[test]
    fn activations_follow_their_definitions() {
        let inputs: Vec<f32> = (-4000..4000).map(|i| i as f32 / 400.0).collect();
        // The argument's rounding error grows with its magnitude.
        let check = |function: fn(&mut [f32]), exact: &dyn Fn(f64) -> f64, argument: &dyn Fn(f64) -> f64| {
            let mut found = inputs.clone();
            function(&mut found);
            for (&x, &y) in inputs.iter().zip(&found) {
                let (exact, room) = (exact(f64::from(x)), 1.0 + argument(f64::from(x)).abs());
                assert!(
                    (f64::from(y) - exact).abs() <= 4e-7 * room * exact.abs(),
                    "{x}: {y}, expected {exact}"
                );
            }
        };
        check(sigmoid, &|x| 1.0 / (1.0 + (-x).exp()), &|_| 0.0);
        check(silu, &|x| x / (1.0 + (-x).exp()), &|_| 0.0);
        check(|values| swiglu(values, &vec![0.5; values.len()]), &|x| 0.5 * x / (1.0 + (-x).exp()), &|_| 0.0);
        let slope = |x: f64| {
            let share = 1.0 / (1.0 + (-x).exp());
            share * (1.0 + x * (1.0 - share))
        };
        let mut grads = vec![2.0; inputs.len()];
        silu_grad(&mut grads, &inputs);
        let (mut gates, mut ups) = (inputs.clone(), vec![0.5; inputs.len()]);
        swiglu_grad(&mut gates, &mut ups, &vec![4.0; inputs.len()]);
        for (i, &x) in inputs.iter().enumerate() {
            let x = f64::from(x);
            let exact = [2.0 * slope(x), 2.0 * slope(x), 4.0 * x / (1.0 + (-x).exp())];
            for (found, exact) in [grads[i], gates[i], ups[i]].into_iter().zip(exact) {
                assert!(
                    (f64::from(found) - exact).abs() <= 2e-6 * (1.0 + exact.abs()),
                    "{x}: {found}, expected {exact}"
                );
            }
        }
        let u = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
        check(gelu, &|x| x / (1.0 + (-2.0 * u(x)).exp()), &|x| 2.0 * u(x));
    }

    #[test]
    fn what_is_not_finite_or_zero_is_found_wherever_it_is() {
        for at in [0, 15, 16, 40] {
            let mut values = [f32::MAX; 41];
            assert!(are_finite(&values) && !has_zero(&values));
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                values[at] = value;
                assert!(!are_finite(&values), "{value} at {at}");
            }
            values[at] = -0.0;
            assert!(are_finite(&values) && has_zero(&values), "a zero at {at}");
        }
    }

    #[test]
    fn zeros_are_found_wherever_they_are() {
        assert_eq!(zeros(&[]), (0..0, 0));
        assert_eq!(zeros(&[1; 200]), (0..0, 0));
        for (first, last) in [(0, 0), (0, 199), (63, 64), (130, 131), (5, 190)] {
            let mut bytes = [1u8; 200];
            (bytes[first], bytes[last]) = (0, 0);
            assert_eq!(zeros(&bytes), (first..last + 1, if first == last { 1 } else { 2 }));
        }
        assert_eq!(zeros(&[0; 129]), (0..129, 129));
    }

    #[test]
    fn reductions_cover_every_length() {
        for len in 0..70 {
            let values: Vec<f32> = (0..len).map(|i| ((i * 7) % 11) as f32 - 4.0).collect();
            assert_eq!(sum(&values), values.iter().sum::<f32>());
            assert_eq!(sum_of_squares(&values), values.iter().map(|v| v * v).sum::<f32>());
            let others: Vec<f32> = (0..len).map(|i| (i % 5) as f32).collect();
            assert_eq!(dot(&values, &others), values.iter().zip(&others).map(|(a, b)| a * b).sum::<f32>());
            assert_eq!(greatest(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let mut weights = values.clone();
            let total = exp_shifted(&mut weights, 6.0);
            let exact: f64 = values.iter().map(|&v| (f64::from(v) - 6.0).exp()).sum();
            assert!((f64::from(total) - exact).abs() <= 1e-6 * exact);
        }
        assert_eq!(greatest(&[f32::NAN, -3.0, f32::NAN]), -3.0);
    }
}
