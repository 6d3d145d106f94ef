//! Rows of the conversions to and from `FRACTAL_NZ`.

use crate::dtype::AclType;
use crate::elementwise::kernels as elementwise;
use crate::fractal::Fractal;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::CUBED;
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnTransMatmulWeight",
        parameters: &[in_place(MM_WEIGHT_REF, CUBED, 2, 6).contiguous()],
        limits: "FLOAT16 and BFLOAT16 of at most 3 dims; memory for the elements given by \
                 aclnnCalculateMatmulWeightSizeV2; the tensor is in FRACTAL_NZ after this call",
        source: "CANN 8.1 aclnn API reference, aclnnTransMatmulWeight",
        plan: trans_matmul_weight,
    },
    Operator {
        name: "aclnnNpuFormatCast",
        parameters: &[
            input(SRC_TENSOR, CUBED, 2, 6).or_blocked(),
            output(DST_TENSOR, CUBED, 2, 6).or_blocked(),
        ],
        limits: "one of the two tensors in FRACTAL_NZ; one shape and element type",
        source: "ops-math conversion/npu_format_cast/docs/aclnnNpuFormatCast.md",
        plan: format_cast,
    },
];

fn trans_matmul_weight(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let weight = call.tensor(MM_WEIGHT_REF)?;
    if weight.offset != 0 {
        let text = format!("expected a whole tensor, found one at offset {}", weight.offset);
        return Err(call.refuse(MM_WEIGHT_REF, text));
    }
    let most = if weight.dtype == AclType::I8 { 6 } else { 3 };
    if weight.rank() > most {
        let text = format!("expected at most {most} dims of {}, found {:?}", weight.dtype, weight.dims);
        return Err(call.refuse(MM_WEIGHT_REF, text));
    }
    let fractal = Fractal::of(weight.dtype, &weight.dims)
        .ok_or_else(|| call.refuse(MM_WEIGHT_REF, format!("{:?} has too many elements", weight.dims)))?;
    let plan = CallPlan::new(|_, _| Ok(()))?;
    Ok(if weight.is_empty() { plan } else { plan.blocking(weight.slot, fractal) })
}

fn format_cast(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (source, target) = (call.tensor(SRC_TENSOR)?, call.tensor(DST_TENSOR)?);
    call.expect_shape(DST_TENSOR, &source.dims, "of srcTensor")?;
    call.expect_dtype(DST_TENSOR, source.dtype, "the type of srcTensor")?;
    if source.fractal.is_some() == target.fractal.is_some() {
        let text = format!(
            "expected FRACTAL_NZ for one tensor, found formats {} and {}",
            source.format, target.format
        );
        return Err(call.refuse(DST_TENSOR, text));
    }
    let (source, target) = (source.slot, target.slot);
    CallPlan::new(move |views, tiles| {
        elementwise::copy(tiles, views.of(source), views.of(target));
        Ok(())
    })
}
