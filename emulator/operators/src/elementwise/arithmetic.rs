//! Elementwise arithmetic.
//!
//! Results are computed in the operands' common type, rounded, and stored in the output type.
//! Scalar operands keep their own precision.

use crate::dtype::{AclType, LaneKind};
use crate::elementwise::kernels::{blocks, each, map1, map2, map3, zip, zip3};
use crate::lane::{Arithmetic, BLOCK, Lane, with_lane};
use crate::math;
use crate::operator::argument::Scalar;
use crate::operator::call::{OperatorCall, broadcast};
use crate::operator::names::*;
use crate::operator::row::{Operator, input, inputs, output, scalar};
use crate::operator::sets::{ARITHMETIC, CONVERTED, EXPONENTS, FLOATING, NUMBER};
use crate::operator::{CallPlan, Refusal, ViewIndex};
use crate::view::StridedView;

/// A row with one floating point operand.
macro_rules! unary {
    ($name:literal, $source:literal, $function:expr) => {
        unary!($name, FLOATING, "out has the shape of self", $source, $function)
    };
    (whole $name:literal, $types:ident, $source:literal, $function:expr) => {
        unary!($name, $types, "out has the shape of self; integers give FLOAT", $source, $function)
    };
    ($name:literal, $types:ident, $limits:literal, $source:literal, $function:expr) => {
        Operator {
            name: $name,
            parameters: &[input(SELF, $types, 0, 8), output(OUT, FLOATING, 0, 8)],
            limits: $limits,
            source: $source,
            plan: |call| unary(call, $function),
        }
    };
}

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAdd",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; common type storable in out",
        source: "ops-math math/add/docs/aclnnAdd&aclnnInplaceAdd.md",
        plan: |call| pair(call, BinaryFunction::Add),
    },
    Operator {
        name: "aclnnAdds",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-math math/add/docs/aclnnAdds.md",
        plan: |call| with_scalar(call, BinaryFunction::Add),
    },
    Operator {
        name: "aclnnSub",
        parameters: &[input(SELF, NUMBER, 0, 8), input(OTHER, NUMBER, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "self and other broadcast to out; common type storable in out",
        source: "ops-math math/sub/docs/aclnnSub&aclnnInplaceSub.md",
        plan: |call| pair(call, BinaryFunction::Sub),
    },
    Operator {
        name: "aclnnSubs",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-math math/sub/docs/aclnnSubs&aclnnInplaceSubs.md (BOOL is not modelled)",
        plan: |call| with_scalar(call, BinaryFunction::Sub),
    },
    Operator {
        name: "aclnnMul",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; common type storable in out",
        source: "ops-math math/mul/docs/aclnnMul&aclnnInplaceMul.md",
        plan: |call| pair(call, BinaryFunction::Mul),
    },
    Operator {
        name: "aclnnMuls",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-math math/muls/docs/aclnnMuls&aclnnInplaceMuls.md",
        plan: |call| with_scalar(call, BinaryFunction::Mul),
    },
    Operator {
        name: "aclnnDiv",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; integers divide as FLOAT",
        source: "CANN 8.1 aclnn API reference, aclnnDiv",
        plan: |call| pair(call, BinaryFunction::Div),
    },
    Operator {
        name: "aclnnDivs",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape of self; integers divide as FLOAT",
        source: "CANN 8.1 aclnn API reference, aclnnDivs",
        plan: |call| with_scalar(call, BinaryFunction::Div),
    },
    Operator {
        name: "aclnnMaximum",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; NaN propagates",
        source: "ops-math math/maximum/docs/aclnnMaximum.md",
        plan: |call| pair(call, BinaryFunction::Maximum),
    },
    Operator {
        name: "aclnnMinimum",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; NaN propagates",
        source: "CANN 8.1 aclnn API reference, aclnnMinimum",
        plan: |call| pair(call, BinaryFunction::Minimum),
    },
    Operator {
        name: "aclnnNeg",
        parameters: &[
            input(
                SELF,
                &[AclType::F32, AclType::F16, AclType::BF16, AclType::I8, AclType::I32, AclType::I64],
                0,
                8,
            ),
            output(
                OUT,
                &[AclType::F32, AclType::F16, AclType::BF16, AclType::I8, AclType::I32, AclType::I64],
                0,
                8,
            ),
        ],
        limits: "out has the shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnNeg",
        plan: neg,
    },
    unary!(whole "aclnnExp", EXPONENTS, "ops-math math/exp/docs/aclnnExp&aclnnInplaceExp.md (DOUBLE is not modelled)", math::exp),
    unary!(whole "aclnnLog", CONVERTED, "ops-math math/log/op_host/op_api/aclnn_log.cpp", |block| each(block, f32::ln)),
    unary!(whole "aclnnSqrt", CONVERTED, "ops-math math/sqrt/docs/aclnnSqrt&aclnnInplaceSqrt.md", |block| each(block, f32::sqrt)),
    unary!(whole "aclnnRsqrt", CONVERTED, "ops-math math/rsqrt/op_host/op_api/aclnn_rsqrt.cpp", |block| {
        each(block, |x: f32| 1.0 / x.sqrt());
    }),
    unary!(whole "aclnnReciprocal", CONVERTED, "ops-math math/reciprocal/docs/aclnnReciprocal&aclnnInplaceReciprocal.md", |block| {
        each(block, |x: f32| 1.0 / x);
    }),
    unary!(whole "aclnnTanh", CONVERTED, "ops-math math/tanh/op_host/op_api/aclnn_tanh.cpp", |block| each(block, f32::tanh)),
    unary!("aclnnSigmoid", "CANN 8.1 aclnn API reference, aclnnSigmoid", math::sigmoid),
    unary!("aclnnSilu", "CANN 8.1 aclnn API reference, aclnnSilu", math::silu),
    unary!("aclnnGelu", "CANN 8.1 aclnn API reference, aclnnGelu", math::gelu),
    Operator {
        name: "aclnnClamp",
        parameters: &[
            input(SELF, NUMBER, 0, 8),
            scalar(CLIP_VALUE_MIN).optional(),
            scalar(CLIP_VALUE_MAX).optional(),
            output(OUT, NUMBER, 0, 8),
        ],
        limits: "at least one bound; bounds storable in the type of self; NaN stays NaN",
        source: "ops-math conversion/clip_by_value_v2/docs/aclnnClamp.md",
        plan: |call| {
            clamp(call, call.scalar_if_given(CLIP_VALUE_MIN)?, call.scalar_if_given(CLIP_VALUE_MAX)?)
        },
    },
    Operator {
        name: "aclnnClampMin",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "the bound is storable in the type of self; NaN stays NaN",
        source: "ops-math conversion/clip_by_value_v2/docs/aclnnClampMin.md",
        plan: |call| clamp(call, Some(call.scalar(CLIP_VALUE_MIN)?), None),
    },
    Operator {
        name: "aclnnSwiGlu",
        parameters: &[input(X, FLOATING, 1, 8), output(OUT, FLOATING, 1, 8)],
        limits: "dim of even extent, halved in out; one element type",
        source: "ops-nn activation/swi_glu/docs/aclnnSwiGlu.md",
        plan: swiglu,
    },
    Operator {
        name: "aclnnSum",
        parameters: &[inputs(TENSORS, SUMMED, 0, 8), output(OUT, SUMMED, 0, 8)],
        limits: "at least one tensor; the tensors broadcast to out and have its type",
        source: "ops-math math/accumulate_nv2/docs/aclnnSum.md",
        plan: sum_of_tensors,
    },
    Operator {
        name: "aclnnScale",
        parameters: &[
            input(X, FLOATING, 1, 8),
            input(SCALE, FLOATING, 0, 8),
            input(BIAS, FLOATING, 0, 8).optional(),
            output(Y, FLOATING, 1, 8),
        ],
        limits: "y = x * scale + bias has the shape of x; scale has the dims of x from axis on: numAxes dims with \
                 scaleFromBlob (-1: all, 0: [1]), any number without; bias has the shape of scale; one element type",
        source: "ops-math math/scale/docs/aclnnScale.md",
        plan: scale,
    },
];

const SUMMED: &[AclType] = &[AclType::F32, AclType::F16, AclType::I8, AclType::I32, AclType::U8];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BinaryFunction {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
}

impl BinaryFunction {
    /// Computes in place in `a`; `alpha` scales `b` in sums.
    fn apply<L: Arithmetic>(self, a: &mut [L], b: &[L], alpha: L) {
        let one = L::from_i64(1);
        match self {
            Self::Add if alpha == one => zip(a, b, L::plus),
            Self::Add => zip(a, b, |x, y| x.plus(y.times(alpha))),
            Self::Sub if alpha == one => zip(a, b, L::minus),
            Self::Sub => zip(a, b, |x, y| x.minus(y.times(alpha))),
            Self::Mul => zip(a, b, L::times),
            Self::Div => zip(a, b, L::over),
            Self::Maximum => zip(a, b, |x, y| if x > y || x.is_nan() { x } else { y }),
            Self::Minimum => zip(a, b, |x, y| if x < y || x.is_nan() { x } else { y }),
        }
    }

    fn computed_in(self, common: AclType) -> AclType {
        if self == Self::Div && common.lane() == LaneKind::Integer { AclType::F32 } else { common }
    }
}

/// A scalar widens the tensor only to a higher category (boolean, integer, float).
pub(crate) fn with_scalar_type(tensor: AclType, scalar: AclType) -> AclType {
    match (tensor, scalar) {
        (tensor, scalar) if tensor.is_float() || scalar == AclType::Bool => tensor,
        (_, scalar) if scalar.is_float() => AclType::F32,
        (AclType::Bool, _) => AclType::I64,
        (tensor, _) => tensor,
    }
}

/// Rounds to `computed` if the output type is more precise.
pub(crate) fn settle<L: Lane>(block: &mut [L], computed: AclType, stored: AclType) {
    if computed != stored {
        each(block, |value| value.rounded(computed));
    }
}

/// Returns the factor of the second operand, 1 by default.
fn alpha(call: &OperatorCall, kind: BinaryFunction, computed: AclType) -> Result<Scalar, Refusal> {
    if !matches!(kind, BinaryFunction::Add | BinaryFunction::Sub) {
        return Ok(Scalar::Int(1, AclType::I64));
    }
    let alpha = call.scalar(ALPHA)?;
    // As in PyTorch, booleans accept any integer factor.
    let scales_truth =
        matches!(kind, BinaryFunction::Add) && computed == AclType::Bool && !alpha.dtype().is_float();
    if !scales_truth && !alpha.dtype().can_cast(computed) {
        let text = format!("a factor of type {} cannot scale operands of type {computed}", alpha.dtype());
        return Err(call.refuse(ALPHA, text));
    }
    Ok(alpha.stored_as(computed))
}

fn pair(call: &OperatorCall, kind: BinaryFunction) -> Result<CallPlan, Refusal> {
    let computed = kind.computed_in(call.promote(SELF, OTHER)?);
    let shape = call.broadcast(SELF, OTHER)?;
    call.expect_shape(OUT, &shape, "to which self and other broadcast")?;
    call.expect_cast(OUT, computed)?;
    let alpha = alpha(call, kind, computed)?;
    let (a, b, out) = (call.tensor(SELF)?.slot, call.tensor(OTHER)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        with_lane!(computed, L => map2::<L>(tiles, views.of(a), views.of(b), out, |x, y| {
            kind.apply(x, y, alpha.lane());
            settle(x, computed, out.dtype());
        }));
        Ok(())
    })
}

fn with_scalar(call: &OperatorCall, kind: BinaryFunction) -> Result<CallPlan, Refusal> {
    let (tensor, other) = (call.tensor(SELF)?, call.scalar(OTHER_SCALAR)?);
    let computed = kind.computed_in(with_scalar_type(tensor.dtype, other.dtype()));
    call.expect_shape(OUT, &tensor.dims, "of self")?;
    call.expect_cast(OUT, computed)?;
    let alpha = alpha(call, kind, computed)?;
    let (a, out) = (tensor.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        with_lane!(computed, L => {
            let operand = [other.lane::<L>(); BLOCK];
            map1::<L>(tiles, views.of(a), out, |x| {
                let len = x.len();
                kind.apply(x, &operand[..len], alpha.lane());
                settle(x, computed, out.dtype());
            });
        });
        Ok(())
    })
}

fn unary(call: &OperatorCall, function: fn(&mut [f32])) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    if !x.dtype.is_float() {
        call.expect_dtype(OUT, AclType::F32, "of integers")?;
    }
    let computed = if x.dtype.is_float() { x.dtype } else { AclType::F32 };
    let (slot, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        map1::<f32>(tiles, views.of(slot), out, |block| {
            function(block);
            settle(block, computed, out.dtype());
        });
        Ok(())
    })
}

fn neg(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_cast(OUT, x.dtype)?;
    let (slot, computed, out) = (x.slot, x.dtype, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        // Flips the sign of zero too.
        with_lane!(computed, L => map1::<L>(tiles, views.of(slot), views.of(out), |block| {
            each(block, |value| value.times(L::from_i64(-1)));
        }));
        Ok(())
    })
}

fn clamp(call: &OperatorCall, low: Option<Scalar>, high: Option<Scalar>) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    if low.is_none() && high.is_none() {
        return Err(call.refuse(CLIP_VALUE_MIN, "and clipValueMax are both NULL: pass at least one bound"));
    }
    for (name, bound) in [(CLIP_VALUE_MIN, low), (CLIP_VALUE_MAX, high)] {
        if let Some(bound) = bound
            && !bound.dtype().can_cast(x.dtype)
        {
            return Err(
                call.refuse(name, format!("a bound of type {} for a tensor of {}", bound.dtype(), x.dtype))
            );
        }
    }
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_cast(OUT, x.dtype)?;
    let (slot, computed, out) = (x.slot, x.dtype, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        with_lane!(computed, L => {
            let (low, high) = (low.map(Scalar::lane::<L>), high.map(Scalar::lane::<L>));
            map1::<L>(tiles, views.of(slot), views.of(out), |block| {
                if let Some(low) = low {
                    each(block, |value| if value < low || low.is_nan() { low } else { value });
                }
                if let Some(high) = high {
                    each(block, |value| if value > high || high.is_nan() { high } else { value });
                }
            });
        });
        Ok(())
    })
}

fn swiglu(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let dim = call.dim(DIM, x.rank())?;
    if !x.dims[dim].is_multiple_of(2) {
        return Err(call.refuse(X, format!("expected an even extent of dim {dim}, found {:?}", x.dims)));
    }
    let half = x.dims[dim] / 2;
    let mut expected = x.dims.clone();
    expected[dim] = half;
    call.expect_shape(OUT, &expected, "of x with dim halved")?;
    call.expect_dtype(OUT, x.dtype, "the type of x")?;
    let (slot, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let x = views.of(slot);
        map2::<f32>(
            tiles,
            &x.slice(dim, 0, half, 1),
            &x.slice(dim, half, half, 1),
            views.of(out),
            math::swiglu,
        );
        Ok(())
    })
}

fn sum_of_tensors(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (list, out) = (call.tensors(TENSORS)?, call.tensor(OUT)?);
    let mut shape = Vec::new();
    for (at, tensor) in list.iter().enumerate() {
        if tensor.dtype != out.dtype {
            return Err(
                call.refuse(TENSORS, format!("tensor {at}: expected {}, found {}", out.dtype, tensor.dtype))
            );
        }
        shape = broadcast(&shape, &tensor.dims).ok_or_else(|| {
            call.refuse(TENSORS, format!("tensor {at}: {:?} does not broadcast with {shape:?}", tensor.dims))
        })?;
    }
    if list.is_empty() {
        return Err(call.refuse(TENSORS, "expected at least one tensor"));
    }
    call.expect_shape(OUT, &shape, "to which the tensors broadcast")?;
    let (slots, dtype, out) =
        (list.iter().map(|tensor| tensor.slot).collect::<Vec<ViewIndex>>(), out.dtype, out.slot);
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        let terms: Vec<StridedView> =
            slots.iter().map(|slot| views.of(*slot).broadcast_to(out.dims()).collapsed()).collect();
        let (target, total) = (out.collapsed(), out.len());
        with_lane!(dtype, L => blocks(tiles, total, &|start, len| {
            let (mut sum, mut term) = ([L::default(); BLOCK], [L::default(); BLOCK]);
            L::load(&terms[0], start, &mut sum[..len]);
            for other in &terms[1..] {
                L::load(other, start, &mut term[..len]);
                zip(&mut sum[..len], &term[..len], L::plus);
            }
            L::store(&target, start, &sum[..len]);
        }));
        Ok(())
    })
}

fn scale(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, factor) = (call.tensor(X)?, call.tensor(SCALE)?);
    for name in [SCALE, Y] {
        call.expect_dtype(name, x.dtype, "the type of x")?;
    }
    call.expect_shape(Y, &x.dims, "of x")?;
    let (axis, count) = (call.dim(AXIS, x.rank())?, call.int(NUM_AXES)?);
    if count < -1 {
        return Err(call.refuse(NUM_AXES, format!("expected -1 or more, found {count}")));
    }
    let wanted = match (call.flag(SCALE_FROM_BLOB)?, usize::try_from(count)) {
        (false, _) => factor.rank(),
        (true, Ok(count)) => count,
        (true, Err(_)) => x.rank() - axis,
    };
    let Some(end) = axis.checked_add(wanted).filter(|end| *end <= x.rank()) else {
        return Err(call.refuse(AXIS, format!("{wanted} dims from dim {axis} on of x {:?}", x.dims)));
    };
    let shape = if wanted == 0 && count == 0 { &[1][..] } else { &x.dims[axis..end] };
    call.expect_shape(SCALE, shape, "of x from axis on")?;
    let bias = call.tensor_if_given(BIAS)?;
    if bias.is_some() {
        call.expect_shape(BIAS, shape, "of scale")?;
        call.expect_dtype(BIAS, x.dtype, "the type of scale")?;
    }
    // The scale repeats along the later dims.
    let behind = x.rank() - end.max(axis + shape.len());
    let (x, factor, bias, y) = (x.slot, factor.slot, bias.map(|bias| bias.slot), call.tensor(Y)?.slot);
    CallPlan::new(move |views, tiles| {
        let placed = |slot| (0..behind).fold(views.of(slot).clone(), |view, _| view.unsqueeze(view.rank()));
        let (x, factor, y) = (views.of(x), placed(factor), views.of(y));
        match bias {
            Some(bias) => map3::<f32>(tiles, [x, &factor, &placed(bias)], y, |x, factor, bias| {
                zip3(x, factor, bias, |x, factor, bias| x * factor + bias);
            }),
            None => map2::<f32>(tiles, x, &factor, y, |x, factor| zip(x, factor, f32::times)),
        }
        Ok(())
    })
}
