//! Rows of what optimizers are made of: scaled products, quotients and interpolations of three tensors, and fused steps.
//!
//! Results are computed in the common type of the operands, rounded to it, and then stored as the type of the output. A scalar
//! operand is used at its own precision, not rounded to the type of the tensor.

use super::arithmetic::settle;
use super::call::OperatorCall;
use super::row::{Operator, attribute, in_place, input, output, scalar};
use super::sets::{FLOATING, REAL};
use super::{Plan, Refusal};
use crate::nn::dtype::DType;
use crate::nn::elementwise::{map2, map3, zip, zip3};
use crate::nn::lane::{Arithmetic, Lane, with_lane};
use crate::nn::optimizer::{AdamW, AdamWRates, adam_w};

/// The page of the operator, once it stands for itself and once for its form in place.
macro_rules! page {
    ($folder:literal, $name:literal) => {
        concat!("ops-math math/", $folder, "/docs/aclnn", $name, "&aclnnInplace", $name, ".md (floating point types)")
    };
}

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAddcmul",
        parameters: &[
            input("self", REAL, 0, 8),
            input("tensor1", REAL, 0, 8),
            input("tensor2", REAL, 0, 8),
            scalar("value"),
            output("out", REAL, 0, 8),
        ],
        limits: "self, tensor1 and tensor2 broadcast to out; common type storable in out; value storable in the common type",
        source: page!("addcmul", "Addcmul"),
        plan: |call| ternary(call, "self", "out", Ternary::Product),
    },
    Operator {
        name: "aclnnInplaceAddcmul",
        parameters: &[
            in_place("selfRef", REAL, 0, 8),
            input("tensor1", REAL, 0, 8),
            input("tensor2", REAL, 0, 8),
            scalar("value"),
        ],
        limits: "tensor1 and tensor2 broadcast to selfRef; common type storable in selfRef; value storable in the common type",
        source: page!("addcmul", "Addcmul"),
        plan: |call| ternary(call, "selfRef", "selfRef", Ternary::Product),
    },
    Operator {
        name: "aclnnAddcdiv",
        parameters: &[
            input("self", REAL, 0, 8),
            input("tensor1", REAL, 0, 8),
            input("tensor2", REAL, 0, 8),
            scalar("value"),
            output("out", REAL, 0, 8),
        ],
        limits: "self, tensor1 and tensor2 broadcast to out; common type storable in out; value storable in the common type",
        source: page!("addcdiv", "Addcdiv"),
        plan: |call| ternary(call, "self", "out", Ternary::Quotient),
    },
    Operator {
        name: "aclnnInplaceAddcdiv",
        parameters: &[
            in_place("selfRef", REAL, 0, 8),
            input("tensor1", REAL, 0, 8),
            input("tensor2", REAL, 0, 8),
            scalar("value"),
        ],
        limits: "tensor1 and tensor2 broadcast to selfRef; common type storable in selfRef; value storable in the common type",
        source: page!("addcdiv", "Addcdiv"),
        plan: |call| ternary(call, "selfRef", "selfRef", Ternary::Quotient),
    },
    Operator {
        name: "aclnnLerp",
        parameters: &[
            input("self", FLOATING, 0, 8),
            input("end", FLOATING, 0, 8),
            input("weight", FLOATING, 0, 8),
            output("out", FLOATING, 0, 8),
        ],
        limits: "one element type; self, end and weight broadcast to out",
        source: "ops-math math/lerp/docs/aclnnLerp&aclnnInplaceLerp.md",
        plan: |call| lerp(call, "self", "out"),
    },
    Operator {
        name: "aclnnInplaceLerp",
        parameters: &[
            in_place("selfRef", FLOATING, 0, 8),
            input("end", FLOATING, 0, 8),
            input("weight", FLOATING, 0, 8),
        ],
        limits: "one element type; end and weight broadcast to selfRef",
        source: "ops-math math/lerp/docs/aclnnLerp&aclnnInplaceLerp.md",
        plan: |call| lerp(call, "selfRef", "selfRef"),
    },
    Operator {
        name: "aclnnLerps",
        parameters: &[
            input("self", FLOATING, 0, 8),
            input("end", FLOATING, 0, 8),
            scalar("weight"),
            output("out", FLOATING, 0, 8),
        ],
        limits: "one element type; self and end broadcast to out",
        source: "ops-math math/lerp/docs/aclnnLerps&aclnnInplaceLerps.md",
        plan: |call| lerp_by_scalar(call, "self", "out"),
    },
    Operator {
        name: "aclnnInplaceLerps",
        parameters: &[in_place("selfRef", FLOATING, 0, 8), input("end", FLOATING, 0, 8), scalar("weight")],
        limits: "one element type; end broadcasts to selfRef",
        source: "ops-math math/lerp/docs/aclnnLerps&aclnnInplaceLerps.md",
        plan: |call| lerp_by_scalar(call, "selfRef", "selfRef"),
    },
    Operator {
        name: "aclnnApplyAdamWV2",
        parameters: &[
            in_place("varRef", FLOATING, 1, 8),
            in_place("mRef", FLOATING, 1, 8),
            in_place("vRef", FLOATING, 1, 8),
            in_place("maxGradNormOptionalRef", FLOATING, 1, 8).optional(),
            input("grad", FLOATING, 1, 8),
            input("step", &[DType::F32, DType::I64], 0, 8).contiguous(),
            attribute("lr"),
            attribute("beta1"),
            attribute("beta2"),
            attribute("weightDecay"),
            attribute("eps"),
            attribute("amsgrad"),
            attribute("maximize"),
        ],
        limits: "one shape and one element type but for step, which has one element: the updates made before this one, as the \
                 card adds 1 to it; maxGradNormOptionalRef given where amsgrad is true",
        source: "ops-nn optim/apply_adam_w_v2/docs/aclnnApplyAdamWV2.md, of step tests/assets/golden.py beside it",
        plan: apply_adam_w,
    },
];

/// What is scaled and added to the first of three tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ternary {
    /// The product of the others.
    Product,
    /// Their quotient.
    Quotient,
}

impl Ternary {
    /// Rewrites `a` with `a + value * (b op c)` of each triple.
    fn apply<L: Arithmetic>(self, a: &mut [L], b: &[L], c: &[L], value: L) {
        match self {
            Self::Product => zip3(a, b, c, |x, y, z| x.plus(value.times(y.times(z)))),
            Self::Quotient => zip3(a, b, c, |x, y, z| x.plus(value.times(y.over(z)))),
        }
    }
}

/// Refuses a `target` that is not of the shape to which the tensors broadcast.
fn expect_broadcast(call: &OperatorCall<'_>, names: &[&str], target: &str) -> Result<(), Refusal> {
    let mut shape = Vec::new();
    for name in names {
        let dims = &call.tensor(name)?.dims;
        shape = super::call::broadcast(&shape, dims).ok_or_else(|| {
            call.refuse(name, format!("{dims:?} does not broadcast with {shape:?} of those before it"))
        })?;
    }
    call.expect_shape(target, &shape, &format!("to which {} broadcast", names.join(", ")))
}

fn ternary(call: &OperatorCall<'_>, first: &str, target: &str, kind: Ternary) -> Result<Plan, Refusal> {
    let (pair, third) = (call.promote(first, "tensor1")?, call.tensor("tensor2")?.dtype);
    let computed = pair.promote(third).ok_or_else(|| {
        call.refuse("tensor2", format!("{third} has no common type with {pair} of {first} and tensor1"))
    })?;
    expect_broadcast(call, &[first, "tensor1", "tensor2"], target)?;
    call.expect_cast(target, computed)?;
    let value = call.scalar("value")?;
    let operands = [first, "tensor1", "tensor2"].map(|name| call.tensor(name).map(|tensor| tensor.slot));
    let ([a, b, c], out) = (operands, call.tensor(target)?.slot);
    let (a, b, c) = (a?, b?, c?);
    Plan::new(move |views, tiles| {
        let out = views.of(out);
        with_lane!(computed, L => map3::<L>(tiles, [a, b, c].map(|slot| views.of(slot)), out, |x, y, z| {
            kind.apply(x, y, z, value.lane());
            settle(x, computed, out.dtype());
        }));
        Ok(())
    })
}

fn lerp(call: &OperatorCall<'_>, first: &str, target: &str) -> Result<Plan, Refusal> {
    let start = call.tensor(first)?;
    for name in ["end", "weight", target] {
        call.expect_dtype(name, start.dtype, &format!("that of {first}"))?;
    }
    expect_broadcast(call, &[first, "end", "weight"], target)?;
    let (start, end, weight) = (start.slot, call.tensor("end")?.slot, call.tensor("weight")?.slot);
    let out = call.tensor(target)?.slot;
    Plan::new(move |views, tiles| {
        let operands = [start, end, weight].map(|slot| views.of(slot));
        map3::<f32>(tiles, operands, views.of(out), |x, y, z| zip3(x, y, z, |x, y, z| x + z * (y - x)));
        Ok(())
    })
}

fn lerp_by_scalar(call: &OperatorCall<'_>, first: &str, target: &str) -> Result<Plan, Refusal> {
    let start = call.tensor(first)?;
    for name in ["end", target] {
        call.expect_dtype(name, start.dtype, &format!("that of {first}"))?;
    }
    expect_broadcast(call, &[first, "end"], target)?;
    let weight = call.scalar("weight")?.lane::<f32>();
    let (start, end, out) = (start.slot, call.tensor("end")?.slot, call.tensor(target)?.slot);
    Plan::new(move |views, tiles| {
        map2::<f32>(tiles, views.of(start), views.of(end), views.of(out), |x, y| {
            zip(x, y, |x, y| x + weight * (y - x));
        });
        Ok(())
    })
}

fn apply_adam_w(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let parameters = call.tensor("varRef")?;
    let greatest = call.tensor_if_given("maxGradNormOptionalRef")?;
    let amsgrad = call.flag("amsgrad")?;
    if amsgrad && greatest.is_none() {
        return Err(call.refuse("maxGradNormOptionalRef", "is NULL and must be given where amsgrad is true"));
    }
    let optional = greatest.map(|_| "maxGradNormOptionalRef");
    for name in ["mRef", "vRef", "grad"].into_iter().chain(optional) {
        call.expect_dtype(name, parameters.dtype, "that of varRef")?;
        call.expect_shape(name, &parameters.dims, "of varRef")?;
    }
    let step = call.tensor("step")?;
    if step.len() != 1 {
        return Err(call.refuse("step", format!("expected one element, found {:?}", step.dims)));
    }
    let rates = AdamWRates {
        lr: call.float("lr")?,
        beta1: call.float("beta1")?,
        beta2: call.float("beta2")?,
        weight_decay: call.float("weightDecay")?,
        eps: call.float("eps")?,
    };
    let sign = if call.flag("maximize")? { -1.0 } else { 1.0 };
    let (parameters, step, grad) = (parameters.slot, step.slot, call.tensor("grad")?.slot);
    let (first, second) = (call.tensor("mRef")?.slot, call.tensor("vRef")?.slot);
    let greatest = greatest.filter(|_| amsgrad).map(|tensor| tensor.slot);
    Plan::new(move |views, tiles| {
        let mut made = [0f64];
        f64::load(&views.of(step).collapsed(), 0, &mut made);
        if made[0].is_nan() || made[0] < 0.0 {
            return Err(format!("step: expected the number of updates made before, at least 0, found {}", made[0]));
        }
        let state = [parameters, first, second].map(|slot| views.of(slot));
        let adam = AdamW::at(rates, made[0] + 1.0, sign);
        adam_w(tiles, &adam, state, greatest.map(|slot| views.of(slot)), views.of(grad));
        Ok(())
    })
}
