//! Interprets programs on the host, as the reference for every other execution.
//!
//! The code is plain loops. Sums run in f64 and are rounded once to the element type of the result,
//! so the reference is at least as accurate as a device. It shares no code with the emulator.

pub(crate) mod blocks;
pub(super) mod candidates;
pub(super) mod delta;
pub(super) mod experts;
pub(super) mod frozen;
pub(super) mod training;

use crate::base::{DType, Dims, HostData, HostTensor, Id, Positions, Shape, WORD, indices};

use super::graph::{Form, Op, Program, Role, Value, ValueId};
use super::op::{Host, Kind};

/// Runs a program on the host and returns all its values.
///
/// `given` returns the tensor of each input, param and state.
///
/// ```
/// use ascend_tp::compiler::{Builder, interpret};
/// use ascend_tp::{DType, HostTensor};
///
/// let mut build = Builder::new("sum");
/// let x = build.input("x", [2], DType::F32);
/// let y = build.add(x, x);
/// build.output("y", y);
/// let x = HostTensor::float([2], DType::F32, vec![1.0, 2.0]);
/// let values = interpret(&build.finish()?, |_, _| x.clone());
/// assert_eq!(values.last().expect("y").floats(), [2.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// A given tensor has a wrong shape or type, or the program does not pass `verify`.
pub fn interpret(program: &Program, mut given: impl FnMut(ValueId, &Value) -> HostTensor) -> Vec<HostTensor> {
    let mut tensors: Vec<Option<HostTensor>> = program
        .values
        .iter()
        .map(|(id, value)| {
            (value.role != Role::Result).then(|| {
                let tensor = given(id, value);
                assert_eq!(
                    (&tensor.shape, tensor.dtype),
                    (&value.shape, value.dtype),
                    "given {}",
                    program.label(id)
                );
                tensor
            })
        })
        .collect();
    for (_, op) in program.ops.iter() {
        let results = {
            let operands: Vec<&HostTensor> =
                op.operands.iter().filter_map(|id| tensors[id.index()].as_ref()).collect();
            assert_eq!(
                operands.len(),
                op.operands.len(),
                "an operand of {} is used before it is computed",
                op.result()
            );
            meaning(program, op, &operands)
        };
        for (id, result) in op.results.iter().zip(results) {
            tensors[id.index()] = Some(result);
        }
    }
    tensors.into_iter().map(|tensor| tensor.unwrap_or_else(|| HostTensor::zeros([0], DType::F32))).collect()
}

/// Computes all results of an op's row from its operands.
#[must_use]
pub fn meaning(program: &Program, op: &Op, operands: &[&HostTensor]) -> Vec<HostTensor> {
    match op.kind.row().host {
        Host::One(host) => vec![host(&op.kind, operands, &program.values[op.result()])],
        Host::Several(host) => host(&op.kind, operands),
    }
}

pub(super) fn identity(_: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    operands.iter().map(|operand| (*operand).clone()).collect()
}

pub(super) fn embed(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [ids, table] = operands else { unreachable!("embed takes ids and a table") };
    let width = table.shape[1];
    let rows = ids.ints().iter().flat_map(|id| {
        let start = usize::try_from(*id).unwrap_or(usize::MAX).saturating_mul(width);
        table.floats()[start..start + width].iter().copied()
    });
    HostTensor::float(result.shape.clone(), result.dtype, rows.collect())
}

/// An operand's shape, with a letter for each dim.
#[derive(Clone, Copy)]
struct NamedDims<'a> {
    dims: &'a str,
    shape: &'a Shape,
}

impl<'a> NamedDims<'a> {
    const fn new(dims: &'a str, operand: &'a HostTensor) -> Self {
        Self { dims, shape: &operand.shape }
    }
}

/// Returns, for each index over `letters` with the last letter fastest, the position in each
/// operand.
fn positions<const N: usize>(letters: &str, operands: [NamedDims<'_>; N]) -> Vec<[usize; N]> {
    let axis = |letter: char| {
        let found = operands
            .map(|NamedDims { dims, shape }| dims.find(letter).map(|dim| (shape[dim], shape.strides()[dim])));
        let size = found.iter().flatten().next().map_or(1, |(size, _)| *size);
        (size, found.map(|found| found.map_or(0, |(_, stride)| stride)))
    };
    let axes: Vec<(usize, [usize; N])> = letters.chars().map(axis).collect();
    let position = |index: Dims| {
        let mut at = [0; N];
        for (i, (_, strides)) in index.iter().zip(&axes) {
            at.iter_mut().zip(strides).for_each(|(at, stride)| *at += i * stride);
        }
        at
    };
    indices(&axes.iter().map(|axis| axis.0).collect()).map(position).collect()
}

pub(super) fn matmul(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let (Kind::MatMul { spec } | Kind::TreeMatMul { spec }) = kind else { unreachable!("matmul's kind") };
    let [x, w] = operands else { unreachable!("matmul takes two operands") };
    let places = [NamedDims::new(spec.x(), x), NamedDims::new(spec.w(), w)];
    let (outer, inner) = (positions(spec.result(), places), positions(&spec.summed(), places));
    let (x, w) = (x.floats(), w.floats());
    let data = outer.into_iter().map(|[a, b]| {
        inner.iter().map(|[i, j]| f64::from(x[a + i]) * f64::from(w[b + j])).sum::<f64>() as f32
    });
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

/// Returns a signed 4-bit integer of words.
fn number_of_words(words: &HostTensor, at: usize) -> f32 {
    let word = words.ints()[at / WORD] as i32;
    // Shifts move the sign of the four bits to the sign of the word.
    (word << (28 - 4 * (at % WORD)) >> 28) as f32
}

pub(super) fn packed_matmul(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let (Kind::PackedMatMul { spec, sharded, group } | Kind::OffsetPackedMatMul { spec, sharded, group }) =
        kind
    else {
        unreachable!("packed_matmul's kind")
    };
    let [x, words, scale, ref offset @ ..] = *operands else {
        unreachable!("packed_matmul takes x, words and a scale")
    };
    // Dims that the words replace. They are the last ones of both operands.
    let dims = &x.shape[x.shape.rank() - (spec.summed().len() - sharded)..];
    let (whole, leading) = (dims.iter().product::<usize>(), &words.shape[..words.shape.rank() - 1]);
    let groups = whole.div_ceil(*group);
    let weight = |at: usize| {
        let number = number_of_words(words, at);
        let of_group = at / whole * groups + at % whole / group;
        let offset = offset.first().map_or(0.0, |offset| offset.floats()[of_group]);
        (number + offset) * scale.floats()[of_group]
    };
    let shape: Shape = leading.iter().chain(dims).copied().collect();
    let weights = (0..shape.elems()).map(weight).collect();
    let weights = HostTensor::float(shape, x.dtype, weights);
    matmul(&Kind::MatMul { spec: spec.clone() }, &[x, &weights], result)
}

pub(super) fn add_matmul(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::AddMatMul { spec } = kind else { unreachable!("add_matmul's kind") };
    let [sum, x, w] = operands else { unreachable!("add_matmul takes a sum and two factors") };
    let places = [NamedDims::new(spec.x(), x), NamedDims::new(spec.w(), w)];
    let (outer, inner) = (positions(spec.result(), places), positions(&spec.summed(), places));
    let (x, w) = (x.floats(), w.floats());
    let data = outer.into_iter().zip(sum.floats()).map(|([a, b], sum)| {
        let products = inner.iter().map(|[i, j]| f64::from(x[a + i]) * f64::from(w[b + j]));
        (f64::from(*sum) + products.sum::<f64>()) as f32
    });
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

/// Returns the rows of a tensor. A row spans the last `dims` dims.
fn rows_of(x: &HostTensor, dims: usize) -> impl Iterator<Item = &[f32]> {
    let lead = x.shape.rank() - dims;
    let (count, len) = (x.shape[..lead].iter().product::<usize>(), x.shape[lead..].iter().product::<usize>());
    (0..count).map(move |row| &x.floats()[row * len..(row + 1) * len])
}

pub(super) fn row_scale(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::RowScale { dims } = kind else { unreachable!("row_scale's kind") };
    // In f32, as the documentation of the operators specifies.
    let scale = |row: &[f32]| row.iter().fold(0.0, |largest: f32, x| largest.max(x.abs())) / Form::LARGEST;
    HostTensor::float(result.shape.clone(), DType::F32, rows_of(operands[0], *dims).map(scale).collect())
}

pub(super) fn quantise(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Quantise { dims } = kind else { unreachable!("quantise's kind") };
    let [x, scales] = operands else { unreachable!("quantise takes x and its scales") };
    let integer = |x: f32, scale: f32| match scale > 0.0 {
        true => (x / scale).round_ties_even().clamp(-128.0, 127.0) as i64,
        false => 0,
    };
    let rows = rows_of(x, *dims).zip(scales.floats());
    let data = rows.flat_map(|(row, scale)| row.iter().map(|x| integer(*x, *scale)));
    HostTensor::int(result.shape.clone(), DType::I8, data.collect())
}

pub(super) fn quant_matmul(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::QuantMatMul { spec, .. } = kind else { unreachable!("quant_matmul's kind") };
    let [q, t, w, scale] = operands else { unreachable!("quant_matmul takes q, t, w and a scale") };
    let (of_q, of_w) = (NamedDims::new(spec.x(), q), NamedDims::new(spec.w(), w));
    let (row_dims, dims) = (spec.row_scale(), spec.scale());
    let outer =
        positions(spec.result(), [of_q, NamedDims::new(&row_dims, t), of_w, NamedDims::new(&dims, scale)]);
    let inner = positions(&spec.summed(), [of_q, of_w]);
    let (q, t, w, scale) = (q.ints(), t.floats(), w.ints(), scale.floats());
    let data = outer.into_iter().map(|[a, row, b, column]| {
        let sum: i64 = inner.iter().map(|[i, j]| q[a + i] * w[b + j]).sum();
        (sum as f64 * f64::from(scale[column]) * f64::from(t[row])) as f32
    });
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

pub(super) fn quantise_static(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, scale, offset] = operands else { unreachable!("quantise_static takes x, a scale and an offset") };
    let (factor, offset) = (1.0 / scale.floats()[0], offset.floats()[0]);
    let integer = |x: &f32| (x * factor + offset).round_ties_even().clamp(-128.0, 127.0) as i64;
    HostTensor::int(result.shape.clone(), DType::I8, x.floats().iter().map(integer).collect())
}

pub(super) fn static_matmul(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::StaticMatMul { spec, .. } = kind else { unreachable!("static_matmul's kind") };
    let [q, w, scale, bias] = operands else { unreachable!("static_matmul takes q, w, a scale and a bias") };
    let (of_q, of_w) = (NamedDims::new(spec.x(), q), NamedDims::new(spec.w(), w));
    let outer = positions(spec.result(), [of_q, of_w, NamedDims::new(&spec.scale(), scale)]);
    let inner = positions(&spec.summed(), [of_q, of_w]);
    let (q, w, scale, bias) = (q.ints(), w.ints(), scale.floats(), bias.ints());
    let data = outer.into_iter().map(|[a, b, column]| {
        let sum: i64 = inner.iter().map(|[i, j]| q[a + i] * w[b + j]).sum();
        ((sum + bias[column]) as f64 * f64::from(scale[column])) as f32
    });
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

/// Returns the position in a broadcast tensor of shape `part`, for each element of `whole`.
fn broadcast(whole: &Shape, part: &Shape) -> impl Iterator<Item = usize> + use<> {
    let skipped = whole.rank() - part.rank();
    let of_part = part.strides();
    let kept = of_part.iter().zip(part.iter()).map(|(stride, size)| if *size == 1 { 0 } else { *stride });
    let strides: Dims = std::iter::repeat_n(0, skipped).chain(kept).collect();
    Positions::new(whole, &strides)
}

fn binary(
    operands: &[&HostTensor],
    result: &Value,
    float: fn(f32, f32) -> f32,
    int: fn(i64, i64) -> i64,
) -> HostTensor {
    let [x, y] = operands else { unreachable!("a binary op takes two operands") };
    let at = broadcast(&x.shape, &y.shape);
    match (&x.data, &y.data) {
        (HostData::Float(x), HostData::Float(y)) => {
            let data = x.iter().zip(at).map(|(x, at)| float(*x, y[at])).collect();
            HostTensor::float(result.shape.clone(), result.dtype, data)
        }
        (HostData::Int(x), HostData::Int(y)) => {
            let data = x.iter().zip(at).map(|(x, at)| int(*x, y[at])).collect();
            HostTensor::int(result.shape.clone(), result.dtype, data)
        }
        _ => unreachable!("operands of one element type"),
    }
}

pub(super) fn add(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    binary(operands, result, |x, y| x + y, i64::wrapping_add)
}

pub(super) fn subtract(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    binary(operands, result, |x, y| x - y, i64::wrapping_sub)
}

pub(super) fn mul(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    binary(operands, result, |x, y| x * y, i64::wrapping_mul)
}

pub(super) fn hide(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, mask] = operands else { unreachable!("hide takes x and a mask") };
    let at = broadcast(&x.shape, &mask.shape);
    let data = x.floats().iter().zip(at).map(|(x, at)| if mask.ints()[at] == 0 { *x } else { 0.0 });
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

fn map(operands: &[&HostTensor], result: &Value, f: impl Fn(f32) -> f32) -> HostTensor {
    HostTensor::float(
        result.shape.clone(),
        result.dtype,
        operands[0].floats().iter().map(|x| f(*x)).collect(),
    )
}

fn sigmoid_times(x: f32) -> f64 {
    let x = f64::from(x);
    x / (1.0 + (-x).exp())
}

pub(super) fn scale(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Scale { by } = kind else { unreachable!("scale's kind") };
    map(operands, result, |x| (f64::from(x) * by) as f32)
}

pub(super) fn shift(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Shift { by } = kind else { unreachable!("shift's kind") };
    map(operands, result, |x| (f64::from(x) + by) as f32)
}

pub(super) fn inverse_root(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::InverseRoot { by, epsilon } = kind else { unreachable!("inverse_root's kind") };
    map(operands, result, |x| (by * f64::from(x) + epsilon).sqrt().recip() as f32)
}

pub(super) fn soft_cap(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::SoftCap { cap } = kind else { unreachable!("soft_cap's kind") };
    map(operands, result, |x| (cap * (f64::from(x) / cap).tanh()) as f32)
}

/// Returns `gelu(x)` in the tanh form, and its derivative.
fn gelu(x: f64) -> [f64; 2] {
    let root = std::f64::consts::FRAC_2_PI.sqrt();
    let t = (root * (x + 0.044_715 * x.powi(3))).tanh();
    let slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044_715 * x * x);
    [0.5 * x * (1.0 + t), slope]
}

pub(super) fn gelu_gate(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    binary(operands, result, |gate, up| (gelu(f64::from(gate))[0] * f64::from(up)) as f32, |_, _| 0)
}

pub(super) fn silu(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    map(operands, result, |x| sigmoid_times(x) as f32)
}

pub(super) fn swiglu(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    binary(operands, result, |gate, up| (sigmoid_times(gate) * f64::from(up)) as f32, |_, _| 0)
}

pub(super) fn rms_norm(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let Kind::RmsNorm { epsilon } = kind else { unreachable!("rms_norm's kind") };
    let [x, gamma] = operands else { unreachable!("rms_norm takes x and gamma") };
    let width = gamma.shape[0].max(1);
    let rstd = |row: &[f32]| {
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
        (mean + epsilon).sqrt().recip()
    };
    let data = x.floats().chunks(width).flat_map(|row| {
        let factor = rstd(row);
        row.iter()
            .zip(gamma.floats())
            .map(move |(x, gamma)| (f64::from(*x) * factor * f64::from(*gamma)) as f32)
    });
    let normal = HostTensor::float(x.shape.clone(), x.dtype, data.collect());
    let rows: Shape = x.shape[..x.shape.rank() - 1].into();
    vec![
        normal,
        HostTensor::float(rows, DType::F32, x.floats().chunks(width).map(|row| rstd(row) as f32).collect()),
    ]
}

pub(super) fn rope(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, cos, sin] = operands else { unreachable!("rope takes x, cos and sin") };
    let rank = x.shape.rank();
    let (width, heads) = (x.shape[rank - 1], x.shape[2..rank - 1].iter().product::<usize>());
    let rotated = cos.shape[2];
    let half = rotated / 2;
    let in_pairs = *kind == Kind::RopePairs;
    let mut data = Vec::with_capacity(x.shape.elems());
    for (row, x) in x.floats().chunks(width.max(1)).enumerate() {
        let at = row / heads.max(1) * rotated;
        for i in 0..rotated {
            let (other, angle) = match in_pairs {
                true => (if i % 2 == 0 { -x[i + 1] } else { x[i - 1] }, i / 2 + i % 2 * half),
                false => (if i < half { -x[i + half] } else { x[i - half] }, i),
            };
            data.push(x[i] * cos.floats()[at + angle] + other * sin.floats()[at + angle]);
        }
        data.extend(&x[rotated..]);
    }
    HostTensor::float(result.shape.clone(), result.dtype, data)
}

pub(super) fn capped_attention(kind: &Kind, operands: &[&HostTensor], _: &Value) -> HostTensor {
    attention(kind, operands).swap_remove(0)
}

/// Returns the scale of an attention's scores, and the function that is applied to each score.
fn scores_of(kind: &Kind) -> (f64, impl Fn(f64) -> f64 + use<>) {
    let (scale, cap) = match *kind {
        Kind::Attention { scale }
        | Kind::RingAttention { scale, .. }
        | Kind::SinkAttention { scale }
        | Kind::AttentionGrad { scale }
        | Kind::AttentionGradByHead { scale }
        | Kind::RingAttentionGrad { scale, .. } => (scale, None),
        Kind::CappedAttention { scale, cap }
        | Kind::CappedAttentionGrad { scale, cap }
        | Kind::CappedAttentionGradByHead { scale, cap } => (scale, Some(cap)),
        _ => unreachable!("attention's kind"),
    };
    (scale, move |score| cap.map_or(score, |cap: f64| cap * (score / cap).tanh()))
}

pub(super) fn attention(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let (scale, capped) = scores_of(kind);
    let [q, keys, values, mask, sinks @ ..] = operands else {
        unreachable!("attention takes q, keys, values and a mask")
    };
    let &[batch, sequence, kv_heads, group, width] = q.shape.sizes() else { unreachable!("q has five dims") };
    let length = keys.shape[1];
    let row = |data: &HostTensor, start: usize| data.floats()[start..start + width].to_vec();
    let mut data = Vec::with_capacity(q.shape.elems());
    let rows = Shape::from([batch, kv_heads, group, sequence]);
    let [mut greatest, mut sums_of_exponentials, mut weights_of_sinks] =
        [(); 3].map(|()| vec![0.0; rows.elems()]);
    for (b, s, k, g) in
        indices(&Shape::from([batch, sequence, kv_heads, group])).map(|i| (i[0], i[1], i[2], i[3]))
    {
        let query = row(q, data.len());
        let cell = |t: usize| ((b * length + t) * kv_heads + k) * width;
        let shown: Vec<usize> =
            (0..length).filter(|t| mask.ints()[(b * sequence + s) * length + t] == 0).collect();
        let scores: Vec<f64> = shown
            .iter()
            .map(|t| {
                let key = row(keys, cell(*t));
                capped(
                    scale * query.iter().zip(&key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>(),
                )
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sink =
            sinks.first().map_or(0.0, |sinks| (f64::from(sinks.floats()[k * group + g]) - largest).exp());
        let total = weights.iter().sum::<f64>() + sink;
        let at = ((b * kv_heads + k) * group + g) * sequence + s;
        (greatest[at], sums_of_exponentials[at]) = (largest as f32, total as f32);
        weights_of_sinks[at] = (sink / total) as f32;
        let mut sums = vec![0.0; width];
        for (t, weight) in shown.iter().zip(&weights) {
            for (sum, value) in sums.iter_mut().zip(row(values, cell(*t))) {
                *sum += weight / total * f64::from(value);
            }
        }
        data.extend(sums.into_iter().map(|sum| sum as f32));
    }
    let statistics = [greatest, sums_of_exponentials, weights_of_sinks]
        .map(|numbers| HostTensor::float(rows.clone(), DType::F32, numbers));
    let statistics = statistics.into_iter().take(2 + sinks.len());
    std::iter::once(HostTensor::float(q.shape.clone(), q.dtype, data)).chain(statistics).collect()
}

pub(super) fn take(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, index] = operands else { unreachable!("take takes x and an index") };
    let (sequence, width) = (x.shape[1], x.shape[2]);
    let data = index.ints().iter().enumerate().flat_map(|(row, index)| {
        let at = (row * sequence + usize::try_from(*index).unwrap_or(usize::MAX)) * width;
        x.floats()[at..at + width].iter().copied()
    });
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

fn along(x: &HostTensor, dim: usize) -> impl Iterator<Item = Vec<f32>> + '_ {
    let inner: usize = x.shape[dim + 1..].iter().product();
    let size = x.shape[dim];
    let outer: usize = x.shape[..dim].iter().product();
    (0..outer * inner).map(move |cell| {
        let start = cell / inner * size * inner + cell % inner;
        (0..size).map(|i| x.floats()[start + i * inner]).collect()
    })
}

pub(super) fn reduce_sum(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let (Kind::ReduceSum { dim } | Kind::TreeSum { dim, .. }) = kind else {
        unreachable!("reduce_sum's kind")
    };
    let data =
        along(operands[0], *dim).map(|cells| cells.into_iter().map(f64::from).sum::<f64>() as f32).collect();
    HostTensor::float(result.shape.clone(), result.dtype, data)
}

pub(super) fn reduce_max(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::ReduceMax { dim } = kind else { unreachable!("reduce_max's kind") };
    let data =
        along(operands[0], *dim).map(|cells| cells.into_iter().fold(f32::NEG_INFINITY, f32::max)).collect();
    HostTensor::float(result.shape.clone(), result.dtype, data)
}

pub(super) fn index_of(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, wanted] = operands else { unreachable!("index_of takes x and the wanted values") };
    let data = along(x, x.shape.rank() - 1)
        .zip(wanted.floats())
        .map(|(cells, wanted)| {
            let index = cells.iter().position(|cell| cell == wanted && wanted.is_finite());
            index.map_or(i64::MAX, |index| i64::try_from(index).unwrap_or(i64::MAX))
        })
        .collect();
    HostTensor::int(result.shape.clone(), result.dtype, data)
}

pub(super) fn cast(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let shape = result.shape.clone();
    match (&operands[0].data, result.dtype.is_float()) {
        (HostData::Float(data), true) => HostTensor::float(shape, result.dtype, data.clone()),
        (HostData::Int(data), false) => HostTensor::int(shape, result.dtype, data.clone()),
        (HostData::Int(data), true) => {
            HostTensor::float(shape, result.dtype, data.iter().map(|x| *x as f32).collect())
        }
        (HostData::Float(data), false) => {
            HostTensor::int(shape, result.dtype, data.iter().map(|x| x.trunc() as i64).collect())
        }
    }
}

/// Numbers of elements of the dims before and after one dim.
struct Split {
    outer: usize,
    inner: usize,
}

impl Split {
    fn new(shape: &Shape, dim: usize) -> Self {
        Self { outer: shape[..dim].iter().product(), inner: shape[dim + 1..].iter().product() }
    }

    /// Returns the contiguous elements of `x` along the dim, for one index of the outer dims.
    fn run<'a>(&self, x: &'a HostTensor, outer: usize) -> &'a [f32] {
        let length = x.shape.elems() / self.outer.max(1);
        &x.floats()[outer * length..(outer + 1) * length]
    }
}

pub(super) fn narrow(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Narrow { dim, start, size } = *kind else { unreachable!("narrow's kind") };
    let split = Split::new(&operands[0].shape, dim);
    let mut data = Vec::with_capacity(result.shape.elems());
    for outer in 0..split.outer {
        let run = split.run(operands[0], outer);
        data.extend_from_slice(&run[start * split.inner..(start + size) * split.inner]);
    }
    HostTensor::float(result.shape.clone(), result.dtype, data)
}

pub(super) fn concat(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Concat { dim } = *kind else { unreachable!("concat's kind") };
    let split = Split::new(&result.shape, dim);
    let mut data = Vec::with_capacity(result.shape.elems());
    for outer in 0..split.outer {
        operands.iter().for_each(|x| data.extend_from_slice(split.run(x, outer)));
    }
    HostTensor::float(result.shape.clone(), result.dtype, data)
}

pub(super) fn permute(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Permute { dims } = kind else { unreachable!("permute's kind") };
    let of_operand = operands[0].shape.strides();
    let strides: Dims = dims.iter().map(|dim| of_operand[*dim]).collect();
    let positions = Positions::new(&result.shape, &strides);
    let data = match &operands[0].data {
        HostData::Float(data) => HostData::Float(positions.map(|at| data[at]).collect()),
        HostData::Int(data) => HostData::Int(positions.map(|at| data[at]).collect()),
    };
    HostTensor { shape: result.shape.clone(), dtype: result.dtype, data }
}
