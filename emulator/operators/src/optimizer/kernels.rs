//! Optimizer steps in place.
//!
//! Each element is read once, computed in f32, and rounded once. A step gives the bits of the named
//! elementwise operators in sequence.

use crate::Tiles;
use crate::elementwise::kernels::{blocks_with, buffers};
use crate::lane::Lane;
use crate::simd::isa::dispatched;
use crate::view::StridedView;

/// Each scalar is rounded to f32 once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamW {
    /// `1 - lr * weight_decay`, the decay of the parameter.
    pub(crate) keep: f32,
    /// Weight of the gradient in the first moment, `1 - beta1`.
    pub(crate) first: f32,
    /// Weight of the old second moment, `beta2`.
    pub(crate) second_kept: f32,
    /// Weight of the squared gradient, `1 - beta2`.
    pub(crate) second: f32,
    /// Root of the bias correction, `sqrt(1 - beta2^t)`.
    pub(crate) root: f32,
    /// Added to the root of the second moment.
    pub(crate) eps: f32,
    /// Learning rate with bias correction, `lr / (1 - beta1^t)`.
    pub(crate) rate: f32,
    /// 1 to minimise, -1 to maximise.
    pub(crate) sign: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamWRates {
    pub(crate) lr: f64,
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) weight_decay: f64,
    pub(crate) eps: f64,
}

impl AdamW {
    /// The first step is 1.
    pub(crate) fn at(rates: AdamWRates, t: f64, sign: f32) -> Self {
        Self::of_powers(rates, [rates.beta1.powf(t), rates.beta2.powf(t)], sign)
    }

    /// Computes the scalars from `beta1^t` and `beta2^t`.
    pub(crate) fn of_powers(rates: AdamWRates, [power1, power2]: [f64; 2], sign: f32) -> Self {
        let AdamWRates { lr, beta1, beta2, weight_decay, eps } = rates;
        Self {
            keep: (1.0 - lr * weight_decay) as f32,
            first: (1.0 - beta1) as f32,
            second_kept: beta2 as f32,
            second: (1.0 - beta2) as f32,
            root: (1.0 - power2).sqrt() as f32,
            eps: eps as f32,
            rate: (lr / (1.0 - power1)) as f32,
            sign,
        }
    }

    #[inline(always)]
    fn moments(&self, first: f32, second: f32, grad: f32) -> (f32, f32) {
        let grad = grad * self.sign;
        (first + self.first * (grad - first), second * self.second_kept + self.second * (grad * grad))
    }

    #[inline(always)]
    fn parameter(&self, parameter: f32, first: f32, second: f32) -> f32 {
        parameter * self.keep - self.rate * (first / (second.sqrt() / self.root + self.eps))
    }
}

dispatched! {
    /// Separate slices cannot overlap, so the loop vectorises.
    fn step(adam: AdamW, parameters: &mut [f32], firsts: &mut [f32], seconds: &mut [f32], grads: &[f32]) {
        for (((parameter, first), second), grad) in parameters.iter_mut().zip(firsts).zip(seconds).zip(grads) {
            (*first, *second) = adam.moments(*first, *second, *grad);
            *parameter = adam.parameter(*parameter, *first, *second);
        }
    }
}

dispatched! {
    fn step_moments(adam: AdamW, firsts: &mut [f32], seconds: &mut [f32], greatest: &mut [f32], grads: &[f32]) {
        for (((first, second), greatest), grad) in firsts.iter_mut().zip(seconds).zip(greatest).zip(grads) {
            (*first, *second) = adam.moments(*first, *second, *grad);
            // Keeps NaN.
            *greatest = if *second <= *greatest { *greatest } else { *second };
        }
    }
}

dispatched! {
    fn step_parameters(adam: AdamW, parameters: &mut [f32], firsts: &[f32], seconds: &[f32]) {
        for ((parameter, first), second) in parameters.iter_mut().zip(firsts).zip(seconds) {
            *parameter = adam.parameter(*parameter, *first, *second);
        }
    }
}

/// Runs a step of `AdamW` (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019),
/// or of `AMSGrad` with the greatest second moments.
///
/// `p *= keep; m += first * (g - m); v = v * beta2 + second * (g * g); p -= rate * (m / (sqrt(v) /
/// root + eps))`. The f32 bits equal the sequence `aclnnInplaceMuls`, `aclnnInplaceLerps`,
/// `aclnnInplaceMuls` and `aclnnInplaceAddcmul`, `aclnnSqrt`, `aclnnDivs`, `aclnnAdds`,
/// `aclnnInplaceAddcdiv`.
pub(crate) fn adam_w(
    tiles: &dyn Tiles,
    adam: &AdamW,
    state: [&StridedView; 3],
    greatest: Option<&StridedView>,
    grad: &StridedView,
) {
    let total = grad.len();
    let [parameter, first, second] = state.map(StridedView::collapsed);
    let (greatest, grad) = (greatest.map(StridedView::collapsed), grad.collapsed());
    blocks_with(tiles, total, buffers, |[p, m, v, top, g]: &mut [_; 5], start, len| {
        let [p, m, v, top, g] = [p, m, v, top, g].map(|buffer| &mut buffer[..len]);
        f32::load(&parameter, start, p);
        f32::load(&first, start, m);
        f32::load(&second, start, v);
        f32::load(&grad, start, g);
        if let Some(greatest) = &greatest {
            f32::load(greatest, start, top);
            step_moments(*adam, m, v, top, g);
            step_parameters(*adam, p, m, top);
            f32::store(greatest, start, top);
        } else {
            step(*adam, p, m, v, g);
        }
        f32::store(&parameter, start, p);
        f32::store(&first, start, m);
        f32::store(&second, start, v);
    });
}
