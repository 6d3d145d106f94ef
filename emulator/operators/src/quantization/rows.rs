//! Operators on 8-bit integers: dynamic quantisation, products, and scale packing.

use crate::dtype::AclType::{self, BF16, F16, F32, I8, I32, I64, U64};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{BYTES, HALVES, PACKED_SCALES, SINGLE};
use crate::operator::{CallPlan, Refusal};
use crate::quantization::kernels::{self as quantize, Dequantizer};
use crate::view::StridedView;

const LAST_DIM: usize = 65_535;

/// Integers come from aclnnTransQuantParamV2.
const COLUMN_SCALES: &[AclType] = &[F32, BF16, U64, I64];
/// Integers are added before the scales, others to the result.
const BIASES: &[AclType] = &[I32, BF16, F32, F16];
const RESULTS: &[AclType] = &[F16, BF16, I8];

const LIMITS: &str = "x1 and x2 contiguous or with their last dims swapped, last dims at most 65535; leading dims \
                      broadcast; scale of 1 or n elements: UINT64 and INT64 for FLOAT16 and INT8 out, FLOAT for \
                      BFLOAT16 out and, with scales per row, FLOAT16 out, BFLOAT16 for BFLOAT16 out; scales per row \
                      have m elements; bias [n]: INT32 is added before scaling, other types (FLOAT or the type of the \
                      result) to the result; no empty tensor";

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnDynamicQuant",
        parameters: &[
            input(X, HALVES, 2, 8),
            input(SMOOTH_SCALES_OPTIONAL, HALVES, 1, 1).optional(),
            output(Y_OUT, BYTES, 2, 8).contiguous(),
            output(SCALE_OUT, SINGLE, 1, 7).contiguous(),
        ],
        limits: "yOut has the shape of x; scaleOut has the dims of x without the last; smoothScalesOptional has the last \
                 dim and the type of x",
        source: "CANN 8.1 aclnn API reference, aclnnDynamicQuant",
        plan: dynamic_quant,
    },
    Operator {
        name: "aclnnTransQuantParamV2",
        parameters: &[
            input(SCALE, SINGLE, 1, 2),
            input(OFFSET, SINGLE, 1, 2).optional(),
            output(OUT, PACKED_SCALES, 1, 2),
        ],
        limits: "scale [t] or [1, n], offset with 1 element or as many as scale; out has the larger number of \
                 elements, and the shape of scale if scale has two dims; no empty tensor",
        source: "ops-nn quant/trans_quant_param_v2/docs/aclnnTransQuantParamV2.md",
        plan: trans_quant_param,
    },
    Operator {
        name: "aclnnTransQuantParamV3",
        parameters: &[
            input(SCALE, SINGLE, 1, 2),
            input(OFFSET, SINGLE, 1, 2).optional(),
            output(OUT, PACKED_SCALES, 1, 2),
        ],
        limits: "as aclnnTransQuantParamV2; roundMode 0 (the lower bits are cut off)",
        source: "ops-nn quant/trans_quant_param_v2/docs/aclnnTransQuantParamV3.md",
        plan: |call| call.int_in(ROUND_MODE_INT, 0..=0).and_then(|_| trans_quant_param(call)),
    },
    Operator {
        name: "aclnnQuantMatmulV3",
        parameters: &[
            input(X1, BYTES, 2, 6),
            input(X2, BYTES, 2, 6).or_blocked(),
            input(SCALE, COLUMN_SCALES, 1, 1),
            input(BIAS, BIASES, 1, 1).optional(),
            output(OUT, RESULTS, 2, 6),
        ],
        limits: LIMITS,
        source: "ops-nn matmul/quant_batch_matmul_v3/docs/aclnnQuantMatmulV3.md",
        plan: |call| quant_matmul(call, SCALE, None),
    },
    Operator {
        name: "aclnnQuantMatmulV4",
        parameters: &[
            input(X1, BYTES, 2, 6),
            input(X2, BYTES, 2, 6).or_blocked(),
            input(SCALE, COLUMN_SCALES, 1, 1),
            input(PERTOKEN_SCALE_OPTIONAL, SINGLE, 1, 1).optional(),
            input(BIAS, BIASES, 1, 1).optional(),
            output(OUT, RESULTS, 2, 6),
        ],
        limits: LIMITS,
        source: "CANN 8.1 aclnn API reference, aclnnQuantMatmulV4",
        plan: |call| quant_matmul(call, SCALE, Some(PERTOKEN_SCALE_OPTIONAL)),
    },
    Operator {
        name: "aclnnQuantMatmulV5",
        parameters: &[
            input(X1, BYTES, 2, 6),
            input(X2, BYTES, 2, 6),
            input(X1_SCALE, SINGLE, 1, 1).optional(),
            input(X2_SCALE, COLUMN_SCALES, 1, 1),
            input(BIAS, BIASES, 1, 1).optional(),
            output(OUT, RESULTS, 2, 6),
        ],
        limits: LIMITS,
        source: "ops-nn matmul/quant_batch_matmul_v4/docs/aclnnQuantMatmulV5.md",
        plan: grouped_quant_matmul,
    },
    Operator {
        name: "aclnnQuantMatmulWeightNz",
        parameters: &[
            input(X1, BYTES, 2, 6),
            input(X2, BYTES, 2, 6).or_blocked(),
            input(X1_SCALE, SINGLE, 1, 1).optional(),
            input(X2_SCALE, COLUMN_SCALES, 1, 1),
            input(BIAS, BIASES, 1, 1).optional(),
            output(OUT, RESULTS, 2, 6),
        ],
        limits: "as aclnnQuantMatmulV5; x2 in FRACTAL_NZ",
        source: "ops-nn matmul/quant_batch_matmul_v3/docs/aclnnQuantMatmulWeightNz.md",
        plan: |call| call.expect_blocked(X2).and_then(|()| grouped_quant_matmul(call)),
    },
    Operator {
        name: "aclnnQuantMatmulReduceSumWeightNz",
        parameters: &[
            input(X1, BYTES, 3, 3).contiguous(),
            input(X2, BYTES, 3, 3).or_blocked(),
            input(X1_SCALE, SINGLE, 2, 2),
            input(X2_SCALE, &[BF16], 1, 1),
            output(OUT, &[BF16], 2, 2),
        ],
        limits: "out [m, n] is the sum over the batch of x1 [batch, m, k] @ x2 [batch, k, n] * x1Scale [batch, m] * x2Scale [n], in FLOAT; \
                 x2 in FRACTAL_NZ; transposeX1, transposeX2 and keepDims false, groupSize 0, dims [0]; no empty tensor",
        source: "ops-nn matmul/quant_matmul_reduce_sum/docs/aclnnQuantMatmulReduceSumWeightNz.md",
        plan: |call| call.expect_blocked(X2).and_then(|()| quant_matmul_sum(call)),
    },
];

fn dynamic_quant(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    call.expect_shape(Y_OUT, &x.dims, "of x")?;
    call.expect_shape(SCALE_OUT, &x.dims[..x.rank() - 1], "of x without the last dim")?;
    let smooth = call.tensor_if_given(SMOOTH_SCALES_OPTIONAL)?.map(|smooth| smooth.slot);
    if smooth.is_some() {
        call.expect_dtype(SMOOTH_SCALES_OPTIONAL, x.dtype, "the type of x")?;
        call.expect_shape(SMOOTH_SCALES_OPTIONAL, &x.dims[x.rank() - 1..], "the last dim of x")?;
    }
    let (x, y, scale) = (x.slot, call.tensor(Y_OUT)?.slot, call.tensor(SCALE_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let smooth = smooth.map(|slot| views.of(slot));
        quantize::dynamic_quant(tiles, views.of(x), smooth, views.of(y), views.of(scale));
        Ok(())
    })
}

fn trans_quant_param(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (scale, offset) = (call.tensor(SCALE)?, call.tensor_if_given(OFFSET)?);
    let (count, offsets) = (scale.len(), offset.map_or(1, CheckedTensor::len));
    if let Some(empty) = [(SCALE, count), (OFFSET, offsets)].into_iter().find(|(_, len)| *len == 0) {
        return Err(call.refuse(empty.0, "has no elements, but the operator needs some"));
    }
    let most = count.max(offsets);
    if [count, offsets].iter().any(|len| *len != 1 && *len != most) {
        return Err(call.refuse(OFFSET, format!("expected 1 or {count} elements, found {offsets}")));
    }
    let dims = if scale.rank() == 2 { scale.dims.clone() } else { vec![most] };
    call.expect_shape(OUT, &dims, "of scale and offset, broadcast")?;
    let (scale, offset, out) = (scale.slot, offset.map(|offset| offset.slot), call.tensor(OUT)?.slot);
    CallPlan::new(move |views, _| {
        quantize::pack_scales(views.of(scale), offset.map(|slot| views.of(slot)), views.of(out));
        Ok(())
    })
}

/// Returns the rows and columns, and whether the matrix is stored transposed.
fn matrix(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    flag: Name<bool>,
) -> Result<(usize, usize, bool), Refusal> {
    let tensor: &CheckedTensor = call.tensor(name)?;
    if !tensor.is_contiguous() && !tensor.is_transposed() {
        let text = format!(
            "expected a contiguous matrix or one with its dims swapped, found dims {:?} with strides {:?}",
            tensor.dims, tensor.strides
        );
        return Err(call.refuse(name, text));
    }
    let [.., rows, columns] = tensor.dims[..] else { return Err(call.refuse(name, "expected a matrix")) };
    if columns > LAST_DIM {
        return Err(
            call.refuse(name, format!("expected a last dim of at most {LAST_DIM}, found {:?}", tensor.dims))
        );
    }
    let transposed = call.flag(flag)?;
    Ok(if transposed { (columns, rows, true) } else { (rows, columns, false) })
}

fn grouped_quant_matmul(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let size = call.int(GROUP_SIZE)?;
    if size != 0 {
        return Err(call.refuse(GROUP_SIZE, format!("expected 0 (no groups) for INT8, found {size}")));
    }
    quant_matmul(call, X2_SCALE, Some(X1_SCALE))
}

fn expect_types(
    call: &OperatorCall,
    scale: Name<CheckedTensor>,
    by_row: Option<Name<CheckedTensor>>,
) -> Result<(), Refusal> {
    let (out, found) = (call.tensor(OUT)?.dtype, call.tensor(scale)?.dtype);
    let is_packed = PACKED_SCALES.contains(&found);
    let goes = match out {
        I8 => is_packed && by_row.is_none(),
        F16 => {
            if by_row.is_some() {
                found == F32
            } else {
                is_packed
            }
        }
        _ => !is_packed,
    };
    if !goes {
        let text = format!(
            "{found} does not go with {out} out {} a scale a row",
            if by_row.is_some() { "and" } else { "without" }
        );
        return Err(call.refuse(scale, text));
    }
    let Some(bias) = call.tensor_if_given(BIAS)? else { return Ok(()) };
    let goes = bias.dtype == I32 || (!is_packed && (bias.dtype == F32 || bias.dtype == out));
    if goes {
        Ok(())
    } else {
        Err(call.refuse(BIAS, format!("{} does not go with {found} scales and {out} out", bias.dtype)))
    }
}

fn quant_matmul(
    call: &OperatorCall,
    scale: Name<CheckedTensor>,
    by_row: Option<Name<CheckedTensor>>,
) -> Result<CallPlan, Refusal> {
    let (m, k, swapped_a) = matrix(call, X1, TRANSPOSE_X1)?;
    let (depth, n, swapped_b) = matrix(call, X2, TRANSPOSE_X2)?;
    if k != depth {
        let text = format!(
            "expected a contracted dim of {k} as in x1, found {depth} in {:?}",
            call.tensor(X2)?.dims
        );
        return Err(call.refuse(X2, text));
    }
    if k > LAST_DIM {
        return Err(call.refuse(X1, format!("expected a contracted dim of at most {LAST_DIM}, found {k}")));
    }
    let (x1, x2) = (call.tensor(X1)?, call.tensor(X2)?);
    if let Some(empty) = [(X1, x1), (X2, x2)].into_iter().find(|(_, tensor)| tensor.is_empty()) {
        return Err(call.refuse(empty.0, "has no elements, but the operator needs some"));
    }
    let batch = crate::operator::call::broadcast(&x1.dims[..x1.rank() - 2], &x2.dims[..x2.rank() - 2])
        .ok_or_else(|| {
            call.refuse(
                X2,
                format!("{:?} does not broadcast with {:?} of x1 before the last dims", x2.dims, x1.dims),
            )
        })?;
    call.expect_shape(OUT, &[&batch[..], &[m, n]].concat(), "of x1 @ x2")?;
    let by_row = by_row.filter(|&name| matches!(call.tensor_if_given(name), Ok(Some(_))));
    expect_types(call, scale, by_row)?;
    if call.tensor(scale)?.dims != [1] {
        call.expect_shape(scale, &[n], "one per column, or one in all")?;
    }
    if let Some(name) = by_row {
        call.expect_shape(name, &[m], "one per row")?;
    }
    if call.tensor_if_given(BIAS)?.is_some() {
        call.expect_shape(BIAS, &[n], "one per column")?;
    }
    let (a, b, out) = (x1.slot, x2.slot, call.tensor(OUT)?.slot);
    let (scale, bias) = (call.tensor(scale)?.slot, call.tensor_if_given(BIAS)?.map(|bias| bias.slot));
    let by_row = by_row.map(|name| call.tensor(name)).transpose()?.map(|tensor| tensor.slot);
    CallPlan::new(move |views, tiles| {
        let finish = Dequantizer::new(
            views.of(scale),
            by_row.map(|slot| views.of(slot)),
            bias.map(|slot| views.of(slot)),
        );
        let whole = |view: &StridedView| {
            let rank = view.rank();
            view.broadcast_to(&[&batch[..], &view.dims()[rank - 2..]].concat())
        };
        let (a, b, out) = (whole(views.of(a)), whole(views.of(b)), views.of(out));
        each_matrix(&a, &b, out, batch.len(), &|a, b, out| {
            let a = if swapped_a { a.permute(&[1, 0]) } else { a.clone() };
            // The kernel reads the right operand by columns.
            let b = if swapped_b { b.clone() } else { b.permute(&[1, 0]) };
            quantize::quant_matmul(tiles, &a, &b, &finish, out);
        });
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

/// Calls `body` for each position of the first `depth` dims.
fn each_matrix(
    a: &StridedView,
    b: &StridedView,
    out: &StridedView,
    depth: usize,
    body: &dyn Fn(&StridedView, &StridedView, &StridedView),
) {
    if depth == 0 {
        return body(a, b, out);
    }
    (0..out.dims()[0]).for_each(|i| each_matrix(&a.at(0, i), &b.at(0, i), &out.at(0, i), depth - 1, body));
}

fn quant_matmul_sum(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    for name in [TRANSPOSE_X1, TRANSPOSE_X2, KEEP_DIMS] {
        if call.flag(name)? {
            return Err(call.refuse(name, "expected false, found true"));
        }
    }
    if call.int(GROUP_SIZE)? != 0 || call.ints(DIMS)? != [0] {
        let found = (call.int(GROUP_SIZE)?, call.ints(DIMS)?);
        return Err(
            call.refuse(DIMS, format!("expected [0], the batch, and a groupSize of 0, found {found:?}"))
        );
    }
    let (x1, x2) = (call.tensor(X1)?, call.tensor(X2)?);
    let ([batch, m, k], [batches, depth, n]) =
        ([x1.dims[0], x1.dims[1], x1.dims[2]], [x2.dims[0], x2.dims[1], x2.dims[2]]);
    if batch != batches || k != depth {
        let text = format!("expected {batch} matrices of {k} rows as x1 asks for, found {:?}", x2.dims);
        return Err(call.refuse(X2, text));
    }
    if [batch, m, k, n].contains(&0) || k > LAST_DIM {
        return Err(call.refuse(
            X1,
            format!("expected 1 to {LAST_DIM} of each and products of some, found {:?}", x1.dims),
        ));
    }
    call.expect_shape(X1_SCALE, &[batch, m], "one for each row of x1")?;
    call.expect_shape(X2_SCALE, &[n], "one for each column")?;
    call.expect_shape(OUT, &[m, n], "of a product")?;
    let slot = |name| call.tensor(name).map(|tensor: &CheckedTensor| tensor.slot);
    let (a, b, out) = (x1.slot, x2.slot, slot(OUT)?);
    let (rows, columns) = (slot(X1_SCALE)?, slot(X2_SCALE)?);
    CallPlan::new(move |views, tiles| {
        quantize::quant_matmul_sum(
            tiles,
            [views.of(a), &views.of(b).exchanged()],
            [views.of(rows), views.of(columns)],
            views.of(out),
        );
        Ok(())
    })
}
