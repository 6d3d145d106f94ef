//! Activations with attributes, gates, and activation gradients.

use crate::dtype::AclType;
use crate::elementwise::kernels as elementwise;
use crate::elementwise::pointwise::{
    DIVIDE, FLOOR_DIVIDE, Function, GELU, SCALED_PLUS, ScalarPromotion, TANH_GELU, X_LOG_Y, function,
    numbers, of_scalar, of_scalar_first, pointwise, pointwise_of, reals, whole, with_scalar,
};
use crate::gradient::rows::expect_same;
use crate::lane::{Arithmetic, Lane, with_lane};
use crate::operator::argument::{CheckedTensor, Scalar};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output, scalar, text};
use crate::operator::sets::{ARITHMETIC, FLOATING, NUMBER, REAL, WHOLE};
use crate::operator::{CallPlan, Refusal};
use crate::view::StridedView;

const SWISH: Function<1> = reals!(|[x], p| x / (1.0 + (-p[0] * x).exp()));
const SWISH_GRAD: Function<2> = reals!(|[g, x], p| {
    let share = 1.0 / (1.0 + (-p[0] * x).exp());
    g * share * (1.0 + p[0] * x * (1.0 - share))
});
const ERFINV: Function<1> = Function {
    single: |[x], _| inverse_erf(f64::from(x)) as f32,
    double: |[x], _| inverse_erf(x),
    whole: None,
    is_truth: false,
};
/// From the output of SELU.
const SELU_GRAD: Function<2> = Function {
    single: |[g, y], _| (SELU_GRAD.double)([f64::from(g), f64::from(y)], &[]) as f32,
    double: |[g, y], _| if y > 0.0 { g * 1.050_700_987_355_480_5 } else { g * (y + 1.758_099_340_847_376_6) },
    whole: None,
    is_truth: false,
};
macro_rules! gate {
    ($function:ident) => {
        Function {
            single: |[x, y], _| y * ($function.single)([x], &[]),
            double: |[x, y], _| y * ($function.double)([x], &[]),
            whole: None,
            is_truth: false,
        }
    };
}
/// The quotient is truncated towards zero.
const CUT_DIVIDE: Function<2> =
    numbers!(|[x, y], _| (x / y).trunc(), |[x, y], _| if y == 0 { 0 } else { x.wrapping_div(y) });

/// Computes the inverse error function: an estimate (Winitzki, "A handy approximation for the error
/// function and its inverse", 2008) and Newton steps.
fn inverse_erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 1.0 {
        return f64::NAN;
    }
    if x.abs() == 1.0 {
        return f64::INFINITY.copysign(x);
    }
    let log = (1.0 - x * x).ln();
    let half = 2.0 / (std::f64::consts::PI * 0.147) + log / 2.0;
    let mut root = ((half * half - log / 0.147).sqrt() - half).sqrt().copysign(x);
    for _ in 0..3 {
        // `erfc` keeps the digits that `erf` loses near the ends.
        let above = if root.abs() > 1.0 {
            (1.0 - x.abs() - libm::erfc(root.abs())) * x.signum()
        } else {
            libm::erf(root) - x
        };
        root -= above * (root * root).exp() * std::f64::consts::PI.sqrt() / 2.0;
    }
    root
}

/// `log2(2^x + 2^y)` without a difference of equal infinities.
const LOG_ADD_EXP2: Function<2> = Function {
    single: |[x, y], _| (LOG_ADD_EXP2.double)([f64::from(x), f64::from(y)], &[]) as f32,
    double: |[x, y], _| {
        let apart = if x == y { 0.0 } else { (x - y).abs() };
        x.max(y) + (-apart).exp2().ln_1p() * std::f64::consts::LOG2_E
    },
    whole: None,
    is_truth: false,
};
const ROUNDED: &[AclType] =
    &[AclType::F32, AclType::F16, AclType::BF16, AclType::F64, AclType::I32, AclType::I64];
const COUNTS: &[AclType] = &[AclType::U8, AclType::I8, AclType::I16, AclType::I32, AclType::I64];

fn greatest_divisor(x: i64, y: i64) -> i64 {
    let (mut a, mut b) = (x.unsigned_abs(), y.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// A gradient row with tensors of one type: second operand, parameters before the result, scalars,
/// limits and function.
macro_rules! alike {
    ($name:literal, $operand:ident, [$($between:expr),*], [$($scalar:path),*], $limits:literal, $function:expr) => {
        Operator {
            name: $name,
            parameters: &[
                input(GRAD_OUTPUT, FLOATING, 0, 8),
                input($operand, FLOATING, 0, 8),
                $($between,)*
                output(GRAD_INPUT, FLOATING, 0, 8),
            ],
            limits: concat!("one element type and shape", $limits),
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| {
                expect_same(call, GRAD_OUTPUT, &[$operand, GRAD_INPUT])?;
                pointwise_of(call, [GRAD_OUTPUT, $operand], &[$($scalar(call)?),*], GRAD_INPUT, $function)
            },
        }
    };
}

pub(crate) const OPERATORS: &[Operator] = &[
    function!("aclnnErfinv", [SELF: REAL], [] -> OUT: REAL, ERFINV),
    function!("aclnnCelu", [SELF: REAL], [ALPHA] -> OUT: REAL,
        reals!(|[x], p| if x > 0.0 { x } else { p[0] * (x / p[0]).exp_m1() })
    ),
    function!("aclnnShrink", [SELF: REAL], [LAMBD, BIAS_SCALAR] -> OUT: REAL, reals!(|[x], p| if x > p[0] {
        x - p[1]
    } else if x < -p[0] {
        x + p[1]
    } else {
        x * 0.0
    })),
    function!("aclnnLogAddExp2", [SELF: REAL, OTHER: REAL], [] -> OUT: REAL, LOG_ADD_EXP2),
    Operator {
        name: "aclnnAddRelu",
        parameters: &[input(SELF, NUMBER, 0, 8), input(OTHER, NUMBER, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "the tensors broadcast to the output, which can store their common type",
        source: "CANN 8.1 aclnn API reference, aclnnAddRelu",
        plan: |call| {
            // For its checks: the sum is rounded to its type before its sign is tested.
            pointwise(call, [SELF, OTHER], &[ALPHA], OUT, ScalarPromotion::No, SCALED_PLUS)?;
            let computed = call.promote(SELF, OTHER)?;
            let alpha = call.scalar(ALPHA)?.stored_as(computed);
            let slot = |name: Name<CheckedTensor>| call.tensor(name).map(|tensor| tensor.slot);
            let [x, y, out] = [slot(SELF)?, slot(OTHER)?, slot(OUT)?];
            CallPlan::new(move |views, tiles| {
                with_lane!(computed, L => elementwise::map2::<L>(tiles, views.of(x), views.of(y), views.of(out), |x, y| {
                    elementwise::zip(x, y, |x, y| {
                        let sum = x.plus(y.times(alpha.lane())).rounded(computed);
                        if sum < L::default() { L::default() } else { sum }
                    });
                }));
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnGcd",
        parameters: &[input(SELF, COUNTS, 0, 8), input(OTHER, COUNTS, 0, 8), output(OUT, WHOLE, 0, 8)],
        limits: "self and other broadcast to out; their common type is INT16, INT32 or INT64",
        source: "CANN 8.1 aclnn API reference, aclnnGcd",
        plan: |call| {
            let common = call.promote(SELF, OTHER)?;
            if !matches!(common, AclType::I16 | AclType::I32 | AclType::I64) {
                return Err(
                    call.refuse(OTHER, format!("expected a common type of 16 to 64 bits, found {common}"))
                );
            }
            pointwise(
                call,
                [SELF, OTHER],
                &[],
                OUT,
                ScalarPromotion::No,
                whole(|[x, y], _| greatest_divisor(x, y)),
            )
        },
    },
    of_scalar!("aclnnXLogYScalarSelf", SELF_SCALAR, OTHER: REAL, of_scalar_first!(X_LOG_Y)),
    function!("aclnnHardshrinkBackward", [GRAD_OUTPUT: FLOATING, SELF: FLOATING], [LAMBD] -> GRAD_INPUT: FLOATING, reals!(
        |[g, x], p| if x.abs() <= p[0] { 0.0 } else { g }
    )),
    alike!(
        "aclnnMishBackward",
        SELF,
        [],
        [],
        "",
        reals!(|[g, x], _| {
            let (gate, share) = (x.exp().ln_1p().tanh(), 1.0 / (1.0 + (-x).exp()));
            g * (gate + x * share * (1.0 - gate * gate))
        })
    ),
    alike!("aclnnSeluBackward", RESULT, [], [], "", SELU_GRAD),
    alike!(
        "aclnnSwishBackward",
        SELF,
        [scalar(BETA_OPTIONAL).optional()],
        [beta],
        "; betaOptional NULL is 1",
        SWISH_GRAD
    ),
    alike!(
        "aclnnLogSigmoidBackward",
        SELF,
        [input(BUFFER, REAL, 0, 8)],
        [],
        "; buffer is not read",
        reals!(|[g, x], _| g / (1.0 + x.exp()))
    ),
    Operator {
        name: "aclnnEluBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 8),
            input(SELF_OR_RESULT, FLOATING, 0, 8),
            output(GRAD_INPUT, FLOATING, 0, 8),
        ],
        limits: "the tensors have one shape, the inputs one type; alpha is at least 0 if isResult is true",
        source: "CANN 8.1 aclnn API reference, aclnnEluBackward",
        plan: elu_grad,
    },
    Operator {
        name: "aclnnLeakyReluBackward",
        parameters: &[input(GRAD_OUTPUT, REAL, 0, 8), input(SELF, REAL, 0, 8), output(OUT, REAL, 0, 8)],
        limits: "gradOutput and self broadcast to out; negativeSlope is at least 0 if self is a result",
        source: "CANN 8.1 aclnn API reference, aclnnLeakyReluBackward",
        plan: |call| {
            let slope = call.scalar(NEGATIVE_SLOPE)?.as_f64();
            if call.flag(SELF_IS_RESULT)? && slope < 0.0 {
                return Err(
                    call.refuse(NEGATIVE_SLOPE, format!("expected at least 0 for a result, found {slope}"))
                );
            }
            let function = reals!(|[g, x], p| if x > 0.0 { g } else { g * p[0] });
            pointwise(call, [GRAD_OUTPUT, SELF], &[NEGATIVE_SLOPE], OUT, ScalarPromotion::No, function)
        },
    },
    Operator {
        name: "aclnnSwish",
        parameters: &[input(SELF, REAL, 0, 8), scalar(BETA_OPTIONAL).optional(), output(OUT, REAL, 0, 8)],
        limits: "out has the shape of self; betaOptional NULL is 1",
        source: "CANN 8.1 aclnn API reference, aclnnSwish",
        plan: |call| pointwise_of(call, [SELF], &[beta(call)?], OUT, SWISH),
    },
    Operator {
        name: "aclnnLogSigmoidForward",
        parameters: &[input(SELF, REAL, 0, 8), output(OUT, REAL, 0, 8), output(BUFFER, REAL, 0, 8)],
        limits: "out has the shape of self; buffer is not written",
        source: "CANN 8.1 aclnn API reference, aclnnLogSigmoidForward",
        plan: |call| {
            let function = reals!(|[x], _| x.min(0.0) - (-x.abs()).exp().ln_1p());
            pointwise(call, [SELF], &[], OUT, ScalarPromotion::No, function)
        },
    },
    Operator {
        name: "aclnnLogit",
        parameters: &[input(INPUT, REAL, 0, 8), output(OUT, REAL, 0, 8)],
        limits: "out has the shape of input; if eps is not negative, input is clamped to eps..1 - eps",
        source: "CANN 8.1 aclnn API reference, aclnnLogit",
        plan: |call| {
            let eps = Scalar::Float(call.float(EPS)?, AclType::F64);
            pointwise_of(
                call,
                [INPUT],
                &[eps],
                OUT,
                reals!(|[x], p| {
                    let held = if p[0] < 0.0 || x.is_nan() { x } else { x.max(p[0]).min(1.0 - p[0]) };
                    (held / (1.0 - held)).ln()
                }),
            )
        },
    },
    Operator {
        name: "aclnnLogitGrad",
        parameters: &[input(X, REAL, 0, 8), input(DY, REAL, 0, 8), output(OUT, REAL, 0, 8)],
        limits: "x and dy broadcast to out; the gradient is 0 where x is clamped, or NaN if eps is negative",
        source: "CANN 8.1 aclnn API reference, aclnnLogitGrad",
        plan: |call| {
            let eps = Scalar::Float(call.float(EPS)?, AclType::F64);
            pointwise_of(
                call,
                [X, DY],
                &[eps],
                OUT,
                reals!(|[x, g], p| {
                    let bound = if p[0] < 0.0 { 0.0 } else { p[0] };
                    if x < bound || x > 1.0 - bound {
                        if p[0] < 0.0 { (bound - 1.0).sqrt() } else { 0.0 }
                    } else {
                        g / (x * (1.0 - x))
                    }
                }),
            )
        },
    },
    Operator {
        name: "aclnnNanToNum",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnNanToNum",
        plan: |call| {
            call.expect_dtype(OUT, call.tensor(SELF)?.dtype, "the type of self")?;
            let float = |name: Name<f64>| call.float(name).map(|value| Scalar::Float(value, AclType::F64));
            let scalars = [float(NAN)?, float(POS_INF)?, float(NEG_INF)?];
            pointwise_of(
                call,
                [SELF],
                &scalars,
                OUT,
                numbers!(
                    |[x], p| if x.is_nan() {
                        p[0]
                    } else if x.is_finite() {
                        x
                    } else if x > 0.0 {
                        p[1]
                    } else {
                        p[2]
                    },
                    |[x], _| x
                ),
            )
        },
    },
    Operator {
        name: "aclnnRoundDecimals",
        parameters: &[input(SELF, ROUNDED, 0, 8), output(OUT, ROUNDED, 0, 8)],
        limits: "out has the shape and type of self; integers are copied, so decimals must be at least 0",
        source: "CANN 8.1 aclnn API reference, aclnnRoundDecimals",
        plan: |call| {
            let (decimals, x) = (call.int(DECIMALS)?, call.tensor(SELF)?);
            if decimals < 0 && !x.dtype.is_float() {
                return Err(
                    call.refuse(DECIMALS, format!("expected at least 0 for {}, found {decimals}", x.dtype))
                );
            }
            call.expect_dtype(OUT, x.dtype, "the type of self")?;
            let power = Scalar::Float(10f64.powi(decimals.unsigned_abs().min(400) as i32), AclType::F64);
            if decimals < 0 {
                pointwise_of(
                    call,
                    [SELF],
                    &[power],
                    OUT,
                    reals!(|[x], p| (x / p[0]).round_ties_even() * p[0]),
                )
            } else {
                let function = numbers!(|[x], p| (x * p[0]).round_ties_even() / p[0], |[x], _| x);
                pointwise_of(call, [SELF], &[power], OUT, function)
            }
        },
    },
    Operator {
        name: "aclnnDivMod",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out; mode is 0 (quotient), 1 (truncated) or 2 (floored)",
        source: "CANN 8.1 aclnn API reference, aclnnDivMod",
        plan: |call| pointwise(call, [SELF, OTHER], &[], OUT, ScalarPromotion::No, division(call)?),
    },
    Operator {
        name: "aclnnDivMods",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape of self; mode is 0 (quotient), 1 (truncated) or 2 (floored)",
        source: "CANN 8.1 aclnn API reference, aclnnDivMods",
        plan: |call| {
            let function = match call.int(MODE)? {
                1 => with_scalar!(CUT_DIVIDE),
                2 => with_scalar!(FLOOR_DIVIDE),
                _ => {
                    division(call)?;
                    with_scalar!(DIVIDE)
                }
            };
            pointwise(call, [SELF], &[OTHER_SCALAR], OUT, ScalarPromotion::Yes, function)
        },
    },
    Operator {
        name: "aclnnPrelu",
        parameters: &[
            input(SELF, REAL, 1, 8).or_scalar(),
            input(WEIGHT, REAL, 0, 8),
            output(OUT, REAL, 1, 8).or_scalar(),
        ],
        limits: "weight has the type of self, any dims, and one element or one per index of the second dim of self; \
                 out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnPrelu",
        plan: prelu,
    },
    Operator {
        name: "aclnnPreluBackward",
        parameters: &[
            input(GRAD_OUTPUT, REAL, 1, 8),
            input(SELF, REAL, 1, 8),
            input(WEIGHT, REAL, 0, 8),
            output(GRAD_INPUT, REAL, 1, 8),
            output(GRAD_WEIGHT, REAL, 0, 8),
        ],
        limits: "as aclnnPrelu; gradOutput and gradInput have the shape and type of self, gradWeight of weight",
        source: "CANN 8.1 aclnn API reference, aclnnPreluBackward",
        plan: prelu_grad,
    },
    Operator {
        name: "aclnnGlu",
        parameters: &[input(SELF, REAL, 1, 8), output(OUT, REAL, 1, 8)],
        limits: "dim of self has an even extent, halved in out",
        source: "CANN 8.1 aclnn API reference, aclnnGlu",
        plan: |call| gated(call, OUT, reals!(|[x, gate], _| x / (1.0 + (-gate).exp()))),
    },
    Operator {
        name: "aclnnGluBackward",
        parameters: &[input(GRAD_OUT, REAL, 1, 8), input(SELF, REAL, 1, 8), output(OUT, REAL, 1, 8)],
        limits: "dim of self has an even extent, halved in gradOut; out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnGluBackward",
        plan: glu_grad,
    },
    Operator {
        name: "aclnnGeGluV3",
        parameters: &[
            input(SELF, FLOATING, 1, 8),
            output(OUT, FLOATING, 1, 8),
            output(GELU_OUT, FLOATING, 1, 8),
        ],
        limits: "dim of self has an even extent, halved in out and outGelu; approximate is 0 (error function) or 1 \
                 (tanh)",
        source: "CANN 8.1 aclnn API reference, aclnnGeGluV3",
        plan: |call| ge_glu(call, GELU_OUT, call.flag(ACTIVATE_LEFT)?),
    },
    Operator {
        name: "aclnnGeGlu",
        parameters: &[
            input(SELF, FLOATING, 1, 8),
            output(OUT, FLOATING, 1, 8),
            output(GELU_OUT, FLOATING, 1, 8),
        ],
        limits: "as aclnnGeGluV3, whose right half is activated",
        source: "CANN 8.1 aclnn API reference, aclnnGeGlu",
        plan: |call| ge_glu(call, GELU_OUT, false),
    },
    function!("aclnnFastGelu", [SELF: FLOATING], [] -> OUT: FLOATING, reals!(|[x], _| x / (1.0 + (-1.702 * x).exp()))),
    function!("aclnnFastGeluBackward", [GRAD_OUTPUT: FLOATING, SELF: FLOATING], [] -> GRAD_INPUT: FLOATING, reals!(|[g, x], _| {
        let share = 1.0 / (1.0 + (-1.702 * x).exp());
        g * share * (1.0 + 1.702 * x * (1.0 - share))
    })),
    Operator {
        name: "aclnnGeluMul",
        parameters: &[input(INPUT, FLOATING, 2, 8), text(APPROXIMATE_OPTIONAL), output(OUT, FLOATING, 2, 8)],
        limits: "the last dim of input has an even extent, halved in out; out has the type of input; \
                 approximateOptional is none (NULL) or tanh",
        source: "CANN 8.1 aclnn API reference, aclnnGeluMul",
        plan: gelu_mul,
    },
    Operator {
        name: "aclnnInplaceFillTensor",
        parameters: &[in_place(SELF_REF, ARITHMETIC, 0, 8), input(VALUE, ARITHMETIC, 0, 1)],
        limits: "value has one element, which is converted to the type of selfRef",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceFillTensor",
        plan: fill,
    },
];

fn beta(call: &OperatorCall) -> Result<Scalar, Refusal> {
    Ok(call.scalar_if_given(BETA_OPTIONAL)?.unwrap_or(Scalar::Int(1, AclType::I64)))
}

fn division(call: &OperatorCall) -> Result<Function<2>, Refusal> {
    match call.int(MODE)? {
        0 => Ok(DIVIDE),
        1 => Ok(CUT_DIVIDE),
        2 => Ok(FLOOR_DIVIDE),
        other => Err(call.refuse(MODE, format!("expected 0, 1 or 2, found {other}"))),
    }
}

fn elu_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let scalars = [ALPHA, SCALE_SCALAR, INPUT_SCALE];
    let names = [GRAD_OUTPUT, SELF_OR_RESULT];
    let of_result = reals!(|[g, y], p| if y > 0.0 { g * p[1] } else { g * p[2] * (y + p[0] * p[1]) });
    let of_input =
        reals!(|[g, x], p| if x > 0.0 { g * p[1] } else { g * p[2] * p[0] * p[1] * (x * p[2]).exp() });
    let (grad, is_result, alpha) =
        (call.tensor(GRAD_OUTPUT)?, call.flag(IS_RESULT)?, call.scalar(ALPHA)?.as_f64());
    call.expect_shape(SELF_OR_RESULT, &grad.dims, "of gradOutput")?;
    call.expect_dtype(SELF_OR_RESULT, grad.dtype, "the type of gradOutput")?;
    // With a negative alpha, the result does not determine the input.
    if is_result && alpha < 0.0 {
        return Err(call.refuse(ALPHA, format!("expected at least 0 if isResult is true, found {alpha}")));
    }
    let function = if is_result { of_result } else { of_input };
    pointwise(call, names, &scalars, GRAD_INPUT, ScalarPromotion::No, function)
}

/// Returns the parametric `ReLU` weight, which broadcasts to `self`.
fn slopes(
    call: &OperatorCall,
) -> Result<impl Fn(&StridedView) -> StridedView + Send + Sync + 'static, Refusal> {
    let (x, weight) = (call.tensor(SELF)?, call.tensor(WEIGHT)?);
    call.expect_dtype(WEIGHT, x.dtype, "the type of self")?;
    let channels = x.dims.get(1).copied().unwrap_or(1);
    if weight.len() != 1 && weight.len() != channels {
        let text = format!(
            "expected 1 element or {channels}, one per index of the second dim, found {:?}",
            weight.dims
        );
        return Err(call.refuse(WEIGHT, text));
    }
    let rank = x.rank();
    Ok(move |weight: &StridedView| (2..rank).fold(weight.collapsed(), |view, _| view.unsqueeze(view.rank())))
}

fn prelu(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    let (spread, dtype) = (slopes(call)?, x.dtype);
    let (x, weight, out) = (x.slot, call.tensor(WEIGHT)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let function = reals!(|[x, slope], _| if x > 0.0 { x } else { x * slope });
        function.run(tiles, [views.of(x), &spread(views.of(weight))], &[], dtype, views.of(out));
        Ok(())
    })
}

fn prelu_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, weight) = (call.tensor(SELF)?, call.tensor(WEIGHT)?);
    for name in [GRAD_OUTPUT, GRAD_INPUT] {
        call.expect_shape(name, &x.dims, "of self")?;
    }
    call.expect_shape(GRAD_WEIGHT, &weight.dims, "of weight")?;
    for name in [GRAD_OUTPUT, GRAD_INPUT, GRAD_WEIGHT] {
        call.expect_dtype(name, x.dtype, "the type of self")?;
    }
    let (spread, dtype, count) = (slopes(call)?, x.dtype, weight.len());
    let slot = |name: Name<CheckedTensor>| call.tensor(name).map(|tensor| tensor.slot);
    let [x, weight, g] = [x.slot, weight.slot, slot(GRAD_OUTPUT)?];
    let (grad_input, grad_weight) = (slot(GRAD_INPUT)?, slot(GRAD_WEIGHT)?);
    CallPlan::new(move |views, tiles| {
        let (xs, gs) = (views.of(x), views.of(g));
        // Sums come first: gradInput may share memory with gradOutput.
        let mut sums = vec![0f64; count];
        let (mut values, mut grads) = (vec![0f64; xs.len()], vec![0f64; xs.len()]);
        f64::load(&xs.collapsed(), 0, &mut values);
        f64::load(&gs.collapsed(), 0, &mut grads);
        let inner: usize = xs.dims().iter().skip(2).product();
        for (i, (value, grad)) in values.iter().zip(&grads).enumerate() {
            let channel = if count == 1 { 0 } else { i / inner % count };
            sums[channel] += if *value > 0.0 { 0.0 } else { value * grad };
        }
        let function = reals!(|[g, x, slope], _| if x > 0.0 { g } else { g * slope });
        function.run(tiles, [gs, xs, &spread(views.of(weight))], &[], dtype, views.of(grad_input));
        f64::store(&views.of(grad_weight).collapsed(), 0, &sums);
        Ok(())
    })
}

fn half(call: &OperatorCall) -> Result<(usize, usize), Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    if !x.dims[dim].is_multiple_of(2) {
        return Err(call.refuse(SELF, format!("expected an even extent along dim {dim}, found {:?}", x.dims)));
    }
    Ok((dim, x.dims[dim] / 2))
}

fn expect_half(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    dim: usize,
    extent: usize,
) -> Result<(), Refusal> {
    let x = call.tensor(SELF)?;
    let mut expected = x.dims.clone();
    expected[dim] = extent;
    call.expect_shape(name, &expected, "of self with half of dim")?;
    call.expect_dtype(name, x.dtype, "the type of self")
}

/// The function gets both halves of `self`.
fn gated(call: &OperatorCall, out: Name<CheckedTensor>, function: Function<2>) -> Result<CallPlan, Refusal> {
    let (dim, extent) = half(call)?;
    expect_half(call, out, dim, extent)?;
    let (x, out) = (call.tensor(SELF)?, call.tensor(out)?.slot);
    let (dtype, x) = (x.dtype, x.slot);
    CallPlan::new(move |views, tiles| {
        let [left, right] = [0, extent].map(|start| views.of(x).slice(dim, start, extent, 1));
        function.run(tiles, [&left, &right], &[], dtype, views.of(out));
        Ok(())
    })
}

fn glu_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (dim, extent) = half(call)?;
    let x = call.tensor(SELF)?;
    expect_half(call, GRAD_OUT, dim, extent)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    let (dtype, x, g, out) = (x.dtype, x.slot, call.tensor(GRAD_OUT)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let [left, right] = [0, extent].map(|start| views.of(x).slice(dim, start, extent, 1));
        let [grad_left, grad_right] = [0, extent].map(|start| views.of(out).slice(dim, start, extent, 1));
        let of_left = reals!(|[g, gate], _| g / (1.0 + (-gate).exp()));
        let of_right = reals!(|[g, x, gate], _| {
            let share = 1.0 / (1.0 + (-gate).exp());
            g * x * share * (1.0 - share)
        });
        of_left.run(tiles, [views.of(g), &right], &[], dtype, &grad_left);
        of_right.run(tiles, [views.of(g), &left, &right], &[], dtype, &grad_right);
        Ok(())
    })
}

fn ge_glu(call: &OperatorCall, activated: Name<CheckedTensor>, left: bool) -> Result<CallPlan, Refusal> {
    let (dim, extent) = half(call)?;
    for name in [OUT, activated] {
        expect_half(call, name, dim, extent)?;
    }
    let (gelu, gated): (Function<1>, Function<2>) = match call.int(APPROXIMATE_INT)? {
        0 => (GELU, gate!(GELU)),
        1 => (TANH_GELU, gate!(TANH_GELU)),
        other => return Err(call.refuse(APPROXIMATE_INT, format!("expected 0 or 1, found {other}"))),
    };
    let x = call.tensor(SELF)?;
    let (dtype, x) = (x.dtype, x.slot);
    let (out, activated) = (call.tensor(OUT)?.slot, call.tensor(activated)?.slot);
    CallPlan::new(move |views, tiles| {
        let starts = if left { [0, extent] } else { [extent, 0] };
        let [gate, other] = starts.map(|start| views.of(x).slice(dim, start, extent, 1));
        gelu.run(tiles, [&gate], &[], dtype, views.of(activated));
        gated.run(tiles, [&gate, &other], &[], dtype, views.of(out));
        Ok(())
    })
}

fn gelu_mul(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let function: Function<2> = match call.text_if_given(APPROXIMATE_OPTIONAL)? {
        None | Some("none") => gate!(GELU),
        Some("tanh") => gate!(TANH_GELU),
        Some(other) => {
            return Err(call.refuse(APPROXIMATE_OPTIONAL, format!("expected none or tanh, found {other}")));
        }
    };
    let x = call.tensor(INPUT)?;
    let (dtype, last, mut expected) = (x.dtype, x.rank() - 1, x.dims.clone());
    if !expected[last].is_multiple_of(2) {
        return Err(call.refuse(INPUT, format!("expected an even last dim, found {:?}", x.dims)));
    }
    expected[last] /= 2;
    call.expect_dtype(OUT, dtype, "the type of input")?;
    call.expect_shape(OUT, &expected, "of input with half of the last dim")?;
    let (extent, x, out) = (expected[last], x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let [gate, other] = [0, extent].map(|start| views.of(x).slice(last, start, extent, 1));
        function.run(tiles, [&gate, &other], &[], dtype, views.of(out));
        Ok(())
    })
}

fn fill(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (target, value) = (call.tensor(SELF_REF)?, call.tensor(VALUE)?);
    if value.len() != 1 {
        return Err(call.refuse(VALUE, format!("expected one element, found {:?}", value.dims)));
    }
    let (target, value) = (target.slot, value.slot);
    CallPlan::new(move |views, tiles| {
        let value = views.of(value);
        let value = if value.rank() == 0 { value.clone() } else { value.at(0, 0) };
        elementwise::copy(tiles, &value, views.of(target));
        Ok(())
    })
}
