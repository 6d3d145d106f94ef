//! Rows of the norms over channels and channel groups.

use crate::lane::Lane;
use crate::normalization::channel_kernels::{ChannelRows, RowStatistics, moments, norm, norm_grad};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, attribute, in_place, input, output};
use crate::operator::sets::FLOATING;
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::reduction::kernels::with_trailing;
use crate::view::StridedView;

/// Channels per group, and in total, for a group norm gradient.
const MOST_CHANNELS_A_GROUP: usize = 8000;
const MOST_CHANNELS: usize = 240_000;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnBatchNorm",
        parameters: &[
            input(INPUT, FLOATING, 2, 8),
            input(WEIGHT, FLOATING, 1, 1).optional(),
            input(BIAS, FLOATING, 1, 1).optional(),
            in_place(RUNNING_MEAN, FLOATING, 1, 1).optional(),
            in_place(RUNNING_VAR, FLOATING, 1, 1).optional(),
            output(OUTPUT, FLOATING, 2, 8),
            output(SAVE_MEAN, FLOATING, 1, 1),
            output(SAVE_INVSTD, FLOATING, 1, 1),
        ],
        limits: "input [N, C, ..]; the vectors have C elements; without training, runningMean and runningVar are \
                 required, and saveMean and saveInvstd are not written; with training, momentum moves runningMean and \
                 runningVar to the mean and the unbiased variance, and saveInvstd holds the variance of input, despite \
                 its name",
        source: "ops-nn norm/batch_norm_v3/docs/aclnnBatchNorm.md",
        plan: batch_norm,
    },
    Operator {
        name: "aclnnBatchNormBackward",
        parameters: &[
            input(GRAD_OUT, FLOATING, 2, 8),
            input(INPUT, FLOATING, 2, 8),
            input(WEIGHT, FLOATING, 1, 1).optional(),
            input(RUNNING_MEAN, FLOATING, 1, 1).optional(),
            input(RUNNING_VAR, FLOATING, 1, 1).optional(),
            input(SAVE_MEAN, FLOATING, 1, 1).optional(),
            input(SAVE_INVSTD, FLOATING, 1, 1).optional(),
            output(GRAD_INPUT, FLOATING, 2, 8).optional(),
            output(GRAD_WEIGHT, FLOATING, 1, 1).optional(),
            output(GRAD_BIAS, FLOATING, 1, 1).optional(),
        ],
        limits: "as aclnnBatchNorm; saveMean and saveInvstd are required with training, runningMean and runningVar \
                 without; outputMask selects the written outputs",
        source: "ops-nn norm/batch_norm_grad_v3/docs/aclnnBatchNormBackward.md",
        plan: batch_norm_grad,
    },
    Operator {
        name: "aclnnGroupNorm",
        parameters: &[
            input(SELF, FLOATING, 2, 8),
            input(GAMMA, FLOATING, 1, 1).optional(),
            input(BETA_TENSOR, FLOATING, 1, 1).optional(),
            attribute(N_UPPER),
            attribute(C_INT),
            attribute(HXW),
            output(OUT, FLOATING, 2, 8),
            output(MEAN_OUT, FLOATING, 2, 2),
            output(RSTD_OUT, FLOATING, 2, 2),
        ],
        limits: "self [N, C, ..] with HxW elements per channel, C a multiple of group; gamma and beta [C]; meanOut and \
                 rstdOut [N, group]",
        source: "ops-nn norm/group_norm/docs/aclnnGroupNorm.md",
        plan: group_norm,
    },
    Operator {
        name: "aclnnGroupNormBackward",
        parameters: &[
            input(GRAD_OUT, FLOATING, 2, 8),
            input(INPUT, FLOATING, 2, 8),
            input(MEAN, FLOATING, 2, 2),
            input(RSTD, FLOATING, 2, 2),
            input(GAMMA, FLOATING, 1, 1).optional(),
            attribute(N_UPPER),
            attribute(C_INT),
            attribute(HXW),
            output(GRAD_INPUT, FLOATING, 2, 8).optional(),
            output(GRAD_GAMMA_OUT, FLOATING, 1, 1).optional(),
            output(GRAD_BETA_OUT, FLOATING, 1, 1).optional(),
        ],
        limits: "as aclnnGroupNorm, with its statistics; one element type; at most 240000 channels, 8000 per group; \
                 outputMask selects the written outputs",
        source: "ops-nn norm/group_norm_grad/docs/aclnnGroupNormBackward.md",
        plan: group_norm_grad,
    },
];

/// Returns an optional vector of length `len`.
pub(crate) fn vector(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    len: usize,
) -> Result<Option<ViewIndex>, Refusal> {
    let Some(tensor) = call.tensor_if_given(name)? else { return Ok(None) };
    call.expect_shape(name, &[len], "a number for each channel")?;
    Ok(Some(tensor.slot))
}

pub(crate) fn required(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    len: usize,
    why: &str,
) -> Result<ViewIndex, Refusal> {
    vector(call, name, len)?.ok_or_else(|| call.refuse(name, format!("is NULL and must be given {why}")))
}

/// Returns a vector, or `otherwise`.
pub(crate) fn numbers(
    views: &StridedViews<'_>,
    slot: Option<ViewIndex>,
    len: usize,
    otherwise: f32,
) -> Vec<f32> {
    let mut values = vec![otherwise; len];
    if let Some(slot) = slot {
        f32::load(&views.of(slot).collapsed(), 0, &mut values);
    }
    values
}

/// Returns the outputs that the mask selects.
fn wanted(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; 3],
    shapes: [&[usize]; 3],
) -> Result<[Option<ViewIndex>; 3], Refusal> {
    let mask = call.flags(OUTPUT_MASK)?;
    if mask.len() != 3 {
        return Err(call.refuse(OUTPUT_MASK, format!("expected 3 truth values, found {}", mask.len())));
    }
    let mut slots = [None; 3];
    for (i, slot) in slots.iter_mut().enumerate().filter(|(i, _)| mask[*i]) {
        let Some(tensor) = call.tensor_if_given(names[i])? else {
            return Err(call.refuse(names[i], "is NULL, but outputMask asks for it"));
        };
        call.expect_shape(names[i], shapes[i], "of the differentiated tensor")?;
        *slot = Some(tensor.slot);
    }
    Ok(slots)
}

pub(crate) fn channels(dims: &[usize]) -> ChannelRows {
    let len = dims[0] * dims[2..].iter().product::<usize>();
    ChannelRows { count: dims[1], channels: 1, all: dims[1], len }
}

pub(crate) fn by_channel(view: &StridedView) -> StridedView {
    let rest: Vec<usize> = (0..view.rank()).filter(|&dim| dim != 1).collect();
    with_trailing(view, &rest)
}

fn batch_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(INPUT)?;
    call.expect_channels_second(&[INPUT, OUTPUT])?;
    call.expect_shape(OUTPUT, &x.dims, "of input")?;
    call.expect_dtype(OUTPUT, x.dtype, "the type of input")?;
    let (of, training) = (channels(&x.dims), call.flag(TRAINING)?);
    let [weight, bias] = [vector(call, WEIGHT, of.all)?, vector(call, BIAS, of.all)?];
    let running = [vector(call, RUNNING_MEAN, of.all)?, vector(call, RUNNING_VAR, of.all)?];
    if training {
        for name in [SAVE_MEAN, SAVE_INVSTD] {
            call.expect_shape(name, &[of.all], "a number for each channel")?;
        }
        if of.len < 2 {
            return Err(
                call.refuse(INPUT, format!("expected more than one value per channel, found {:?}", x.dims))
            );
        }
    } else {
        for name in [RUNNING_MEAN, RUNNING_VAR] {
            required(call, name, of.all, "without training")?;
        }
    }
    let (momentum, epsilon) = (call.float(MOMENTUM)? as f32, call.float(EPS)? as f32);
    let (x, out) = (x.slot, call.tensor(OUTPUT)?.slot);
    let saved = [call.tensor(SAVE_MEAN)?.slot, call.tensor(SAVE_INVSTD)?.slot];
    let unwritten = if training { Vec::new() } else { running.into_iter().flatten().chain(saved).collect() };
    let plan = CallPlan::new(move |views, tiles| {
        let (x, y) = (by_channel(views.of(x)), by_channel(views.of(out)));
        let (weight, bias) = (numbers(views, weight, of.all, 1.0), numbers(views, bias, of.all, 0.0));
        let [means, variances] = running.map(|slot| numbers(views, slot, of.all, 0.0));
        let mut found: Vec<[f32; 2]> = if training {
            moments(tiles, &x, of)
        } else {
            means.iter().zip(&variances).map(|(&m, &v)| [m, v]).collect()
        };
        if training {
            let unbiased = of.len as f32 / (of.len - 1) as f32;
            for (i, (slot, before)) in running.into_iter().zip([&means, &variances]).enumerate() {
                let Some(slot) = slot else { continue };
                let factor = if i == 1 { unbiased } else { 1.0 };
                let moved = |(now, before): (&[f32; 2], &f32)| before + momentum * (now[i] * factor - before);
                let moved: Vec<f32> = found.iter().zip(before).map(moved).collect();
                f32::store(&views.of(slot).collapsed(), 0, &moved);
            }
        }
        if training {
            for (i, slot) in saved.into_iter().enumerate() {
                f32::store(
                    &views.of(slot).collapsed(),
                    0,
                    &found.iter().map(|each| each[i]).collect::<Vec<_>>(),
                );
            }
        }
        found.iter_mut().for_each(|statistic| statistic[1] = 1.0 / (statistic[1] + epsilon).sqrt());
        norm(tiles, &x, of, &found, [&weight, &bias], &y);
        Ok(())
    })?;
    Ok(plan.leaving(unwritten))
}

fn batch_norm_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(INPUT)?;
    call.expect_channels_second(&[GRAD_OUT, INPUT, GRAD_INPUT])?;
    for name in [GRAD_OUT, GRAD_INPUT] {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_dtype(name, x.dtype, "the type of input")?;
        }
    }
    call.expect_shape(GRAD_OUT, &x.dims, "of input")?;
    let (of, training, epsilon) = (channels(&x.dims), call.flag(TRAINING)?, call.float(EPS)? as f32);
    let weight = vector(call, WEIGHT, of.all)?;
    let (names, why) = if training {
        ([SAVE_MEAN, SAVE_INVSTD], "with training")
    } else {
        ([RUNNING_MEAN, RUNNING_VAR], "without training")
    };
    let [first, second] = [required(call, names[0], of.all, why)?, required(call, names[1], of.all, why)?];
    let vector = [of.all];
    let outputs = wanted(call, [GRAD_INPUT, GRAD_WEIGHT, GRAD_BIAS], [&x.dims, &vector, &vector])?;
    let (x, grad) = (x.slot, call.tensor(GRAD_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let spread = |variance: f32| 1.0 / (variance + epsilon).sqrt();
        let [means, spreads] = [first, second].map(|slot| numbers(views, Some(slot), of.all, 0.0));
        let statistics: Vec<[f32; 2]> =
            means.iter().zip(&spreads).map(|(&mean, &value)| [mean, spread(value)]).collect();
        let [dx, dweight, dbias] = outputs.map(|slot| slot.map(|slot| views.of(slot)));
        let dx = dx.map(by_channel);
        let (dy, x) = (by_channel(views.of(grad)), by_channel(views.of(x)));
        let weight = numbers(views, weight, of.all, 1.0);
        let statistics = RowStatistics { rows: &statistics, are_given: !training };
        norm_grad(tiles, &dy, &x, of, statistics, &weight, [dx.as_ref(), dweight, dbias]);
        Ok(())
    })
}

/// Returns one row per group and sample.
fn groups(call: &OperatorCall, x: Name<CheckedTensor>) -> Result<ChannelRows, Refusal> {
    let dims = &call.tensor(x)?.dims;
    let [n, c, len, group] = [call.int(N_UPPER)?, call.int(C_INT)?, call.int(HXW)?, call.int(GROUP)?];
    if group < 1 || c < 0 || c % group != 0 {
        return Err(call.refuse(GROUP, format!("expected a divisor of the {c} channels, found {group}")));
    }
    let plane: usize = dims[2..].iter().product();
    if [dims[0], dims[1], plane].map(|extent| extent as i64) != [n, c, len] {
        return Err(
            call.refuse(x, format!("expected [{n}, {c}, ..] with {len} elements a channel, found {dims:?}"))
        );
    }
    // Compared with the length of meanOut next.
    let count = (n as usize).saturating_mul(group as usize);
    Ok(ChannelRows { count, channels: (c / group) as usize, all: c as usize, len: len as usize })
}

fn group_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, of, epsilon) = (call.tensor(SELF)?, groups(call, SELF)?, call.float(EPS)? as f32);
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    if call.float(EPS)? <= 0.0 {
        return Err(call.refuse(EPS, format!("expected more than 0, found {}", call.float(EPS)?)));
    }
    let [weight, bias] = [vector(call, GAMMA, of.all)?, vector(call, BETA_TENSOR, of.all)?];
    for name in [GAMMA, BETA_TENSOR, MEAN_OUT, RSTD_OUT] {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_dtype(name, x.dtype, "the type of self")?;
        }
    }
    let statistics = [call.int(N_UPPER)? as usize, call.int(GROUP)? as usize];
    for name in [MEAN_OUT, RSTD_OUT] {
        call.expect_shape(name, &statistics, "N and group")?;
    }
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    let saved = [call.tensor(MEAN_OUT)?.slot, call.tensor(RSTD_OUT)?.slot];
    CallPlan::new(move |views, tiles| {
        if of.count == 0 {
            return Ok(());
        }
        let (weight, bias) = (numbers(views, weight, of.all, 1.0), numbers(views, bias, of.all, 0.0));
        let mut found = moments(tiles, views.of(x), of);
        found.iter_mut().for_each(|statistic| statistic[1] = 1.0 / (statistic[1] + epsilon).sqrt());
        for (i, slot) in saved.into_iter().enumerate() {
            f32::store(&views.of(slot).collapsed(), 0, &found.iter().map(|each| each[i]).collect::<Vec<_>>());
        }
        norm(tiles, views.of(x), of, &found, [&weight, &bias], views.of(out));
        Ok(())
    })
}

fn group_norm_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, of) = (call.tensor(INPUT)?, groups(call, INPUT)?);
    call.expect_shape(GRAD_OUT, &x.dims, "of input")?;
    for name in [INPUT, MEAN, RSTD, GAMMA, GRAD_INPUT, GRAD_GAMMA_OUT, GRAD_BETA_OUT] {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_dtype(name, call.tensor(GRAD_OUT)?.dtype, "the type of gradOut")?;
        }
    }
    if of.channels > MOST_CHANNELS_A_GROUP || of.all > MOST_CHANNELS {
        let text = format!(
            "expected at most {MOST_CHANNELS} channels, {MOST_CHANNELS_A_GROUP} a group, found {} and {}",
            of.all, of.channels
        );
        return Err(call.refuse(C_INT, text));
    }
    let weight = vector(call, GAMMA, of.all)?;
    for name in [MEAN, RSTD] {
        call.expect_shape(name, &[call.int(N_UPPER)? as usize, call.int(GROUP)? as usize], "N and group")?;
    }
    let vector = [of.all];
    let outputs = wanted(call, [GRAD_INPUT, GRAD_GAMMA_OUT, GRAD_BETA_OUT], [&x.dims, &vector, &vector])?;
    let (x, grad) = (x.slot, call.tensor(GRAD_OUT)?.slot);
    let [mean, rstd] = [call.tensor(MEAN)?.slot, call.tensor(RSTD)?.slot];
    CallPlan::new(move |views, tiles| {
        let [means, spreads] = [mean, rstd].map(|slot| numbers(views, Some(slot), of.count, 0.0));
        let statistics: Vec<[f32; 2]> =
            means.iter().zip(&spreads).map(|(&mean, &rstd)| [mean, rstd]).collect();
        let outputs = outputs.map(|slot| slot.map(|slot| views.of(slot)));
        // Only requested sums have memory for that many channels.
        if views.of(x).is_empty() && outputs[1..].iter().all(Option::is_none) {
            return Ok(());
        }
        let weight = numbers(views, weight, of.all, 1.0);
        let statistics = RowStatistics { rows: &statistics, are_given: false };
        norm_grad(tiles, views.of(grad), views.of(x), of, statistics, &weight, outputs);
        Ok(())
    })
}
