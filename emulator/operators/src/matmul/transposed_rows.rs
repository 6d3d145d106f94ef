//! Products with transposition attributes.

use crate::matmul::kernels::{self as matmul, SumScales};
use crate::matmul::rows::precision;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::{OperatorCall, broadcast};
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, HALVES};
use crate::operator::{CallPlan, Refusal};
use crate::view::StridedView;

/// Exclusive limit of extents.
const MOST: usize = 65_536;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnGemm",
        parameters: &[
            input(A_TENSOR, FLOATING, 2, 2),
            input(B_TENSOR, FLOATING, 2, 2),
            input(C_TENSOR, FLOATING, 2, 2),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "A [m, k], or [k, m] with transA not 0; B [k, n], or [n, k] with transB not 0; C broadcasts to out [m, n]; one element \
                 type; cubeMathType as aclnnMatmul",
        source: "ops-nn matmul/gemm/docs/aclnnGemm.md",
        plan: gemm,
    },
    Operator {
        name: "aclnnTransposeBatchMatMul",
        parameters: &[input(X1, FLOATING, 3, 3), input(X2, FLOATING, 3, 3), output(OUT, FLOATING, 3, 3)],
        limits: "x1 [B, M, K] for permX1 [0, 1, 2], [M, B, K] for [1, 0, 2]; x2 [B, K, N] for permX2 [0, 1, 2], [B, N, \
                 K] for [0, 2, 1], which requires permX1 [1, 0, 2] and batchSplitFactor 1; permY [1, 0, 2]; out [M, B, \
                 N], or [f, M, B / f * N] for a batchSplitFactor f that divides B; B and N from 1 to 65535, K at most \
                 65535, or B * K with permX1 [1, 0, 2] and f; one element type; cubeMathType 0 to 3 as aclnnMatmul",
        source: "ops-nn matmul/transpose_batch_mat_mul/docs/aclnnTransposeBatchMatMul.md",
        plan: transposed_batches,
    },
    Operator {
        name: "aclnnTransposeBatchMatMulWeightNz",
        parameters: &[
            input(X1, HALVES, 3, 3),
            input(X2, HALVES, 3, 3).or_blocked(),
            output(OUT, HALVES, 3, 3),
        ],
        limits: "as aclnnTransposeBatchMatMul; x2 in FRACTAL_NZ",
        source: "ops-nn matmul/transpose_batch_mat_mul, aclnnTransposeBatchMatMulWeightNz",
        plan: |call| call.expect_blocked(X2).and_then(|()| transposed_batches(call)),
    },
];

/// Returns the rows and columns, swapped if the flag is set.
fn turned(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    flag: Name<i64>,
) -> Result<([usize; 2], bool), Refusal> {
    let (dims, is_turned) = (&call.tensor(name)?.dims, call.int(flag)? != 0);
    Ok((if is_turned { [dims[1], dims[0]] } else { [dims[0], dims[1]] }, is_turned))
}

fn gemm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (a, b, c) = (call.tensor(A_TENSOR)?, call.tensor(B_TENSOR)?, call.tensor(C_TENSOR)?);
    for name in [B_TENSOR, C_TENSOR, OUT] {
        call.expect_dtype(name, a.dtype, "the type of A")?;
    }
    let (([m, k], turns_a), ([depth, n], turns_b)) =
        (turned(call, A_TENSOR, TRANS_A)?, turned(call, B_TENSOR, TRANS_B)?);
    if k != depth {
        let text =
            format!("expected a contracted dim of {k} as in A {:?}, found {depth} in {:?}", a.dims, b.dims);
        return Err(call.refuse(B_TENSOR, text));
    }
    call.expect_shape(OUT, &[m, n], "of the product")?;
    if broadcast(&c.dims, &[m, n]).as_deref() != Some(&[m, n]) {
        return Err(call.refuse(C_TENSOR, format!("{:?} does not broadcast to {:?}", c.dims, [m, n])));
    }
    let scales = SumScales { beta: call.float(BETA_FLOAT)? as f32, alpha: call.float(ALPHA_FLOAT)? as f32 };
    let precision = precision(call, a.dtype)?;
    let (a, b, c, out) = (a.slot, b.slot, c.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let turn = |view: &StridedView, is_turned| if is_turned { view.exchanged() } else { view.clone() };
        let (a, b) = (turn(views.of(a), turns_a), turn(views.of(b), turns_b));
        matmul::addmm(tiles, views.of(c), &a, &b, scales, precision, views.of(out));
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

/// Returns true for the second of two orders.
fn order(call: &OperatorCall, name: Name<[i64]>, orders: [&[i64]; 2]) -> Result<bool, Refusal> {
    let found = call.ints(name)?;
    let at = orders.iter().position(|order| *order == found);
    at.map(|at| at == 1).ok_or_else(|| {
        let expected = if orders[0] == orders[1] {
            format!("{:?}", orders[0])
        } else {
            format!("{:?} or {:?}", orders[0], orders[1])
        };
        call.refuse(name, format!("expected {expected}, found {found:?}"))
    })
}

fn transposed_batches(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x1, x2) = (call.tensor(X1)?, call.tensor(X2)?);
    for name in [X2, OUT] {
        call.expect_dtype(name, x1.dtype, "the type of x1")?;
    }
    let swaps_batch = order(call, PERM_X1, [&[0, 1, 2], &[1, 0, 2]])?;
    let swaps_columns = order(call, PERM_X2, [&[0, 1, 2], &[0, 2, 1]])?;
    order(call, PERM_Y, [&[1, 0, 2]; 2])?;
    let [batch, m] = if swaps_batch { [x1.dims[1], x1.dims[0]] } else { [x1.dims[0], x1.dims[1]] };
    let k = x1.dims[2];
    let [depth, n] = if swaps_columns { [x2.dims[2], x2.dims[1]] } else { [x2.dims[1], x2.dims[2]] };
    if x2.dims[0] != batch || depth != k {
        let text = format!(
            "expected {batch} matrices with {k} rows as x1 {:?} asks for, found {:?}",
            x1.dims, x2.dims
        );
        return Err(call.refuse(X2, text));
    }
    let factor = call.int(BATCH_SPLIT_FACTOR)?;
    let divides = usize::try_from(factor).is_ok_and(|factor| factor > 0 && batch.is_multiple_of(factor));
    if !divides {
        return Err(call.refuse(BATCH_SPLIT_FACTOR, format!("expected a divisor of {batch}, found {factor}")));
    }
    if swaps_columns && (factor != 1 || !swaps_batch) {
        return Err(call.refuse(PERM_X2, "[0, 2, 1] requires permX1 [1, 0, 2] and batchSplitFactor 1"));
    }
    for (name, what, extent) in [(X1, "matrices", batch), (X2, "columns", n)] {
        if !(1..MOST).contains(&extent) {
            return Err(call.refuse(name, format!("expected 1 to {} {what}, found {extent}", MOST - 1)));
        }
    }
    let row = if swaps_batch { batch * k } else { k };
    if row >= MOST && !(swaps_batch && factor == 1) {
        return Err(call.refuse(X1, format!("expected at most {} elements in a row, found {row}", MOST - 1)));
    }
    let factor = factor.unsigned_abs() as usize;
    let each = batch / factor;
    let shape = if factor == 1 { [m, batch, n] } else { [factor, m, each * n] };
    call.expect_shape(OUT, &shape, "of x1 @ x2 with permY and batchSplitFactor")?;
    if call.int(CUBE_MATH_TYPE)? == 4 {
        return Err(call.refuse(CUBE_MATH_TYPE, "expected 0 to 3, found 4"));
    }
    let precision = precision(call, x1.dtype)?;
    let (x1, x2, out) = (x1.slot, x2.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let parts = |view: &StridedView| view.split(0, factor, each);
        let a = if swaps_batch { views.of(x1).permute(&[1, 0, 2]) } else { views.of(x1).clone() };
        let b = if swaps_columns { views.of(x2).exchanged() } else { views.of(x2).clone() };
        let target = if factor == 1 {
            views.of(out).unsqueeze(0).permute(&[0, 2, 1, 3])
        } else {
            views.of(out).split(2, each, n).permute(&[0, 2, 1, 3])
        };
        matmul::matmul(tiles, &parts(&a), &parts(&b), precision, &target);
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}
