//! Cross-entropy of scores `[rows, classes]` against labels `[rows]`, and its gradient.
//!
//! Invariants: rows use f32 and are rounded once. Losses add up in row order. Rows with an ignored
//! label do not count. Every label is checked before any write.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::Tiles;
use crate::lane::Lane;
use crate::math;
use crate::reduction::kernels::rows_with;
use crate::view::StridedView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossReduction {
    None,
    Sum,
    /// Divided by the sum of the label weights.
    Mean,
}

#[derive(Clone, Copy, Debug)]
struct Label {
    class: usize,
    weight: f32,
}

/// Labels of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossTargets<'a> {
    /// Class of each row.
    pub(crate) classes: &'a StridedView,
    /// Weight of each class, 1 by default.
    pub(crate) weights: Option<&'a StridedView>,
    pub(crate) ignored: i64,
}

impl LossTargets<'_> {
    /// Returns `None` for ignored labels.
    fn labels(&self, classes: usize) -> Result<Vec<Option<Label>>, String> {
        let ignored = self.ignored;
        let mut raw = vec![0i64; self.classes.len()];
        i64::load(&self.classes.collapsed(), 0, &mut raw);
        let weights = self.weights.map(StridedView::collapsed);
        let weight_of = |class: usize| {
            let mut weight = [1f32];
            weights.iter().for_each(|weights| f32::load(weights, class, &mut weight));
            weight[0]
        };
        let label = |(row, &value): (usize, &i64)| match usize::try_from(value) {
            _ if value == ignored => Ok(None),
            Ok(class) if class < classes => Ok(Some(Label { class, weight: weight_of(class) })),
            _ => {
                Err(format!("label {value} of row {row} is outside 0..{classes} and not ignored ({ignored})"))
            }
        };
        raw.iter().enumerate().map(label).collect()
    }
}

fn total_weight(labels: &[Option<Label>]) -> f32 {
    let weights: Vec<f32> = labels.iter().map(|label| label.map_or(0.0, |label| label.weight)).collect();
    math::sum(&weights)
}

/// Computes the loss `-weight * log_probability[label]`, and log probabilities.
pub(crate) fn cross_entropy(
    tiles: &dyn Tiles,
    scores: &StridedView,
    targets: LossTargets<'_>,
    reduction: LossReduction,
    loss: &StridedView,
    log_probabilities: &StridedView,
) -> Result<(), String> {
    let (count, classes) = (scores.dims()[0], scores.dims()[1]);
    let labels = targets.labels(classes)?;
    let losses: Vec<AtomicU32> = labels.iter().map(|_| AtomicU32::new(0)).collect();
    let (scores, log_probabilities) = (scores.collapsed(), log_probabilities.collapsed());
    let buffers = || [vec![0f32; classes], vec![0f32; classes]];
    rows_with(tiles, count, classes, buffers, |[values, powers], row| {
        f32::load(&scores, row * classes, values);
        powers.copy_from_slice(values);
        let max = math::greatest(values);
        math::subtract(values, max + math::exp_shifted(powers, max).ln());
        f32::store(&log_probabilities, row * classes, values);
        let own = labels[row].map_or(0.0, |label| -values[label.class] * label.weight);
        losses[row].store(own.to_bits(), Ordering::Relaxed);
    });
    let losses: Vec<f32> = losses.iter().map(|bits| f32::from_bits(bits.load(Ordering::Relaxed))).collect();
    match reduction {
        LossReduction::None => f32::store(&loss.collapsed(), 0, &losses),
        LossReduction::Sum => f32::store(&loss.collapsed(), 0, &[math::sum(&losses)]),
        LossReduction::Mean => {
            f32::store(&loss.collapsed(), 0, &[math::sum(&losses) / total_weight(&labels)]);
        }
    }
    Ok(())
}

/// Computes against one distribution per row: loss `-sum(y * log(softmax(x)))` and gradient
/// `softmax(x) - y`.
pub(crate) fn between_distributions(
    tiles: &dyn Tiles,
    x: &StridedView,
    y: &StridedView,
    loss: &StridedView,
    grad: &StridedView,
) {
    let (count, classes) = (x.dims()[0], x.dims()[1]);
    let [x, y, loss, grad] = [x, y, loss, grad].map(StridedView::collapsed);
    let buffers = || [vec![0f32; classes], vec![0f32; classes], vec![0f32; classes]];
    rows_with(tiles, count, classes, buffers, |[scores, powers, labels], row| {
        f32::load(&x, row * classes, scores);
        f32::load(&y, row * classes, labels);
        powers.copy_from_slice(scores);
        let max = math::greatest(scores);
        let total = math::exp_shifted(powers, max);
        math::subtract(scores, max + total.ln());
        f32::store(&loss, row, &[0.0 - math::dot(labels, scores)]);
        math::divide(powers, total);
        powers.iter_mut().zip(labels).for_each(|(power, label)| *power -= *label);
        f32::store(&grad, row * classes, powers);
    });
}

/// Computes the loss `-weight * log_probability[label]`, and the sum of the label weights unless
/// each row keeps its loss.
pub(crate) fn negative_log_likelihood(
    log_probabilities: &StridedView,
    targets: LossTargets<'_>,
    reduction: LossReduction,
    loss: &StridedView,
    total: &StridedView,
) -> Result<(), String> {
    let classes = log_probabilities.dims()[log_probabilities.rank() - 1];
    let labels = targets.labels(classes)?;
    let log_probabilities = log_probabilities.collapsed();
    let mut losses = vec![0f32; labels.len()];
    for (row, label) in labels.iter().enumerate() {
        let Some(label) = label else { continue };
        f32::load(&log_probabilities, row * classes + label.class, &mut losses[row..=row]);
        losses[row] *= -label.weight;
    }
    let weight = total_weight(&labels);
    match reduction {
        LossReduction::None => f32::store(&loss.collapsed(), 0, &losses),
        LossReduction::Sum => f32::store(&loss.collapsed(), 0, &[math::sum(&losses)]),
        LossReduction::Mean => f32::store(&loss.collapsed(), 0, &[math::sum(&losses) / weight]),
    }
    if reduction != LossReduction::None {
        f32::store(&total.collapsed(), 0, &[weight]);
    }
    Ok(())
}

/// Computes `-weight * grad` at the label of each row, 0 elsewhere. For a mean, divided by `total`,
/// the sum of the weights.
pub(crate) fn negative_log_likelihood_grad(
    tiles: &dyn Tiles,
    grad: &StridedView,
    targets: LossTargets<'_>,
    reduction: LossReduction,
    total: &StridedView,
    out: &StridedView,
) -> Result<(), String> {
    let classes = out.dims()[out.rank() - 1];
    let labels = targets.labels(classes)?;
    let mut grads = vec![0f32; grad.len()];
    f32::load(&grad.collapsed(), 0, &mut grads);
    if reduction == LossReduction::Mean {
        let mut weight = [0f32];
        f32::load(&total.collapsed(), 0, &mut weight);
        math::divide(&mut grads, weight[0]);
    }
    crate::elementwise::kernels::fill(tiles, out, 0f32);
    let out = out.collapsed();
    for (row, label) in labels.iter().enumerate() {
        let Some(label) = label else { continue };
        let factor = grads[if reduction == LossReduction::None { row } else { 0 }];
        f32::store(&out, row * classes + label.class, &[-label.weight * factor]);
    }
    Ok(())
}

/// Computes gradients of logits: `weight * grad * (probability - [is the label])`.
pub(crate) fn cross_entropy_grad(
    tiles: &dyn Tiles,
    grad: &StridedView,
    log_probabilities: &StridedView,
    targets: LossTargets<'_>,
    reduction: LossReduction,
    out: &StridedView,
) -> Result<(), String> {
    let (count, classes) = (out.dims()[0], out.dims()[1]);
    let labels = targets.labels(classes)?;
    let mut grads = vec![0f32; grad.len()];
    f32::load(&grad.collapsed(), 0, &mut grads);
    if reduction == LossReduction::Mean {
        math::divide(&mut grads, total_weight(&labels));
    }
    let (log_probabilities, out) = (log_probabilities.collapsed(), out.collapsed());
    rows_with(
        tiles,
        count,
        classes,
        || vec![0f32; classes],
        |values, row| {
            if let Some(label) = labels[row] {
                let factor = grads[if reduction == LossReduction::None { row } else { 0 }] * label.weight;
                f32::load(&log_probabilities, row * classes, values);
                math::exp_scaled(values, 1.0, 0.0, factor);
                values[label.class] -= factor;
            } else {
                values.fill(0.0);
            }
            f32::store(&out, row * classes, values);
        },
    );
    Ok(())
}
