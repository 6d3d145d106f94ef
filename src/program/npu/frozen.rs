//! Lowers the ops of training with compressed gradients to aclnn calls. `schedule` lowers those
//! that communicate, because it knows the groups.

use crate::base::Number;
use crate::call::Call;
use crate::program::op::Kind;

use super::Emit;

pub(in crate::program) fn adamw_scale(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::AdamWScale { correction, epsilon } = *kind else { return };
    let (x, least, out) = (emit.view(0), emit.view(1), emit.out());
    emit.calls.extend([
        Call::Add { a: x, b: least, out: out.clone() },
        Call::Muls { x: out.clone(), out: out.clone(), by: Number::Float(correction.recip()) },
        Call::Sqrt { x: out.clone(), out: out.clone() },
        Call::Adds { x: out.clone(), out: out.clone(), by: Number::Float(epsilon) },
    ]);
    let inverse = emit.result(1).map(|inverse| Call::Reciprocal { x: out, out: inverse });
    emit.calls.extend(inverse);
}

pub(in crate::program) fn adamw(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::FrozenAdamW { decay } = *kind else { return };
    let (w, inverse, sum) = (emit.view(0), emit.view(2), emit.view(3));
    let (factor, rate, corrected) = (emit.view(4), emit.view(5), emit.view(6));
    let m = emit.out();
    if m.elems() == 0 {
        return;
    }
    emit.calls.push(Call::Mul { a: sum, b: factor, out: m.clone() });
    let Some(out) = emit.result(1) else { return };
    let step = emit.temporary(w.dtype, w.shape.clone());
    emit.calls.extend([
        Call::Mul { a: m, b: inverse, out: step.clone() },
        Call::Mul { a: step.clone(), b: corrected, out: step.clone() },
    ]);
    if decay == 0.0 {
        emit.calls.push(Call::Sub { a: w, b: step, out });
        return;
    }
    let left = emit.temporary(rate.dtype, rate.shape.clone());
    emit.calls.extend([
        Call::Muls { x: rate, out: left.clone(), by: Number::Float(-decay) },
        Call::Adds { x: left.clone(), out: left.clone(), by: Number::Float(1.0) },
        Call::Mul { a: w, b: left, out: out.clone() },
        Call::Sub { a: out.clone(), b: step, out },
    ]);
}

/// The sum on a single device, which has no compression error.
pub(in crate::program) fn sum_of_one(_: &Kind, emit: &mut Emit<'_>) {
    let (x, whole, kept) = (emit.view(0), emit.view(2), emit.out());
    if kept.elems() == 0 {
        return;
    }
    if let Some(out) = emit.result(1) {
        emit.calls.extend([
            Call::Add { a: x, b: whole, out: out.clone() },
            Call::Add { a: out.clone(), b: kept.clone(), out },
        ]);
    }
    emit.calls.push(Call::Zero { into: kept });
}
