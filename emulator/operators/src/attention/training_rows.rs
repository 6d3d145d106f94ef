//! Rows of training attention.
//!
//! Not supported: position bias, prefixes, sparse modes above 3. The parameters for these
//! must be NULL, 1 or absent.

use crate::attention::kernels::gradient::{AttentionGrad, attention_grad};
use crate::attention::kernels::{
    AttentionBatch, AttentionCall, COPIES, Dropout, SoftmaxStatistics, attention,
};
use crate::attention::rows::{COMPRESSED, Extents, Order, WORKSPACE_BYTES, check_triangle};
use crate::gradient::rows::expect_same;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, input, ints, output, unmodelled};
use crate::operator::sets::{CONDITIONS, FLOATING, OCTETS, SINGLE};
use crate::operator::{Attended, CallPlan, KeySequence, Refusal, StridedViews, ViewIndex};
use crate::view::StridedView;

const FORWARD: [Parameter; 10] = [
    input(QUERY, FLOATING, 3, 4),
    input(KEY, FLOATING, 3, 4),
    input(VALUE, FLOATING, 3, 4),
    input(DROP_MASK_OPTIONAL, OCTETS, 1, 1).contiguous().optional(),
    input(ATTEN_MASK_OPTIONAL, CONDITIONS, 2, 4).optional(),
    unmodelled(PREFIX_OPTIONAL),
    output(SOFTMAX_MAX_OUT, SINGLE, 4, 4),
    output(SOFTMAX_SUM_OUT, SINGLE, 4, 4),
    output(SOFTMAX_OUT_OUT, FLOATING, 1, 4).optional(),
    output(ATTENTION_OUT_OUT, FLOATING, 3, 4),
];

const STARTS: [Parameter; 2] =
    [ints(Q_START_IDX_OPTIONAL).optional(), ints(KV_START_IDX_OPTIONAL).optional()];

const FORWARD_V2: [Parameter; 12] = {
    let ([query, key, value, drop, mask, prefix, max, sum, softmax, out], [queries, keys]) =
        (FORWARD, STARTS);
    [query, key, value, drop, mask, prefix, queries, keys, max, sum, softmax, out]
};

const BACKWARD: [Parameter; 15] = [
    input(QUERY, FLOATING, 3, 4),
    input(KEY_IN, FLOATING, 3, 4),
    input(VALUE, FLOATING, 3, 4),
    input(DY, FLOATING, 3, 4),
    input(DROP_MASK_OPTIONAL, OCTETS, 1, 1).contiguous().optional(),
    input(ATTEN_MASK_OPTIONAL, CONDITIONS, 2, 4).optional(),
    input(SOFTMAX_MAX_OPTIONAL, SINGLE, 4, 4),
    input(SOFTMAX_SUM_OPTIONAL, SINGLE, 4, 4),
    input(SOFTMAX_IN_OPTIONAL, FLOATING, 1, 4).optional(),
    input(ATTENTION_IN_OPTIONAL, FLOATING, 3, 4),
    unmodelled(PREFIX_OPTIONAL),
    output(DQ_OUT, FLOATING, 3, 4),
    output(DK_OUT, FLOATING, 3, 4),
    output(DV_OUT, FLOATING, 3, 4),
    output(DPSE_OUT, FLOATING, 1, 4).optional(),
];

const BACKWARD_V2: [Parameter; 17] = {
    let [query, key, value, dy, drop, mask, max, sum, softmax, out, prefix, dq, dk, dv, dpse] = BACKWARD;
    let [queries, keys] = STARTS;
    [query, key, value, dy, drop, mask, max, sum, softmax, out, prefix, queries, keys, dq, dk, dv, dpse]
};

const BACKWARD_V3: [Parameter; 18] = {
    let [query, key, value, dy, drop, mask, max, sum, softmax, out, prefix, queries, keys, dq, dk, dv, dpse] =
        BACKWARD_V2;
    let dsink = output(DSINK_OUT, FLOATING, 1, 1).optional();
    [
        query, key, value, dy, drop, mask, max, sum, softmax, out, prefix, queries, keys, dq, dk, dv, dpse,
        dsink,
    ]
};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFlashAttentionScore",
        parameters: &FORWARD,
        limits: "one element type; key and value of one shape; headNum is the number of heads of query, 1 to 256, a \
                 multiple of the heads of key; D up to 512, S up to 2^20, B up to 2^21, none 0; layouts BSH, BSND, \
                 BNSD; keepProb more than 0, dropMaskOptional one bit per pair of [B, N, Sq, Skv], lowest first, where 1 keeps; innerPrecise 0 or 2; sparseMode 0 (attenMaskOptional, with preTokens and nextTokens \
                 that hide no key shown by the mask, or NULL for all), 1 (the mask alone), 2, 3 (2048 x 2048, 1 above \
                 the diagonal); mask [Sq, Skv], [1 or B, 1, Sq, Skv]; statistics [B, N, Sq, 8], for a row without keys \
                 the lowest finite number and 0; softmaxOutOut NULL or without elements",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionScore.md",
        plan: forward,
    },
    Operator {
        name: "aclnnFlashAttentionScoreGrad",
        parameters: &BACKWARD,
        limits: "as aclnnFlashAttentionScore, with its inputs and outputs; dy, attentionInOptional and dqOut have the \
                 shape of query, dkOut and dvOut of keyIn; softmaxInOptional and dpseOut NULL or without elements",
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionScoreGrad.md",
        plan: backward,
    },
    Operator {
        name: "aclnnFlashAttentionScoreV2",
        parameters: &FORWARD_V2,
        limits: "as aclnnFlashAttentionScore; start indexes and pseType 0 to 3 concern a position bias, which must be NULL",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionScoreV2.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| forward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionScoreGradV2",
        parameters: &BACKWARD_V2,
        limits: "as aclnnFlashAttentionScoreGrad; start indexes and pseType 0 to 3 concern a position bias, which must be NULL",
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionScoreGradV2.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| backward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionScoreV3",
        parameters: &FORWARD_V2,
        limits: "as aclnnFlashAttentionScoreV2; sinkOptional NULL",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionScoreV3.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| forward(call)),
    },
    Operator {
        name: "aclnnFlashAttentionScoreGradV3",
        parameters: &BACKWARD_V3,
        limits: "as aclnnFlashAttentionScoreGradV2; sinkInOptional NULL, dsinkOut NULL or without elements",
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionScoreGradV3.md",
        plan: |call| call.int_in(PSE_TYPE, 0..=3).and_then(|_| backward(call)),
    },
];

#[derive(Clone, Copy, Debug)]
struct FlashShape {
    order: Order,
    query: Extents,
    key: Extents,
    scale: f32,
    mask: FlashMask,
    /// Row `i` sees keys from `i - before` to `i + after`.
    band: (i64, i64),
    /// Bits of the kept weights, and the probability to keep one.
    dropout: Option<(ViewIndex, f32)>,
}

#[derive(Clone, Copy, Debug)]
enum FlashMask {
    None,
    Full(ViewIndex),
    /// The tensor holds the documented triangle.
    Compressed(ViewIndex),
}

pub(crate) fn expect_unused(call: &OperatorCall, name: Name<CheckedTensor>) -> Result<(), Refusal> {
    match call.tensor_if_given(name)? {
        Some(tensor) if !tensor.is_empty() => {
            Err(call
                .refuse(name, format!("expected NULL or a tensor without elements, found {:?}", tensor.dims)))
        }
        _ => Ok(()),
    }
}

/// Gradients of inputs that are not modelled.
pub(crate) fn expect_no_others(call: &OperatorCall) -> Result<(), Refusal> {
    for name in [DPSE_OUT, DSINK_OUT, DQ_ROPE_OUT, DK_ROPE_OUT] {
        if call.has(name) {
            expect_unused(call, name)?;
        }
    }
    Ok(())
}

fn extents(call: &OperatorCall, key: Name<CheckedTensor>) -> Result<(Order, Extents, Extents), Refusal> {
    let order = match call.text(INPUT_LAYOUT)? {
        "BSH" => Order::Bsh,
        "BSND" => Order::Bsnd,
        "BNSD" => Order::Bnsd,
        other => return Err(call.refuse(INPUT_LAYOUT, format!("expected BSH, BSND or BNSD, found {other}"))),
    };
    let heads = call.int(HEAD_NUM)?;
    if !(1..=256).contains(&heads) {
        return Err(call.refuse(HEAD_NUM, format!("expected 1 to 256, found {heads}")));
    }
    let (query, keys) = (call.tensor(QUERY)?, call.tensor(key)?);
    let q = order.extents(call, QUERY, &query.dims, heads as usize)?;
    for (what, extent, most) in [("B", q.batch, 1 << 21), ("S", q.len, 1 << 20), ("D", q.depth, 512)] {
        if !(1..=most).contains(&extent) {
            return Err(call.refuse(
                QUERY,
                format!("expected {what} of 1 to {most}, found {extent} in {:?}", query.dims),
            ));
        }
    }
    for name in [key, VALUE] {
        call.expect_dtype(name, query.dtype, "the type of query")?;
    }
    call.expect_shape(VALUE, &keys.dims, &format!("of {key}"))?;
    let kv_heads = match (order, &keys.dims[..]) {
        (Order::Bsh, &[_, _, width]) => width / q.depth,
        (Order::Bsnd, &[_, _, found, _]) | (Order::Bnsd, &[_, found, _, _]) => found,
        _ => 0,
    };
    if kv_heads == 0 || q.heads % kv_heads != 0 {
        let text = format!(
            "expected a number of heads that divides {}, found {kv_heads} in {:?}",
            q.heads, keys.dims
        );
        return Err(call.refuse(key, text));
    }
    let k = order.extents(call, key, &keys.dims, kv_heads)?;
    if k.batch != q.batch || k.depth != q.depth || !(1..=1 << 20).contains(&k.len) {
        let text = format!(
            "expected batch {} and head size {} as query {:?} has, and 1 to {} positions, found {:?}",
            q.batch,
            q.depth,
            query.dims,
            1 << 20,
            keys.dims
        );
        return Err(call.refuse(key, text));
    }
    Ok((order, q, k))
}

fn shape(call: &OperatorCall, key: Name<CheckedTensor>) -> Result<FlashShape, Refusal> {
    let (order, query, key) = extents(call, key)?;
    let dropout = dropout(call, query, key)?;
    let precise = call.int(INNER_PRECISE)?;
    if ![0, 2].contains(&precise) {
        return Err(
            call.refuse(INNER_PRECISE, format!("expected 0, or 2 (rows without keys), found {precise}"))
        );
    }
    let mode = call.int(SPARSE_MODE)?;
    if !(0..=3).contains(&mode) {
        return Err(call.refuse(SPARSE_MODE, format!("expected 0 to 3, found {mode}")));
    }
    let mask = match call.tensor_if_given(ATTEN_MASK_OPTIONAL)? {
        None if mode == 0 => FlashMask::None,
        None => {
            return Err(
                call.refuse(ATTEN_MASK_OPTIONAL, format!("sparseMode {mode} needs a mask, found NULL"))
            );
        }
        Some(mask) if mode >= 2 => {
            let expected = [COMPRESSED, COMPRESSED];
            call.expect_shape(ATTEN_MASK_OPTIONAL, &expected, &format!("for sparseMode {mode}"))?;
            FlashMask::Compressed(mask.slot)
        }
        Some(mask) => {
            let pairs = [query.len, key.len];
            let legal = match mask.dims[..] {
                [rows, keys] => [rows, keys] == pairs,
                [batch, 1, rows, keys] => [1, query.batch].contains(&batch) && [rows, keys] == pairs,
                _ => false,
            };
            if !legal {
                let text = format!(
                    "expected {pairs:?} or [{} or 1, 1] followed by it, found {:?}",
                    query.batch, mask.dims
                );
                return Err(call.refuse(ATTEN_MASK_OPTIONAL, text));
            }
            FlashMask::Full(mask.slot)
        }
    };
    let band = match mode {
        0 if matches!(mask, FlashMask::Full(_)) => (call.int(PRE_TOKENS)?, call.int(NEXT_TOKENS)?),
        2 => (i64::MAX, 0),
        3 => (i64::MAX, key.len as i64 - query.len as i64),
        _ => (i64::MAX, i64::MAX),
    };
    Ok(FlashShape { order, query, key, scale: call.float(SCALE_VALUE)? as f32, mask, band, dropout })
}

fn dropout(call: &OperatorCall, query: Extents, key: Extents) -> Result<Option<(ViewIndex, f32)>, Refusal> {
    let kept = call.float(KEEP_PROB)?;
    if !(kept > 0.0 && kept <= 1.0) {
        return Err(call.refuse(KEEP_PROB, format!("expected more than 0 and at most 1, found {kept}")));
    }
    let Some(mask) = call.tensor_if_given(DROP_MASK_OPTIONAL)?.filter(|mask| !mask.is_empty()) else {
        return if kept == 1.0 {
            Ok(None)
        } else {
            Err(call.refuse(DROP_MASK_OPTIONAL, format!("keepProb {kept} needs a mask, found NULL")))
        };
    };
    let bytes = (query.batch * query.heads * query.len * key.len).div_ceil(8);
    if mask.len() < bytes {
        let text = format!("expected at least {bytes} bytes, one bit per pair, found {:?}", mask.dims);
        return Err(call.refuse(DROP_MASK_OPTIONAL, text));
    }
    Ok(Some((mask.slot, kept as f32)))
}

impl FlashShape {
    /// Statistics have the shape `[B, N, Sq, 8]`.
    fn expect_statistics(
        &self,
        call: &OperatorCall,
        names: [Name<CheckedTensor>; 2],
    ) -> Result<[ViewIndex; 2], Refusal> {
        let expected = [self.query.batch, self.query.heads, self.query.len, COPIES];
        for name in names {
            call.expect_shape(name, &expected, "B, N, S of query and 8")?;
        }
        Ok([call.tensor(names[0])?.slot, call.tensor(names[1])?.slot])
    }

    fn queries(&self, view: &StridedView) -> StridedView {
        self.order.head_major(view, self.query)
    }

    fn keys(&self, view: &StridedView) -> StridedView {
        self.order.head_major(view, self.key)
    }

    fn attended(&self, query: ViewIndex, [key, value]: [ViewIndex; 2]) -> Attended {
        let sequence = KeySequence { rows: self.query.len, keys: self.key.len, room: self.key.len };
        Attended {
            query,
            keys: vec![[key, value]],
            heads: [self.query.heads, self.key.heads],
            depths: [self.key.depth; 2],
            scales: None,
            triangle: if let FlashMask::Compressed(slot) = self.mask { Some(slot) } else { None },
            sequences: vec![sequence; self.query.batch],
        }
    }

    /// Fails if the mask does not match the sparse mode.
    fn batches(
        &self,
        views: &StridedViews<'_>,
        [key, value]: [ViewIndex; 2],
    ) -> Result<Vec<AttentionBatch>, String> {
        let full = match self.mask {
            FlashMask::None => None,
            FlashMask::Compressed(slot) => {
                check_triangle(views.of(slot))?;
                None
            }
            FlashMask::Full(slot) => {
                let mask = views.of(slot);
                let mask = if mask.rank() == 2 { mask.unsqueeze(0) } else { mask.at(1, 0) };
                self.check_band(&mask)?;
                Some(mask.broadcast_to(&[self.query.batch, self.query.len, self.key.len]))
            }
        };
        let (keys, values) = (self.keys(views.of(key)), self.keys(views.of(value)));
        let batch = |b| AttentionBatch {
            key: keys.at(0, b),
            value: values.at(0, b),
            blocks: None,
            scales: None,
            query_len: self.query.len,
            key_len: self.key.len,
            mask: full.as_ref().map(|full| full.at(0, b)),
            before: self.band.0,
            after: self.band.1,
            bias: None,
            dropout: self.dropout.map(|(slot, kept)| Dropout {
                bytes: views.of(slot).clone(),
                first_bit: b * self.query.heads * self.query.len * self.key.len,
                kept,
            }),
        };
        Ok((0..self.query.batch).map(batch).collect())
    }

    /// With keys outside the band, the result depends on a device's blocks.
    fn check_band(&self, mask: &StridedView) -> Result<(), String> {
        let ((before, after), rows, keys) = (self.band, self.query.len, self.key.len);
        if before >= rows as i64 - 1 && after >= keys as i64 - 1 {
            return Ok(());
        }
        let mut hidden = vec![0u8; keys];
        for batch in 0..mask.dims()[0] {
            for row in 0..rows {
                mask.at(0, batch).at(0, row).read(0, &mut hidden);
                let reach = |key: usize| key as i64 - row as i64;
                let outside = |key: &usize| reach(*key) > after || reach(*key) < before.saturating_neg();
                if let Some(key) = (0..keys).filter(outside).find(|&key| hidden[key] == 0) {
                    return Err(format!(
                        "attenMaskOptional: batch {batch}, row {row} shows key {key}, which preTokens {before} and \
                         nextTokens {after} hide: the two must agree"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn forward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let shape = shape(call, KEY)?;
    let query = call.tensor(QUERY)?;
    expect_unused(call, SOFTMAX_OUT_OUT)?;
    let statistics = shape.expect_statistics(call, [SOFTMAX_MAX_OUT, SOFTMAX_SUM_OUT])?;
    expect_same(call, QUERY, &[ATTENTION_OUT_OUT])?;
    let data = [call.tensor(KEY)?.slot, call.tensor(VALUE)?.slot];
    let (query, out) = (query.slot, call.tensor(ATTENTION_OUT_OUT)?.slot);
    let attended = shape.attended(query, data);
    let plan = CallPlan::new(move |views: &StridedViews<'_>, tiles| {
        let [max, sum] = statistics.map(|slot| views.of(slot).clone());
        let job = AttentionCall {
            query: shape.queries(views.of(query)),
            batches: shape.batches(views, data)?,
            scale: shape.scale,
            out: shape.queries(views.of(out)),
            statistics: SoftmaxStatistics::MaxAndSum(max, sum),
        };
        attention(tiles, &job);
        Ok(())
    })?;
    Ok(plan.with_workspace(WORKSPACE_BYTES).attending(attended))
}

fn backward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let shape = shape(call, KEY_IN)?;
    let (query, key) = (call.tensor(QUERY)?, call.tensor(KEY_IN)?);
    expect_unused(call, SOFTMAX_IN_OPTIONAL)?;
    expect_no_others(call)?;
    let statistics = shape.expect_statistics(call, [SOFTMAX_MAX_OPTIONAL, SOFTMAX_SUM_OPTIONAL])?;
    expect_same(call, QUERY, &[DY, ATTENTION_IN_OPTIONAL, DQ_OUT])?;
    expect_same(call, KEY_IN, &[DK_OUT, DV_OUT])?;
    let data = [key.slot, call.tensor(VALUE)?.slot];
    let [out, out_grad, dq, dk, dv] = [ATTENTION_IN_OPTIONAL, DY, DQ_OUT, DK_OUT, DV_OUT]
        .map(|name| call.tensor(name).map(|tensor| tensor.slot));
    let (query, out, out_grad, dq, dk, dv) = (query.slot, out?, out_grad?, dq?, dk?, dv?);
    let attended = shape.attended(query, data);
    let plan = CallPlan::new(move |views: &StridedViews<'_>, tiles| {
        let job = AttentionGrad {
            query: shape.queries(views.of(query)),
            batches: shape.batches(views, data)?,
            scale: shape.scale,
            out: shape.queries(views.of(out)),
            out_grad: shape.queries(views.of(out_grad)),
            statistics: statistics.map(|slot| views.of(slot).clone()),
            query_grad: shape.queries(views.of(dq)),
            key_grad: shape.keys(views.of(dk)),
            value_grad: shape.keys(views.of(dv)),
        };
        attention_grad(tiles, &job);
        Ok(())
    })?;
    Ok(plan.with_workspace(WORKSPACE_BYTES).attending(attended))
}
