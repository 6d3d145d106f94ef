//! Ring attention update, which merges attention over two sets of keys.

use crate::attention::kernels::COPIES;
use crate::attention::kernels::merge::{Share, merge};
use crate::gradient::rows::expect_same;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output, text};
use crate::operator::sets::{FLOATING, INDEX64, SINGLE};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::view::StridedView;

/// Limits of the TND layout: heads, head size, and its divisor.
const TND_HEADS: usize = 256;
const TND_DEPTH: usize = 768;
const TND_STEP: usize = 64;

pub(crate) const OPERATORS: &[Operator] = &[Operator {
    name: "aclnnRingAttentionUpdate",
    parameters: &[
        input(PREV_ATTN_OUT, FLOATING, 3, 3),
        input(PREV_SOFTMAX_MAX, SINGLE, 3, 4),
        input(PREV_SOFTMAX_SUM, SINGLE, 3, 4),
        input(CUR_ATTN_OUT, FLOATING, 3, 3),
        input(CUR_SOFTMAX_MAX, SINGLE, 3, 4),
        input(CUR_SOFTMAX_SUM, SINGLE, 3, 4),
        input(ACTUAL_SEQ_QLEN_OPTIONAL, INDEX64, 1, 1).optional(),
        text(INPUT_LAYOUT_OPTIONAL),
        output(ATTN_OUT_OUT, FLOATING, 3, 3),
        output(SOFTMAX_MAX_OUT, SINGLE, 3, 4),
        output(SOFTMAX_SUM_OUT, SINGLE, 3, 4),
    ],
    limits: "one element type and shape of all attn_out, none empty; layouts SBH, with statistics [B, N, S, 8] and N \
             dividing H, and TND, with statistics [T, N, 8], N up to 256, D a multiple of 64 up to 768, and \
             actualSeqQlenOptional ascending from 0 to T; a row without keys on both sides is NaN",
    source: "ops-transformer attention/ring_attention_update/docs/aclnnRingAttentionUpdate.md",
    plan: update,
}];

#[derive(Clone, Copy, Debug)]
enum StatisticsLayout {
    /// `[S, B, H]`, with statistics `[B, N, S, 8]`.
    Sbh { heads: usize, depth: usize },
    /// `[T, N, D]`, with statistics `[T, N, 8]`.
    Tnd,
}

impl StatisticsLayout {
    fn of(call: &OperatorCall) -> Result<Self, Refusal> {
        let (out, max) = (call.tensor(PREV_ATTN_OUT)?, call.tensor(PREV_SOFTMAX_MAX)?);
        let (found, kept) = (&out.dims[..], &max.dims[..]);
        let order = match call.text_if_given(INPUT_LAYOUT_OPTIONAL)? {
            Some("SBH") => match (found, kept) {
                (&[s, b, h], &[batch, n, rows, COPIES])
                    if (b, s) == (batch, rows) && n > 0 && h.is_multiple_of(n) =>
                {
                    Some(Self::Sbh { heads: n, depth: h / n })
                }
                _ => None,
            },
            Some("TND") => {
                let (&[_, n, d], true) = (found, call.tensor_if_given(ACTUAL_SEQ_QLEN_OPTIONAL)?.is_some())
                else {
                    return Err(
                        call.refuse(ACTUAL_SEQ_QLEN_OPTIONAL, "TND needs the ends of sequences, found NULL")
                    );
                };
                if n > TND_HEADS || d > TND_DEPTH || !d.is_multiple_of(TND_STEP) {
                    let text = format!(
                        "expected N up to {TND_HEADS} and D up to {TND_DEPTH}, a multiple of {TND_STEP}, found {found:?}"
                    );
                    return Err(call.refuse(PREV_ATTN_OUT, text));
                }
                (found[..2] == kept[..kept.len() - 1] && kept.last() == Some(&COPIES)).then_some(Self::Tnd)
            }
            other => {
                let text = format!("expected SBH or TND, found {}", other.unwrap_or("NULL"));
                return Err(call.refuse(INPUT_LAYOUT_OPTIONAL, text));
            }
        };
        order.filter(|_| !out.is_empty()).ok_or_else(|| {
            let text =
                format!("expected the rows of prevAttnOut {found:?}, not empty, and 8, found {kept:?}");
            call.refuse(PREV_SOFTMAX_MAX, text)
        })
    }

    /// Permutes to batch, head, position, depth.
    fn out(self, view: &StridedView) -> StridedView {
        match self {
            Self::Sbh { heads, depth } => view.split(2, heads, depth).permute(&[1, 2, 0, 3]),
            Self::Tnd => view.permute(&[1, 0, 2]).unsqueeze(0),
        }
    }

    /// Eight copies become the depth.
    fn statistics(self, view: &StridedView) -> StridedView {
        match self {
            Self::Sbh { .. } => view.clone(),
            Self::Tnd => view.permute(&[1, 0, 2]).unsqueeze(0),
        }
    }
}

fn update(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let order = StatisticsLayout::of(call)?;
    expect_same(call, PREV_ATTN_OUT, &[CUR_ATTN_OUT, ATTN_OUT_OUT])?;
    let statistics = [PREV_SOFTMAX_SUM, CUR_SOFTMAX_MAX, CUR_SOFTMAX_SUM, SOFTMAX_MAX_OUT, SOFTMAX_SUM_OUT];
    expect_same(call, PREV_SOFTMAX_MAX, &statistics)?;
    let ends = call.tensor_if_given(ACTUAL_SEQ_QLEN_OPTIONAL)?.map(|tensor| (tensor.slot, tensor.len()));
    let tokens = call.tensor(PREV_ATTN_OUT)?.dims[0];
    let slots = |[out, max, sum]: [Name<CheckedTensor>; 3]| -> Result<[ViewIndex; 3], Refusal> {
        Ok([call.tensor(out)?.slot, call.tensor(max)?.slot, call.tensor(sum)?.slot])
    };
    let shares = [
        slots([PREV_ATTN_OUT, PREV_SOFTMAX_MAX, PREV_SOFTMAX_SUM])?,
        slots([CUR_ATTN_OUT, CUR_SOFTMAX_MAX, CUR_SOFTMAX_SUM])?,
        slots([ATTN_OUT_OUT, SOFTMAX_MAX_OUT, SOFTMAX_SUM_OUT])?,
    ];
    CallPlan::new(move |views: &StridedViews<'_>, tiles| {
        if let (StatisticsLayout::Tnd, Some((slot, count))) = (order, ends) {
            check_ends(views.of(slot), count, tokens)?;
        }
        let [prev, cur, into] = shares.map(|[out, max, sum]| Share {
            out: order.out(views.of(out)),
            statistics: [max, sum].map(|slot| order.statistics(views.of(slot))),
        });
        merge(tiles, &[prev, cur], &into);
        Ok(())
    })
}

/// Ends must ascend from 0 to the token count.
fn check_ends(view: &StridedView, count: usize, tokens: usize) -> Result<(), String> {
    let mut ends = vec![0_i64; count];
    view.read(0, &mut ends);
    let fits = ends.first() == Some(&0) && ends.last() == Some(&(tokens as i64)) && ends.is_sorted();
    if fits {
        return Ok(());
    }
    Err(format!("actualSeqQlenOptional: expected numbers that ascend from 0 to T = {tokens}, found {ends:?}"))
}
