//! Lowers the ops of recurrent layers to aclnn calls on the shards of one device.

use crate::base::{DType, Number};
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::Emit;

pub(in crate::program) fn exp(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Exp { x: emit.view(0), out: emit.out() });
}

pub(in crate::program) fn softplus(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Softplus { x: emit.view(0), out: emit.out() });
}

/// A norm with the same factor for all elements of a row.
pub(in crate::program) fn unit(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Unit { scale, epsilon } = *kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    let last = x.shape.rank() - 1;
    let width = x.shape[last];
    let gamma = emit.constant((scale / (width as f64).sqrt()) as f32, width);
    let rstd = emit.temporary(DType::F32, x.shape.with(last, 1));
    emit.calls.push(Call::RmsNorm { x, gamma, out, rstd, epsilon: epsilon / width as f64 });
}

pub(in crate::program) fn cum_sum(kind: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    match *kind {
        Kind::CumSum { dim } => emit.calls.push(Call::CumSum { x, out, dim }),
        Kind::CumSumGrad { dim } => {
            // All elements, without the earlier ones.
            let total = emit.temporary(x.dtype, x.shape.with(dim, 1));
            let until = emit.temporary(x.dtype, x.shape.clone());
            let others = emit.temporary(x.dtype, x.shape.clone());
            emit.calls.extend([
                Call::ReduceSum { x: x.clone(), out: total.clone(), dim },
                Call::CumSum { x: x.clone(), out: until.clone(), dim },
                Call::Sub { a: x, b: until, out: others.clone() },
                Call::Add { a: others, b: total, out },
            ]);
        }
        _ => {}
    }
}

pub(in crate::program) fn lower(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Lower { below } = *kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    emit.calls.push(Call::Lower { x, out, below });
}

/// Returns the blocks `[n,count,size,size]` of matrices `[n,rows,rows]`, at a row and a column of
/// every square of `2 · size` on the main diagonal.
fn blocks(matrices: &View, size: usize, [row, column]: [usize; 2]) -> View {
    let (rows, strides) = (matrices.shape[1], &matrices.strides);
    View {
        offset: matrices.offset + row * strides[1] + column * strides[2],
        shape: [matrices.shape[0], rows / (2 * size), size, size].into(),
        strides: [strides[0], 2 * size * (strides[1] + strides[2]), strides[1], strides[2]]
            .into_iter()
            .collect(),
        ..matrices.clone()
    }
}

/// Inverts squares on the diagonal of twice the size in each round: the inverse of `[[a, 0], [c,
/// b]]` has `b⁻¹ (-c) a⁻¹` in place of `c`. This is a substitution, which stays exact if keys
/// repeat.
pub(in crate::program) fn unit_lower_inverse(_: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    let rank = x.shape.rank();
    let size = x.shape[rank - 1];
    let count = x.elems() / (size * size);
    let padded = size.next_power_of_two();
    let x = emit.shaped(x, [count, size, size]);
    let [negative, inverse] = [(); 2].map(|()| emit.temporary(DType::F32, [count, padded, padded]));
    let strides = [padded * padded, padded + 1].into_iter().collect();
    let diagonal =
        View { shape: [count, padded].into(), strides, dtype: DType::F32, offset: 0, buffer: inverse.buffer };
    if padded > size {
        emit.calls.push(Call::Zero { into: negative.clone() });
    }
    let into = negative.narrow(1, 0, size).narrow(2, 0, size);
    emit.calls.extend([
        Call::Muls { x, out: into, by: Number::Float(-1.0) },
        Call::Zero { into: inverse.clone() },
        Call::Fill { into: diagonal, value: Number::Float(1.0) },
    ]);
    let rounds =
        std::iter::successors(Some(1), |size: &usize| Some(size * 2)).take_while(|size| *size < padded);
    for size in rounds {
        let into = blocks(&inverse, size, [size, 0]);
        let below = blocks(&negative, size, [size, 0]);
        if size == 1 {
            emit.calls.push(Call::Copy { from: below, into });
            continue;
        }
        let [first, second] = [[0, 0], [size, size]].map(|place| blocks(&inverse, size, place));
        let [product, found] = [(); 2].map(|()| emit.temporary(DType::F32, into.shape.clone()));
        emit.calls.extend([
            Call::Matmul { a: below, b: first, out: product.clone() },
            Call::Matmul { a: second, b: product, out: found.clone() },
            Call::Copy { from: found, into },
        ]);
    }
    let shape = out.shape.clone();
    let inverse = inverse.narrow(1, 0, size).narrow(2, 0, size);
    let from = emit.shaped(inverse, shape);
    emit.calls.push(Call::Copy { from, into: out });
}

impl Emit<'_> {
    /// Returns operand 0 of a convolution with `padded` zeros before its tokens.
    fn with_zeros(&mut self, padded: usize) -> View {
        let x = self.view(0);
        if padded == 0 {
            return x;
        }
        let tokens = x.shape[1];
        let wide = self.temporary(x.dtype, x.shape.with(1, tokens + padded));
        self.calls.push(Call::Zero { into: wide.narrow(1, 0, padded) });
        self.calls.push(Call::Copy { from: x, into: wide.narrow(1, padded, tokens) });
        wide
    }

    /// Returns the taps `[taps,…]` of the filter, which is operand 1.
    fn taps(&self) -> View {
        let filter = self.view(1);
        let last = filter.shape.rank() - 1;
        let order: Vec<usize> = std::iter::once(last).chain(0..last).collect();
        filter.permute(&order)
    }
}

pub(in crate::program) fn convolution(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::CausalConvolution { padded } = *kind else { return };
    let (x, filter, out) = (emit.with_zeros(padded), emit.taps(), emit.out());
    let (taps, tokens) = (filter.shape[0], out.shape[1]);
    if tokens == 1 && padded == 0 {
        let products = emit.temporary(x.dtype, x.shape.clone());
        emit.calls.extend([
            Call::Mul { a: x, b: filter, out: products.clone() },
            Call::ReduceSum { x: products, out, dim: 1 },
        ]);
        return;
    }
    let filter = emit.dense(filter);
    let product = emit.temporary(x.dtype, out.shape.clone());
    for tap in 0..taps {
        let (a, b) = (x.narrow(1, tap, tokens), filter.narrow(0, tap, 1));
        if tap == 0 {
            emit.calls.push(Call::Mul { a, b, out: out.clone() });
            continue;
        }
        emit.calls.extend([
            Call::Mul { a, b, out: product.clone() },
            Call::Add { a: out.clone(), b: product.clone(), out: out.clone() },
        ]);
    }
}

pub(in crate::program) fn convolution_grad(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::CausalConvolutionGrad { padded } = *kind else { return };
    let (x, filter) = (emit.with_zeros(padded), emit.taps());
    let filter = emit.dense(filter);
    let (dy, dx, dfilter) = (emit.view(2), emit.out(), emit.result(1));
    let (taps, tokens) = (filter.shape[0], dy.shape[1]);
    let product = emit.temporary(dy.dtype, dy.shape.clone());
    let sums = emit.temporary(x.dtype, x.shape.clone());
    emit.calls.push(Call::Zero { into: sums.clone() });
    for tap in 0..taps {
        let into = sums.narrow(1, tap, tokens);
        emit.calls.extend([
            Call::Mul { a: dy.clone(), b: filter.narrow(0, tap, 1), out: product.clone() },
            Call::Add { a: into.clone(), b: product.clone(), out: into },
        ]);
    }
    emit.calls.push(Call::Copy { from: sums.narrow(1, padded, dx.shape[1]), into: dx });
    let Some(dfilter) = dfilter else { return };
    let channels = dfilter.elems() / taps;
    let last = dfilter.shape.rank() - 1;
    for tap in 0..taps {
        let rows = product.shape[0] * tokens;
        let sum = emit.temporary(x.dtype, dfilter.shape.with(last, 1));
        let products = emit.shaped(product.clone(), [rows, channels]);
        let out = emit.shaped(sum.clone(), [channels]);
        emit.calls.extend([
            Call::Mul { a: dy.clone(), b: x.narrow(1, tap, tokens), out: product.clone() },
            Call::ReduceSum { x: products, out, dim: 0 },
            Call::Copy { from: sum, into: dfilter.narrow(last, tap, 1) },
        ]);
    }
}

pub(in crate::program) fn select_tokens(_: &Kind, emit: &mut Emit<'_>) {
    let (x, mut index, out) = (emit.view(0), emit.view(1), emit.out());
    for dim in 2..x.shape.rank() {
        index = index.repeat(dim, x.shape[dim]);
    }
    emit.calls.push(Call::Gather { x, index, out, dim: 1 });
}
