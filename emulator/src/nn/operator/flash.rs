//! Rows of the attention operators of training: forward, with what it keeps of the softmax, and backward.
//!
//! Position bias, dropout, prefixes and the sparse modes above 3 are not modelled: their parameters must be NULL, 1 or absent.

use super::attention::{COMPRESSED, Extents, Order, WORKSPACE_BYTES, check_triangle};
use super::call::OperatorCall;
use super::gradient::expect_same;
use super::row::{Operator, Parameter, attribute, input, output, unmodelled};
use super::sets::{CONDITION, FLOATING, SINGLE};
use super::{Plan, Refusal, ViewIndex, Views};
use crate::nn::attention::gradient::{AttentionGrad, attention_grad};
use crate::nn::attention::{Attention, Batch, COPIES, Statistics, attention};
use crate::nn::view::View;

const FORWARD: &[Parameter] = &[
    input("query", FLOATING, 3, 4).contiguous(),
    input("key", FLOATING, 3, 4).contiguous(),
    input("value", FLOATING, 3, 4).contiguous(),
    unmodelled("realShiftOptional"),
    unmodelled("dropMaskOptional"),
    unmodelled("paddingMaskOptional"),
    input("attenMaskOptional", CONDITION, 2, 4).contiguous().optional(),
    unmodelled("prefixOptional"),
    attribute("scaleValue"),
    attribute("keepProb"),
    attribute("preTokens"),
    attribute("nextTokens"),
    attribute("headNum"),
    attribute("inputLayout"),
    attribute("innerPrecise"),
    attribute("sparseMode"),
    output("softmaxMaxOut", SINGLE, 4, 4).contiguous(),
    output("softmaxSumOut", SINGLE, 4, 4).contiguous(),
    output("softmaxOutOut", FLOATING, 1, 4).optional(),
    output("attentionOutOut", FLOATING, 3, 4).contiguous(),
];

const BACKWARD: &[Parameter] = &[
    input("query", FLOATING, 3, 4).contiguous(),
    input("keyIn", FLOATING, 3, 4).contiguous(),
    input("value", FLOATING, 3, 4).contiguous(),
    input("dy", FLOATING, 3, 4).contiguous(),
    unmodelled("pseShiftOptional"),
    unmodelled("dropMaskOptional"),
    unmodelled("paddingMaskOptional"),
    input("attenMaskOptional", CONDITION, 2, 4).contiguous().optional(),
    input("softmaxMaxOptional", SINGLE, 4, 4).contiguous(),
    input("softmaxSumOptional", SINGLE, 4, 4).contiguous(),
    input("softmaxInOptional", FLOATING, 1, 4).optional(),
    input("attentionInOptional", FLOATING, 3, 4).contiguous(),
    unmodelled("prefixOptional"),
    attribute("scaleValue"),
    attribute("keepProb"),
    attribute("preTokens"),
    attribute("nextTokens"),
    attribute("headNum"),
    attribute("inputLayout"),
    attribute("innerPrecise"),
    attribute("sparseMode"),
    output("dqOut", FLOATING, 3, 4).contiguous(),
    output("dkOut", FLOATING, 3, 4).contiguous(),
    output("dvOut", FLOATING, 3, 4).contiguous(),
    output("dpseOut", FLOATING, 1, 4).optional(),
];

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFlashAttentionScore",
        parameters: FORWARD,
        limits: "one element type; key and value of one shape; headNum that of query, 1 to 256, a multiple of that of key; D \
                 up to 512, S up to 2^20, B up to 2^21, none 0; layouts BSH, BSND, BNSD; keepProb 1; innerPrecise 0 or 2; \
                 sparseMode 0 (attenMaskOptional with preTokens and nextTokens, which must hide nothing that it shows, or NULL \
                 for all), 1 (the mask alone), 2, 3 (2048 x 2048, 1 above the diagonal); mask [Sq, Skv], [1 or B, 1, Sq, \
                 Skv]; statistics [B, N, Sq, 8], of a row that sees nothing the least finite number and 0; softmaxOutOut NULL \
                 or without elements",
        source: "ops-transformer attention/flash_attention_score/docs/aclnnFlashAttentionScore.md",
        plan: forward,
    },
    Operator {
        name: "aclnnFlashAttentionScoreGrad",
        parameters: BACKWARD,
        limits: "as aclnnFlashAttentionScore, with what it took and gave; dy, attentionInOptional and dqOut as query, dkOut and \
                 dvOut as keyIn; softmaxInOptional and dpseOut NULL or without elements",
        source: "ops-transformer attention/flash_attention_score_grad/docs/aclnnFlashAttentionScoreGrad.md",
        plan: backward,
    },
];

/// What both directions have in common, checked.
#[derive(Clone, Copy, Debug)]
struct Shape {
    order: Order,
    query: Extents,
    key: Extents,
    scale: f32,
    mask: Mask,
    /// Row `i` sees keys from `i - before` to `i + after`.
    band: (i64, i64),
}

/// How the mask parameter is used.
#[derive(Clone, Copy, Debug)]
enum Mask {
    /// Everything is seen.
    None,
    /// Element by element.
    Full(ViewIndex),
    /// The pattern of the sparse mode; the tensor only has to hold the documented triangle.
    Compressed(ViewIndex),
}

/// Refuses a reserved tensor with elements.
fn expect_unused(call: &OperatorCall<'_>, name: &str) -> Result<(), Refusal> {
    match call.tensor_if_given(name)? {
        Some(tensor) if tensor.len() > 0 => {
            Err(call.refuse(name, format!("expected NULL or a tensor without elements, found {:?}", tensor.dims)))
        }
        _ => Ok(()),
    }
}

/// The extents of queries and keys.
fn extents(call: &OperatorCall<'_>, key: &str) -> Result<(Order, Extents, Extents), Refusal> {
    let order = match call.text("inputLayout")? {
        "BSH" => Order::Bsh,
        "BSND" => Order::Bsnd,
        "BNSD" => Order::Bnsd,
        other => return Err(call.refuse("inputLayout", format!("expected BSH, BSND or BNSD, found {other}"))),
    };
    let heads = call.int("headNum")?;
    if !(1..=256).contains(&heads) {
        return Err(call.refuse("headNum", format!("expected 1 to 256, found {heads}")));
    }
    let (query, keys) = (call.tensor("query")?, call.tensor(key)?);
    let q = order.extents(call, "query", &query.dims, heads as usize)?;
    for (what, extent, most) in [("B", q.batch, 1 << 21), ("S", q.len, 1 << 20), ("D", q.depth, 512)] {
        if !(1..=most).contains(&extent) {
            return Err(
                call.refuse("query", format!("expected {what} of 1 to {most}, found {extent} in {:?}", query.dims))
            );
        }
    }
    for name in [key, "value"] {
        call.expect_dtype(name, query.dtype, "that of query")?;
    }
    call.expect_shape("value", &keys.dims, &format!("of {key}"))?;
    // Its own number of heads: the width of all over that of one, or as it says.
    let kv_heads = match (order, &keys.dims[..]) {
        (Order::Bsh, &[_, _, width]) => width / q.depth,
        (Order::Bsnd, &[_, _, found, _]) | (Order::Bnsd, &[_, found, _, _]) => found,
        _ => 0,
    };
    if kv_heads == 0 || q.heads % kv_heads != 0 {
        let text = format!("expected a number of heads that divides {}, found {kv_heads} in {:?}", q.heads, keys.dims);
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

fn shape(call: &OperatorCall<'_>, key: &str) -> Result<Shape, Refusal> {
    let (order, query, key) = extents(call, key)?;
    let keep = call.float("keepProb")?;
    if keep != 1.0 {
        return Err(call.refuse("keepProb", format!("expected 1, as dropout is not modelled, found {keep}")));
    }
    let precise = call.int("innerPrecise")?;
    if ![0, 2].contains(&precise) {
        return Err(call.refuse("innerPrecise", format!("expected 0, or 2 (rows that see nothing), found {precise}")));
    }
    let mode = call.int("sparseMode")?;
    if !(0..=3).contains(&mode) {
        return Err(call.refuse("sparseMode", format!("expected 0 to 3, found {mode}")));
    }
    let mask = match call.tensor_if_given("attenMaskOptional")? {
        None if mode == 0 => Mask::None,
        None => {
            return Err(call.refuse("attenMaskOptional", format!("sparseMode {mode} needs a mask, found NULL")));
        }
        Some(mask) if mode >= 2 => {
            let expected = [COMPRESSED, COMPRESSED];
            call.expect_shape("attenMaskOptional", &expected, &format!("for sparseMode {mode}"))?;
            Mask::Compressed(mask.slot)
        }
        Some(mask) => {
            let pairs = [query.len, key.len];
            let legal = match mask.dims[..] {
                [rows, keys] => [rows, keys] == pairs,
                [batch, 1, rows, keys] => [1, query.batch].contains(&batch) && [rows, keys] == pairs,
                _ => false,
            };
            if !legal {
                let text =
                    format!("expected {pairs:?} or [{} or 1, 1] and then that, found {:?}", query.batch, mask.dims);
                return Err(call.refuse("attenMaskOptional", text));
            }
            Mask::Full(mask.slot)
        }
    };
    let band = match mode {
        0 if matches!(mask, Mask::Full(_)) => (call.int("preTokens")?, call.int("nextTokens")?),
        2 => (i64::MAX, 0),
        3 => (i64::MAX, key.len as i64 - query.len as i64),
        _ => (i64::MAX, i64::MAX),
    };
    Ok(Shape { order, query, key, scale: call.float("scaleValue")? as f32, mask, band })
}

impl Shape {
    /// Refuses statistics that are not `[B, N, Sq, 8]`.
    fn expect_statistics(&self, call: &OperatorCall<'_>, names: [&str; 2]) -> Result<[ViewIndex; 2], Refusal> {
        let expected = [self.query.batch, self.query.heads, self.query.len, COPIES];
        for name in names {
            call.expect_shape(name, &expected, "B, N, S of query and 8")?;
        }
        Ok([call.tensor(names[0])?.slot, call.tensor(names[1])?.slot])
    }

    /// A tensor of queries as batch, head, position, depth.
    fn queries(&self, view: &View) -> View {
        self.order.head_major(view, self.query)
    }

    /// A tensor of keys as batch, head, position, depth.
    fn keys(&self, view: &View) -> View {
        self.order.head_major(view, self.key)
    }

    /// Keys, values and who sees them, batch by batch.
    ///
    /// # Errors
    /// If the mask is not what the sparse mode says.
    fn batches(&self, views: &Views<'_>, (key, value): (ViewIndex, ViewIndex)) -> Result<Vec<Batch>, String> {
        let full = match self.mask {
            Mask::None => None,
            Mask::Compressed(slot) => {
                check_triangle(views.of(slot))?;
                None
            }
            Mask::Full(slot) => {
                let mask = views.of(slot);
                let mask = if mask.rank() == 2 { mask.unsqueeze(0) } else { mask.at(1, 0) };
                self.check_band(&mask)?;
                Some(mask.broadcast_to(&[self.query.batch, self.query.len, self.key.len]))
            }
        };
        let (keys, values) = (self.keys(views.of(key)), self.keys(views.of(value)));
        let batch = |b| Batch {
            key: keys.at(0, b),
            value: values.at(0, b),
            query_len: self.query.len,
            key_len: self.key.len,
            mask: full.as_ref().map(|full| full.at(0, b)),
            before: self.band.0,
            after: self.band.1,
        };
        Ok((0..self.query.batch).map(batch).collect())
    }

    /// Refuses a mask that shows a key which the band hides: what the card then computes depends on its blocks.
    fn check_band(&self, mask: &View) -> Result<(), String> {
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

fn forward(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let shape = shape(call, "key")?;
    let query = call.tensor("query")?;
    expect_unused(call, "softmaxOutOut")?;
    let statistics = shape.expect_statistics(call, ["softmaxMaxOut", "softmaxSumOut"])?;
    expect_same(call, "query", &["attentionOutOut"])?;
    let data = (call.tensor("key")?.slot, call.tensor("value")?.slot);
    let (query, out) = (query.slot, call.tensor("attentionOutOut")?.slot);
    let plan = Plan::new(move |views: &Views<'_>, tiles| {
        let [max, sum] = statistics.map(|slot| views.of(slot).clone());
        let job = Attention {
            query: shape.queries(views.of(query)),
            batches: shape.batches(views, data)?,
            scale: shape.scale,
            out: shape.queries(views.of(out)),
            statistics: Statistics::MaxAndSum(max, sum),
        };
        attention(tiles, &job);
        Ok(())
    })?;
    Ok(plan.with_workspace(WORKSPACE_BYTES))
}

fn backward(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let shape = shape(call, "keyIn")?;
    let (query, key) = (call.tensor("query")?, call.tensor("keyIn")?);
    expect_unused(call, "softmaxInOptional")?;
    expect_unused(call, "dpseOut")?;
    let statistics = shape.expect_statistics(call, ["softmaxMaxOptional", "softmaxSumOptional"])?;
    expect_same(call, "query", &["dy", "attentionInOptional", "dqOut"])?;
    expect_same(call, "keyIn", &["dkOut", "dvOut"])?;
    let data = (key.slot, call.tensor("value")?.slot);
    let [out, out_grad, dq, dk, dv] = ["attentionInOptional", "dy", "dqOut", "dkOut", "dvOut"]
        .map(|name| call.tensor(name).map(|tensor| tensor.slot));
    let (query, out, out_grad, dq, dk, dv) = (query.slot, out?, out_grad?, dq?, dk?, dv?);
    let plan = Plan::new(move |views: &Views<'_>, tiles| {
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
    Ok(plan.with_workspace(WORKSPACE_BYTES))
}
