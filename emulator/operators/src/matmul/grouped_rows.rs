//! Rows of grouped matrix products.

use crate::dtype::AclType;
use crate::lane::Lane;
use crate::matmul::kernels::{self as matmul, OperandRounding, SumScales};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, input, inputs, ints, outputs, unmodelled};
use crate::operator::sets::{FLOATING, HALVES, INDEX64, SINGLE};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::quantization::kernels::{self as quantize, Dequantizer};
use crate::quantization::weight_kernels::{self as weight_quantize, Dequantised, WeightPacking};
use crate::view::StridedView;

const MOST_GROUPS: usize = 1024;

const LIMITS: &str = "groupType -1: out[i] = x[i] @ weight[i] + bias[i]; groupType 0: the groups split the rows of one \
                      x [M, K]; a weight [K, N] per group or one [groups, K, N], a bias [N] per group or one [groups, \
                      N], one out [M, N]; groupType 2: the groups split K of one x [M, K] and one weight [K, N]; out \
                      [groups, M, N]; groupListOptional has the ends (groupListType 0) or the lengths (1) of the \
                      groups; splitItem 0 or 1 for several outputs, 2 or 3 for one; one element type, bias of FLOAT \
                      for BFLOAT16; INT8 x and weight: groupType 0, one tensor each, out of FLOAT16 or BFLOAT16, \
                      scaleOptional [groups, N] of BFLOAT16 for BFLOAT16 out and FLOAT for FLOAT16 out, \
                      perTokenScaleOptional [M], no bias; INT32 weight of eight 4-bit integers a word, with x of FLOAT16 \
                      or BFLOAT16: groupType 0, one tensor each, weight [groups, K, N / 8] or, contiguous with its last \
                      dims swapped, [groups, K / 8, N]; weights are (weight + offset) scale, rounded to the type of x; \
                      antiquantScaleOptional and antiquantOffsetOptional of the type of x, both given, [groups, N] or \
                      [groups, G, N], with G a divisor of K, and K / G even for swapped dims; K and the last dim of the \
                      weights at most 65535; actType 0; a tuning configuration changes no result";

/// Types of factors.
const FACTORS: &[AclType] = &[AclType::F32, AclType::F16, AclType::BF16, AclType::I8];
/// Types of weights: factors, and words of 4-bit integers.
const WEIGHTS: &[AclType] = &[AclType::F32, AclType::F16, AclType::BF16, AclType::I8, AclType::I32];
/// Number of 4-bit integers per word.
const PER_WORD: usize = 8;
/// Largest last dim of x and weight.
const LARGEST_LAST_DIM: usize = 65_535;
/// Types of the scales of columns.
const COLUMN_SCALES: &[AclType] = &[AclType::F32, AclType::BF16];

const V4: [Parameter; 9] = [
    inputs(X_LIST, FACTORS, 2, 6),
    inputs(WEIGHT_LIST, WEIGHTS, 2, 3),
    inputs(BIAS_LIST_OPTIONAL, FLOATING, 1, 2).optional(),
    inputs(SCALE_LIST_OPTIONAL, COLUMN_SCALES, 1, 2).optional(),
    inputs(ANTIQUANT_SCALE_LIST_OPTIONAL, HALVES, 2, 3).optional(),
    inputs(ANTIQUANT_OFFSET_LIST_OPTIONAL, HALVES, 2, 3).optional(),
    inputs(PER_TOKEN_SCALE_LIST_OPTIONAL, SINGLE, 1, 1).optional(),
    input(GROUP_LIST_OPTIONAL, INDEX64, 1, 1).optional(),
    outputs(OUT_LIST, FLOATING, 2, 6),
];
const V5: [Parameter; 10] = {
    let [x, weight, bias, scale, weight_scale, weight_offset, tokens, groups, out] = V4;
    let tuning = ints(TUNING_CONFIG_OPTIONAL).optional();
    [x, weight, bias, scale, weight_scale, weight_offset, tokens, groups, tuning, out]
};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnGroupedMatmulV4",
        parameters: &V4,
        limits: LIMITS,
        source: "ops-transformer gmm/grouped_matmul/docs/aclnnGroupedMatmulV4.md",
        plan: grouped,
    },
    Operator {
        name: "aclnnGroupedMatmulV5",
        parameters: &V5,
        limits: LIMITS,
        source: "ops-transformer gmm/grouped_matmul/docs/aclnnGroupedMatmulV5.md",
        plan: grouped,
    },
    Operator {
        name: "aclnnGroupedMatmul",
        parameters: &[
            inputs(X_LIST, FLOATING, 2, 6),
            inputs(WEIGHT_LIST, FLOATING, 2, 2),
            inputs(BIAS_LIST_OPTIONAL, FLOATING, 1, 1).optional(),
            unmodelled(GROUP_LIST_OPTIONAL_ARRAY),
            outputs(OUT_LIST, FLOATING, 2, 6),
        ],
        limits: "as aclnnGroupedMatmulV4 with groupType -1; groupListOptional NULL, splitItem 0",
        source: "ops-transformer gmm/grouped_matmul/docs/aclnnGroupedMatmul.md",
        plan: |call| {
            call.int_in(SPLIT_ITEM, 0..=0)?;
            let [x, weight, bias, out] =
                [X_LIST, WEIGHT_LIST, BIAS_LIST_OPTIONAL, OUT_LIST].map(|name| call.tensors(name));
            let (x, weight, bias, out) = (x?, weight?, bias?, out?);
            let Some(first) = x.first() else {
                return Err(call.refuse(X_LIST, "expected at least one tensor, found an empty list"));
            };
            let lists = [(X_LIST, x), (WEIGHT_LIST, weight), (OUT_LIST, out)];
            expect_types(call, first.dtype, &lists, bias)?;
            pairs(call, x, weight, bias, out)
        },
    },
];

/// Returns the rows of groups with these ends.
pub(crate) fn group_parts(
    name: &str,
    ends: &[i64],
    rows: usize,
) -> Result<Vec<std::ops::Range<usize>>, String> {
    let is_legal = ends.is_sorted() && ends.iter().all(|&end| 0 <= end && end <= rows as i64);
    let starts = [0].into_iter().chain(ends.iter().map(|&end| end as usize));
    let parts = starts.zip(ends).map(|(start, &end)| start..end as usize).collect();
    if is_legal {
        Ok(parts)
    } else {
        Err(format!("{name}: expected ends that ascend to {rows}, found {ends:?}"))
    }
}

#[derive(Clone, Copy)]
struct GroupList {
    list: ViewIndex,
    count: usize,
    /// Lengths instead of ends.
    lengths: bool,
    /// Extent that the groups divide.
    extent: usize,
}

impl GroupList {
    fn parts(&self, views: &StridedViews<'_>) -> Result<Vec<(usize, usize)>, String> {
        let mut listed = vec![0i64; self.count];
        i64::load(&views.of(self.list).collapsed(), 0, &mut listed);
        let mut start = 0usize;
        let part = |(group, &value): (usize, &i64)| {
            let end = if self.lengths { (start as i64).saturating_add(value) } else { value };
            let end = usize::try_from(end)
                .ok()
                .filter(|end| (start..=self.extent).contains(end))
                .ok_or_else(|| {
                    format!(
                        "groupListOptional: group {group} begins at {start} of {} and has {value} for its {}",
                        self.extent,
                        if self.lengths { "length" } else { "end" }
                    )
                })?;
            let begun = std::mem::replace(&mut start, end);
            Ok((begun, end - begun))
        };
        listed.iter().enumerate().map(part).collect()
    }
}

/// Returns a list element, or a slice of the only tensor.
fn of_group<'a>(views: &StridedViews<'a>, slots: &[ViewIndex], group: usize) -> StridedView {
    if slots.len() > 1 { views.of(slots[group]).clone() } else { views.of(slots[0]).at(0, group) }
}

fn slots(list: &[CheckedTensor]) -> Vec<ViewIndex> {
    list.iter().map(|tensor| tensor.slot).collect()
}

fn multiply(
    tiles: &dyn crate::Tiles,
    a: &StridedView,
    b: &StridedView,
    bias: Option<&StridedView>,
    out: &StridedView,
) {
    match bias {
        None => matmul::matmul(tiles, a, b, OperandRounding::Keep, out),
        Some(bias) => matmul::addmm(tiles, bias, a, b, SumScales::ONE, OperandRounding::Keep, out),
    }
}

fn grouped(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, weight, bias, out) = (
        call.tensors(X_LIST)?,
        call.tensors(WEIGHT_LIST)?,
        call.tensors(BIAS_LIST_OPTIONAL)?,
        call.tensors(OUT_LIST)?,
    );
    for (name, list) in [(X_LIST, x), (WEIGHT_LIST, weight), (OUT_LIST, out)] {
        if list.is_empty() {
            return Err(call.refuse(name, "expected at least one tensor, found an empty list"));
        }
    }
    let dtype = x[0].dtype;
    if dtype == AclType::I8 {
        expect_null(call, &[ANTIQUANT_SCALE_LIST_OPTIONAL, ANTIQUANT_OFFSET_LIST_OPTIONAL], "x of INT8")?;
        return quantised(call, x, weight, bias, out);
    }
    let of_x = format!("x of {dtype}");
    expect_null(call, &[SCALE_LIST_OPTIONAL, PER_TOKEN_SCALE_LIST_OPTIONAL], &of_x)?;
    if weight[0].dtype == AclType::I32 && dtype != AclType::F32 {
        return with_words(call, x, weight, bias, out);
    }
    let of_weight = format!("weight of {}", weight[0].dtype);
    expect_null(call, &[ANTIQUANT_SCALE_LIST_OPTIONAL, ANTIQUANT_OFFSET_LIST_OPTIONAL], &of_weight)?;
    expect_types(call, dtype, &[(X_LIST, x), (WEIGHT_LIST, weight), (OUT_LIST, out)], bias)?;
    expect_options(call, out)?;
    match call.int(GROUP_TYPE)? {
        -1 => pairs(call, x, weight, bias, out),
        0 => by_rows(call, x, weight, bias, out),
        2 => by_depth(call, x, weight, bias, out),
        other => {
            Err(call
                .refuse(GROUP_TYPE, format!("expected -1 (none), 0 (along M) or 2 (along K), found {other}")))
        }
    }
}

fn expect_null(call: &OperatorCall, names: &[Name<[CheckedTensor]>], of: &str) -> Result<(), Refusal> {
    for name in names {
        if !call.tensors(*name)?.is_empty() {
            return Err(call.refuse(*name, format!("expected NULL for {of}, found a list")));
        }
    }
    Ok(())
}

/// Checks that tensors have the type of x, and the bias the type that belongs to it.
fn expect_types(
    call: &OperatorCall,
    dtype: AclType,
    lists: &[(Name<[CheckedTensor]>, &[CheckedTensor])],
    bias: &[CheckedTensor],
) -> Result<(), Refusal> {
    let of_bias = if dtype == AclType::BF16 { AclType::F32 } else { dtype };
    let lists = lists.iter().map(|(name, list)| (*name, *list, dtype));
    for (name, list, wanted) in lists.chain([(BIAS_LIST_OPTIONAL, bias, of_bias)]) {
        if let Some(other) = list.iter().find(|tensor| tensor.dtype != wanted) {
            return Err(
                call.refuse(name, format!("expected {wanted} for x of {dtype}, found {}", other.dtype))
            );
        }
    }
    Ok(())
}

fn expect_options(call: &OperatorCall, out: &[CheckedTensor]) -> Result<(), Refusal> {
    if call.int(ACT_TYPE)? != 0 {
        return Err(call.refuse(ACT_TYPE, format!("expected 0, found {}", call.int(ACT_TYPE)?)));
    }
    let split = call.int(SPLIT_ITEM)?;
    if !(0..=3).contains(&split) || (split >= 2) != (out.len() == 1) && out.len() > 1 {
        return Err(call.refuse(
            SPLIT_ITEM,
            format!("expected 0 or 1 for several outputs, 2 or 3 for one, found {split}"),
        ));
    }
    Ok(())
}

fn expect_length(
    call: &OperatorCall,
    name: Name<[CheckedTensor]>,
    list: &[CheckedTensor],
    expected: usize,
) -> Result<(), Refusal> {
    if list.len() == expected {
        return Ok(());
    }
    Err(call.refuse(name, format!("expected {expected} tensors, found {}", list.len())))
}

fn expect_dims(
    call: &OperatorCall,
    name: Name<[CheckedTensor]>,
    at: usize,
    found: &CheckedTensor,
    dims: &[usize],
) -> Result<(), Refusal> {
    if found.dims == dims {
        return Ok(());
    }
    Err(call.refuse(name, format!("tensor {at}: expected {dims:?}, found {:?}", found.dims)))
}

fn pairs(
    call: &OperatorCall,
    x: &[CheckedTensor],
    weight: &[CheckedTensor],
    bias: &[CheckedTensor],
    out: &[CheckedTensor],
) -> Result<CallPlan, Refusal> {
    expect_length(call, WEIGHT_LIST, weight, x.len())?;
    expect_length(call, OUT_LIST, out, x.len())?;
    expect_length(call, BIAS_LIST_OPTIONAL, bias, if bias.is_empty() { 0 } else { x.len() })?;
    for (i, ((x, weight), out)) in x.iter().zip(weight).zip(out).enumerate() {
        let depth = x.dims[x.rank() - 1];
        if weight.rank() != 2 {
            return Err(
                call.refuse(WEIGHT_LIST, format!("tensor {i}: expected 2 dims, found {:?}", weight.dims))
            );
        }
        expect_dims(call, WEIGHT_LIST, i, weight, &[depth, weight.dims[1]])?;
        expect_dims(call, OUT_LIST, i, out, &[&x.dims[..x.rank() - 1], &weight.dims[1..]].concat())?;
        if let Some(bias) = bias.get(i) {
            expect_dims(call, BIAS_LIST_OPTIONAL, i, bias, &weight.dims[1..])?;
        }
    }
    let (x, weight, bias, out) = (slots(x), slots(weight), slots(bias), slots(out));
    CallPlan::new(move |views, tiles| {
        for i in 0..x.len() {
            let bias = bias.get(i).map(|&slot| views.of(slot));
            multiply(tiles, views.of(x[i]), views.of(weight[i]), bias, views.of(out[i]));
        }
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

fn groups(call: &OperatorCall, extent: usize) -> Result<GroupList, Refusal> {
    let Some(list) = call.tensor_if_given(GROUP_LIST_OPTIONAL)? else {
        return Err(call.refuse(GROUP_LIST_OPTIONAL, "is NULL and must be given for groups along M or K"));
    };
    let lengths = match call.int(GROUP_LIST_TYPE)? {
        0 => false,
        1 => true,
        other => {
            return Err(
                call.refuse(GROUP_LIST_TYPE, format!("expected 0 (ends) or 1 (lengths), found {other}"))
            );
        }
    };
    let count = list.dims[0];
    if count == 0 || count > MOST_GROUPS {
        return Err(
            call.refuse(GROUP_LIST_OPTIONAL, format!("expected 1 to {MOST_GROUPS} groups, found {count}"))
        );
    }
    Ok(GroupList { list: list.slot, count, lengths, extent })
}

fn by_rows(
    call: &OperatorCall,
    x: &[CheckedTensor],
    weight: &[CheckedTensor],
    bias: &[CheckedTensor],
    out: &[CheckedTensor],
) -> Result<CallPlan, Refusal> {
    expect_length(call, X_LIST, x, 1)?;
    expect_length(call, OUT_LIST, out, 1)?;
    let x = &x[0];
    if x.rank() != 2 {
        return Err(call.refuse(X_LIST, format!("expected [M, K], found {:?}", x.dims)));
    }
    let groups = groups(call, x.dims[0])?;
    let n = weight[0].dims[weight[0].rank() - 1];
    match weight {
        [only] => expect_dims(call, WEIGHT_LIST, 0, only, &[groups.count, x.dims[1], n])?,
        many => {
            expect_length(call, WEIGHT_LIST, many, groups.count)?;
            for (i, one) in many.iter().enumerate() {
                expect_dims(call, WEIGHT_LIST, i, one, &[x.dims[1], n])?;
            }
        }
    }
    match bias {
        [] => {}
        [only] => expect_dims(call, BIAS_LIST_OPTIONAL, 0, only, &[groups.count, n])?,
        many => {
            expect_length(call, BIAS_LIST_OPTIONAL, many, groups.count)?;
            for (i, one) in many.iter().enumerate() {
                expect_dims(call, BIAS_LIST_OPTIONAL, i, one, &[n])?;
            }
        }
    }
    expect_dims(call, OUT_LIST, 0, &out[0], &[x.dims[0], n])?;
    let (x, weight, bias, out) = (x.slot, slots(weight), slots(bias), out[0].slot);
    CallPlan::new(move |views, tiles| {
        for (group, (start, len)) in groups.parts(views)?.into_iter().enumerate() {
            let bias = (!bias.is_empty()).then(|| of_group(views, &bias, group));
            let (x, out) = (views.of(x).slice(0, start, len, 1), views.of(out).slice(0, start, len, 1));
            multiply(tiles, &x, &of_group(views, &weight, group), bias.as_ref(), &out);
        }
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

/// 8-bit integers with a scale for each row of `x`, and for each group and column.
fn quantised(
    call: &OperatorCall,
    x: &[CheckedTensor],
    weight: &[CheckedTensor],
    bias: &[CheckedTensor],
    out: &[CheckedTensor],
) -> Result<CallPlan, Refusal> {
    let (scale, tokens) = (call.tensors(SCALE_LIST_OPTIONAL)?, call.tensors(PER_TOKEN_SCALE_LIST_OPTIONAL)?);
    expect_options(call, out)?;
    if call.int(GROUP_TYPE)? != 0 {
        let text = format!("expected 0 (along M) for x of INT8, found {}", call.int(GROUP_TYPE)?);
        return Err(call.refuse(GROUP_TYPE, text));
    }
    expect_length(call, BIAS_LIST_OPTIONAL, bias, 0)?;
    for (name, list) in [
        (X_LIST, x),
        (WEIGHT_LIST, weight),
        (SCALE_LIST_OPTIONAL, scale),
        (PER_TOKEN_SCALE_LIST_OPTIONAL, tokens),
        (OUT_LIST, out),
    ] {
        expect_length(call, name, list, 1)?;
    }
    let (x, weight, scale, tokens, out) = (&x[0], &weight[0], &scale[0], &tokens[0], &out[0]);
    let of_scale = if out.dtype == AclType::BF16 { AclType::BF16 } else { AclType::F32 };
    for (name, tensor, wanted) in [(WEIGHT_LIST, weight, AclType::I8), (SCALE_LIST_OPTIONAL, scale, of_scale)]
    {
        if tensor.dtype != wanted {
            let text =
                format!("expected {wanted} for x of INT8 and out of {}, found {}", out.dtype, tensor.dtype);
            return Err(call.refuse(name, text));
        }
    }
    if out.dtype == AclType::F32 {
        return Err(call.refuse(OUT_LIST, "expected FLOAT16 or BFLOAT16 for x of INT8, found FLOAT"));
    }
    if x.rank() != 2 || weight.rank() != 3 {
        let text =
            format!("expected x [M, K] and weight [groups, K, N], found {:?} and {:?}", x.dims, weight.dims);
        return Err(call.refuse(X_LIST, text));
    }
    let groups = groups(call, x.dims[0])?;
    let (m, k, n) = (x.dims[0], x.dims[1], weight.dims[2]);
    expect_dims(call, WEIGHT_LIST, 0, weight, &[groups.count, k, n])?;
    expect_dims(call, SCALE_LIST_OPTIONAL, 0, scale, &[groups.count, n])?;
    expect_dims(call, PER_TOKEN_SCALE_LIST_OPTIONAL, 0, tokens, &[m])?;
    expect_dims(call, OUT_LIST, 0, out, &[m, n])?;
    let (x, weight, scale, tokens, out) = (x.slot, weight.slot, scale.slot, tokens.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        for (group, (start, len)) in groups.parts(views)?.into_iter().enumerate() {
            if len * n * k == 0 {
                continue;
            }
            let rows = |slot| views.of(slot).slice(0, start, len, 1);
            let finish = Dequantizer::new(&views.of(scale).at(0, group), Some(&rows(tokens)), None);
            // The kernel reads the right operand by columns.
            let columns = views.of(weight).at(0, group).permute(&[1, 0]);
            quantize::quant_matmul(tiles, &rows(x), &columns, &finish, &rows(out));
        }
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

/// Returns whether CANN's host code takes the last two dims as swapped. Then words are along `K`.
fn has_swapped_last_dims(tensor: &CheckedTensor) -> bool {
    let [outer, rows, columns] = tensor.dims[..] else { return false };
    let strides = [rows * columns, 1, rows].map(|stride| stride as isize);
    outer * rows * columns > 0 && tensor.strides == strides
}

/// Returns the dim of a weight that is in words. The sizes are the groups, `K` and `N`.
fn packing(
    call: &OperatorCall,
    weight: &CheckedTensor,
    [groups, k, n]: [usize; 3],
) -> Result<WeightPacking, Refusal> {
    let (packing, expected, last) = match has_swapped_last_dims(weight) {
        true => (WeightPacking::Depth, [groups, k / PER_WORD, n], k),
        false => (WeightPacking::Columns, [groups, k, n / PER_WORD], n),
    };
    expect_dims(call, WEIGHT_LIST, 0, weight, &expected)?;
    if !last.is_multiple_of(PER_WORD) || k.max(last) > LARGEST_LAST_DIM {
        let text = format!(
            "expected a multiple of {PER_WORD} weights in words, and K and the last dim up to {LARGEST_LAST_DIM}, \
             found K {k} and N {n}"
        );
        return Err(call.refuse(WEIGHT_LIST, text));
    }
    Ok(packing)
}

/// 16-bit rows, and words of 4-bit integers with a scale and an offset for each column, or for each
/// group along `K` and column.
fn with_words(
    call: &OperatorCall,
    x: &[CheckedTensor],
    weight: &[CheckedTensor],
    bias: &[CheckedTensor],
    out: &[CheckedTensor],
) -> Result<CallPlan, Refusal> {
    const PARAMS: [Name<[CheckedTensor]>; 2] =
        [ANTIQUANT_SCALE_LIST_OPTIONAL, ANTIQUANT_OFFSET_LIST_OPTIONAL];
    expect_options(call, out)?;
    if call.int(GROUP_TYPE)? != 0 {
        let text = format!("expected 0 (along M) for weight of INT32, found {}", call.int(GROUP_TYPE)?);
        return Err(call.refuse(GROUP_TYPE, text));
    }
    let [scale, offset] = [call.tensors(PARAMS[0])?, call.tensors(PARAMS[1])?];
    for (name, list) in PARAMS.into_iter().zip([scale, offset]) {
        if list.is_empty() {
            return Err(call.refuse(name, "is NULL and must be given for weight of INT32"));
        }
    }
    let lists = [(X_LIST, x), (PARAMS[0], scale), (PARAMS[1], offset), (OUT_LIST, out)];
    expect_types(call, x[0].dtype, &lists, bias)?;
    for (name, list) in lists.into_iter().chain([(WEIGHT_LIST, weight)]) {
        expect_length(call, name, list, 1)?;
    }
    expect_length(call, BIAS_LIST_OPTIONAL, bias, bias.len().min(1))?;
    let (x, weight, scale, offset, out) = (&x[0], &weight[0], &scale[0], &offset[0], &out[0]);
    let (&[m, k], &[_, n]) = (&x.dims[..], &out.dims[..]) else {
        let text = format!("expected x [M, K] and out [M, N], found {:?} and {:?}", x.dims, out.dims);
        return Err(call.refuse(X_LIST, text));
    };
    let groups = groups(call, m)?;
    let packing = packing(call, weight, [groups.count, k, n])?;
    let count = if scale.rank() == 3 { scale.dims[1] } else { 1 };
    let is_odd = packing == WeightPacking::Depth && scale.rank() == 3 && k % (2 * count.max(1)) > 0;
    if count == 0 || !k.is_multiple_of(count) || is_odd {
        let text =
            format!("expected groups of one size along K of {k}, even for swapped dims, found {count}");
        return Err(call.refuse(PARAMS[0], text));
    }
    let of_scale = if scale.rank() == 3 { vec![groups.count, count, n] } else { vec![groups.count, n] };
    expect_dims(call, PARAMS[0], 0, scale, &of_scale)?;
    expect_dims(call, PARAMS[1], 0, offset, &of_scale)?;
    if let [bias] = bias {
        expect_dims(call, BIAS_LIST_OPTIONAL, 0, bias, &[groups.count, n])?;
    }
    expect_dims(call, OUT_LIST, 0, out, &[m, n])?;
    let (x, weight, scale, offset, out) = (x.slot, weight.slot, scale.slot, offset.slot, out.slot);
    let bias = bias.first().map(|bias| bias.slot);
    CallPlan::new(move |views, tiles| {
        for (group, (start, len)) in groups.parts(views)?.into_iter().enumerate() {
            if len * n * k == 0 {
                continue;
            }
            let rows = |slot| views.of(slot).slice(0, start, len, 1);
            let of_groups = |slot| {
                let view = views.of(slot).at(0, group);
                if view.rank() == 1 { view.unsqueeze(0) } else { view }
            };
            let weights = Dequantised {
                weight: &views.of(weight).at(0, group),
                packing,
                group: k / count,
                scale: &of_groups(scale),
                offset: Some(of_groups(offset)),
                dtype: views.of(x).dtype(),
            };
            let bias = bias.map(|slot| views.of(slot).at(0, group));
            weight_quantize::product(tiles, &rows(x), &weights, bias.as_ref(), &rows(out));
        }
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}

/// The groups divide the contracted dim.
fn by_depth(
    call: &OperatorCall,
    x: &[CheckedTensor],
    weight: &[CheckedTensor],
    bias: &[CheckedTensor],
    out: &[CheckedTensor],
) -> Result<CallPlan, Refusal> {
    for (name, list) in [(X_LIST, x), (WEIGHT_LIST, weight), (OUT_LIST, out)] {
        expect_length(call, name, list, 1)?;
    }
    expect_length(call, BIAS_LIST_OPTIONAL, bias, 0)?;
    let (x, weight, out) = (&x[0], &weight[0], &out[0]);
    if x.rank() != 2 || weight.rank() != 2 || x.dims[1] != weight.dims[0] {
        let text = format!("expected [K, N] for x [M, K] {:?}, found {:?}", x.dims, weight.dims);
        return Err(call.refuse(WEIGHT_LIST, text));
    }
    let groups = groups(call, x.dims[1])?;
    expect_dims(call, OUT_LIST, 0, out, &[groups.count, x.dims[0], weight.dims[1]])?;
    let (x, weight, out) = (x.slot, weight.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        for (group, (start, len)) in groups.parts(views)?.into_iter().enumerate() {
            let (x, weight) = (views.of(x).slice(1, start, len, 1), views.of(weight).slice(0, start, len, 1));
            multiply(tiles, &x, &weight, None, &views.of(out).at(0, group));
        }
        Ok(())
    })
    .map(CallPlan::reading_transposed)
}
