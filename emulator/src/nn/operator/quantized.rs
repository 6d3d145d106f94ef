//! Rows of the operators on 8-bit integers: rows quantised at run time, and products of quantised matrices.

use super::call::{OperatorCall, Tensor};
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
            input("x", HALVES, 2, 8),
            unmodelled("smoothScalesOptional"),
            output("yOut", BYTES, 2, 8).contiguous(),
            output("scaleOut", SINGLE, 1, 7).contiguous(),
        ],
        limits: "yOut as x; scaleOut has the dims of x but the last",
        source: "CANN 8.1 aclnn API reference, aclnnDynamicQuant",
        plan: dynamic_quant,
    },
    Operator {
        name: "aclnnQuantMatmulV4",
        parameters: &[
            input("x1", BYTES, 2, 2),
            input("x2", BYTES, 2, 2),
            input("scale", SCALES, 1, 1),
            unmodelled("offset"),
            input("pertokenScaleOptional", SINGLE, 1, 1).optional(),
            unmodelled("bias"),
            attribute("transposeX1"),
            attribute("transposeX2"),
            output("out", HALVES, 2, 2),
        ],
        limits: "x1 and x2 contiguous or with their dims swapped, last dims at most 65535; scale of 1 or n elements; \
                 pertokenScaleOptional of m; FLOAT16 out with FLOAT scale and pertokenScaleOptional only; no empty tensor",
        source: "CANN 8.1 aclnn API reference, aclnnQuantMatmulV4",
        plan: quant_matmul,
    },
];

fn dynamic_quant(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("x")?;
    call.expect_shape("yOut", &x.dims, "of x")?;
    call.expect_shape("scaleOut", &x.dims[..x.rank() - 1], "of x without the last dim")?;
    let (x, y, scale) = (x.slot, call.tensor("yOut")?.slot, call.tensor("scaleOut")?.slot);
    Plan::new(move |views, tiles| {
        quantize::dynamic_quant(tiles, views.of(x), views.of(y), views.of(scale));
        Ok(())
    })
}

/// Rows and columns of a matrix that is stored transposed if its flag says so.
fn matrix(call: &OperatorCall<'_>, name: &str, flag: &str) -> Result<(usize, usize, bool), Refusal> {
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

fn quant_matmul(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let (m, k, swapped_a) = matrix(call, "x1", "transposeX1")?;
    let (depth, n, swapped_b) = matrix(call, "x2", "transposeX2")?;
    if k != depth {
        let text = format!("expected a contracted dim of {k} as in x1, found {depth} in {:?}", call.tensor("x2")?.dims);
        return Err(call.refuse("x2", text));
    }
    if k > LAST_DIM {
        return Err(call.refuse("x1", format!("expected a contracted dim of at most {LAST_DIM}, found {k}")));
    }
    if let Some(empty) = ["x1", "x2"].into_iter().zip([m * k, k * n]).find(|(_, len)| *len == 0) {
        return Err(call.refuse(empty.0, "has no elements, which the operator does not take"));
    }
    call.expect_shape("out", &[m, n], "of x1 @ x2")?;
    let (scale, tokens) = (call.tensor("scale")?, call.tensor_if_given("pertokenScaleOptional")?);
    if scale.dims != [1] {
        call.expect_shape("scale", &[n], "one per column, or one in all")?;
    }
    if tokens.is_some() {
        call.expect_shape("pertokenScaleOptional", &[m], "one per row")?;
    }
    let out = call.tensor("out")?;
    if out.dtype == DType::F16 {
        call.expect_dtype("scale", DType::F32, "for FLOAT16 out")?;
        if tokens.is_none() {
            return Err(call.refuse("pertokenScaleOptional", "is NULL and must be given for FLOAT16 out"));
        }
    }
    let (a, b) = (call.tensor("x1")?.slot, call.tensor("x2")?.slot);
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
