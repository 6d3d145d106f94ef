//! Rows of the CTC loss. An invalid label fails the stream.

use crate::loss::ctc_kernels::{CtcBatch, CtcSample, loss, loss_grad};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, INDEXES};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnCtcLoss",
        parameters: &[
            input(LOG_PROBS, FLOATING, 2, 3),
            input(TARGETS, INDEXES, 1, 2),
            output(NEG_LOG_LIKELIHOOD_OUT, FLOATING, 0, 1),
            output(LOG_ALPHA_OUT, FLOATING, 3, 3),
        ],
        limits: "logProbs [T, N, C], or [T, C] for N = 1; targets [N, S] or all labels concatenated, without the \
                 blank; inputLengths 1 to T, targetLengths at least 1; negLogLikelihoodOut [N] or a scalar; \
                 logAlphaOut [N, T, (2 max(targetLengths) + 8) / 8 * 8], minus infinity past the steps and states of a \
                 sample; one element type",
        source: "ops-nn loss/ctc_loss_v2/docs/aclnnCtcLoss.md",
        plan: forward,
    },
    Operator {
        name: "aclnnCtcLossBackward",
        parameters: &[
            input(GRAD_OUT, FLOATING, 0, 1),
            input(LOG_PROBS, FLOATING, 2, 3),
            input(TARGETS, INDEXES, 1, 2),
            input(NEG_LOG_LIKELIHOOD, FLOATING, 0, 1),
            input(LOG_ALPHA, FLOATING, 3, 3),
            output(OUT, FLOATING, 2, 3),
        ],
        limits: "as aclnnCtcLoss, with its results; gradOut has the shape of negLogLikelihood, out of logProbs; with \
                 zeroInfinity a sample without a path has gradient 0",
        source: "ops-nn loss/ctc_loss_v2_grad/docs/aclnnCtcLossBackward.md",
        plan: backward,
    },
];

fn batch(
    call: &OperatorCall,
    losses: Name<CheckedTensor>,
    alphas: Name<CheckedTensor>,
) -> Result<CtcBatch, Refusal> {
    let logs = call.tensor(LOG_PROBS)?;
    let (steps, classes) = (logs.dims[0], logs.dims[logs.rank() - 1]);
    let count = if logs.rank() == 3 { logs.dims[1] } else { 1 };
    let (steps_of, labels_of) = (call.ints(INPUT_LENGTHS)?, call.ints(TARGET_LENGTHS)?);
    for (name, lengths, most) in
        [(INPUT_LENGTHS, steps_of, steps), (TARGET_LENGTHS, labels_of, i64::MAX as usize)]
    {
        if lengths.len() != count || lengths.iter().any(|&length| length < 1 || length as u64 > most as u64) {
            let text =
                format!("expected {count} lengths of 1 to {most} for {:?}, found {lengths:?}", logs.dims);
            return Err(call.refuse(name, text));
        }
    }
    let most = labels_of.iter().copied().max().unwrap_or(0);
    let targets = &call.tensor(TARGETS)?.dims;
    let total = labels_of.iter().try_fold(0i64, |total, &length| total.checked_add(length));
    let pitch = match targets[..] {
        [rows, width] if rows == count && most as u64 <= width as u64 => Some(width),
        [all] if total == i64::try_from(all).ok() => None,
        _ => {
            let text = format!("expected [{count}, {most} or more] or [{total:?}], found {targets:?}");
            return Err(call.refuse(TARGETS, text));
        }
    };
    let blank = call.int(BLANK)?;
    if blank < 0 || blank as u64 >= classes as u64 {
        return Err(call.refuse(BLANK, format!("expected one of the {classes} classes, found {blank}")));
    }
    let scalars: &[usize] = if logs.rank() == 3 { &[count] } else { &[] };
    call.expect_shape(losses, scalars, "a number for each sample")?;
    // No overflow: lengths are within the size of targets.
    let states = (2 * most as usize).saturating_add(8) / 8 * 8;
    call.expect_shape(alphas, &[count, steps, states], "samples, steps and states")?;
    let mut before = 0;
    let samples = steps_of.iter().zip(labels_of).enumerate().map(|(at, (&steps, &labels))| {
        let first = pitch.map_or(before, |width| at * width);
        before += labels as usize;
        CtcSample { steps: steps as usize, labels: labels as usize, first }
    });
    let samples = samples.collect();
    Ok(CtcBatch { samples, classes, blank: blank as usize, zero_infinity: call.flag(ZERO_INFINITY)? })
}

fn forward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let batch = batch(call, NEG_LOG_LIKELIHOOD_OUT, LOG_ALPHA_OUT)?;
    let logs = call.tensor(LOG_PROBS)?;
    for name in [NEG_LOG_LIKELIHOOD_OUT, LOG_ALPHA_OUT] {
        call.expect_dtype(name, logs.dtype, "the type of logProbs")?;
    }
    let (logs, targets) = (logs.slot, call.tensor(TARGETS)?.slot);
    let (losses, alphas) = (call.tensor(NEG_LOG_LIKELIHOOD_OUT)?.slot, call.tensor(LOG_ALPHA_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let [logs, targets, losses, alphas] = [logs, targets, losses, alphas].map(|slot| views.of(slot));
        loss(tiles, logs, targets, &batch, losses, alphas).map_err(|text| format!("targets: {text}"))
    })
}

fn backward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let batch = batch(call, NEG_LOG_LIKELIHOOD, LOG_ALPHA)?;
    let logs = call.tensor(LOG_PROBS)?;
    for name in [GRAD_OUT, NEG_LOG_LIKELIHOOD, LOG_ALPHA, OUT] {
        call.expect_dtype(name, logs.dtype, "the type of logProbs")?;
    }
    call.expect_shape(GRAD_OUT, &call.tensor(NEG_LOG_LIKELIHOOD)?.dims, "of negLogLikelihood")?;
    call.expect_shape(OUT, &logs.dims, "of logProbs")?;
    let (logs, targets) = (logs.slot, call.tensor(TARGETS)?.slot);
    let given = [call.tensor(GRAD_OUT)?.slot, call.tensor(NEG_LOG_LIKELIHOOD)?.slot];
    let (alphas, out) = (call.tensor(LOG_ALPHA)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let given = given.map(|slot| views.of(slot));
        let [logs, targets, alphas, out] = [logs, targets, alphas, out].map(|slot| views.of(slot));
        loss_grad(tiles, given, logs, targets, alphas, &batch, out).map_err(|text| format!("targets: {text}"))
    })
}
