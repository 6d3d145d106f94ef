//! How far a card may be from the meaning of one op, given the operands the card had.
//!
//! Comparing op by op needs no propagation of errors: each op is interpreted on the operands as the cards hold them
//! together, and only its own rounding may separate the two. With `u` the unit roundoff of the element type and
//! `v = 2^-24` that of f32, in which cards compute:
//!
//! - what is computed in f32 and stored once is off by `u |y|` plus the f32 error of the formula; a second store in the
//!   element type adds another `u`;
//! - a sum of `n` products in any order is off by `n v Σ|a||b|` (Higham, Accuracy and Stability, 3.5);
//! - a result in parts is rounded part by part: `u` applies to the sum of the parts' absolute values.
//!
//! - a quantised product whose rows are split is a sum of products with other steps: each operand is off by half its step
//!   in the whole row and by half a smaller one in a part, so the sum by at most `t Σ|w|` scales, `t` the whole row's.
//!
//! The oracle itself is rounded once, to the element type: another `u |y|`.

use std::collections::BTreeMap;

use ascend_tp::base::{DType, Shape};
use ascend_tp::placement::Placed;
use ascend_tp::program::interpret::{HostData, meaning};
use ascend_tp::program::{Einsum, HostTensor, Kind, Op};

use super::assemble::{Whole, indices, unit_roundoff};

const V: f64 = 5.960_464_477_539_063e-8;

/// How far a number is rounded that has no neighbour as close as `u` says: half the smallest subnormal of f16, on each
/// of at most 8 cards. The other types have subnormals that no test comes near.
const fn underflow(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 8.0 / (1_u64 << 25) as f64,
        _ => 0.0,
    }
}

/// For each element, how far the result of `op` may be from `expected`, its meaning on `operands`. `magnitude` are the
/// absolute values of the parts of the result as the cards hold it.
pub(crate) fn bound(
    lowered: &Placed,
    op: &Op,
    result: usize,
    operands: &[&HostTensor],
    expected: &HostTensor,
    magnitude: &[f64],
) -> Vec<f64> {
    let program = &lowered.program;
    let u = unit_roundoff(expected.dtype);
    let absolute = |kind: &Kind| -> Vec<f64> {
        let operands: Vec<HostTensor> = operands.iter().map(|x| abs(x)).collect();
        let op = Op { kind: kind.clone(), ..op.clone() };
        let results = meaning(program, &op, &operands.iter().collect::<Vec<_>>());
        results[result].floats().iter().map(|x| f64::from(*x)).collect()
    };
    // Roundings to the element type, and the f32 error of the formula by element.
    let (stores, computed): (f64, Vec<f64>) = match &op.kind {
        Kind::Embed | Kind::Take | Kind::Permute { .. } | Kind::CacheWrite | Kind::ReduceMax { .. } | Kind::IndexOf => {
            return vec![0.0; expected.shape.elems()];
        }
        Kind::Add | Kind::Mul | Kind::Scale { .. } | Kind::Cast { .. } => (1.0, vec![0.0; magnitude.len()]),
        Kind::MatMul { spec } | Kind::TreeMatMul { spec } => {
            let sizes = spec.x().chars().zip(operands[0].shape.iter());
            let n: usize = sizes.filter(|(letter, _)| !spec.result().contains(*letter)).map(|(_, size)| size).product();
            (1.0, absolute(&op.kind).into_iter().map(|sum| (n as f64 + 2.0) * V * sum).collect())
        }
        // The integers are exact: three f32 roundings of their sum and its scales.
        Kind::QuantMatMul { .. } if lowered.layouts[op.results[result]].partial.is_empty() => {
            (1.0, relative(expected, 4.0))
        }
        Kind::QuantMatMul { spec } => {
            let exact = magnitude.iter().map(|parts| 4.0 * V * parts);
            (
                1.0,
                steps(spec, operands)
                    .into_iter()
                    .zip(exact)
                    .map(|(step, exact)| step * (1.0 + 8.0 * V) + exact)
                    .collect(),
            )
        }
        Kind::ReduceSum { dim } | Kind::TreeSum { dim, .. } => {
            let n = operands[0].shape[*dim] as f64;
            (1.0, absolute(&op.kind).into_iter().map(|sum| n * V * sum).collect())
        }
        // exp is within 2 v of its argument's, which is exact; 1 + exp, the division and the product add 3 v.
        Kind::Silu => (1.0, relative(expected, 8.0)),
        // Two products.
        Kind::GammaTerms => (1.0, relative(expected, 2.0)),
        // The gate is stored before the product.
        Kind::SwiGlu => (2.0, relative(expected, 9.0)),
        // The squares and their sum are of one sign: (n + 1) v, halved by the root; then root, reciprocal and two
        // products.
        Kind::RmsNorm { .. } => {
            let n = operands[1].shape[0] as f64;
            (1.0, relative(expected, (n + 1.0) / 2.0 + 6.0))
        }
        // Two products and their sum, each term as large as the operands make it.
        Kind::Rope => {
            let largest = operands.iter().map(|x| largest(x)).collect::<Vec<_>>();
            (1.0, vec![4.0 * V * largest[0] * (largest[1] + largest[2]); magnitude.len()])
        }
        Kind::Attention { scale } => return attention(*scale, u, operands, expected),
        movement => panic!("{} has no meaning of its own", movement.row().name),
    };
    // What is stored between is off by an underflow too, times what it is multiplied by then.
    let tiny = underflow(expected.dtype) * if stores > 1.0 { 2.0 + largest(operands[1]) } else { 2.0 };
    let elements = expected.floats().iter().zip(magnitude).zip(computed);
    elements
        .map(|((y, parts), computed)| {
            u * f64::from(y.abs()) + stores * u * parts * (1.0 + u) + computed * (1.0 + u) + V * parts + tiny
        })
        .collect()
}

/// Scores are stored, scaled and stored again where attention is composed of single operators: each is off by
/// `δ = (2 u + (d + 2) v) · scale · max Σ|q||k|`. The weights of a row, a softmax, are then off by a factor within
/// `exp(2 (δ + (t + 4) v))` and stored, and the result is a sum of `t` products with values of at most `max |value|`
/// whose weights sum to 1: `(exp(2 δ') − 1 + 2 u + (t + 2) v) · max |value|`, and stored.
fn attention(scale: f64, u: f64, operands: &[&HostTensor], expected: &HostTensor) -> Vec<f64> {
    let (d, t) = (operands[0].shape[4] as f64, operands[1].shape[1] as f64);
    let score = d * largest(operands[0]) * largest(operands[1]) * scale.abs();
    let tiny = underflow(expected.dtype);
    let delta = (2.0 * u + (d + 2.0) * V) * score + (t + 4.0) * V + 2.0 * tiny;
    let weight = (2.0 * delta).exp_m1() + 2.0 * u + (t + 2.0) * V;
    let bound = (weight + t * tiny) * largest(operands[2]) * (1.0 + u) + 2.0 * tiny;
    expected.floats().iter().map(|y| bound + 2.0 * u * f64::from(y.abs())).collect()
}

/// How far a movement may change a value: only a sum rounds.
///
/// Cards add the `n` parts in f32 and store the sum once, or, between steps of a ring, n - 1 times.
pub(crate) fn movement_bound(kind: &Kind, before: &Whole, parts: usize) -> Vec<f64> {
    use ascend_tp::base::Reduce;
    let rounds = match kind {
        Kind::AllReduce { reduce, .. } | Kind::ReduceScatter { reduce, .. } => *reduce == Reduce::Sum,
        _ => false,
    };
    let factor = if rounds { parts as f64 * unit_roundoff(before.tensor.dtype) + V } else { 0.0 };
    before.magnitude.iter().map(|parts| factor * parts).collect()
}

/// `t Σ|w| |scale|` for each element of a quantised product.
fn steps(spec: &Einsum, operands: &[&HostTensor]) -> Vec<f64> {
    let (x_dims, w_dims, out, scale_dims, summed) = (spec.x(), spec.w(), spec.result(), spec.scale(), spec.summed());
    let [x, w, scale] = operands else { panic!("quant_matmul takes three operands") };
    let sizes: BTreeMap<char, usize> = x_dims
        .chars()
        .zip(x.shape.iter())
        .chain(w_dims.chars().zip(w.shape.iter()))
        .map(|(l, size)| (l, *size))
        .collect();
    let every = |letters: &str| -> Vec<BTreeMap<char, usize>> {
        let shape: Shape = letters.chars().map(|letter| sizes[&letter]).collect();
        indices(&shape).map(|index| letters.chars().zip(index).collect()).collect()
    };
    let at = |dims: &str, tensor: &HostTensor, place: &BTreeMap<char, usize>| -> usize {
        dims.chars().zip(tensor.shape.strides()).map(|(letter, stride)| place[&letter] * stride).sum()
    };
    let element = |outer: BTreeMap<char, usize>| {
        let (mut largest, mut sum) = (0.0_f64, 0.0);
        for inner in every(&summed) {
            let place: BTreeMap<char, usize> = outer.iter().chain(&inner).map(|(l, i)| (*l, *i)).collect();
            largest = largest.max(f64::from(x.floats()[at(x_dims, x, &place)].abs()));
            sum += w.ints()[at(w_dims, w, &place)].abs() as f64;
        }
        largest / 127.0 * sum * f64::from(scale.floats()[at(&scale_dims, scale, &outer)].abs())
    };
    every(out).into_iter().map(element).collect()
}

fn relative(expected: &HostTensor, roundings: f64) -> Vec<f64> {
    expected.floats().iter().map(|y| roundings * V * f64::from(y.abs())).collect()
}

fn abs(x: &HostTensor) -> HostTensor {
    match &x.data {
        HostData::Float(data) => {
            HostTensor { data: HostData::Float(data.iter().map(|x| x.abs()).collect()), ..x.clone() }
        }
        HostData::Int(_) => x.clone(),
    }
}

fn largest(x: &HostTensor) -> f64 {
    x.floats().iter().fold(0.0, |most, x| most.max(f64::from(x.abs())))
}
