//! Optimizer building blocks and fused steps.
//!
//! Results are computed in the operands' common type, rounded, and stored in the output type.
//! Scalar operands keep their own precision.

use crate::dtype::AclType;
use crate::elementwise::arithmetic::settle;
use crate::elementwise::kernels::{map2, map3, zip, zip3};
use crate::lane::{Arithmetic, Lane, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{FLOATING, REAL, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal};
use crate::optimizer::kernels::{AdamW, AdamWRates, adam_w};

/// Source of an operator and its in-place form.
macro_rules! page {
    ($folder:literal, $name:literal) => {
        concat!(
            "ops-math math/",
            $folder,
            "/docs/aclnn",
            $name,
            "&aclnnInplace",
            $name,
            ".md (floating point types)"
        )
    };
}

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAddcmul",
        parameters: &[
            input(SELF, REAL, 0, 8),
            input(TENSOR1, REAL, 0, 8),
            input(TENSOR2, REAL, 0, 8),
            output(OUT, REAL, 0, 8),
        ],
        limits: "self, tensor1 and tensor2 broadcast to out; common type storable in out; value storable in the common type",
        source: page!("addcmul", "Addcmul"),
        plan: |call| ternary(call, Ternary::Product),
    },
    Operator {
        name: "aclnnAddcdiv",
        parameters: &[
            input(SELF, REAL, 0, 8),
            input(TENSOR1, REAL, 0, 8),
            input(TENSOR2, REAL, 0, 8),
            output(OUT, REAL, 0, 8),
        ],
        limits: "self, tensor1 and tensor2 broadcast to out; common type storable in out; value storable in the common type",
        source: page!("addcdiv", "Addcdiv"),
        plan: |call| ternary(call, Ternary::Quotient),
    },
    Operator {
        name: "aclnnLerp",
        parameters: &[
            input(SELF, FLOATING, 0, 8),
            input(END, FLOATING, 0, 8),
            input(WEIGHT, FLOATING, 0, 8),
            output(OUT, FLOATING, 0, 8),
        ],
        limits: "one element type; self, end and weight broadcast to out",
        source: "ops-math math/lerp/docs/aclnnLerp&aclnnInplaceLerp.md",
        plan: |call| lerp(call),
    },
    Operator {
        name: "aclnnLerps",
        parameters: &[input(SELF, FLOATING, 0, 8), input(END, FLOATING, 0, 8), output(OUT, FLOATING, 0, 8)],
        limits: "one element type; self and end broadcast to out",
        source: "ops-math math/lerp/docs/aclnnLerps&aclnnInplaceLerps.md",
        plan: |call| lerp_by_scalar(call),
    },
    Operator {
        name: "aclnnApplyAdamWV2",
        parameters: &[
            in_place(VAR_REF, FLOATING, 1, 8),
            in_place(M_REF, FLOATING, 1, 8),
            in_place(V_REF, FLOATING, 1, 8),
            in_place(MAX_GRAD_NORM_OPTIONAL_REF, FLOATING, 1, 8).optional(),
            input(GRAD, FLOATING, 1, 8),
            input(STEP, &[AclType::F32, AclType::I64], 0, 8).contiguous(),
        ],
        limits: "one shape and one element type, except step: one element with the number of earlier updates (the card \
                 adds 1); maxGradNormOptionalRef is required if amsgrad is true",
        source: "ops-nn optim/apply_adam_w_v2/docs/aclnnApplyAdamWV2.md; for step: tests/assets/golden.py next to docs",
        plan: apply_adam_w,
    },
    Operator {
        name: "aclnnApplyAdamW",
        parameters: &[
            in_place(VAR_REF, FLOATING, 1, 8),
            in_place(M_REF, FLOATING, 1, 8),
            in_place(V_REF, FLOATING, 1, 8),
            input(BETA1_POWER, FLOATING, 0, 8),
            input(BETA2_POWER, FLOATING, 0, 8),
            input(LR_TENSOR, FLOATING, 0, 8),
            input(WEIGHT_DECAY_TENSOR, FLOATING, 0, 8),
            input(BETA1_TENSOR, FLOATING, 0, 8),
            input(BETA2_TENSOR, FLOATING, 0, 8),
            input(EPS_TENSOR, FLOATING, 0, 8),
            input(GRAD, FLOATING, 1, 8),
            input(MAX_GRAD_NORM_OPTIONAL, FLOATING, 1, 8).optional(),
        ],
        limits: "one element type; mRef, vRef, grad and maxGradNormOptional have the shape of varRef, the other \
                 tensors one element; the powers are from before the step; amsgrad is false, because its second moment \
                 is not documented",
        source: "ops-nn optim/apply_adam_w/docs/aclnnApplyAdamW.md",
        plan: apply_adam_w_of_tensors,
    },
    Operator {
        name: "aclnnAmpUpdateScale",
        parameters: &[
            input(CURRENT_SCALE, SINGLE, 0, 1),
            input(GROWTH_TRACKER, WHOLE32, 0, 1),
            input(FOUND_INF, SINGLE, 0, 1),
            output(UPDATED_SCALE_OUT, SINGLE, 0, 1),
            output(UPDATED_GROWTH_TRACKER_OUT, WHOLE32, 0, 1),
        ],
        limits: "one element each; growthInterval at least 1; foundInf not 0: scale times backoffFactor, tracker 0; \
                 otherwise the tracker counts up, and at growthInterval becomes 0, while the scale grows by growthFactor if \
                 the result is finite",
        source: "ops-nn optim/amp_update_scale/docs/aclnnAmpUpdateScale.md",
        plan: amp_update_scale,
    },
];

fn amp_update_scale(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let names = [CURRENT_SCALE, GROWTH_TRACKER, FOUND_INF, UPDATED_SCALE_OUT, UPDATED_GROWTH_TRACKER_OUT];
    for name in names {
        call.expect_shape_or_one(name, &[1], "one element")?;
    }
    let (growth, backoff) = (call.float(GROWTH_FACTOR)?, call.float(BACKOFF_FACTOR)?);
    let interval = call.int_in(GROWTH_INTERVAL, 1..=i64::MAX)?;
    let [scale, tracker, found, new_scale, new_tracker] = call.slots_of(names)?;
    CallPlan::new(move |views, _| {
        let one = |slot| views.read::<f32>(slot)[0];
        let (scale, steps) = (one(scale), views.read::<i64>(tracker)[0] + 1);
        let grown = scale * growth as f32;
        let (scale, steps) = match (one(found) != 0.0, steps == interval) {
            (true, _) => (scale * backoff as f32, 0),
            (false, true) => (if grown.is_finite() { grown } else { scale }, 0),
            (false, false) => (scale, steps),
        };
        views.write(new_scale, &[scale]);
        views.write(new_tracker, &[steps]);
        Ok(())
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ternary {
    Product,
    Quotient,
}

impl Ternary {
    /// Computes `a + value * (b op c)`, in place in `a`.
    fn apply<L: Arithmetic>(self, a: &mut [L], b: &[L], c: &[L], value: L) {
        match self {
            Self::Product => zip3(a, b, c, |x, y, z| x.plus(value.times(y.times(z)))),
            Self::Quotient => zip3(a, b, c, |x, y, z| x.plus(value.times(y.over(z)))),
        }
    }
}

/// `target` has the broadcast shape.
fn expect_broadcast(
    call: &OperatorCall,
    names: &[Name<CheckedTensor>],
    target: Name<CheckedTensor>,
) -> Result<(), Refusal> {
    let mut shape = Vec::new();
    for &name in names {
        let dims = &call.tensor(name)?.dims;
        shape = crate::operator::call::broadcast(&shape, dims).ok_or_else(|| {
            call.refuse(name, format!("{dims:?} does not broadcast with {shape:?} of those before it"))
        })?;
    }
    let list: Vec<&str> = names.iter().map(|name| name.text()).collect();
    call.expect_shape(target, &shape, &format!("to which {} broadcast", list.join(", ")))
}

fn ternary(call: &OperatorCall, kind: Ternary) -> Result<CallPlan, Refusal> {
    let (pair, third) = (call.promote(SELF, TENSOR1)?, call.tensor(TENSOR2)?.dtype);
    let computed = pair.promote(third).ok_or_else(|| {
        call.refuse(TENSOR2, format!("{third} has no common type with {pair} of self and tensor1"))
    })?;
    expect_broadcast(call, &[SELF, TENSOR1, TENSOR2], OUT)?;
    call.expect_cast(OUT, computed)?;
    let value = call.scalar(VALUE_SCALAR)?;
    let operands = [SELF, TENSOR1, TENSOR2].map(|name| call.tensor(name).map(|tensor| tensor.slot));
    let ([a, b, c], out) = (operands, call.tensor(OUT)?.slot);
    let (a, b, c) = (a?, b?, c?);
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        with_lane!(computed, L => map3::<L>(tiles, [a, b, c].map(|slot| views.of(slot)), out, |x, y, z| {
            kind.apply(x, y, z, value.lane());
            settle(x, computed, out.dtype());
        }));
        Ok(())
    })
}

fn lerp(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let start = call.tensor(SELF)?;
    for name in [END, WEIGHT, OUT] {
        call.expect_dtype(name, start.dtype, "the type of self")?;
    }
    expect_broadcast(call, &[SELF, END, WEIGHT], OUT)?;
    let (start, end, weight) = (start.slot, call.tensor(END)?.slot, call.tensor(WEIGHT)?.slot);
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        let operands = [start, end, weight].map(|slot| views.of(slot));
        map3::<f32>(tiles, operands, views.of(out), |x, y, z| zip3(x, y, z, |x, y, z| x + z * (y - x)));
        Ok(())
    })
}

fn lerp_by_scalar(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let start = call.tensor(SELF)?;
    for name in [END, OUT] {
        call.expect_dtype(name, start.dtype, "the type of self")?;
    }
    expect_broadcast(call, &[SELF, END], OUT)?;
    let weight = call.scalar(WEIGHT_SCALAR)?.lane::<f32>();
    let (start, end, out) = (start.slot, call.tensor(END)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        map2::<f32>(tiles, views.of(start), views.of(end), views.of(out), |x, y| {
            zip(x, y, |x, y| x + weight * (y - x));
        });
        Ok(())
    })
}

fn apply_adam_w(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let parameters = call.tensor(VAR_REF)?;
    let greatest = call.tensor_if_given(MAX_GRAD_NORM_OPTIONAL_REF)?;
    let amsgrad = call.flag(AMSGRAD)?;
    if amsgrad && greatest.is_none() {
        return Err(call.refuse(MAX_GRAD_NORM_OPTIONAL_REF, "is NULL and must be given if amsgrad is true"));
    }
    let optional = greatest.map(|_| MAX_GRAD_NORM_OPTIONAL_REF);
    for name in [M_REF, V_REF, GRAD].into_iter().chain(optional) {
        call.expect_dtype(name, parameters.dtype, "the type of varRef")?;
        call.expect_shape(name, &parameters.dims, "of varRef")?;
    }
    let step = call.tensor(STEP)?;
    if step.len() != 1 {
        return Err(call.refuse(STEP, format!("expected one element, found {:?}", step.dims)));
    }
    let rates = AdamWRates {
        lr: call.float(LR)?,
        beta1: call.float(BETA1)?,
        beta2: call.float(BETA2)?,
        weight_decay: call.float(WEIGHT_DECAY)?,
        eps: call.float(EPS)?,
    };
    let sign = if call.flag(MAXIMIZE)? { -1.0 } else { 1.0 };
    let (parameters, step, grad) = (parameters.slot, step.slot, call.tensor(GRAD)?.slot);
    let (first, second) = (call.tensor(M_REF)?.slot, call.tensor(V_REF)?.slot);
    let greatest = greatest.filter(|_| amsgrad).map(|tensor| tensor.slot);
    CallPlan::new(move |views, tiles| {
        let mut made = [0f64];
        f64::load(&views.of(step).collapsed(), 0, &mut made);
        if made[0].is_nan() || made[0] < 0.0 {
            return Err(format!(
                "step: expected the number of earlier updates, at least 0, found {}",
                made[0]
            ));
        }
        let state = [parameters, first, second].map(|slot| views.of(slot));
        let adam = AdamW::at(rates, made[0] + 1.0, sign);
        adam_w(tiles, &adam, state, greatest.map(|slot| views.of(slot)), views.of(grad));
        Ok(())
    })
}

/// Each is a one-element tensor.
const STEP_SCALARS: [Name<CheckedTensor>; 7] =
    [BETA1_POWER, BETA2_POWER, LR_TENSOR, WEIGHT_DECAY_TENSOR, BETA1_TENSOR, BETA2_TENSOR, EPS_TENSOR];

fn apply_adam_w_of_tensors(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let parameters = call.tensor(VAR_REF)?;
    if call.flag(AMSGRAD)? {
        return Err(call.refuse(AMSGRAD, "expected false, found true"));
    }
    let optional = call.tensor_if_given(MAX_GRAD_NORM_OPTIONAL)?.map(|_| MAX_GRAD_NORM_OPTIONAL);
    for name in [M_REF, V_REF, GRAD].into_iter().chain(optional) {
        call.expect_shape(name, &parameters.dims, "of varRef")?;
    }
    for name in [M_REF, V_REF, GRAD].into_iter().chain(optional).chain(STEP_SCALARS) {
        call.expect_dtype(name, parameters.dtype, "the type of varRef")?;
    }
    let mut scalars = [parameters.slot; 7];
    for (slot, name) in scalars.iter_mut().zip(STEP_SCALARS) {
        let tensor = call.tensor(name)?;
        if tensor.len() != 1 {
            return Err(call.refuse(name, format!("expected one element, found {:?}", tensor.dims)));
        }
        *slot = tensor.slot;
    }
    let sign = if call.flag(MAXIMIZE)? { -1.0 } else { 1.0 };
    let (parameters, grad) = (parameters.slot, call.tensor(GRAD)?.slot);
    let (first, second) = (call.tensor(M_REF)?.slot, call.tensor(V_REF)?.slot);
    CallPlan::new(move |views, tiles| {
        let [power1, power2, lr, weight_decay, beta1, beta2, eps] = scalars.map(|slot| {
            let mut value = [0f64];
            f64::load(&views.of(slot).collapsed(), 0, &mut value);
            value[0]
        });
        let rates = AdamWRates { lr, beta1, beta2, weight_decay, eps };
        let adam = AdamW::of_powers(rates, [power1 * beta1, power2 * beta2], sign);
        adam_w(tiles, &adam, [parameters, first, second].map(|slot| views.of(slot)), None, views.of(grad));
        Ok(())
    })
}
