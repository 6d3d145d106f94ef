//! Norms with what stands before or behind them: sums, activations, quantisation.
//!
//! Computed in f64 from the stored elements, and rounded once. A sum that is an output is rounded
//! to its type before the norm reads it.

use crate::dtype::AclType::{self, BF16, F32, I8, I32};
use crate::lane::Lane;
use crate::normalization::rows::{expect_trailing, statistic_shape};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, flags, in_place, input, output};
use crate::operator::sets::{BYTES, FLOATING, HALVES, SINGLE};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};

/// Types of scales and offsets of quantised norms.
const SCALES: &[AclType] = &[F32, BF16];
const OFFSETS: &[AclType] = &[I32, BF16, I8, F32];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAddLayerNorm",
        parameters: &[
            input(X1, FLOATING, 1, 8),
            input(X2, FLOATING, 1, 8),
            input(GAMMA, FLOATING, 1, 8),
            input(BETA_TENSOR, FLOATING, 1, 8),
            input(BIAS_OPTIONAL, FLOATING, 1, 8).optional(),
            output(Y_OUT, FLOATING, 1, 8),
            output(MEAN_OUT, SINGLE, 1, 8),
            output(RSTD_OUT, SINGLE, 1, 8),
            output(X_OUT, FLOATING, 1, 8).optional(),
        ],
        limits: "one element type except the statistics; gamma and beta have the trailing dims of x1, biasOptional these or all; \
                 statistics have 1 for the normalised dims; additionalOutput stores x1 + x2 + bias in xOut",
        source: "ops-nn norm/add_layer_norm/docs/aclnnAddLayerNorm.md",
        plan: add_layer_norm,
    },
    Operator {
        name: "aclnnAddLayerNormGrad",
        parameters: &[
            input(DY, FLOATING, 1, 8),
            input(X1, FLOATING, 1, 8),
            input(X2, FLOATING, 1, 8),
            input(RSTD, SINGLE, 1, 8),
            input(MEAN, SINGLE, 1, 8),
            input(GAMMA, FLOATING, 1, 8),
            input(DSUM_OPTIONAL, FLOATING, 1, 8).optional(),
            output(DX_OUT, FLOATING, 1, 8),
            output(DGAMMA_OUT, SINGLE, 1, 8),
            output(DBETA_OUT, SINGLE, 1, 8),
        ],
        limits: "as aclnnAddLayerNorm without bias; dsumOptional, with the shape of x1, is added to dxOut",
        source: "ops-nn norm/add_layer_norm_grad/docs/aclnnAddLayerNormGrad.md",
        plan: |call| layer_norm_grad(call, [X1, X2], DGAMMA_OUT, None),
    },
    Operator {
        name: "aclnnDeepNorm",
        parameters: &[
            input(X, FLOATING, 2, 8),
            input(GX, FLOATING, 2, 8),
            input(BETA_TENSOR, FLOATING, 1, 7),
            input(GAMMA, FLOATING, 1, 7),
            output(MEAN_OUT, SINGLE, 2, 8),
            output(RSTD_OUT, SINGLE, 2, 8),
            output(Y_OUT, FLOATING, 2, 8),
        ],
        limits: "yOut is the layer norm of alpha x + gx; one element type except the statistics; gamma and beta have the trailing \
                 dims of x; statistics have 1 for the normalised dims",
        source: "ops-nn norm/deep_norm/docs/aclnnDeepNorm.md",
        plan: deep_norm,
    },
    Operator {
        name: "aclnnDeepNormGrad",
        parameters: &[
            input(DY, FLOATING, 2, 8),
            input(X, FLOATING, 2, 8),
            input(GX, FLOATING, 2, 8),
            input(GAMMA, FLOATING, 1, 7),
            input(MEAN, SINGLE, 2, 8),
            input(RSTD, SINGLE, 2, 8),
            output(DX_OUT, FLOATING, 2, 8),
            output(DGX_OUT, FLOATING, 2, 8),
            output(DBETA_OUT, SINGLE, 1, 7),
            output(DGAMMA_OUT, SINGLE, 1, 7),
        ],
        limits: "as aclnnDeepNorm, with its statistics; dxOut is alpha dgxOut",
        source: "ops-nn norm/deep_norm_grad/docs/aclnnDeepNormGrad.md",
        plan: |call| layer_norm_grad(call, [X, GX], DGAMMA_OUT, Some(call.float(ALPHA_FLOAT)?)),
    },
    Operator {
        name: "aclnnInplaceAddRmsNorm",
        parameters: &[
            in_place(X1_REF, FLOATING, 1, 8),
            in_place(X2_REF, FLOATING, 1, 8),
            input(GAMMA, FLOATING, 1, 8),
            output(RSTD_OUT, SINGLE, 1, 8),
        ],
        limits: "as aclnnAddRmsNorm; x1Ref becomes its yOut, x2Ref its xOut",
        source: "ops-nn norm/inplace_add_rms_norm/docs/aclnnInplaceAddRmsNorm.md",
        plan: |call| {
            rms_norm(
                call,
                RmsForm { sum: Some(X2_REF), rstd: Some(RSTD_OUT), ..RmsForm::of(X1_REF, Some(X2_REF)) },
            )
        },
    },
    Operator {
        name: "aclnnAddRmsNormCast",
        parameters: &[
            input(X1, HALVES, 1, 8),
            input(X2, HALVES, 1, 8),
            input(GAMMA, HALVES, 1, 8),
            output(Y1_OUT, SINGLE, 1, 8),
            output(Y2_OUT, HALVES, 1, 8),
            output(RSTD_OUT, SINGLE, 1, 8),
            output(X_OUT, HALVES, 1, 8),
        ],
        limits: "as aclnnAddRmsNorm with y2Out as its yOut; y1Out is y2Out as FLOAT",
        source: "ops-nn norm/add_rms_norm_cast/docs/aclnnAddRmsNormCast.md",
        plan: |call| {
            call.expect_type_of(X1, &[Y2_OUT])?;
            let form = RmsForm { plain: Some(Y2_OUT), cast: Some(Y1_OUT), ..RmsForm::of(X1, Some(X2)) };
            rms_norm(call, RmsForm { sum: Some(X_OUT), rstd: Some(RSTD_OUT), ..form })
        },
    },
    Operator {
        name: "aclnnAddRmsNormQuant",
        parameters: &[
            input(X1, HALVES, 1, 8),
            input(X2, HALVES, 1, 8),
            input(GAMMA, HALVES, 1, 8),
            input(SCALES1, SCALES, 1, 8),
            input(SCALES2_OPTIONAL, SCALES, 1, 8).optional(),
            input(ZERO_POINTS1_OPTIONAL, OFFSETS, 1, 8).optional(),
            input(ZERO_POINTS2_OPTIONAL, OFFSETS, 1, 8).optional(),
            output(Y1_OUT, BYTES, 1, 8),
            output(Y2_OUT, BYTES, 1, 8).optional(),
            output(X_OUT, HALVES, 1, 8),
        ],
        limits: QUANTISED,
        source: "ops-nn norm/add_rms_norm_quant/docs/aclnnAddRmsNormQuant.md",
        plan: |call| quantised(call, RmsForm { sum: Some(X_OUT), ..RmsForm::of(X1, Some(X2)) }),
    },
    Operator {
        name: "aclnnAddRmsNormQuantV2",
        parameters: &[
            input(X1, HALVES, 1, 8),
            input(X2, HALVES, 1, 8),
            input(GAMMA, HALVES, 1, 8),
            input(SCALES1, SCALES, 1, 8),
            input(SCALES2_OPTIONAL, SCALES, 1, 8).optional(),
            input(ZERO_POINTS1_OPTIONAL, OFFSETS, 1, 8).optional(),
            input(ZERO_POINTS2_OPTIONAL, OFFSETS, 1, 8).optional(),
            input(BETA_TENSOR_OPTIONAL, HALVES, 1, 8).optional(),
            output(Y1_OUT, BYTES, 1, 8),
            output(Y2_OUT, BYTES, 1, 8).optional(),
            output(X_OUT, HALVES, 1, 8),
            output(RMS_NORM_OUT, HALVES, 1, 8).optional(),
        ],
        limits: "as aclnnAddRmsNormQuant; betaOptional is added to the norm, rmsNormOut stores the norm without it",
        source: "ops-nn norm/add_rms_norm_quant/docs/aclnnAddRmsNormQuantV2.md",
        plan: |call| {
            let form = RmsForm { sum: Some(X_OUT), plain: Some(RMS_NORM_OUT), ..RmsForm::of(X1, Some(X2)) };
            quantised(call, RmsForm { beta: Some(BETA_TENSOR_OPTIONAL), ..form })
        },
    },
    Operator {
        name: "aclnnRmsNormQuant",
        parameters: &[
            input(X, HALVES, 1, 8),
            input(GAMMA, HALVES, 1, 2),
            input(BETA_TENSOR, HALVES, 1, 2),
            input(SCALE, HALVES, 1, 1),
            input(OFFSET, BYTES, 1, 1),
            output(Y, BYTES, 1, 8),
        ],
        limits: "y is the norm times scale, plus offset, to nearest and within INT8; scale and offset [1]; x, gamma, beta and \
                 scale have one type; gamma and beta have the trailing dims of x, or [1, last dim]",
        source: "ops-nn norm/rms_norm_quant/docs/aclnnRmsNormQuant.md",
        plan: rms_norm_quant,
    },
    Operator {
        name: "aclnnAddRmsNormDynamicQuant",
        parameters: &[
            input(X1, HALVES, 1, 8),
            input(X2, HALVES, 1, 8),
            input(GAMMA, HALVES, 1, 1),
            input(SMOOTH_SCALE1_OPTIONAL, HALVES, 1, 1).optional(),
            input(SMOOTH_SCALE2_OPTIONAL, HALVES, 1, 1).optional(),
            output(Y1_OUT, BYTES, 1, 8),
            output(Y2_OUT, BYTES, 1, 8).optional(),
            output(X_OUT, HALVES, 1, 8),
            output(SCALE1_OUT, SINGLE, 0, 7),
            output(SCALE2_OUT, SINGLE, 0, 7).optional(),
        ],
        limits: DYNAMIC,
        source: "ops-nn norm/add_rms_norm_dynamic_quant/docs/aclnnAddRmsNormDynamicQuant.md",
        plan: dynamic,
    },
    Operator {
        name: "aclnnAddRmsNormDynamicQuantV2",
        parameters: &[
            input(X1, HALVES, 1, 8),
            input(X2, HALVES, 1, 8),
            input(GAMMA, HALVES, 1, 1),
            input(SMOOTH_SCALE1_OPTIONAL, HALVES, 1, 1).optional(),
            input(SMOOTH_SCALE2_OPTIONAL, HALVES, 1, 1).optional(),
            input(BETA_TENSOR_OPTIONAL, HALVES, 1, 1).optional(),
            flags(OUTPUT_MASK_OPTIONAL),
            output(Y1_OUT, BYTES, 1, 8),
            output(Y2_OUT, BYTES, 1, 8).optional(),
            output(X_OUT, HALVES, 1, 8),
            output(SCALE1_OUT, SINGLE, 0, 7),
            output(SCALE2_OUT, SINGLE, 0, 7).optional(),
        ],
        limits: "as aclnnAddRmsNormDynamicQuant; betaOptional is added to the norm; outputMaskOptional, if given, has two values: \
                 which of the two results are computed",
        source: "ops-nn norm/add_rms_norm_dynamic_quant/docs/aclnnAddRmsNormDynamicQuantV2.md",
        plan: dynamic,
    },
];

const QUANTISED: &str = "x1, x2, gamma and xOut of one type; xOut is x1 + x2; y1Out is its norm divided by (divMode) or times scales1, \
                         plus zeroPoints1Optional, to nearest and within INT8; y2Out likewise, if scales2Optional is given; \
                         gamma, scales and zero points have the trailing dims of x1; axis -1";

const DYNAMIC: &str = "x1, x2, gamma, smooth scales and xOut of one type; xOut is x1 + x2; y1Out is its norm times smoothScale1Optional, \
                       divided by scale1Out, to nearest; scale1Out is the largest magnitude of the row over 127; y2Out and \
                       scale2Out likewise, if smoothScale2Optional is given; gamma [last dim]";

/// Mean and reciprocal deviation.
pub(crate) fn moments(row: &[f64], epsilon: f64) -> [f64; 2] {
    let len = row.len() as f64;
    let mean = row.iter().sum::<f64>() / len;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / len;
    [mean, 1.0 / (variance + epsilon).sqrt()]
}

/// `alpha x + other + bias`, rounded to the type of `dtype` if given.
fn summed(terms: &[Vec<f64>], alpha: f64, dtype: Option<AclType>) -> Vec<f64> {
    let at = |i: usize| terms[1..].iter().fold(terms[0][i] * alpha, |sum, term| sum + term[i % term.len()]);
    (0..terms[0].len()).map(|i| dtype.map_or_else(|| at(i), |dtype| at(i).rounded(dtype))).collect()
}

/// A layer norm of a sum.
struct LayerForm {
    terms: Vec<ViewIndex>,
    alpha: f64,
    sum: Option<ViewIndex>,
    y: Name<CheckedTensor>,
}

fn add_layer_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X1, &[X2, GAMMA, BETA_TENSOR, BIAS_OPTIONAL, Y_OUT, X_OUT])?;
    let x = call.tensor(X1)?;
    for name in [X2, Y_OUT] {
        call.expect_shape(name, &x.dims, "of x1")?;
    }
    let is_stored = call.flag(ADDITIONAL_OUTPUT)?;
    let sum = call.slot_if_given(X_OUT)?;
    if is_stored {
        call.expect_shape(X_OUT, &x.dims, "of x1")?;
    }
    let mut terms = call.slots_of([X1, X2])?.to_vec();
    if call.tensor_if_given(BIAS_OPTIONAL)?.is_some() {
        expect_trailing(call, X1, BIAS_OPTIONAL)?;
        terms.push(call.slot(BIAS_OPTIONAL)?);
    }
    let plan =
        layer_norm(call, X1, LayerForm { terms, alpha: 1.0, sum: sum.filter(|_| is_stored), y: Y_OUT })?;
    Ok(plan.leaving(sum.filter(|_| !is_stored).into_iter().collect()))
}

fn deep_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[GX, GAMMA, BETA_TENSOR, Y_OUT])?;
    let x = call.tensor(X)?;
    for name in [GX, Y_OUT] {
        call.expect_shape(name, &x.dims, "of x")?;
    }
    let (terms, alpha) = (call.slots_of([X, GX])?.to_vec(), call.float(ALPHA_FLOAT)?);
    layer_norm(call, X, LayerForm { terms, alpha, sum: None, y: Y_OUT })
}

fn layer_norm(call: &OperatorCall, x: Name<CheckedTensor>, form: LayerForm) -> Result<CallPlan, Refusal> {
    let normed = expect_trailing(call, x, GAMMA)?;
    call.expect_shape(BETA_TENSOR, &call.tensor(GAMMA)?.dims, "of gamma")?;
    let (dims, dtype) = (&call.tensor(x)?.dims, call.tensor(x)?.dtype);
    for name in [MEAN_OUT, RSTD_OUT] {
        call.expect_shape(name, &statistic_shape(dims, normed), "of x with 1 for the normalised dims")?;
    }
    let (epsilon, y) = (call.float(EPSILON)?, call.slot(form.y)?);
    let [gamma, beta, mean_out, rstd_out] = call.slots_of([GAMMA, BETA_TENSOR, MEAN_OUT, RSTD_OUT])?;
    CallPlan::new(move |views, _| {
        let terms: Vec<Vec<f64>> = form.terms.iter().map(|slot| views.read(*slot)).collect();
        let (gamma, beta) = (views.read::<f64>(gamma), views.read::<f64>(beta));
        let mut values = summed(&terms, form.alpha, form.sum.map(|_| dtype));
        views.write_given(form.sum, &values);
        let (mut means, mut rstds) = (Vec::new(), Vec::new());
        for row in values.chunks_exact_mut(gamma.len().max(1)) {
            let [mean, rstd] = moments(row, epsilon);
            row.iter_mut()
                .zip(gamma.iter().zip(&beta))
                .for_each(|(x, (gamma, beta))| *x = (*x - mean) * rstd * gamma + beta);
            means.push(mean);
            rstds.push(rstd);
        }
        views.write(mean_out, &means);
        views.write(rstd_out, &rstds);
        views.write(y, &values);
        Ok(())
    })
}

/// With `alpha`, the first term was multiplied with it and has a gradient of its own.
fn layer_norm_grad(
    call: &OperatorCall,
    terms: [Name<CheckedTensor>; 2],
    dgamma: Name<CheckedTensor>,
    alpha: Option<f64>,
) -> Result<CallPlan, Refusal> {
    let normed = expect_trailing(call, terms[0], GAMMA)?;
    let x = call.tensor(terms[0])?;
    let other = if alpha.is_some() { DGX_OUT } else { DX_OUT };
    let has_sum = call.has(DSUM_OPTIONAL) && call.tensor_if_given(DSUM_OPTIONAL)?.is_some();
    let sum = has_sum.then_some(DSUM_OPTIONAL);
    for name in [DY, terms[1], DX_OUT, other].into_iter().chain(sum) {
        call.expect_shape(name, &x.dims, &format!("of {}", terms[0]))?;
        call.expect_dtype(name, x.dtype, &format!("the type of {}", terms[0]))?;
    }
    call.expect_type_of(terms[0], &[GAMMA])?;
    for name in [MEAN, RSTD] {
        call.expect_shape(name, &statistic_shape(&x.dims, normed), "of x with 1 for the normalised dims")?;
    }
    for name in [dgamma, DBETA_OUT] {
        call.expect_shape(name, &call.tensor(GAMMA)?.dims, "of gamma")?;
    }
    let inputs = call.slots_of([DY, terms[0], terms[1], RSTD, MEAN, GAMMA])?;
    let outputs = call.slots_of([DX_OUT, other, dgamma, DBETA_OUT])?;
    let sum = sum.map(|name| call.slot(name)).transpose()?;
    CallPlan::new(move |views, _| {
        let [dy, x, gx, rstds, means, gamma] = inputs.map(|slot| views.read::<f64>(slot));
        let (added, len) = (views.read_given::<f64>(sum), gamma.len().max(1));
        let (mut dx, mut dgamma, mut dbeta) =
            (Vec::with_capacity(x.len()), vec![0f64; gamma.len()], vec![0f64; gamma.len()]);
        let values = summed(&[x, gx], alpha.unwrap_or(1.0), None);
        for (row, (values, dy)) in values.chunks_exact(len).zip(dy.chunks_exact(len)).enumerate() {
            let normal: Vec<f64> = values.iter().map(|x| (x - means[row]) * rstds[row]).collect();
            let scaled: Vec<f64> = dy.iter().zip(&gamma).map(|(dy, gamma)| dy * gamma).collect();
            let mean = scaled.iter().sum::<f64>() / len as f64;
            let along = scaled.iter().zip(&normal).map(|(dy, x)| dy * x).sum::<f64>() / len as f64;
            dx.extend(scaled.iter().zip(&normal).map(|(dy, x)| rstds[row] * (dy - mean - x * along)));
            for (at, (dy, x)) in dy.iter().zip(&normal).enumerate() {
                dgamma[at] += dy * x;
                dbeta[at] += dy;
            }
        }
        if let Some(added) = added {
            dx.iter_mut().zip(&added).for_each(|(dx, added)| *dx += added);
        }
        let [first, second, dgamma_out, dbeta_out] = outputs;
        views.write(second, &dx);
        if let Some(alpha) = alpha {
            dx.iter_mut().for_each(|dx| *dx *= alpha);
            views.write(first, &dx);
        }
        views.write(dgamma_out, &dgamma);
        views.write(dbeta_out, &dbeta);
        Ok(())
    })
}

/// Outputs of a root mean square norm of `x`, or of `x + addend`.
#[derive(Clone, Copy)]
struct RmsForm {
    x: Name<CheckedTensor>,
    addend: Option<Name<CheckedTensor>>,
    beta: Option<Name<CheckedTensor>>,
    sum: Option<Name<CheckedTensor>>,
    rstd: Option<Name<CheckedTensor>>,
    /// The norm without beta.
    plain: Option<Name<CheckedTensor>>,
    /// The plain norm, rounded, in another type.
    cast: Option<Name<CheckedTensor>>,
}

/// A checked norm: slots and sizes.
struct RmsPlan {
    terms: Vec<ViewIndex>,
    gamma: ViewIndex,
    beta: Option<ViewIndex>,
    epsilon: f64,
    dtype: AclType,
    sum: Option<ViewIndex>,
    rstd: Option<ViewIndex>,
    plain: Option<ViewIndex>,
    cast: Option<ViewIndex>,
}

impl RmsForm {
    const fn of(x: Name<CheckedTensor>, addend: Option<Name<CheckedTensor>>) -> Self {
        Self { x, addend, beta: None, sum: None, rstd: None, plain: Some(x), cast: None }
    }

    fn plan(self, call: &OperatorCall) -> Result<RmsPlan, Refusal> {
        let x = call.tensor(self.x)?;
        let normed = expect_trailing(call, self.x, GAMMA)?;
        let alike = [self.addend, self.sum, self.plain, self.cast].into_iter().flatten();
        for name in alike {
            if call.tensor_if_given(name)?.is_some() {
                call.expect_shape(name, &x.dims, &format!("of {}", self.x))?;
            }
        }
        let typed = [self.addend, self.sum, self.plain].into_iter().flatten().chain([GAMMA]).chain(self.beta);
        for name in typed {
            call.expect_type_of(self.x, &[name])?;
        }
        if let Some(rstd) = self.rstd {
            call.expect_shape(
                rstd,
                &statistic_shape(&x.dims, normed),
                "of x with 1 for the normalised dims",
            )?;
        }
        if let Some(beta) = self.beta
            && call.tensor_if_given(beta)?.is_some()
        {
            call.expect_shape(beta, &call.tensor(GAMMA)?.dims, "of gamma")?;
        }
        let slot = |name: Option<Name<CheckedTensor>>| name.map_or(Ok(None), |name| call.slot_if_given(name));
        let mut terms = vec![x.slot];
        terms.extend(slot(self.addend)?);
        Ok(RmsPlan {
            terms,
            gamma: call.slot(GAMMA)?,
            beta: slot(self.beta)?,
            epsilon: call.float(EPSILON)?,
            dtype: x.dtype,
            sum: slot(self.sum)?,
            rstd: slot(self.rstd)?,
            plain: slot(self.plain)?,
            cast: slot(self.cast)?,
        })
    }
}

impl RmsPlan {
    /// Writes the outputs of the norm, and returns the norm with beta.
    fn run(&self, views: &StridedViews<'_>) -> Vec<f64> {
        let terms: Vec<Vec<f64>> = self.terms.iter().map(|slot| views.read(*slot)).collect();
        let gamma = views.read::<f64>(self.gamma);
        let mut values = summed(&terms, 1.0, self.sum.map(|_| self.dtype));
        views.write_given(self.sum, &values);
        let mut rstds = Vec::new();
        for row in values.chunks_exact_mut(gamma.len().max(1)) {
            let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let rstd = 1.0 / (square + self.epsilon).sqrt();
            row.iter_mut().zip(&gamma).for_each(|(x, gamma)| *x *= rstd * gamma);
            rstds.push(rstd);
        }
        views.write_given(self.rstd, &rstds);
        views.write_given(self.plain, &values);
        if let Some(cast) = self.cast {
            let rounded: Vec<f64> = values.iter().map(|x| x.rounded(self.dtype)).collect();
            views.write(cast, &rounded);
        }
        if let Some(beta) = views.read_given::<f64>(self.beta) {
            values.iter_mut().enumerate().for_each(|(i, x)| *x += beta[i % beta.len()]);
        }
        values
    }
}

fn rms_norm(call: &OperatorCall, form: RmsForm) -> Result<CallPlan, Refusal> {
    let plan = form.plan(call)?;
    CallPlan::new(move |views, _| {
        plan.run(views);
        Ok(())
    })
}

fn saturated(value: f64) -> f64 {
    value.round_ties_even().clamp(-128.0, 127.0)
}

fn quantised(call: &OperatorCall, form: RmsForm) -> Result<CallPlan, Refusal> {
    let plain = form.plain.filter(|plain| plain.text() != form.x.text());
    let plan = RmsForm { plain, ..form }.plan(call)?;
    call.int_in(AXIS, -1..=-1)?;
    let divides = call.flag(DIV_MODE)?;
    let (x, gamma) = (call.tensor(form.x)?, call.tensor(GAMMA)?);
    let mut results = Vec::new();
    let mut unwritten = Vec::new();
    for (scale, zero, y) in
        [(SCALES1, ZERO_POINTS1_OPTIONAL, Y1_OUT), (SCALES2_OPTIONAL, ZERO_POINTS2_OPTIONAL, Y2_OUT)]
    {
        let (scale, y) =
            (call.tensor_if_given(scale)?.map(|tensor| (scale, tensor)), (y, call.slot_if_given(y)?));
        let Some((name, scale)) = scale else {
            unwritten.extend(y.1);
            continue;
        };
        call.expect_shape(name, &gamma.dims, "of gamma")?;
        if call.tensor_if_given(zero)?.is_some() {
            call.expect_shape(zero, &gamma.dims, "of gamma")?;
        }
        call.expect_shape(y.0, &x.dims, &format!("of {}", form.x))?;
        results.push([Some(scale.slot), call.slot_if_given(zero)?, y.1]);
    }
    let plan = CallPlan::new(move |views, _| {
        let norm = plan.run(views);
        for &[scale, zero, y] in &results {
            let (Some(scales), zeros) = (views.read_given::<f64>(scale), views.read_given::<f64>(zero))
            else {
                continue;
            };
            let of = |(i, x): (usize, &f64)| {
                let at = i % scales.len();
                let scaled = if divides { x / scales[at] } else { x * scales[at] };
                saturated(scaled + zeros.as_ref().map_or(0.0, |zeros| zeros[at]))
            };
            views.write_given(y, &norm.iter().enumerate().map(of).collect::<Vec<f64>>());
        }
        Ok(())
    })?;
    Ok(plan.leaving(unwritten))
}

fn rms_norm_quant(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[GAMMA, BETA_TENSOR, SCALE])?;
    let (x, gamma) = (call.tensor(X)?, call.tensor(GAMMA)?);
    call.expect_shape(BETA_TENSOR, &gamma.dims, "of gamma")?;
    call.expect_shape(Y, &x.dims, "of x")?;
    call.sizes(&[SCALE.of("1"), OFFSET.of("1")])?;
    // A gamma of [1, n] normalises rows of n.
    let is_row = matches!(gamma.dims[..], [1, width] if x.dims.last() == Some(&width));
    if !is_row {
        expect_trailing(call, X, GAMMA)?;
    }
    let epsilon = call.float(EPSILON)?;
    let [x, gamma, beta, scale, offset, y] = call.slots_of([X, GAMMA, BETA_TENSOR, SCALE, OFFSET, Y])?;
    let plan = RmsPlan {
        terms: vec![x],
        gamma,
        beta: Some(beta),
        epsilon,
        dtype: call.tensor(X)?.dtype,
        sum: None,
        rstd: None,
        plain: None,
        cast: None,
    };
    CallPlan::new(move |views, _| {
        let (scale, offset) = (views.read::<f64>(scale)[0], views.read::<f64>(offset)[0]);
        let levels: Vec<f64> = plan.run(views).into_iter().map(|x| saturated(x * scale + offset)).collect();
        views.write(y, &levels);
        Ok(())
    })
}

fn dynamic(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let beta = call.has(BETA_TENSOR_OPTIONAL).then_some(BETA_TENSOR_OPTIONAL);
    let plan = RmsForm { sum: Some(X_OUT), plain: None, beta, ..RmsForm::of(X1, Some(X2)) }.plan(call)?;
    let x = call.tensor(X1)?;
    let smooth = [SMOOTH_SCALE1_OPTIONAL, SMOOTH_SCALE2_OPTIONAL];
    call.expect_type_of(X1, &smooth)?;
    let mask = if call.has(OUTPUT_MASK_OPTIONAL) { call.flags_if_given(OUTPUT_MASK_OPTIONAL)? } else { None };
    let wanted = match mask {
        None => [true, call.tensor_if_given(SMOOTH_SCALE2_OPTIONAL)?.is_some()],
        Some(&[first, second]) => [first, second],
        Some(found) => {
            return Err(call.refuse(OUTPUT_MASK_OPTIONAL, format!("expected two values, found {found:?}")));
        }
    };
    let (mut results, mut unwritten) = (Vec::new(), Vec::new());
    for (i, [y, scale]) in [[Y1_OUT, SCALE1_OUT], [Y2_OUT, SCALE2_OUT]].into_iter().enumerate() {
        if !wanted[i] {
            unwritten.extend([call.slot_if_given(y)?, call.slot_if_given(scale)?].into_iter().flatten());
            continue;
        }
        call.expect_shape(y, &x.dims, "of x1")?;
        call.expect_shape(scale, &x.dims[..x.rank() - 1], "of x1 without the last dim")?;
        if call.tensor_if_given(smooth[i])?.is_some() {
            call.expect_shape(smooth[i], &x.dims[x.rank() - 1..], "the last dim of x1")?;
        }
        results.push((call.slot_if_given(smooth[i])?, call.slots_of([y, scale])?));
    }
    let width = x.dims[x.rank() - 1].max(1);
    let plan = CallPlan::new(move |views, _| {
        let norm = plan.run(views);
        for &(smooth, [y, scale_out]) in &results {
            let smooth = views.read_given::<f64>(smooth);
            let (mut levels, mut scales) = (norm.clone(), Vec::new());
            for row in levels.chunks_exact_mut(width) {
                if let Some(smooth) = &smooth {
                    row.iter_mut().zip(smooth).for_each(|(x, factor)| *x *= factor);
                }
                let scale = row.iter().fold(0.0, |most: f64, x| most.max(x.abs())) / 127.0;
                if scale > 0.0 {
                    row.iter_mut().for_each(|x| *x = (*x / scale).round_ties_even());
                }
                scales.push(scale);
            }
            views.write(y, &levels);
            views.write(scale_out, &scales);
        }
        Ok(())
    })?;
    Ok(plan.leaving(unwritten))
}
