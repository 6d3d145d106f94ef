//! The meaning of the ops of training with compressed gradients. Formulas in f64, rounded once.

use crate::program::op::Kind;

use super::HostTensor;
use super::training::{doubles, like};

pub(in crate::program) fn adamw_scale(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let Kind::AdamWScale { correction, epsilon } = *kind else { unreachable!("adamw_scale's kind") };
    let least = f64::from(operands[1].floats()[0]);
    let scale: Vec<f64> = doubles(operands[0]).map(|v| ((v + least) / correction).sqrt() + epsilon).collect();
    let inverse = like(operands[0], scale.iter().map(|d| d.recip()));
    vec![like(operands[0], scale), inverse]
}

pub(in crate::program) fn adamw(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let Kind::FrozenAdamW { beta1, decay } = *kind else { unreachable!("frozen_adamw's kind") };
    let [w, m, r, g, factor, rate, corrected] = operands else { unreachable!("frozen_adamw takes seven operands") };
    let number = |x: &HostTensor| f64::from(x.floats()[0]);
    let (factor, rate, corrected) = (number(factor), number(rate), number(corrected));
    let m: Vec<f64> = doubles(m).zip(doubles(g)).map(|(m, g)| beta1 * m + (1.0 - beta1) * g * factor).collect();
    let moved = doubles(w).zip(doubles(r)).zip(&m).map(|((w, r), m)| w * (1.0 - rate * decay) - corrected * m * r);
    let moved = like(w, moved);
    vec![like(operands[1], m), moved]
}

/// What one card does; the parts of several are no part of a program over whole tensors.
pub(in crate::program) fn compressed_sum(_: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let sum = doubles(operands[0]).zip(doubles(operands[1])).map(|(x, kept)| x + kept);
    vec![like(operands[1], doubles(operands[1]).map(|_| 0.0)), like(operands[0], sum)]
}
