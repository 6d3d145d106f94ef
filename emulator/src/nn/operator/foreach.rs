//! Rows of the functions of lists of tensors: what a row of `pointwise` does to tensors, done to each of a list.
//!
//! The tensors of one place have one shape and one element type in all lists. A factor is a scalar for all of a list, a scalar or
//! an element of a tensor for each, or one element of a tensor for all, which is read when the operator runs.

use std::sync::atomic::{AtomicBool, Ordering};

use super::argument::{Scalar, Tensor};
use super::call::OperatorCall;
use super::names::{
    ALPHA, ALPHA_TENSOR, FOUND_INF, INV_SCALE, Name, OUT_LIST, SCALAR, SCALAR_TENSOR, SCALARS, SCALARS_LIST,
    SCALED_GRADS, WEIGHT_LIST, WEIGHT_SCALAR, X_LIST, X1_LIST, X2_LIST, X3_LIST,
};
use super::pointwise::{
    ADD_CDIV, ADD_CMUL, DIVIDE, ERF, ERFC, Function, LERP, MAXIMUM, MINIMUM, POWER, numbers, reals,
};
use super::pointwise::{MINUS, PLUS, SCALED_MINUS, SCALED_PLUS, TIMES, of_scalar_first, sign, with_scalar};
use super::row::{Operator, Parameter, in_place, in_places, input, inputs, outputs, scalar, scalars};
use super::sets::{ARITHMETIC, FLOATING, NUMBER, REAL, SINGLE};
use super::{Plan, Refusal, ViewIndex};
use crate::nn::dtype::DType;
use crate::nn::elementwise;
use crate::nn::lane::Lane;
use crate::nn::math;
use crate::nn::reduce;

/// Where the factor of a row comes from.
#[derive(Clone, Copy)]
enum Factor {
    /// There is none.
    None,
    /// A scalar for all.
    One(Name<Scalar>),
    /// A scalar for each.
    Each(Name<[Scalar]>),
    /// A tensor of one element for all, or of one for each.
    Device(Name<Tensor>),
}

/// A row: its lists with their types, its factor, and the function.
macro_rules! foreach {
    ($name:literal, [$($list:ident),+]: $types:ident $(; $factor:ident($of:ident) as $parameter:expr)?, $function:expr) => {
        Operator {
            name: $name,
            parameters: &[
                $(inputs($list, $types, 0, 8),)+
                $($parameter,)?
                outputs(OUT_LIST, $types, 0, 8),
            ],
            limits: "lists of one length; the tensors of one place have one shape and one element type",
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| foreach(call, [$($list),+], factor!($($factor($of))?), $function),
        }
    };
}

/// The factor of a row, if it has one.
macro_rules! factor {
    () => {
        Factor::None
    };
    ($factor:ident($of:ident)) => {
        Factor::$factor($of)
    };
}

/// A scalar for all tensors.
const ONE: Parameter = scalar(SCALAR);
/// A tensor of one element for all tensors.
const ONE_ON_DEVICE: Parameter = input(SCALAR_TENSOR, NUMBER, 0, 1);
/// A scalar for each tensor.
const EACH: Parameter = scalars(SCALARS_LIST);

pub(super) const OPERATORS: &[Operator] = &[
    foreach!("aclnnForeachAbs", [X_LIST]: NUMBER, numbers!(|[x], _| x.abs(), |[x], _| x.wrapping_abs())),
    foreach!("aclnnForeachNeg", [X_LIST]: NUMBER, numbers!(|[x], _| -x, |[x], _| x.wrapping_neg())),
    foreach!("aclnnForeachSign", [X_LIST]: NUMBER, numbers!(|[x], _| sign!(x), |[x], _| x.signum())),
    foreach!("aclnnForeachSqrt", [X_LIST]: REAL, reals!(|[x], _| x.sqrt())),
    foreach!("aclnnForeachReciprocal", [X_LIST]: REAL, reals!(|[x], _| 1.0 / x)),
    foreach!("aclnnForeachExp", [X_LIST]: REAL, reals!(|[x], _| x.exp())),
    foreach!("aclnnForeachExpm1", [X_LIST]: REAL, reals!(|[x], _| x.exp_m1())),
    foreach!("aclnnForeachLog", [X_LIST]: REAL, reals!(|[x], _| x.ln())),
    foreach!("aclnnForeachLog2", [X_LIST]: REAL, reals!(|[x], _| x.log2())),
    foreach!("aclnnForeachLog10", [X_LIST]: REAL, reals!(|[x], _| x.log10())),
    foreach!("aclnnForeachLog1p", [X_LIST]: REAL, reals!(|[x], _| x.ln_1p())),
    foreach!("aclnnForeachSigmoid", [X_LIST]: REAL, reals!(|[x], _| 1.0 / (1.0 + (-x).exp()))),
    foreach!("aclnnForeachErf", [X_LIST]: REAL, ERF),
    foreach!("aclnnForeachErfc", [X_LIST]: REAL, ERFC),
    foreach!("aclnnForeachSin", [X_LIST]: REAL, reals!(|[x], _| x.sin())),
    foreach!("aclnnForeachCos", [X_LIST]: REAL, reals!(|[x], _| x.cos())),
    foreach!("aclnnForeachTan", [X_LIST]: REAL, reals!(|[x], _| x.tan())),
    foreach!("aclnnForeachAsin", [X_LIST]: REAL, reals!(|[x], _| x.asin())),
    foreach!("aclnnForeachAcos", [X_LIST]: REAL, reals!(|[x], _| x.acos())),
    foreach!("aclnnForeachAtan", [X_LIST]: REAL, reals!(|[x], _| x.atan())),
    foreach!("aclnnForeachSinh", [X_LIST]: REAL, reals!(|[x], _| x.sinh())),
    foreach!("aclnnForeachCosh", [X_LIST]: REAL, reals!(|[x], _| x.cosh())),
    foreach!("aclnnForeachTanh", [X_LIST]: REAL, reals!(|[x], _| x.tanh())),
    foreach!("aclnnForeachMulList", [X1_LIST, X2_LIST]: NUMBER, TIMES),
    foreach!("aclnnForeachDivList", [X1_LIST, X2_LIST]: REAL, DIVIDE),
    foreach!("aclnnForeachMaximumList", [X1_LIST, X2_LIST]: NUMBER, MAXIMUM),
    foreach!("aclnnForeachMinimumList", [X1_LIST, X2_LIST]: NUMBER, MINIMUM),
    foreach!("aclnnForeachPowList", [X1_LIST, X2_LIST]: NUMBER, POWER),
    foreach!("aclnnForeachAddListV2", [X1_LIST, X2_LIST]: NUMBER; One(ALPHA) as scalar(ALPHA), SCALED_PLUS),
    foreach!("aclnnForeachSubListV2", [X1_LIST, X2_LIST]: NUMBER; One(ALPHA) as scalar(ALPHA), SCALED_MINUS),
    foreach!("aclnnForeachAddScalarV2", [X_LIST]: NUMBER; One(SCALAR) as ONE, with_scalar!(PLUS)),
    foreach!("aclnnForeachSubScalarV2", [X_LIST]: NUMBER; One(SCALAR) as ONE, with_scalar!(MINUS)),
    foreach!("aclnnForeachMulScalarV2", [X_LIST]: NUMBER; One(SCALAR) as ONE, with_scalar!(TIMES)),
    foreach!("aclnnForeachDivScalarV2", [X_LIST]: REAL; One(SCALAR) as ONE, with_scalar!(DIVIDE)),
    foreach!("aclnnForeachMaximumScalarV2", [X_LIST]: NUMBER; One(SCALAR) as ONE, with_scalar!(MAXIMUM)),
    foreach!("aclnnForeachMinimumScalarV2", [X_LIST]: NUMBER; One(SCALAR) as ONE, with_scalar!(MINIMUM)),
    foreach!("aclnnForeachPowScalarV2", [X_LIST]: NUMBER; One(SCALAR) as ONE, with_scalar!(POWER)),
    foreach!("aclnnForeachAddScalarList", [X_LIST]: NUMBER; Each(SCALARS_LIST) as EACH, with_scalar!(PLUS)),
    foreach!("aclnnForeachSubScalarList", [X_LIST]: NUMBER; Each(SCALARS_LIST) as EACH, with_scalar!(MINUS)),
    foreach!("aclnnForeachMulScalarList", [X_LIST]: NUMBER; Each(SCALARS_LIST) as EACH, with_scalar!(TIMES)),
    foreach!("aclnnForeachDivScalarList", [X_LIST]: REAL; Each(SCALARS_LIST) as EACH, with_scalar!(DIVIDE)),
    foreach!("aclnnForeachMaximumScalarList", [X_LIST]: NUMBER; Each(SCALARS_LIST) as EACH, with_scalar!(MAXIMUM)),
    foreach!("aclnnForeachMinimumScalarList", [X_LIST]: NUMBER; Each(SCALARS_LIST) as EACH, with_scalar!(MINIMUM)),
    foreach!("aclnnForeachPowScalarList", [X_LIST]: NUMBER; Each(SCALARS_LIST) as EACH, with_scalar!(POWER)),
    foreach!("aclnnForeachAddcmulScalarV2", [X1_LIST, X2_LIST, X3_LIST]: NUMBER; One(SCALAR) as ONE, ADD_CMUL),
    foreach!("aclnnForeachAddcdivScalarV2", [X1_LIST, X2_LIST, X3_LIST]: REAL; One(SCALAR) as ONE, ADD_CDIV),
    foreach!(
        "aclnnForeachAddcmulScalarList",
        [X1_LIST, X2_LIST, X3_LIST]: NUMBER;
        Device(SCALARS) as input(SCALARS, ARITHMETIC, 1, 1),
        ADD_CMUL
    ),
    foreach!(
        "aclnnForeachAddcdivScalarList",
        [X1_LIST, X2_LIST, X3_LIST]: REAL;
        Device(SCALARS) as input(SCALARS, ARITHMETIC, 1, 1),
        ADD_CDIV
    ),
    foreach!(
        "aclnnForeachAddcmulList",
        [X1_LIST, X2_LIST, X3_LIST]: NUMBER;
        Device(SCALARS) as input(SCALARS, ARITHMETIC, 1, 1),
        ADD_CMUL
    ),
    foreach!(
        "aclnnForeachAddcdivList",
        [X1_LIST, X2_LIST, X3_LIST]: REAL;
        Device(SCALARS) as input(SCALARS, ARITHMETIC, 1, 1),
        ADD_CDIV
    ),
    foreach!("aclnnForeachAddScalar", [X_LIST]: NUMBER; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(PLUS)),
    foreach!("aclnnForeachSubScalar", [X_LIST]: NUMBER; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(MINUS)),
    foreach!("aclnnForeachMulScalar", [X_LIST]: NUMBER; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(TIMES)),
    foreach!("aclnnForeachDivScalar", [X_LIST]: REAL; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(DIVIDE)),
    foreach!("aclnnForeachMaximumScalar", [X_LIST]: NUMBER; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(MAXIMUM)),
    foreach!("aclnnForeachMinimumScalar", [X_LIST]: NUMBER; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(MINIMUM)),
    foreach!("aclnnForeachPowScalar", [X_LIST]: NUMBER; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(POWER)),
    foreach!("aclnnForeachAddcmulScalar", [X1_LIST, X2_LIST, X3_LIST]: NUMBER; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, ADD_CMUL),
    foreach!("aclnnForeachAddcdivScalar", [X1_LIST, X2_LIST, X3_LIST]: REAL; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, ADD_CDIV),
    foreach!("aclnnForeachAddList", [X1_LIST, X2_LIST]: NUMBER; Device(ALPHA_TENSOR) as input(ALPHA_TENSOR, NUMBER, 0, 1), SCALED_PLUS),
    foreach!("aclnnForeachSubList", [X1_LIST, X2_LIST]: NUMBER; Device(ALPHA_TENSOR) as input(ALPHA_TENSOR, NUMBER, 0, 1), SCALED_MINUS),
    foreach!("aclnnForeachLerpScalar", [X1_LIST, X2_LIST]: FLOATING; One(WEIGHT_SCALAR) as scalar(WEIGHT_SCALAR), reals!(
        |[x, y], p| x + p[0] * (y - x)
    )),
    foreach!("aclnnForeachLerpList", [X1_LIST, X2_LIST, WEIGHT_LIST]: FLOATING, LERP),
    Operator {
        name: "aclnnForeachPowScalarAndTensor",
        parameters: &[ONE, inputs(X_LIST, NUMBER, 0, 8), outputs(OUT_LIST, NUMBER, 0, 8)],
        limits: "lists of one length; the tensors of one place have one shape and one element type",
        source: "CANN 8.1 aclnn API reference, aclnnForeachPowScalarAndTensor",
        plan: |call| foreach(call, [X_LIST], Factor::One(SCALAR), of_scalar_first!(POWER)),
    },
    Operator {
        name: "aclnnForeachCopy",
        parameters: &[inputs(X_LIST, ARITHMETIC, 0, 8), outputs(OUT_LIST, ARITHMETIC, 0, 8)],
        limits: "lists of one length; the tensors of one place have one shape; converted to the types of out",
        source: "CANN 8.1 aclnn API reference, aclnnForeachCopy",
        plan: copy,
    },
    Operator {
        name: "aclnnForeachZeroInplace",
        parameters: &[in_places(X_LIST, ARITHMETIC, 0, 8)],
        limits: "",
        source: "CANN 8.1 aclnn API reference, aclnnForeachZeroInplace",
        plan: zero,
    },
    Operator {
        name: "aclnnForeachNonFiniteCheckAndUnscale",
        parameters: &[
            in_places(SCALED_GRADS, FLOATING, 0, 8),
            in_place(FOUND_INF, SINGLE, 0, 1),
            input(INV_SCALE, SINGLE, 0, 1),
        ],
        limits: "foundInf and invScale have one element; one element type; foundInf becomes 1 where a gradient is not finite",
        source: "ops-nn foreach/foreach_non_finite_check_and_unscale/docs/aclnnForeachNonFiniteCheckAndUnscale.md",
        plan: unscale,
    },
    Operator {
        name: "aclnnForeachNorm",
        parameters: &[inputs(X_LIST, FLOATING, 0, 8), ONE, outputs(OUT_LIST, FLOATING, 0, 1)],
        limits: "lists of one length; each of out has one element; scalar is 1 or 2, as the card has them",
        source: "CANN 8.1 aclnn API reference, aclnnForeachNorm",
        plan: norm,
    },
];

/// Refuses lists of which one has another length than the output, and tensors that differ from those of their place; `alike` says
/// whether in their element types too.
fn expect_alike(call: &OperatorCall, lists: &[Name<[Tensor]>], alike: bool) -> Result<(), Refusal> {
    let out = call.tensors(OUT_LIST)?;
    for &name in lists {
        let list = call.tensors(name)?;
        if list.len() != out.len() {
            return Err(call.refuse(name, format!("expected {} tensors as in out, found {}", out.len(), list.len())));
        }
        for (i, (tensor, out)) in list.iter().zip(out).enumerate() {
            if tensor.dims != out.dims || (alike && tensor.dtype != out.dtype) {
                let text = format!(
                    "tensor {i} is {} {:?}, that of out is {} {:?}: they must be alike",
                    tensor.dtype, tensor.dims, out.dtype, out.dims
                );
                return Err(call.refuse(name, text));
            }
        }
    }
    Ok(())
}

/// Views of a list.
fn slots(call: &OperatorCall, name: Name<[Tensor]>) -> Result<Vec<ViewIndex>, Refusal> {
    Ok(call.tensors(name)?.iter().map(|tensor| tensor.slot).collect())
}

/// The plan of a function of each element of each tensor.
fn foreach<const N: usize>(
    call: &OperatorCall,
    names: [Name<[Tensor]>; N],
    factor: Factor,
    function: Function<N>,
) -> Result<Plan, Refusal> {
    expect_alike(call, &names, true)?;
    let out = call.tensors(OUT_LIST)?;
    let count = out.len();
    let types: Vec<DType> = out.iter().map(|tensor| function.computed_in(tensor.dtype)).collect();
    let (host, device): (Vec<Scalar>, Option<ViewIndex>) = match factor {
        Factor::None => (Vec::new(), None),
        Factor::One(name) => (vec![call.scalar(name)?; count], None),
        Factor::Each(name) => (call.scalars(name)?.to_vec(), None),
        Factor::Device(name) => {
            let tensor = call.tensor(name)?;
            if tensor.len() != 1 && tensor.len() != count {
                return Err(call.refuse(name, format!("expected 1 or {count} elements, found {:?}", tensor.dims)));
            }
            (Vec::new(), Some(tensor.slot))
        }
    };
    if let Factor::Each(name) = factor
        && host.len() != count
    {
        return Err(call.refuse(name, format!("expected {count} scalars, one a tensor, found {}", host.len())));
    }
    let out = slots(call, OUT_LIST)?;
    let mut places = vec![[ViewIndex(0); N]; count];
    for (operand, name) in names.into_iter().enumerate() {
        for (place, slot) in places.iter_mut().zip(slots(call, name)?) {
            place[operand] = slot;
        }
    }
    Plan::new(move |views, tiles| {
        let mut read = vec![0f64; device.map_or(0, |slot| views.of(slot).len())];
        if let Some(slot) = device {
            f64::load(&views.of(slot).collapsed(), 0, &mut read);
        }
        for (i, (place, &target)) in places.iter().zip(&out).enumerate() {
            let factor = read.get(i).or(read.first()).map(|&value| Scalar::Float(value, DType::F64));
            let factor: Vec<Scalar> = factor.or(host.get(i).copied()).into_iter().collect();
            function.run(tiles, place.map(|slot| views.of(slot)), &factor, types[i], views.of(target));
        }
        Ok(())
    })
}

fn copy(call: &OperatorCall) -> Result<Plan, Refusal> {
    expect_alike(call, &[X_LIST], false)?;
    let (from, to) = (slots(call, X_LIST)?, slots(call, OUT_LIST)?);
    Plan::new(move |views, tiles| {
        from.iter().zip(&to).for_each(|(&from, &to)| elementwise::copy(tiles, views.of(from), views.of(to)));
        Ok(())
    })
}

fn zero(call: &OperatorCall) -> Result<Plan, Refusal> {
    let targets = slots(call, X_LIST)?;
    Plan::new(move |views, tiles| {
        targets.iter().for_each(|&slot| elementwise::fill(tiles, views.of(slot), 0i64));
        Ok(())
    })
}

fn unscale(call: &OperatorCall) -> Result<Plan, Refusal> {
    let grads = call.tensors(SCALED_GRADS)?;
    for name in [FOUND_INF, INV_SCALE] {
        let found = call.tensor(name)?;
        if found.len() != 1 {
            return Err(call.refuse(name, format!("expected one element, found {:?}", found.dims)));
        }
    }
    if let Some((i, other)) = grads.iter().enumerate().find(|(_, grad)| grad.dtype != grads[0].dtype) {
        let text = format!("tensor {i} is {}, tensor 0 is {}: all must be alike", other.dtype, grads[0].dtype);
        return Err(call.refuse(SCALED_GRADS, text));
    }
    let targets = slots(call, SCALED_GRADS)?;
    let (found, factor) = (call.tensor(FOUND_INF)?.slot, call.tensor(INV_SCALE)?.slot);
    Plan::new(move |views, tiles| {
        let mut by = [0f32];
        f32::load(&views.of(factor).collapsed(), 0, &mut by);
        let is_finite = AtomicBool::new(true);
        for &slot in &targets {
            let grad = views.of(slot);
            elementwise::map1::<f32>(tiles, grad, grad, |block| {
                if !math::are_finite(block) {
                    is_finite.store(false, Ordering::Relaxed);
                }
                math::scale(block, by[0]);
            });
        }
        if !is_finite.into_inner() {
            f32::store(&views.of(found).collapsed(), 0, &[1.0]);
        }
        Ok(())
    })
}

fn norm(call: &OperatorCall) -> Result<Plan, Refusal> {
    let (from, to) = (call.tensors(X_LIST)?, call.tensors(OUT_LIST)?);
    if from.len() != to.len() || to.iter().any(|tensor| tensor.len() != 1) {
        let text = format!("expected {} tensors of one element, found {}", from.len(), to.len());
        return Err(call.refuse(OUT_LIST, text));
    }
    let order = call.scalar(SCALAR)?.as_f64();
    if order != 1.0 && order != 2.0 {
        return Err(call.refuse(SCALAR, format!("expected 1 or 2, found {order}")));
    }
    let (from, to) = (slots(call, X_LIST)?, slots(call, OUT_LIST)?);
    Plan::new(move |views, tiles| {
        for (&from, &to) in from.iter().zip(&to) {
            let x = views.of(from);
            reduce::each_row::<f32>(tiles, x, x.len(), views.of(to), |row| {
                if order == 2.0 { math::sum_of_squares(row).sqrt() } else { row.iter().map(|value| value.abs()).sum() }
            });
        }
        Ok(())
    })
}
