//! Soft caps, and attention with capped scores, as aclnn calls.
//!
//! CANN has no fused attention with capped scores, so these are compositions. Products have the
//! type of their operands. Everything between two products is f32, because a 16-bit score near the
//! cap has few bits below 1.

use crate::base::{DType, Number};
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::Emit;
use super::training::zeros;

impl Emit<'_> {
    fn as_type(&mut self, x: View, dtype: DType) -> View {
        if x.dtype == dtype {
            return x;
        }
        let out = self.temporary(dtype, x.shape.clone());
        self.calls.push(Call::Cast { x, out: out.clone() });
        out
    }

    fn wide_product(&mut self, a: View, b: View) -> View {
        let shape = a.shape.with(a.shape.rank() - 1, b.shape[b.shape.rank() - 1]);
        let out = self.temporary(a.dtype, shape);
        self.calls.push(Call::Matmul { a, b, out: out.clone() });
        self.as_type(out, DType::F32)
    }

    /// Returns the weights of values, f32 `[b,k,g,s,t]`, and the tanh of scores before they are
    /// masked.
    fn capped_weights(&mut self, scale: f64, cap: f64) -> [View; 2] {
        let (q, keys, mask) = (self.view(0), self.view(1), self.view(3));
        let tanh = self.wide_product(q.permute(&[0, 2, 3, 1, 4]), keys.permute(&[0, 2, 3, 1]).repeat(2, 1));
        let [scores, weights] = [(); 2].map(|()| self.temporary(DType::F32, tanh.shape.clone()));
        let mask = mask.repeat(1, 1).repeat(1, 1);
        self.calls.extend([
            Call::Muls { x: tanh.clone(), out: tanh.clone(), by: Number::Float(scale / cap) },
            Call::Tanh { x: tanh.clone(), out: tanh.clone() },
            Call::Muls { x: tanh.clone(), out: scores.clone(), by: Number::Float(cap) },
            Call::MaskedFill { mask, into: scores.clone(), value: Number::Float(f64::NEG_INFINITY) },
            Call::Softmax { x: scores, out: weights.clone(), dim: 4 },
        ]);
        [weights, tanh]
    }
}

pub(in crate::program) fn soft_cap(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::SoftCap { cap } = *kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    emit.calls.extend([
        Call::Muls { x, out: out.clone(), by: Number::Float(cap.recip()) },
        Call::Tanh { x: out.clone(), out: out.clone() },
        Call::Muls { x: out.clone(), out, by: Number::Float(cap) },
    ]);
}

pub(in crate::program) fn attention(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::CappedAttention { scale, cap } = *kind else { return };
    let (values, out) = (emit.view(2), emit.out());
    let [weights, _] = emit.capped_weights(scale, cap);
    let weights = emit.as_type(weights, values.dtype);
    let values = values.permute(&[0, 2, 1, 3]).repeat(2, 1);
    let out = out.permute(&[0, 2, 3, 1, 4]);
    let shape = out.shape.clone();
    emit.write_shaped(out, shape, |emit, out| emit.calls.push(Call::Matmul { a: weights, b: values, out }));
}

pub(in crate::program) fn attention_grad(kind: &Kind, emit: &mut Emit<'_>) {
    let (Kind::CappedAttentionGrad { scale, cap } | Kind::CappedAttentionGradByHead { scale, cap }) = *kind
    else {
        return;
    };
    let [q, keys, values, dy] = [0, 1, 2, 4].map(|operand| emit.view(operand));
    if q.elems() == 0 || keys.elems() == 0 {
        zeros(emit);
        return;
    }
    let [weights, tanh] = emit.capped_weights(scale, cap);
    let &[b, k, g, s, t] = weights.shape.sizes() else { return };
    let (d, dtype) = (q.shape[4], q.dtype);
    let by_head = |view: &View| view.permute(&[0, 2, 3, 1, 4]);
    let of_weights = emit.wide_product(by_head(&dy), values.permute(&[0, 2, 3, 1]).repeat(2, 1));
    let [of_scores, slope] = [(); 2].map(|()| emit.temporary(DType::F32, weights.shape.clone()));
    let mean = emit.temporary(DType::F32, [b, k, g, s, 1]);
    // With weights w: w · (dw - Σ w dw), times the slope of the cap, times the scale.
    emit.calls.extend([
        Call::Mul { a: weights.clone(), b: of_weights.clone(), out: of_scores.clone() },
        Call::ReduceSum { x: of_scores.clone(), out: mean.clone(), dim: 4 },
        Call::Sub { a: of_weights, b: mean, out: of_scores.clone() },
        Call::Mul { a: of_scores.clone(), b: weights.clone(), out: of_scores.clone() },
        Call::Mul { a: tanh.clone(), b: tanh, out: slope.clone() },
        Call::Muls { x: slope.clone(), out: slope.clone(), by: Number::Float(-scale) },
        Call::Adds { x: slope.clone(), out: slope.clone(), by: Number::Float(scale) },
        Call::Mul { a: of_scores.clone(), b: slope, out: of_scores.clone() },
    ]);
    let [weights, of_scores] = [weights, of_scores].map(|view| emit.as_type(view, dtype));
    let by_key = keys.permute(&[0, 2, 1, 3]).repeat(2, 1);
    let (of_q, scores) = (by_head(&emit.out()), of_scores.clone());
    emit.write_shaped(of_q, [b, k, g, s, d], |emit, out| {
        emit.calls.push(Call::Matmul { a: scores, b: by_key, out });
    });
    let is_by_head = matches!(kind, Kind::CappedAttentionGradByHead { .. });
    for (result, factors, of) in [(1, of_scores, q), (2, weights, dy)] {
        let Some(into) = emit.result(result) else { continue };
        if is_by_head {
            let (factors, rows) = (factors.permute(&[0, 1, 2, 4, 3]), by_head(&of));
            emit.write_shaped(into.permute(&[0, 2, 3, 1, 4]), [b, k, g, t, d], |emit, out| {
                emit.calls.push(Call::Matmul { a: factors, b: rows, out });
            });
            continue;
        }
        // Keys and values sum over the queries of all heads that share them.
        let rows = emit.shaped(by_head(&of), [b, k, g * s, d]);
        let factors = emit.shaped(factors, [b, k, g * s, t]).permute(&[0, 1, 3, 2]);
        emit.write_shaped(into.permute(&[0, 2, 1, 3]), [b, k, t, d], |emit, out| {
            emit.calls.push(Call::Matmul { a: factors, b: rows, out });
        });
    }
}
