//! Reference implementations of the ops of recurrent layers. They compute in f64 and round once.

use crate::base::{HostData, HostTensor};
use crate::call::SOFTPLUS_THRESHOLD;
use crate::program::graph::Value;
use crate::program::op::Kind;

use super::training::{doubles, like, made};
use super::{Split, map};

pub(in crate::program) fn exp(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    map(operands, result, |x| f64::from(x).exp() as f32)
}

pub(in crate::program) fn softplus(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let softplus = |x: f64| if x > SOFTPLUS_THRESHOLD { x } else { x.exp().ln_1p() };
    map(operands, result, |x| softplus(f64::from(x)) as f32)
}

pub(in crate::program) fn unit(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Unit { scale, epsilon } = *kind else { unreachable!("unit's kind") };
    let width = result.shape.last().copied().unwrap_or(1).max(1);
    let x: Vec<f64> = doubles(operands[0]).collect();
    let rows = x.chunks(width).flat_map(|row| {
        let factor = scale / (row.iter().map(|x| x * x).sum::<f64>() + epsilon).sqrt();
        row.iter().map(move |x| x * factor)
    });
    made(result, rows)
}

pub(in crate::program) fn repeat(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Repeat { dim, size } = *kind else { unreachable!("repeat's kind") };
    let inner: usize = operands[0].shape[dim..].iter().product();
    let runs = operands[0].floats().chunks(inner.max(1));
    let data = runs.flat_map(|run| std::iter::repeat_n(run, size).flatten().copied());
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

pub(in crate::program) fn reshaped(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let HostTensor { data, dtype, .. } = operands[0];
    HostTensor { shape: result.shape.clone(), dtype: *dtype, data: HostData::clone(data) }
}

pub(in crate::program) fn cum_sum(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let (dim, is_reversed) = match *kind {
        Kind::CumSum { dim } => (dim, false),
        Kind::CumSumGrad { dim } => (dim, true),
        _ => unreachable!("cum_sum's kind"),
    };
    let split = Split::new(&result.shape, dim);
    let size = result.shape[dim];
    let mut data: Vec<f64> = doubles(operands[0]).collect();
    for run in data.chunks_mut((size * split.inner).max(1)) {
        for step in 1..size {
            let [from, to] = if is_reversed { [size - step, size - step - 1] } else { [step - 1, step] };
            for at in 0..split.inner {
                run[to * split.inner + at] += run[from * split.inner + at];
            }
        }
    }
    made(result, data)
}

/// Returns the number of rows and columns of the matrices of a tensor.
fn matrix(x: &HostTensor) -> [usize; 2] {
    let rank = x.shape.rank();
    [x.shape[rank - 2], x.shape[rank - 1]]
}

pub(in crate::program) fn lower(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Lower { below } = *kind else { unreachable!("lower's kind") };
    let [rows, columns] = matrix(operands[0]);
    let is_kept = |at: usize| at % columns + below <= at / columns % rows;
    let data = operands[0].floats().iter().enumerate().map(|(at, x)| if is_kept(at) { *x } else { 0.0 });
    HostTensor::float(result.shape.clone(), result.dtype, data.collect())
}

pub(in crate::program) fn unit_lower_inverse(
    _: &Kind,
    operands: &[&HostTensor],
    result: &Value,
) -> HostTensor {
    let [size, _] = matrix(operands[0]);
    let mut data = Vec::with_capacity(result.shape.elems());
    for x in operands[0].floats().chunks((size * size).max(1)) {
        let mut inverse = vec![0.0; size * size];
        for row in 0..size {
            for column in 0..=row {
                let own = if row == column { 1.0 } else { 0.0 };
                let terms =
                    (column..row).map(|at| f64::from(x[row * size + at]) * inverse[at * size + column]);
                inverse[row * size + column] = own - terms.sum::<f64>();
            }
        }
        data.extend(inverse);
    }
    made(result, data)
}

/// Sizes of a convolution.
struct Convolution {
    batch: usize,
    tokens: usize,
    taps: usize,
    channels: usize,
    results: usize,
    padded: usize,
}

impl Convolution {
    fn new(x: &HostTensor, filter: &HostTensor, padded: usize) -> Self {
        let (batch, tokens) = (x.shape[0], x.shape[1]);
        let taps = filter.shape.last().copied().unwrap_or(1);
        let channels = x.shape[2..].iter().product();
        Self { batch, tokens, taps, channels, results: tokens + padded + 1 - taps, padded }
    }

    /// Calls `each` with the positions of every term: in the result, in the filter, and in `x`.
    fn terms(&self, mut each: impl FnMut(usize, usize, usize)) {
        let Self { batch, tokens, taps, channels, results, padded } = *self;
        for row in 0..batch * results {
            for tap in 0..taps {
                let Some(token) = (row % results + tap).checked_sub(padded) else { continue };
                let from = (row / results * tokens + token) * channels;
                for channel in 0..channels {
                    each(row * channels + channel, channel * taps + tap, from + channel);
                }
            }
        }
    }
}

pub(in crate::program) fn convolution(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::CausalConvolution { padded } = *kind else { unreachable!("causal_convolution's kind") };
    let [x, filter] = operands else { unreachable!("causal_convolution takes x and a filter") };
    let mut y = vec![0.0; result.shape.elems()];
    Convolution::new(x, filter, padded).terms(|to, tap, from| {
        y[to] += f64::from(filter.floats()[tap]) * f64::from(x.floats()[from]);
    });
    made(result, y)
}

pub(in crate::program) fn convolution_grad(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let Kind::CausalConvolutionGrad { padded } = *kind else {
        unreachable!("causal_convolution_grad's kind")
    };
    let [x, filter, dy] = operands else { unreachable!("causal_convolution_grad takes x, a filter and dy") };
    let (mut dx, mut dfilter) = (vec![0.0; x.shape.elems()], vec![0.0; filter.shape.elems()]);
    Convolution::new(x, filter, padded).terms(|to, tap, from| {
        let dy = f64::from(dy.floats()[to]);
        dx[from] += dy * f64::from(filter.floats()[tap]);
        dfilter[tap] += dy * f64::from(x.floats()[from]);
    });
    vec![like(x, dx), like(filter, dfilter)]
}

pub(in crate::program) fn select_tokens(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, index] = operands else { unreachable!("select_tokens takes x and an index") };
    let (tokens, chosen) = (x.shape[1], index.shape[1].max(1));
    let width: usize = x.shape[2..].iter().product();
    let rows = index.ints().iter().enumerate().flat_map(|(row, token)| {
        let at = (row / chosen * tokens + usize::try_from(*token).unwrap_or(usize::MAX)) * width;
        x.floats()[at..at + width].iter().copied()
    });
    HostTensor::float(result.shape.clone(), result.dtype, rows.collect())
}
