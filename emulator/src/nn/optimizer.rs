//! Steps of optimizers: parameters and their moments, rewritten in place.
//!
//! Input: views of one shape and the scalars of a step. Output: the same views.
//! Invariants: an element is read once, computed in f32, and each result is rounded once when it is stored; a step is the
//! composition of elementwise operators that it names, with the same bits.

use super::Tiles;
use super::elementwise::{blocks_with, rooms};
use super::lane::Lane;
use super::view::View;
use crate::simd::dispatched;

/// The scalars of a step of [`adam_w`], each rounded to f32 once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamW {
    /// `1 - lr * weight_decay`.
    pub(crate) keep: f32,
    /// `1 - beta1`.
    pub(crate) first: f32,
    /// `beta2`.
    pub(crate) second_kept: f32,
    /// `1 - beta2`.
    pub(crate) second: f32,
    /// `sqrt(1 - beta2^t)`.
    pub(crate) root: f32,
    /// Added to the root of the second moment.
    pub(crate) eps: f32,
    /// `lr / (1 - beta1^t)`.
    pub(crate) rate: f32,
    /// 1 to go down, -1 to go up.
    pub(crate) sign: f32,
}

/// What an optimizer calls its scalars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamWRates {
    /// Learning rate.
    pub(crate) lr: f64,
    /// Share of the first moment that stays.
    pub(crate) beta1: f64,
    /// Share of the second moment that stays.
    pub(crate) beta2: f64,
    /// Decoupled decay of the parameters.
    pub(crate) weight_decay: f64,
    /// Added to the root of the second moment.
    pub(crate) eps: f64,
}

impl AdamW {
    /// The scalars of step `t`, counted from 1.
    pub(crate) fn at(rates: AdamWRates, t: f64, sign: f32) -> Self {
        let AdamWRates { lr, beta1, beta2, weight_decay, eps } = rates;
        Self {
            keep: (1.0 - lr * weight_decay) as f32,
            first: (1.0 - beta1) as f32,
            second_kept: beta2 as f32,
            second: (1.0 - beta2) as f32,
            root: (1.0 - beta2.powf(t)).sqrt() as f32,
            eps: eps as f32,
            rate: (lr / (1.0 - beta1.powf(t))) as f32,
            sign,
        }
    }

    /// The greater of a second moment and of all before it, or the moment itself; then the step of one element.
    #[inline(always)]
    fn step(&self, [parameter, first, second, greatest]: [&mut f32; 4], grad: f32, keeps_greatest: bool) {
        let grad = grad * self.sign;
        let kept = *parameter * self.keep;
        *first += self.first * (grad - *first);
        *second = *second * self.second_kept + self.second * (grad * grad);
        *greatest = if !keeps_greatest || *second > *greatest || second.is_nan() { *second } else { *greatest };
        let spread = greatest.sqrt() / self.root + self.eps;
        *parameter = kept - self.rate * (*first / spread);
    }
}

dispatched! {
    /// A step of a block; `greatest` is scratch.
    fn step(adam: &AdamW, state: [&mut [f32]; 4], grads: &[f32]) {
        let [parameters, firsts, seconds, greatest] = state;
        let moments = firsts.iter_mut().zip(seconds).zip(greatest);
        for ((parameter, ((first, second), greatest)), grad) in parameters.iter_mut().zip(moments).zip(grads) {
            adam.step([parameter, first, second, greatest], *grad, false);
        }
    }
}

dispatched! {
    /// As [`step`], with the greatest second moments in the place of the last.
    fn step_of_greatest(adam: &AdamW, state: [&mut [f32]; 4], grads: &[f32]) {
        let [parameters, firsts, seconds, greatest] = state;
        let moments = firsts.iter_mut().zip(seconds).zip(greatest);
        for ((parameter, ((first, second), greatest)), grad) in parameters.iter_mut().zip(moments).zip(grads) {
            adam.step([parameter, first, second, greatest], *grad, true);
        }
    }
}

/// A step of `AdamW` (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019) on parameters, first and second
/// moments, and, for `AMSGrad`, the greatest second moments; all views have one shape.
///
/// `p *= keep; m += first * (g - m); v = v * beta2 + second * (g * g); p -= rate * (m / (sqrt(v) / root + eps))`: the order of
/// `aclnnInplaceMuls`, `aclnnInplaceLerps`, `aclnnInplaceMuls` and `aclnnInplaceAddcmul`, `aclnnSqrt`, `aclnnDivs`,
/// `aclnnAdds` and `aclnnInplaceAddcdiv`, whose bits in f32 these are.
pub(crate) fn adam_w(tiles: &dyn Tiles, adam: &AdamW, state: [&View; 3], greatest: Option<&View>, grad: &View) {
    let total = grad.len();
    let [parameter, first, second] = state.map(View::collapsed);
    let (greatest, grad) = (greatest.map(View::collapsed), grad.collapsed());
    blocks_with(tiles, total, rooms, |[p, m, v, top, g]: &mut [_; 5], start, len| {
        let [p, m, v, top, g] = [p, m, v, top, g].map(|room| &mut room[..len]);
        f32::load(&parameter, start, p);
        f32::load(&first, start, m);
        f32::load(&second, start, v);
        f32::load(&grad, start, g);
        if let Some(greatest) = &greatest {
            f32::load(greatest, start, top);
            step_of_greatest(adam, [&mut *p, &mut *m, &mut *v, &mut *top], g);
            f32::store(greatest, start, top);
        } else {
            step(adam, [&mut *p, &mut *m, &mut *v, top], g);
        }
        f32::store(&parameter, start, p);
        f32::store(&first, start, m);
        f32::store(&second, start, v);
    });
}
