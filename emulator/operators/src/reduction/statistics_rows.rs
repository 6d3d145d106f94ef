//! One-pass reductions: any, all, minimum, product, variance, norm.

use crate::lane::{Arithmetic, Lane, with_lane};
use crate::math;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{ARITHMETIC, FLOATING, NUMBER};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels as reduce;
use crate::reduction::rows::{dims, reduced_len, reduced_shape};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAny",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            ints(DIM_ARRAY).optional(),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "no dims means all",
        source: "CANN 8.1 aclnn API reference, aclnnAny",
        plan: |call| truth(call, Quantifier::Any),
    },
    Operator {
        name: "aclnnAll",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            ints(DIM_ARRAY).optional(),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "no dims means all",
        source: "CANN 8.1 aclnn API reference, aclnnAll",
        plan: |call| truth(call, Quantifier::All),
    },
    Operator {
        name: "aclnnAmin",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            ints(DIM_ARRAY).optional(),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "no dims means all; the reduced dims are not empty; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAmin",
        plan: |call| least(call, ReducedDims::named(call, DIM_ARRAY, KEEP_DIM)?),
    },
    Operator {
        name: "aclnnMin",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 1)],
        limits: "self is not empty; out has one element and the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnMin",
        plan: |call| least(call, ReducedDims::all(call)?),
    },
    Operator {
        name: "aclnnProd",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, NUMBER, 0, 1)],
        limits: "out has one element and the type dtype; self is converted to dtype before the product",
        source: "CANN 8.1 aclnn API reference, aclnnProd",
        plan: |call| product(call, ReducedDims::all(call)?),
    },
    Operator {
        name: "aclnnProdDim",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "out has the type dtype; self is converted to dtype before the product",
        source: "CANN 8.1 aclnn API reference, aclnnProdDim",
        plan: |call| {
            let rank = call.tensor(SELF)?.rank();
            let dim = call.dim(DIM, rank)?;
            product(
                call,
                ReducedDims::some(
                    call,
                    (0..rank).filter(|&other| other == dim).collect(),
                    call.flag(KEEP_DIM)?,
                )?,
            )
        },
    },
    Operator {
        name: "aclnnVar",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "no dims means all; the divisor is the number of elements, minus one if unbiased",
        source: "CANN 8.1 aclnn API reference, aclnnVar",
        plan: |call| spread(call, i64::from(call.flag(UNBIASED)?), |variance| variance),
    },
    Operator {
        name: "aclnnVarCorrection",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "no dims means all; the divisor is the number of elements minus correction",
        source: "CANN 8.1 aclnn API reference, aclnnVarCorrection",
        plan: |call| spread(call, call.int(CORRECTION)?, |variance| variance),
    },
    Operator {
        name: "aclnnStd",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "no dims means all; the divisor is the number of elements minus correction",
        source: "CANN 8.1 aclnn API reference, aclnnStd",
        plan: |call| spread(call, call.int(CORRECTION)?, f32::sqrt),
    },
    Operator {
        name: "aclnnLinalgVectorNorm",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIMS).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "no dims means all; ord may be 0 or infinite with either sign; out has the type dtype",
        source: "CANN 8.1 aclnn API reference, aclnnLinalgVectorNorm",
        plan: |call| {
            call.expect_dtype(OUT, call.data_type(DTYPE)?, "the attribute dtype")?;
            norm(call, call.scalar(ORD)?.as_f64() as f32, ReducedDims::named(call, DIMS, KEEP_DIMS)?)
        },
    },
    Operator {
        name: "aclnnNorm",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "no dims means all; pScalar may be 0 or infinite with either sign",
        source: "CANN 8.1 aclnn API reference, aclnnNorm",
        plan: |call| {
            norm(call, call.scalar(P_SCALAR)?.as_f64() as f32, ReducedDims::named(call, DIM_ARRAY, KEEPDIM)?)
        },
    },
    Operator {
        name: "aclnnLogSumExp",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "no dims means all",
        source: "CANN 8.1 aclnn API reference, aclnnLogSumExp",
        plan: |call| {
            reduced::<f32>(call, ReducedDims::named(call, DIM_ARRAY, KEEP_DIM)?, |row| {
                let shift = math::greatest(row);
                let shift = if shift.is_finite() { shift } else { 0.0 };
                let mut powers = row.to_vec();
                math::exp_shifted(&mut powers, shift).ln() + shift
            })
        },
    },
];

struct ReducedDims {
    dims: Vec<usize>,
    count: usize,
}

impl ReducedDims {
    /// Reads the dims from an array and checks the output shape.
    fn named(call: &OperatorCall, names: Name<[i64]>, keep: Name<bool>) -> Result<Self, Refusal> {
        let dims = dims(call, names, call.tensor(SELF)?.rank())?;
        Self::some(call, dims, call.flag(keep)?)
    }

    fn some(call: &OperatorCall, dims: Vec<usize>, keep: bool) -> Result<Self, Refusal> {
        let x = call.tensor(SELF)?;
        call.expect_shape(OUT, &reduced_shape(&x.dims, &dims, keep), "of self without the reduced dims")?;
        Ok(Self { count: reduced_len(&x.dims, &dims), dims })
    }

    /// Reduces all dims to a one-element output.
    fn all(call: &OperatorCall) -> Result<Self, Refusal> {
        let (x, out) = (call.tensor(SELF)?, call.tensor(OUT)?);
        if out.len() != 1 {
            return Err(call.refuse(OUT, format!("expected one element, found {:?}", out.dims)));
        }
        Ok(Self { dims: (0..x.rank()).collect(), count: x.len() })
    }
}

fn reduced<L: Lane>(
    call: &OperatorCall,
    over: ReducedDims,
    function: impl Fn(&[L]) -> L + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    let (x, out): (&CheckedTensor, &CheckedTensor) = (call.tensor(SELF)?, call.tensor(OUT)?);
    let (x, out) = (x.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(x), &over.dims);
        reduce::each_row::<L>(tiles, &rows, over.count, views.of(out), &function);
        Ok(())
    })
}

#[derive(Clone, Copy, Debug)]
enum Quantifier {
    Any,
    All,
}

fn truth(call: &OperatorCall, quantifier: Quantifier) -> Result<CallPlan, Refusal> {
    let over = ReducedDims::named(call, DIM_ARRAY, KEEPDIM)?;
    with_lane!(call.tensor(SELF)?.dtype, L => reduced::<L>(call, over, move |row| {
        let is_true = |value: &L| *value != L::default();
        L::from_bool(match quantifier {
            Quantifier::Any => row.iter().any(is_true),
            Quantifier::All => row.iter().all(is_true),
        })
    }))
}

fn least(call: &OperatorCall, over: ReducedDims) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    if over.count == 0 {
        return Err(
            call.refuse(SELF, format!("an empty dim has no minimum: {:?} over dims {:?}", x.dims, over.dims))
        );
    }
    with_lane!(x.dtype, L => reduced::<L>(call, over, |row| {
        let least = |least: L, value: L| if value < least || value.is_nan() { value } else { least };
        row.iter().copied().reduce(least).unwrap_or_default()
    }))
}

fn product(call: &OperatorCall, over: ReducedDims) -> Result<CallPlan, Refusal> {
    let (x, computed) = (call.tensor(SELF)?, call.data_type(DTYPE)?);
    call.expect_dtype(OUT, computed, "the attribute dtype")?;
    if x.dtype.is_float() && !computed.is_float() {
        return Err(call.refuse(DTYPE, format!("{computed} cannot hold a product of {}", x.dtype)));
    }
    with_lane!(computed, L => reduced::<L>(call, over, |row| {
        row.iter().fold(L::from_i64(1), |product, value| product.times(*value))
    }))
}

/// `correction` reduces the divisor.
pub(crate) fn variance(row: &[f32], correction: i64) -> f32 {
    let mean = math::sum(row) / row.len() as f32;
    let squares: Vec<f32> = row.iter().map(|value| (value - mean) * (value - mean)).collect();
    // NaN or infinity without degrees of freedom.
    math::sum(&squares) / (row.len() as i64 - correction).max(0) as f32
}

fn spread(call: &OperatorCall, correction: i64, finish: fn(f32) -> f32) -> Result<CallPlan, Refusal> {
    reduced::<f32>(call, ReducedDims::named(call, DIM_ARRAY, KEEPDIM)?, move |row| {
        finish(variance(row, correction))
    })
}

fn norm(call: &OperatorCall, order: f32, over: ReducedDims) -> Result<CallPlan, Refusal> {
    if order == f32::NEG_INFINITY && over.count == 0 {
        return Err(call.refuse(SELF, "an empty dim has no smallest magnitude"));
    }
    let magnitude = |pick: fn(f32, f32) -> bool| {
        move |least: f32, value: f32| {
            if pick(value.abs(), least) || value.is_nan() { value.abs() } else { least }
        }
    };
    reduced::<f32>(call, over, move |row| {
        if order == 2.0 {
            math::sum_of_squares(row).sqrt()
        } else if order == 1.0 {
            math::sum(&row.iter().map(|value| value.abs()).collect::<Vec<_>>())
        } else if order == 0.0 {
            row.iter().filter(|value| **value != 0.0).count() as f32
        } else if order == f32::INFINITY {
            row.iter().copied().fold(0.0, magnitude(|value, best| value > best))
        } else if order == f32::NEG_INFINITY {
            row.iter().copied().fold(f32::INFINITY, magnitude(|value, best| value < best))
        } else {
            math::sum(&row.iter().map(|value| value.abs().powf(order)).collect::<Vec<_>>()).powf(1.0 / order)
        }
    })
}
