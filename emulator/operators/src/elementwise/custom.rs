//! Operators that CANN publishes only as sources, built into `libcust_opapi.so`.

use crate::dtype::AclType::{self, BF16, F16, F32, I8, I32, U8};
use crate::elementwise::pointwise::{
    FLOOR_DIVIDE, Function, PLUS, ScalarPromotion, function, pointwise, reals,
};
use crate::operator::argument::Scalar;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::FLOATING;
use crate::operator::{CallPlan, Refusal};

const ADDED: &[AclType] = &[F32, I32];
const DIVIDED: &[AclType] = &[F32, F16, BF16, I32, I8, U8];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAddExample",
        parameters: &[input(X1, ADDED, 0, 8), input(X2, ADDED, 0, 8), output(OUT, ADDED, 0, 8)],
        limits: "one shape and one element type",
        source: "ops-nn examples/add_example/examples/test_aclnn_add_example.cpp (built from its sources alone)",
        plan: |call| of_two(call, PLUS),
    },
    Operator {
        name: "aclnnFloorDiv",
        parameters: &[input(X1, DIVIDED, 0, 8), input(X2, DIVIDED, 0, 8), output(OUT, DIVIDED, 0, 8)],
        limits: "one shape and one element type",
        source: "ops-math experimental/math/floor_div/docs/aclnnFloorDiv.md (built from its sources alone)",
        plan: |call| of_two(call, FLOOR_DIVIDE),
    },
    Operator {
        source: "ops-nn experimental/activation/softsign/docs/aclnnSoftsign.md (built from its sources alone)",
        ..function!("aclnnSoftsign", [SELF: FLOATING], [] -> OUT: FLOATING, reals!(|[x], _| x / (1.0 + x.abs())))
    },
    Operator {
        name: "aclnnSwigluClamp",
        parameters: &[input(X, FLOATING, 1, 8), output(Y, FLOATING, 1, 8)],
        limits: "the last dim of x has an even extent, first the gates, then the gated values; y has half the extent \
                 and the type of x; limit is above 0",
        source: "ops-nn experimental/activation/swiglu_clamp/op_api/aclnn_swiglu_clamp.cpp (built from its sources alone)",
        plan: swiglu_clamp,
    },
];

fn of_two(call: &OperatorCall, function: Function<2>) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X1)?;
    for name in [X2, OUT] {
        call.expect_shape(name, &x.dims, "of x1")?;
        call.expect_dtype(name, x.dtype, "the type of x1")?;
    }
    pointwise(call, [X1, X2], &[], OUT, ScalarPromotion::No, function)
}

fn swiglu_clamp(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, limit) = (call.tensor(X)?, call.float(LIMIT)?);
    if limit.is_nan() || limit <= 0.0 {
        return Err(call.refuse(LIMIT, format!("expected above 0, found {limit}")));
    }
    let last = x.rank() - 1;
    if !x.dims[last].is_multiple_of(2) {
        return Err(call.refuse(X, format!("expected an even last dim, found {:?}", x.dims)));
    }
    let (dtype, mut expected) = (x.dtype, x.dims.clone());
    expected[last] /= 2;
    call.expect_dtype(Y, dtype, "the type of x")?;
    call.expect_shape(Y, &expected, "of x with half of the last dim")?;
    let (extent, x, y) = (expected[last], x.slot, call.tensor(Y)?.slot);
    CallPlan::new(move |views, tiles| {
        let [gate, up] = [0, extent].map(|start| views.of(x).slice(last, start, extent, 1));
        let function =
            reals!(|[gate, up], p| (gate / (1.0 + (-gate).exp())).min(p[0]) * up.max(-p[0]).min(p[0]));
        function.run(tiles, [&gate, &up], &[Scalar::Float(limit, F32)], dtype, views.of(y));
        Ok(())
    })
}
