//! Reference implementations of ops for training with compressed gradients. They compute in f64 and
//! round once.

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
    let Kind::FrozenAdamW { decay } = *kind else { unreachable!("frozen_adamw's kind") };
    let [w, m, r, sum, factor, rate, corrected] = operands else {
        unreachable!("frozen_adamw takes seven operands")
    };
    let number = |x: &HostTensor| f64::from(x.floats()[0]);
    let (factor, rate, corrected) = (number(factor), number(rate), number(corrected));
    let moment: Vec<f64> = doubles(sum).map(|sum| sum * factor).collect();
    let step = doubles(w).zip(doubles(r)).zip(&moment);
    let moved = like(w, step.map(|((w, r), moment)| w * (1.0 - rate * decay) - corrected * moment * r));
    vec![like(m, moment), moved]
}

/// Result for a single device, because a program over whole tensors has no partial sums.
pub(in crate::program) fn compressed_sum(_: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let [x, kept, whole] = operands else { unreachable!("compressed_sum takes three operands") };
    let sum = doubles(x).zip(doubles(kept)).zip(doubles(whole)).map(|((x, kept), whole)| x + kept + whole);
    vec![like(operands[1], doubles(operands[1]).map(|_| 0.0)), like(operands[0], sum)]
}
