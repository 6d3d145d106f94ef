//! Elementwise functions of one to three tensors and host scalars.
//!
//! Without an integer form, integers compute as FLOAT. Results are rounded to the common operand
//! type.

use crate::Tiles;
use crate::dtype::{AclType, LaneKind};
use crate::elementwise::arithmetic::{settle, with_scalar_type};
use crate::elementwise::kernels::map_all;
use crate::lane::{Lane, with_lane};
use crate::operator::argument::{CheckedTensor, Scalar};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{ARITHMETIC, BOOL, NUMBER, REAL, SHIFTABLE, WHOLE};
use crate::operator::{CallPlan, Refusal};
use crate::view::StridedView;

type ScalarFunction<L, const N: usize> = fn([L; N], &[L]) -> L;

/// A function of `N` tensor values and the scalars of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function<const N: usize> {
    /// For FLOAT, FLOAT16 and BFLOAT16.
    pub(crate) single: ScalarFunction<f32, N>,
    pub(crate) double: ScalarFunction<f64, N>,
    /// For integers and booleans; without one, they compute as FLOAT.
    pub(crate) whole: Option<ScalarFunction<i64, N>>,
    /// The result is 1 or 0, which any type holds.
    pub(crate) is_truth: bool,
}

/// One expression for both float types.
macro_rules! reals {
    (|$values:pat_param, $scalars:pat_param| $body:expr) => {
        Function {
            single: |$values, $scalars| $body,
            double: |$values, $scalars| $body,
            whole: None,
            is_truth: false,
        }
    };
}

/// With a separate integer expression.
macro_rules! numbers {
    (|$values:pat_param, $scalars:pat_param| $body:expr, $whole:expr) => {
        Function { whole: Some($whole), ..reals!(|$values, $scalars| $body) }
    };
}

/// The result is 1 or 0.
macro_rules! truth {
    (|[$x:ident]| $body:expr, $whole:expr) => {
        Function {
            single: |[$x], _| f32::from(u8::from($body)),
            double: |[$x], _| f64::from(u8::from($body)),
            whole: Some($whole),
            is_truth: true,
        }
    };
}

/// The larger number; NaN wins.
macro_rules! greatest {
    ($x:expr, $low:expr) => {
        if $x > $low || $x.is_nan() { $x } else { $low }
    };
}
/// The smaller number; NaN wins.
macro_rules! least {
    ($x:expr, $high:expr) => {
        if $x < $high || $x.is_nan() { $x } else { $high }
    };
}
/// The sign is 0 for NaN.
macro_rules! sign {
    ($x:expr) => {
        if $x > 0.0 {
            1.0
        } else if $x < 0.0 {
            -1.0
        } else {
            0.0
        }
    };
}
/// The second value is a scalar.
macro_rules! with_scalar {
    ($function:ident) => {
        Function {
            single: |[x], p| ($function.single)([x, p[0]], p),
            double: |[x], p| ($function.double)([x, p[0]], p),
            whole: match $function.whole {
                Some(_) => Some(|[x], p| $function.whole.map_or(0, |f| f([x, p[0]], p))),
                None => None,
            },
            is_truth: $function.is_truth,
        }
    };
}
macro_rules! of_scalar_first {
    ($function:ident) => {
        Function {
            single: |[x], p| ($function.single)([p[0], x], p),
            double: |[x], p| ($function.double)([p[0], x], p),
            whole: match $function.whole {
                Some(_) => Some(|[x], p| $function.whole.map_or(0, |f| f([p[0], x], p))),
                None => None,
            },
            is_truth: $function.is_truth,
        }
    };
}

pub(crate) use {numbers, of_scalar_first, reals, sign, with_scalar};

pub(crate) const PLUS: Function<2> = numbers!(|[x, y], _| x + y, |[x, y], _| x.wrapping_add(y));
pub(crate) const MINUS: Function<2> = numbers!(|[x, y], _| x - y, |[x, y], _| x.wrapping_sub(y));
pub(crate) const TIMES: Function<2> = numbers!(|[x, y], _| x * y, |[x, y], _| x.wrapping_mul(y));
pub(crate) const DIVIDE: Function<2> = reals!(|[x, y], _| x / y);
pub(crate) const MAXIMUM: Function<2> = numbers!(|[x, y], _| greatest!(x, y), |[x, y], _| x.max(y));
pub(crate) const MINIMUM: Function<2> = numbers!(|[x, y], _| least!(x, y), |[x, y], _| x.min(y));
pub(crate) const SCALED_PLUS: Function<2> =
    numbers!(|[x, y], p| x + p[0] * y, |[x, y], p| x.wrapping_add(p[0].wrapping_mul(y)));
pub(crate) const SCALED_MINUS: Function<2> =
    numbers!(|[x, y], p| x - p[0] * y, |[x, y], p| x.wrapping_sub(p[0].wrapping_mul(y)));
pub(crate) const ADD_CMUL: Function<3> = numbers!(|[x, y, z], p| x + p[0] * (y * z), |[x, y, z], p| x
    .wrapping_add(p[0].wrapping_mul(y.wrapping_mul(z))));
pub(crate) const ADD_CDIV: Function<3> = reals!(|[x, y, z], p| x + p[0] * (y / z));
/// From `x` to `y` by the weight `z`.
pub(crate) const LERP: Function<3> = reals!(|[x, y, z], _| x + z * (y - x));
pub(crate) const ERF: Function<1> = Function {
    single: |[x], _| libm::erf(f64::from(x)) as f32,
    double: |[x], _| libm::erf(x),
    whole: None,
    is_truth: false,
};
pub(crate) const ERFC: Function<1> = Function {
    single: |[x], _| libm::erfc(f64::from(x)) as f32,
    double: |[x], _| libm::erfc(x),
    whole: None,
    is_truth: false,
};
/// Rounded down; integer division by zero gives 0.
pub(crate) const FLOOR_DIVIDE: Function<2> = numbers!(|[x, y], _| (x / y).floor(), |[x, y], _| if y == 0 {
    0
} else {
    x.wrapping_div(y) - i64::from(x.wrapping_rem(y) != 0 && (x < 0) != (y < 0))
});
/// Has the sign of the divisor.
const REMAINDER: Function<2> = numbers!(
    |[x, y], _| {
        let left = x % y;
        if left != 0.0 && (left < 0.0) != (y < 0.0) { left + y } else { left }
    },
    |[x, y], _| {
        let left = if y == 0 { 0 } else { x.wrapping_rem(y) };
        if left != 0 && (left < 0) != (y < 0) { left + y } else { left }
    }
);
/// Has the sign of the dividend.
const FMOD: Function<2> = numbers!(|[x, y], _| x % y, |[x, y], _| if y == 0 { 0 } else { x.wrapping_rem(y) });
/// Negative integer exponents truncate the fraction.
pub(crate) const POWER: Function<2> =
    numbers!(|[x, y], _| x.powf(y), |[x, y], _| match (x, u64::try_from(y)) {
        (_, Ok(y)) => wrapping_power(x, y),
        (1, _) => 1,
        (-1, _) => 1 - 2 * (y & 1),
        _ => 0,
    });

/// Computes a power modulo 2^64; [`i64::wrapping_pow`] accepts only 32-bit exponents.
fn wrapping_power(mut x: i64, mut exponent: u64) -> i64 {
    let mut power = 1i64;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(x);
        }
        x = x.wrapping_mul(x);
        exponent >>= 1;
    }
    power
}

/// `x * ln(y)`, or 0 if `x` is 0 and `y` is not NaN.
pub(crate) const X_LOG_Y: Function<2> =
    reals!(|[x, y], _| if x == 0.0 && !y.is_nan() { 0.0 } else { x * y.ln() });

/// `ln(exp(x) + exp(y))` without a difference of equal infinities.
const LOG_ADD_EXP: Function<2> = reals!(|[x, y], _| {
    let apart = if x == y { 0.0 } else { (x - y).abs() };
    x.max(y) + (-apart).exp().ln_1p()
});
/// The normalized sinc function, `sin(πx) / πx`.
const SINC: Function<1> = Function {
    single: |[x], _| (SINC.double)([f64::from(x)], &[]) as f32,
    double: |[x], _| {
        if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) }
    },
    whole: None,
    is_truth: false,
};

/// Klambauer and others, "Self-normalizing neural networks", 2017.
const SELU: Function<1> = Function {
    single: |[x], _| (SELU.double)([f64::from(x)], &[]) as f32,
    double: |[x], _| 1.050_700_987_355_480_5 * if x > 0.0 { x } else { 1.673_263_242_354_377_2 * x.exp_m1() },
    whole: None,
    is_truth: false,
};
pub(crate) const GELU: Function<1> = Function {
    single: |[x], _| (GELU.double)([f64::from(x)], &[]) as f32,
    double: |[x], _| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
    whole: None,
    is_truth: false,
};
/// The tanh approximation of GELU: `x * sigmoid(2 u)` with `u = sqrt(2 / pi) * (x + 0.044715 x^3)`.
pub(crate) const TANH_GELU: Function<1> = Function {
    single: |[x], _| (TANH_GELU.double)([f64::from(x)], &[]) as f32,
    double: |[x], _| x / (1.0 + (-2.0 * ROOT_TWO_OVER_PI * (x + 0.044_715 * x * x * x)).exp()),
    whole: None,
    is_truth: false,
};
const GELU_GRAD: Function<2> = Function {
    single: |[g, x], _| (GELU_GRAD.double)([f64::from(g), f64::from(x)], &[]) as f32,
    double: |[g, x], _| {
        let below = 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        g * (below + 0.5 * ROOT_TWO_OVER_PI * x * (-0.5 * x * x).exp())
    },
    whole: None,
    is_truth: false,
};
const TANH_GELU_GRAD: Function<2> = Function {
    single: |[g, x], _| (TANH_GELU_GRAD.double)([f64::from(g), f64::from(x)], &[]) as f32,
    double: |[g, x], _| {
        let share = 1.0 / (1.0 + (-2.0 * ROOT_TWO_OVER_PI * (x + 0.044_715 * x * x * x)).exp());
        g * (share + x * share * (1.0 - share) * 2.0 * ROOT_TWO_OVER_PI * (1.0 + 3.0 * 0.044_715 * x * x))
    },
    whole: None,
    is_truth: false,
};
const ROOT_TWO_OVER_PI: f64 = 0.797_884_560_802_865_4;

/// The row must accept only integer types.
pub(crate) const fn whole<const N: usize>(function: ScalarFunction<i64, N>) -> Function<N> {
    Function { single: |_, _| f32::NAN, double: |_, _| f64::NAN, whole: Some(function), is_truth: false }
}

/// A row: tensors with types, scalars, output with types, and function.
macro_rules! function {
    ($name:literal, [$($tensor:ident: $types:ident),*], [$($scalar:ident),*] -> $out:ident: $out_types:ident, $function:expr) => {
        function!($name, [$($tensor: $types),*], [$($scalar),*] -> $out: $out_types, ScalarPromotion::No, $function)
    };
    ($name:literal, [$($tensor:ident: $types:ident),*], [$($scalar:ident),*] -> $out:ident: $out_types:ident, $widens:expr,
     $function:expr) => {
        Operator {
            name: $name,
            parameters: &[
                $(input($tensor, $types, 0, 8),)*
                output($out, $out_types, 0, 8),
            ],
            limits: "the tensors broadcast to the output, which can store their common type",
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| pointwise(call, [$($tensor),*], &[$($scalar),*], $out, $widens, $function),
        }
    };
}

/// A row of a scalar and a tensor, in this order.
macro_rules! of_scalar {
    ($name:literal, $scalar:ident, $tensor:ident: $types:ident, $function:expr) => {
        Operator {
            name: $name,
            parameters: &[input($tensor, $types, 0, 8), output(OUT, $types, 0, 8)],
            limits: "out has the shape of the tensor and can store the common type",
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| pointwise(call, [$tensor], &[$scalar], OUT, ScalarPromotion::Yes, $function),
        }
    };
}

pub(crate) use {function, of_scalar};

pub(crate) const OPERATORS: &[Operator] = &[
    function!("aclnnSin", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.sin())),
    function!("aclnnCos", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.cos())),
    function!("aclnnTan", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.tan())),
    function!("aclnnAsin", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.asin())),
    function!("aclnnAcos", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.acos())),
    function!("aclnnAtan", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.atan())),
    function!("aclnnSinh", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.sinh())),
    function!("aclnnCosh", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.cosh())),
    function!("aclnnAsinh", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.asinh())),
    function!("aclnnAcosh", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.acosh())),
    function!("aclnnAtanh", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.atanh())),
    function!("aclnnErf", [SELF: ARITHMETIC], [] -> OUT: REAL, ERF),
    function!("aclnnErfc", [SELF: ARITHMETIC], [] -> OUT: REAL, ERFC),
    function!("aclnnExp2", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.exp2())),
    function!("aclnnExpm1", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.exp_m1())),
    function!("aclnnLog2", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.log2())),
    function!("aclnnLog10", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.log10())),
    function!("aclnnLog1p", [SELF: ARITHMETIC], [] -> OUT: REAL, reals!(|[x], _| x.ln_1p())),
    function!("aclnnSinc", [SELF: ARITHMETIC], [] -> OUT: REAL, SINC),
    function!("aclnnLogSigmoid", [SELF: REAL], [] -> OUT: REAL,
        reals!(|[x], _| x.min(0.0) - (-x.abs()).exp().ln_1p())
    ),
    function!("aclnnMish", [SELF: REAL], [] -> OUT: REAL, reals!(|[x], _| x * x.exp().ln_1p().tanh())),
    function!("aclnnSelu", [SELF: REAL], [] -> OUT: REAL, SELU),
    function!("aclnnHardsigmoid", [SELF: REAL], [] -> OUT: REAL, reals!(|[x], _| (x + 3.0).clamp(0.0, 6.0) / 6.0)),
    function!("aclnnHardswish", [SELF: REAL], [] -> OUT: REAL, reals!(|[x], _| x * (x + 3.0).clamp(0.0, 6.0) / 6.0)),
    function!("aclnnAbs", [SELF: ARITHMETIC], [] -> OUT: ARITHMETIC,
        numbers!(|[x], _| x.abs(), |[x], _| x.wrapping_abs())
    ),
    function!("aclnnRelu", [SELF: NUMBER], [] -> OUT: NUMBER,
        numbers!(|[x], _| if x < 0.0 { 0.0 } else { x }, |[x], _| x.max(0))
    ),
    function!("aclnnSign", [SELF: ARITHMETIC], [] -> RESULT: ARITHMETIC,
        numbers!(|[x], _| sign!(x), |[x], _| x.signum())
    ),
    function!("aclnnFloor", [SELF: NUMBER], [] -> OUT: NUMBER, numbers!(|[x], _| x.floor(), |[x], _| x)),
    function!("aclnnCeil", [SELF: NUMBER], [] -> OUT: NUMBER, numbers!(|[x], _| x.ceil(), |[x], _| x)),
    function!("aclnnTrunc", [SELF: NUMBER], [] -> OUT: NUMBER, numbers!(|[x], _| x.trunc(), |[x], _| x)),
    function!("aclnnFrac", [SELF: NUMBER], [] -> OUT: NUMBER, numbers!(|[x], _| x.fract(), |_, _| 0)),
    function!("aclnnRound", [SELF: NUMBER], [] -> OUT: NUMBER, numbers!(|[x], _| x.round_ties_even(), |[x], _| x)),
    Operator {
        name: "aclnnBitwiseNot",
        parameters: &[input(SELF, WHOLE, 0, 8), output(OUT, WHOLE, 0, 8)],
        limits: "out has the shape of self and can store its type",
        source: "CANN 8.1 aclnn API reference, aclnnBitwiseNot",
        // Inverting the whole byte of a boolean would always give true.
        plan: |call| match call.tensor(SELF)?.dtype {
            AclType::Bool => {
                pointwise(call, [SELF], &[], OUT, ScalarPromotion::No, whole(|[x], _| i64::from(x == 0)))
            }
            _ => pointwise(call, [SELF], &[], OUT, ScalarPromotion::No, whole(|[x], _| !x)),
        },
    },
    function!("aclnnIsInf", [X: ARITHMETIC], [] -> OUT: BOOL, truth!(|[x]| x.is_infinite(), |_, _| 0)),
    function!("aclnnIsPosInf", [SELF: ARITHMETIC], [] -> OUT: BOOL,
        truth!(|[x]| x.is_infinite() && x > 0.0, |_, _| 0)
    ),
    function!("aclnnIsNegInf", [SELF: ARITHMETIC], [] -> OUT: BOOL,
        truth!(|[x]| x.is_infinite() && x < 0.0, |_, _| 0)
    ),
    function!("aclnnSignbit", [SELF: ARITHMETIC], [] -> OUT: ARITHMETIC,
        truth!(|[x]| x.is_sign_negative(), |[x], _| i64::from(x < 0))
    ),
    function!("aclnnLeakyRelu", [SELF: REAL], [NEGATIVE_SLOPE] -> OUT: REAL,
        reals!(|[x], p| if x > 0.0 { x } else { x * p[0] })
    ),
    function!("aclnnElu", [SELF: REAL], [ALPHA, SCALE_SCALAR, INPUT_SCALE] -> OUT: REAL,
        reals!(|[x], p| p[1] * if x > 0.0 {
        x
    } else {
        p[0] * (x * p[2]).exp_m1()
    })),
    function!("aclnnHardtanh", [SELF: NUMBER], [CLIP_VALUE_MIN, CLIP_VALUE_MAX] -> OUT: NUMBER, numbers!(
        |[x], p| {
            let raised = greatest!(x, p[0]);
            least!(raised, p[1])
        },
        |[x], p| x.max(p[0]).min(p[1])
    )),
    function!("aclnnClampMax", [SELF: NUMBER], [CLIP_VALUE_MAX] -> OUT: NUMBER, ScalarPromotion::Yes,
        numbers!(|[x], p| least!(x, p[0]), |[x], p| x.min(p[0]))
    ),
    function!("aclnnSoftplus", [SELF: REAL], [BETA, THRESHOLD] -> OUT: REAL, reals!(|[x], p| if x * p[0] > p[1] {
        x
    } else {
        (x * p[0]).exp().ln_1p() / p[0]
    })),
    function!("aclnnThreshold", [SELF: NUMBER], [THRESHOLD, VALUE_SCALAR] -> OUT: NUMBER, numbers!(
        |[x], p| if x <= p[0] { p[1] } else { x },
        |[x], p| if x <= p[0] { p[1] } else { x }
    )),
    function!("aclnnHardshrink", [SELF: REAL], [LAMBD] -> OUT: REAL,
        reals!(|[x], p| if x.abs() <= p[0] { 0.0 } else { x })
    ),
    function!("aclnnSoftshrink", [SELF: REAL], [LAMBD] -> OUT: REAL, reals!(|[x], p| if x > p[0] {
        x - p[0]
    } else if x < -p[0] {
        x + p[0]
    } else {
        x * 0.0
    })),
    function!("aclnnAtan2", [SELF: ARITHMETIC, OTHER: ARITHMETIC], [] -> OUT: REAL, reals!(|[x, y], _| x.atan2(y))),
    function!("aclnnFloorDivide", [SELF: ARITHMETIC, OTHER: ARITHMETIC], [] -> OUT: ARITHMETIC, FLOOR_DIVIDE),
    function!("aclnnFloorDivides", [SELF: ARITHMETIC], [OTHER_SCALAR] -> OUT: ARITHMETIC, ScalarPromotion::Yes,
        with_scalar!(FLOOR_DIVIDE)
    ),
    function!("aclnnRemainderTensorTensor", [SELF: NUMBER, OTHER: NUMBER], [] -> OUT: NUMBER, REMAINDER),
    function!("aclnnRemainderTensorScalar", [SELF: ARITHMETIC], [OTHER_SCALAR] -> OUT: NUMBER, ScalarPromotion::Yes,
        with_scalar!(REMAINDER)
    ),
    of_scalar!("aclnnRemainderScalarTensor", SELF_SCALAR, OTHER: NUMBER, of_scalar_first!(REMAINDER)),
    function!("aclnnFmodTensor", [SELF: NUMBER, OTHER: NUMBER], [] -> OUT: NUMBER, FMOD),
    function!("aclnnFmodScalar", [SELF: ARITHMETIC], [OTHER_SCALAR] -> OUT: NUMBER, ScalarPromotion::Yes, with_scalar!(FMOD)),
    function!("aclnnPowTensorTensor", [SELF: NUMBER, EXPONENT: NUMBER], [] -> OUT: NUMBER, POWER),
    of_scalar!("aclnnPowScalarTensor", SELF_SCALAR, EXPONENT: NUMBER, of_scalar_first!(POWER)),
    function!("aclnnPowTensorScalar", [SELF: ARITHMETIC], [EXPONENT_SCALAR] -> OUT: NUMBER, ScalarPromotion::Yes,
        with_scalar!(POWER)
    ),
    function!("aclnnBitwiseAndTensor", [SELF: WHOLE, OTHER: WHOLE], [] -> OUT: WHOLE, whole(|[x, y], _| x & y)),
    function!("aclnnBitwiseOrTensor", [SELF: WHOLE, OTHER: WHOLE], [] -> OUT: WHOLE, whole(|[x, y], _| x | y)),
    function!("aclnnBitwiseXorTensor", [SELF: WHOLE, OTHER: WHOLE], [] -> OUT: WHOLE, whole(|[x, y], _| x ^ y)),
    function!("aclnnRightShift", [INPUT: SHIFTABLE, SHIFT_BITS: SHIFTABLE], [] -> OUT: SHIFTABLE,
        // Other shift counts shift out all bits.
        whole(|[x, y], _| x >> if (0..64).contains(&y) { y } else { 63 })
    ),
    function!("aclnnBitwiseAndScalar", [SELF: WHOLE], [OTHER_SCALAR] -> OUT: WHOLE, ScalarPromotion::Yes,
        whole(|[x], p| x & p[0])
    ),
    function!("aclnnBitwiseOrScalar", [SELF: WHOLE], [OTHER_SCALAR] -> OUT: WHOLE, ScalarPromotion::Yes,
        whole(|[x], p| x | p[0])
    ),
    function!("aclnnBitwiseXorScalar", [SELF: WHOLE], [OTHER_SCALAR] -> OUT: WHOLE, ScalarPromotion::Yes,
        whole(|[x], p| x ^ p[0])
    ),
    function!("aclnnLogicalXor", [SELF: ARITHMETIC, OTHER: ARITHMETIC], [] -> OUT: ARITHMETIC, Function {
        single: |[x, y], _| f32::from(u8::from((x != 0.0) != (y != 0.0))),
        double: |[x, y], _| f64::from(u8::from((x != 0.0) != (y != 0.0))),
        whole: Some(|[x, y], _| i64::from((x != 0) != (y != 0))),
        is_truth: true,
    }),
    function!("aclnnLogAddExp", [SELF: REAL, OTHER: REAL], [] -> OUT: REAL, LOG_ADD_EXP),
    function!("aclnnXLogYTensor", [SELF: ARITHMETIC, OTHER: ARITHMETIC], [] -> OUT: REAL, X_LOG_Y),
    function!("aclnnXLogYScalarOther", [SELF: ARITHMETIC], [OTHER_SCALAR] -> OUT: REAL, ScalarPromotion::Yes,
        with_scalar!(X_LOG_Y)
    ),
    function!("aclnnClampMinTensor", [SELF: NUMBER, CLIP_VALUE_MIN_TENSOR: NUMBER], [] -> OUT: NUMBER, MAXIMUM),
    function!("aclnnClampMaxTensor", [SELF: NUMBER, MAX: NUMBER], [] -> OUT: NUMBER, MINIMUM),
    Operator {
        name: "aclnnClampTensor",
        parameters: &[
            input(SELF, NUMBER, 0, 8),
            input(CLIP_VALUE_MIN_TENSOR, NUMBER, 0, 8).optional(),
            input(CLIP_VALUE_MAX_TENSOR, NUMBER, 0, 8).optional(),
            output(OUT, NUMBER, 0, 8),
        ],
        limits: "at least one bound; the tensors broadcast to the output, which can store their common type",
        source: "CANN 8.1 aclnn API reference, aclnnClampTensor",
        plan: clamp_tensor,
    },
    function!("aclnnRsub", [SELF: NUMBER, OTHER: NUMBER], [ALPHA] -> OUT: NUMBER, numbers!(
        |[x, y], p| y - p[0] * x, |[x, y], p| y.wrapping_sub(p[0].wrapping_mul(x))
    )),
    function!("aclnnRsubs", [SELF: NUMBER], [OTHER_SCALAR, ALPHA] -> OUT: NUMBER, ScalarPromotion::Yes, numbers!(
        |[x], p| p[0] - p[1] * x, |[x], p| p[0].wrapping_sub(p[1].wrapping_mul(x))
    )),
    function!("aclnnTanhBackward", [GRAD_OUTPUT: REAL, OUTPUT: REAL], [] -> GRAD_INPUT: REAL,
        reals!(|[g, y], _| g * (1.0 - y * y))
    ),
    function!("aclnnSigmoidBackward", [GRAD_OUTPUT: REAL, OUTPUT: REAL], [] -> GRAD_INPUT: REAL,
        reals!(|[g, y], _| g * (1.0 - y) * y)
    ),
    function!("aclnnThresholdBackward", [GRAD_OUTPUT: NUMBER, SELF: NUMBER], [THRESHOLD] -> OUT: NUMBER, numbers!(
        |[g, x], p| if x <= p[0] { 0.0 } else { g },
        |[g, x], p| if x <= p[0] { 0 } else { g }
    )),
    function!("aclnnHardsigmoidBackward", [GRAD_OUTPUT: REAL, SELF: REAL], [] -> OUT: REAL, reals!(
        |[g, x], _| if x > -3.0 && x < 3.0 { g / 6.0 } else { 0.0 }
    )),
    function!("aclnnHardswishBackward", [GRAD_OUTPUT: REAL, SELF: REAL], [] -> OUT: REAL,
        reals!(|[g, x], _| if x < -3.0 {
        0.0
    } else if x <= 3.0 {
        g * (x / 3.0 + 0.5)
    } else {
        g
    })),
    function!("aclnnHardtanhBackward", [GRAD_OUTPUT: REAL, SELF: REAL], [MIN_SCALAR, MAX_SCALAR] -> OUT: REAL, reals!(
        |[g, x], p| if x <= p[0] || x >= p[1] { 0.0 } else { g }
    )),
    function!("aclnnSoftplusBackward", [GRAD_OUTPUT: REAL, SELF: REAL], [BETA, THRESHOLD] -> GRAD_INPUT: REAL, reals!(
        |[g, x], p| if x * p[0] > p[1] { g } else { g / (1.0 + (-x * p[0]).exp()) }
    )),
    function!("aclnnSoftshrinkBackward", [GRAD_OUTPUT: REAL, SELF: REAL], [LAMBDA] -> GRAD_INPUT: REAL, reals!(
        |[g, x], p| if x.abs() <= p[0] { 0.0 } else { g }
    )),
    function!("aclnnGeluBackward", [GRAD_OUTPUT: REAL, SELF: REAL], [] -> GRAD_INPUT: REAL, TANH_GELU_GRAD),
    Operator {
        name: "aclnnGeluV2",
        parameters: &[input(X, REAL, 0, 8), output(Y, REAL, 0, 8)],
        limits: "y has the shape of x; approximate is 0 (error function) or 1 (tanh)",
        source: "CANN 8.1 aclnn API reference, aclnnGeluV2",
        plan: |call| match call.int(APPROXIMATE_INT)? {
            0 => pointwise(call, [X], &[], Y, ScalarPromotion::No, GELU),
            1 => pointwise(call, [X], &[], Y, ScalarPromotion::No, TANH_GELU),
            other => Err(call.refuse(APPROXIMATE_INT, format!("expected 0 or 1, found {other}"))),
        },
    },
    Operator {
        name: "aclnnGeluBackwardV2",
        parameters: &[
            input(GRAD_OUTPUT, REAL, 0, 8),
            input(SELF, REAL, 0, 8),
            output(GRAD_INPUT, REAL, 0, 8),
        ],
        limits: "gradOutput and self broadcast to gradInput; approximate is none or tanh",
        source: "CANN 8.1 aclnn API reference, aclnnGeluBackwardV2",
        plan: |call| match call.text(APPROXIMATE)? {
            "none" => pointwise(call, [GRAD_OUTPUT, SELF], &[], GRAD_INPUT, ScalarPromotion::No, GELU_GRAD),
            "tanh" => {
                pointwise(call, [GRAD_OUTPUT, SELF], &[], GRAD_INPUT, ScalarPromotion::No, TANH_GELU_GRAD)
            }
            other => Err(call.refuse(APPROXIMATE, format!("expected none or tanh, found {other}"))),
        },
    },
];

/// Rule whether scalars take part in type promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarPromotion {
    Yes,
    No,
}

/// Selects the lane's form of a function.
pub(crate) trait Applied: Lane {
    fn form<const N: usize>(function: &Function<N>) -> Option<ScalarFunction<Self, N>>;
}

impl Applied for f32 {
    fn form<const N: usize>(function: &Function<N>) -> Option<ScalarFunction<Self, N>> {
        Some(function.single)
    }
}

impl Applied for f64 {
    fn form<const N: usize>(function: &Function<N>) -> Option<ScalarFunction<Self, N>> {
        Some(function.double)
    }
}

impl Applied for i64 {
    fn form<const N: usize>(function: &Function<N>) -> Option<ScalarFunction<Self, N>> {
        function.whole
    }
}

impl<const N: usize> Function<N> {
    /// Returns the compute type for operands of this common type.
    pub(crate) fn computed_in(&self, common: AclType) -> AclType {
        if common.lane() == LaneKind::Integer && self.whole.is_none() { AclType::F32 } else { common }
    }

    /// The views broadcast to `out`.
    pub(crate) fn run(
        self,
        tiles: &dyn Tiles,
        views: [&StridedView; N],
        scalars: &[Scalar],
        computed: AclType,
        out: &StridedView,
    ) {
        with_lane!(computed, L => if let Some(function) = L::form(&self) {
            let scalars: Vec<L> = scalars.iter().map(|scalar| scalar.lane()).collect();
            map_all::<L, N>(tiles, views, out, |values| function(values, &scalars), |block| settle(block, computed, out.dtype()));
        });
    }
}

pub(crate) fn pointwise<const N: usize>(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; N],
    scalars: &[Name<Scalar>],
    out: Name<CheckedTensor>,
    widens: ScalarPromotion,
    function: Function<N>,
) -> Result<CallPlan, Refusal> {
    let values = scalars.iter().map(|&name| call.scalar(name)).collect::<Result<Vec<_>, _>>()?;
    let widening = values.first().filter(|_| widens == ScalarPromotion::Yes).map(|scalar| scalar.dtype());
    let computed = function.computed_in(common_type(call, names, widening)?);
    for (name, value) in scalars.iter().zip(&values) {
        // As in PyTorch, bounds are truncated to integers; a truncated factor would give other
        // results.
        let is_factor = name.text() == ALPHA.text();
        if is_factor && computed.lane() == LaneKind::Integer && value.dtype().is_float() {
            return Err(
                call.refuse(*name, format!("a factor of type {} cannot scale {computed}", value.dtype()))
            );
        }
    }
    planned(call, names, values, out, computed, function)
}

fn clamp_tensor(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (low, high) = (CLIP_VALUE_MIN_TENSOR, CLIP_VALUE_MAX_TENSOR);
    match (call.tensor_if_given(low)?, call.tensor_if_given(high)?) {
        (Some(_), Some(_)) => {
            const BOTH: Function<3> = numbers!(
                |[x, y, z], _| {
                    let raised = greatest!(x, y);
                    least!(raised, z)
                },
                |[x, y, z], _| x.max(y).min(z)
            );
            pointwise_of(call, [SELF, low, high], &[], OUT, BOTH)
        }
        (Some(_), None) => pointwise_of(call, [SELF, low], &[], OUT, MAXIMUM),
        (None, Some(_)) => pointwise_of(call, [SELF, high], &[], OUT, MINIMUM),
        (None, None) => Err(call.refuse(low, "and clipValueMax are both NULL: pass at least one bound")),
    }
}

pub(crate) fn pointwise_of<const N: usize>(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; N],
    scalars: &[Scalar],
    out: Name<CheckedTensor>,
    function: Function<N>,
) -> Result<CallPlan, Refusal> {
    planned(
        call,
        names,
        scalars.to_vec(),
        out,
        function.computed_in(common_type(call, names, None)?),
        function,
    )
}

fn common_type<const N: usize>(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; N],
    scalar: Option<AclType>,
) -> Result<AclType, Refusal> {
    let mut common: Option<AclType> = None;
    for name in names {
        let tensor = call.tensor(name)?;
        common = Some(match common {
            None => tensor.dtype,
            Some(before) => before.promote(tensor.dtype).ok_or_else(|| {
                call.refuse(
                    name,
                    format!("{} has no common type with {before} of those before it", tensor.dtype),
                )
            })?,
        });
    }
    let common = common.unwrap_or(AclType::F32);
    Ok(scalar.map_or(common, |scalar| with_scalar_type(common, scalar)))
}

fn planned<const N: usize>(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; N],
    scalars: Vec<Scalar>,
    out: Name<CheckedTensor>,
    computed: AclType,
    function: Function<N>,
) -> Result<CallPlan, Refusal> {
    let mut shape = Vec::new();
    for name in names {
        let tensor = call.tensor(name)?;
        shape = crate::operator::call::broadcast(&shape, &tensor.dims).ok_or_else(|| {
            call.refuse(
                name,
                format!("{:?} does not broadcast with {shape:?} of those before it", tensor.dims),
            )
        })?;
    }
    call.expect_shape(out, &shape, "to which the tensors broadcast")?;
    if !function.is_truth {
        call.expect_cast(out, computed)?;
    }
    let mut slots = [call.tensor(out)?.slot; N];
    for (slot, name) in slots.iter_mut().zip(names) {
        *slot = call.tensor(name)?.slot;
    }
    let out = call.tensor(out)?.slot;
    CallPlan::new(move |views, tiles| {
        function.run(tiles, slots.map(|slot| views.of(slot)), &scalars, computed, views.of(out));
        Ok(())
    })
}
