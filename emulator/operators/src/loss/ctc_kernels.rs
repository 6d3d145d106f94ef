//! The connectionist temporal classification (CTC) loss and its gradient.
//!
//! - Shapes: log probabilities `[steps, samples, classes]`, forward variables `[samples, steps,
//!   states]`. A path has a blank before, between and after labels: `2 * labels + 1` states.
//! - Invariants: computed in f64 and rounded once. Labels are checked before any write.

use crate::Tiles;
use crate::lane::Lane;
use crate::reduction::kernels::rows_with;
use crate::view::StridedView;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CtcSample {
    pub(crate) steps: usize,
    pub(crate) labels: usize,
    /// Among the labels of all samples.
    pub(crate) first: usize,
}

impl CtcSample {
    fn states(&self) -> usize {
        2 * self.labels + 1
    }

    /// Each label needs a step.
    fn has_path(&self) -> bool {
        self.labels <= self.steps
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CtcBatch {
    pub(crate) samples: Vec<CtcSample>,
    pub(crate) classes: usize,
    pub(crate) blank: usize,
    /// An infinite loss becomes zero.
    pub(crate) zero_infinity: bool,
}

impl CtcBatch {
    fn path(&self, labels: &StridedView, sample: CtcSample) -> Vec<usize> {
        let mut own = vec![0i64; sample.labels];
        i64::load(labels, sample.first, &mut own);
        let mut path = vec![self.blank; sample.states()];
        own.iter().enumerate().for_each(|(i, &label)| path[2 * i + 1] = label as usize);
        path
    }

    /// Checks only samples that `is_read` selects.
    fn check(&self, labels: &StridedView, is_read: impl Fn(&CtcSample) -> bool) -> Result<(), String> {
        for (at, sample) in self.samples.iter().enumerate().filter(|(_, sample)| is_read(sample)) {
            for i in 0..sample.labels {
                let mut label = [0i64];
                i64::load(labels, sample.first + i, &mut label);
                let class = usize::try_from(label[0])
                    .ok()
                    .filter(|&class| class < self.classes && class != self.blank);
                if class.is_none() {
                    let (found, classes, blank) = (label[0], self.classes, self.blank);
                    return Err(format!(
                        "label {found} of sample {at} is outside 0..{classes} or the blank, {blank}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn along(&self, logs: &StridedView, step: usize, at: usize, path: &[usize]) -> Vec<f64> {
        let start = (step * self.samples.len() + at) * self.classes;
        let mut one = [0f32];
        let mut log = |class: usize| {
            f32::load(logs, start + class, &mut one);
            f64::from(one[0])
        };
        let blank = log(self.blank);
        path.iter().map(|&class| if class == self.blank { blank } else { log(class) }).collect()
    }
}

fn log_sum(terms: &[f64]) -> f64 {
    let most = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        // The sum keeps NaN, unlike `f64::max`.
        return terms.iter().fold(most, |sum, term| sum + term);
    }
    most + terms.iter().map(|term| (term - most).exp()).sum::<f64>().ln()
}

/// Counts the states that lead to `state`: itself, the one before, and the state before the blank
/// if that label differs.
fn reach(path: &[usize], state: usize, blank: usize) -> usize {
    match state {
        0 => 1,
        1 => 2,
        _ if path[state] == blank || path[state] == path[state - 2] => 2,
        _ => 3,
    }
}

/// Forward variables are log likelihoods of path prefixes per step and state. Missing steps and
/// states get the log of 0.
pub(crate) fn loss(
    tiles: &dyn Tiles,
    logs: &StridedView,
    labels: &StridedView,
    batch: &CtcBatch,
    losses: &StridedView,
    alphas: &StridedView,
) -> Result<(), String> {
    let (steps, width) = (alphas.dims()[1], alphas.dims()[2]);
    let [logs, labels, losses, alphas] = [logs, labels, losses, alphas].map(StridedView::collapsed);
    batch.check(&labels, |_| true)?;
    rows_with(
        tiles,
        batch.samples.len(),
        steps * width,
        || vec![0f32; width],
        |row, at| {
            let sample = batch.samples[at];
            let path = batch.path(&labels, sample);
            let mut alpha = vec![f64::NEG_INFINITY; path.len()];
            let mut last = f64::NEG_INFINITY;
            for step in 0..steps {
                row.fill(f32::NEG_INFINITY);
                if step < sample.steps {
                    let own = batch.along(&logs, step, at, &path);
                    let next = |state: usize| match step {
                        0 if state < 2 => own[state],
                        0 => f64::NEG_INFINITY,
                        _ => {
                            let first = state + 1 - reach(&path, state, batch.blank);
                            log_sum(&alpha[first..=state]) + own[state]
                        }
                    };
                    alpha = (0..path.len()).map(next).collect();
                    row.iter_mut().zip(&alpha).for_each(|(to, from)| *to = *from as f32);
                    last = log_sum(&alpha[path.len().saturating_sub(2)..]);
                }
                f32::store(&alphas, (at * steps + step) * width, row);
            }
            let loss = if batch.zero_infinity && last == f64::NEG_INFINITY { 0.0 } else { -last };
            f32::store(&losses, at, &[loss as f32]);
        },
    );
    Ok(())
}

/// The gradient for log probabilities from a softmax is `(p - q) * grad` per step. `p` is the class
/// probability and `q` its share in the label paths, or 0 without a path. Steps past the length get
/// 0.
pub(crate) fn loss_grad(
    tiles: &dyn Tiles,
    [grads, losses]: [&StridedView; 2],
    logs: &StridedView,
    labels: &StridedView,
    alphas: &StridedView,
    batch: &CtcBatch,
    out: &StridedView,
) -> Result<(), String> {
    let (steps, width) = (alphas.dims()[1], alphas.dims()[2]);
    let [grads, losses, logs, labels] = [grads, losses, logs, labels].map(StridedView::collapsed);
    let (alphas, out) = (alphas.collapsed(), out.collapsed());
    batch.check(&labels, CtcSample::has_path)?;
    let buffers = || vec![0f32; batch.classes];
    rows_with(tiles, batch.samples.len(), steps * batch.classes, buffers, |row, at| {
        let sample = batch.samples[at];
        let [mut grad, mut loss] = [[0f32]; 2];
        f32::load(&grads, at, &mut grad);
        f32::load(&losses, at, &mut loss);
        let path = if sample.has_path() { batch.path(&labels, sample) } else { Vec::new() };
        let place = |step: usize| (step * batch.samples.len() + at) * batch.classes;
        let alpha_at = |step: usize| {
            let mut alpha = vec![0f32; path.len()];
            f32::load(&alphas, (at * steps + step) * width, &mut alpha);
            alpha
        };
        let ends = |alpha: &[f32]| alpha.iter().rev().take(2).any(|&end| end != f32::NEG_INFINITY);
        let is_possible = sample.has_path() && ends(&alpha_at(sample.steps - 1));
        let mut beta = Vec::new();
        for step in (0..steps).rev() {
            row.fill(0.0);
            let is_left_out = batch.zero_infinity && !is_possible;
            if step < sample.steps && !is_possible && !batch.zero_infinity {
                row.fill(f32::NAN);
            } else if step < sample.steps && !is_left_out {
                let own = batch.along(&logs, step, at, &path);
                beta = before(&beta, &own, &path, batch.blank);
                f32::load(&logs, place(step), row);
                let mut among = std::collections::BTreeMap::<usize, Vec<f64>>::new();
                for ((class, alpha), beta) in path.iter().zip(alpha_at(step)).zip(&beta) {
                    among.entry(*class).or_default().push(f64::from(alpha) + beta);
                }
                let shares: Vec<(usize, f64)> = among
                    .iter()
                    .map(|(&class, terms)| {
                        (class, log_sum(terms) + f64::from(loss[0]) - f64::from(row[class]))
                    })
                    .collect();
                row.iter_mut().for_each(|log| *log = log.exp() * grad[0]);
                for (class, share) in shares {
                    let mut log = [0f32];
                    f32::load(&logs, place(step) + class, &mut log);
                    row[class] = ((f64::from(log[0]).exp() - share.exp()) * f64::from(grad[0])) as f32;
                }
            }
            f32::store(&out, place(step), row);
        }
    });
    Ok(())
}

/// Returns the backward variables from the next step; `behind` is empty at the last step.
fn before(behind: &[f64], own: &[f64], path: &[usize], blank: usize) -> Vec<f64> {
    let states = path.len();
    let next = |state: usize| {
        if behind.is_empty() {
            return if state + 2 >= states { own[state] } else { f64::NEG_INFINITY };
        }
        let to = |after: usize| after < states && reach(path, after, blank) > after - state;
        let terms: Vec<f64> =
            (state..state + 3).filter(|&after| to(after)).map(|after| behind[after]).collect();
        log_sum(&terms) + own[state]
    };
    (0..states).map(next).collect()
}
