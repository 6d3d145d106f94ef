//! Gamma functions, gates with a threshold, and gradients of dropout and of nearest points.

use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, HALF_OR_SINGLE, OCTETS, WHOLE32};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnDigamma",
        parameters: &[input(SELF, FLOATING, 0, 8), output(OUT, FLOATING, 0, 8)],
        limits: "NaN at negative integers, -inf at 0; out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnDigamma",
        plan: |call| mapped(call, digamma),
    },
    Operator {
        name: "aclnnLgamma",
        parameters: &[input(SELF, FLOATING, 0, 8), output(OUT, FLOATING, 0, 8)],
        limits: "inf at integers up to 0; out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnLgamma",
        plan: |call| mapped(call, log_gamma),
    },
    Operator {
        name: "aclnnDropoutBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 8),
            input(MASK, OCTETS, 1, 1),
            output(OUT, FLOATING, 0, 8),
        ],
        limits: "gradOutput times scale where the bit of mask is 1, lowest bit first, else 0; mask has a bit per element, in \
                 multiples of 16 bytes; out has the shape and type of gradOutput",
        source: "CANN 8.1 aclnn API reference, aclnnDropoutBackward",
        plan: dropout_grad,
    },
    Operator {
        name: "aclnnFatreluMul",
        parameters: &[
            input(INPUT, FLOATING, 2, 8),
            input(THRESHOLD_TENSOR, FLOATING, 0, 1),
            output(OUT, FLOATING, 2, 8),
        ],
        limits: "input [.., 2 d], out [.., d]: the first half where it is above threshold, else 0, times the second half; threshold \
                 has one element; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnFatreluMul",
        plan: fatrelu,
    },
    Operator {
        name: "aclnnChamferDistanceBackward",
        parameters: &[
            input(XYZ1, HALF_OR_SINGLE, 3, 3),
            input(XYZ2, HALF_OR_SINGLE, 3, 3),
            input(IDX1, WHOLE32, 2, 2),
            input(IDX2, WHOLE32, 2, 2),
            input(GRAD_DIST1, HALF_OR_SINGLE, 2, 2),
            input(GRAD_DIST2, HALF_OR_SINGLE, 2, 2),
            output(GRAD_XYZ1, HALF_OR_SINGLE, 3, 3),
            output(GRAD_XYZ2, HALF_OR_SINGLE, 3, 3),
        ],
        limits: "points xyz1 and xyz2 [B, N, 2], nearest points idx1 and idx2 and gradients of squared distances [B, N]; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnChamferDistanceBackward",
        plan: nearest_grad,
    },
];

fn mapped(call: &OperatorCall, function: fn(f64) -> f64) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[OUT])?;
    call.expect_shape(OUT, &call.tensor(SELF)?.dims, "of self")?;
    let [x, out] = call.slots_of([SELF, OUT])?;
    CallPlan::new(move |views, _| {
        views.write(out, &views.read::<f64>(x).into_iter().map(function).collect::<Vec<_>>());
        Ok(())
    })
}

/// Shifts the argument by recurrence, then uses the asymptotic series.
fn digamma(x: f64) -> f64 {
    use std::f64::consts::PI;
    if x == 0.0 {
        return f64::NEG_INFINITY.copysign(-x.signum());
    }
    if x < 0.0 {
        return if x == x.floor() { f64::NAN } else { digamma(1.0 - x) - PI / (PI * x).tan() };
    }
    let (mut shifted, mut sum) = (x, 0.0);
    while shifted < 10.0 {
        sum -= 1.0 / shifted;
        shifted += 1.0;
    }
    let square = 1.0 / (shifted * shifted);
    let series =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let tail = series.iter().rev().fold(0.0, |tail, term| (tail + term) * square);
    sum + shifted.ln() - 0.5 / shifted - tail
}

/// Stirling's series after the same shift.
fn log_gamma(x: f64) -> f64 {
    use std::f64::consts::PI;
    if x <= 0.0 && x == x.floor() {
        return f64::INFINITY;
    }
    if x < 0.0 {
        return (PI / (PI * x).sin().abs()).ln() - log_gamma(1.0 - x);
    }
    if x.is_infinite() {
        return x;
    }
    if [1.0, 2.0].contains(&x) {
        return 0.0;
    }
    let (mut shifted, mut product) = (x, 1.0);
    while shifted < 10.0 {
        product *= shifted;
        shifted += 1.0;
    }
    let square = 1.0 / (shifted * shifted);
    let series = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
    ];
    let tail = series.iter().rev().fold(0.0, |tail, term| tail * square + term) / shifted;
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * (2.0 * PI).ln() + tail - product.ln()
}

fn dropout_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(GRAD_OUTPUT, &[OUT])?;
    let grad = call.tensor(GRAD_OUTPUT)?;
    call.expect_shape(OUT, &grad.dims, "of gradOutput")?;
    call.expect_shape(MASK, &[grad.len().div_ceil(128) * 16], "a bit per element, in 16 bytes")?;
    let ([grad, mask, out], scale) = (call.slots_of([GRAD_OUTPUT, MASK, OUT])?, call.float(SCALE_FLOAT)?);
    CallPlan::new(move |views, _| {
        let mask = views.read::<i64>(mask);
        let kept = |(i, x): (usize, f64)| if mask[i / 8] >> (i % 8) & 1 == 1 { x * scale } else { 0.0 };
        views.write(out, &views.read::<f64>(grad).into_iter().enumerate().map(kept).collect::<Vec<_>>());
        Ok(())
    })
}

fn fatrelu(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(INPUT, &[THRESHOLD_TENSOR, OUT])?;
    let x = call.tensor(INPUT)?;
    let width = x.dims[x.rank() - 1];
    call.expect_that(width > 0 && width.is_multiple_of(2), INPUT, "an even last dim", &x.dims)?;
    let shape = [&x.dims[..x.rank() - 1], &[width / 2]].concat();
    call.expect_shape(OUT, &shape, "of input with half of the last dim")?;
    let limit = call.tensor(THRESHOLD_TENSOR)?;
    call.expect_that(limit.len() == 1, THRESHOLD_TENSOR, "one element", &limit.dims)?;
    let [x, limit, out] = call.slots_of([INPUT, THRESHOLD_TENSOR, OUT])?;
    CallPlan::new(move |views, _| {
        let (values, limit) = (views.read::<f64>(x), views.read::<f64>(limit)[0]);
        let gated = |row: &[f64]| {
            let (gate, other) = row.split_at(width / 2);
            let pair = |(gate, other): (&f64, &f64)| if *gate > limit { gate * other } else { 0.0 };
            gate.iter().zip(other).map(pair).collect::<Vec<f64>>()
        };
        views.write(out, &values.chunks_exact(width).flat_map(gated).collect::<Vec<f64>>());
        Ok(())
    })
}

fn nearest_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    const PAIRS: [[Name<CheckedTensor>; 2]; 2] = [[XYZ1, GRAD_XYZ1], [XYZ2, GRAD_XYZ2]];
    call.expect_type_of(XYZ1, &[XYZ2, GRAD_DIST1, GRAD_DIST2, GRAD_XYZ1, GRAD_XYZ2])?;
    let points = PAIRS.as_flattened().iter().map(|name| name.of("bn2"));
    let numbers = [IDX1, IDX2, GRAD_DIST1, GRAD_DIST2].map(|name| name.of("bn"));
    let count = call.sizes(&points.chain(numbers).collect::<Vec<_>>())?.of('n');
    let points = call.slots_of([XYZ1, XYZ2])?;
    let (nearest, slopes) = (call.slots_of([IDX1, IDX2])?, call.slots_of([GRAD_DIST1, GRAD_DIST2])?);
    let outs = call.slots_of([GRAD_XYZ1, GRAD_XYZ2])?;
    CallPlan::new(move |views, _| {
        let points = points.map(|slot| views.read::<f64>(slot));
        let mut grads = points.each_ref().map(|points| vec![0f64; points.len()]);
        for side in 0..2 {
            let (nearest, slopes) = (views.read::<i64>(nearest[side]), views.read::<f64>(slopes[side]));
            for (at, (&index, slope)) in nearest.iter().zip(&slopes).enumerate() {
                let place = usize::try_from(index).ok().filter(|&place| place < count);
                let place = place
                    .ok_or_else(|| format!("idx{}: expected 0 to {}, found {index}", side + 1, count - 1))?;
                let other = at / count * count + place;
                for i in 0..2 {
                    let step = 2.0 * slope * (points[side][at * 2 + i] - points[1 - side][other * 2 + i]);
                    grads[side][at * 2 + i] += step;
                    grads[1 - side][other * 2 + i] -= step;
                }
            }
        }
        outs.iter().zip(&grads).for_each(|(out, grad)| views.write(*out, grad));
        Ok(())
    })
}
