//! Quantisation of rows by groups, and dequantisation with what stands between.
//!
//! Computed in f64 and rounded once.

use crate::dtype::AclType::{self, BF16, F16, F32, I32};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output, text};
use crate::operator::sets::{BYTES, HALVES, INDEX64, INDEXES, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal};

const I8_CODE: i64 = 2;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnDynamicQuantV2",
        parameters: &[
            input(X, HALVES, 2, 8),
            input(SMOOTH_SCALES_OPTIONAL, HALVES, 1, 2).optional(),
            input(GROUP_INDEX_OPTIONAL, WHOLE32, 1, 1).optional(),
            output(Y_OUT, BYTES, 2, 8),
            output(SCALE_OUT, SINGLE, 1, 7),
            output(OFFSET_OUT, SINGLE, 1, 7).optional(),
        ],
        limits: "as aclnnDynamicQuant; with groupIndexOptional [E], the ends of the rows of E experts, smoothScalesOptional is [E, last \
                 dim]; with offsetOut the scale of a row is (most - least) / 255 and its offset 127 - most / scale; dstType 2 (INT8)",
        source: "ops-nn quant/dynamic_quant_v2/docs/aclnnDynamicQuantV2.md",
        plan: dynamic_quant,
    },
    Operator {
        name: "aclnnGroupQuant",
        parameters: &[
            input(X, &[F32, F16, BF16], 2, 2),
            input(SCALE, &[F32, F16, BF16], 2, 2),
            input(GROUP_INDEX, INDEXES, 1, 1),
            input(OFFSET_OPTIONAL, &[F32, F16, BF16], 0, 1).optional(),
            output(Y, BYTES, 2, 2),
        ],
        limits: "x and y [S, H], scale [E, H], groupIndex [E]: the ends of the rows of each expert, the last is S; y is x scale + \
                 offset, to nearest and within INT8; offsetOptional has one element and the type of scale; dstType 2 (INT8)",
        source: "CANN 8.1 aclnn API reference, aclnnGroupQuant",
        plan: group_quant,
    },
    Operator {
        name: "aclnnDequantBias",
        parameters: &[
            input(X, WHOLE32, 2, 2),
            input(WEIGHT_SCALE, &[F32, BF16], 1, 1),
            input(ACTIVATE_SCALE_OPTIONAL, SINGLE, 1, 1).optional(),
            input(BIAS_OPTIONAL, &[F32, F16, BF16, I32], 1, 1).optional(),
            output(OUT, HALVES, 2, 2),
        ],
        limits: "x and out [M, N], weightScale and biasOptional [N], activateScaleOptional [M]; an INT32 bias is added before the \
                 scales, another behind them; outputDtype 1 (FLOAT16) or 27 (BFLOAT16) is the type of out",
        source: "CANN 8.1 aclnn API reference, aclnnDequantBias",
        plan: dequant_bias,
    },
    Operator {
        name: "aclnnDequantSwigluQuant",
        parameters: SWIGLU,
        limits: "x [.., 2H]: INT32, times weightScaleOptional [G, 2H] and activationScaleOptional of one number per row, or FLOAT16 and \
                 BFLOAT16 without these; groupIndexOptional [G] counts the rows of each group, without it G is 1; swiglu with the \
                 gates left (activateLeft) or right, times quantScaleOptional [G, H], divided by scaleOut (largest magnitude of \
                 the row over 127), to nearest; quantModeOptional dynamic; rows behind the groups do not change",
        source: "CANN 8.1 aclnn API reference, aclnnDequantSwigluQuant",
        plan: |call| dequant_swiglu(call, SwigluForm::Plain),
    },
    Operator {
        name: "aclnnDequantSwigluQuantV2",
        parameters: SWIGLU_V2,
        limits: "as aclnnDequantSwigluQuant; dstType 2 (INT8), roundModeOptional rint, activateDim the last; swigluMode 1: the gates are \
                 the even elements, at most clampLimit, the others within it; the product is gate sigmoid(gluAlpha gate) (other + \
                 gluBias)",
        source: "ops-nn quant/dequant_swiglu_quant/docs/aclnnDequantSwigluQuantV2.md",
        plan: |call| {
            call.int_in(DST_TYPE_INT, I8_CODE..=I8_CODE)?;
            let rank = call.tensor(X)?.rank();
            let dim = call.dim(ACTIVATE_DIM, rank)?;
            call.expect_that(dim + 1 == rank, ACTIVATE_DIM, "the last dim", call.int(ACTIVATE_DIM)?)?;
            let mode = call.text_if_given(ROUND_MODE_OPTIONAL)?.unwrap_or("rint");
            call.expect_that(mode == "rint", ROUND_MODE_OPTIONAL, "rint", mode)?;
            if call.int_in(SWIGLU_MODE, 0..=1)? == 0 {
                return dequant_swiglu(call, SwigluForm::Plain);
            }
            let (limit, alpha, bias) =
                (call.float(CLAMP_LIMIT)?, call.float(GLU_ALPHA)?, call.float(GLU_BIAS)?);
            dequant_swiglu(call, SwigluForm::Clipped { limit, alpha, bias })
        },
    },
];

const ROWS: &[AclType] = &[I32, F16, BF16];

const SWIGLU: &[crate::operator::row::Parameter] = &[
    input(X, ROWS, 2, 8),
    input(WEIGHT_SCALE_OPTIONAL, SINGLE, 1, 2).optional(),
    input(ACTIVATION_SCALE_OPTIONAL, SINGLE, 1, 8).optional(),
    input(QUANT_SCALE_OPTIONAL, SINGLE, 1, 2).optional(),
    input(GROUP_INDEX_OPTIONAL, INDEX64, 1, 1).optional(),
    text(QUANT_MODE_OPTIONAL),
    output(Y_OUT, BYTES, 2, 8),
    output(SCALE_OUT, SINGLE, 1, 7),
];

const SWIGLU_V2: &[crate::operator::row::Parameter] = &[
    input(X, ROWS, 2, 8),
    input(WEIGHT_SCALE_OPTIONAL, SINGLE, 1, 2).optional(),
    input(ACTIVATION_SCALE_OPTIONAL, SINGLE, 1, 8).optional(),
    input(QUANT_SCALE_OPTIONAL, SINGLE, 1, 2).optional(),
    input(GROUP_INDEX_OPTIONAL, INDEX64, 1, 1).optional(),
    text(QUANT_MODE_OPTIONAL),
    text(ROUND_MODE_OPTIONAL),
    output(Y_OUT, BYTES, 2, 8),
    output(SCALE_OUT, SINGLE, 1, 7),
];

/// Returns the group of each row, of ends that ascend to at most `rows`.
pub(crate) fn groups_of_rows(name: &str, ends: &[i64], rows: usize) -> Result<Vec<usize>, String> {
    let fits = ends.is_sorted()
        && ends.first().is_none_or(|&first| first >= 0)
        && ends.last().is_none_or(|&last| last <= rows as i64);
    if !fits {
        return Err(format!("{name}: expected ends that ascend to at most {rows}, found {ends:?}"));
    }
    let mut groups = Vec::new();
    for (group, &end) in ends.iter().enumerate() {
        groups.resize(end as usize, group);
    }
    Ok(groups)
}

/// Ends of groups with these counts.
pub(crate) fn ends_of(counts: &[i64]) -> Vec<i64> {
    counts
        .iter()
        .scan(0i64, |end, &count| {
            *end = end.saturating_add(count);
            Some(*end)
        })
        .collect()
}

pub(crate) fn saturated(value: f64) -> f64 {
    value.round_ties_even().clamp(-128.0, 127.0)
}

/// Divides a row by the returned scale.
pub(crate) fn symmetric(row: &mut [f64]) -> f64 {
    let scale = row.iter().fold(0.0, |most: f64, x| most.max(x.abs())) / 127.0;
    if scale > 0.0 {
        row.iter_mut().for_each(|x| *x = (*x / scale).round_ties_even());
    }
    scale
}

fn dynamic_quant(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.int_in(DST_TYPE_INT, I8_CODE..=I8_CODE)?;
    call.expect_type_of(X, &[SMOOTH_SCALES_OPTIONAL])?;
    let has_groups = call.tensor_if_given(GROUP_INDEX_OPTIONAL)?.is_some();
    if has_groups && call.tensor_if_given(SMOOTH_SCALES_OPTIONAL)?.is_none() {
        return Err(call.refuse(SMOOTH_SCALES_OPTIONAL, "is NULL, but groupIndexOptional needs it"));
    }
    let smooth = SMOOTH_SCALES_OPTIONAL.of(if has_groups { "eh" } else { "h" });
    let sizes = call.sizes(&[
        X.of("*h"),
        Y_OUT.of("*h"),
        SCALE_OUT.of("*"),
        OFFSET_OUT.of("*"),
        smooth,
        GROUP_INDEX_OPTIONAL.of("e"),
    ])?;
    let (rows, width) = (sizes.rows(), sizes.of('h'));
    let [x, y, scale_out] = call.slots_of([X, Y_OUT, SCALE_OUT])?;
    let [smooth, groups, offset_out] =
        [SMOOTH_SCALES_OPTIONAL, GROUP_INDEX_OPTIONAL, OFFSET_OUT].map(|name| call.slot_if_given(name));
    let (smooth, groups, offset_out) = (smooth?, groups?, offset_out?);
    CallPlan::new(move |views, _| {
        let (mut values, smooth) = (views.read::<f64>(x), views.read_given::<f64>(smooth));
        let ends = views.read_given::<i64>(groups).unwrap_or_else(|| vec![rows as i64]);
        let of_row = groups_of_rows("groupIndexOptional", &ends, rows)?;
        let (mut scales, mut offsets) = (Vec::new(), Vec::new());
        for (at, row) in values.chunks_exact_mut(width.max(1)).enumerate() {
            if let (Some(smooth), Some(group)) = (&smooth, of_row.get(at)) {
                row.iter_mut().zip(&smooth[group * width..]).for_each(|(x, factor)| *x *= factor);
            }
            if offset_out.is_none() {
                scales.push(symmetric(row));
                continue;
            }
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let least = row.iter().copied().fold(f64::INFINITY, f64::min);
            let scale = (most - least) / 255.0;
            let offset = if scale > 0.0 { 127.0 - most / scale } else { 0.0 };
            row.iter_mut().for_each(|x| *x = if scale > 0.0 { saturated(*x / scale + offset) } else { 0.0 });
            scales.push(scale);
            offsets.push(offset);
        }
        views.write(y, &values);
        views.write(scale_out, &scales);
        views.write_given(offset_out, &offsets);
        Ok(())
    })
}

fn group_quant(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.int_in(DST_TYPE_INT, I8_CODE..=I8_CODE)?;
    let sizes = call.sizes(&[X.of("sh"), SCALE.of("eh"), GROUP_INDEX.of("e"), Y.of("sh")])?;
    call.expect_type_of(SCALE, &[OFFSET_OPTIONAL])?;
    let offset = call.tensor_if_given(OFFSET_OPTIONAL)?;
    if let Some(offset) = offset {
        call.expect_that(offset.len() == 1, OFFSET_OPTIONAL, "one element", &offset.dims)?;
    }
    let ([x, scale, groups, y], offset) =
        (call.slots_of([X, SCALE, GROUP_INDEX, Y])?, offset.map(|offset| offset.slot));
    let [rows, width] = sizes.all(['s', 'h']);
    CallPlan::new(move |views, _| {
        let ends: Vec<i64> = views.read(groups);
        let of_row = groups_of_rows("groupIndex", &ends, rows)?;
        if of_row.len() != rows {
            return Err(format!("groupIndex: expected an end of {rows}, found {ends:?}"));
        }
        let (values, scales) = (views.read::<f64>(x), views.read::<f64>(scale));
        let shift = views.read_given::<f64>(offset).map_or(0.0, |offset| offset[0]);
        let level =
            |(i, x): (usize, &f64)| saturated(x * scales[of_row[i / width] * width + i % width] + shift);
        views.write(y, &values.iter().enumerate().map(level).collect::<Vec<f64>>());
        Ok(())
    })
}

fn dequant_bias(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sizes = call.sizes(&[
        X.of("mn"),
        WEIGHT_SCALE.of("n"),
        ACTIVATE_SCALE_OPTIONAL.of("m"),
        BIAS_OPTIONAL.of("n"),
        OUT.of("mn"),
    ])?;
    let expected = match call.int(OUTPUT_DTYPE)? {
        1 => F16,
        27 => BF16,
        other => {
            return Err(
                call.refuse(OUTPUT_DTYPE, format!("expected 1 (FLOAT16) or 27 (BFLOAT16), found {other}"))
            );
        }
    };
    call.expect_dtype(OUT, expected, "outputDtype")?;
    let is_whole = call.tensor_if_given(BIAS_OPTIONAL)?.is_some_and(|bias| bias.dtype == I32);
    let ([x, columns, out], width) = (call.slots_of([X, WEIGHT_SCALE, OUT])?, sizes.of('n'));
    let (rows, bias) = (call.slot_if_given(ACTIVATE_SCALE_OPTIONAL)?, call.slot_if_given(BIAS_OPTIONAL)?);
    CallPlan::new(move |views, _| {
        let (sums, columns) = (views.read::<f64>(x), views.read::<f64>(columns));
        let [rows, bias] = [rows, bias].map(|slot| views.read_given::<f64>(slot));
        let of = |(i, sum): (usize, &f64)| {
            let (row, column) = (i / width, i % width);
            let shift = bias.as_ref().map_or(0.0, |bias| bias[column]);
            let (before, behind) = if is_whole { (shift, 0.0) } else { (0.0, shift) };
            (sum + before) * columns[column] * rows.as_ref().map_or(1.0, |rows| rows[row]) + behind
        };
        views.write(out, &sums.iter().enumerate().map(of).collect::<Vec<f64>>());
        Ok(())
    })
}

#[derive(Clone, Copy, Debug)]
enum SwigluForm {
    Plain,
    Clipped { limit: f64, alpha: f64, bias: f64 },
}

impl SwigluForm {
    fn of(self, row: &[f64], at: usize, is_left: bool) -> f64 {
        let half = row.len() / 2;
        match self {
            Self::Plain => {
                let (gate, other) =
                    if is_left { (row[at], row[half + at]) } else { (row[half + at], row[at]) };
                gate / (1.0 + (-gate).exp()) * other
            }
            Self::Clipped { limit, alpha, bias } => {
                let (gate, other) = (row[2 * at].min(limit), row[2 * at + 1].clamp(-limit, limit));
                gate / (1.0 + (-alpha * gate).exp()) * (other + bias)
            }
        }
    }
}

fn dequant_swiglu(call: &OperatorCall, form: SwigluForm) -> Result<CallPlan, Refusal> {
    let mode = call.text_if_given(QUANT_MODE_OPTIONAL)?.unwrap_or("NULL");
    call.expect_that(mode == "dynamic", QUANT_MODE_OPTIONAL, "dynamic", mode)?;
    let x = call.tensor(X)?;
    let width = x.dims[x.rank() - 1];
    call.expect_that(width > 0 && width.is_multiple_of(2), X, "an even last dim with elements", &x.dims)?;
    let sizes = call.sizes(&[X.of("*w"), SCALE_OUT.of("*")])?;
    let (half, is_whole) = (width / 2, x.dtype == I32);
    call.expect_shape(Y_OUT, &[&x.dims[..x.rank() - 1], &[half]].concat(), "of x with half of the last dim")?;
    for name in [WEIGHT_SCALE_OPTIONAL, ACTIVATION_SCALE_OPTIONAL] {
        let is_given = call.tensor_if_given(name)?.is_some();
        if is_given && !is_whole {
            return Err(
                call.refuse(name, format!("is given, but x is {} and needs no scales: pass NULL", x.dtype))
            );
        }
    }
    if is_whole && call.tensor_if_given(WEIGHT_SCALE_OPTIONAL)?.is_none() {
        return Err(call.refuse(WEIGHT_SCALE_OPTIONAL, "is NULL, but INT32 needs it"));
    }
    let groups = call.tensor_if_given(GROUP_INDEX_OPTIONAL)?.map_or(1, |groups| groups.len());
    for (name, extent) in [(WEIGHT_SCALE_OPTIONAL, width), (QUANT_SCALE_OPTIONAL, half)] {
        let Some(scale) = call.tensor_if_given(name)? else { continue };
        let fits = scale.dims == [groups, extent] || groups == 1 && scale.dims == [extent];
        call.expect_that(fits, name, &format!("{:?}", [groups, extent]), &scale.dims)?;
    }
    let rows = sizes.rows();
    if let Some(scale) = call.tensor_if_given(ACTIVATION_SCALE_OPTIONAL)? {
        call.expect_that(
            scale.len() == rows,
            ACTIVATION_SCALE_OPTIONAL,
            &format!("{rows} numbers"),
            &scale.dims,
        )?;
    }
    let optional =
        [WEIGHT_SCALE_OPTIONAL, ACTIVATION_SCALE_OPTIONAL, QUANT_SCALE_OPTIONAL, GROUP_INDEX_OPTIONAL];
    let mut slots = [None; 4];
    for (slot, name) in slots.iter_mut().zip(optional) {
        *slot = call.slot_if_given(name)?;
    }
    let ([x, y, scale_out], is_left) = (call.slots_of([X, Y_OUT, SCALE_OUT])?, call.flag(ACTIVATE_LEFT)?);
    let [columns, of_rows, smooth, counts] = slots;
    CallPlan::new(move |views, _| {
        let ends =
            views.read_given::<i64>(counts).map_or_else(|| vec![rows as i64], |counts| ends_of(&counts));
        let of_row = groups_of_rows("groupIndexOptional", &ends, rows)?;
        let values = views.read::<f64>(x);
        let [columns, of_rows, smooth] = [columns, of_rows, smooth].map(|slot| views.read_given::<f64>(slot));
        let (mut levels, mut scales) = (views.read::<f64>(y), views.read::<f64>(scale_out));
        for (row, &group) in of_row.iter().enumerate() {
            let factor = of_rows.as_ref().map_or(1.0, |scales| scales[row]);
            let scaled = |(i, x): (usize, &f64)| {
                x * columns.as_ref().map_or(1.0, |columns| columns[group * width + i]) * factor
            };
            let own: Vec<f64> =
                values[row * width..(row + 1) * width].iter().enumerate().map(scaled).collect();
            let smoothed = |at| {
                form.of(&own, at, is_left) * smooth.as_ref().map_or(1.0, |smooth| smooth[group * half + at])
            };
            let mut results: Vec<f64> = (0..half).map(smoothed).collect();
            scales[row] = symmetric(&mut results);
            levels[row * half..(row + 1) * half].copy_from_slice(&results);
        }
        views.write(y, &levels);
        views.write(scale_out, &scales);
        Ok(())
    })
}
