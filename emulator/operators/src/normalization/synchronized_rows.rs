//! Batch norm over several cards: the sums of each card, and the use of the totals.

use crate::lane::Lane;
use crate::normalization::channel_kernels::{ChannelRows, combined, moments, norm, paired_sums};
use crate::normalization::channel_rows::{by_channel, channels, numbers, required, vector};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{COUNTERS, FLOATING, HALF_OR_SINGLE, SINGLE};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnBatchNormStats",
        parameters: &[
            input(INPUT, FLOATING, 2, 8),
            output(MEAN, FLOATING, 1, 1),
            output(INVSTD, FLOATING, 1, 1),
        ],
        limits: "input [N, C, ..], C not 0; mean and invstd [C]",
        source: "CANN 8.1 aclnn API reference, aclnnBatchNormStats",
        plan: stats,
    },
    Operator {
        name: "aclnnBatchNormReduce",
        parameters: &[input(X, FLOATING, 4, 4), output(SUM, SINGLE, 1, 1), output(SQUARE_SUM, SINGLE, 1, 1)],
        limits: "x [N, C, H, W], C not 0; sum and squareSum [C]",
        source: "ops-nn norm/bn_training_reduce/docs/aclnnBatchNormReduce.md",
        plan: reduce,
    },
    Operator {
        name: "aclnnBatchNormGatherStatsWithCounts",
        parameters: &[
            input(INPUT, FLOATING, 2, 8),
            input(MEAN, FLOATING, 2, 2),
            input(INVSTD, FLOATING, 2, 2),
            in_place(RUNNING_MEAN, FLOATING, 1, 1).optional(),
            in_place(RUNNING_VAR, FLOATING, 1, 1).optional(),
            input(COUNTS, FLOATING, 1, 1),
            output(MEAN_ALL, FLOATING, 1, 1),
            output(INVSTD_ALL, FLOATING, 1, 1),
        ],
        limits: "input [N, C, ..], C not 0, values not read; mean and invstd [cards, C], counts [cards]; the other \
                 vectors [C]; momentum moves runningMean and runningVar to the mean and the unbiased variance",
        source: "CANN 8.1 aclnn API reference, aclnnBatchNormGatherStatsWithCounts",
        plan: gather,
    },
    Operator {
        name: "aclnnSyncBatchNormGatherStats",
        parameters: &[
            input(TOTAL_SUM, HALF_OR_SINGLE, 2, 2),
            input(TOTAL_SQUARE_SUM, HALF_OR_SINGLE, 2, 2),
            input(SAMPLE_COUNT, COUNTERS, 1, 1),
            in_place(MEAN, HALF_OR_SINGLE, 1, 1),
            in_place(VARIANCE, HALF_OR_SINGLE, 1, 1),
            output(BATCH_MEAN, HALF_OR_SINGLE, 1, 1),
            output(BATCH_INVSTD, HALF_OR_SINGLE, 1, 1),
        ],
        limits: "totalSum and totalSquareSum [cards, C], cards not 0, sampleCount [cards]; the other vectors [C]; one \
                 element type except sampleCount; momentum moves mean and variance to the mean and the unbiased \
                 variance",
        source: "ops-nn norm/sync_batch_norm_gather_stats/docs/aclnnSyncBatchNormGatherStats.md",
        plan: gather_sums,
    },
    Operator {
        name: "aclnnBatchNormElemt",
        parameters: &[
            input(INPUT, FLOATING, 2, 8),
            input(WEIGHT, FLOATING, 1, 1).optional(),
            input(BIAS, FLOATING, 1, 1).optional(),
            input(MEAN, FLOATING, 1, 1),
            input(INVSTD, FLOATING, 1, 1),
            output(OUTPUT, FLOATING, 2, 8),
        ],
        limits: "input [N, C, ..], C not 0; the vectors [C]; output has the shape and type of input; invstd already \
                 includes eps",
        source: "ops-nn norm/batch_norm_elemt/docs/aclnnBatchNormElemt.md",
        plan: elements,
    },
    Operator {
        name: "aclnnBatchNormReduceBackward",
        parameters: &[
            input(GRAD_OUT, FLOATING, 2, 8),
            input(INPUT, FLOATING, 2, 8),
            input(MEAN, FLOATING, 1, 1),
            input(INVSTD, FLOATING, 1, 1),
            input(WEIGHT, FLOATING, 1, 1).optional(),
            output(SUM_DY, FLOATING, 1, 1).optional(),
            output(SUM_DY_XMU, FLOATING, 1, 1).optional(),
            output(GRAD_WEIGHT, FLOATING, 1, 1).optional(),
            output(GRAD_BIAS, FLOATING, 1, 1).optional(),
        ],
        limits: "input and gradOut [N, C, ..], C not 0; the vectors [C]; inputG asks for sumDy and sumDyXmu, weightG \
                 for gradWeight, biasG for gradBias",
        source: "CANN 8.1 aclnn API reference, aclnnBatchNormReduceBackward",
        plan: reduce_grad,
    },
    Operator {
        name: "aclnnBatchNormElemtBackward",
        parameters: &[
            input(GRAD_OUT, FLOATING, 2, 8),
            input(INPUT, FLOATING, 2, 8),
            input(MEAN, FLOATING, 1, 1),
            input(INVSTD, FLOATING, 1, 1),
            input(WEIGHT, FLOATING, 1, 1).optional(),
            input(SUM_DY, FLOATING, 1, 1),
            input(SUM_DY_XMU, FLOATING, 1, 1),
            input(COUNTER, COUNTERS, 1, 8),
            output(GRAD_INPUT, FLOATING, 2, 8),
        ],
        limits: "input, gradOut and gradInput [N, C, ..], C not 0; the vectors [C]; counter has the number of values \
                 per channel on each card",
        source: "CANN 8.1 aclnn API reference, aclnnBatchNormElemtBackward",
        plan: elements_grad,
    },
];

/// At least one channel must exist.
fn rows(call: &OperatorCall, name: Name<CheckedTensor>) -> Result<(ViewIndex, ChannelRows), Refusal> {
    let x = call.tensor(name)?;
    call.expect_channels_second(&[name])?;
    if x.dims[1] == 0 {
        return Err(call.refuse(name, format!("expected channels, found {:?}", x.dims)));
    }
    Ok((x.slot, channels(&x.dims)))
}

fn write<T>(out: &StridedView, values: &[T], of: impl Fn(&T) -> f32) {
    f32::store(&out.collapsed(), 0, &values.iter().map(of).collect::<Vec<_>>());
}

fn stats(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let ((x, of), epsilon) = (rows(call, INPUT)?, call.float(EPS)? as f32);
    let [mean, spread] = [required(call, MEAN, of.all, "")?, required(call, INVSTD, of.all, "")?];
    CallPlan::new(move |views, tiles| {
        let found = moments(tiles, &by_channel(views.of(x)), of);
        write(views.of(mean), &found, |moment| moment[0]);
        write(views.of(spread), &found, |moment| 1.0 / (moment[1] + epsilon).sqrt());
        Ok(())
    })
}

fn reduce(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, of) = rows(call, X)?;
    let [sum, squares] = [required(call, SUM, of.all, "")?, required(call, SQUARE_SUM, of.all, "")?];
    CallPlan::new(move |views, tiles| {
        let x = by_channel(views.of(x));
        let found = paired_sums(tiles, &x, &x, of, &vec![0.0; of.all]);
        write(views.of(sum), &found, |pair| pair[0]);
        write(views.of(squares), &found, |pair| pair[1]);
        Ok(())
    })
}

/// Merges `[mean, inverse deviation, count]` of the cards into mean, variance and unbiased
/// variance.
fn merged(cards: &[[f64; 3]], epsilon: f64) -> [f64; 3] {
    let total: f64 = cards.iter().map(|[.., count]| count).sum();
    let mean = cards.iter().map(|[mean, _, count]| mean * count).sum::<f64>() / total;
    let apart = |[own, spread, count]: &[f64; 3]| {
        count * ((spread * spread).recip() - epsilon + (own - mean).powi(2))
    };
    let squares: f64 = cards.iter().map(apart).sum();
    [mean, squares / total, squares / (total - 1.0)]
}

fn gather(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (_, of) = rows(call, INPUT)?;
    let (momentum, epsilon) = (call.float(MOMENTUM)?, call.float(EPS)?);
    let cards = call.tensor(COUNTS)?.len();
    for name in [MEAN, INVSTD] {
        call.expect_shape(name, &[cards, of.all], "cards and channels")?;
    }
    let running = [vector(call, RUNNING_MEAN, of.all)?, vector(call, RUNNING_VAR, of.all)?];
    let [mean, spread] = [required(call, MEAN_ALL, of.all, "")?, required(call, INVSTD_ALL, of.all, "")?];
    let own = [MEAN, INVSTD].map(|name| call.tensor(name).map(|tensor| tensor.slot));
    let [means, spreads] = own;
    let (means, spreads, counts) = (means?, spreads?, call.tensor(COUNTS)?.slot);
    CallPlan::new(move |views, _| {
        let [means, spreads, counts] = [means, spreads, counts].map(|slot| views.of(slot).collapsed());
        let number = |view: &StridedView, at: usize| {
            let mut one = [0f32];
            f32::load(view, at, &mut one);
            f64::from(one[0])
        };
        let of_channel = |channel: usize| {
            let place = |card: usize| card * of.all + channel;
            let card =
                |card| [number(&means, place(card)), number(&spreads, place(card)), number(&counts, card)];
            merged(&(0..cards).map(card).collect::<Vec<_>>(), epsilon)
        };
        let found: Vec<[f64; 3]> = (0..of.all).map(of_channel).collect();
        tell(views, &found, running, [mean, spread], momentum, epsilon);
        Ok(())
    })
}

/// Stores mean and inverse deviation from `[mean, variance, unbiased variance]`, and updates the
/// running statistics.
fn tell(
    views: &StridedViews<'_>,
    found: &[[f64; 3]],
    running: [Option<ViewIndex>; 2],
    [mean, spread]: [ViewIndex; 2],
    momentum: f64,
    epsilon: f64,
) {
    for (slot, statistic) in running.into_iter().zip([0, 2]) {
        let Some(slot) = slot else { continue };
        let before = numbers(views, Some(slot), found.len(), 0.0);
        let pairs: Vec<_> = before.into_iter().map(f64::from).zip(found).collect();
        write(views.of(slot), &pairs, |(before, now)| (before + momentum * (now[statistic] - before)) as f32);
    }
    write(views.of(mean), found, |channel| channel[0] as f32);
    write(views.of(spread), found, |channel| (channel[1] + epsilon).sqrt().recip() as f32);
}

fn gather_sums(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sums = call.tensor(TOTAL_SUM)?;
    let (cards, channels) = (sums.dims[0], sums.dims[1]);
    if cards == 0 {
        return Err(
            call.refuse(TOTAL_SUM, format!("expected sums of at least one card, found {:?}", sums.dims))
        );
    }
    for name in [TOTAL_SQUARE_SUM, MEAN, VARIANCE, BATCH_MEAN, BATCH_INVSTD] {
        call.expect_dtype(name, sums.dtype, "the type of totalSum")?;
    }
    call.expect_shape(TOTAL_SQUARE_SUM, &sums.dims, "of totalSum")?;
    call.expect_shape(SAMPLE_COUNT, &[cards], "a number for each card")?;
    let [own_mean, own_variance] =
        [required(call, MEAN, channels, "")?, required(call, VARIANCE, channels, "")?];
    let [mean, spread] =
        [required(call, BATCH_MEAN, channels, "")?, required(call, BATCH_INVSTD, channels, "")?];
    let (momentum, epsilon) = (call.float(MOMENTUM)?, call.float(EPS)?);
    let (sums, squares, counts) =
        (sums.slot, call.tensor(TOTAL_SQUARE_SUM)?.slot, call.tensor(SAMPLE_COUNT)?.slot);
    CallPlan::new(move |views, _| {
        let [sums, squares, counts] = [sums, squares, counts].map(|slot| {
            let view = views.of(slot);
            let mut values = vec![0f64; view.len()];
            f64::load(&view.collapsed(), 0, &mut values);
            values
        });
        let total: f64 = counts.iter().sum();
        let over_cards =
            |values: &[f64], channel: usize| values.iter().skip(channel).step_by(channels).sum::<f64>();
        let of_channel = |channel| {
            let mean = over_cards(&sums, channel) / total;
            let variance = over_cards(&squares, channel) / total - mean * mean;
            [mean, variance, variance * total / (total - 1.0)]
        };
        let found: Vec<[f64; 3]> = (0..channels).map(of_channel).collect();
        tell(views, &found, [Some(own_mean), Some(own_variance)], [mean, spread], momentum, epsilon);
        Ok(())
    })
}

fn elements(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, of) = rows(call, INPUT)?;
    let input = call.tensor(INPUT)?;
    call.expect_channels_second(&[OUTPUT])?;
    call.expect_shape(OUTPUT, &input.dims, "of input")?;
    call.expect_dtype(OUTPUT, input.dtype, "the type of input")?;
    let [weight, bias] = [vector(call, WEIGHT, of.all)?, vector(call, BIAS, of.all)?];
    let [mean, spread] = [required(call, MEAN, of.all, "")?, required(call, INVSTD, of.all, "")?];
    let out = call.tensor(OUTPUT)?.slot;
    CallPlan::new(move |views, tiles| {
        // There need not be memory for that many channels.
        if views.of(out).is_empty() {
            return Ok(());
        }
        let (weight, bias) = (numbers(views, weight, of.all, 1.0), numbers(views, bias, of.all, 0.0));
        let [means, spreads] = [mean, spread].map(|slot| numbers(views, Some(slot), of.all, 0.0));
        let statistics: Vec<[f32; 2]> =
            means.into_iter().zip(spreads).map(|(mean, rstd)| [mean, rstd]).collect();
        norm(tiles, &by_channel(views.of(x)), of, &statistics, [&weight, &bias], &by_channel(views.of(out)));
        Ok(())
    })
}

fn reduce_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, of) = rows(call, INPUT)?;
    call.expect_shape(GRAD_OUT, &call.tensor(INPUT)?.dims, "of input")?;
    vector(call, WEIGHT, of.all)?;
    let [mean, spread] = [required(call, MEAN, of.all, "")?, required(call, INVSTD, of.all, "")?];
    let asked = [(SUM_DY, INPUT_G), (SUM_DY_XMU, INPUT_G), (GRAD_WEIGHT, WEIGHT_G), (GRAD_BIAS, BIAS_G)];
    let (mut written, mut unwritten) = ([None; 4], Vec::new());
    for (slot, (name, flag)) in written.iter_mut().zip(asked) {
        if call.flag(flag)? {
            *slot = Some(required(call, name, of.all, &format!("with {flag}"))?);
        } else {
            unwritten.extend(call.tensor_if_given(name)?.map(|tensor| tensor.slot));
        }
    }
    let grad = call.tensor(GRAD_OUT)?.slot;
    let plan = CallPlan::new(move |views, tiles| {
        if written.iter().all(Option::is_none) {
            return Ok(());
        }
        let [means, spreads] = [mean, spread].map(|slot| numbers(views, Some(slot), of.all, 0.0));
        let (grad, x) = (by_channel(views.of(grad)), by_channel(views.of(x)));
        let sums = paired_sums(tiles, &grad, &x, of, &means);
        let found: Vec<[f32; 4]> =
            sums.iter().zip(&spreads).map(|(&[sum, apart], rstd)| [sum, apart, apart * rstd, sum]).collect();
        for (i, slot) in written.into_iter().enumerate() {
            if let Some(slot) = slot {
                write(views.of(slot), &found, |channel| channel[i]);
            }
        }
        Ok(())
    })?;
    Ok(plan.leaving(unwritten))
}

fn elements_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, of) = rows(call, INPUT)?;
    call.expect_channels_second(&[GRAD_OUT, GRAD_INPUT])?;
    for name in [GRAD_OUT, GRAD_INPUT] {
        call.expect_shape(name, &call.tensor(INPUT)?.dims, "of input")?;
    }
    let weight = vector(call, WEIGHT, of.all)?;
    let [mean, spread] = [required(call, MEAN, of.all, "")?, required(call, INVSTD, of.all, "")?];
    let [sum, apart] = [required(call, SUM_DY, of.all, "")?, required(call, SUM_DY_XMU, of.all, "")?];
    let (grad, counter, out) =
        (call.tensor(GRAD_OUT)?.slot, call.tensor(COUNTER)?.slot, call.tensor(GRAD_INPUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let counters = views.of(counter).collapsed();
        let count = |at| {
            let mut one = [0f64];
            f64::load(&counters, at, &mut one);
            one[0]
        };
        let total = (0..counters.len()).map(count).sum::<f64>() as f32;
        let weight = numbers(views, weight, of.all, 1.0);
        let [means, spreads, sums, aparts] =
            [mean, spread, sum, apart].map(|slot| numbers(views, Some(slot), of.all, 0.0));
        let factors = |at: usize| {
            let scale = spreads[at] * weight[at];
            [sums[at] / total, scale, means[at], spreads[at] * spreads[at] * (aparts[at] / total) * scale]
        };
        let factors: Vec<[f32; 4]> = (0..of.all).map(factors).collect();
        let [grad, x, out] = [grad, x, out].map(|slot| by_channel(views.of(slot)));
        combined(tiles, &grad, &x, of, &factors, &out);
        Ok(())
    })
}
