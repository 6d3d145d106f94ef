//! Rows of training attention over packed sequences (layout TND).
//!
//! Each sequence is one call of the kernels of the padded layouts. Not supported: position bias,
//! dropout, prefixes, and sparse modes above 3.

use std::ops::Range;

use crate::attention::kernels::gradient::{AttentionGrad, attention_grad};
use crate::attention::kernels::{AttentionBatch, AttentionCall, COPIES, SoftmaxStatistics, attention};
use crate::attention::rows::{COMPRESSED, WORKSPACE_BYTES, check_triangle};
use crate::attention::training_rows::{expect_no_others, expect_unused};
use crate::elementwise::kernels as elementwise;
use crate::gradient::rows::expect_same;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, input, ints, output, text, unmodelled};
use crate::operator::sets::{CONDITIONS, FLOATING, SINGLE};
use crate::operator::{Attended, CallPlan, KeySequence, Refusal, StridedViews, ViewIndex};
use crate::view::StridedView;

const FORWARD: [Parameter; 9] = [
    input(QUERY, FLOATING, 3, 3),
    input(KEY, FLOATING, 3, 3),
    input(VALUE, FLOATING, 3, 3),
    input(ATTEN_MASK_OPTIONAL, CONDITIONS, 2, 2).optional(),
    unmodelled(PREFIX_OPTIONAL),
    output(SOFTMAX_MAX_OUT, SINGLE, 3, 3).contiguous(),
    output(SOFTMAX_SUM_OUT, SINGLE, 3, 3).contiguous(),
    output(SOFTMAX_OUT_OUT, FLOATING, 1, 4).optional(),
    output(ATTENTION_OUT_OUT, FLOATING, 3, 3),
];

const STARTS: [Parameter; 2] =
    [ints(Q_START_IDX_OPTIONAL).optional(), ints(KV_START_IDX_OPTIONAL).optional()];

const FORWARD_V2: [Parameter; 11] = {
    let ([query, key, value, mask, prefix, max, sum, softmax, out], [queries, keys]) = (FORWARD, STARTS);
    [query, key, value, mask, prefix, queries, keys, max, sum, softmax, out]
};

const FORWARD_V4: [Parameter; 10] = {
    let [query, key, value, mask, prefix, max, sum, softmax, out] = FORWARD;
    [query, key, value, mask, prefix, text(SOFTMAX_OUT_LAYOUT), max, sum, softmax, out]
};

const FORWARD_V5: [Parameter; 12] = {
    let [query, key, value, mask, prefix, queries, keys, max, sum, softmax, out] = FORWARD_V2;
    [query, key, value, mask, prefix, queries, keys, text(SOFTMAX_OUT_LAYOUT), max, sum, softmax, out]
};

const BACKWARD: [Parameter; 14] = [
    input(QUERY, FLOATING, 3, 3),
    input(KEY_IN, FLOATING, 3, 3),
    input(VALUE, FLOATING, 3, 3),
    input(DY, FLOATING, 3, 3),
    input(ATTEN_MASK_OPTIONAL, CONDITIONS, 2, 2).optional(),
    input(SOFTMAX_MAX_OPTIONAL, SINGLE, 3, 3).contiguous(),
    input(SOFTMAX_SUM_OPTIONAL, SINGLE, 3, 3).contiguous(),
    input(SOFTMAX_IN_OPTIONAL, FLOATING, 1, 4).optional(),
    input(ATTENTION_IN_OPTIONAL, FLOATING, 3, 3),
    unmodelled(PREFIX_OPTIONAL),
    output(DQ_OUT, FLOATING, 3, 3),
    output(DK_OUT, FLOATING, 3, 3),
    output(DV_OUT, FLOATING, 3, 3),
    output(DPSE_OUT, FLOATING, 1, 4).optional(),
];

const BACKWARD_V2: [Parameter; 16] = {
    let [query, key, value, dy, mask, max, sum, softmax, out, prefix, dq, dk, dv, dpse] = BACKWARD;
    let [queries, keys] = STARTS;
    [query, key, value, dy, mask, max, sum, softmax, out, prefix, queries, keys, dq, dk, dv, dpse]
};

/// Gradients of the rotated parts.
const TURNED: [Parameter; 2] =
    [output(DQ_ROPE_OUT, FLOATING, 1, 4).optional(), output(DK_ROPE_OUT, FLOATING, 1, 4).optional()];

const BACKWARD_V3: [Parameter; 18] = {
    let [query, key, value, dy, mask, max, sum, softmax, out, prefix, queries, keys, dq, dk, dv, dpse] =
        BACKWARD_V2;
    let [dqr, dkr] = TURNED;
    [query, key, value, dy, mask, max, sum, softmax, out, prefix, queries, keys, dq, dqr, dk, dkr, dv, dpse]
};

const BACKWARD_V4: [Parameter; 15] = {
    let [query, key, value, dy, mask, max, sum, softmax, out, prefix, dq, dk, dv, dpse] = BACKWARD;
    let layout = text(SOFTMAX_IN_LAYOUT);
    [query, key, value, dy, mask, max, sum, softmax, out, prefix, dq, dk, dv, dpse, layout]
};

const BACKWARD_V5: [Parameter; 20] = {
    let [query, key, value, dy, mask, max, sum, softmax, out, prefix, queries, keys, dq, dk, dv, dpse] =
        BACKWARD_V2;
    let ([dqr, dkr], layout) = (TURNED, text(SOFTMAX_IN_LAYOUT));
    let dsink = output(DSINK_OUT, FLOATING, 1, 1).optional();
    [
        query, key, value, dy, mask, max, sum, softmax, out, prefix, queries, keys, layout, dq, dqr, dk, dkr,
        dv, dpse, dsink,
    ]
};

const LIMITS: &str = "one element type; inputLayout TND: query [T, N, D], key and value [Tkv, Nkv, D], N up to 256 and a multiple of Nkv, \
                      D up to 512; actualSeqQLenOptional and actualSeqKvLenOptional are the ends of as many sequences, and reach T \
                      and Tkv; a sequence with queries has keys; keepProb 1; innerPrecise 0 or 2; sparseMode 0 (attenMaskOptional \
                      [longest query, longest key], with preTokens and nextTokens that hide nothing, or NULL), 1 (the mask alone), \
                      2, 3 (2048 x 2048, 1 above the diagonal); statistics [T, N, 8], in which each sequence is stored as [N, its T, 8]; softmaxOutOut NULL or without elements";

const LIMITS_GRAD: &str = "as aclnnFlashAttentionVarLenScore, with its inputs and outputs; softmaxInOptional and dpseOut NULL or without elements";

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFlashAttentionVarLenScore",
        parameters: &FORWARD,
        limits: LIMITS,
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionVarLenScore.md",
        plan: forward,
    },
    Operator {
        name: "aclnnFlashAttentionVarLenScoreV2",
        parameters: &FORWARD_V2,
        limits: "as aclnnFlashAttentionVarLenScore; start indexes and pseType 0 to 3 concern a position bias, which must be NULL",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionVarLenScoreV2.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| forward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionUnpaddingScoreGrad",
        parameters: &BACKWARD,
        limits: LIMITS_GRAD,
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionUnpaddingScoreGrad.md",
        plan: backward,
    },
    Operator {
        name: "aclnnFlashAttentionUnpaddingScoreGradV2",
        parameters: &BACKWARD_V2,
        limits: LIMITS_GRAD,
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionUnpaddingScoreGradV2.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| backward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionVarLenScoreV3",
        parameters: &FORWARD_V2,
        limits: "as aclnnFlashAttentionVarLenScoreV2; queryRope and keyRope NULL",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionVarLenScoreV3.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| forward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionVarLenScoreV4",
        parameters: &FORWARD_V4,
        limits: "as aclnnFlashAttentionVarLenScore; softmaxOutLayout NULL, empty or same_as_input, which stores the statistics by token",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionVarLenScoreV4.md",
        plan: forward,
    },
    Operator {
        name: "aclnnFlashAttentionVarLenScoreV5",
        parameters: &FORWARD_V5,
        limits: "as aclnnFlashAttentionVarLenScoreV3 and V4; sinkOptional NULL",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionVarLenScoreV5.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| forward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionUnpaddingScoreGradV3",
        parameters: &BACKWARD_V3,
        limits: "as aclnnFlashAttentionUnpaddingScoreGradV2; queryRope and keyInRope NULL, their gradients NULL or without elements",
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionUnpaddingScoreGradV3.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| backward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionUnpaddingScoreGradV4",
        parameters: &BACKWARD_V4,
        limits: "as aclnnFlashAttentionUnpaddingScoreGrad; softmaxInLayout the softmaxOutLayout of the statistics",
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionUnpaddingScoreGradV4.md",
        plan: backward,
    },
    Operator {
        name: "aclnnFlashAttentionUnpaddingScoreGradV5",
        parameters: &BACKWARD_V5,
        limits: "as aclnnFlashAttentionUnpaddingScoreGradV3 and V4; sinkInOptional NULL, dsinkOut NULL or without elements",
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionUnpaddingScoreGradV5.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| backward(call)),
    },
];

#[derive(Clone, Copy, Debug)]
enum PackedMask {
    None,
    Full(ViewIndex),
    /// The documented triangle. With `to_end` the last row sees the last key.
    Triangle {
        mask: ViewIndex,
        to_end: bool,
    },
}

/// Positions of a sequence among the packed queries and keys.
#[derive(Clone, Debug)]
struct PackedSequence {
    queries: Range<usize>,
    keys: Range<usize>,
}

#[derive(Clone, Debug)]
struct PackedShape {
    sequences: Vec<PackedSequence>,
    heads: [usize; 2],
    depth: usize,
    scale: f32,
    mask: PackedMask,
}

/// Returns the ranges of sequences with these ends, which reach `total`.
fn ranges(call: &OperatorCall, name: Name<[i64]>, total: usize) -> Result<Vec<Range<usize>>, Refusal> {
    let ends = call.ints(name)?;
    let fits = ends.is_sorted()
        && ends.first().is_some_and(|&first| first >= 0)
        && ends.last() == Some(&(total as i64));
    call.expect_that(fits, name, &format!("ends that ascend to {total}"), ends)?;
    let starts = [0].into_iter().chain(ends.iter().map(|&end| end as usize));
    Ok(starts.zip(ends).map(|(start, &end)| start..end as usize).collect())
}

fn shape(call: &OperatorCall, key: Name<CheckedTensor>) -> Result<PackedShape, Refusal> {
    let layout = call.text(INPUT_LAYOUT)?;
    call.expect_that(layout == "TND", INPUT_LAYOUT, "TND", layout)?;
    let kept = call.float(KEEP_PROB)?;
    call.expect_that(kept == 1.0, KEEP_PROB, "1, as dropMaskOptional is not modelled", kept)?;
    let precise = call.int(INNER_PRECISE)?;
    call.expect_that([0, 2].contains(&precise), INNER_PRECISE, "0, or 2 (rows without keys)", precise)?;
    call.expect_type_of(QUERY, &[key, VALUE])?;
    call.expect_elements(&[QUERY, key])?;
    let sizes = call.sizes(&[QUERY.of("tnd"), key.of("smd"), VALUE.of("smd")])?;
    let [tokens, heads, depth, keys, kv_heads] = sizes.all(['t', 'n', 'd', 's', 'm']);
    let said = call.int_in(HEAD_NUM, 1..=256)?;
    call.expect_that(said == heads as i64, HEAD_NUM, &format!("{heads} as query has"), said)?;
    call.expect_that(
        heads.is_multiple_of(kv_heads),
        key,
        &format!("a number of heads that divides {heads}"),
        kv_heads,
    )?;
    call.expect_that(depth <= 512, QUERY, "D up to 512", depth)?;
    let queries = ranges(call, ACTUAL_SEQ_Q_LEN_OPTIONAL, tokens)?;
    let of_keys = ranges(call, ACTUAL_SEQ_KV_LEN_OPTIONAL, keys)?;
    call.expect_that(
        of_keys.len() == queries.len(),
        ACTUAL_SEQ_KV_LEN_OPTIONAL,
        &format!("{} ends", queries.len()),
        of_keys.len(),
    )?;
    let sequences: Vec<PackedSequence> =
        queries.into_iter().zip(of_keys).map(|(queries, keys)| PackedSequence { queries, keys }).collect();
    if let Some(blind) = sequences.iter().position(|each| !each.queries.is_empty() && each.keys.is_empty()) {
        return Err(
            call.refuse(ACTUAL_SEQ_KV_LEN_OPTIONAL, format!("sequence {blind} has queries, but no keys"))
        );
    }
    let longest = |of: fn(&PackedSequence) -> usize| sequences.iter().map(of).max().unwrap_or(0);
    let longest = [longest(|each| each.queries.len()), longest(|each| each.keys.len())];
    let mask = mask(call, longest)?;
    Ok(PackedShape {
        sequences,
        heads: [heads, kv_heads],
        depth,
        scale: call.float(SCALE_VALUE)? as f32,
        mask,
    })
}

fn mask(call: &OperatorCall, longest: [usize; 2]) -> Result<PackedMask, Refusal> {
    let mode = call.int_in(SPARSE_MODE, 0..=3)?;
    let Some(mask) = call.tensor_if_given(ATTEN_MASK_OPTIONAL)? else {
        call.expect_that(mode == 0, ATTEN_MASK_OPTIONAL, &format!("a mask for sparseMode {mode}"), "NULL")?;
        return Ok(PackedMask::None);
    };
    if mode >= 2 {
        call.expect_shape(ATTEN_MASK_OPTIONAL, &[COMPRESSED, COMPRESSED], &format!("for sparseMode {mode}"))?;
        return Ok(PackedMask::Triangle { mask: mask.slot, to_end: mode == 3 });
    }
    call.expect_shape(ATTEN_MASK_OPTIONAL, &longest, "the longest queries and keys")?;
    if mode == 0 {
        for (name, extent) in [(PRE_TOKENS, longest[0]), (NEXT_TOKENS, longest[1])] {
            let found = call.int(name)?;
            call.expect_that(
                found >= extent as i64 - 1,
                name,
                &format!("at least {}, which hides nothing", extent - 1),
                found,
            )?;
        }
    }
    Ok(PackedMask::Full(mask.slot))
}

impl PackedShape {
    fn attended(&self, query: ViewIndex, keys: [ViewIndex; 2]) -> Attended {
        let sequence = |each: &PackedSequence| {
            let (rows, keys) = (each.queries.len(), each.keys.len());
            KeySequence { rows, keys, room: keys }
        };
        Attended {
            query,
            keys: vec![keys],
            heads: self.heads,
            depths: [self.depth; 2],
            scales: None,
            triangle: if let PackedMask::Triangle { mask, .. } = self.mask { Some(mask) } else { None },
            sequences: self.sequences.iter().map(sequence).collect(),
        }
    }

    fn batch(
        &self,
        views: &StridedViews<'_>,
        keys: [ViewIndex; 2],
        sequence: &PackedSequence,
    ) -> Result<AttentionBatch, String> {
        let (query_len, key_len) = (sequence.queries.len(), sequence.keys.len());
        let (mask, after) = match self.mask {
            PackedMask::None => (None, i64::MAX),
            PackedMask::Full(slot) => (Some(views.of(slot).clone()), i64::MAX),
            PackedMask::Triangle { mask, to_end } => {
                check_triangle(views.of(mask))?;
                (None, if to_end { key_len as i64 - query_len as i64 } else { 0 })
            }
        };
        let [key, value] = keys.map(|slot| heads_of(views.of(slot), &sequence.keys).at(0, 0));
        Ok(AttentionBatch {
            key,
            value,
            blocks: None,
            scales: None,
            query_len,
            key_len,
            mask,
            before: i64::MAX,
            after,
            bias: None,
            dropout: None,
        })
    }
}

/// Rows of a sequence of `[T, N, D]` as `[1, N, rows, D]`.
fn heads_of(view: &StridedView, rows: &Range<usize>) -> StridedView {
    view.slice(0, rows.start, rows.len(), 1).permute(&[1, 0, 2]).unsqueeze(0)
}

/// Statistics of the queries, which the text of a layout may store by token.
#[derive(Clone, Copy, Debug)]
struct Statistics {
    slots: [ViewIndex; 2],
    by_token: bool,
}

impl Statistics {
    /// Maxima and sums of a sequence, as `[1, N, rows, 8]`.
    fn of(self, views: &StridedViews<'_>, sequence: &PackedSequence) -> [StridedView; 2] {
        let rows = &sequence.queries;
        self.slots.map(|slot| {
            let all = views.of(slot);
            if self.by_token {
                return heads_of(all, rows);
            }
            let heads = all.dims()[1];
            let own = all.slice(0, rows.start, rows.len(), 1).collapsed();
            own.split(0, heads, rows.len() * COPIES).split(1, rows.len(), COPIES).unsqueeze(0)
        })
    }
}

fn expect_statistics(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; 2],
    layout: Name<str>,
) -> Result<Statistics, Refusal> {
    let dims = &call.tensor(QUERY)?.dims;
    for name in names {
        call.expect_shape(name, &[dims[0], dims[1], COPIES], "T, N of query and 8")?;
    }
    let text = if call.has(layout) { call.text_if_given(layout)?.unwrap_or_default() } else { "" };
    let is_known = ["", "same_as_input"].contains(&text);
    call.expect_that(is_known, layout, "NULL, an empty text or same_as_input", text)?;
    Ok(Statistics { slots: call.slots_of(names)?, by_token: !text.is_empty() })
}

fn forward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let shape = shape(call, KEY)?;
    expect_unused(call, SOFTMAX_OUT_OUT)?;
    let statistics = expect_statistics(call, [SOFTMAX_MAX_OUT, SOFTMAX_SUM_OUT], SOFTMAX_OUT_LAYOUT)?;
    expect_same(call, QUERY, &[ATTENTION_OUT_OUT])?;
    let [query, key, value, out] = call.slots_of([QUERY, KEY, VALUE, ATTENTION_OUT_OUT])?;
    let attended = shape.attended(query, [key, value]);
    let plan = CallPlan::new(move |views: &StridedViews<'_>, tiles| {
        for sequence in shape.sequences.iter().filter(|each| !each.queries.is_empty()) {
            let rows = |slot: ViewIndex| heads_of(views.of(slot), &sequence.queries);
            let [max, sum] = statistics.of(views, sequence);
            let job = AttentionCall {
                query: rows(query),
                batches: vec![shape.batch(views, [key, value], sequence)?],
                scale: shape.scale,
                out: rows(out),
                statistics: SoftmaxStatistics::MaxAndSum(max, sum),
            };
            attention(tiles, &job);
        }
        Ok(())
    })?;
    Ok(plan.with_workspace(WORKSPACE_BYTES).attending(attended))
}

fn backward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let shape = shape(call, KEY_IN)?;
    expect_unused(call, SOFTMAX_IN_OPTIONAL)?;
    expect_no_others(call)?;
    let names = [SOFTMAX_MAX_OPTIONAL, SOFTMAX_SUM_OPTIONAL];
    let statistics = expect_statistics(call, names, SOFTMAX_IN_LAYOUT)?;
    expect_same(call, QUERY, &[DY, ATTENTION_IN_OPTIONAL, DQ_OUT])?;
    expect_same(call, KEY_IN, &[DK_OUT, DV_OUT])?;
    let [query, key, value] = call.slots_of([QUERY, KEY_IN, VALUE])?;
    let [out, out_grad, dq, dk, dv] = call.slots_of([ATTENTION_IN_OPTIONAL, DY, DQ_OUT, DK_OUT, DV_OUT])?;
    let attended = shape.attended(query, [key, value]);
    let plan = CallPlan::new(move |views: &StridedViews<'_>, tiles| {
        for sequence in &shape.sequences {
            let keys = |slot: ViewIndex| heads_of(views.of(slot), &sequence.keys);
            if sequence.queries.is_empty() {
                [dk, dv].into_iter().for_each(|slot| elementwise::fill::<f32>(tiles, &keys(slot), 0.0));
                continue;
            }
            let rows = |slot: ViewIndex| heads_of(views.of(slot), &sequence.queries);
            let job = AttentionGrad {
                query: rows(query),
                batches: vec![shape.batch(views, [key, value], sequence)?],
                scale: shape.scale,
                out: rows(out),
                out_grad: rows(out_grad),
                statistics: statistics.of(views, sequence),
                query_grad: rows(dq),
                key_grad: keys(dk),
                value_grad: keys(dv),
            };
            attention_grad(tiles, &job);
        }
        Ok(())
    })?;
    Ok(plan.with_workspace(WORKSPACE_BYTES).attending(attended))
}
