//! Rows of matrix products.

use crate::dtype::AclType;
use crate::lane::Lane;
use crate::math;
use crate::matmul::kernels::{self as matmul, OperandRounding, SumScales};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{FLOATING, HALVES, INDEX64, SINGLE};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels::rows_with;
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMatmul",
        parameters: &[
            input(SELF, FLOATING, 1, 6),
            input(MAT2, FLOATING, 1, 6).or_blocked(),
            output(OUT, FLOATING, 0, 6),
        ],
        limits: "shapes as torch.matmul; computed in the common type; cubeMathType 0–4, 2 not for BFLOAT16, 1 and 3 without effect on 16 bits",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnMatmul.md",
        plan: |call| matmul(call, MAT2),
    },
    Operator {
        name: "aclnnMm",
        parameters: &[
            input(SELF, FLOATING, 2, 2),
            input(MAT2, FLOATING, 2, 2).or_blocked(),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "computed in the common type; cubeMathType 0–4 as aclnnMatmul",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnMm.md",
        plan: |call| matmul(call, MAT2),
    },
    Operator {
        name: "aclnnBatchMatMul",
        parameters: &[input(SELF, FLOATING, 3, 3), input(MAT2, FLOATING, 3, 3), output(OUT, FLOATING, 3, 3)],
        limits: "computed in the common type; a batch of 1 repeats; cubeMathType 0–3",
        source: "ops-nn matmul/batch_mat_mul_v3/docs/aclnnBatchMatMul.md",
        plan: |call| matmul(call, MAT2),
    },
    Operator {
        name: "aclnnMatmulWeightNz",
        parameters: &[
            input(SELF, HALVES, 2, 3),
            input(MAT2, HALVES, 2, 3).or_blocked(),
            output(OUT, HALVES, 2, 3),
        ],
        limits: "as aclnnMatmul; mat2 in FRACTAL_NZ",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnMatmulWeightNz.md",
        plan: |call| call.expect_blocked(MAT2).and_then(|()| matmul(call, MAT2)),
    },
    Operator {
        name: "aclnnBatchMatMulWeightNz",
        parameters: &[
            input(SELF, HALVES, 3, 3),
            input(MAT2, HALVES, 3, 3).or_blocked(),
            output(OUT, HALVES, 3, 3),
        ],
        limits: "as aclnnBatchMatMul; mat2 in FRACTAL_NZ",
        source: "ops-nn matmul/batch_mat_mul_v3/docs/aclnnBatchMatMulWeightNz.md",
        plan: |call| call.expect_blocked(MAT2).and_then(|()| matmul(call, MAT2)),
    },
    Operator {
        name: "aclnnAddmmWeightNz",
        parameters: &[
            input(SELF, HALVES, 0, 2),
            input(MAT1, HALVES, 2, 2),
            input(MAT2, HALVES, 2, 2).or_blocked(),
            output(OUT, HALVES, 2, 2),
        ],
        limits: "as aclnnAddmm; mat2 in FRACTAL_NZ",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnAddmmWeightNz.md",
        plan: |call| call.expect_blocked(MAT2).and_then(|()| addmm(call, SELF, [MAT1, MAT2], OUT)),
    },
    Operator {
        name: "aclnnAddmm",
        parameters: &[
            input(SELF, FLOATING, 0, 2),
            input(MAT1, FLOATING, 2, 2),
            input(MAT2, FLOATING, 2, 2),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "one element type for self, mat1, mat2 and out; self broadcasts to out",
        source: "ops-nn matmul/mat_mul_v3/docs/aclnnAddmm&aclnnInplaceAddmm.md",
        plan: |call| addmm(call, SELF, [MAT1, MAT2], OUT),
    },
    Operator {
        name: "aclnnInplaceAddmm",
        parameters: &[
            in_place(SELF_REF, FLOATING, 2, 2),
            input(MAT1, FLOATING, 2, 2),
            input(MAT2, FLOATING, 2, 2),
        ],
        limits: "as the out-of-place form; selfRef has the shape of the product",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceAddmm",
        plan: |call| addmm(call, SELF_REF, [MAT1, MAT2], SELF_REF),
    },
    Operator {
        name: "aclnnBaddbmm",
        parameters: &[
            input(SELF, FLOATING, 0, 3),
            input(BATCH1, FLOATING, 3, 3),
            input(BATCH2, FLOATING, 3, 3),
            output(OUT, FLOATING, 3, 3),
        ],
        limits: "one element type; self broadcasts to out",
        source: "CANN 8.1 aclnn API reference, aclnnBaddbmm",
        plan: |call| addmm(call, SELF, [BATCH1, BATCH2], OUT),
    },
    Operator {
        name: "aclnnInplaceBaddbmm",
        parameters: &[
            in_place(SELF_REF, FLOATING, 3, 3),
            input(BATCH1, FLOATING, 3, 3),
            input(BATCH2, FLOATING, 3, 3),
        ],
        limits: "as the out-of-place form; selfRef has the shape of the product",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceBaddbmm",
        plan: |call| addmm(call, SELF_REF, [BATCH1, BATCH2], SELF_REF),
    },
    Operator {
        name: "aclnnAddbmm",
        parameters: &[
            input(SELF, FLOATING, 0, 2),
            input(BATCH1, FLOATING, 3, 3),
            input(BATCH2, FLOATING, 3, 3),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "one element type; self broadcasts to out",
        source: "CANN 8.1 aclnn API reference, aclnnAddbmm",
        plan: |call| addbmm(call, SELF, [BATCH1, BATCH2], OUT),
    },
    Operator {
        name: "aclnnInplaceAddbmm",
        parameters: &[
            in_place(SELF_REF, FLOATING, 2, 2),
            input(BATCH1, FLOATING, 3, 3),
            input(BATCH2, FLOATING, 3, 3),
        ],
        limits: "as the out-of-place form; selfRef has the shape of the product",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceAddbmm",
        plan: |call| addbmm(call, SELF_REF, [BATCH1, BATCH2], SELF_REF),
    },
    Operator {
        name: "aclnnMv",
        parameters: &[input(SELF, FLOATING, 2, 2), input(VEC, FLOATING, 1, 1), output(OUT, FLOATING, 1, 1)],
        limits: "computed in the common type; cubeMathType 0–4 as aclnnMatmul",
        source: "CANN 8.1 aclnn API reference, aclnnMv",
        plan: |call| matmul(call, VEC),
    },
    Operator {
        name: "aclnnGroupedMatmulAdd",
        parameters: &[
            input(X, HALVES, 2, 2),
            input(WEIGHT, HALVES, 2, 2),
            input(GROUP_LIST, INDEX64, 1, 1).contiguous(),
            in_place(Y_REF, SINGLE, 2, 3).contiguous(),
        ],
        limits: "x [K, M], weight [K, N] of the type of x, yRef [groups * M, N] or [groups, M, N]; no empty tensors, M \
                 and N below 65536, at most 1024 groups; groupList has the ends of the groups along K, in ascending \
                 order, at most K; transposeX true, transposeWeight false, groupType 2",
        source: "ops-transformer gmm/grouped_matmul_add/docs/aclnnGroupedMatmulAdd.md",
        plan: grouped_matmul_add,
    },
];

pub(crate) fn precision(call: &OperatorCall, dtype: AclType) -> Result<OperandRounding, Refusal> {
    let refuse = |text: &str| Err(call.refuse(CUBE_MATH_TYPE, text));
    match (call.int(CUBE_MATH_TYPE)?, dtype) {
        (2, AclType::BF16) => refuse("2 (USE_FP16) is not legal for BFLOAT16"),
        // CANN's host code ignores 3 (USE_HF32) for 16-bit types, which programs pass for every
        // type.
        (0 | 4, _) | (1..=3, AclType::F16 | AclType::BF16) => Ok(OperandRounding::Keep),
        (1 | 3, _) => Ok(OperandRounding::HalfFloat32),
        (2, _) => Ok(OperandRounding::Half),
        (other, _) => refuse(&format!(
            "expected 0 (keep), 1 (allow lower precision), 2 (FLOAT16), 3 (HFLOAT32) or 4 (FLOAT additions), found {other}"
        )),
    }
}

fn matmul(call: &OperatorCall, right: Name<CheckedTensor>) -> Result<CallPlan, Refusal> {
    let (a, b, out) = (call.tensor(SELF)?, call.tensor(right)?, call.tensor(OUT)?);
    let common = call.promote(SELF, right)?;
    call.expect_cast(OUT, common)?;
    let precision = precision(call, common)?;

    // A left vector is a row, a right vector a column.
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let a_dims = if row { vec![1, a.dims[0]] } else { a.dims.clone() };
    let b_dims = if column { vec![b.dims[0], 1] } else { b.dims.clone() };
    let (m, k) = (a_dims[a_dims.len() - 2], a_dims[a_dims.len() - 1]);
    let (depth, n) = (b_dims[b_dims.len() - 2], b_dims[b_dims.len() - 1]);
    if k != depth {
        let text = format!(
            "expected a contracted dim of {k} as in self {:?}, found {depth} in {:?}",
            a.dims, b.dims
        );
        return Err(call.refuse(right, text));
    }
    let batch = crate::operator::call::broadcast(&a_dims[..a_dims.len() - 2], &b_dims[..b_dims.len() - 2])
        .ok_or_else(|| {
            call.refuse(
                right,
                format!(
                    "its batch dims {:?} do not broadcast with the batch dims {:?} of self",
                    b.dims, a.dims
                ),
            )
        })?;
    let mut expected = batch;
    expected.extend((!row).then_some(m));
    expected.extend((!column).then_some(n));
    call.expect_shape(OUT, &expected, "of self @ mat2")?;

    let (a, b, out) = (a.slot, b.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        let row_of = |view: &StridedView| if row { view.unsqueeze(0) } else { view.clone() };
        let column_of = |view: &StridedView| if column { view.unsqueeze(view.rank()) } else { view.clone() };
        let target = views.of(out);
        let target =
            if row { target.unsqueeze(target.rank() - usize::from(!column)) } else { target.clone() };
        matmul::matmul(tiles, &row_of(views.of(a)), &column_of(views.of(b)), precision, &column_of(&target));
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

/// Computes `out = beta * c + alpha * (a @ b)`, for matrices or batches.
fn addmm(
    call: &OperatorCall,
    c: Name<CheckedTensor>,
    factors @ [a, b]: [Name<CheckedTensor>; 2],
    out: Name<CheckedTensor>,
) -> Result<CallPlan, Refusal> {
    let (expected, scales, precision) = expect_product(call, c, factors, out)?;
    call.expect_shape(out, &expected, "of the product")?;
    let [c, a, b, out] =
        [call.tensor(c)?.slot, call.tensor(a)?.slot, call.tensor(b)?.slot, call.tensor(out)?.slot];
    CallPlan::new(move |views, tiles| {
        matmul::addmm(tiles, views.of(c), views.of(a), views.of(b), scales, precision, views.of(out));
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

/// Shape, scales and precision.
type CheckedProduct = (Vec<usize>, SumScales, OperandRounding);

fn expect_product(
    call: &OperatorCall,
    c: Name<CheckedTensor>,
    [left, right]: [Name<CheckedTensor>; 2],
    out: Name<CheckedTensor>,
) -> Result<CheckedProduct, Refusal> {
    let (addend, a, b) = (call.tensor(c)?, call.tensor(left)?, call.tensor(right)?);
    for name in [left, right, out] {
        call.expect_dtype(name, addend.dtype, "the type of self")?;
    }
    let last = a.rank() - 1;
    if a.dims[last] != b.dims[last - 1] || a.dims[..last - 1] != b.dims[..last - 1] {
        let text = format!(
            "expected a contracted dim of {} as in {left} {:?}, found {:?}",
            a.dims[last], a.dims, b.dims
        );
        return Err(call.refuse(right, text));
    }
    let expected = [&a.dims[..last], &b.dims[last..]].concat();
    let target = &call.tensor(out)?.dims;
    if crate::operator::call::broadcast(&addend.dims, target).as_ref() != Some(target) {
        return Err(call.refuse(c, format!("{:?} does not broadcast to {target:?}", addend.dims)));
    }
    let scales = SumScales { beta: call.scalar(BETA)?.lane(), alpha: call.scalar(ALPHA)?.lane() };
    Ok((expected, scales, precision(call, addend.dtype)?))
}

/// Computes `out = beta * c + alpha * (sum of a @ b over the batch)`, rounded once.
fn addbmm(
    call: &OperatorCall,
    c: Name<CheckedTensor>,
    factors @ [a, b]: [Name<CheckedTensor>; 2],
    out: Name<CheckedTensor>,
) -> Result<CallPlan, Refusal> {
    let (expected, SumScales { beta, alpha }, precision) = expect_product(call, c, factors, out)?;
    call.expect_shape(out, &expected[1..], "of the product without the batch")?;
    let [c, a, b, out] =
        [call.tensor(c)?.slot, call.tensor(a)?.slot, call.tensor(b)?.slot, call.tensor(out)?.slot];
    let columns = expected[2];
    CallPlan::new(move |views, tiles| {
        // The batch joins the contracted dim.
        let rows_of = |view: StridedView| {
            let mut values = vec![0f32; view.len()];
            f32::load(&view.collapsed(), 0, &mut values);
            precision.apply(&mut values);
            values
        };
        let (a, b) = (rows_of(views.of(a).permute(&[1, 0, 2])), rows_of(views.of(b).permute(&[2, 0, 1])));
        let out = views.of(out);
        let depth = a.len().checked_div(out.dims()[0]).unwrap_or(0);
        let (c, target) = (views.of(c).broadcast_to(out.dims()).collapsed(), out.collapsed());
        rows_with(
            tiles,
            out.dims()[0],
            depth * columns,
            || vec![0f32; columns],
            |row, at| {
                f32::load(&c, at * columns, row);
                for (column, value) in row.iter_mut().enumerate() {
                    let product =
                        math::dot(&a[at * depth..(at + 1) * depth], &b[column * depth..(column + 1) * depth]);
                    *value = if beta == 0.0 { 0.0 } else { beta * *value } + alpha * product;
                }
                f32::store(&target, at * columns, row);
            },
        );
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

fn grouped_matmul_add(call: &OperatorCall) -> Result<CallPlan, Refusal> {
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
    call.expect_dtype(WEIGHT, x.dtype, "the type of x")?;
    for (name, tensor) in [(X, x), (WEIGHT, weight), (GROUP_LIST, ends)] {
        if tensor.is_empty() {
            return Err(
                call.refuse(name, format!("expected a tensor with elements, found {:?}", tensor.dims))
            );
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
    CallPlan::new(move |views, tiles| {
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
            matmul::addmm(
                tiles,
                &out,
                &part(x).exchanged(),
                &part(weight),
                SumScales::ONE,
                OperandRounding::Keep,
                &out,
            );
        }
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}
