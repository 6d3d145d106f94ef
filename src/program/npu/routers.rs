//! Lowers routers to aclnn calls on the shards of one device.

use crate::base::{DType, Number};
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::Emit;
use super::loss::exponentials;

pub(in crate::program) fn sigmoid(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Sigmoid { x: emit.view(0), out: emit.out() });
}

pub(in crate::program) fn softmax(_: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    let dim = x.shape.rank() - 1;
    emit.calls.push(Call::Softmax { x, out, dim });
}

pub(in crate::program) fn log_sum_exp(_: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    let dim = x.shape.rank() - 1;
    let largest = emit.temporary(x.dtype, out.shape.clone());
    let powers = emit.temporary(x.dtype, x.shape.clone());
    emit.largest(x.clone(), dim, largest.clone());
    exponentials(emit, x, &largest, powers.clone());
    emit.calls.extend([
        Call::ReduceSum { x: powers, out: out.clone(), dim },
        Call::Log { x: out.clone(), out: out.clone() },
        Call::Add { a: out.clone(), b: largest, out },
    ]);
}

pub(in crate::program) fn reciprocal(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Reciprocal { epsilon } = kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    emit.calls.extend([
        Call::Adds { x, out: out.clone(), by: Number::Float(*epsilon) },
        Call::Reciprocal { x: out.clone(), out },
    ]);
}

impl Emit<'_> {
    /// Returns the largest elements of dim `dim`, sorted, and their indices.
    fn top(&mut self, x: View, dim: usize, count: usize) -> [View; 2] {
        let shape = x.shape.with(dim, count);
        let (values, indices) = (self.temporary(x.dtype, shape.clone()), self.temporary(DType::I64, shape));
        self.calls.push(Call::Topk { x, values: values.clone(), indices: indices.clone(), dim });
        [values, indices]
    }

    /// Returns a tensor with every element set to `value`.
    pub(super) fn filled(&mut self, like: &View, value: f64) -> View {
        let into = self.temporary(like.dtype, like.shape.clone());
        self.calls.push(Call::Fill { into: into.clone(), value: Number::Float(value) });
        into
    }

    /// Returns the elements of `x` `[rows,groups,size]`, with negative infinity in place of
    /// unused groups.
    fn best_groups(&mut self, x: &View, [kept, summed]: [usize; 2]) -> View {
        let [rows, groups, _] = [0, 1, 2].map(|dim| x.shape[dim]);
        let [largest, _] = self.top(x.clone(), 2, summed);
        let scores = self.temporary(x.dtype, [rows, groups]);
        self.calls.push(Call::ReduceSum { x: largest, out: scores.clone(), dim: 2 });
        let [_, best] = self.top(scores.clone(), 1, kept);
        // A group that is among the best gets a one.
        let used = self.temporary(x.dtype, scores.shape.clone());
        let like = self.temporary(x.dtype, best.shape.clone());
        let ones = self.filled(&like, 1.0);
        let all = self.filled(&scores, 1.0);
        let unused = self.temporary(DType::Bool, scores.shape.clone());
        let masked = self.temporary(x.dtype, x.shape.clone());
        self.calls.extend([
            Call::Zero { into: used.clone() },
            Call::ScatterAdd { index: best, from: ones, into: used.clone(), dim: 1 },
            Call::Ne { a: used, b: all, out: unused.clone() },
            Call::Copy { from: x.clone(), into: masked.clone() },
            Call::MaskedFill {
                mask: unused.repeat(2, 1),
                into: masked.clone(),
                value: Number::Float(f64::NEG_INFINITY),
            },
        ]);
        masked
    }
}

pub(in crate::program) fn choose(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Choose { chosen, groups, kept, summed } = *kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    let size = x.shape[x.shape.rank() - 1];
    let rows = x.elems() / size;
    let mut x = emit.shaped(x, [rows, groups, size / groups]);
    if groups > kept {
        x = emit.best_groups(&x, [kept, summed]);
    }
    let x = emit.shaped(x, [rows, size]);
    let values = emit.temporary(x.dtype, [rows, chosen]);
    emit.write_shaped(out, [rows, chosen], |emit, indices| {
        emit.calls.push(Call::Topk { x, values, indices, dim: 1 });
    });
}

pub(in crate::program) fn pick(_: &Kind, emit: &mut Emit<'_>) {
    let (x, index, out) = (emit.view(0), emit.view(1), emit.out());
    let dim = x.shape.rank() - 1;
    emit.calls.push(Call::Gather { x, index, out, dim });
}

pub(in crate::program) fn pick_grad(_: &Kind, emit: &mut Emit<'_>) {
    let (index, from, into) = (emit.view(0), emit.view(1), emit.out());
    let dim = into.shape.rank() - 1;
    emit.calls.extend([Call::Zero { into: into.clone() }, Call::ScatterAdd { index, from, into, dim }]);
}
