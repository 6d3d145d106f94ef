//! Rows of the matrix products.

use super::call::OperatorCall;
use super::names::{
    ALPHA, BETA, CUBE_MATH_TYPE, GROUP_LIST, GROUP_TYPE, MAT1, MAT2, OUT, SELF, TRANSPOSE_WEIGHT, TRANSPOSE_X, WEIGHT,
    X, Y_REF,
};
use super::row::{Operator, attribute, in_place, input, output, scalar};
use super::sets::{FLOATING, HALVES, INDEX64, SINGLE};
use super::{Plan, Refusal};
use crate::nn::dtype::DType;
use crate::nn::lane::Lane;
use crate::nn::matmul::{self, Precision};
use crate::nn::view::View;

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMatmul",
        parameters: &[
            input(SELF, FLOATING, 1, 6),
            input(MAT2, FLOATING, 1, 6),
            output(OUT, FLOATING, 0, 6),
            attribute(CUBE_MATH_TYPE),
        ],
        limits: "shapes as torch.matmul; computed in the common type; cubeMathType 0–4, 2 not for BFLOAT16, 3 only for FLOAT",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnMatmul.md",
        plan: matmul,
    },
    Operator {
        name: "aclnnMm",
        parameters: &[
            input(SELF, FLOATING, 2, 2),
            input(MAT2, FLOATING, 2, 2),
            output(OUT, FLOATING, 2, 2),
            attribute(CUBE_MATH_TYPE),
        ],
        limits: "computed in the common type; cubeMathType 0–4 as aclnnMatmul",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnMm.md",
        plan: matmul,
    },
    Operator {
        name: "aclnnBatchMatMul",
        parameters: &[
            input(SELF, FLOATING, 3, 3),
            input(MAT2, FLOATING, 3, 3),
            output(OUT, FLOATING, 3, 3),
            attribute(CUBE_MATH_TYPE),
        ],
        limits: "computed in the common type; a batch of 1 repeats; cubeMathType 0–3",
        source: "ops-nn matmul/batch_mat_mul_v3/docs/aclnnBatchMatMul.md",
        plan: matmul,
    },
    Operator {
        name: "aclnnAddmm",
        parameters: &[
            input(SELF, FLOATING, 0, 2),
            input(MAT1, FLOATING, 2, 2),
            input(MAT2, FLOATING, 2, 2),
            scalar(BETA),
            scalar(ALPHA),
            output(OUT, FLOATING, 2, 2),
            attribute(CUBE_MATH_TYPE),
        ],
        limits: "one element type for self, mat1, mat2 and out; self broadcasts to out",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnAddmm&aclnnInplaceAddmm.md",
        plan: addmm,
    },
    Operator {
        name: "aclnnGroupedMatmulAdd",
        parameters: &[
            input(X, HALVES, 2, 2),
            input(WEIGHT, HALVES, 2, 2),
            input(GROUP_LIST, INDEX64, 1, 1).contiguous(),
            in_place(Y_REF, SINGLE, 2, 3).contiguous(),
            attribute(TRANSPOSE_X),
            attribute(TRANSPOSE_WEIGHT),
            attribute(GROUP_TYPE),
        ],
        limits: "x [K, M], weight [K, N] of its type, yRef [groups * M, N] or [groups, M, N]; no empty tensors, M and N below \
                 65536, at most 1024 groups; groupList has where each group of K ends, none before the one before it nor past \
                 K; transposeX true, transposeWeight false, groupType 2",
        source: "ops-transformer gmm/grouped_matmul_add/docs/aclnnGroupedMatmulAdd.md",
        plan: grouped_matmul_add,
    },
];

/// What `cubeMathType` makes of operands of type `dtype`.
fn precision(call: &OperatorCall, dtype: DType) -> Result<Precision, Refusal> {
    let refuse = |text: &str| Err(call.refuse(CUBE_MATH_TYPE, text));
    match (call.int(CUBE_MATH_TYPE)?, dtype) {
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

fn matmul(call: &OperatorCall) -> Result<Plan, Refusal> {
    let (a, b, out) = (call.tensor(SELF)?, call.tensor(MAT2)?, call.tensor(OUT)?);
    let common = call.promote(SELF, MAT2)?;
    call.expect_cast(OUT, common)?;
    let precision = precision(call, common)?;

    // A vector on the left is a row, on the right a column; the dim is dropped from the result again.
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let a_dims = if row { vec![1, a.dims[0]] } else { a.dims.clone() };
    let b_dims = if column { vec![b.dims[0], 1] } else { b.dims.clone() };
    let (m, k) = (a_dims[a_dims.len() - 2], a_dims[a_dims.len() - 1]);
    let (depth, n) = (b_dims[b_dims.len() - 2], b_dims[b_dims.len() - 1]);
    if k != depth {
        let text = format!("expected a contracted dim of {k} as in self {:?}, found {depth} in {:?}", a.dims, b.dims);
        return Err(call.refuse(MAT2, text));
    }
    let batch = super::call::broadcast(&a_dims[..a_dims.len() - 2], &b_dims[..b_dims.len() - 2]).ok_or_else(|| {
        call.refuse(MAT2, format!("its batch dims {:?} do not broadcast with those of self {:?}", b.dims, a.dims))
    })?;
    let mut expected = batch;
    expected.extend((!row).then_some(m));
    expected.extend((!column).then_some(n));
    call.expect_shape(OUT, &expected, "of self @ mat2")?;

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

fn addmm(call: &OperatorCall) -> Result<Plan, Refusal> {
    let (c, a, b) = (call.tensor(SELF)?, call.tensor(MAT1)?, call.tensor(MAT2)?);
    for name in [MAT1, MAT2, OUT] {
        call.expect_dtype(name, c.dtype, "that of self")?;
    }
    if a.dims[1] != b.dims[0] {
        let text = format!("expected a contracted dim of {} as in mat1 {:?}, found {:?}", a.dims[1], a.dims, b.dims);
        return Err(call.refuse(MAT2, text));
    }
    let expected = [a.dims[0], b.dims[1]];
    call.expect_shape(OUT, &expected, "of mat1 @ mat2")?;
    if super::call::broadcast(&c.dims, &expected).as_deref() != Some(&expected) {
        return Err(call.refuse(SELF, format!("{:?} does not broadcast to {expected:?}", c.dims)));
    }
    let factors = (call.scalar(BETA)?.lane::<f32>(), call.scalar(ALPHA)?.lane::<f32>());
    let precision = precision(call, c.dtype)?;
    let (c, a, b, out) = (c.slot, a.slot, b.slot, call.tensor(OUT)?.slot);
    Plan::new(move |views, tiles| {
        matmul::addmm(tiles, views.of(c), views.of(a), views.of(b), factors, precision, views.of(out));
        Ok(())
    })
    .map(Plan::reading_transposed)
}

fn grouped_matmul_add(call: &OperatorCall) -> Result<Plan, Refusal> {
    let (x, weight, ends, sums) =
        (call.tensor(X)?, call.tensor(WEIGHT)?, call.tensor(GROUP_LIST)?, call.tensor(Y_REF)?);
    for (name, expected) in [(TRANSPOSE_X, true), (TRANSPOSE_WEIGHT, false)] {
        let found = call.flag(name)?;
        if found != expected {
            return Err(call.refuse(name, format!("expected {expected}, found {found}")));
        }
    }
    let kind = call.int(GROUP_TYPE)?;
    if kind != 2 {
        return Err(call.refuse(GROUP_TYPE, format!("expected 2 (groups along K), found {kind}")));
    }
    call.expect_dtype(WEIGHT, x.dtype, "that of x")?;
    for (name, tensor) in [(X, x), (WEIGHT, weight), (GROUP_LIST, ends)] {
        if tensor.len() == 0 {
            return Err(call.refuse(name, format!("expected a tensor with elements, found {:?}", tensor.dims)));
        }
    }
    let ([depth, m], n, groups) = ([x.dims[0], x.dims[1]], weight.dims[1], ends.dims[0]);
    if weight.dims[0] != depth {
        let text = format!("expected a first dim of {depth} as in x {:?}, found {:?}", x.dims, weight.dims);
        return Err(call.refuse(WEIGHT, text));
    }
    for (name, extent) in [(X, m), (WEIGHT, n)] {
        if extent >= 65_536 {
            return Err(call.refuse(name, format!("expected a last dim below 65536, found {extent}")));
        }
    }
    if groups > 1024 {
        return Err(call.refuse(GROUP_LIST, format!("expected at most 1024 groups, found {groups}")));
    }
    if sums.dims != [groups * m, n] && sums.dims != [groups, m, n] {
        let text = format!("expected [{}, {n}] or [{groups}, {m}, {n}], found {:?}", groups * m, sums.dims);
        return Err(call.refuse(Y_REF, text));
    }
    let (x, weight, ends, sums) = (x.slot, weight.slot, ends.slot, sums.slot);
    Plan::new(move |views, tiles| {
        let mut places = vec![0i64; groups];
        i64::load(views.of(ends), 0, &mut places);
        let mut start = 0;
        let groups = places.iter().enumerate().map(|(group, &end)| match usize::try_from(end) {
            Ok(end) if start <= end && end <= depth => Ok((std::mem::replace(&mut start, end), end)),
            _ => Err(format!("groupList: group {group} ends at {end}, expected {start} to {depth}")),
        });
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        let sums = views.of(sums);
        let sums = if sums.rank() == 2 { sums.split(0, groups.len(), m) } else { sums.clone() };
        for (group, &(start, end)) in groups.iter().enumerate().filter(|(_, (start, end))| start < end) {
            let part = |slot| views.of(slot).slice(0, start, end - start, 1);
            let out = sums.at(0, group);
            matmul::addmm(tiles, &out, &part(x).exchanged(), &part(weight), (1.0, 1.0), Precision::Keep, &out);
        }
        Ok(())
    })
    .map(Plan::reading_transposed)
}
