//! Few-bit quantisation, and products with quantised weights.
//!
//! Eight 4-bit weights fill an INT32, the first in its lowest bits.

use crate::dtype::AclType::{self, BF16, F16, F32, I8, I32, U8};
use crate::elementwise::kernels::map3;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{BYTES, FLOATING, HALVES, WHOLE32};
use crate::operator::{CallPlan, Refusal};
use crate::quantization::weight_kernels::{self as weight_quantize, Dequantised};
use crate::view::StridedView;

const WEIGHTS: &[AclType] = &[I8, I32];
const STORED: &[AclType] = &[I8, U8, I32];
const BIASES: &[AclType] = &[F16, F32, BF16];
const PER_WORD: usize = 8;
const LARGEST_SIDE: usize = 65_535;

const PRODUCT_LIMITS: &str = "x [m, k]; weight [k, n], of INT32 [k, n / 8] or, with its dims swapped, [k / 8, n]; antiquantScale and \
                              antiquantOffsetOptional of the type of x, [1], [n], [1, n] or, with antiquantGroupSize, [ceil(k / size), n]; \
                              weights are (weight + offset) scale, rounded to the type of x; biasOptional [n] or [1, n], of the type of \
                              x or, for BFLOAT16, FLOAT; y of the type of x; antiquantGroupSize 0 or a multiple of 32 from 32 to k - 1; \
                              k and n at most 65535; no empty tensor";

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnWeightQuantBatchMatmulV2",
        parameters: &[
            input(X, HALVES, 2, 2),
            input(WEIGHT, WEIGHTS, 2, 2).or_blocked(),
            input(ANTIQUANT_SCALE, HALVES, 1, 2),
            input(ANTIQUANT_OFFSET_OPTIONAL, HALVES, 1, 2).optional(),
            input(BIAS_OPTIONAL, BIASES, 1, 2).optional(),
            output(Y, HALVES, 2, 2),
        ],
        limits: PRODUCT_LIMITS,
        source: "ops-nn matmul/weight_quant_batch_matmul_v2/docs/aclnnWeightQuantBatchMatmulV2.md",
        plan: weight_quant_matmul,
    },
    Operator {
        name: "aclnnWeightQuantBatchMatmulV3",
        parameters: &[
            input(X, HALVES, 2, 2),
            input(WEIGHT, WEIGHTS, 2, 2).or_blocked(),
            input(ANTIQUANT_SCALE, HALVES, 1, 2),
            input(ANTIQUANT_OFFSET_OPTIONAL, HALVES, 1, 2).optional(),
            input(BIAS_OPTIONAL, BIASES, 1, 2).optional(),
            output(Y, HALVES, 2, 2),
        ],
        limits: PRODUCT_LIMITS,
        source: "ops-nn matmul/weight_quant_batch_matmul_v2/docs/aclnnWeightQuantBatchMatmulV3.md",
        plan: weight_quant_matmul,
    },
    Operator {
        name: "aclnnConvertWeightToINT4Pack",
        parameters: &[
            input(WEIGHT, WHOLE32, 2, 3).contiguous(),
            output(WEIGHT_INT4_PACK, WHOLE32, 2, 3).contiguous(),
        ],
        limits: "weight holds -8 to 7, its last dim is a multiple of 8; the last dim of weightInt4Pack is an eighth",
        source: "ops-nn matmul/convert_weight_to_int4_pack/docs/aclnnConvertWeightToINT4Pack.md (INT32 out, format ND)",
        plan: pack,
    },
    Operator {
        name: "aclnnQuantize",
        parameters: &[
            input(X, FLOATING, 1, 8),
            input(SCALES, &[F32, BF16], 1, 1),
            input(ZERO_POINTS, STORED, 1, 1).optional(),
            output(OUT, STORED, 1, 8),
        ],
        limits: "out has the shape of x and the type dtype; scales and zeroPoints have 1 element or the extent of \
                 axis; round(x / scale) + zero point, saturated",
        source: "ops-nn quant/quantize/docs/aclnnQuantize.md",
        plan: quantize_plan,
    },
    Operator {
        name: "aclnnAscendQuant",
        parameters: &[
            input(X, FLOATING, 1, 8),
            input(SCALE, FLOATING, 1, 8),
            input(OFFSET, FLOATING, 1, 8).optional(),
            output(Y, BYTES, 1, 8),
        ],
        limits: "scale and offset have the type of x, and 1 element or [n] for the last dim; y has the shape of x; \
                 round(x scale + offset), scale squared with sqrtMode; roundMode round, floor, ceil or trunc; dstType \
                 INT8",
        source: "ops-nn quant/ascend_quant/docs/aclnnAscendQuant.md",
        plan: |call| ascend_quant(call, -1),
    },
    Operator {
        name: "aclnnAscendQuantV3",
        parameters: &[
            input(X, FLOATING, 1, 8),
            input(SCALE, FLOATING, 1, 8),
            input(OFFSET, FLOATING, 1, 8).optional(),
            output(Y, BYTES, 1, 8),
        ],
        limits: "as aclnnAscendQuant along axis, the last dim or the one before",
        source: "ops-nn quant/ascend_quant_v2/docs/aclnnAscendQuantV3.md",
        plan: |call| ascend_quant(call, call.int(AXIS)?),
    },
    Operator {
        name: "aclnnAscendAntiQuant",
        parameters: &[
            input(X, BYTES, 1, 8),
            input(SCALE, &[F32, BF16], 1, 1),
            input(OFFSET, &[F32, BF16], 1, 1).optional(),
            output(Y, HALVES, 1, 8),
        ],
        limits: "scale and offset have one type, and 1 element or the extent of the last dim; y has the shape of x and \
                 the type dstType; (x + offset) scale, scale squared with sqrtMode",
        source: "ops-nn quant/ascend_anti_quant_v2/docs/aclnnAscendAntiQuant.md",
        plan: anti_quant,
    },
];

/// Accepts `n` columns, or `[groups, n]`.
fn per_column(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    n: usize,
    groups: usize,
) -> Result<(), Refusal> {
    let found = &call.tensor(name)?.dims;
    let goes = match found[..] {
        [len] => groups == 1 && (len == 1 || len == n),
        [rows, len] => rows == groups && (len == n || (len == 1 && groups == 1)),
        _ => false,
    };
    if goes {
        return Ok(());
    }
    Err(call.refuse(
        name,
        format!("expected one in all, one per column of {n}, or [{groups}, {n}], found {found:?}"),
    ))
}

fn weight_quant_matmul(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, weight, y) = (call.tensor(X)?, call.tensor(WEIGHT)?, call.tensor(Y)?);
    let [m, k] = x.dims[..] else { return Err(call.refuse(X, "expected a matrix")) };
    let n = y.dims[1];
    let packing = match (weight.dtype, &weight.dims[..]) {
        (I8, [depth, columns]) if *depth == k && *columns == n => weight_quantize::WeightPacking::None,
        (I32, [depth, words]) if *depth == k && words * PER_WORD == n => {
            weight_quantize::WeightPacking::Columns
        }
        (I32, [words, columns]) if words * PER_WORD == k && *columns == n => {
            weight_quantize::WeightPacking::Depth
        }
        _ => {
            let text = format!(
                "expected [{k}, {n}] for x {:?} and y {:?}, found {} {:?}",
                x.dims, y.dims, weight.dtype, weight.dims
            );
            return Err(call.refuse(WEIGHT, text));
        }
    };
    if y.dims[0] != m || [m, k, n].contains(&0) {
        return Err(call
            .refuse(Y, format!("expected [{m}, {n}] with elements, found {:?} for x {:?}", y.dims, x.dims)));
    }
    if k.max(n) > LARGEST_SIDE {
        return Err(
            call.refuse(WEIGHT, format!("expected k and n of at most {LARGEST_SIDE}, found {k} and {n}"))
        );
    }
    let size = call.int(ANTIQUANT_GROUP_SIZE)?;
    let groups = match usize::try_from(size) {
        Ok(0) => 1,
        Ok(size) if size >= 32 && size < k && size.is_multiple_of(32) => k.div_ceil(size),
        _ => {
            let text =
                format!("expected 0, or a multiple of 32 from 32 to {}, found {size}", k.saturating_sub(1));
            return Err(call.refuse(ANTIQUANT_GROUP_SIZE, text));
        }
    };
    for name in [ANTIQUANT_SCALE, ANTIQUANT_OFFSET_OPTIONAL] {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_dtype(name, x.dtype, "the type of x")?;
            per_column(call, name, n, groups)?;
        }
    }
    call.expect_dtype(Y, x.dtype, "the type of x")?;
    if let Some(bias) = call.tensor_if_given(BIAS_OPTIONAL)? {
        per_column(call, BIAS_OPTIONAL, n, 1)?;
        if bias.dtype != x.dtype && (x.dtype, bias.dtype) != (BF16, F32) {
            return Err(
                call.refuse(BIAS_OPTIONAL, format!("{} does not go with x of {}", bias.dtype, x.dtype))
            );
        }
    }
    let slot = |name: Name<CheckedTensor>| Ok(call.tensor_if_given(name)?.map(|tensor| tensor.slot));
    let (offset, bias) = (slot(ANTIQUANT_OFFSET_OPTIONAL)?, slot(BIAS_OPTIONAL)?);
    let (scale, group) = (call.tensor(ANTIQUANT_SCALE)?.slot, if groups == 1 { k } else { size as usize });
    let (x, weight, y) = (x.slot, weight.slot, y.slot);
    CallPlan::new(move |views, tiles| {
        let spread = |view: &StridedView| {
            let matrix = if view.rank() == 1 { view.unsqueeze(0) } else { view.clone() };
            matrix.broadcast_to(&[groups, n])
        };
        let weights = Dequantised {
            weight: views.of(weight),
            packing,
            group,
            scale: &spread(views.of(scale)),
            offset: offset.map(|slot| spread(views.of(slot))),
            dtype: views.of(x).dtype(),
        };
        let bias = bias.map(|slot| spread_bias(views.of(slot), n));
        weight_quantize::product(tiles, views.of(x), &weights, bias.as_ref(), views.of(y));
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

fn spread_bias(bias: &StridedView, n: usize) -> StridedView {
    bias.collapsed().broadcast_to(&[n])
}

fn pack(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let weight = call.tensor(WEIGHT)?;
    let (last, leading) = (weight.dims[weight.rank() - 1], &weight.dims[..weight.rank() - 1]);
    if !last.is_multiple_of(PER_WORD) {
        return Err(call
            .refuse(WEIGHT, format!("expected a last dim that is a multiple of {PER_WORD}, found {last}")));
    }
    call.expect_shape(WEIGHT_INT4_PACK, &[leading, &[last / PER_WORD]].concat(), "of weight, eight in one")?;
    let (weight, out) = (weight.slot, call.tensor(WEIGHT_INT4_PACK)?.slot);
    CallPlan::new(move |views, _| weight_quantize::pack(views.of(weight), views.of(out)))
}

/// Returns one element, or one per position of `axis`.
fn along(call: &OperatorCall, name: Name<CheckedTensor>, dims: &[usize], axis: usize) -> Result<(), Refusal> {
    let (found, extent) = (call.tensor(name)?, dims[axis]);
    if found.len() == 1 || (found.len() == extent && found.dims.iter().filter(|&&dim| dim > 1).count() <= 1) {
        return Ok(());
    }
    Err(call.refuse(name, format!("expected 1 or {extent} elements in one dim, found {:?}", found.dims)))
}

fn spread_along(view: &StridedView, dims: &[usize], axis: usize) -> StridedView {
    let mut line = view.collapsed();
    for _ in axis + 1..dims.len() {
        line = line.unsqueeze(line.rank());
    }
    line.broadcast_to(dims)
}

fn quantize_plan(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let axis = call.dim(AXIS, x.rank())?;
    call.expect_shape(OUT, &x.dims, "of x")?;
    call.expect_dtype(OUT, call.data_type(DTYPE)?, "that dtype says")?;
    along(call, SCALES, &x.dims, axis)?;
    let zero = call.tensor_if_given(ZERO_POINTS)?;
    if zero.is_some() {
        along(call, ZERO_POINTS, &x.dims, axis)?;
    }
    let (out, zero) = (call.tensor(OUT)?, zero.map(|zero| zero.slot));
    let (low, high) = match out.dtype {
        I8 => (-128.0, 127.0),
        U8 => (0.0, 255.0),
        _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
    };
    let (dims, x, scale, out) = (x.dims.clone(), x.slot, call.tensor(SCALES)?.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        let scale = spread_along(views.of(scale), &dims, axis);
        let zero = zero.map(|slot| spread_along(views.of(slot), &dims, axis));
        // The scales replace missing zero points and are ignored.
        let shift = zero.as_ref().unwrap_or(&scale);
        map3::<f64>(tiles, [views.of(x), &scale, shift], views.of(out), |x, scale, shift| {
            for ((x, scale), shift) in x.iter_mut().zip(scale).zip(shift) {
                let quotient = f64::from((*x as f32 / *scale as f32).round_ties_even());
                *x = (quotient + if zero.is_some() { *shift } else { 0.0 }).clamp(low, high);
            }
        });
        Ok(())
    })
}

fn ascend_quant(call: &OperatorCall, axis: i64) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let rank = x.rank() as i64;
    let axis = if axis < 0 { axis + rank } else { axis };
    if axis < (rank - 2).max(0) || axis >= rank {
        return Err(call
            .refuse(X, format!("expected the last axis or the one before for {:?}, found {axis}", x.dims)));
    }
    let axis = axis as usize;
    call.expect_shape(Y, &x.dims, "of x")?;
    call.expect_dtype(Y, call.data_type(DST_TYPE)?, "that dstType says")?;
    for name in [SCALE, OFFSET] {
        if call.tensor_if_given(name)?.is_some() {
            along(call, name, &x.dims, axis)?;
            call.expect_dtype(name, x.dtype, "the type of x")?;
        }
    }
    let round: fn(f32) -> f32 = match call.text(ROUND_MODE)? {
        "round" => f32::round_ties_even,
        "floor" => f32::floor,
        "ceil" => f32::ceil,
        "trunc" => f32::trunc,
        other => {
            return Err(
                call.refuse(ROUND_MODE, format!("expected round, floor, ceil or trunc, found {other}"))
            );
        }
    };
    let squared = call.flag(SQRT_MODE)?;
    let offset = call.tensor_if_given(OFFSET)?.map(|offset| offset.slot);
    let (dims, x, scale, y) = (x.dims.clone(), x.slot, call.tensor(SCALE)?.slot, call.tensor(Y)?.slot);
    CallPlan::new(move |views, tiles| {
        let scale = spread_along(views.of(scale), &dims, axis);
        let offset = offset.map(|slot| spread_along(views.of(slot), &dims, axis));
        let shift = offset.as_ref().unwrap_or(&scale);
        map3::<f32>(tiles, [views.of(x), &scale, shift], views.of(y), |x, scale, shift| {
            for ((x, scale), shift) in x.iter_mut().zip(scale).zip(shift) {
                let scaled = *x * scale * if squared { *scale } else { 1.0 };
                *x = round(scaled + if offset.is_some() { *shift } else { 0.0 }).clamp(-128.0, 127.0);
            }
        });
        Ok(())
    })
}

fn anti_quant(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let axis = x.rank() - 1;
    call.expect_shape(Y, &x.dims, "of x")?;
    call.expect_dtype(Y, call.data_type(DST_TYPE)?, "that dstType says")?;
    along(call, SCALE, &x.dims, axis)?;
    let offset = call.tensor_if_given(OFFSET)?.map(|offset| offset.slot);
    if offset.is_some() {
        along(call, OFFSET, &x.dims, axis)?;
        call.expect_dtype(OFFSET, call.tensor(SCALE)?.dtype, "the type of scale")?;
    }
    let squared = call.flag(SQRT_MODE)?;
    let (dims, x, scale, y) = (x.dims.clone(), x.slot, call.tensor(SCALE)?.slot, call.tensor(Y)?.slot);
    CallPlan::new(move |views, tiles| {
        let scale = spread_along(views.of(scale), &dims, axis);
        let offset = offset.map(|slot| spread_along(views.of(slot), &dims, axis));
        let shift = offset.as_ref().unwrap_or(&scale);
        map3::<f32>(tiles, [views.of(x), &scale, shift], views.of(y), |x, scale, shift| {
            for ((x, scale), shift) in x.iter_mut().zip(scale).zip(shift) {
                let shifted = *x + if offset.is_some() { *shift } else { 0.0 };
                *x = shifted * scale * if squared { *scale } else { 1.0 };
            }
        });
        Ok(())
    })
}
