//! Mixture-of-experts operators: routing, permutation of tokens, and combination.
//!
//! Experts or rows out of range fail the stream.

use crate::experts::kernels::{self as experts, CopyLayout, RowTerm, SortedChoices};
use crate::indexing::kernels as index;
use crate::lane::Lane;
use crate::math;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{BOOL, FLOATING, INDEXES, WHOLE32};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::view::StridedView;

const MOST_CHOICES: i64 = 1024;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMoeGatingTopKSoftmax",
        parameters: &[
            input(X, FLOATING, 2, 3),
            input(FINISHED_OPTIONAL, BOOL, 1, 2).optional(),
            output(Y_OUT, FLOATING, 2, 3).contiguous(),
            output(EXPERT_IDX_OUT, WHOLE32, 2, 3).contiguous(),
            output(ROW_IDX_OUT, WHOLE32, 2, 3).contiguous(),
        ],
        limits: "k 1 to 1024 and at most the last dim of x; results have the dims of x with k as the last dim; yOut \
                 has the type of x; finishedOptional has the dims of x without the last",
        source: "ops-transformer moe/moe_gating_top_k_softmax/docs/aclnnMoeGatingTopKSoftmax.md",
        plan: gating,
    },
    Operator {
        name: "aclnnMoeInitRouting",
        parameters: &[
            input(X, FLOATING, 2, 2),
            input(ROW_IDX, WHOLE32, 2, 2),
            input(EXPERT_IDX, WHOLE32, 2, 2),
            output(EXPANDED_X_OUT, FLOATING, 2, 2).contiguous(),
            output(EXPANDED_ROW_IDX_OUT, WHOLE32, 1, 1).contiguous(),
            output(EXPANDED_EXPERT_IDX_OUT, WHOLE32, 1, 1).contiguous(),
        ],
        limits: "x [N, H], rowIdx and expertIdx [N, K], expandedXOut [min(N, activeNum) K, H] of the type of x, the \
                 other outputs [N K]; rowIdx holds each of 0 to N K - 1 once",
        source: "ops-transformer moe/moe_init_routing/docs/aclnnMoeInitRouting.md",
        plan: init_routing,
    },
    Operator {
        name: "aclnnMoeInitRoutingV2",
        parameters: &[
            input(X, FLOATING, 2, 2),
            input(EXPERT_IDX, WHOLE32, 2, 2),
            output(EXPANDED_X_OUT, FLOATING, 2, 3).contiguous(),
            output(EXPANDED_ROW_IDX_OUT, WHOLE32, 1, 1).contiguous(),
            output(EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT_OPTIONAL, WHOLE32, 1, 1).contiguous().optional(),
            output(EXPERT_TOKENS_BEFORE_CAPACITY_OUT_OPTIONAL, WHOLE32, 1, 1).contiguous().optional(),
        ],
        limits: "x [N, H], expertIdx [N, K]; dropPadMode 0: expandedXOut [min(N K, activeNum) or, for activeNum 0, N \
                 K, H]; expertTokensCountOrCumsumFlag 1 asks for the end, 2 for the number of tokens of each expert, \
                 in [expertNum]; dropPadMode 1: expandedXOut [expertNum, expertCapacity, H]; tokens beyond the \
                 capacity are dropped and get row -1; expertTokensBeforeCapacityFlag asks for the numbers before \
                 dropping",
        source: "ops-transformer moe/moe_init_routing_v2/docs/aclnnMoeInitRoutingV2.md",
        plan: init_routing_v2,
    },
    Operator {
        name: "aclnnMoeFinalizeRouting",
        parameters: &[
            input(EXPANDED_X, FLOATING, 2, 2),
            input(X1, FLOATING, 2, 2),
            input(X2_OPTIONAL, FLOATING, 2, 2).optional(),
            input(BIAS, FLOATING, 2, 2),
            input(SCALES, FLOATING, 2, 2),
            input(EXPANDED_ROW_IDX, WHOLE32, 1, 1),
            input(EXPANDED_EXPERT_IDX, WHOLE32, 2, 2),
            output(OUT, FLOATING, 2, 2).contiguous(),
        ],
        limits: "expandedX [N K, H], x1 and x2Optional [N, H], bias [experts, H], scales and expandedExpertIdx [N, K], expandedRowIdx \
                 [N K], by choice and then by token; one element type",
        source: "ops-transformer moe/moe_finalize_routing/docs/aclnnMoeFinalizeRouting.md",
        plan: finalize_routing,
    },
    Operator {
        name: "aclnnMoeFinalizeRoutingV2",
        parameters: &[
            input(EXPANDED_X, FLOATING, 2, 3),
            input(EXPANDED_ROW_IDX, WHOLE32, 1, 1),
            input(X1_OPTIONAL, FLOATING, 2, 2).optional(),
            input(X2_OPTIONAL, FLOATING, 2, 2).optional(),
            input(BIAS_OPTIONAL, FLOATING, 2, 2).optional(),
            input(SCALES_OPTIONAL, FLOATING, 2, 2).optional(),
            input(EXPERT_IDX_OPTIONAL, WHOLE32, 2, 2).optional(),
            output(OUT, FLOATING, 2, 2).contiguous(),
        ],
        limits: "as aclnnMoeFinalizeRouting; dropPadMode 0 and 1: expandedRowIdx by choice and then by token, 2 and 3: \
                 by token; 1 and 3: expandedX [experts, capacity, H] and -1 for dropped tokens, without biasOptional; \
                 biasOptional requires expertIdxOptional; without scalesOptional K is 1",
        source: "ops-transformer moe/moe_finalize_routing_v2/docs/aclnnMoeFinalizeRoutingV2.md",
        plan: finalize_routing_v2,
    },
    Operator {
        name: "aclnnMoeTokenPermute",
        parameters: &[
            input(TOKENS, FLOATING, 2, 2),
            input(INDICES, INDEXES, 1, 2),
            output(PERMUTE_TOKENS_OUT, FLOATING, 2, 2).contiguous(),
            output(SORTED_INDICES_OUT, WHOLE32, 1, 1).contiguous(),
        ],
        limits: "tokens [N, H], indices [N, K] or [N], K at most 512; permuteTokensOut [min(N K, numOutTokens), H]; \
                 numOutTokens 0 keeps all copies, -n all but n; sortedIndicesOut [N K]; paddedMode false",
        source: "ops-transformer moe/moe_token_permute/docs/aclnnMoeTokenPermute.md",
        plan: permute,
    },
    Operator {
        name: "aclnnMoeTokenUnpermute",
        parameters: &[
            input(PERMUTED_TOKENS, FLOATING, 2, 2),
            input(SORTED_INDICES, WHOLE32, 1, 1),
            input(PROBS_OPTIONAL, FLOATING, 2, 2).optional(),
            ints(RESTORE_SHAPE_OPTIONAL).optional(),
            output(OUT, FLOATING, 2, 2).contiguous(),
        ],
        limits: "permutedTokens [any, H], sortedIndices [N K], probsOptional [N, K], without which K is 1; out [N, H]; \
                 an index past permutedTokens adds nothing; paddedMode false",
        source: "ops-transformer moe/moe_token_unpermute/docs/aclnnMoeTokenUnpermute.md",
        plan: unpermute,
    },
    Operator {
        name: "aclnnMoeTokenPermuteGrad",
        parameters: &[
            input(PERMUTED_OUTPUT_GRAD, FLOATING, 2, 2),
            input(SORTED_INDICES, WHOLE32, 1, 1),
            output(OUT, FLOATING, 2, 2).contiguous(),
        ],
        limits: "permutedOutputGrad [copies, H], sortedIndices [N K] and out [N, H] of aclnnMoeTokenPermute; numTopk K, at most 512; \
                 paddedMode false; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnMoeTokenPermuteGrad",
        plan: permute_grad,
    },
    Operator {
        name: "aclnnMoeTokenUnpermuteGrad",
        parameters: &[
            input(PERMUTED_TOKENS, FLOATING, 2, 2),
            input(UNPERMUTED_TOKENS_GRAD, FLOATING, 2, 2),
            input(SORTED_INDICES, WHOLE32, 1, 1),
            input(PROBS_OPTIONAL, FLOATING, 2, 2).optional(),
            ints(RESTORE_SHAPE_OPTIONAL).optional(),
            output(PERMUTED_TOKENS_GRAD_OUT, FLOATING, 2, 2).contiguous(),
            output(PROBS_GRAD_OUT, FLOATING, 2, 2).contiguous().optional(),
        ],
        limits: "permutedTokens and permutedTokensGradOut [copies, H], unpermutedTokensGrad [N, H], sortedIndices [N K], probsOptional and \
                 probsGradOut [N, K], both or none; paddedMode false; one element type but for probsOptional and its gradient",
        source: "CANN 8.1 aclnn API reference, aclnnMoeTokenUnpermuteGrad",
        plan: unpermute_grad,
    },
];

fn store(views: &StridedViews<'_>, slot: ViewIndex, values: &[i64]) {
    i64::store(&views.of(slot).collapsed(), 0, values);
}

fn gating(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, k) = (call.tensor(X)?, call.int(K)?);
    let (leading, width) = (&x.dims[..x.rank() - 1], x.dims[x.rank() - 1]);
    if k < 1 || k > MOST_CHOICES.min(width as i64) {
        return Err(call.refuse(K, format!("expected 1 to {}, found {k}", MOST_CHOICES.min(width as i64))));
    }
    let k = k as usize;
    let shape = [leading, &[k]].concat();
    for name in [Y_OUT, EXPERT_IDX_OUT, ROW_IDX_OUT] {
        call.expect_shape(name, &shape, "of x with k as the last dim")?;
    }
    call.expect_dtype(Y_OUT, x.dtype, "the type of x")?;
    let finished = call.tensor_if_given(FINISHED_OPTIONAL)?.map(|tensor| tensor.slot);
    if finished.is_some() {
        call.expect_shape(FINISHED_OPTIONAL, leading, "of x without the last dim")?;
    }
    let count: usize = leading.iter().product();
    let (x, y) = (x.slot, call.tensor(Y_OUT)?.slot);
    let (chosen, places) = (call.tensor(EXPERT_IDX_OUT)?.slot, call.tensor(ROW_IDX_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let finished = finished.map(|slot| views.of(slot));
        experts::choose(tiles, views.of(x), k, finished, views.of(y), views.of(chosen));
        let by_choice: Vec<i64> = (0..count * k).map(|at| (at % k * count + at / k) as i64).collect();
        store(views, places, &by_choice);
        Ok(())
    })
}

/// Returns the tokens, choices per token, and elements per row.
fn routed(call: &OperatorCall, experts: Name<CheckedTensor>) -> Result<(usize, usize, usize), Refusal> {
    let (x, experts_of) = (call.tensor(X)?, call.tensor(experts)?);
    let (count, width) = (x.dims[0], x.dims[1]);
    if experts_of.dims[0] != count {
        let text = format!("expected one row per token of x {:?}, found {:?}", x.dims, experts_of.dims);
        return Err(call.refuse(experts, text));
    }
    call.expect_dtype(EXPANDED_X_OUT, x.dtype, "the type of x")?;
    call.expect_shape(EXPANDED_ROW_IDX_OUT, &[experts_of.len()], "one index per choice")?;
    Ok((count, experts_of.dims[1], width))
}

fn init_routing(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (count, choices, width) = routed(call, EXPERT_IDX)?;
    call.expect_shape(ROW_IDX, &[count, choices], "of expertIdx")?;
    let active = call.int(ACTIVE_NUM)?;
    let Ok(active) = usize::try_from(active) else {
        return Err(call.refuse(ACTIVE_NUM, format!("expected at least 0, found {active}")));
    };
    let copies = active.min(count) * choices;
    call.expect_shape(EXPANDED_X_OUT, &[copies, width], "min(N, activeNum) K rows of x")?;
    call.expect_shape(EXPANDED_EXPERT_IDX_OUT, &[count * choices], "one expert per choice")?;
    let (x, rows, chosen) = (call.tensor(X)?.slot, call.tensor(ROW_IDX)?.slot, call.tensor(EXPERT_IDX)?.slot);
    let (out, places) = (call.tensor(EXPANDED_X_OUT)?.slot, call.tensor(EXPANDED_ROW_IDX_OUT)?.slot);
    let sorted = call.tensor(EXPANDED_EXPERT_IDX_OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        let (rows, chosen) = (experts::whole(views.of(rows)), experts::whole(views.of(chosen)));
        let order = experts::sorted_places(&chosen);
        let mut row_of = Vec::with_capacity(order.len());
        let mut seen = vec![false; order.len()];
        for &place in &order {
            let row = usize::try_from(rows[place]).ok().filter(|&row| row < seen.len() && !seen[row]);
            let row = row.ok_or_else(|| {
                format!(
                    "rowIdx: expected each of 0 to {} once, found {} at {place}",
                    rows.len() - 1,
                    rows[place]
                )
            })?;
            seen[row] = true;
            row_of.push(row);
        }
        store(views, places, &experts::inverse(&row_of));
        store(views, sorted, &order.iter().map(|&place| chosen[place]).collect::<Vec<_>>());
        let taken: Vec<usize> = row_of[..copies].iter().map(|row| row % count).collect();
        index::take_rows(tiles, views.of(x), &taken, views.of(out));
        Ok(())
    })
}

fn init_routing_v2(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (count, choices, width) = routed(call, EXPERT_IDX)?;
    let (active, number, capacity) =
        (call.int(ACTIVE_NUM)?, call.int(EXPERT_NUM)?, call.int(EXPERT_CAPACITY)?);
    for (name, value) in [(ACTIVE_NUM, active), (EXPERT_NUM, number), (EXPERT_CAPACITY, capacity)] {
        if value < 0 {
            return Err(call.refuse(name, format!("expected at least 0, found {value}")));
        }
    }
    let all = count * choices;
    let layout = match call.int(DROP_PAD_MODE)? {
        0 => CopyLayout::Dropless(if active > 0 { all.min(active as usize) } else { all }),
        1 if number > 0 && capacity > 0 && width > 0 => CopyLayout::Capacity(capacity as usize),
        1 => {
            let text =
                format!("expected rows with elements for {number} experts of {capacity} each, found {width}");
            return Err(call.refuse(DROP_PAD_MODE, text));
        }
        other => return Err(call.refuse(DROP_PAD_MODE, format!("expected 0 or 1, found {other}"))),
    };
    let (number, flag) = (number as usize, call.int(EXPERT_TOKENS_COUNT_OR_CUMSUM_FLAG)?);
    if !(0..=2).contains(&flag) {
        return Err(call.refuse(EXPERT_TOKENS_COUNT_OR_CUMSUM_FLAG, format!("expected 0 to 2, found {flag}")));
    }
    match layout {
        CopyLayout::Dropless(copies) => {
            call.expect_shape(EXPANDED_X_OUT, &[copies, width], "the active copies of x")?;
        }
        CopyLayout::Capacity(capacity) => {
            call.expect_shape(EXPANDED_X_OUT, &[number, capacity, width], "[expertNum, expertCapacity, H]")?;
        }
    }
    let is_dropless = matches!(layout, CopyLayout::Dropless(_));
    let counted = is_dropless && flag != 0;
    if counted && number == 0 {
        return Err(call.refuse(EXPERT_NUM, "expected at least 1 if tokens are counted, found 0"));
    }
    let before = call.flag(EXPERT_TOKENS_BEFORE_CAPACITY_FLAG)? && !is_dropless;
    let wanted = [
        (EXPERT_TOKENS_COUNT_OR_CUMSUM_OUT_OPTIONAL, counted),
        (EXPERT_TOKENS_BEFORE_CAPACITY_OUT_OPTIONAL, before),
    ];
    for (name, _) in wanted.iter().filter(|(_, wanted)| *wanted) {
        call.expect_shape(*name, &[number], "a number for each expert")?;
    }
    let x = call.tensor(X)?.slot;
    let chosen = call.tensor(EXPERT_IDX)?.slot;
    let (out, places) = (call.tensor(EXPANDED_X_OUT)?.slot, call.tensor(EXPANDED_ROW_IDX_OUT)?.slot);
    let mut counts_out = None;
    for (name, _) in wanted.iter().filter(|(_, wanted)| *wanted) {
        counts_out = Some(call.tensor(*name)?.slot);
    }
    let is_sum = is_dropless && flag == 1;
    CallPlan::new(move |views, tiles| {
        let chosen = experts::whole(views.of(chosen));
        let SortedChoices { places: at, mut counts, copies } =
            experts::sort_choices(&chosen, if is_dropless && !counted { 0 } else { number }, layout)?;
        store(views, places, &at);
        if let Some(slot) = counts_out {
            if is_sum {
                (1..number).for_each(|expert| counts[expert] += counts[expert - 1]);
            }
            store(views, slot, &counts);
        }
        let rows: Vec<Option<usize>> = copies.iter().map(|copy| copy.map(|place| place / choices)).collect();
        experts::place_rows(tiles, views.of(x), &rows, views.of(out));
        Ok(())
    })
}

/// Meaning of the positions of copies.
#[derive(Clone, Copy)]
struct CopyOrder {
    /// Copies are ordered by token, otherwise by choice.
    by_token: bool,
    /// A choice may have position -1.
    may_drop: bool,
}

struct Back {
    count: usize,
    choices: usize,
    copies: usize,
    order: CopyOrder,
    rows: ViewIndex,
    scales: Option<ViewIndex>,
    experts: Option<(ViewIndex, usize)>,
}

impl Back {
    fn shares(&self, views: &StridedViews<'_>) -> Result<Vec<Vec<RowTerm>>, String> {
        let rows = experts::whole(views.of(self.rows));
        let mut scales = vec![1f32; self.count * self.choices];
        if let Some(slot) = self.scales {
            f32::load(&views.of(slot).collapsed(), 0, &mut scales);
        }
        let named = self.experts.map(|(slot, extent)| (experts::whole(views.of(slot)), extent));
        let share = |token: usize, choice: usize| {
            let at = token * self.choices + choice;
            let place = rows[if self.order.by_token { at } else { choice * self.count + token }];
            let row = usize::try_from(place).ok().filter(|&row| row < self.copies);
            if row.is_none() && !(self.order.may_drop && place == -1) {
                return Err(format!(
                    "expandedRowIdx: expected 0 to {}, found {place}",
                    self.copies as i64 - 1
                ));
            }
            let bias = match &named {
                None => None,
                Some((named, extent)) => {
                    Some(usize::try_from(named[at]).ok().filter(|expert| expert < extent).ok_or_else(
                        || format!("expert: expected 0 to {}, found {}", *extent as i64 - 1, named[at]),
                    )?)
                }
            };
            Ok(RowTerm { row, factor: scales[at], bias })
        };
        (0..self.count).map(|token| (0..self.choices).map(|choice| share(token, choice)).collect()).collect()
    }
}

fn finalize(
    call: &OperatorCall,
    addends: &[Name<CheckedTensor>],
    scales: Name<CheckedTensor>,
    bias: Name<CheckedTensor>,
    chosen: Name<CheckedTensor>,
    order: CopyOrder,
) -> Result<CallPlan, Refusal> {
    let (x, out) = (call.tensor(EXPANDED_X)?, call.tensor(OUT)?);
    let (count, width) = (out.dims[0], out.dims[1]);
    let copies = x.len().checked_div(width).unwrap_or(0);
    if x.dims[x.rank() - 1] != width || x.rank() != if order.may_drop { 3 } else { 2 } {
        let text = format!(
            "expected rows of {width} elements as in out, in {} dims, found {:?}",
            2 + i32::from(order.may_drop),
            x.dims
        );
        return Err(call.refuse(EXPANDED_X, text));
    }
    let choices = call.tensor_if_given(scales)?.map_or(1, |scales| scales.dims[1]);
    call.expect_shape(EXPANDED_ROW_IDX, &[count * choices], "one index per choice and token of out")?;
    let mut slots = Vec::new();
    for &name in addends {
        if let Some(tensor) = call.tensor_if_given(name)? {
            call.expect_shape(name, &out.dims, "of out")?;
            slots.push(tensor.slot);
        }
    }
    for &name in [scales, bias, OUT].iter().chain(addends) {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_dtype(name, x.dtype, "the type of expandedX")?;
        }
    }
    if call.tensor_if_given(scales)?.is_some() {
        call.expect_shape(scales, &[count, choices], "a factor for each choice")?;
    }
    let mut named = None;
    if let Some(bias) = call.tensor_if_given(bias)? {
        call.expect_shape(chosen, &[count, choices], "one expert per choice, for the bias")?;
        named = Some((call.tensor(chosen)?.slot, bias.dims[0]));
    }
    let rows = call.tensor(EXPANDED_ROW_IDX)?.slot;
    let scales = call.tensor_if_given(scales)?.map(|scales| scales.slot);
    let bias = call.tensor_if_given(bias)?.map(|bias| bias.slot);
    let (x, out) = (x.slot, out.slot);
    let back = Back { count, choices, copies, order, rows, scales, experts: named };
    CallPlan::new(move |views, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let addends: Vec<&StridedView> = slots.iter().map(|&slot| views.of(slot)).collect();
        let bias = bias.map(|slot| views.of(slot));
        experts::combine(tiles, views.of(x), &addends, bias, &back.shares(views)?, views.of(out));
        Ok(())
    })
}

fn finalize_routing(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let order = CopyOrder { by_token: false, may_drop: false };
    finalize(call, &[X1, X2_OPTIONAL], SCALES, BIAS, EXPANDED_EXPERT_IDX, order)
}

fn finalize_routing_v2(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let mode = call.int(DROP_PAD_MODE)?;
    if !(0..=3).contains(&mode) {
        return Err(call.refuse(DROP_PAD_MODE, format!("expected 0 to 3, found {mode}")));
    }
    let may_drop = mode % 2 == 1;
    if may_drop && call.tensor_if_given(BIAS_OPTIONAL)?.is_some() {
        return Err(call.refuse(
            BIAS_OPTIONAL,
            "is given, but is not modelled if copies may have been dropped: pass NULL",
        ));
    }
    let order = CopyOrder { by_token: mode >= 2, may_drop };
    finalize(call, &[X1_OPTIONAL, X2_OPTIONAL], SCALES_OPTIONAL, BIAS_OPTIONAL, EXPERT_IDX_OPTIONAL, order)
}

fn expect_no_padding(call: &OperatorCall) -> Result<(), Refusal> {
    if call.flag(PADDED_MODE)? {
        return Err(call.refuse(PADDED_MODE, "expected false, found true"));
    }
    Ok(())
}

fn permute(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_no_padding(call)?;
    let (tokens, indices) = (call.tensor(TOKENS)?, call.tensor(INDICES)?);
    let (count, width, choices) = (tokens.dims[0], tokens.dims[1], indices.dims.get(1).copied().unwrap_or(1));
    if indices.dims[0] != count || choices > 512 {
        let text = format!("expected [{count}] or [{count}, at most 512], found {:?}", indices.dims);
        return Err(call.refuse(INDICES, text));
    }
    let (all, asked) = (indices.len(), call.int(NUM_OUT_TOKENS)?);
    let copies =
        if asked > 0 { all.min(asked as usize) } else { all.saturating_sub(asked.unsigned_abs() as usize) };
    call.expect_dtype(PERMUTE_TOKENS_OUT, tokens.dtype, "the type of tokens")?;
    call.expect_shape(PERMUTE_TOKENS_OUT, &[copies, width], "the copies kept by numOutTokens")?;
    call.expect_shape(SORTED_INDICES_OUT, &[all], "one index per copy")?;
    let (tokens, indices) = (tokens.slot, indices.slot);
    let (out, places) = (call.tensor(PERMUTE_TOKENS_OUT)?.slot, call.tensor(SORTED_INDICES_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let order = experts::sorted_places(&experts::whole(views.of(indices)));
        store(views, places, &experts::inverse(&order));
        let taken: Vec<usize> = order[..copies].iter().map(|place| place / choices).collect();
        index::take_rows(tiles, views.of(tokens), &taken, views.of(out));
        Ok(())
    })
}

fn unpermute(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_no_padding(call)?;
    let (tokens, out, probs) =
        (call.tensor(PERMUTED_TOKENS)?, call.tensor(OUT)?, call.tensor_if_given(PROBS_OPTIONAL)?);
    let (count, width, copies) = (out.dims[0], out.dims[1], tokens.dims[0]);
    let choices = probs.map_or(1, |probs| probs.dims[1]);
    call.expect_dtype(OUT, tokens.dtype, "the type of permutedTokens")?;
    if tokens.dims[1] != width {
        return Err(
            call.refuse(OUT, format!("expected rows of {} elements, found {:?}", tokens.dims[1], out.dims))
        );
    }
    call.expect_shape(SORTED_INDICES, &[count * choices], "one index per copy and token of out")?;
    if probs.is_some() {
        call.expect_shape(PROBS_OPTIONAL, &[count, choices], "a factor for each copy")?;
    }
    let (tokens, out, probs) = (tokens.slot, out.slot, probs.map(|probs| probs.slot));
    sum_of_copies(call, tokens, probs, [count, choices, copies], out)
}

fn sum_of_copies(
    call: &OperatorCall,
    tokens: ViewIndex,
    probs: Option<ViewIndex>,
    [count, choices, copies]: [usize; 3],
    out: ViewIndex,
) -> Result<CallPlan, Refusal> {
    let places = call.tensor(SORTED_INDICES)?.slot;
    CallPlan::new(move |views, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let places = experts::whole(views.of(places));
        let mut factors = vec![1f32; places.len()];
        if let Some(slot) = probs {
            f32::load(&views.of(slot).collapsed(), 0, &mut factors);
        }
        let share = |at: usize| RowTerm {
            row: usize::try_from(places[at]).ok().filter(|&row| row < copies),
            factor: factors[at],
            bias: None,
        };
        let of = |token: usize| (0..choices).map(|choice| share(token * choices + choice)).collect();
        let shares: Vec<Vec<RowTerm>> = (0..count).map(of).collect();
        experts::combine(tiles, views.of(tokens), &[], None, &shares, views.of(out));
        Ok(())
    })
}

fn permute_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_no_padding(call)?;
    let (grad, out, choices) = (call.tensor(PERMUTED_OUTPUT_GRAD)?, call.tensor(OUT)?, call.int(NUM_TOPK)?);
    if !(1..=512).contains(&choices) {
        return Err(call.refuse(NUM_TOPK, format!("expected 1 to 512, found {choices}")));
    }
    let (choices, count) = (choices as usize, out.dims[0]);
    call.expect_dtype(OUT, grad.dtype, "the type of permutedOutputGrad")?;
    call.expect_shape(OUT, &[count, grad.dims[1]], "of tokens as wide as permutedOutputGrad")?;
    call.expect_shape(SORTED_INDICES, &[count * choices], "one index per copy and token of out")?;
    sum_of_copies(call, grad.slot, None, [count, choices, grad.dims[0]], out.slot)
}

fn unpermute_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_no_padding(call)?;
    let (tokens, grad) = (call.tensor(PERMUTED_TOKENS)?, call.tensor(UNPERMUTED_TOKENS_GRAD)?);
    let probs = call.tensor_if_given(PROBS_OPTIONAL)?;
    let (count, width, copies) = (grad.dims[0], grad.dims[1], tokens.dims[0]);
    let choices = probs.map_or(1, |probs| probs.dims[1]);
    for name in [UNPERMUTED_TOKENS_GRAD, PERMUTED_TOKENS_GRAD_OUT] {
        call.expect_dtype(name, tokens.dtype, "the type of permutedTokens")?;
    }
    call.expect_shape(PERMUTED_TOKENS, &[copies, width], "as wide as unpermutedTokensGrad")?;
    call.expect_shape(PERMUTED_TOKENS_GRAD_OUT, &tokens.dims, "of permutedTokens")?;
    call.expect_shape(SORTED_INDICES, &[count * choices], "one index per copy and token")?;
    if let Some(probs) = probs {
        call.expect_shape(PROBS_OPTIONAL, &[count, choices], "a factor for each copy")?;
        call.expect_shape(PROBS_GRAD_OUT, &[count, choices], "of probsOptional")?;
        call.expect_dtype(PROBS_GRAD_OUT, probs.dtype, "the type of probsOptional")?;
    }
    let unwritten =
        call.tensor_if_given(PROBS_GRAD_OUT)?.filter(|_| probs.is_none()).map(|tensor| tensor.slot);
    let probs =
        probs.map(|probs| Ok::<_, Refusal>((probs.slot, call.tensor(PROBS_GRAD_OUT)?.slot))).transpose()?;
    let (tokens, grad, places) = (tokens.slot, grad.slot, call.tensor(SORTED_INDICES)?.slot);
    let out = call.tensor(PERMUTED_TOKENS_GRAD_OUT)?.slot;
    let plan = CallPlan::new(move |views, tiles| {
        let places = experts::whole(views.of(places));
        let row = |at: usize| usize::try_from(places[at]).ok().filter(|&row| row < copies);
        let mut factors = vec![1f32; places.len()];
        if let Some((probs, probs_grad)) = probs {
            f32::load(&views.of(probs).collapsed(), 0, &mut factors);
            let (tokens, grad) = (views.of(tokens).collapsed(), views.of(grad).collapsed());
            let slopes = |at: usize| {
                let (mut copy, mut slope) = (vec![0f32; width], vec![0f32; width]);
                let Some(row) = row(at) else { return 0.0 };
                f32::load(&tokens, row * width, &mut copy);
                f32::load(&grad, at / choices * width, &mut slope);
                math::dot(&copy, &slope)
            };
            f32::store(
                &views.of(probs_grad).collapsed(),
                0,
                &(0..places.len()).map(slopes).collect::<Vec<_>>(),
            );
        }
        let mut shares: Vec<Vec<RowTerm>> = vec![Vec::new(); copies];
        for (at, factor) in factors.into_iter().enumerate() {
            if let Some(row) = row(at) {
                shares[row].push(RowTerm { row: Some(at / choices), factor, bias: None });
            }
        }
        if !views.of(out).is_empty() {
            experts::combine(tiles, views.of(grad), &[], None, &shares, views.of(out));
        }
        Ok(())
    })?;
    Ok(plan.leaving(unwritten.into_iter().collect()))
}
