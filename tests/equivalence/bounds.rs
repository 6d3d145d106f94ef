//! Error bounds of one op on a card, with the operands of the card.
//!
//! Each op is interpreted on its actual operands, so errors do not propagate. With `u` the unit
//! roundoff of the element type and `v = 2^-24` for f32, the type of computation:
//!
//! - A result computed in f32 and stored once has the error `u |y|` plus the f32 error of the
//!   formula. A second store adds another `u`.
//! - A sum of `n` products in any order has the error `n v Σ|a||b|` (Higham, Accuracy and
//!   Stability, 3.5).
//! - Partial sums are rounded separately: `u` applies to the sum of their absolute values.
//! - Quantised rows have the same scales and integers on any number of cards, and so do sums of
//!   quantised products.
//!
//! The oracle is rounded once to the element type: another `u |y|`.

use ascend_tp::base::{DType, HostData};
use ascend_tp::placement::Placed;
use ascend_tp::program::interpret::meaning;
use ascend_tp::program::{HostTensor, Kind, Op, Program};

use super::assemble::{Whole, unit_roundoff};

const V: f64 = 5.960_464_477_539_063e-8;

/// Half the smallest f16 subnormal on each of at most 8 ranks. Tests reach the subnormals of no
/// other type.
const fn underflow(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 8.0 / (1_u64 << 25) as f64,
        _ => 0.0,
    }
}

/// Returns whether an op moves, compares or chooses elements, or rounds as its meaning does.
const fn is_exact(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Embed
            | Kind::Take
            | Kind::Hide
            | Kind::Permute { .. }
            | Kind::WriteSlots { .. }
            | Kind::WriteScales { .. }
            | Kind::ReduceMax { .. }
            | Kind::IndexOf
            | Kind::Narrow { .. }
            | Kind::Concat { .. }
            | Kind::Choose { .. }
            | Kind::Pick
            | Kind::RowScale { .. }
            | Kind::Quantise { .. }
    )
}

/// Returns the bound for each element of `op`'s result. `expected` is its meaning on `operands`,
/// `magnitude` the sum of the absolute partial sums.
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
    let (stores, computed): (f64, Vec<f64>) = match &op.kind {
        kind if is_exact(kind) => return vec![0.0; expected.shape.elems()],
        Kind::Add | Kind::Mul | Kind::Scale { .. } | Kind::Cast { .. } => (1.0, vec![0.0; magnitude.len()]),
        Kind::MatMul { spec } | Kind::TreeMatMul { spec } => {
            let sizes = spec.x().chars().zip(operands[0].shape.iter());
            let n: usize =
                sizes.filter(|(letter, _)| !spec.result().contains(*letter)).map(|(_, size)| size).product();
            (1.0, absolute(&op.kind).into_iter().map(|sum| (n as f64 + 2.0) * V * sum).collect())
        }
        // The integers are exact: three f32 roundings of their sum and its scales, on each card.
        Kind::QuantMatMul { .. } | Kind::StaticMatMul { .. } => {
            (1.0, magnitude.iter().map(|parts| 4.0 * V * parts).collect())
        }
        Kind::PackedMatMul { .. } | Kind::OffsetPackedMatMul { .. } => {
            (1.0, vec![packed_product(operands); magnitude.len()])
        }
        Kind::ReduceSum { dim } | Kind::TreeSum { dim, .. } => {
            let n = operands[0].shape[*dim] as f64;
            (1.0, absolute(&op.kind).into_iter().map(|sum| n * V * sum).collect())
        }
        // exp has an error of 2 v for an exact argument; 1 + exp, the division and the product add
        // 3 v.
        Kind::Silu | Kind::Sigmoid => (1.0, relative(expected, 8.0)),
        Kind::Reciprocal { .. } => (1.0, relative(expected, 4.0)),
        // The difference from the largest element is at most 2 and has the error 2 v. The
        // exponential adds 2 v, the sum n v, and the quotient v.
        Kind::Softmax => (1.0, relative(expected, 2.0 * (4.0 + row_length(operands[0])) + 1.0)),
        Kind::Candidates { parts, .. } => (1.0, candidates(operands[0], *parts, expected)),
        Kind::ClippedExperts { limit, slope } => {
            (1.0, vec![clipped_experts([*limit, *slope], operands); magnitude.len()])
        }
        Kind::ClippedExpertsGrad { limit, slope } => {
            assert_eq!(result, 0, "the other results have no bound");
            (1.0, vec![clipped_experts_grad([*limit, *slope], operands); magnitude.len()])
        }
        Kind::Experts | Kind::ExpertRows | Kind::ExpertRowsGrad | Kind::TreeExpertsGrad => {
            let roundings = roundings_of_experts(&op.kind, operands);
            (1.0, absolute(&op.kind).into_iter().map(|sum| roundings * V * sum).collect())
        }
        Kind::PackedExperts | Kind::OffsetPackedExperts => {
            (1.0, packed_experts(program, op, result, operands, u))
        }
        Kind::Shift { by } => (1.0, vec![2.0 * V * by.abs(); magnitude.len()]),
        // Two products and the sum under the root, halved by the root, and the root.
        Kind::InverseRoot { .. } => (1.0, relative(expected, 6.0)),
        // The quotient, tanh and the product.
        Kind::SoftCap { .. } => (1.0, relative(expected, 12.0)),
        // The gate is stored before the product. Its sigmoid has the error of the exponent, a
        // polynomial of degree 3.
        Kind::GeluGate => (2.0, relative(expected, 24.0)),
        Kind::GammaTerms => (1.0, relative(expected, 2.0)),
        Kind::SwiGlu => (2.0, relative(expected, 9.0)),
        // The squares and their sum have the error (n + 1) v, halved by the root. The root, the
        // reciprocal and two products follow.
        Kind::RmsNorm { .. } => {
            let n = operands[1].shape[0] as f64;
            (1.0, relative(expected, (n + 1.0) / 2.0 + 6.0))
        }
        Kind::Rope | Kind::RopePairs => {
            let largest = operands.iter().map(|x| largest(x)).collect::<Vec<_>>();
            (1.0, vec![4.0 * V * largest[0] * (largest[1] + largest[2]); magnitude.len()])
        }
        // Tanh has a slope of at most 1, and two more roundings of scores that are bounded by the
        // cap.
        Kind::CappedAttention { scale, .. } => {
            let bounds = attention(2.0 * scale, [u, length(operands[1])], operands, expected);
            return bounds.into_iter().map(|bound| 2.0 * bound).collect();
        }
        Kind::Attention { scale } => return attention(*scale, [u, length(operands[1])], operands, expected),
        Kind::SinkAttention { scale } => {
            return sink_attention(*scale, [u, length(operands[1])], operands, expected);
        }
        Kind::BlockAttention { scale, cap, .. } => {
            let length = (operands[1].shape[1] * operands[3].shape[1]) as f64;
            let capped = if cap.is_some() { 2.0 } else { 1.0 };
            let bounds = attention(capped * scale, [u, length], operands, expected);
            return bounds.into_iter().map(|bound| capped * bound).collect();
        }
        Kind::QuantBlockAttention { scale, cap, .. } => {
            let capped = if cap.is_some() { 2.0 } else { 1.0 };
            return quant_block_attention([*scale, capped, u], operands, expected);
        }
        movement => panic!("{} has no meaning of its own", movement.row().name),
    };
    // An intermediate store also has an underflow error, multiplied by later factors.
    let tiny = underflow(expected.dtype) * if stores > 1.0 { 2.0 + largest(operands[1]) } else { 2.0 };
    let elements = expected.floats().iter().zip(magnitude).zip(computed);
    elements
        .map(|((y, parts), computed)| {
            u * f64::from(y.abs()) + stores * u * parts * (1.0 + u) + computed * (1.0 + u) + V * parts + tiny
        })
        .collect()
}

/// Weights are equal on all cards. A sum of n products has the error (n + 2) v.
fn packed_product(operands: &[&HostTensor]) -> f64 {
    let n = (operands[1].shape.elems() * 8 / operands[2].shape[0]) as f64;
    let offset = operands.get(3).map_or(0.0, |offset| largest(offset));
    (n + 2.0) * V * n * largest(operands[0]) * (8.0 + offset) * largest(operands[2])
}

/// Returns the error of experts, or of gradients of their rows, in v times the meaning of absolute
/// values.
///
/// With `G = Σ|x||gate|` and `U = Σ|x||up|` over h elements, both products have the error
/// (h + 2) v, silu has a slope of at most 1.1 and adds 9 v: the gated row has the error
/// (2.1 (h + 2) + 9) v G U. The products with f and j summands add (f + 2) v and (j + 2) v. silu(G)
/// is at least G / 2, so twice the meaning of absolute values is at least their sum.
///
/// In gradients, the cotangent of the gated row has the error (h + 2) v too. The slope of silu
/// changes by at most 1/2 per unit, and is at least 1/2 for a sum of magnitudes, at most h. So it
/// adds (h + 2) h v. Products, f columns and the tokens follow. The magnitude of a slope is at most
/// 2.2 times the slope of the magnitudes.
fn roundings_of_experts(kind: &Kind, operands: &[&HostTensor]) -> f64 {
    let size = |operand: usize| operands[operand].shape[2] as f64;
    let [h, j] = [size(0), size(1)];
    match kind {
        Kind::ExpertRowsGrad | Kind::TreeExpertsGrad => {
            2.2 * ((h + 2.0) * (2.0 + h) + 12.0 + 2.0 * size(2) + operands[1].shape.elems() as f64)
        }
        _ => 2.0 * (2.1 * (h + 2.0) + 9.0 + size(operands.len() - 2) + 2.0 + j + 2.0),
    }
}

/// As experts in f32. In addition, both products, the gate and the gated row are stored: 1.1 u and
/// u of the products by the slopes, and u each of the gate, the gated row, the result of the expert
/// and the weight of the expert. 8 u covers their products.
fn packed_experts(program: &Program, op: &Op, result: usize, operands: &[&HostTensor], u: f64) -> Vec<f64> {
    let floats = floats_of_experts(operands);
    let [h, j, f] = [operands[0].shape[2], operands[1].shape[2], floats[4].shape[2]].map(|n| n as f64);
    let roundings = 8.0 * u + (2.1 * (h + 2.0) + 9.0 + f + 2.0 + j + 2.0) * V;
    let op = Op { kind: Kind::Experts, ..op.clone() };
    let sums = meaning(program, &op, &floats.iter().collect::<Vec<_>>());
    sums[result].floats().iter().map(|sum| 2.0 * roundings * f64::from(*sum)).collect()
}

/// Returns the absolute operands of [`Kind::Experts`] for experts in words.
fn floats_of_experts(operands: &[&HostTensor]) -> Vec<HostTensor> {
    let &[x, index, weights, gate_up, down, ref params @ ..] = operands else { panic!("experts in words") };
    let weight = |words: &HostTensor, at: usize, inputs: usize, dims: &[usize]| {
        let scale = params[at];
        let (groups, outputs) = (scale.shape[1], scale.shape.elems() / scale.shape[0] / scale.shape[1]);
        let number = |place: usize| {
            let (row, input) = (place / inputs, place % inputs);
            let of = ((row / outputs) * groups + input / (inputs / groups)) * outputs + row % outputs;
            let half = words.ints()[place / 8] >> (4 * (place % 8)) & 15;
            let integer = (if half > 7 { half - 16 } else { half }) as f32;
            let offset = params.get(at + 2).map_or(0.0, |offset| offset.floats()[of]);
            ((integer + offset) * scale.floats()[of]).abs()
        };
        let elems = dims.iter().product::<usize>();
        HostTensor::float(dims, x.dtype, (0..elems).map(number).collect())
    };
    let (e, inner, h) = (gate_up.shape[0], gate_up.shape[2] * gate_up.shape[3], x.shape[2]);
    let gate_up = weight(gate_up, 0, h, &[e, 2, inner, h]);
    let down = weight(down, 1, inner, &[e, h, inner]);
    vec![abs(x), index.clone(), abs(weights), gate_up, down]
}

/// The slope of the clipped gate is at most 1.1 + slope, and of the clipped projection 1. Rows are
/// at most (limit + 1) limit. The bias is one more summand of each product.
fn clipped_experts([limit, slope]: [f64; 2], operands: &[&HostTensor]) -> f64 {
    let [h, j, f] = [operands[0].shape[2], operands[1].shape[2], operands[3].shape[2]].map(|n| n as f64);
    let [x, w, gate_up, down, b, c] = [0, 2, 3, 4, 5, 6].map(|at| largest(operands[at]));
    let of_hidden = (h + 3.0) * V * (h * x * gate_up + b);
    let row = (limit + 1.0) * limit;
    let of_row = of_hidden * (limit + 1.0 + limit * (1.1 + slope)) + 12.0 * V * row;
    let sum = f * down * row + c;
    j * w * (f * down * of_row + (f + 3.0 + j + 2.0) * V * sum)
}

/// With `D = h |down| |dy| |weight|`, a bound of the cotangent of a gated row, and its error `(h +
/// 3) v D`. Gate and up projections have at most the magnitude `G`, and are exact: they are sums of
/// at most 6 products of multiples of 1/128. So both sides agree on the limits. The slopes of the
/// gated row are at most `1.1 (limit + 1)`, with `1 + slope · G` and 12 roundings. The cotangent of
/// a token is a sum over 2f rows and j experts.
fn clipped_experts_grad([limit, slope]: [f64; 2], operands: &[&HostTensor]) -> f64 {
    let [h, j, f] = [operands[0].shape[2], operands[1].shape[2], operands[3].shape[2]].map(|n| n as f64);
    let [x, w, gate_up, down, b, dy] = [0, 2, 3, 4, 5, 7].map(|at| largest(operands[at]));
    let (of_gated, hidden) = (h * down * dy * w, h * x * gate_up + b);
    let of_hidden = 1.1 * (limit + 1.0) * of_gated;
    let error = (h + 3.0 + 12.0 + 4.0 * slope * hidden) * V * of_hidden;
    j * 2.0 * f * gate_up * (error + (2.0 * f + 2.0 + j + 2.0) * V * of_hidden)
}

fn length(keys: &HostTensor) -> f64 {
    keys.shape[1] as f64
}

/// Composed attention stores scores, scales them and stores them again. Each has the error `δ = (2
/// u + (d + 2) v) · scale · max Σ|q||k|`. Softmax weights have a relative error within `exp(2 (δ +
/// (t + 4) v))` and are stored. The result sums `t` products of values of at most `max |value|`
/// with weights that sum to 1. The total is `(exp(2 δ') − 1 + 2 u + (t + 2) v) · max |value|`, plus
/// the final store.
fn attention(scale: f64, [u, t]: [f64; 2], operands: &[&HostTensor], expected: &HostTensor) -> Vec<f64> {
    let d = operands[0].shape[4] as f64;
    let score = d * largest(operands[0]) * largest(operands[1]) * scale.abs();
    let tiny = underflow(expected.dtype);
    let delta = (2.0 * u + (d + 2.0) * V) * score + (t + 4.0) * V + 2.0 * tiny;
    let weight = (2.0 * delta).exp_m1() + 2.0 * u + (t + 2.0) * V;
    let bound = (weight + t * tiny) * largest(operands[2]) * (1.0 + u) + 2.0 * tiny;
    expected.floats().iter().map(|y| bound + 2.0 * u * f64::from(y.abs())).collect()
}

/// All cards round the same products of integers and scales. The bound is `capped` times the bound
/// of [`attention`] with `capped` times the scale.
fn quant_block_attention(
    [scale, capped, u]: [f64; 3],
    operands: &[&HostTensor],
    expected: &HostTensor,
) -> Vec<f64> {
    let length = (operands[1].shape[1] * operands[5].shape[1]) as f64;
    let caches = [2, 4].map(|scales| {
        let largest = 128.0 * largest(operands[scales]) * (1.0 + u);
        HostTensor::float([1], DType::F32, vec![largest as f32])
    });
    let floats = [operands[0], &caches[0], &caches[1]];
    let bounds = attention(capped * scale, [u, length], &floats, expected);
    bounds.into_iter().map(|bound| capped * bound).collect()
}

/// The bound `B` of [`attention`] contains at least the error of the log-sum-exp `l` times `max
/// |value|`. The share of the keys, `sigmoid(l - sink)`, is at most 1, and its relative error is at
/// most the error of `l - sink`. Two sums, the logarithm and the sigmoid add `(3 (|l| + |sink|) +
/// 8) v`, and the product and its operand `2 u`.
fn sink_attention(scale: f64, [u, t]: [f64; 2], operands: &[&HostTensor], expected: &HostTensor) -> Vec<f64> {
    let d = operands[0].shape[4] as f64;
    let score = d * largest(operands[0]) * largest(operands[1]) * scale.abs() + t.ln();
    let share = (3.0 * (score + largest(operands[4])) + 8.0) * V + 2.0 * u;
    let bounds = attention(scale, [u, t], operands, expected);
    bounds.into_iter().map(|bound| 2.0 * bound + share * largest(operands[2])).collect()
}

/// Returns the error of a movement. Only sums round: `n` partial sums in f32 with one store, or
/// `n - 1` stores in a ring.
pub(crate) fn movement_bound(kind: &Kind, before: &Whole, parts: usize) -> Vec<f64> {
    use ascend_tp::base::Reduce;
    let rounds = match kind {
        Kind::AllReduce { reduce, .. } | Kind::ReduceScatter { reduce, .. } => *reduce == Reduce::Sum,
        _ => false,
    };
    let factor = if rounds { parts as f64 * unit_roundoff(before.tensor.dtype) + V } else { 0.0 };
    before.magnitude.iter().map(|parts| factor * parts).collect()
}

/// Returns the size of the last dim.
fn row_length(x: &HostTensor) -> f64 {
    x.shape.last().copied().unwrap_or_default() as f64
}

/// Returns the errors of candidates. Selected elements and their indices are exact. The difference
/// from the largest element is at most 6 and has the error 6 v. The exponential adds 2 v, the sum
/// of n elements n v, the logarithm v, and the last sum rounds its result.
fn candidates(x: &HostTensor, parts: usize, expected: &HostTensor) -> Vec<f64> {
    let n = row_length(x) / parts as f64;
    let columns = expected.shape.last().copied().unwrap_or_default();
    let error = |(at, value): (usize, &f32)| match (at + 1) % columns {
        0 => (9.0 + n) * V + V * f64::from(value.abs()),
        _ => 0.0,
    };
    expected.floats().iter().enumerate().map(error).collect()
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
