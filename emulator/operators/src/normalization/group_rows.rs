//! Norms of groups of channels with an activation behind them.
//!
//! Computed in f64 from the stored elements, and rounded once.

use crate::normalization::fused_rows::moments;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output, text};
use crate::operator::sets::FLOATING;
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnGroupNormSilu",
        parameters: &[
            input(SELF, FLOATING, 2, 8),
            input(GAMMA, FLOATING, 1, 1).optional(),
            input(BETA_TENSOR, FLOATING, 1, 1).optional(),
            output(OUT, FLOATING, 2, 8),
            output(MEAN_OUT, FLOATING, 2, 2),
            output(RSTD_OUT, FLOATING, 2, 2),
        ],
        limits: "self [N, C, ..], gamma and beta [C], statistics [N, group]; group divides C; one element type except the \
                 statistics; out is silu of the norm",
        source: "CANN 8.1 aclnn API reference, aclnnGroupNormSilu",
        plan: |call| {
            group_norm(
                call,
                GroupForm {
                    x: SELF,
                    groups: call.int(GROUP)?,
                    eps: call.float(EPS)?,
                    y: OUT,
                    swish: Some(1.0),
                },
            )
        },
    },
    Operator {
        name: "aclnnGroupNormSiluV2",
        parameters: &[
            input(SELF, FLOATING, 2, 8),
            input(GAMMA, FLOATING, 1, 1).optional(),
            input(BETA_TENSOR, FLOATING, 1, 1).optional(),
            output(OUT, FLOATING, 2, 8),
            output(MEAN_OUT, FLOATING, 2, 2),
            output(RSTD_OUT, FLOATING, 2, 2),
        ],
        limits: "as aclnnGroupNormSilu; without activateSilu out is the norm",
        source: "CANN 8.1 aclnn API reference, aclnnGroupNormSiluV2V2",
        plan: |call| {
            group_norm(
                call,
                GroupForm {
                    x: SELF,
                    groups: call.int(GROUP)?,
                    eps: call.float(EPS)?,
                    y: OUT,
                    swish: call.flag(ACTIVATE_SILU)?.then_some(1.0),
                },
            )
        },
    },
    Operator {
        name: "aclnnGroupNormSwish",
        parameters: &[
            input(X, FLOATING, 2, 8),
            input(GAMMA, FLOATING, 1, 1),
            input(BETA_TENSOR, FLOATING, 1, 1),
            text(DATA_FORMAT_OPTIONAL),
            output(Y_OUT, FLOATING, 2, 8),
            output(MEAN_OUT, FLOATING, 2, 2),
            output(RSTD_OUT, FLOATING, 2, 2),
        ],
        limits: "x [N, C, ..], gamma and beta [C], statistics [N, numGroups]; numGroups divides C; dataFormatOptional NCHW or NULL; \
                 with activateSwish yOut is z sigmoid(swishScale z) of the norm z; one element type except the statistics",
        source: "CANN 8.1 aclnn API reference, aclnnGroupNormSwish",
        plan: |call| {
            expect_channels(call)?;
            let swish = if call.flag(ACTIVATE_SWISH)? { Some(call.float(SWISH_SCALE)?) } else { None };
            group_norm(
                call,
                GroupForm { x: X, groups: call.int(NUM_GROUPS)?, eps: call.float(EPS)?, y: Y_OUT, swish },
            )
        },
    },
    Operator {
        name: "aclnnGroupNormSwishGrad",
        parameters: &[
            input(DY, FLOATING, 2, 8),
            input(MEAN, FLOATING, 2, 2),
            input(RSTD, FLOATING, 2, 2),
            input(X, FLOATING, 2, 8),
            input(GAMMA, FLOATING, 1, 1),
            input(BETA_TENSOR, FLOATING, 1, 1),
            text(DATA_FORMAT_OPTIONAL),
            output(DX_OUT, FLOATING, 2, 8),
            output(DGAMMA_OUT, FLOATING, 1, 1).optional(),
            output(DBETA_OUT, FLOATING, 1, 1).optional(),
        ],
        limits: "as aclnnGroupNormSwish with activateSwish, with its statistics; dgammaOut and dbetaOut [C] are written if required",
        source: "CANN 8.1 aclnn API reference, aclnnGroupNormSwishGrad",
        plan: group_norm_grad,
    },
    Operator {
        name: "aclnnInstanceNorm",
        parameters: &[
            input(X, FLOATING, 3, 8),
            input(GAMMA, FLOATING, 1, 1),
            input(BETA_TENSOR, FLOATING, 1, 1),
            output(Y, FLOATING, 3, 8),
            output(MEAN, FLOATING, 3, 8),
            output(VARIANCE, FLOATING, 3, 8),
        ],
        limits: "x [N, C, ..], or [N, .., C] for a dataFormat that ends in C; gamma and beta [C]; mean and variance have 1 for the other dims; \
                 one element type",
        source: "CANN 8.1 aclnn API reference, aclnnInstanceNorm",
        plan: instance_norm,
    },
];

fn expect_channels(call: &OperatorCall) -> Result<(), Refusal> {
    match call.text_if_given(DATA_FORMAT_OPTIONAL)? {
        None | Some("NCHW") => Ok(()),
        Some(other) => {
            Err(call.refuse(DATA_FORMAT_OPTIONAL, format!("expected NCHW or NULL, found {other}")))
        }
    }
}

#[derive(Clone, Copy)]
struct GroupForm {
    x: Name<CheckedTensor>,
    groups: i64,
    eps: f64,
    y: Name<CheckedTensor>,
    /// Factor in the sigmoid of the activation.
    swish: Option<f64>,
}

/// Elements of a channel, and channels of a group.
fn group_sizes(call: &OperatorCall, x: Name<CheckedTensor>, groups: i64) -> Result<[usize; 2], Refusal> {
    let dims = &call.tensor(x)?.dims;
    let fits = groups > 0 && dims[1].is_multiple_of(groups as usize);
    call.expect_that(fits, x, &format!("a multiple of {groups} channels"), dims)?;
    call.expect_elements(&[x])?;
    for name in [GAMMA, BETA_TENSOR] {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_shape(name, &dims[1..2], "the channels")?;
        }
    }
    Ok([dims[2..].iter().product(), dims[1] / groups as usize])
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn group_norm(call: &OperatorCall, form: GroupForm) -> Result<CallPlan, Refusal> {
    call.expect_type_of(form.x, &[GAMMA, BETA_TENSOR, form.y])?;
    let [plane, channels] = group_sizes(call, form.x, form.groups)?;
    let dims = &call.tensor(form.x)?.dims;
    call.expect_shape(form.y, dims, &format!("of {}", form.x))?;
    for name in [MEAN_OUT, RSTD_OUT] {
        call.expect_shape(name, &[dims[0], form.groups as usize], "N and the groups")?;
    }
    let [x, y, mean_out, rstd_out] = call.slots_of([form.x, form.y, MEAN_OUT, RSTD_OUT])?;
    let (gamma, beta) = (call.slot_if_given(GAMMA)?, call.slot_if_given(BETA_TENSOR)?);
    let (count, eps, swish) = (dims[1], form.eps, form.swish);
    CallPlan::new(move |views, _| {
        let mut values = views.read::<f64>(x);
        let [gamma, beta] = [gamma, beta].map(|slot| views.read_given::<f64>(slot));
        let (mut means, mut rstds) = (Vec::new(), Vec::new());
        for (group, row) in values.chunks_exact_mut(channels * plane).enumerate() {
            let [mean, rstd] = moments(row, eps);
            for (i, x) in row.iter_mut().enumerate() {
                let channel = (group * channels + i / plane) % count;
                let factor = gamma.as_ref().map_or(1.0, |gamma| gamma[channel]);
                let z = (*x - mean) * rstd * factor + beta.as_ref().map_or(0.0, |beta| beta[channel]);
                *x = swish.map_or(z, |scale| z * sigmoid(scale * z));
            }
            means.push(mean);
            rstds.push(rstd);
        }
        views.write(mean_out, &means);
        views.write(rstd_out, &rstds);
        views.write(y, &values);
        Ok(())
    })
}

fn group_norm_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_channels(call)?;
    call.expect_type_of(DY, &[X, GAMMA, BETA_TENSOR, DX_OUT, DGAMMA_OUT, DBETA_OUT])?;
    let groups = call.int(NUM_GROUPS)?;
    let [plane, channels] = group_sizes(call, X, groups)?;
    let dims = &call.tensor(X)?.dims;
    for name in [DY, DX_OUT] {
        call.expect_shape(name, dims, "of x")?;
    }
    for name in [MEAN, RSTD] {
        call.expect_shape(name, &[dims[0], groups as usize], "N and the groups")?;
    }
    let mut sums = [None; 2];
    let mut unwritten = Vec::new();
    for (sum, (name, is_wanted)) in
        sums.iter_mut().zip([(DGAMMA_OUT, DGAMMA_IS_REQUIRE), (DBETA_OUT, DBETA_IS_REQUIRE)])
    {
        if call.flag(is_wanted)? {
            call.expect_shape(name, &dims[1..2], "the channels")?;
            *sum = Some(call.slot(name)?);
        } else {
            unwritten.extend(call.slot_if_given(name)?);
        }
    }
    let (count, scale) = (dims[1], call.float(SWISH_SCALE)?);
    let inputs = call.slots_of([DY, MEAN, RSTD, X, GAMMA, BETA_TENSOR])?;
    let out = call.slot(DX_OUT)?;
    let plan = CallPlan::new(move |views, _| {
        let [dy, means, rstds, mut x, gamma, beta] = inputs.map(|slot| views.read::<f64>(slot));
        let (mut dgamma, mut dbeta) = (vec![0f64; count], vec![0f64; count]);
        let len = channels * plane;
        for (group, (row, dy)) in x.chunks_exact_mut(len).zip(dy.chunks_exact(len)).enumerate() {
            let (mean, rstd) = (means[group], rstds[group]);
            let mut scaled = vec![0f64; len];
            for (i, x) in row.iter_mut().enumerate() {
                let channel = (group * channels + i / plane) % count;
                *x = (*x - mean) * rstd;
                let z = *x * gamma[channel] + beta[channel];
                let share = sigmoid(scale * z);
                let dz = dy[i] * (share + scale * z * share * (1.0 - share));
                dgamma[channel] += dz * *x;
                dbeta[channel] += dz;
                scaled[i] = dz * gamma[channel];
            }
            let total = scaled.iter().sum::<f64>() / len as f64;
            let along = scaled.iter().zip(row.iter()).map(|(dz, x)| dz * x).sum::<f64>() / len as f64;
            row.iter_mut().zip(&scaled).for_each(|(x, dz)| *x = rstd * (dz - total - *x * along));
        }
        views.write(out, &x);
        views.write_given(sums[0], &dgamma);
        views.write_given(sums[1], &dbeta);
        Ok(())
    })?;
    Ok(plan.leaving(unwritten))
}

fn instance_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[GAMMA, BETA_TENSOR, Y, MEAN, VARIANCE])?;
    call.expect_elements(&[X])?;
    let (dims, format) = (&call.tensor(X)?.dims, call.text(DATA_FORMAT)?);
    let is_last = format.ends_with('C');
    let known = ["NCHW", "NCDHW", "NCL", "ND", "NHWC", "NDHWC", "NLC"].contains(&format);
    call.expect_that(known, DATA_FORMAT, "NCHW, NHWC or another with N and C", format)?;
    let channel = if is_last { dims.len() - 1 } else { 1 };
    let (channels, rank) = (dims[channel], dims.len());
    call.expect_shape(Y, dims, "of x")?;
    let ones: Vec<usize> =
        (0..rank).map(|dim| if dim == 0 || dim == channel { dims[dim] } else { 1 }).collect();
    for (name, shape) in
        [(GAMMA, &[channels][..]), (BETA_TENSOR, &[channels]), (MEAN, &ones), (VARIANCE, &ones)]
    {
        call.expect_shape(name, shape, "the channels of x")?;
    }
    let (plane, eps) = (dims.iter().product::<usize>() / dims[0] / channels, call.float(EPS)?);
    let [x, gamma, beta, y, mean_out, variance_out] =
        call.slots_of([X, GAMMA, BETA_TENSOR, Y, MEAN, VARIANCE])?;
    CallPlan::new(move |views, _| {
        let mut values = views.read::<f64>(x);
        let [gamma, beta] = [gamma, beta].map(|slot| views.read::<f64>(slot));
        let (mut means, mut variances) = (Vec::new(), Vec::new());
        for group in 0..values.len() / plane {
            let (sample, channel) = (group / channels, group % channels);
            let place = |i: usize| {
                let inner = if is_last { i * channels + channel } else { channel * plane + i };
                sample * channels * plane + inner
            };
            let row: Vec<f64> = (0..plane).map(|i| values[place(i)]).collect();
            let [mean, rstd] = moments(&row, eps);
            for (i, x) in row.iter().enumerate() {
                values[place(i)] = (x - mean) * rstd * gamma[channel] + beta[channel];
            }
            means.push(mean);
            variances.push(row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / plane as f64);
        }
        views.write(mean_out, &means);
        views.write(variance_out, &variances);
        views.write(y, &values);
        Ok(())
    })
}
