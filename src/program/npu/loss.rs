//! Lowers the loss over a vocabulary that may be sharded, to aclnn calls or a kernel of this
//! project.

use crate::base::{DType, Number};
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::training::{blanked, column, zeros};
use super::{Emit, local_index};

/// Smallest number of logits for the kernel. It reads each logit once but needs two more launches.
/// The calls read each logit three times and write it twice.
const LEAST_LOGITS: usize = 1 << 16;

/// Numbers per record of [`Call::VocabularyStatistics`] and per row of scales of
/// [`Call::VocabularyGradient`].
const RECORD: usize = 8;

const FORWARD: &str = "vocab_ce_forward";
const BACKWARD: &str = "vocab_ce_backward";

pub(super) fn exponentials(emit: &mut Emit<'_>, x: View, largest: &View, out: View) {
    emit.calls.extend([
        Call::Sub { a: x, b: column(largest), out: out.clone() },
        Call::Exp { x: out.clone(), out },
    ]);
}

pub(in crate::program) fn sum_exp(_: &Kind, emit: &mut Emit<'_>) {
    let (x, largest, out) = (emit.view(0), emit.view(1), emit.out());
    if x.elems() == 0 {
        zeros(emit);
        return;
    }
    if emit.kernels.has(FORWARD) && x.dtype == DType::F32 && x.elems() >= LEAST_LOGITS {
        sum_exp_by_kernel(emit, x, largest, out);
        return;
    }
    let powers = emit.temporary(x.dtype, x.shape.clone());
    let dim = x.shape.rank() - 1;
    exponentials(emit, x, &largest, powers.clone());
    emit.calls.push(Call::ReduceSum { x: powers, out, dim });
}

pub(in crate::program) fn log_probability(_: &Kind, emit: &mut Emit<'_>) {
    let (x, labels, largest, sum, out) = (emit.view(0), emit.view(1), emit.view(2), emit.view(3), emit.out());
    if x.elems() == 0 {
        zeros(emit);
        return;
    }
    let dim = x.shape.rank() - 1;
    let of = emit.operands[0].clone();
    let (index, elsewhere) = local_index(emit, labels, &of, dim);
    let log = emit.temporary(sum.dtype, sum.shape.clone());
    emit.calls.extend([
        Call::Gather { x, index: column(&index), out: column(&out), dim },
        Call::Log { x: sum, out: log.clone() },
        Call::Add { a: log.clone(), b: largest, out: log.clone() },
        Call::Sub { a: out.clone(), b: log, out: out.clone() },
    ]);
    emit.calls.extend(elsewhere.map(|mask| Call::MaskedFill { mask, into: out, value: Number::Float(0.0) }));
}

pub(in crate::program) fn log_probability_grad(_: &Kind, emit: &mut Emit<'_>) {
    let (x, labels, largest, sum) = (emit.view(0), emit.view(1), emit.view(2), emit.view(3));
    let (dy, into) = (emit.view(4), emit.out());
    let dim = x.shape.rank() - 1;
    if emit.kernels.has(BACKWARD) && x.dtype == DType::F32 && x.elems() > 0 {
        gradient_by_kernel(emit, [largest, sum, dy], labels, x, into);
        return;
    }
    let factor = emit.temporary(dy.dtype, dy.shape.clone());
    exponentials(emit, x, &largest, into.clone());
    emit.calls.extend([
        Call::Div { a: dy.clone(), b: sum, out: factor.clone() },
        Call::Muls { x: factor.clone(), out: factor.clone(), by: Number::Float(-1.0) },
        Call::Mul { a: into.clone(), b: column(&factor), out: into.clone() },
    ]);
    let of = emit.operands[0].clone();
    let (index, elsewhere) = local_index(emit, labels, &of, dim);
    let dy = blanked(emit, dy, elsewhere);
    emit.calls.push(Call::ScatterAdd { index: column(&index), from: column(&dy), into, dim });
}

fn rows_of(x: &View) -> [usize; 2] {
    let vocabulary = x.shape[x.shape.rank() - 1];
    [x.elems() / vocabulary, vocabulary]
}

/// Rescales the kernel's sum from the local maximum `m` of each row to the global one: `s · exp(m -
/// largest)`.
fn sum_exp_by_kernel(emit: &mut Emit<'_>, x: View, largest: View, out: View) {
    let [rows, vocabulary] = rows_of(&x);
    let x = emit.shaped(x, [rows, vocabulary]);
    let x = emit.dense(x);
    // The label logit is not used, so any label works.
    let labels = emit.temporary(DType::I32, [rows]);
    let records = emit.temporary(DType::F32, [rows, RECORD]);
    let [m, s] = [0, 1].map(|at| records.narrow(1, at, 1));
    let largest = emit.shaped(largest, [rows, 1]);
    emit.calls.extend([
        Call::Zero { into: labels.clone() },
        Call::VocabularyStatistics { x, labels, records, first: 0 },
        Call::Sub { a: m.clone(), b: largest, out: m.clone() },
        Call::Exp { x: m.clone(), out: m.clone() },
    ]);
    emit.write_shaped(out, [rows, 1], |emit, out| emit.calls.push(Call::Mul { a: s, b: m, out }));
}

/// Copies the logits and computes their gradient in place.
fn gradient_by_kernel(emit: &mut Emit<'_>, [largest, sum, dy]: [View; 3], labels: View, x: View, into: View) {
    let [rows, vocabulary] = rows_of(&x);
    let first = emit.operands[0].starts[x.shape.rank() - 1];
    let [x, labels] =
        [(x, vec![rows, vocabulary]), (labels, vec![rows])].map(|(view, shape)| emit.shaped(view, shape));
    let tokens = emit.temporary(DType::I32, [rows]);
    let scales = emit.temporary(DType::F32, [rows, RECORD]);
    let [of_largest, of_sum, of_gradient] = [0, 1, 2].map(|at| scales.narrow(1, at, 1));
    let [largest, sum, dy] = [largest, sum, dy].map(|view| emit.shaped(view, [rows, 1]));
    emit.calls.extend([
        Call::Cast { x: labels, out: tokens.clone() },
        Call::Zero { into: scales.clone() },
        Call::Copy { from: largest, into: of_largest },
        Call::Copy { from: sum, into: of_sum },
        // The kernel computes the gradient of the loss, which is the negative log probability.
        Call::Muls { x: dy, out: of_gradient, by: Number::Float(-1.0) },
    ]);
    emit.write_shaped(into, [rows, vocabulary], |emit, out| {
        emit.calls.extend([
            Call::Copy { from: x, into: out.clone() },
            Call::VocabularyGradient { x: out, labels: tokens, scales, first },
        ]);
    });
}
