//! Rows of distances between points.

use crate::distance::kernels::{self as distance, Norm};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, HALF_OR_SINGLE};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnCdist",
        parameters: &[input(X1, FLOATING, 2, 8), input(X2, FLOATING, 2, 8), output(OUT, FLOATING, 2, 8)],
        limits: "x1 [.., P, M], x2 [.., R, M], out [.., P, R]; leading dims broadcast; one element type; p from 0 to \
                 infinity; computeMode 2 where p is 2",
        source: "ops-math math/cdist/docs/aclnnCdist.md",
        plan: forward,
    },
    Operator {
        name: "aclnnCdistBackward",
        parameters: &[
            input(GRAD, HALF_OR_SINGLE, 2, 7),
            input(X1, HALF_OR_SINGLE, 2, 7),
            input(X2, HALF_OR_SINGLE, 2, 7),
            input(CDIST, HALF_OR_SINGLE, 2, 7),
            output(OUT, HALF_OR_SINGLE, 2, 7),
        ],
        limits: "grad and cdist [.., P, R], x1 and out [.., P, M], x2 [.., R, M]; its leading dims broadcast to \
                 grad's; one element type; p from 0 to infinity",
        source: "ops-math math/cdist_grad/docs/aclnnCdistBackward.md",
        plan: backward,
    },
    Operator {
        name: "aclnnPdist",
        parameters: &[input(SELF, HALF_OR_SINGLE, 2, 2), output(OUT, HALF_OR_SINGLE, 1, 1)],
        limits: "self [N, M], p at least 0; out [N (N - 1) / 2] of the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnPdist",
        plan: pairs,
    },
];

/// Distances of each pair of points, by the first and then by the second point.
fn pairs(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, norm) = (call.tensor(SELF)?, norm(call)?);
    call.expect_type_of(SELF, &[OUT])?;
    let (count, len) = (x.dims[0], x.dims[1]);
    call.expect_shape(OUT, &[count * count.saturating_sub(1) / 2], "pairs of points of self")?;
    let [x, out] = call.slots_of([SELF, OUT])?;
    CallPlan::new(move |views, _| {
        let points = views.read::<f32>(x);
        let point = |at: usize| &points[at * len..(at + 1) * len];
        let pairs = (0..count).flat_map(|first| (first + 1..count).map(move |second| [first, second]));
        let found: Vec<f32> =
            pairs.map(|[first, second]| norm.distance(point(first), point(second))).collect();
        views.write(out, &found);
        Ok(())
    })
}

fn norm(call: &OperatorCall) -> Result<Norm, Refusal> {
    let degree = call.float(P_FLOAT)?;
    if degree.is_nan() || degree < 0.0 {
        return Err(call.refuse(P_FLOAT, format!("expected 0 to infinity, found {degree}")));
    }
    Ok(Norm::of(degree as f32))
}

fn forward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, y, norm) = (call.tensor(X1)?, call.tensor(X2)?, norm(call)?);
    for name in [X2, OUT] {
        call.expect_dtype(name, x.dtype, "the type of x1")?;
    }
    let mode = call.int(COMPUTE_MODE)?;
    if norm == Norm::Euclid && mode != 2 {
        return Err(call.refuse(COMPUTE_MODE, format!("expected 2 where p is 2, found {mode}")));
    }
    let (own, set, len) = (x.dims[x.rank() - 2], y.dims[y.rank() - 2], x.dims[x.rank() - 1]);
    if y.dims[y.rank() - 1] != len {
        return Err(
            call.refuse(X2, format!("expected points of {len} numbers as x1 has, found {:?}", y.dims))
        );
    }
    let batch = crate::operator::call::broadcast(&x.dims[..x.rank() - 2], &y.dims[..y.rank() - 2])
        .ok_or_else(|| {
            call.refuse(
                X2,
                format!("{:?} does not broadcast with {:?} of x1 but for the last dims", y.dims, x.dims),
            )
        })?;
    call.expect_shape(OUT, &[&batch[..], &[own, set]].concat(), "points of x1 and of x2")?;
    let (x, y, out) = (x.slot, y.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        distance::distances(tiles, norm, views.of(x), views.of(y), views.of(out));
        Ok(())
    })
}

fn backward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (grad, x, y, norm) = (call.tensor(GRAD)?, call.tensor(X1)?, call.tensor(X2)?, norm(call)?);
    for name in [X1, X2, CDIST, OUT] {
        call.expect_dtype(name, grad.dtype, "the type of grad")?;
    }
    call.expect_shape(CDIST, &grad.dims, "of grad")?;
    let (last, len) = (grad.rank() - 1, x.dims[x.rank() - 1]);
    call.expect_shape(X1, &[&grad.dims[..last], &[len]].concat(), "of grad but for the last dim")?;
    call.expect_shape(OUT, &x.dims, "of x1")?;
    let (batch, set) = (&grad.dims[..last - 1], grad.dims[last]);
    let outer = &y.dims[..y.rank() - 2];
    let fits =
        y.rank() == grad.rank() && crate::operator::call::broadcast(outer, batch).as_deref() == Some(batch);
    if !fits || y.dims[last - 1..] != [set, len] {
        let text = format!(
            "expected leading dims that broadcast to {batch:?}, then {:?}, found {:?}",
            [set, len],
            y.dims
        );
        return Err(call.refuse(X2, text));
    }
    let (grad, x, y, out) = (grad.slot, x.slot, y.slot, call.tensor(OUT)?.slot);
    let distance = call.tensor(CDIST)?.slot;
    CallPlan::new(move |views, tiles| {
        let [grad, distance, x, y, out] = [grad, distance, x, y, out].map(|slot| views.of(slot));
        distance::distances_grad(tiles, norm, grad, distance, x, y, out);
        Ok(())
    })
}
