//! Rows that put pooled values back to their positions.

use crate::dtype::AclType::{self, F16, F32, F64, I8, I16, I32, I64, U8};
use crate::lane::with_lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::INDEXES;
use crate::operator::{CallPlan, Refusal};

const PLACED: &[AclType] = &[F32, F16, I8, U8, I16, I32, I64, F64];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMaxUnpool2d",
        parameters: &[
            input(SELF, PLACED, 3, 4),
            input(INDICES, INDEXES, 3, 4),
            output(OUT, PLACED, 3, 4).contiguous(),
        ],
        limits: "self [C, H, W] or [N, C, H, W]; outputSize [H, W] of out; indices count the elements of a plane of out; out \
                 has the type of self, and 0 where no index points; the last value of a position stays",
        source: "CANN 8.1 aclnn API reference, aclnnMaxUnpool2d",
        plan: |call| unpool(call, OUT, 2),
    },
    Operator {
        name: "aclnnMaxUnpool3d",
        parameters: &[
            input(SELF, PLACED, 4, 5),
            input(INDICES, INDEXES, 4, 5),
            output(OUT_REF, PLACED, 4, 5).contiguous(),
        ],
        limits: "as aclnnMaxUnpool2d with outputSize [D, H, W]; stride and padding have 3 numbers, stride above 0",
        source: "ops-nn pooling/max_unpool3d, aclnnMaxUnpool3d (host code)",
        plan: |call| {
            for (name, least) in [(STRIDE, 1), (PADDING, 0)] {
                let given = call.ints(name)?;
                let is_legal = given.len() == 3 && given.iter().all(|&value| value >= least);
                call.expect_that(is_legal, name, &format!("3 numbers of at least {least}"), given)?;
            }
            unpool(call, OUT_REF, 3)
        },
    },
    Operator {
        name: "aclnnMaxUnpool2dBackward",
        parameters: &[
            input(GRAD_OUTPUT, PLACED, 3, 4),
            input(SELF, PLACED, 3, 4),
            input(INDICES, INDEXES, 3, 4),
            output(OUT, PLACED, 3, 4).contiguous(),
        ],
        limits: "gradient of aclnnMaxUnpool2d: out, with shape and type of self, reads gradOutput at indices",
        source: "ops-nn index/gather_elements/docs/aclnnMaxUnpool2dBackward.md",
        plan: |call| unpool_grad(call, 2),
    },
    Operator {
        name: "aclnnMaxUnpool3dBackward",
        parameters: &[
            input(GRAD_OUTPUT, PLACED, 4, 5),
            input(SELF, PLACED, 4, 5),
            input(INDICES, INDEXES, 4, 5),
            output(OUT, PLACED, 4, 5).contiguous(),
        ],
        limits: "as aclnnMaxUnpool2dBackward with outputSize [D, H, W]; stride and padding have 3 numbers",
        source: "ops-nn index/gather_elements/docs/aclnnMaxUnpool3dBackward.md",
        plan: |call| {
            for name in [STRIDE, PADDING] {
                let given = call.ints(name)?;
                call.expect_that(given.len() == 3, name, "3 numbers", given)?;
            }
            unpool_grad(call, 3)
        },
    },
];

fn unpool_grad(call: &OperatorCall, spatial: usize) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[GRAD_OUTPUT, OUT])?;
    let x = call.tensor(SELF)?;
    for name in [INDICES, OUT] {
        call.expect_shape(name, &x.dims, "of self")?;
    }
    let size = call.ints(OUTPUT_SIZE)?;
    let extents: Vec<usize> = size.iter().filter_map(|&extent| usize::try_from(extent).ok()).collect();
    let is_legal = extents.len() == spatial && size.len() == spatial;
    call.expect_that(is_legal, OUTPUT_SIZE, &format!("{spatial} extents of at least 0"), size)?;
    let outer = x.rank() - spatial;
    let shape = [&x.dims[..outer], &extents].concat();
    call.expect_shape(GRAD_OUTPUT, &shape, "leading dims of self, then outputSize")?;
    let (pooled, plane) = (x.dims[outer..].iter().product::<usize>(), extents.iter().product::<usize>());
    let (dtype, [grad, indices, out]) = (x.dtype, call.slots_of([GRAD_OUTPUT, INDICES, OUT])?);
    CallPlan::new(move |views, _| {
        with_lane!(dtype, L => {
            let (grads, indices) = (views.read::<L>(grad), views.read::<i64>(indices));
            let value = |(at, &index): (usize, &i64)| {
                let place = usize::try_from(index).ok().filter(|&place| place < plane);
                let place = place.ok_or_else(|| format!("indices: expected 0 to {}, found {index}", plane as i64 - 1))?;
                Ok(grads[at / pooled * plane + place])
            };
            let values = indices.iter().enumerate().map(value).collect::<Result<Vec<L>, String>>()?;
            views.write(out, &values);
        });
        Ok(())
    })
}

fn unpool(call: &OperatorCall, out: Name<CheckedTensor>, spatial: usize) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[out])?;
    call.expect_shape(INDICES, &x.dims, "of self")?;
    let size = call.ints(OUTPUT_SIZE)?;
    let extents: Vec<usize> = size.iter().filter_map(|&extent| usize::try_from(extent).ok()).collect();
    let is_legal = extents.len() == spatial && size.len() == spatial;
    call.expect_that(is_legal, OUTPUT_SIZE, &format!("{spatial} extents of at least 0"), size)?;
    let outer = x.rank() - spatial;
    call.expect_shape(out, &[&x.dims[..outer], &extents].concat(), "leading dims of self, then outputSize")?;
    let (pooled, plane) = (x.dims[outer..].iter().product::<usize>(), extents.iter().product::<usize>());
    let [x, indices, out] = call.slots_of([SELF, INDICES, out])?;
    let dtype = call.tensor(SELF)?.dtype;
    CallPlan::new(move |views, _| {
        with_lane!(dtype, L => {
            let (values, indices) = (views.read::<L>(x), views.read::<i64>(indices));
            let mut planes = vec![L::default(); views.of(out).len()];
            for (at, (&value, &index)) in values.iter().zip(&indices).enumerate() {
                let place = usize::try_from(index).ok().filter(|&place| place < plane);
                let place = place.ok_or_else(|| format!("indices: expected 0 to {}, found {index}", plane as i64 - 1))?;
                planes[at / pooled * plane + place] = value;
            }
            views.write(out, &planes);
        });
        Ok(())
    })
}
