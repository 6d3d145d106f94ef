//! Rows that build or split complex numbers.

use crate::dtype::AclType::{self, C64, F16, F32};
use crate::elementwise::kernels::{copy, map2, zip};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::SINGLE;
use crate::operator::{CallPlan, Refusal};

const COMPLEX: &[AclType] = &[C64];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnPolar",
        parameters: &[input(INPUT, SINGLE, 0, 8), input(ANGLE, SINGLE, 0, 8), output(OUT, COMPLEX, 0, 8)],
        limits: "one shape; real and imaginary part of out are input * cos(angle) and input * sin(angle)",
        source: "ops-math math/polar/docs/aclnnPolar.md",
        plan: polar,
    },
    Operator {
        name: "aclnnComplex",
        parameters: &[
            input(REAL_TENSOR, SINGLE, 0, 8),
            input(IMAG, SINGLE, 0, 8),
            output(OUT, COMPLEX, 0, 8),
        ],
        limits: "real and imag broadcast to out",
        source: "CANN 8.1 aclnn API reference, aclnnComplex (FLOAT)",
        plan: complex,
    },
    Operator {
        name: "aclnnReal",
        parameters: &[input(SELF, &[F32, F16, C64], 0, 8), output(OUT, &[F32, F16], 0, 8)],
        limits: "out has the shape and type of self, or FLOAT for COMPLEX64",
        source: "ops-math math/real/docs/aclnnReal.md",
        plan: real,
    },
];

fn polar(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(INPUT)?;
    for name in [ANGLE, OUT] {
        call.expect_shape(name, &x.dims, "of input")?;
    }
    let (x, angle, out) = (x.slot, call.tensor(ANGLE)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let parts = views.of(out).parts();
        for (part, function) in [f32::cos, f32::sin].into_iter().enumerate() {
            let target = parts.at(parts.rank() - 1, part);
            map2::<f32>(tiles, views.of(x), views.of(angle), &target, |x, angle| {
                zip(x, angle, |x, angle| x * function(angle));
            });
        }
        Ok(())
    })
}

fn complex(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let shape = call.broadcast(REAL_TENSOR, IMAG)?;
    call.expect_shape(OUT, &shape, "to which real and imag broadcast")?;
    let slot = |name: Name<CheckedTensor>| call.tensor(name).map(|tensor| tensor.slot);
    let (sources, out) = ([slot(REAL_TENSOR)?, slot(IMAG)?], slot(OUT)?);
    CallPlan::new(move |views, tiles| {
        let parts = views.of(out).parts();
        for (part, source) in sources.into_iter().enumerate() {
            copy(tiles, views.of(source), &parts.at(parts.rank() - 1, part));
        }
        Ok(())
    })
}

fn real(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, if x.dtype == C64 { F32 } else { x.dtype }, "by the type of self")?;
    let (rank, x, out) = (x.rank(), x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let x = views.of(x);
        copy(tiles, &if x.dtype() == C64 { x.parts().at(rank, 0) } else { x.clone() }, views.of(out));
        Ok(())
    })
}
