//! Cross entropy of a vocabulary that is sharded over the cards, with the product for the logits.
//!
//! Computed in f64; logits are rounded to the type of the input before anything reads them. A mask
//! has a bit per token, lowest bit first, as the reference of its repository packs it. 1 means that
//! another card has the target.

use crate::lane::Lane;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, HALVES, INDEXES, OCTETS, SINGLE};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFusedLinearOnlineMaxSum",
        parameters: &[
            input(INPUT, HALVES, 2, 2),
            input(WEIGHT, HALVES, 2, 2),
            input(TARGET, INDEXES, 1, 1),
            output(LOGITS_MAX_LOCAL_OUT, SINGLE, 1, 1),
            output(SUM_EXP_LOGITS_LOCAL_OUT, SINGLE, 1, 1),
            output(PREDICTED_LOGITS_LOCAL_OUT, SINGLE, 1, 1),
            output(TARGET_MASK_OUT, OCTETS, 1, 1),
            output(MASKED_TARGET_OUT, INDEXES, 1, 1),
            output(VOCAB_PARALLEL_LOGITS_OUT_OPTIONAL, HALVES, 2, 2).optional(),
        ],
        limits: "input [T, H], weight [V, H], target and the other outputs [T]; logits [T, V] are input @ weight'; their largest, the sum of the \
                 exponentials of their distance from it, that distance of the target; targetMaskOut [(T + 7) / 8], lowest bit first, \
                 marks targets below vocabStartIndex or from vocabEndIndex on, past T as target 0; vocabEndIndex up to vocabStartIndex + V; maskedTargetOut, of the type of target, counts from \
                 vocabStartIndex, 0 where marked; H up to 65534",
        source: "ops-nn matmul/fused_linear_online_max_sum/docs/aclnnFusedLinearOnlineMaxSum.md",
        plan: max_and_sum,
    },
    Operator {
        name: "aclnnFusedCrossEntropyLossWithMaxSum",
        parameters: &[
            input(LOGITS_MAX, SINGLE, 1, 1),
            input(SUM_EXP_LOGITS, SINGLE, 1, 1),
            input(PREDICTED_LOGITS, SINGLE, 1, 1),
            input(VOCAB_PARALLEL_LOGITS_OPTIONAL, FLOATING, 2, 2).optional(),
            output(LOSS_OUT, SINGLE, 1, 1),
            output(SOFT_MAX_OUT_OPTIONAL, SINGLE, 2, 2).optional(),
        ],
        limits: "lossOut is log(sumExpLogits) - predictedLogits, all [T]; softMaxOutOptional [T, V] of vocabParallelLogitsOptional, both or none; \
                 inputOptional and weightOptional NULL; labelSmoothing 0",
        source: "ops-nn loss/fused_cross_entropy_loss_with_max_sum/docs/aclnnFusedCrossEntropyLossWithMaxSum.md",
        plan: loss,
    },
    Operator {
        name: "aclnnFusedLinearCrossEntropyLossGrad",
        parameters: &[
            input(GRAD, SINGLE, 1, 1),
            input(INPUT, HALVES, 2, 2),
            input(WEIGHT, HALVES, 2, 2),
            input(TARGET_MASK, OCTETS, 1, 1),
            input(MASKED_TARGET, INDEXES, 1, 1),
            input(LOGITS_MAX_OPTIONAL, SINGLE, 1, 1).optional(),
            input(SUM_EXP_LOGITS_OPTIONAL, SINGLE, 1, 1).optional(),
            input(SOFTMAX_OPTIONAL, SINGLE, 2, 2).optional(),
            output(INPUT_GRAD_OUT, HALVES, 2, 2),
            output(WEIGHT_GRAD_OUT, HALVES, 2, 2),
        ],
        limits: "gradients of both operators for the loss, with targetMask, of at least T bits, and maskedTarget of the first; V at least 128; softmaxOptional [T, V], or \
                 logitsMaxOptional and sumExpLogitsOptional [T]; labelSmoothing 0",
        source: "ops-nn matmul/fused_linear_cross_entropy_loss_grad/docs/aclnnFusedLinearCrossEntropyLossGrad.md",
        plan: grad,
    },
];

/// Returns `x @ weight'`, rounded to the type of `x`.
fn logits(views: &StridedViews<'_>, [x, weight]: [ViewIndex; 2], depth: usize) -> Vec<f64> {
    let dtype = views.of(x).dtype();
    let (x, weight) = (views.read::<f64>(x), views.read::<f64>(weight));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>().rounded(dtype);
    x.chunks_exact(depth)
        .flat_map(|row| weight.chunks_exact(depth).map(move |other| dot(row, other)))
        .collect()
}

fn max_and_sum(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(INPUT, &[WEIGHT, VOCAB_PARALLEL_LOGITS_OUT_OPTIONAL])?;
    call.expect_type_of(TARGET, &[MASKED_TARGET_OUT])?;
    call.expect_elements(&[INPUT, WEIGHT])?;
    let sizes = call.sizes(&[
        INPUT.of("th"),
        WEIGHT.of("vh"),
        TARGET.of("t"),
        LOGITS_MAX_LOCAL_OUT.of("t"),
        SUM_EXP_LOGITS_LOCAL_OUT.of("t"),
        PREDICTED_LOGITS_LOCAL_OUT.of("t"),
        MASKED_TARGET_OUT.of("t"),
        VOCAB_PARALLEL_LOGITS_OUT_OPTIONAL.of("tv"),
    ])?;
    let [tokens, depth, width] = sizes.all(['t', 'h', 'v']);
    call.expect_shape(TARGET_MASK_OUT, &[tokens.div_ceil(8)], "a bit per token")?;
    call.expect_that(depth <= 65_534, INPUT, "rows of up to 65534", depth)?;
    let start = call.int_in(VOCAB_START_INDEX, 0..=i64::MAX)?;
    let end = call.int_in(VOCAB_END_INDEX, start..=start.saturating_add(width as i64))?;
    let operands = call.slots_of([INPUT, WEIGHT])?;
    let [target, most, sum, predicted] =
        call.slots_of([TARGET, LOGITS_MAX_LOCAL_OUT, SUM_EXP_LOGITS_LOCAL_OUT, PREDICTED_LOGITS_LOCAL_OUT])?;
    let [mask, masked] = call.slots_of([TARGET_MASK_OUT, MASKED_TARGET_OUT])?;
    let all = call.slot_if_given(VOCAB_PARALLEL_LOGITS_OUT_OPTIONAL)?;
    CallPlan::new(move |views, _| {
        let (logits, targets) = (logits(views, operands, depth), views.read::<i64>(target));
        let mut bits = vec![if (start..end).contains(&0) { 0i64 } else { 255 }; tokens.div_ceil(8)];
        let mut places = vec![0i64; tokens];
        let mut results = [vec![0f64; tokens], vec![0f64; tokens], vec![0f64; tokens]];
        for (token, row) in logits.chunks_exact(width).enumerate() {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            results[0][token] = largest;
            results[1][token] = row.iter().map(|x| (x - largest).exp()).sum();
            let bit = 1 << (token % 8);
            if (start..end).contains(&targets[token]) {
                places[token] = targets[token] - start;
                results[2][token] = row[places[token] as usize] - largest;
                bits[token / 8] &= !bit;
            } else {
                bits[token / 8] |= bit;
            }
        }
        [most, sum, predicted].iter().zip(&results).for_each(|(slot, values)| views.write(*slot, values));
        views.write(mask, &bits);
        views.write(masked, &places);
        views.write_given(all, &logits);
        Ok(())
    })
}

fn loss(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let shares = call.slot_if_given(SOFT_MAX_OUT_OPTIONAL)?;
    let logits = call.slot_if_given(VOCAB_PARALLEL_LOGITS_OPTIONAL)?;
    let both = shares.is_some() == logits.is_some();
    call.expect_that(
        both,
        SOFT_MAX_OUT_OPTIONAL,
        "a tensor with vocabParallelLogitsOptional",
        shares.is_some(),
    )?;
    let sizes = call.sizes(&[
        LOGITS_MAX.of("t"),
        SUM_EXP_LOGITS.of("t"),
        PREDICTED_LOGITS.of("t"),
        LOSS_OUT.of("t"),
        VOCAB_PARALLEL_LOGITS_OPTIONAL.of("tv"),
        SOFT_MAX_OUT_OPTIONAL.of("tv"),
    ])?;
    let width = if logits.is_some() { sizes.of('v').max(1) } else { 1 };
    expect_no_smoothing(call)?;
    let [most, sum, predicted, out] =
        call.slots_of([LOGITS_MAX, SUM_EXP_LOGITS, PREDICTED_LOGITS, LOSS_OUT])?;
    CallPlan::new(move |views, _| {
        let [most, sum, predicted] = [most, sum, predicted].map(|slot| views.read::<f64>(slot));
        let losses: Vec<f64> =
            sum.iter().zip(predicted).map(|(sum, predicted)| sum.ln() - predicted).collect();
        views.write(out, &losses);
        if let Some(logits) = views.read_given::<f64>(logits) {
            let share = |(i, x): (usize, f64)| (x - most[i / width]).exp() / sum[i / width];
            views.write_given(shares, &logits.into_iter().enumerate().map(share).collect::<Vec<_>>());
        }
        Ok(())
    })
}

fn expect_no_smoothing(call: &OperatorCall) -> Result<(), Refusal> {
    let smoothing = call.float(LABEL_SMOOTHING)?;
    call.expect_that(smoothing == 0.0, LABEL_SMOOTHING, "0", smoothing)
}

fn grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(INPUT, &[WEIGHT, INPUT_GRAD_OUT, WEIGHT_GRAD_OUT])?;
    call.expect_elements(&[INPUT, WEIGHT])?;
    expect_no_smoothing(call)?;
    let sizes = call.sizes(&[
        INPUT.of("th"),
        WEIGHT.of("vh"),
        GRAD.of("t"),
        MASKED_TARGET.of("t"),
        LOGITS_MAX_OPTIONAL.of("t"),
        SUM_EXP_LOGITS_OPTIONAL.of("t"),
        SOFTMAX_OPTIONAL.of("tv"),
        INPUT_GRAD_OUT.of("th"),
        WEIGHT_GRAD_OUT.of("vh"),
    ])?;
    let [tokens, depth, width] = sizes.all(['t', 'h', 'v']);
    let bytes = call.tensor(TARGET_MASK)?.len();
    call.expect_that(bytes >= tokens.div_ceil(8), TARGET_MASK, "a bit per token", bytes)?;
    call.expect_that(width >= 128, WEIGHT, "at least 128 words", width)?;
    let shares = call.slot_if_given(SOFTMAX_OPTIONAL)?;
    let statistics = if shares.is_some() {
        None
    } else {
        Some(call.slots_of([LOGITS_MAX_OPTIONAL, SUM_EXP_LOGITS_OPTIONAL])?)
    };
    let operands = call.slots_of([INPUT, WEIGHT])?;
    let [up, mask, target] = call.slots_of([GRAD, TARGET_MASK, MASKED_TARGET])?;
    let outs = call.slots_of([INPUT_GRAD_OUT, WEIGHT_GRAD_OUT])?;
    CallPlan::new(move |views, _| {
        let (up, mask, target) = (views.read::<f64>(up), views.read::<i64>(mask), views.read::<i64>(target));
        let mut slopes = match (views.read_given::<f64>(shares), statistics) {
            (None, Some(statistics)) => {
                let [most, sum] = statistics.map(|slot| views.read::<f64>(slot));
                let share = |(i, x): (usize, f64)| (x - most[i / width]).exp() / sum[i / width];
                logits(views, operands, depth).into_iter().enumerate().map(share).collect()
            }
            (shares, _) => shares.unwrap_or_default(),
        };
        let [x, weight] = operands.map(|slot| views.read::<f64>(slot));
        let mut grads = [vec![0f64; x.len()], vec![0f64; weight.len()]];
        for (token, row) in slopes.chunks_exact_mut(width).enumerate() {
            if mask[token / 8] & (1 << (token % 8)) == 0 {
                let place = usize::try_from(target[token]).ok().filter(|&place| place < width);
                let place = place.ok_or_else(|| {
                    format!("maskedTarget: expected 0 to {}, found {}", width - 1, target[token])
                })?;
                row[place] -= 1.0;
            }
            for (entry, slope) in row.iter().enumerate() {
                let slope = slope * up[token];
                for i in 0..depth {
                    grads[0][token * depth + i] += slope * weight[entry * depth + i];
                    grads[1][entry * depth + i] += slope * x[token * depth + i];
                }
            }
        }
        outs.iter().zip(&grads).for_each(|(slot, grads)| views.write(*slot, grads));
        Ok(())
    })
}
