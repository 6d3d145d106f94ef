//! Rows of the elementwise arithmetic: sums, products, quotients, powers, activations, bounds.
//!
//! Results are computed in the common type of the operands, rounded to it, and then stored as the type of the output. A
//! scalar operand is used at its own precision, not rounded to the type of the tensor.

use super::call::{OperatorCall, Scalar};
use super::row::{Operator, attribute, in_place, input, output, scalar};
use super::sets::{ARITHMETIC, FLOATING, NUMBER};
use super::{Plan, Refusal};
use crate::nn::dtype::{DType, LaneKind};
use crate::nn::elementwise::{each, map1, map2, zip};
use crate::nn::lane::{Arithmetic, Lane, with_lane};
use crate::nn::math;

/// A row of an elementwise operator of one floating point tensor.
macro_rules! unary {
    ($name:literal, $source:literal, $function:expr) => {
        Operator {
            name: $name,
            parameters: &[input("self", FLOATING, 0, 8), output("out", FLOATING, 0, 8)],
            limits: "out has the shape of self",
            source: $source,
            plan: |call| unary(call, $function),
        }
    };
}

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAdd",
        parameters: &[
            input("self", ARITHMETIC, 0, 8),
            input("other", ARITHMETIC, 0, 8),
            scalar("alpha"),
            output("out", ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; common type storable in out",
        source: "ops-math math/add/docs/aclnnAdd&aclnnInplaceAdd.md",
        plan: |call| pair(call, "self", "out", Binary::Add),
    },
    Operator {
        name: "aclnnInplaceAdd",
        parameters: &[in_place("selfRef", ARITHMETIC, 0, 8), input("other", ARITHMETIC, 0, 8), scalar("alpha")],
        limits: "other broadcasts to selfRef; common type storable in selfRef",
        source: "ops-math math/add/docs/aclnnAdd&aclnnInplaceAdd.md",
        plan: |call| pair(call, "selfRef", "selfRef", Binary::Add),
    },
    Operator {
        name: "aclnnAdds",
        parameters: &[
            input("self", ARITHMETIC, 0, 8),
            scalar("other"),
            scalar("alpha"),
            output("out", ARITHMETIC, 0, 8),
        ],
        limits: "out has the shape of self",
        source: "ops-math math/add/docs/aclnnAdds.md",
        plan: |call| with_scalar(call, "self", "out", Binary::Add),
    },
    Operator {
        name: "aclnnInplaceAdds",
        parameters: &[in_place("selfRef", ARITHMETIC, 0, 8), scalar("other"), scalar("alpha")],
        limits: "common type storable in selfRef",
        source: "ops-math math/add/docs/aclnnInplaceAdds.md",
        plan: |call| with_scalar(call, "selfRef", "selfRef", Binary::Add),
    },
    Operator {
        name: "aclnnSub",
        parameters: &[
            input("self", NUMBER, 0, 8),
            input("other", NUMBER, 0, 8),
            scalar("alpha"),
            output("out", NUMBER, 0, 8),
        ],
        limits: "self and other broadcast to out; common type storable in out",
        source: "ops-math math/sub/docs/aclnnSub&aclnnInplaceSub.md",
        plan: |call| pair(call, "self", "out", Binary::Sub),
    },
    Operator {
        name: "aclnnInplaceSub",
        parameters: &[in_place("selfRef", NUMBER, 0, 8), input("other", NUMBER, 0, 8), scalar("alpha")],
        limits: "other broadcasts to selfRef; common type storable in selfRef",
        source: "ops-math math/sub/docs/aclnnSub&aclnnInplaceSub.md",
        plan: |call| pair(call, "selfRef", "selfRef", Binary::Sub),
    },
    Operator {
        name: "aclnnSubs",
        parameters: &[input("self", NUMBER, 0, 8), scalar("other"), scalar("alpha"), output("out", NUMBER, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-math math/sub/docs/aclnnSubs&aclnnInplaceSubs.md (BOOL is not modelled)",
        plan: |call| with_scalar(call, "self", "out", Binary::Sub),
    },
    Operator {
        name: "aclnnInplaceSubs",
        parameters: &[in_place("selfRef", NUMBER, 0, 8), scalar("other"), scalar("alpha")],
        limits: "common type storable in selfRef",
        source: "ops-math math/sub/docs/aclnnSubs&aclnnInplaceSubs.md (BOOL is not modelled)",
        plan: |call| with_scalar(call, "selfRef", "selfRef", Binary::Sub),
    },
    Operator {
        name: "aclnnMul",
        parameters: &[
            input("self", ARITHMETIC, 0, 8),
            input("other", ARITHMETIC, 0, 8),
            output("out", ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; common type storable in out",
        source: "ops-math math/mul/docs/aclnnMul&aclnnInplaceMul.md",
        plan: |call| pair(call, "self", "out", Binary::Mul),
    },
    Operator {
        name: "aclnnInplaceMul",
        parameters: &[in_place("selfRef", ARITHMETIC, 0, 8), input("other", ARITHMETIC, 0, 8)],
        limits: "other broadcasts to selfRef; common type storable in selfRef",
        source: "ops-math math/mul/docs/aclnnMul&aclnnInplaceMul.md",
        plan: |call| pair(call, "selfRef", "selfRef", Binary::Mul),
    },
    Operator {
        name: "aclnnMuls",
        parameters: &[input("self", ARITHMETIC, 0, 8), scalar("other"), output("out", ARITHMETIC, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-math math/muls/docs/aclnnMuls&aclnnInplaceMuls.md",
        plan: |call| with_scalar(call, "self", "out", Binary::Mul),
    },
    Operator {
        name: "aclnnInplaceMuls",
        parameters: &[in_place("selfRef", ARITHMETIC, 0, 8), scalar("other")],
        limits: "common type storable in selfRef",
        source: "ops-math math/muls/docs/aclnnMuls&aclnnInplaceMuls.md",
        plan: |call| with_scalar(call, "selfRef", "selfRef", Binary::Mul),
    },
    Operator {
        name: "aclnnDiv",
        parameters: &[
            input("self", ARITHMETIC, 0, 8),
            input("other", ARITHMETIC, 0, 8),
            output("out", ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; integers divide as FLOAT",
        source: "CANN 8.1 aclnn API reference, aclnnDiv",
        plan: |call| pair(call, "self", "out", Binary::Div),
    },
    Operator {
        name: "aclnnDivs",
        parameters: &[input("self", ARITHMETIC, 0, 8), scalar("other"), output("out", ARITHMETIC, 0, 8)],
        limits: "out has the shape of self; integers divide as FLOAT",
        source: "CANN 8.1 aclnn API reference, aclnnDivs",
        plan: |call| with_scalar(call, "self", "out", Binary::Div),
    },
    Operator {
        name: "aclnnInplaceDiv",
        parameters: &[in_place("selfRef", ARITHMETIC, 0, 8), input("other", ARITHMETIC, 0, 8)],
        limits: "other broadcasts to selfRef; integers divide as FLOAT, which selfRef must hold",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceDiv",
        plan: |call| pair(call, "selfRef", "selfRef", Binary::Div),
    },
    Operator {
        name: "aclnnInplaceDivs",
        parameters: &[in_place("selfRef", ARITHMETIC, 0, 8), scalar("other")],
        limits: "integers divide as FLOAT, which selfRef must hold",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceDivs",
        plan: |call| with_scalar(call, "selfRef", "selfRef", Binary::Div),
    },
    Operator {
        name: "aclnnMaximum",
        parameters: &[input("self", NUMBER, 0, 8), input("other", NUMBER, 0, 8), output("out", NUMBER, 0, 8)],
        limits: "self and other broadcast to out; NaN wins",
        source: "ops-math math/maximum/docs/aclnnMaximum.md (BOOL is not modelled)",
        plan: |call| pair(call, "self", "out", Binary::Maximum),
    },
    Operator {
        name: "aclnnMinimum",
        parameters: &[input("self", NUMBER, 0, 8), input("other", NUMBER, 0, 8), output("out", NUMBER, 0, 8)],
        limits: "self and other broadcast to out; NaN wins",
        source: "CANN 8.1 aclnn API reference, aclnnMinimum",
        plan: |call| pair(call, "self", "out", Binary::Minimum),
    },
    Operator {
        name: "aclnnNeg",
        parameters: &[
            input("self", &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::I32, DType::I64], 0, 8),
            output("out", &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::I32, DType::I64], 0, 8),
        ],
        limits: "out has the shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnNeg",
        plan: neg,
    },
    unary!(
        "aclnnExp",
        "ops-math math/exp/docs/aclnnExp&aclnnInplaceExp.md (DOUBLE, INT64, BOOL are not modelled)",
        math::exp
    ),
    unary!("aclnnLog", "CANN 8.1 aclnn API reference, aclnnLog", |block| each(block, f32::ln)),
    unary!("aclnnSqrt", "CANN 8.1 aclnn API reference, aclnnSqrt", |block| each(block, f32::sqrt)),
    unary!("aclnnRsqrt", "CANN 8.1 aclnn API reference, aclnnRsqrt", |block| each(block, |x: f32| 1.0 / x.sqrt())),
    unary!("aclnnReciprocal", "CANN 8.1 aclnn API reference, aclnnReciprocal", |block| each(block, |x: f32| 1.0 / x)),
    unary!("aclnnTanh", "CANN 8.1 aclnn API reference, aclnnTanh", |block| each(block, f32::tanh)),
    unary!("aclnnSigmoid", "CANN 8.1 aclnn API reference, aclnnSigmoid", math::sigmoid),
    unary!("aclnnSilu", "CANN 8.1 aclnn API reference, aclnnSilu", math::silu),
    unary!("aclnnGelu", "CANN 8.1 aclnn API reference, aclnnGelu", math::gelu),
    Operator {
        name: "aclnnPowTensorScalar",
        parameters: &[input("self", FLOATING, 0, 8), scalar("exponent"), output("out", FLOATING, 0, 8)],
        limits: "out has the shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnPowTensorScalar",
        plan: power,
    },
    Operator {
        name: "aclnnClamp",
        parameters: &[
            input("self", NUMBER, 0, 8),
            scalar("clipValueMin").optional(),
            scalar("clipValueMax").optional(),
            output("out", NUMBER, 0, 8),
        ],
        limits: "one bound at least; bounds storable in the type of self; NaN stays NaN",
        source: "ops-math conversion/clip_by_value_v2/docs/aclnnClamp.md",
        plan: |call| clamp(call, call.scalar_if_given("clipValueMin")?, call.scalar_if_given("clipValueMax")?),
    },
    Operator {
        name: "aclnnClampMin",
        parameters: &[input("self", NUMBER, 0, 8), scalar("clipValueMin"), output("out", NUMBER, 0, 8)],
        limits: "the bound is storable in the type of self; NaN stays NaN",
        source: "ops-math conversion/clip_by_value_v2/docs/aclnnClampMin.md",
        plan: |call| clamp(call, Some(call.scalar("clipValueMin")?), None),
    },
    Operator {
        name: "aclnnSwiGlu",
        parameters: &[
            input("x", FLOATING, 1, 8).contiguous(),
            attribute("dim"),
            output("out", FLOATING, 1, 8).contiguous(),
        ],
        limits: "dim of even extent, halved in out; one element type",
        source: "ops-nn activation/swi_glu/docs/aclnnSwiGlu.md",
        plan: swiglu,
    },
];

/// An elementwise function of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
}

impl Binary {
    /// Rewrites `a` with the result for each pair; `alpha` scales `b` in sums.
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

    /// The type a result is computed in, given that of the operands.
    fn computed_in(self, common: DType) -> DType {
        if self == Self::Div && common.lane() == LaneKind::Integer { DType::F32 } else { common }
    }
}

/// The type a tensor and a scalar compute in: a scalar widens the tensor only to a higher category (truth value, integer,
/// floating point).
pub(super) fn with_scalar_type(tensor: DType, scalar: DType) -> DType {
    match (tensor, scalar) {
        (tensor, scalar) if tensor.is_float() || scalar == DType::Bool => tensor,
        (_, scalar) if scalar.is_float() => DType::F32,
        (DType::Bool, _) => DType::I64,
        (tensor, _) => tensor,
    }
}

/// Rounds a block to `computed` where the output would keep more digits.
pub(super) fn settle<L: Lane>(block: &mut [L], computed: DType, stored: DType) {
    if computed != stored {
        each(block, |value| value.rounded(computed));
    }
}

/// The factor of the second operand; 1 where the operator has none.
fn alpha(call: &OperatorCall<'_>, kind: Binary, computed: DType) -> Result<Scalar, Refusal> {
    if !matches!(kind, Binary::Add | Binary::Sub) {
        return Ok(Scalar::Int(1, DType::I64));
    }
    let alpha = call.scalar("alpha")?;
    if !alpha.dtype().can_cast(computed) {
        let text = format!("a factor of type {} cannot scale operands of type {computed}", alpha.dtype());
        return Err(call.refuse("alpha", text));
    }
    Ok(alpha)
}

fn pair(call: &OperatorCall<'_>, first: &str, target: &str, kind: Binary) -> Result<Plan, Refusal> {
    let computed = kind.computed_in(call.promote(first, "other")?);
    let shape = call.broadcast(first, "other")?;
    call.expect_shape(target, &shape, &format!("to which {first} and other broadcast"))?;
    call.expect_cast(target, computed)?;
    let alpha = alpha(call, kind, computed)?;
    let (a, b, out) = (call.tensor(first)?.slot, call.tensor("other")?.slot, call.tensor(target)?.slot);
    Plan::new(move |views, tiles| {
        let out = views.of(out);
        with_lane!(computed, L => map2::<L>(tiles, views.of(a), views.of(b), out, |x, y| {
            kind.apply(x, y, alpha.lane());
            settle(x, computed, out.dtype());
        }));
        Ok(())
    })
}

fn with_scalar(call: &OperatorCall<'_>, first: &str, target: &str, kind: Binary) -> Result<Plan, Refusal> {
    let (tensor, other) = (call.tensor(first)?, call.scalar("other")?);
    let computed = kind.computed_in(with_scalar_type(tensor.dtype, other.dtype()));
    call.expect_shape(target, &tensor.dims, &format!("of {first}"))?;
    call.expect_cast(target, computed)?;
    let alpha = alpha(call, kind, computed)?;
    let (a, out) = (tensor.slot, call.tensor(target)?.slot);
    Plan::new(move |views, tiles| {
        let out = views.of(out);
        with_lane!(computed, L => {
            let operand = [other.lane::<L>(); crate::nn::lane::BLOCK];
            map1::<L>(tiles, views.of(a), out, |x| {
                let len = x.len();
                kind.apply(x, &operand[..len], alpha.lane());
                settle(x, computed, out.dtype());
            });
        });
        Ok(())
    })
}

/// A function of each f32 value of a block, on tensors of floating point types.
fn unary(call: &OperatorCall<'_>, function: fn(&mut [f32])) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    call.expect_shape("out", &x.dims, "of self")?;
    let (slot, computed, out) = (x.slot, x.dtype, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        let out = views.of(out);
        map1::<f32>(tiles, views.of(slot), out, |block| {
            function(block);
            settle(block, computed, out.dtype());
        });
        Ok(())
    })
}

fn neg(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    call.expect_shape("out", &x.dims, "of self")?;
    call.expect_cast("out", x.dtype)?;
    let (slot, computed, out) = (x.slot, x.dtype, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        // Times minus one, so that the sign of zero flips as negation does.
        with_lane!(computed, L => map1::<L>(tiles, views.of(slot), views.of(out), |block| {
            each(block, |value| value.times(L::from_i64(-1)));
        }));
        Ok(())
    })
}

fn power(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    call.expect_shape("out", &x.dims, "of self")?;
    let exponent = call.scalar("exponent")?.lane::<f32>();
    let (slot, computed, out) = (x.slot, x.dtype, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        let out = views.of(out);
        map1::<f32>(tiles, views.of(slot), out, |block| {
            each(block, |value| value.powf(exponent));
            settle(block, computed, out.dtype());
        });
        Ok(())
    })
}

fn clamp(call: &OperatorCall<'_>, low: Option<Scalar>, high: Option<Scalar>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    if low.is_none() && high.is_none() {
        return Err(call.refuse("clipValueMin", "and clipValueMax are both NULL: give one bound at least"));
    }
    for (name, bound) in [("clipValueMin", low), ("clipValueMax", high)] {
        if let Some(bound) = bound
            && !bound.dtype().can_cast(x.dtype)
        {
            return Err(call.refuse(name, format!("a bound of type {} for a tensor of {}", bound.dtype(), x.dtype)));
        }
    }
    call.expect_shape("out", &x.dims, "of self")?;
    call.expect_cast("out", x.dtype)?;
    let (slot, computed, out) = (x.slot, x.dtype, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        with_lane!(computed, L => {
            let (low, high) = (low.map(Scalar::lane::<L>), high.map(Scalar::lane::<L>));
            map1::<L>(tiles, views.of(slot), views.of(out), |block| {
                if let Some(low) = low {
                    each(block, |value| if value < low { low } else { value });
                }
                if let Some(high) = high {
                    each(block, |value| if value > high { high } else { value });
                }
            });
        });
        Ok(())
    })
}

fn swiglu(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("x")?;
    let dim = call.dim("dim", x.rank())?;
    if !x.dims[dim].is_multiple_of(2) {
        return Err(call.refuse("x", format!("expected an even extent of dim {dim}, found {:?}", x.dims)));
    }
    let half = x.dims[dim] / 2;
    let mut expected = x.dims.clone();
    expected[dim] = half;
    call.expect_shape("out", &expected, "of x with dim halved")?;
    call.expect_dtype("out", x.dtype, "that of x")?;
    let (slot, out) = (x.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        let x = views.of(slot);
        map2::<f32>(tiles, &x.slice(dim, 0, half, 1), &x.slice(dim, half, half, 1), views.of(out), math::swiglu);
        Ok(())
    })
}
