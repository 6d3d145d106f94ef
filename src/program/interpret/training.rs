//! Reference implementations of training ops. They compute in f64 and round once.

use crate::base::{DType, Dims, Positions};
use crate::program::graph::Value;
use crate::program::op::Kind;

use super::{HostTensor, broadcast, gelu, indices, scores_of};

pub(super) fn doubles(x: &HostTensor) -> impl Iterator<Item = f64> + '_ {
    let ints = x.ints().iter().map(|x| *x as f64);
    x.floats().iter().map(|x| f64::from(*x)).chain(ints)
}

pub(super) fn like(x: &HostTensor, data: impl IntoIterator<Item = f64>) -> HostTensor {
    HostTensor::float(x.shape.clone(), x.dtype, data.into_iter().map(|x| x as f32).collect())
}

pub(super) fn made(result: &Value, data: impl IntoIterator<Item = f64>) -> HostTensor {
    HostTensor::float(result.shape.clone(), result.dtype, data.into_iter().map(|x| x as f32).collect())
}

pub(in crate::program) fn narrow_grad(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::NarrowGrad { dim, start } = *kind else { unreachable!("narrow_grad's kind") };
    let dy = operands[0];
    let inner: usize = result.shape[dim + 1..].iter().product();
    let [whole, part] = [result.shape[dim], dy.shape[dim]].map(|size| size * inner);
    let mut dx = vec![0.0; result.shape.elems()];
    for (to, from) in dx.chunks_mut(whole.max(1)).zip(dy.floats().chunks(part.max(1))) {
        let to = &mut to[start * inner..start * inner + part];
        to.iter_mut().zip(from).for_each(|(to, from)| *to = f64::from(*from));
    }
    made(result, dx)
}

pub(in crate::program) fn expand(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Expand { dims } = kind else { unreachable!("expand's kind") };
    let (x, mut of_operand) = (operands[0].floats(), operands[0].shape.strides().into_iter());
    let stride = |dim: usize| if dims.contains(&dim) { 0 } else { of_operand.next().unwrap_or(0) };
    let strides: Dims = (0..result.shape.rank()).map(stride).collect();
    made(result, Positions::new(&result.shape, &strides).map(|at| f64::from(x[at])))
}

pub(in crate::program) fn reduce_to(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, like] = operands else { unreachable!("reduce_to takes x and like") };
    let mut sums = vec![0.0; result.shape.elems()];
    broadcast(&x.shape, &like.shape).zip(doubles(x)).for_each(|(at, x)| sums[at] += x);
    made(result, sums)
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn silu_slope(x: f64) -> f64 {
    sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)))
}

pub(in crate::program) fn silu_grad(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    made(result, doubles(operands[0]).zip(doubles(operands[1])).map(|(x, dy)| dy * silu_slope(x)))
}

pub(in crate::program) fn swiglu_grad(_: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let [gate, up, dy] = operands else { unreachable!("swiglu_grad takes gate, up and a cotangent") };
    let all = || doubles(gate).zip(doubles(up)).zip(doubles(dy));
    let of_gate = all().map(|((gate, up), dy)| dy * up * silu_slope(gate));
    let of_up = all().map(|((gate, _), dy)| dy * gate * sigmoid(gate));
    vec![like(gate, of_gate), like(up, of_up)]
}

pub(in crate::program) fn gelu_gate_grad(_: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let [gate, up, dy] = operands else { unreachable!("gelu_gate_grad takes gate, up and a cotangent") };
    let all = || doubles(gate).zip(doubles(up)).zip(doubles(dy));
    let of_gate = all().map(|((gate, up), dy)| dy * up * gelu(gate)[1]);
    let of_up = all().map(|((gate, _), dy)| dy * gelu(gate)[0]);
    vec![like(gate, of_gate), like(up, of_up)]
}

pub(in crate::program) fn rms_norm_grad(_: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let [dy, x, rstd, gamma] = operands else { unreachable!("rms_norm_grad takes four operands") };
    let width = gamma.shape[0].max(1);
    let (mut dx, mut dgamma) = (Vec::with_capacity(x.shape.elems()), vec![0.0; gamma.shape[0]]);
    let gamma: Vec<f64> = doubles(gamma).collect();
    for ((dy, x), rstd) in dy.floats().chunks(width).zip(x.floats().chunks(width)).zip(doubles(rstd)) {
        let normal: Vec<f64> = x.iter().map(|x| f64::from(*x) * rstd).collect();
        let inner: Vec<f64> = dy.iter().zip(&gamma).map(|(dy, gamma)| f64::from(*dy) * gamma).collect();
        let mean = inner.iter().zip(&normal).map(|(d, x)| d * x).sum::<f64>() / width as f64;
        dx.extend(inner.iter().zip(&normal).map(|(d, x)| rstd * (d - x * mean)));
        dgamma.iter_mut().zip(dy.iter().zip(&normal)).for_each(|(sum, (dy, x))| *sum += f64::from(*dy) * x);
    }
    let dgamma = dgamma.into_iter().map(|x: f64| x as f32).collect();
    vec![like(x, dx), HostTensor::float([gamma.len()], DType::F32, dgamma)]
}

pub(in crate::program) fn gamma_terms(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [dy, x, rstd] = operands else { unreachable!("gamma_terms takes a cotangent, x and its factors") };
    let width = x.shape[x.shape.rank() - 1].max(1);
    let factors: Vec<f64> = doubles(rstd).collect();
    made(result, doubles(dy).zip(doubles(x)).enumerate().map(|(at, (dy, x))| dy * x * factors[at / width]))
}

pub(in crate::program) fn attention_grad(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let (scale, capped) = scores_of(kind);
    // The slope of a cap follows from the capped score.
    let cap = match kind {
        Kind::CappedAttentionGrad { cap, .. } | Kind::CappedAttentionGradByHead { cap, .. } => Some(*cap),
        _ => None,
    };
    let slope = |score: f64| cap.map_or(1.0, |cap| 1.0 - (score / cap).powi(2));
    let by_head = matches!(kind, Kind::AttentionGradByHead { .. } | Kind::CappedAttentionGradByHead { .. });
    let [q, keys, values, mask, dy, results @ ..] = operands else {
        unreachable!("attention_grad takes at least five operands")
    };
    let (batch, queries, kv_heads, group, width) =
        (q.shape[0], q.shape[1], q.shape[2], q.shape[3], q.shape[4]);
    let length = keys.shape[1];
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let row = |at: usize| at * width..(at + 1) * width;
    let copies = if by_head { group } else { 1 };
    let mut dq = vec![0.0_f64; q.shape.elems()];
    let [mut dk, mut dv] = [keys, values].map(|x| vec![0.0_f64; x.shape.elems() * copies]);
    let add = |into: &mut [f64], factor: f64, x: &[f32]| {
        into.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * f64::from(*x));
    };
    for index in indices(&[batch, queries, kv_heads, group].into()) {
        let [b, s, k, g] = index[..] else { unreachable!("four dims") };
        let query = row(((b * queries + s) * kv_heads + k) * group + g);
        let key = |t: usize| row((b * length + t) * kv_heads + k);
        let shown: Vec<usize> =
            (0..length).filter(|t| mask.ints()[(b * queries + s) * length + t] == 0).collect();
        let scores: Vec<f64> = shown
            .iter()
            .map(|t| capped(scale * dot(&q.floats()[query.clone()], &keys.floats()[key(*t)])))
            .collect();
        // The sums of an attention with sinks include the sinks.
        let at = ((b * kv_heads + k) * group + g) * queries + s;
        let (largest, sum) = if let [_, largest, sum] = results {
            (f64::from(largest.floats()[at]), f64::from(sum.floats()[at]))
        } else {
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (largest, scores.iter().map(|score| (score - largest).exp()).sum())
        };
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp() / sum).collect();
        let given = &dy.floats()[query.clone()];
        let of_weights: Vec<f64> = shown.iter().map(|t| dot(given, &values.floats()[key(*t)])).collect();
        let mean: f64 = weights.iter().zip(&of_weights).map(|(weight, d)| weight * d).sum();
        for (((t, weight), d), score) in shown.iter().zip(&weights).zip(&of_weights).zip(&scores) {
            let of_score = scale * slope(*score) * weight * (d - mean);
            add(&mut dq[query.clone()], of_score, &keys.floats()[key(*t)]);
            let own = row(((b * length + t) * kv_heads + k) * copies + if by_head { g } else { 0 });
            add(&mut dk[own.clone()], of_score, &q.floats()[query.clone()]);
            add(&mut dv[own], *weight, given);
        }
    }
    let of_keys = |x: &HostTensor, data: Vec<f64>| match by_head {
        true => HostTensor::float(
            [batch, length, kv_heads, group, width],
            x.dtype,
            data.into_iter().map(|x| x as f32).collect(),
        ),
        false => like(x, data),
    };
    vec![like(q, dq), of_keys(keys, dk), of_keys(values, dv)]
}

pub(in crate::program) fn embed_grad(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [ids, dy, table] = operands else { unreachable!("embed_grad takes ids, a cotangent and a table") };
    let width = table.shape[1];
    let mut sums = vec![0.0; table.shape.elems()];
    for (id, dy) in ids.ints().iter().zip(dy.floats().chunks(width.max(1))) {
        let start = usize::try_from(*id).unwrap_or(usize::MAX).saturating_mul(width);
        sums[start..start + width].iter_mut().zip(dy).for_each(|(sum, dy)| *sum += f64::from(*dy));
    }
    made(result, sums)
}

pub(in crate::program) fn take_grad(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [index, dy, x] = operands else { unreachable!("take_grad takes an index, a cotangent and x") };
    let (sequence, width) = (x.shape[1], x.shape[2]);
    let mut data = vec![0.0; x.shape.elems()];
    for (row, (index, dy)) in index.ints().iter().zip(dy.floats().chunks(width.max(1))).enumerate() {
        let at = (row * sequence + usize::try_from(*index).unwrap_or(usize::MAX)) * width;
        data[at..at + width].iter_mut().zip(dy).for_each(|(data, dy)| *data = f64::from(*dy));
    }
    made(result, data)
}

fn rows(x: &HostTensor) -> impl Iterator<Item = &[f32]> {
    let width = x.shape[x.shape.rank() - 1];
    (0..x.shape.elems() / width.max(1)).map(move |row| &x.floats()[row * width..(row + 1) * width])
}

pub(in crate::program) fn sum_exp(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let sums = rows(operands[0]).zip(doubles(operands[1]));
    made(result, sums.map(|(row, largest)| row.iter().map(|x| (f64::from(*x) - largest).exp()).sum()))
}

fn label(label: i64) -> usize {
    usize::try_from(label).unwrap_or(usize::MAX)
}

pub(in crate::program) fn log_probability(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, labels, largest, sum] = operands else { unreachable!("log_probability takes four operands") };
    let all = rows(x).zip(labels.ints()).zip(doubles(largest).zip(doubles(sum)));
    made(result, all.map(|((row, at), (largest, sum))| f64::from(row[label(*at)]) - largest - sum.ln()))
}

pub(in crate::program) fn log_probability_grad(
    _: &Kind,
    operands: &[&HostTensor],
    result: &Value,
) -> HostTensor {
    let [x, labels, largest, sum, dy] = operands else {
        unreachable!("log_probability_grad takes five operands")
    };
    let all = rows(x).zip(labels.ints()).zip(doubles(largest).zip(doubles(sum))).zip(doubles(dy));
    let data = all.flat_map(|(((row, at), (largest, sum)), dy)| {
        let at = label(*at);
        row.iter().enumerate().map(move |(index, x)| {
            let hit = if index == at { 1.0 } else { 0.0 };
            dy * (hit - (f64::from(*x) - largest).exp() / sum)
        })
    });
    made(result, data)
}

pub(in crate::program) fn clip_factor(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let Kind::ClipFactor { largest } = kind else { unreachable!("clip_factor's kind") };
    let norms: Vec<f64> = doubles(operands[0]).map(f64::sqrt).collect();
    let factor = |norm: &f64| if *largest > 0.0 { (largest / (norm + 1e-6)).min(1.0) } else { 1.0 };
    vec![like(operands[0], norms.clone()), like(operands[0], norms.iter().map(factor))]
}

pub(in crate::program) fn adamw(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let Kind::AdamW { beta1, beta2, epsilon, decay } = *kind else { unreachable!("adamw's kind") };
    let [w, m, v, g, factor, rate, step] = operands else { unreachable!("adamw takes seven operands") };
    let number = |x: &HostTensor| f64::from(x.floats()[0]);
    let (factor, rate, step) = (number(factor), number(rate), number(step) + 1.0);
    let (c1, c2) = (1.0 - beta1.powf(step), 1.0 - beta2.powf(step));
    let g: Vec<f64> = doubles(g).map(|g| g * factor).collect();
    let m: Vec<f64> = doubles(m).zip(&g).map(|(m, g)| beta1 * m + (1.0 - beta1) * g).collect();
    let v: Vec<f64> = doubles(v).zip(&g).map(|(v, g)| beta2 * v + (1.0 - beta2) * g * g).collect();
    let moved = doubles(w)
        .zip(m.iter().zip(&v))
        .map(|(w, (m, v))| w * (1.0 - rate * decay) - rate / c1 * m / ((v / c2).sqrt() + epsilon));
    let moved = like(w, moved);
    vec![like(w, m), like(w, v), moved]
}

pub(in crate::program) fn assign(_: &Kind, operands: &[&HostTensor], _: &Value) -> HostTensor {
    operands[1].clone()
}
