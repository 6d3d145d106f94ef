//! Quantisation and dequantisation in one step, as training sees it.

use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{BOOL, HALF_OR_SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFakeQuantPerTensorAffineCachemask",
        parameters: &[
            input(SELF, HALF_OR_SINGLE, 0, 8),
            input(SCALE, HALF_OR_SINGLE, 0, 8),
            input(ZERO_POINT, WHOLE32, 0, 8),
            output(OUT, HALF_OR_SINGLE, 0, 8),
            output(MASK, BOOL, 0, 8),
        ],
        limits: "out is (clamp(round(self / scale) + zeroPoint) - zeroPoint) * scale, mask what quantMin and quantMax did not \
                 clamp; scale and zeroPoint have one element; fakeQuantEnbled below 1 copies self; quantMin at most quantMax",
        source: "ops-nn quant/fake_quant_affine_cachemask, aclnnFakeQuantPerTensorAffineCachemask (host code)",
        plan: |call| {
            for name in [SCALE, ZERO_POINT] {
                let found = call.tensor(name)?;
                call.expect_that(found.len() == 1, name, "one element", &found.dims)?;
            }
            fake(call, None, call.float(FAKE_QUANT_ENBLED)? >= 1.0)
        },
    },
    Operator {
        name: "aclnnFakeQuantPerChannelAffineCachemask",
        parameters: &[
            input(SELF, HALF_OR_SINGLE, 1, 8),
            input(SCALE, HALF_OR_SINGLE, 1, 1),
            input(ZERO_POINT, WHOLE32, 1, 1),
            output(OUT, HALF_OR_SINGLE, 1, 8),
            output(MASK, BOOL, 1, 8),
        ],
        limits: "as aclnnFakeQuantPerTensorAffineCachemask; scale and zeroPoint have a number for each index of axis",
        source: "CANN 8.1 aclnn API reference, aclnnFakeQuantPerChannelAffineCachemask",
        plan: |call| {
            let x = call.tensor(SELF)?;
            let axis = call.dim(AXIS, x.rank())?;
            for name in [SCALE, ZERO_POINT] {
                call.expect_shape(name, &[x.dims[axis]], "the extent of axis")?;
            }
            fake(call, Some(axis), true)
        },
    },
];

fn fake(call: &OperatorCall, axis: Option<usize>, is_enabled: bool) -> Result<CallPlan, Refusal> {
    let x: &CheckedTensor = call.tensor(SELF)?;
    call.expect_cast(OUT, call.promote(SELF, SCALE)?)?;
    for name in [OUT, MASK] {
        call.expect_shape(name, &x.dims, "of self")?;
    }
    let (least, most) = (call.int(QUANT_MIN)?, call.int(QUANT_MAX)?);
    call.expect_that(least <= most, QUANT_MIN, &format!("at most quantMax {most}"), least)?;
    let inner = axis.map_or(1, |axis| x.dims[axis + 1..].iter().product::<usize>());
    let [x, scale, zero, out, mask] = call.slots_of([SELF, SCALE, ZERO_POINT, OUT, MASK])?;
    CallPlan::new(move |views, _| {
        let (mut values, scales) = (views.read::<f32>(x), views.read::<f32>(scale));
        let zeros = views.read::<i64>(zero);
        let mut kept = vec![1i64; values.len()];
        if is_enabled {
            for (at, (value, kept)) in values.iter_mut().zip(&mut kept).enumerate() {
                let channel = at / inner % scales.len();
                let (scale, zero) = (scales[channel], zeros[channel] as f32);
                let level = (*value / scale).round_ties_even() + zero;
                *kept = i64::from(level >= least as f32 && level <= most as f32);
                *value = (level.clamp(least as f32, most as f32) - zero) * scale;
            }
        }
        views.write(out, &values);
        views.write(mask, &kept);
        Ok(())
    })
}
