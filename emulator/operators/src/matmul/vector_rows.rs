//! Vector products and whole-tensor comparison.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::elementwise::kernels::blocks;
use crate::elementwise::pointwise::TIMES;
use crate::lane::{BLOCK, Lane};
use crate::matmul::kernels::{self as matmul, OperandRounding, SumScales};
use crate::matmul::rows::precision;
use crate::operator::argument::Scalar;
use crate::operator::call::{OperatorCall, broadcast};
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output, scalar};
use crate::operator::sets::{ARITHMETIC, BOOL, FLOATING};
use crate::operator::{CallPlan, Refusal};
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnDot",
        parameters: &[
            input(SELF, FLOATING, 1, 1),
            input(TENSOR, FLOATING, 1, 1),
            output(OUT, FLOATING, 0, 0),
        ],
        limits: "equal numbers of elements, one element type",
        source: "CANN 8.1 aclnn API reference, aclnnDot",
        plan: dot,
    },
    Operator {
        name: "aclnnAddmv",
        parameters: &[
            input(SELF, FLOATING, 0, 1),
            input(MAT, FLOATING, 2, 2),
            input(VEC, FLOATING, 1, 1),
            output(OUT, FLOATING, 1, 1),
        ],
        limits: "mat [m, k], vec [k], out [m]; self broadcasts to out; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnAddmv",
        plan: addmv,
    },
    Operator {
        name: "aclnnAddr",
        parameters: &[
            input(SELF, FLOATING, 0, 2),
            input(VEC1, FLOATING, 1, 1),
            input(VEC2, FLOATING, 1, 1),
            scalar(BETA_OPTIONAL).optional(),
            scalar(ALPHA_OPTIONAL).optional(),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "vec1 [n], vec2 [m], out [n, m]; self broadcasts to out; one element type; a missing scalar is 1",
        source: "CANN 8.1 aclnn API reference, aclnnAddr",
        plan: addr,
    },
    Operator {
        name: "aclnnEqual",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), input(OTHER, ARITHMETIC, 0, 8), output(OUT, BOOL, 1, 1)],
        limits: "one element type; out has one element; tensors of different shapes are not equal",
        source: "CANN 8.1 aclnn API reference, aclnnEqual",
        plan: equal,
    },
    Operator {
        name: "aclnnGer",
        parameters: &[input(SELF, FLOATING, 1, 1), input(VEC2, FLOATING, 1, 1), output(OUT, FLOATING, 2, 2)],
        limits: "self [n], vec2 [m], out [n, m]; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnGer",
        plan: ger,
    },
];

fn dot(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(TENSOR, &x.dims, "of self")?;
    for name in [TENSOR, OUT] {
        call.expect_dtype(name, x.dtype, "the type of self")?;
    }
    let (x, y, out) = (x.slot, call.tensor(TENSOR)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let target = views.of(out).unsqueeze(0).unsqueeze(1);
        matmul::matmul(
            tiles,
            &views.of(x).unsqueeze(0),
            &views.of(y).unsqueeze(1),
            OperandRounding::Keep,
            &target,
        );
        Ok(())
    })
}

fn expect_sum(
    call: &OperatorCall,
    alike: [Name<crate::operator::CheckedTensor>; 3],
    shape: &[usize],
) -> Result<(), Refusal> {
    let addend = call.tensor(SELF)?;
    for name in alike {
        call.expect_dtype(name, addend.dtype, "the type of self")?;
    }
    call.expect_shape(OUT, shape, "of the product")?;
    if broadcast(&addend.dims, shape).as_deref() == Some(shape) {
        return Ok(());
    }
    Err(call.refuse(SELF, format!("{:?} does not broadcast to {shape:?}", addend.dims)))
}

fn addmv(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (mat, vector) = (call.tensor(MAT)?, call.tensor(VEC)?);
    call.expect_shape(VEC, &mat.dims[1..], "as mat has columns")?;
    expect_sum(call, [MAT, VEC, OUT], &mat.dims[..1])?;
    let scales = SumScales { beta: call.scalar(BETA)?.lane(), alpha: call.scalar(ALPHA)?.lane() };
    let precision = precision(call, mat.dtype)?;
    let (c, a, b, out) = (call.tensor(SELF)?.slot, mat.slot, vector.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let column = |view: &StridedView| view.unsqueeze(view.rank());
        let (out, b) = (views.of(out), column(views.of(b)));
        let c = column(&views.of(c).broadcast_to(out.dims()));
        matmul::addmm(tiles, &c, views.of(a), &b, scales, precision, &column(out));
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

fn addr(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (a, b) = (call.tensor(VEC1)?, call.tensor(VEC2)?);
    expect_sum(call, [VEC1, VEC2, OUT], &[a.dims[0], b.dims[0]])?;
    let scale = |name| Ok::<f32, Refusal>(call.scalar_if_given(name)?.map_or(1.0, Scalar::lane));
    let scales = SumScales { beta: scale(BETA_OPTIONAL)?, alpha: scale(ALPHA_OPTIONAL)? };
    let (c, a, b, out) = (call.tensor(SELF)?.slot, a.slot, b.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let (a, b) = (views.of(a).unsqueeze(1), views.of(b).unsqueeze(0));
        matmul::addmm(tiles, views.of(c), &a, &b, scales, OperandRounding::Keep, views.of(out));
        Ok(())
    })
}

fn ger(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (a, b) = (call.tensor(SELF)?, call.tensor(VEC2)?);
    for name in [VEC2, OUT] {
        call.expect_dtype(name, a.dtype, "the type of self")?;
    }
    call.expect_shape(OUT, &[a.dims[0], b.dims[0]], "one element per pair")?;
    let (dtype, a, b, out) = (a.dtype, a.slot, b.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let (a, b) = (views.of(a).unsqueeze(1), views.of(b).unsqueeze(0));
        TIMES.run(tiles, [&a, &b], &[], dtype, views.of(out));
        Ok(())
    })
}

fn equal(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, y, out) = (call.tensor(SELF)?, call.tensor(OTHER)?, call.tensor(OUT)?);
    call.expect_dtype(OTHER, x.dtype, "the type of self")?;
    call.expect_shape(OUT, &[1], "one truth value")?;
    let (is_alike, is_float) = (x.dims == y.dims, x.dtype.is_float());
    let (x, y, out) = (x.slot, y.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        let (x, y) = (views.of(x).collapsed(), views.of(y).collapsed());
        let differs = AtomicBool::new(!is_alike);
        let total = if is_alike { x.len() } else { 0 };
        blocks(tiles, total, &|start, len| {
            let same =
                if is_float { same::<f64>(&x, &y, start, len) } else { same::<i64>(&x, &y, start, len) };
            if !same {
                differs.store(true, Ordering::Relaxed);
            }
        });
        i64::store(&views.of(out).collapsed(), 0, &[i64::from(!differs.into_inner())]);
        Ok(())
    })
}

/// NaN is never equal.
fn same<L: Lane>(x: &StridedView, y: &StridedView, start: usize, len: usize) -> bool {
    let mut buffers = [[L::default(); BLOCK]; 2];
    L::load(x, start, &mut buffers[0][..len]);
    L::load(y, start, &mut buffers[1][..len]);
    buffers[0][..len] == buffers[1][..len]
}
