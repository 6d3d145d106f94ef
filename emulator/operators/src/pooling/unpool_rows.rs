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
];

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
