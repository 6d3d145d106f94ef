//! Rows of the operators on 8-bit integers: rows quantised at run time, and products of quantised matrices.

use super::argument::Tensor;
use super::call::OperatorCall;
use super::names::{
    BIAS, Name, OFFSET, OUT, PERTOKEN_SCALE_OPTIONAL, SCALE, SCALE_OUT, SMOOTH_SCALES_OPTIONAL, TRANSPOSE_X1,
    TRANSPOSE_X2, X, X1, X2, Y_OUT,
};
use super::row::{Operator, attribute, input, output, unmodelled};
use super::sets::{BYTES, HALVES, SCALES, SINGLE};
use super::{Plan, Refusal};
use crate::nn::dtype::DType;
use crate::nn::quantize::{self, Scales};
use crate::nn::view::View;

/// Most elements of the last dim of a matrix.
const LAST_DIM: usize = 65_535;

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnDynamicQuant",
        parameters: &[
            input(X, HALVES, 2, 8),
            unmodelled(SMOOTH_SCALES_OPTIONAL),
            output(Y_OUT, BYTES, 2, 8).contiguous(),
            output(SCALE_OUT, SINGLE, 1, 7).contiguous(),
        ],
        limits: "yOut as x; scaleOut has the dims of x but the last",
        source: "CANN 8.1 aclnn API reference, aclnnDynamicQuant",
        plan: dynamic_quant,
    },
    Operator {
        name: "aclnnQuantMatmulV4",
        parameters: &[
            input(X1, BYTES, 2, 2),
            input(X2, BYTES, 2, 2),
            input(SCALE, SCALES, 1, 1),
            unmodelled(OFFSET),
            input(PERTOKEN_SCALE_OPTIONAL, SINGLE, 1, 1).optional(),
            unmodelled(BIAS),
            attribute(TRANSPOSE_X1),
            attribute(TRANSPOSE_X2),
            output(OUT, HALVES, 2, 2),
        ],
        limits: "x1 and x2 contiguous or with their dims swapped, last dims at most 65535; scale of 1 or n elements; \
                 pertokenScaleOptional of m; FLOAT16 out with FLOAT scale and pertokenScaleOptional only; no empty tensor",
        source: "CANN 8.1 aclnn API reference, aclnnQuantMatmulV4",
        plan: quant_matmul,
    },
];

fn dynamic_quant(call: &OperatorCall) -> Result<Plan, Refusal> {
    let x = call.tensor(X)?;
    call.expect_shape(Y_OUT, &x.dims, "of x")?;
    call.expect_shape(SCALE_OUT, &x.dims[..x.rank() - 1], "of x without the last dim")?;
    let (x, y, scale) = (x.slot, call.tensor(Y_OUT)?.slot, call.tensor(SCALE_OUT)?.slot);
    Plan::new(move |views, tiles| {
        quantize::dynamic_quant(tiles, views.of(x), views.of(y), views.of(scale));
        Ok(())
    })
}

/// Rows and columns of a matrix that is stored transposed if its flag says so.
fn matrix(call: &OperatorCall, name: Name<Tensor>, flag: Name<bool>) -> Result<(usize, usize, bool), Refusal> {
    let tensor: &Tensor = call.tensor(name)?;
    if !tensor.is_contiguous() && !tensor.is_transposed() {
        let text = format!(
            "expected a contiguous matrix or one with its dims swapped, found dims {:?} with strides {:?}",
            tensor.dims, tensor.strides
        );
        return Err(call.refuse(name, text));
    }
    if tensor.dims[1] > LAST_DIM {
        return Err(call.refuse(name, format!("expected a last dim of at most {LAST_DIM}, found {:?}", tensor.dims)));
    }
    let transposed = call.flag(flag)?;
    let (rows, columns) = (tensor.dims[0], tensor.dims[1]);
    Ok(if transposed { (columns, rows, true) } else { (rows, columns, false) })
}

fn quant_matmul(call: &OperatorCall) -> Result<Plan, Refusal> {
    let (m, k, swapped_a) = matrix(call, X1, TRANSPOSE_X1)?;
    let (depth, n, swapped_b) = matrix(call, X2, TRANSPOSE_X2)?;
    if k != depth {
        let text = format!("expected a contracted dim of {k} as in x1, found {depth} in {:?}", call.tensor(X2)?.dims);
        return Err(call.refuse(X2, text));
    }
    if k > LAST_DIM {
        return Err(call.refuse(X1, format!("expected a contracted dim of at most {LAST_DIM}, found {k}")));
    }
    if let Some(empty) = [X1, X2].into_iter().zip([m * k, k * n]).find(|(_, len)| *len == 0) {
        return Err(call.refuse(empty.0, "has no elements, which the operator does not take"));
    }
    call.expect_shape(OUT, &[m, n], "of x1 @ x2")?;
    let (scale, tokens) = (call.tensor(SCALE)?, call.tensor_if_given(PERTOKEN_SCALE_OPTIONAL)?);
    if scale.dims != [1] {
        call.expect_shape(SCALE, &[n], "one per column, or one in all")?;
    }
    if tokens.is_some() {
        call.expect_shape(PERTOKEN_SCALE_OPTIONAL, &[m], "one per row")?;
    }
    let out = call.tensor(OUT)?;
    if out.dtype == DType::F16 {
        call.expect_dtype(SCALE, DType::F32, "for FLOAT16 out")?;
        if tokens.is_none() {
            return Err(call.refuse(PERTOKEN_SCALE_OPTIONAL, "is NULL and must be given for FLOAT16 out"));
        }
    }
    let (a, b) = (call.tensor(X1)?.slot, call.tensor(X2)?.slot);
    let (scale, tokens, out) = (scale.slot, tokens.map(|tokens| tokens.slot), out.slot);
    let swap = |view: &View| view.permute(&[1, 0]);
    Plan::new(move |views, tiles| {
        let (a, b) = (views.of(a), views.of(b));
        let a = if swapped_a { swap(a) } else { a.clone() };
        // The kernel reads the right operand column by column.
        let b = if swapped_b { b.clone() } else { swap(b) };
        let scales = Scales { columns: views.of(scale), rows: tokens.map(|tokens| views.of(tokens)) };
        quantize::quant_matmul(tiles, &a, &b, &scales, views.of(out));
        Ok(())
    })
    .map(Plan::reading_transposed)
}
