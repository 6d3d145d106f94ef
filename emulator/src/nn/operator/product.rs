//! Rows of the matrix products.

use super::call::Call;
use super::row::{Operator, attribute, input, output, scalar};
use super::sets::FLOATING;
use super::{Plan, Refusal};
use crate::nn::dtype::DType;
use crate::nn::matmul::{self, Precision};
use crate::nn::view::View;

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMatmul",
        parameters: &[
            input("self", FLOATING, 1, 6),
            input("mat2", FLOATING, 1, 6),
            output("out", FLOATING, 0, 6),
            attribute("cubeMathType"),
        ],
        limits: "shapes as torch.matmul; BFLOAT16 only with BFLOAT16; cubeMathType 0–4, 2 not for BFLOAT16, 3 only for FLOAT",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnMatmul.md",
        plan: matmul,
    },
    Operator {
        name: "aclnnMm",
        parameters: &[
            input("self", FLOATING, 2, 2),
            input("mat2", FLOATING, 2, 2),
            output("out", FLOATING, 2, 2),
            attribute("cubeMathType"),
        ],
        limits: "one element type for self and mat2; cubeMathType 0–4 as aclnnMatmul",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnMm.md",
        plan: same_type_matmul,
    },
    Operator {
        name: "aclnnBatchMatMul",
        parameters: &[
            input("self", FLOATING, 3, 3),
            input("mat2", FLOATING, 3, 3),
            output("out", FLOATING, 3, 3),
            attribute("cubeMathType"),
        ],
        limits: "one element type for self and mat2; a batch of 1 repeats; cubeMathType 0–3",
        source: "ops-nn matmul/batch_mat_mul_v3/docs/aclnnBatchMatMul.md",
        plan: same_type_matmul,
    },
    Operator {
        name: "aclnnAddmm",
        parameters: &[
            input("self", FLOATING, 0, 2),
            input("mat1", FLOATING, 2, 2),
            input("mat2", FLOATING, 2, 2),
            scalar("beta"),
            scalar("alpha"),
            output("out", FLOATING, 2, 2),
            attribute("cubeMathType"),
        ],
        limits: "one element type for self, mat1, mat2 and out; self broadcasts to out",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnAddmm&aclnnInplaceAddmm.md",
        plan: addmm,
    },
];

/// What `cubeMathType` makes of operands of type `dtype`.
fn precision(call: &Call<'_>, dtype: DType) -> Result<Precision, Refusal> {
    let refuse = |text: &str| Err(call.refuse("cubeMathType", text));
    match (call.int("cubeMathType")?, dtype) {
        (2, DType::BF16) => refuse("2 (USE_FP16) is not legal for BFLOAT16"),
        (3, DType::F16 | DType::BF16) => refuse("3 (USE_HF32) is legal for FLOAT only"),
        (0 | 4, _) | (1..=3, DType::F16 | DType::BF16) => Ok(Precision::Keep),
        (1 | 3, _) => Ok(Precision::HalfFloat32),
        (2, _) => Ok(Precision::Half),
        (other, _) => refuse(&format!(
            "expected 0 (keep), 1 (allow lower precision), 2 (FLOAT16), 3 (HFLOAT32) or 4 (FLOAT additions), found {other}"
        )),
    }
}

fn same_type_matmul(call: &Call<'_>) -> Result<Plan, Refusal> {
    call.expect_dtype("mat2", call.tensor("self")?.dtype, "that of self")?;
    matmul(call)
}

fn matmul(call: &Call<'_>) -> Result<Plan, Refusal> {
    let (a, b, out) = (call.tensor("self")?, call.tensor("mat2")?, call.tensor("out")?);
    if a.dtype != b.dtype && [a.dtype, b.dtype].contains(&DType::BF16) {
        let text = format!("expected BFLOAT16 with BFLOAT16 only, found {} of self with {}", a.dtype, b.dtype);
        return Err(call.refuse("mat2", text));
    }
    let common = call.promote("self", "mat2")?;
    call.expect_cast("out", common)?;
    let precision = precision(call, common)?;

    // A vector on the left is a row, on the right a column; the dim is dropped from the result again.
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let a_dims = if row { vec![1, a.dims[0]] } else { a.dims.clone() };
    let b_dims = if column { vec![b.dims[0], 1] } else { b.dims.clone() };
    let (m, k) = (a_dims[a_dims.len() - 2], a_dims[a_dims.len() - 1]);
    let (depth, n) = (b_dims[b_dims.len() - 2], b_dims[b_dims.len() - 1]);
    if k != depth {
        let text = format!("expected a contracted dim of {k} as in self {:?}, found {depth} in {:?}", a.dims, b.dims);
        return Err(call.refuse("mat2", text));
    }
    let batch = super::call::broadcast(&a_dims[..a_dims.len() - 2], &b_dims[..b_dims.len() - 2]).ok_or_else(|| {
        call.refuse("mat2", format!("its batch dims {:?} do not broadcast with those of self {:?}", b.dims, a.dims))
    })?;
    let mut expected = batch;
    expected.extend((!row).then_some(m));
    expected.extend((!column).then_some(n));
    call.expect_shape("out", &expected, "of self @ mat2")?;

    let (a, b, out) = (a.slot, b.slot, out.slot);
    Plan::new(move |views, tiles| {
        let row_of = |view: &View| if row { view.unsqueeze(0) } else { view.clone() };
        let column_of = |view: &View| if column { view.unsqueeze(view.rank()) } else { view.clone() };
        let target = views.of(out);
        let target = if row { target.unsqueeze(target.rank() - usize::from(!column)) } else { target.clone() };
        matmul::matmul(tiles, &row_of(views.of(a)), &column_of(views.of(b)), precision, &column_of(&target));
        Ok(())
    })
    .map(Plan::reading_transposed)
}

fn addmm(call: &Call<'_>) -> Result<Plan, Refusal> {
    let (c, a, b) = (call.tensor("self")?, call.tensor("mat1")?, call.tensor("mat2")?);
    for name in ["mat1", "mat2", "out"] {
        call.expect_dtype(name, c.dtype, "that of self")?;
    }
    if a.dims[1] != b.dims[0] {
        let text = format!("expected a contracted dim of {} as in mat1 {:?}, found {:?}", a.dims[1], a.dims, b.dims);
        return Err(call.refuse("mat2", text));
    }
    let expected = [a.dims[0], b.dims[1]];
    call.expect_shape("out", &expected, "of mat1 @ mat2")?;
    if super::call::broadcast(&c.dims, &expected).as_deref() != Some(&expected) {
        return Err(call.refuse("self", format!("{:?} does not broadcast to {expected:?}", c.dims)));
    }
    let factors = (call.scalar("beta")?.lane::<f32>(), call.scalar("alpha")?.lane::<f32>());
    let precision = precision(call, c.dtype)?;
    let (c, a, b, out) = (c.slot, a.slot, b.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        matmul::addmm(tiles, views.of(c), views.of(a), views.of(b), factors, precision, views.of(out));
        Ok(())
    })
}
