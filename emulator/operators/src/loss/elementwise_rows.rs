//! Elementwise losses against a target, and their gradients.
//!
//! Blocks are summed in f32, block sums in f64.

use crate::elementwise::kernels::blocks;
use crate::lane::{BLOCK, Lane};
use crate::math;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::FLOATING;
use crate::operator::{CallPlan, Refusal};
use crate::view::StridedView;

/// Functions of value, target, weight and a fourth operand (second weight or attribute).
#[derive(Clone, Copy)]
struct ElementwiseLoss {
    value: fn([f32; 4]) -> f32,
    slope: fn([f32; 4]) -> f32,
}

const SQUARE: ElementwiseLoss =
    ElementwiseLoss { value: |[x, t, ..]| (x - t) * (x - t), slope: |[x, t, ..]| 2.0 * (x - t) };
const ABSOLUTE: ElementwiseLoss =
    ElementwiseLoss { value: |[x, t, ..]| (x - t).abs(), slope: |[x, t, ..]| sign(x - t) };
/// A square below `beta`, linear above.
const SMOOTH: ElementwiseLoss = ElementwiseLoss {
    value: |[x, t, _, beta]| {
        let apart = (x - t).abs();
        if apart < beta { 0.5 * apart * apart / beta } else { apart - 0.5 * beta }
    },
    slope: |[x, t, _, beta]| if (x - t).abs() < beta { (x - t) / beta } else { sign(x - t) },
};
const SOFT_MARGIN: ElementwiseLoss = ElementwiseLoss {
    value: |[x, t, ..]| (-t * x).max(0.0) + (-(t * x).abs()).exp().ln_1p(),
    slope: |[x, t, ..]| -t / (1.0 + (t * x).exp()),
};
/// The Kullback-Leibler divergence: `t (ln t - x)`.
const DIVERGENCE: ElementwiseLoss = ElementwiseLoss {
    value: |[x, t, ..]| if t > 0.0 { t * (t.ln() - x) } else { 0.0 * x * t },
    slope: |[_, t, ..]| if t > 0.0 { -t } else { 0.0 },
};
/// The target is in log space.
const LOG_DIVERGENCE: ElementwiseLoss =
    ElementwiseLoss { value: |[x, t, ..]| t.exp() * (t - x), slope: |[_, t, ..]| -t.exp() };
/// Cross-entropy of a probability, with logarithms of at least -100.
const ENTROPY: ElementwiseLoss = ElementwiseLoss {
    value: |[x, t, w, _]| -w * (t * held(x.ln()) + (1.0 - t) * held((-x).ln_1p())),
    slope: |[x, t, w, _]| w * (x - t) / ((1.0 - x) * x).max(1e-12),
};
/// Cross-entropy of a logit; the fourth operand weighs positive targets.
const LOGIT_ENTROPY: ElementwiseLoss = ElementwiseLoss {
    value: |[x, t, w, p]| {
        let softplus = (-x).max(0.0) + (-x.abs()).exp().ln_1p();
        w * ((1.0 - t) * x + (1.0 + (p - 1.0) * t) * softplus)
    },
    slope: |[x, t, w, p]| w * ((1.0 - t) - (1.0 + (p - 1.0) * t) / (1.0 + x.exp())),
};

/// Returns the at least -100; keeps NaN, unlike [`f32::max`].
fn held(log: f32) -> f32 {
    if log < -100.0 { -100.0 } else { log }
}

fn sign(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

const LIMITS: &str = "one element type; the tensors broadcast; reduction 0 (none), 1 (mean), 2 (sum) or, of \
                      aclnnKlDiv, 3 (the sum divided by the first extent); the result has one element unless reduction \
                      is 0, and of aclnnMseLoss, aclnnL1Loss and aclnnSoftMarginLoss no dims";

/// Weights, result, maximum rank of a sum, and choice of the loss.
macro_rules! loss {
    ($name:literal, [$($weight:ident),*] -> $out:ident, $dims:literal, $chosen:expr) => {
        Operator {
            name: $name,
            parameters: &[
                input(SELF, FLOATING, 0, 8),
                input(TARGET, FLOATING, 0, 8),
                $(input($weight, FLOATING, 0, 8).optional(),)*
                output($out, FLOATING, 0, 8),
            ],
            limits: LIMITS,
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| forward(call, &[$($weight),*], $out, $dims, $chosen),
        }
    };
}

/// Like `loss`, preceded by the result's gradient.
macro_rules! slope {
    ($name:literal, $grad:ident, [$($weight:ident),*] -> $out:ident, $chosen:expr) => {
        Operator {
            name: $name,
            parameters: &[
                input($grad, FLOATING, 0, 8),
                input(SELF, FLOATING, 0, 8),
                input(TARGET, FLOATING, 0, 8),
                $(input($weight, FLOATING, 0, 8).optional(),)*
                output($out, FLOATING, 0, 8),
            ],
            limits: LIMITS,
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| backward(call, &[$($weight),*], $grad, $out, $chosen),
        }
    };
}

pub(crate) const OPERATORS: &[Operator] = &[
    loss!("aclnnMseLoss", [] -> OUT, 0, |_| Ok((SQUARE, 0.0))),
    slope!("aclnnMseLossBackward", GRAD_OUTPUT, [] -> OUT, |_| Ok((SQUARE, 0.0))),
    loss!("aclnnL1Loss", [] -> OUT, 0, |_| Ok((ABSOLUTE, 0.0))),
    slope!("aclnnL1LossBackward", GRAD_OUTPUT, [] -> GRAD_INPUT, |_| Ok((ABSOLUTE, 0.0))),
    loss!("aclnnSmoothL1Loss", [] -> RESULT, 8, smooth),
    slope!("aclnnSmoothL1LossBackward", GRAD_OUT, [] -> GRAD_INPUT, smooth),
    loss!("aclnnSoftMarginLoss", [] -> OUT, 0, |_| Ok((SOFT_MARGIN, 0.0))),
    slope!("aclnnSoftMarginLossBackward", GRAD_OUTPUT, [] -> OUT, |_| Ok((SOFT_MARGIN, 0.0))),
    loss!("aclnnKlDiv", [] -> OUT, 8, divergence),
    slope!("aclnnKlDivBackward", GRAD_OUTPUT, [] -> OUT, divergence),
    loss!("aclnnBinaryCrossEntropy", [WEIGHT] -> OUT, 8, |_| Ok((ENTROPY, 1.0))),
    slope!("aclnnBinaryCrossEntropyBackward", GRAD_OUTPUT, [WEIGHT_OPTIONAL] -> OUT, |_| Ok((ENTROPY, 1.0))),
    loss!("aclnnBinaryCrossEntropyWithLogits", [WEIGHT_OPTIONAL, POS_WEIGHT_OPTIONAL] -> OUT, 8, |_| {
        Ok((LOGIT_ENTROPY, 1.0))
    }),
    slope!(
        "aclnnBinaryCrossEntropyWithLogitsBackward", GRAD_OUTPUT, [WEIGHT_OPTIONAL, POS_WEIGHT_OPTIONAL] -> OUT,
        |_| Ok((LOGIT_ENTROPY, 1.0))
    ),
];

/// The loss, and the default of the fourth operand.
type Chosen = fn(&OperatorCall) -> Result<(ElementwiseLoss, f32), Refusal>;

fn smooth(call: &OperatorCall) -> Result<(ElementwiseLoss, f32), Refusal> {
    let beta = call.float(BETA_FLOAT)?;
    if beta < 0.0 {
        return Err(call.refuse(BETA_FLOAT, format!("expected at least 0, found {beta}")));
    }
    Ok((SMOOTH, beta as f32))
}

fn divergence(call: &OperatorCall) -> Result<(ElementwiseLoss, f32), Refusal> {
    Ok((if call.flag(LOG_TARGET)? { LOG_DIVERGENCE } else { DIVERGENCE }, 0.0))
}

/// A missing divisor means no reduction.
struct LossTerms {
    shape: Vec<usize>,
    slots: [Option<crate::operator::ViewIndex>; 4],
    absent: f32,
    divisor: Option<f32>,
}

impl LossTerms {
    fn of(call: &OperatorCall, weights: &[Name<CheckedTensor>], absent: f32) -> Result<Self, Refusal> {
        let x = call.tensor(SELF)?;
        let mut shape = x.dims.clone();
        let mut slots = [Some(x.slot), None, None, None];
        for (slot, &name) in slots[1..].iter_mut().zip([TARGET].iter().chain(weights)) {
            let Some(tensor) = call.tensor_if_given(name)? else { continue };
            call.expect_dtype(name, x.dtype, "that of self")?;
            shape = crate::operator::call::broadcast(&shape, &tensor.dims).ok_or_else(|| {
                call.refuse(
                    name,
                    format!("{:?} does not broadcast with {shape:?} of those before it", tensor.dims),
                )
            })?;
            *slot = Some(tensor.slot);
        }
        // Only the divergence has this parameter and sums by sample.
        let most = if call.flag(LOG_TARGET).is_ok() { 3 } else { 2 };
        let divisor = match call.int(REDUCTION)? {
            0 => None,
            1 => Some(shape.iter().product::<usize>() as f32),
            2 => Some(1.0),
            3 if most == 3 => Some(shape.first().copied().unwrap_or(1) as f32),
            other => return Err(call.refuse(REDUCTION, format!("expected 0 to {most}, found {other}"))),
        };
        Ok(Self { shape, slots, absent, divisor })
    }

    fn operands(&self, views: &crate::operator::StridedViews<'_>) -> [Option<StridedView>; 4] {
        self.slots.map(|slot| slot.map(|slot| views.of(slot).broadcast_to(&self.shape).collapsed()))
    }

    fn fill(
        &self,
        operands: &[Option<StridedView>; 4],
        start: usize,
        out: &mut [f32],
        function: fn([f32; 4]) -> f32,
    ) {
        let mut buffers = [[0f32; BLOCK]; 4];
        // A missing weight is 1; the fourth operand may be an attribute.
        for ((buffer, operand), absent) in buffers.iter_mut().zip(operands).zip([0.0, 0.0, 1.0, self.absent])
        {
            match operand {
                Some(view) => f32::load(view, start, &mut buffer[..out.len()]),
                None => buffer[..out.len()].fill(absent),
            }
        }
        for (i, value) in out.iter_mut().enumerate() {
            *value = function(buffers.map(|buffer| buffer[i]));
        }
    }
}

fn forward(
    call: &OperatorCall,
    weights: &[Name<CheckedTensor>],
    out: Name<CheckedTensor>,
    most_dims: usize,
    chosen: Chosen,
) -> Result<CallPlan, Refusal> {
    let (loss, absent) = chosen(call)?;
    let terms = LossTerms::of(call, weights, absent)?;
    call.expect_dtype(out, call.tensor(SELF)?.dtype, "the type of self")?;
    let target = call.tensor(out)?;
    if terms.divisor.is_none() {
        call.expect_shape(out, &terms.shape, "to which the tensors broadcast")?;
    } else if target.len() != 1 {
        return Err(call.refuse(out, format!("expected one element, found {:?}", target.dims)));
    } else if target.dims.len() > most_dims {
        return Err(call.refuse(out, format!("expected a tensor without dims, found {:?}", target.dims)));
    }
    let out = target.slot;
    CallPlan::new(move |views, tiles| {
        let (operands, target) = (terms.operands(views), views.of(out).collapsed());
        let total: usize = terms.shape.iter().product();
        let Some(divisor) = terms.divisor else {
            blocks(tiles, total, &|start, len| {
                let mut block = [0f32; BLOCK];
                terms.fill(&operands, start, &mut block[..len], loss.value);
                f32::store(&target, start, &block[..len]);
            });
            return Ok(());
        };
        let mut sum = 0f64;
        for start in (0..total).step_by(BLOCK) {
            let mut block = [0f32; BLOCK];
            let block = &mut block[..BLOCK.min(total - start)];
            terms.fill(&operands, start, block, loss.value);
            sum += f64::from(math::sum(block));
        }
        f32::store(&target, 0, &[(sum / f64::from(divisor)) as f32]);
        Ok(())
    })
}

fn backward(
    call: &OperatorCall,
    weights: &[Name<CheckedTensor>],
    grad: Name<CheckedTensor>,
    out: Name<CheckedTensor>,
    chosen: Chosen,
) -> Result<CallPlan, Refusal> {
    let (loss, absent) = chosen(call)?;
    let terms = LossTerms::of(call, weights, absent)?;
    let g = call.tensor(grad)?;
    for name in [grad, out] {
        call.expect_dtype(name, call.tensor(SELF)?.dtype, "the type of self")?;
    }
    call.expect_shape(out, &terms.shape, "to which the tensors broadcast")?;
    if crate::operator::call::broadcast(&terms.shape, &g.dims).as_ref() != Some(&terms.shape) {
        return Err(call.refuse(grad, format!("{:?} does not broadcast to {:?}", g.dims, terms.shape)));
    }
    let (g, out) = (g.slot, call.tensor(out)?.slot);
    CallPlan::new(move |views, tiles| {
        let (operands, target) = (terms.operands(views), views.of(out).collapsed());
        let grads = views.of(g).broadcast_to(&terms.shape).collapsed();
        blocks(tiles, terms.shape.iter().product(), &|start, len| {
            let (mut block, mut own) = ([0f32; BLOCK], [0f32; BLOCK]);
            terms.fill(&operands, start, &mut block[..len], loss.slope);
            f32::load(&grads, start, &mut own[..len]);
            for (slope, grad) in block[..len].iter_mut().zip(&own) {
                *slope *= grad / terms.divisor.unwrap_or(1.0);
            }
            f32::store(&target, start, &block[..len]);
        });
        Ok(())
    })
}
