//! Functions of tensor lists: the function of a `pointwise` row for each tensor.
//!
//! A factor is one scalar for the list, one scalar or tensor element per tensor, or one device
//! element for all. Device factors are read when the operator runs.
//!
//! The types follow the 910B kernels (CANN 8.1, `aic-ascend910b-ops-info.json`). Second versions
//! check and convert scalars (`aclnn_foreach_*_v2.cpp`). Other first phases pass them on, doubles
//! as 32-bit floats (`NnopbaseExecutorAddScalarListInput`).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::dtype::{AclType, list_names};
use crate::elementwise::kernels as elementwise;
use crate::elementwise::pointwise::{
    ADD_CDIV, ADD_CMUL, DIVIDE, ERF, ERFC, Function, LERP, MAXIMUM, MINIMUM, POWER, numbers, reals,
};
use crate::elementwise::pointwise::{
    MINUS, PLUS, SCALED_MINUS, SCALED_PLUS, TIMES, of_scalar_first, sign, with_scalar,
};
use crate::lane::Lane;
use crate::math;
use crate::operator::argument::{CheckedTensor, Scalar};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, in_place, in_places, input, inputs, outputs};
use crate::operator::sets::{ARITHMETIC, FLOATING, SINGLE};
use crate::operator::{CallPlan, Refusal, ViewIndex};
use crate::reduction::kernels as reduce;

/// Note of strict mode.
const DOUBLES: &str = "is DOUBLE, which the documentation forbids; CANN's host code converts it to FLOAT";

#[derive(Clone, Copy)]
enum ForeachFactor {
    None,
    /// One scalar, converted by the first phase.
    One(Name<Scalar>),
    Passed(Name<Scalar>),
    /// One scalar, passed on; doubles are documented.
    Weight(Name<Scalar>),
    /// One scalar per tensor, passed on; the first determines the type.
    Each(Name<[Scalar]>),
    /// Like `Each`, and all may be integers.
    EachOrWhole(Name<[Scalar]>),
    /// One element for all, or one per tensor.
    Device(Name<CheckedTensor>),
    /// Like `Device`, always in the list type.
    Alike(Name<CheckedTensor>),
}

impl ForeachFactor {
    fn types(self, listed: AclType) -> Vec<AclType> {
        match (self, listed) {
            (Self::None, _) => vec![],
            (Self::One(_), AclType::F16) => vec![AclType::F16, AclType::F64],
            (Self::One(_), AclType::I32) => vec![AclType::I32, AclType::I64],
            (Self::Passed(_) | Self::Each(_), AclType::I32) => vec![AclType::I64],
            (Self::One(_) | Self::Passed(_) | Self::Weight(_) | Self::Each(_), _) => {
                vec![AclType::F32, AclType::F64]
            }
            (Self::EachOrWhole(_), _) => vec![AclType::F32, AclType::F64, AclType::I64],
            (Self::Device(_), AclType::BF16) => vec![AclType::F32],
            (Self::Device(_) | Self::Alike(_), _) => vec![listed],
        }
    }
}

macro_rules! foreach {
    ($name:literal, [$($list:ident),+]: $types:ident $(; $factor:ident($of:ident) $(as $parameter:expr)?)?, $function:expr) => {
        Operator {
            name: $name,
            parameters: &[
                $(inputs($list, $types, 0, 8),)+
                $($($parameter,)?)?
                outputs(OUT_LIST, $types, 0, 8),
            ],
            limits: foreach_limits!($($factor)?),
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| foreach(call, [$($list),+], factor!($($factor($of))?), $function),
        }
    };
}

macro_rules! foreach_limits {
    () => {
        "lists of one length and element type; tensors of one index have one shape"
    };
    (One) => {
        concat!(
            foreach_limits!(),
            "; the scalar: FLOAT or DOUBLE; FLOAT16 or DOUBLE for FLOAT16 tensors, INT32 or INT64 for INT32 tensors"
        )
    };
    (Weight) => {
        concat!(foreach_limits!(), "; the scalar: FLOAT or DOUBLE")
    };
    (Device) => {
        concat!(foreach_limits!(), "; the factor: their type, or FLOAT with BFLOAT16")
    };
    (Alike) => {
        concat!(foreach_limits!(), "; the factors: their type")
    };
    ($passed:ident) => {
        concat!(
            foreach_limits!(),
            "; scalars: FLOAT, or INT64 for INT32 tensors; DOUBLE counts as FLOAT, with a note in strict mode"
        )
    };
}

macro_rules! factor {
    () => {
        ForeachFactor::None
    };
    ($factor:ident($of:ident)) => {
        ForeachFactor::$factor($of)
    };
}

/// One element for all tensors.
const ONE_ON_DEVICE: Parameter = input(SCALAR_TENSOR, COMPUTED, 0, 1);

const COMPUTED: &[AclType] = &[AclType::F32, AclType::F16, AclType::BF16, AclType::I32];
const SIGNED: &[AclType] =
    &[AclType::F32, AclType::F16, AclType::BF16, AclType::I8, AclType::I32, AclType::I64];
const SHORT_TOO: &[AclType] = &[AclType::F32, AclType::F16, AclType::BF16, AclType::I16, AclType::I32];

pub(crate) const OPERATORS: &[Operator] = &[
    foreach!("aclnnForeachAbs", [X_LIST]: FLOATING, numbers!(|[x], _| x.abs(), |[x], _| x.wrapping_abs())),
    foreach!("aclnnForeachNeg", [X_LIST]: COMPUTED, numbers!(|[x], _| -x, |[x], _| x.wrapping_neg())),
    foreach!("aclnnForeachSign", [X_LIST]: SIGNED, numbers!(|[x], _| sign!(x), |[x], _| x.signum())),
    foreach!("aclnnForeachSqrt", [X_LIST]: FLOATING, reals!(|[x], _| x.sqrt())),
    foreach!("aclnnForeachReciprocal", [X_LIST]: FLOATING, reals!(|[x], _| 1.0 / x)),
    foreach!("aclnnForeachExp", [X_LIST]: FLOATING, reals!(|[x], _| x.exp())),
    foreach!("aclnnForeachExpm1", [X_LIST]: FLOATING, reals!(|[x], _| x.exp_m1())),
    foreach!("aclnnForeachLog", [X_LIST]: FLOATING, reals!(|[x], _| x.ln())),
    foreach!("aclnnForeachLog2", [X_LIST]: FLOATING, reals!(|[x], _| x.log2())),
    foreach!("aclnnForeachLog10", [X_LIST]: FLOATING, reals!(|[x], _| x.log10())),
    foreach!("aclnnForeachLog1p", [X_LIST]: FLOATING, reals!(|[x], _| x.ln_1p())),
    foreach!("aclnnForeachSigmoid", [X_LIST]: FLOATING, reals!(|[x], _| 1.0 / (1.0 + (-x).exp()))),
    foreach!("aclnnForeachErf", [X_LIST]: FLOATING, ERF),
    foreach!("aclnnForeachErfc", [X_LIST]: FLOATING, ERFC),
    foreach!("aclnnForeachSin", [X_LIST]: FLOATING, reals!(|[x], _| x.sin())),
    foreach!("aclnnForeachCos", [X_LIST]: FLOATING, reals!(|[x], _| x.cos())),
    foreach!("aclnnForeachTan", [X_LIST]: FLOATING, reals!(|[x], _| x.tan())),
    foreach!("aclnnForeachAsin", [X_LIST]: FLOATING, reals!(|[x], _| x.asin())),
    foreach!("aclnnForeachAcos", [X_LIST]: FLOATING, reals!(|[x], _| x.acos())),
    foreach!("aclnnForeachAtan", [X_LIST]: FLOATING, reals!(|[x], _| x.atan())),
    foreach!("aclnnForeachSinh", [X_LIST]: FLOATING, reals!(|[x], _| x.sinh())),
    foreach!("aclnnForeachCosh", [X_LIST]: FLOATING, reals!(|[x], _| x.cosh())),
    foreach!("aclnnForeachTanh", [X_LIST]: FLOATING, reals!(|[x], _| x.tanh())),
    foreach!("aclnnForeachMulList", [X1_LIST, X2_LIST]: SHORT_TOO, TIMES),
    foreach!("aclnnForeachDivList", [X1_LIST, X2_LIST]: FLOATING, DIVIDE),
    foreach!("aclnnForeachMaximumList", [X1_LIST, X2_LIST]: COMPUTED, MAXIMUM),
    foreach!("aclnnForeachMinimumList", [X1_LIST, X2_LIST]: COMPUTED, MINIMUM),
    foreach!("aclnnForeachPowList", [X1_LIST, X2_LIST]: COMPUTED, POWER),
    foreach!("aclnnForeachAddListV2", [X1_LIST, X2_LIST]: COMPUTED; One(ALPHA), SCALED_PLUS),
    foreach!("aclnnForeachSubListV2", [X1_LIST, X2_LIST]: COMPUTED; One(ALPHA), SCALED_MINUS),
    foreach!("aclnnForeachAddScalarV2", [X_LIST]: COMPUTED; One(SCALAR), with_scalar!(PLUS)),
    foreach!("aclnnForeachSubScalarV2", [X_LIST]: COMPUTED; One(SCALAR), with_scalar!(MINUS)),
    foreach!("aclnnForeachMulScalarV2", [X_LIST]: COMPUTED; One(SCALAR), with_scalar!(TIMES)),
    foreach!("aclnnForeachDivScalarV2", [X_LIST]: FLOATING; One(SCALAR), with_scalar!(DIVIDE)),
    foreach!("aclnnForeachMaximumScalarV2", [X_LIST]: COMPUTED; One(SCALAR), with_scalar!(MAXIMUM)),
    foreach!("aclnnForeachMinimumScalarV2", [X_LIST]: COMPUTED; One(SCALAR), with_scalar!(MINIMUM)),
    foreach!("aclnnForeachPowScalarV2", [X_LIST]: COMPUTED; One(SCALAR), with_scalar!(POWER)),
    foreach!("aclnnForeachAddScalarList", [X_LIST]: COMPUTED; Each(SCALARS_LIST), with_scalar!(PLUS)),
    foreach!("aclnnForeachSubScalarList", [X_LIST]: COMPUTED; Each(SCALARS_LIST), with_scalar!(MINUS)),
    foreach!("aclnnForeachMulScalarList", [X_LIST]: COMPUTED; Each(SCALARS_LIST), with_scalar!(TIMES)),
    foreach!("aclnnForeachDivScalarList", [X_LIST]: FLOATING; EachOrWhole(SCALARS_LIST), with_scalar!(DIVIDE)),
    foreach!("aclnnForeachMaximumScalarList", [X_LIST]: COMPUTED; Each(SCALARS_LIST), with_scalar!(MAXIMUM)),
    foreach!("aclnnForeachMinimumScalarList", [X_LIST]: COMPUTED; Each(SCALARS_LIST), with_scalar!(MINIMUM)),
    foreach!("aclnnForeachPowScalarList", [X_LIST]: COMPUTED; Each(SCALARS_LIST), with_scalar!(POWER)),
    foreach!("aclnnForeachAddcmulScalarV2", [X1_LIST, X2_LIST, X3_LIST]: COMPUTED; One(SCALAR), ADD_CMUL),
    foreach!("aclnnForeachAddcdivScalarV2", [X1_LIST, X2_LIST, X3_LIST]: FLOATING; One(SCALAR), ADD_CDIV),
    foreach!(
        "aclnnForeachAddcmulScalarList",
        [X1_LIST, X2_LIST, X3_LIST]: COMPUTED;
        Alike(SCALARS) as input(SCALARS, COMPUTED, 1, 8),
        ADD_CMUL
    ),
    foreach!(
        "aclnnForeachAddcdivScalarList",
        [X1_LIST, X2_LIST, X3_LIST]: FLOATING;
        Alike(SCALARS) as input(SCALARS, COMPUTED, 1, 8),
        ADD_CDIV
    ),
    foreach!(
        "aclnnForeachAddcmulList",
        [X1_LIST, X2_LIST, X3_LIST]: COMPUTED;
        Alike(SCALARS) as input(SCALARS, COMPUTED, 1, 8),
        ADD_CMUL
    ),
    foreach!(
        "aclnnForeachAddcdivList",
        [X1_LIST, X2_LIST, X3_LIST]: FLOATING;
        Alike(SCALARS) as input(SCALARS, COMPUTED, 1, 8),
        ADD_CDIV
    ),
    foreach!("aclnnForeachAddScalar", [X_LIST]: COMPUTED; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(PLUS)),
    foreach!("aclnnForeachSubScalar", [X_LIST]: COMPUTED; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(MINUS)),
    foreach!("aclnnForeachMulScalar", [X_LIST]: COMPUTED; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(TIMES)),
    foreach!("aclnnForeachDivScalar", [X_LIST]: FLOATING; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(DIVIDE)),
    foreach!("aclnnForeachMaximumScalar", [X_LIST]: COMPUTED; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(MAXIMUM)),
    foreach!("aclnnForeachMinimumScalar", [X_LIST]: COMPUTED; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(MINIMUM)),
    foreach!("aclnnForeachPowScalar", [X_LIST]: COMPUTED; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, with_scalar!(POWER)),
    foreach!("aclnnForeachAddcmulScalar", [X1_LIST, X2_LIST, X3_LIST]: COMPUTED; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, ADD_CMUL),
    foreach!("aclnnForeachAddcdivScalar", [X1_LIST, X2_LIST, X3_LIST]: FLOATING; Device(SCALAR_TENSOR) as ONE_ON_DEVICE, ADD_CDIV),
    foreach!("aclnnForeachAddList", [X1_LIST, X2_LIST]: COMPUTED; Device(ALPHA_TENSOR) as input(ALPHA_TENSOR, COMPUTED, 0, 1), SCALED_PLUS),
    foreach!("aclnnForeachSubList", [X1_LIST, X2_LIST]: COMPUTED; Device(ALPHA_TENSOR) as input(ALPHA_TENSOR, COMPUTED, 0, 1), SCALED_MINUS),
    foreach!("aclnnForeachLerpScalar", [X1_LIST, X2_LIST]: FLOATING; Weight(WEIGHT_SCALAR), reals!(
        |[x, y], p| x + p[0] * (y - x)
    )),
    foreach!("aclnnForeachLerpList", [X1_LIST, X2_LIST, WEIGHT_LIST]: FLOATING, LERP),
    Operator {
        name: "aclnnForeachPowScalarAndTensor",
        parameters: &[inputs(X_LIST, COMPUTED, 0, 8), outputs(OUT_LIST, COMPUTED, 0, 8)],
        limits: foreach_limits!(Passed),
        source: "CANN 8.1 aclnn API reference, aclnnForeachPowScalarAndTensor",
        plan: |call| foreach(call, [X_LIST], ForeachFactor::Passed(SCALAR), of_scalar_first!(POWER)),
    },
    Operator {
        name: "aclnnForeachCopy",
        parameters: &[inputs(X_LIST, ARITHMETIC, 0, 8), outputs(OUT_LIST, ARITHMETIC, 0, 8)],
        limits: "lists of one length; tensors of one index have one shape; converted to the types of out",
        source: "CANN 8.1 aclnn API reference, aclnnForeachCopy",
        plan: copy,
    },
    Operator {
        name: "aclnnForeachZeroInplace",
        parameters: &[in_places(X_LIST, SHORT_TOO, 0, 8)],
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
        limits: "foundInf and invScale have one element; one element type; foundInf becomes 1 if a gradient is not \
                 finite",
        source: "ops-nn foreach/foreach_non_finite_check_and_unscale/docs/aclnnForeachNonFiniteCheckAndUnscale.md",
        plan: unscale,
    },
    Operator {
        name: "aclnnForeachNorm",
        parameters: &[inputs(X_LIST, FLOATING, 0, 8), outputs(OUT_LIST, FLOATING, 0, 8)],
        limits: "lists of one length; each output has one element; scalar is 1 or 2, as on the card",
        source: "CANN 8.1 aclnn API reference, aclnnForeachNorm",
        plan: norm,
    },
    Operator {
        name: "aclnnForeachRoundOffNumber",
        parameters: &[
            inputs(X_LIST, FLOATING, 0, 8),
            input(ROUND_MODE_TENSOR, MODES, 0, 1),
            outputs(OUT_LIST, FLOATING, 0, 8),
        ],
        limits: ROUNDED,
        source: "ops-nn foreach/foreach_round_off_number/docs/aclnnForeachRoundOffNumber.md",
        plan: |call| round_off(call, None),
    },
    Operator {
        name: "aclnnForeachRoundOffNumberV2",
        parameters: &[inputs(X_LIST, FLOATING, 0, 8), outputs(OUT_LIST, FLOATING, 0, 8)],
        limits: ROUNDED,
        source: "ops-nn foreach/foreach_round_off_number/docs/aclnnForeachRoundOffNumberV2.md",
        plan: |call| round_off(call, Some(call.scalar(ROUND_MODE_SCALAR)?.as_i64())),
    },
];

const MODES: &[AclType] = &[AclType::I8, AclType::I64];

const ROUNDED: &str = "lists of one length and element type; tensors of one index have one shape; roundMode (one number) 2 down, \
                       3 up, 4 to nearest with halves away from zero, 5 to zero, 6 to the odd neighbour, others to nearest \
                       with halves to even";

/// Lists have equal lengths, and tensors the output's shape; with `alike`, also its type.
fn expect_alike(call: &OperatorCall, lists: &[Name<[CheckedTensor]>], alike: bool) -> Result<(), Refusal> {
    let out = call.tensors(OUT_LIST)?;
    for &name in lists {
        let list = call.tensors(name)?;
        if list.len() != out.len() {
            return Err(
                call.refuse(name, format!("expected {} tensors as in out, found {}", out.len(), list.len()))
            );
        }
        for (i, (tensor, out)) in list.iter().zip(out).enumerate() {
            if tensor.dims != out.dims || (alike && tensor.dtype != out.dtype) {
                let text = format!(
                    "tensor {i} is {} {:?}, but in out it is {} {:?}: the two must match",
                    tensor.dtype, tensor.dims, out.dtype, out.dims
                );
                return Err(call.refuse(name, text));
            }
        }
    }
    Ok(())
}

fn slots(call: &OperatorCall, name: Name<[CheckedTensor]>) -> Result<Vec<ViewIndex>, Refusal> {
    Ok(call.tensors(name)?.iter().map(|tensor| tensor.slot).collect())
}

fn foreach<const N: usize>(
    call: &OperatorCall,
    names: [Name<[CheckedTensor]>; N],
    factor: ForeachFactor,
    function: Function<N>,
) -> Result<CallPlan, Refusal> {
    expect_alike(call, &names, true)?;
    let out = call.tensors(OUT_LIST)?;
    let count = out.len();
    let types: Vec<AclType> = out.iter().map(|tensor| function.computed_in(tensor.dtype)).collect();
    let FactorValues { host, device, notes } = one_type(call, OUT_LIST)?
        .map_or_else(|| Ok(FactorValues::default()), |listed| given(call, factor, listed, count))?;
    let out = slots(call, OUT_LIST)?;
    let mut places = vec![[ViewIndex(0); N]; count];
    for (operand, name) in names.into_iter().enumerate() {
        for (place, slot) in places.iter_mut().zip(slots(call, name)?) {
            place[operand] = slot;
        }
    }
    let plan = CallPlan::new(move |views, tiles| {
        let mut read = vec![0f64; device.map_or(0, |slot| views.of(slot).len())];
        if let Some(slot) = device {
            f64::load(&views.of(slot).collapsed(), 0, &mut read);
        }
        for (i, (place, &target)) in places.iter().zip(&out).enumerate() {
            let factor = read.get(i).or(read.first()).map(|&value| Scalar::Float(value, AclType::F64));
            let factor: Vec<Scalar> = factor.or(host.get(i).copied()).into_iter().collect();
            function.run(tiles, place.map(|slot| views.of(slot)), &factor, types[i], views.of(target));
        }
        Ok(())
    })?;
    Ok(plan.noting(notes))
}

#[derive(Default)]
struct FactorValues {
    host: Vec<Scalar>,
    device: Option<ViewIndex>,
    notes: Vec<String>,
}

/// Reads the factors for `count` tensors of type `listed`.
fn given(
    call: &OperatorCall,
    factor: ForeachFactor,
    listed: AclType,
    count: usize,
) -> Result<FactorValues, Refusal> {
    let types = factor.types(listed);
    match factor {
        ForeachFactor::None => Ok(FactorValues::default()),
        ForeachFactor::One(name) => {
            let scalar = call.scalar(name)?;
            expect_factor(call, name, listed, &types, scalar.dtype())?;
            let stored = match (listed, scalar) {
                // Rounded before the kernel receives it.
                (AclType::F16, Scalar::Float(value, _)) => {
                    Scalar::Float(f64::from((value as f32).rounded(AclType::F16)), AclType::F16)
                }
                _ => scalar,
            };
            Ok(FactorValues { host: vec![stored; count], ..FactorValues::default() })
        }
        ForeachFactor::Passed(name) | ForeachFactor::Weight(name) => {
            let scalar = call.scalar(name)?;
            expect_factor(call, name, listed, &types, scalar.dtype())?;
            let is_noted = matches!(factor, ForeachFactor::Passed(_)) && scalar.dtype() == AclType::F64;
            let notes = is_noted.then(|| call.says(name, DOUBLES)).into_iter().collect();
            Ok(FactorValues { host: vec![scalar; count], device: None, notes })
        }
        ForeachFactor::Each(name) | ForeachFactor::EachOrWhole(name) => {
            let host = call.scalars(name)?.to_vec();
            if host.len() != count {
                return Err(call.refuse(
                    name,
                    format!("expected {count} scalars, one per tensor, found {}", host.len()),
                ));
            }
            for (i, scalar) in host.iter().enumerate() {
                // Integers after a leading float become floats.
                if i == 0 || scalar.dtype() != AclType::I64 {
                    expect_factor(call, name, listed, &types, scalar.dtype())?;
                }
            }
            let notes =
                host.iter().any(|scalar| scalar.dtype() == AclType::F64).then(|| call.says(name, DOUBLES));
            Ok(FactorValues { host, device: None, notes: notes.into_iter().collect() })
        }
        ForeachFactor::Device(name) | ForeachFactor::Alike(name) => {
            let tensor = call.tensor(name)?;
            if tensor.len() != 1 && tensor.len() != count {
                return Err(
                    call.refuse(name, format!("expected 1 or {count} elements, found {:?}", tensor.dims))
                );
            }
            expect_factor(call, name, listed, &types, tensor.dtype)?;
            Ok(FactorValues { device: Some(tensor.slot), ..FactorValues::default() })
        }
    }
}

/// Returns `None` for an empty list.
fn one_type(call: &OperatorCall, name: Name<[CheckedTensor]>) -> Result<Option<AclType>, Refusal> {
    let tensors = call.tensors(name)?;
    if let Some((i, other)) = tensors.iter().enumerate().find(|(_, tensor)| tensor.dtype != tensors[0].dtype)
    {
        let text = format!("tensor {i} is {}, tensor 0 is {}: all must match", other.dtype, tensors[0].dtype);
        return Err(call.refuse(name, text));
    }
    Ok(tensors.first().map(|tensor| tensor.dtype))
}

fn expect_factor<K: ?Sized>(
    call: &OperatorCall,
    name: Name<K>,
    listed: AclType,
    types: &[AclType],
    found: AclType,
) -> Result<(), Refusal> {
    if types.contains(&found) {
        return Ok(());
    }
    Err(call.refuse(name, format!("expected {} with tensors of {listed}, found {found}", list_names(types))))
}

fn copy(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_alike(call, &[X_LIST], false)?;
    let (from, to) = (slots(call, X_LIST)?, slots(call, OUT_LIST)?);
    CallPlan::new(move |views, tiles| {
        from.iter().zip(&to).for_each(|(&from, &to)| elementwise::copy(tiles, views.of(from), views.of(to)));
        Ok(())
    })
}

fn zero(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let targets = slots(call, X_LIST)?;
    CallPlan::new(move |views, tiles| {
        targets.iter().for_each(|&slot| elementwise::fill(tiles, views.of(slot), 0i64));
        Ok(())
    })
}

fn unscale(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    for name in [FOUND_INF, INV_SCALE] {
        let found = call.tensor(name)?;
        if found.len() != 1 {
            return Err(call.refuse(name, format!("expected one element, found {:?}", found.dims)));
        }
    }
    one_type(call, SCALED_GRADS)?;
    let targets = slots(call, SCALED_GRADS)?;
    let (found, factor) = (call.tensor(FOUND_INF)?.slot, call.tensor(INV_SCALE)?.slot);
    CallPlan::new(move |views, tiles| {
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

/// `roundMode` is the mode of a cast in Ascend C.
fn rounded_to(mode: i64, x: f32) -> f32 {
    match mode {
        2 => x.floor(),
        3 => x.ceil(),
        4 => x.round(),
        5 => x.trunc(),
        6 if x.floor() % 2.0 == 0.0 => x.ceil(),
        6 => x.floor(),
        _ => x.round_ties_even(),
    }
}

fn round_off(call: &OperatorCall, host: Option<i64>) -> Result<CallPlan, Refusal> {
    expect_alike(call, &[X_LIST], true)?;
    let device = if host.is_none() { Some(call.slot(ROUND_MODE_TENSOR)?) } else { None };
    let pairs: Vec<[ViewIndex; 2]> =
        slots(call, X_LIST)?.into_iter().zip(slots(call, OUT_LIST)?).map(Into::into).collect();
    CallPlan::new(move |views, _| {
        let read = views.read_given::<i64>(device).and_then(|modes| modes.first().copied());
        let mode = host.or(read).ok_or("roundMode: has no element")?;
        for &[from, into] in &pairs {
            let values: Vec<f32> = views.read(from).into_iter().map(|x| rounded_to(mode, x)).collect();
            views.write(into, &values);
        }
        Ok(())
    })
}

fn norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (from, to) = (call.tensors(X_LIST)?, call.tensors(OUT_LIST)?);
    if from.len() != to.len() || to.iter().any(|tensor| tensor.len() != 1) {
        let text = format!("expected {} tensors of one element, found {}", from.len(), to.len());
        return Err(call.refuse(OUT_LIST, text));
    }
    let scalar = call.scalar(SCALAR)?;
    let types = [AclType::F32, AclType::I64, AclType::F64];
    if let Some(listed) = one_type(call, X_LIST)? {
        expect_factor(call, SCALAR, listed, &types, scalar.dtype())?;
    }
    let notes = (scalar.dtype() == AclType::F64).then(|| call.says(SCALAR, DOUBLES)).into_iter().collect();
    let order = scalar.as_f64();
    if order != 1.0 && order != 2.0 {
        return Err(call.refuse(SCALAR, format!("expected 1 or 2, found {order}")));
    }
    let (from, to) = (slots(call, X_LIST)?, slots(call, OUT_LIST)?);
    let plan = CallPlan::new(move |views, tiles| {
        for (&from, &to) in from.iter().zip(&to) {
            let x = views.of(from);
            reduce::each_row::<f32>(tiles, x, x.len(), views.of(to), |row| {
                if order == 2.0 {
                    math::sum_of_squares(row).sqrt()
                } else {
                    row.iter().map(|value| value.abs()).sum()
                }
            });
        }
        Ok(())
    })?;
    Ok(plan.noting(notes))
}
