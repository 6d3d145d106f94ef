//! Routing of tokens to experts, with quantisation of the copies.
//!
//! Copies are computed in f64 and rounded once. Experts out of range fail the stream, unless the
//! operator filters them.

use std::ops::Range;

use crate::dtype::AclType::{self, BF16, F16, F32, I8};
use crate::experts::kernels::{self as experts, CopyLayout, SortedChoices};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{BYTES, FLOATING, INDEX64, INDEXES, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::quantization::dynamic_rows::{saturated, symmetric};

const TOKENS_OR_LEVELS: &[AclType] = &[F32, F16, BF16, I8];
const MOVED: &[AclType] = &[F16, BF16, I8];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMoeInitRoutingV3",
        parameters: &[
            input(X, TOKENS_OR_LEVELS, 2, 2),
            input(EXPERT_IDX, WHOLE32, 2, 2),
            input(SCALE_OPTIONAL, SINGLE, 1, 2).optional(),
            input(OFFSET_OPTIONAL, SINGLE, 1, 1).optional(),
            ints(ACTIVE_EXPERT_RANGE_OPTIONAL).optional(),
            output(EXPANDED_X_OUT, TOKENS_OR_LEVELS, 2, 3),
            output(EXPANDED_ROW_IDX_OUT, WHOLE32, 1, 1),
            output(EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT, INDEX64, 1, 2).optional(),
            output(EXPANDED_SCALE_OUT, SINGLE, 1, 1).optional(),
        ],
        limits: "x [N, H], expertIdx [N, K]; quantMode -1 (scaleOptional [N] is copied to expandedScaleOut), 0 (scaleOptional and \
                 offsetOptional [1]), 1 (scaleOptional NULL or [active experts, H]); dropPadMode 0: expandedXOut [min(N K, activeNum) or N K, H], \
                 choices outside activeExpertRangeOptional are left out; dropPadMode 1: expandedXOut [expertNum, expertCapacity, H], all experts, \
                 expertTokensNumType 1; expertTokensNumType 0 ends, 1 numbers, 2 pairs of an expert with tokens and their number, in \
                 [expertNum, 2], expertNum up to 5120; offsetOptional is read for quantMode 0 alone; rowIdxType 0: row of each choice, -1 if none; 1: choice of each row; what has no row is not written",
        source: "ops-transformer moe/moe_init_routing_v3/docs/aclnnMoeInitRoutingV3.md",
        plan: third,
    },
    Operator {
        name: "aclnnMoeInitRoutingQuant",
        parameters: &[
            input(X, FLOATING, 2, 2),
            input(ROW_IDX, WHOLE32, 2, 2),
            input(EXPERT_IDX, WHOLE32, 2, 2),
            output(EXPANDED_X_OUT, BYTES, 2, 2),
            output(EXPANDED_ROW_IDX_OUT, WHOLE32, 1, 1),
            output(EXPANDED_EXPERT_IDX_OUT, WHOLE32, 1, 1),
        ],
        limits: "as aclnnMoeInitRouting; expandedXOut is x times scale plus offset, to nearest and within INT8",
        source: "ops-transformer moe/moe_init_routing_quant/docs/aclnnMoeInitRoutingQuant.md",
        plan: first_quantised,
    },
    Operator {
        name: "aclnnMoeInitRoutingQuantV2",
        parameters: &[
            input(X, FLOATING, 2, 2),
            input(EXPERT_IDX, WHOLE32, 2, 2),
            input(SCALE_OPTIONAL, SINGLE, 1, 2).optional(),
            input(OFFSET_OPTIONAL, SINGLE, 1, 1).optional(),
            output(EXPANDED_X_OUT, BYTES, 2, 3),
            output(EXPANDED_ROW_IDX_OUT, WHOLE32, 1, 1),
            output(EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT_OPTIONAL, WHOLE32, 1, 1).optional(),
            output(EXPERT_TOKENS_BEFORE_CAPACITY_OUT_OPTIONAL, WHOLE32, 1, 1).optional(),
            output(DYNAMIC_QUANT_SCALE_OUT_OPTIONAL, SINGLE, 1, 1).optional(),
        ],
        limits: "as aclnnMoeInitRoutingV2; quantMode 0: x times scaleOptional plus offsetOptional, both [1]; 1: x times scaleOptional (NULL, [1, H] or \
                 [expertNum, H]) divided by a scale per row, which is its largest magnitude over 127; to nearest and within INT8",
        source: "ops-transformer moe/moe_init_routing_quant_v2/docs/aclnnMoeInitRoutingQuantV2.md",
        plan: second_quantised,
    },
    Operator {
        name: "aclnnMoeReRouting",
        parameters: &[
            input(TOKENS, MOVED, 2, 2),
            input(EXPERT_TOKEN_NUM_PER_RANK, INDEXES, 2, 2),
            input(PER_TOKEN_SCALES_OPTIONAL, SINGLE, 1, 1).optional(),
            output(PERMUTE_TOKENS_OUT, MOVED, 2, 2),
            output(PERMUTE_PER_TOKEN_SCALES_OUT, SINGLE, 1, 1).optional(),
            output(PERMUTE_TOKEN_IDX_OUT, WHOLE32, 1, 1),
            output(EXPERT_TOKEN_NUM_OUT, INDEXES, 1, 1),
        ],
        limits: "tokens [A, H] by rank and then by expert, expertTokenNumPerRank [ranks, experts] with the sum A; permuteTokensOut by expert \
                 and then by rank, permuteTokenIdxOut [A] its rows of tokens; scales [A] likewise; expertTokenNumOut [experts] of the type of \
                 expertTokenNumPerRank; expertTokenNumType 1, idxType 0; H below 16384",
        source: "ops-transformer moe/moe_re_routing/README.md, aclnnMoeReRouting",
        plan: regroup,
    },
];

/// Conversion of a copied row.
#[derive(Clone, Copy, Debug)]
enum RowForm {
    Plain,
    Static {
        scale: f64,
        offset: f64,
    },
    /// Scale and offset in tensors.
    Stored {
        scale: ViewIndex,
        offset: ViewIndex,
    },
    /// Rows of factors, one for all experts or one each, and an output of scales.
    Dynamic {
        factors: Option<ViewIndex>,
        scales: Option<ViewIndex>,
    },
}

/// A row of `x` for an expert.
#[derive(Clone, Copy, Debug)]
struct Copied {
    token: usize,
    expert: usize,
}

impl RowForm {
    /// Stores the copies in the first rows of `out`; the rows without one become zero if `pads`.
    fn store(
        self,
        views: &StridedViews<'_>,
        [x, out]: [ViewIndex; 2],
        copies: &[Option<Copied>],
        pads: bool,
    ) {
        let (values, width) = (views.read::<f64>(x), views.of(x).dims()[1]);
        let mut rows = views.read::<f64>(out);
        let one = |slot: ViewIndex| views.read::<f64>(slot)[0];
        let form = match self {
            Self::Stored { scale, offset } => Self::Static { scale: one(scale), offset: one(offset) },
            other => other,
        };
        let (factors, scales) = match form {
            Self::Dynamic { factors, scales } => (views.read_given::<f64>(factors), scales),
            _ => (None, None),
        };
        let mut found_scales = views.read_given::<f64>(scales);
        for (at, copied) in copies.iter().enumerate() {
            let row = &mut rows[at * width..(at + 1) * width];
            let Some(Copied { token, expert }) = *copied else {
                if pads {
                    row.fill(0.0);
                    found_scales.iter_mut().for_each(|scales| scales[at] = 0.0);
                }
                continue;
            };
            row.copy_from_slice(&values[token * width..(token + 1) * width]);
            match form {
                Self::Plain | Self::Stored { .. } => {}
                Self::Static { scale, offset } => {
                    row.iter_mut().for_each(|x| *x = saturated(*x * scale + offset));
                }
                Self::Dynamic { .. } => {
                    if let Some(factors) = &factors {
                        let own = if factors.len() == width { 0 } else { expert * width };
                        row.iter_mut().zip(&factors[own..]).for_each(|(x, factor)| *x *= factor);
                    }
                    let scale = symmetric(row);
                    found_scales.iter_mut().for_each(|scales| scales[at] = scale);
                }
            }
        }
        views.write(out, &rows);
        if let Some(found) = found_scales {
            views.write_given(scales, &found);
        }
    }
}

fn expect_one(call: &OperatorCall) -> Result<RowForm, Refusal> {
    for name in [SCALE_OPTIONAL, OFFSET_OPTIONAL] {
        call.expect_shape(name, &[1], "one number")?;
    }
    let [scale, offset] = call.slots_of([SCALE_OPTIONAL, OFFSET_OPTIONAL])?;
    Ok(RowForm::Stored { scale, offset })
}

fn third(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sizes = call.sizes(&[X.of("nh"), EXPERT_IDX.of("nk")])?;
    let [count, width, choices] = sizes.all(['n', 'h', 'k']);
    let (all, x) = (count * choices, call.tensor(X)?);
    let number = call.int_in(EXPERT_NUM, 1..=10_240)?;
    let is_padded = call.int_in(DROP_PAD_MODE, 0..=1)? == 1;
    let range = match call.ints_if_given(ACTIVE_EXPERT_RANGE_OPTIONAL)? {
        Some(&[start, end]) if 0 <= start && start <= end && end <= number => start..end,
        Some(&[]) | None => 0..number,
        Some(other) => {
            return Err(call.refuse(
                ACTIVE_EXPERT_RANGE_OPTIONAL,
                format!("expected two ends within 0 to {number}, found {other:?}"),
            ));
        }
    };
    let is_whole = range == (0..number);
    call.expect_that(
        !is_padded || is_whole,
        ACTIVE_EXPERT_RANGE_OPTIONAL,
        "all experts for dropPadMode 1",
        &range,
    )?;
    let experts_here = (range.end - range.start) as usize;
    let active = call.int_in(ACTIVE_NUM, -1..=i64::MAX)?;
    let rows = if active > 0 { all.min(active as usize) } else { all };
    let capacity = if is_padded { call.int_in(EXPERT_CAPACITY, 1..=count as i64)? as usize } else { 0 };
    let copied = if is_padded { vec![number as usize, capacity] } else { vec![rows] };
    call.expect_shape(EXPANDED_X_OUT, &[&copied[..], &[width]].concat(), "the copies of x")?;
    call.expect_shape(EXPANDED_ROW_IDX_OUT, &[all], "one index per choice")?;
    let copied: usize = copied.iter().product();
    let scales_out = call.slot_if_given(EXPANDED_SCALE_OUT)?;
    let (form, is_carried) = third_form(call, [count, width, experts_here], copied)?;
    let expected = if matches!(form, RowForm::Plain) { x.dtype } else { I8 };
    call.expect_dtype(EXPANDED_X_OUT, expected, "by quantMode")?;
    let counting = Counting::of(call, is_padded, range.clone())?;
    let uncounted = counting.unused(call)?;
    let by_row = call.int_in(ROW_IDX_TYPE, if is_padded { 0..=0 } else { 0..=1 })? == 1;
    let [x, chosen, out, places] = call.slots_of([X, EXPERT_IDX, EXPANDED_X_OUT, EXPANDED_ROW_IDX_OUT])?;
    let (carried, is_filled) = (
        if is_carried { call.slot_if_given(SCALE_OPTIONAL)? } else { None },
        matches!(form, RowForm::Dynamic { .. }),
    );
    let plan = CallPlan::new(move |views, _| {
        let chosen = views.read::<i64>(chosen);
        if let Some(wrong) = chosen.iter().find(|expert| !(-1..number).contains(expert)) {
            return Err(format!("expertIdx: expected -1 to {}, found {wrong}", number - 1));
        }
        let order: Vec<usize> =
            experts::sorted_places(&chosen).into_iter().filter(|&at| range.contains(&chosen[at])).collect();
        let mut counts = vec![0; experts_here];
        let (mut row_of, mut copies) = (vec![-1i64; all], vec![None; copied]);
        for (sorted, &place) in order.iter().enumerate() {
            let expert = (chosen[place] - range.start) as usize;
            let own = counts[expert] as usize;
            counts[expert] += 1;
            let row = if is_padded { expert * capacity + own } else { sorted };
            if is_padded && own >= capacity {
                continue;
            }
            row_of[place] = row as i64;
            if row < copied {
                copies[row] = Some(Copied { token: place / choices, expert });
            }
        }
        form.store(views, [x, out], &copies, is_padded);
        if let (Some(slot), Some(scales)) = (scales_out, views.read_given::<f64>(carried)) {
            let mut found = views.read::<f64>(slot);
            let pairs = found.iter_mut().zip(&copies);
            pairs.for_each(|(found, copied)| match copied {
                Some(copied) => *found = scales[copied.token],
                None if is_padded => *found = 0.0,
                None => {}
            });
            views.write(slot, &found);
        }
        if by_row {
            let mut found = views.read::<i64>(places);
            found.iter_mut().zip(&order).for_each(|(found, place)| *found = *place as i64);
            views.write(places, &found);
        } else {
            views.write(places, &row_of);
        }
        counting.store(views, counts);
        Ok(())
    })?;
    let is_unused = carried.is_none() && !is_filled;
    let unused = [scales_out.filter(|_| is_unused), uncounted];
    Ok(plan.leaving(unused.into_iter().flatten().collect()))
}

/// Returns the form of the rows, and whether scales of tokens are copied.
fn third_form(
    call: &OperatorCall,
    [count, width, experts_here]: [usize; 3],
    copied: usize,
) -> Result<(RowForm, bool), Refusal> {
    let mode = call.int_in(QUANT_MODE, -1..=1)?;
    let has_scale = call.tensor_if_given(SCALE_OPTIONAL)?.is_some();
    call.expect_that(mode < 0 || call.tensor(X)?.dtype != I8, X, "floats if quantised", I8)?;
    let writes_scales = mode == 1 || mode < 0 && has_scale;
    if writes_scales {
        call.expect_shape(EXPANDED_SCALE_OUT, &[copied], "a scale per copy")?;
    }
    match mode {
        0 => Ok((expect_one(call)?, false)),
        1 => {
            if has_scale {
                call.expect_shape(SCALE_OPTIONAL, &[experts_here, width], "active experts and H")?;
            }
            let (factors, scales) =
                (call.slot_if_given(SCALE_OPTIONAL)?, call.slot_if_given(EXPANDED_SCALE_OUT)?);
            Ok((RowForm::Dynamic { factors, scales }, false))
        }
        _ => {
            if has_scale {
                call.expect_shape(SCALE_OPTIONAL, &[count], "a scale per token")?;
            }
            Ok((RowForm::Plain, has_scale))
        }
    }
}

/// Form of the numbers of tokens.
#[derive(Clone, Debug)]
struct Counting {
    slot: Option<ViewIndex>,
    kind: i64,
    range: Range<i64>,
}

impl Counting {
    fn of(call: &OperatorCall, is_padded: bool, range: Range<i64>) -> Result<Self, Refusal> {
        if !call.flag(EXPERT_TOKENS_NUM_FLAG)? {
            return Ok(Self { slot: None, kind: 0, range });
        }
        let kind = call.int_in(EXPERT_TOKENS_NUM_TYPE, if is_padded { 1..=1 } else { 0..=2 })?;
        let shape = if kind == 2 {
            vec![call.int_in(EXPERT_NUM, 1..=5_120)? as usize, 2]
        } else {
            vec![(range.end - range.start) as usize]
        };
        call.expect_shape(EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT, &shape, "by expertTokensNumType")?;
        Ok(Self { slot: Some(call.slot(EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT)?), kind, range })
    }

    fn unused(&self, call: &OperatorCall) -> Result<Option<ViewIndex>, Refusal> {
        Ok(call.slot_if_given(EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT)?.filter(|_| self.slot.is_none()))
    }

    fn store(&self, views: &StridedViews<'_>, mut counts: Vec<i64>) {
        let Some(slot) = self.slot else { return };
        match self.kind {
            0 => (1..counts.len()).for_each(|expert| counts[expert] += counts[expert - 1]),
            2 => {
                let pairs = self.range.clone().zip(counts).filter(|(_, count)| *count > 0);
                counts = pairs.flat_map(|(expert, count)| [expert, count]).collect();
                counts.resize(views.of(slot).len(), 0);
            }
            _ => {}
        }
        views.write(slot, &counts);
    }
}

fn first_quantised(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sizes = call.sizes(&[X.of("nh"), ROW_IDX.of("nk"), EXPERT_IDX.of("nk")])?;
    let [count, width, choices] = sizes.all(['n', 'h', 'k']);
    let (active, all) = (call.int_in(ACTIVE_NUM, 0..=i64::MAX)? as usize, count * choices);
    let copied = active.min(count) * choices;
    call.expect_shape(EXPANDED_X_OUT, &[copied, width], "min(N, activeNum) K rows of x")?;
    for name in [EXPANDED_ROW_IDX_OUT, EXPANDED_EXPERT_IDX_OUT] {
        call.expect_shape(name, &[all], "one number per choice")?;
    }
    let form = RowForm::Static { scale: call.float(SCALE_FLOAT)?, offset: call.float(OFFSET_FLOAT)? };
    let [x, rows, chosen, out, places, sorted] = call.slots_of([
        X,
        ROW_IDX,
        EXPERT_IDX,
        EXPANDED_X_OUT,
        EXPANDED_ROW_IDX_OUT,
        EXPANDED_EXPERT_IDX_OUT,
    ])?;
    CallPlan::new(move |views, _| {
        let (rows, chosen) = (views.read::<i64>(rows), views.read::<i64>(chosen));
        let order = experts::sorted_places(&chosen);
        let row_of: Vec<usize> = order.iter().map(|&place| rows[place] as usize).collect();
        let mut known = rows.clone();
        known.sort_unstable();
        if !known.iter().copied().eq(0..all as i64) {
            return Err(format!("rowIdx: expected each of 0 to {} once, found {rows:?}", all as i64 - 1));
        }
        views.write(places, &experts::inverse(&row_of));
        views.write(sorted, &order.iter().map(|&place| chosen[place]).collect::<Vec<_>>());
        let copies = row_of[..copied].iter().map(|row| Some(Copied { token: row % count, expert: 0 }));
        form.store(views, [x, out], &copies.collect::<Vec<_>>(), false);
        Ok(())
    })
}

fn second_quantised(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let [count, width, choices] = call.sizes(&[X.of("nh"), EXPERT_IDX.of("nk")])?.all(['n', 'h', 'k']);
    let all = count * choices;
    let (active, number) =
        (call.int_in(ACTIVE_NUM, 0..=i64::MAX)? as usize, call.int_in(EXPERT_NUM, 0..=i64::MAX)? as usize);
    let is_padded = call.int_in(DROP_PAD_MODE, 0..=1)? == 1;
    let flag = call.int_in(EXPERT_TOKENS_COUNT_OR_CUMSUM_FLAG, 0..=2)?;
    let (layout, shape) = if is_padded {
        call.expect_that(number > 0, EXPERT_NUM, "at least 1", number)?;
        let capacity = call.int_in(EXPERT_CAPACITY, 1..=count.max(1) as i64)? as usize;
        (CopyLayout::Capacity(capacity), vec![number, capacity, width])
    } else {
        let rows = if active > 0 { all.min(active) } else { all };
        (CopyLayout::Dropless(rows), vec![rows, width])
    };
    call.expect_shape(EXPANDED_X_OUT, &shape, "the copies of x")?;
    call.expect_shape(EXPANDED_ROW_IDX_OUT, &[all], "one index per choice")?;
    let copied = shape.iter().rev().skip(1).product::<usize>();
    let is_dynamic = call.int_in(QUANT_MODE, 0..=1)? == 1;
    let scales = call.slot_if_given(DYNAMIC_QUANT_SCALE_OUT_OPTIONAL)?;
    let form = if is_dynamic {
        call.expect_shape(DYNAMIC_QUANT_SCALE_OUT_OPTIONAL, &[copied], "a scale per copy")?;
        if let Some(factors) = call.tensor_if_given(SCALE_OPTIONAL)? {
            let fits = factors.dims == [1, width] || factors.dims == [number, width];
            call.expect_that(fits, SCALE_OPTIONAL, &format!("[1 or {number}, {width}]"), &factors.dims)?;
        }
        RowForm::Dynamic { factors: call.slot_if_given(SCALE_OPTIONAL)?, scales }
    } else {
        expect_one(call)?
    };
    let is_counted = !is_padded && flag != 0;
    let is_known = call.flag(EXPERT_TOKENS_BEFORE_CAPACITY_FLAG)? && is_padded;
    call.expect_that(!is_counted || number > 0, EXPERT_NUM, "at least 1 if tokens are counted", number)?;
    let wanted = [
        (EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT_OPTIONAL, is_counted),
        (EXPERT_TOKENS_BEFORE_CAPACITY_OUT_OPTIONAL, is_known),
    ];
    let (mut counts_out, mut unused) = (None, Vec::from_iter(scales.filter(|_| !is_dynamic)));
    for (name, is_wanted) in wanted {
        if is_wanted {
            call.expect_shape(name, &[number], "a number for each expert")?;
            counts_out = Some(call.slot(name)?);
        } else {
            unused.extend(call.slot_if_given(name)?);
        }
    }
    let [x, chosen, out, places] = call.slots_of([X, EXPERT_IDX, EXPANDED_X_OUT, EXPANDED_ROW_IDX_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let chosen = views.read::<i64>(chosen);
        let SortedChoices { places: at, mut counts, copies } =
            experts::sort_choices(&chosen, if is_padded || is_counted { number } else { 0 }, layout)?;
        views.write(places, &at);
        if is_counted && flag == 1 {
            (1..number).for_each(|expert| counts[expert] += counts[expert - 1]);
        }
        views.write_given(counts_out, &counts);
        let copy = |place: usize| Copied { token: place / choices, expert: chosen[place] as usize };
        let copies: Vec<_> = copies.iter().map(|place| place.map(copy)).collect();
        form.store(views, [x, out], &copies, is_padded);
        Ok(())
    })?;
    Ok(plan.leaving(unused))
}

fn regroup(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(TOKENS, &[PERMUTE_TOKENS_OUT])?;
    call.expect_type_of(EXPERT_TOKEN_NUM_PER_RANK, &[EXPERT_TOKEN_NUM_OUT])?;
    let sizes = call.sizes(&[
        TOKENS.of("ah"),
        EXPERT_TOKEN_NUM_PER_RANK.of("re"),
        PER_TOKEN_SCALES_OPTIONAL.of("a"),
        PERMUTE_TOKENS_OUT.of("ah"),
        PERMUTE_TOKEN_IDX_OUT.of("a"),
        EXPERT_TOKEN_NUM_OUT.of("e"),
    ])?;
    call.int_in(EXPERT_TOKEN_NUM_TYPE, 1..=1)?;
    call.int_in(IDX_TYPE, 0..=0)?;
    let [count, width, ranks, number] = sizes.all(['a', 'h', 'r', 'e']);
    call.expect_that((1..16_384).contains(&width), TOKENS, "rows of 1 to 16383", width)?;
    let scales = call.slot_if_given(PER_TOKEN_SCALES_OPTIONAL)?;
    let scales_out = call.slot_if_given(PERMUTE_PER_TOKEN_SCALES_OUT)?;
    if scales.is_some() {
        call.expect_shape(PERMUTE_PER_TOKEN_SCALES_OUT, &[count], "a scale per token")?;
    }
    let [tokens, numbers] = call.slots_of([TOKENS, EXPERT_TOKEN_NUM_PER_RANK])?;
    let [out, places, totals] =
        call.slots_of([PERMUTE_TOKENS_OUT, PERMUTE_TOKEN_IDX_OUT, EXPERT_TOKEN_NUM_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let numbers = views.read::<i64>(numbers);
        if numbers.iter().any(|&one| one < 0) || numbers.iter().sum::<i64>() != count as i64 {
            return Err(format!(
                "expertTokenNumPerRank: expected numbers with the sum {count}, found {numbers:?}"
            ));
        }
        let owner = |at: usize| vec![at % number; numbers[at] as usize];
        let experts_of: Vec<i64> = (0..ranks * number).flat_map(owner).map(|expert| expert as i64).collect();
        let order = experts::sorted_places(&experts_of);
        let (rows, scales) = (views.read::<f64>(tokens), views.read_given::<f64>(scales));
        let moved = order.iter().flat_map(|&row| &rows[row * width..(row + 1) * width]);
        views.write(out, &moved.copied().collect::<Vec<f64>>());
        views.write(places, &order.iter().map(|&row| row as i64).collect::<Vec<_>>());
        if let Some(scales) = scales {
            views.write_given(scales_out, &order.iter().map(|&row| scales[row]).collect::<Vec<f64>>());
        }
        let total = |expert: usize| (0..ranks).map(|rank| numbers[rank * number + expert]).sum();
        views.write(totals, &(0..number).map(total).collect::<Vec<i64>>());
        Ok(())
    })?;
    Ok(plan.leaving(scales_out.filter(|_| scales.is_none()).into_iter().collect()))
}
