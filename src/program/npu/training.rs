//! Lowers training ops to aclnn calls on the shards of one device.

use crate::base::{DType, Number, Shape};
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::{COPIES, Emit, attention_operands, joined, local_index};

pub(super) fn column(view: &View) -> View {
    view.repeat(view.shape.rank(), 1)
}

pub(super) fn zeros(emit: &mut Emit<'_>) {
    let views = emit.results.iter().map(|result| result.view.clone()).filter(|view| view.elems() > 0);
    emit.calls.extend(views.map(|into| Call::Zero { into }));
}

pub(in crate::program) fn narrow_grad(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::NarrowGrad { dim, start } = *kind else { return };
    let (dy, out) = (emit.view(0), emit.out());
    let size = dy.shape[dim];
    emit.calls.push(Call::Zero { into: out.clone() });
    if dy.elems() > 0 {
        emit.calls.push(Call::Copy { from: dy, into: out.narrow(dim, start, size) });
    }
}

pub(in crate::program) fn reduce_to(_: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    if x.elems() == 0 {
        zeros(emit);
        return;
    }
    // The missing leading dims are merged into one, which the reduction can keep.
    let lead = x.shape.rank() - out.shape.rank();
    let (mut x, mut out) = (x, out);
    if lead > 0 {
        let rows = x.shape[..lead].iter().product::<usize>();
        let shape: Shape = std::iter::once(rows).chain(x.shape[lead..].iter().copied()).collect();
        x = emit.shaped(x, shape);
        out = out.repeat(0, 1);
    }
    let mut dims: Vec<usize> = (0..x.shape.rank()).filter(|dim| x.shape[*dim] != out.shape[*dim]).collect();
    let Some(last) = dims.pop() else {
        emit.calls.push(Call::Copy { from: x, into: out });
        return;
    };
    for dim in dims {
        let sum = emit.temporary(x.dtype, x.shape.with(dim, 1));
        emit.calls.push(Call::ReduceSum { x, out: sum.clone(), dim });
        x = sum;
    }
    emit.calls.push(Call::ReduceSum { x, out, dim: last });
}

pub(in crate::program) fn silu_grad(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::SiluGrad { x: emit.view(0), dy: emit.view(1), out: emit.out() });
}

pub(in crate::program) fn swiglu_grad(_: &Kind, emit: &mut Emit<'_>) {
    let (gate, up, dy, out) = (emit.view(0), emit.view(1), emit.view(2), emit.out());
    let of_silu = emit.temporary(dy.dtype, dy.shape.clone());
    emit.calls.extend([
        Call::Mul { a: dy.clone(), b: up, out: of_silu.clone() },
        Call::SiluGrad { x: gate.clone(), dy: of_silu, out },
    ]);
    if let Some(out) = emit.result(1) {
        emit.calls
            .extend([Call::Silu { x: gate, out: out.clone() }, Call::Mul { a: out.clone(), b: dy, out }]);
    }
}

pub(in crate::program) fn gelu_gate_grad(_: &Kind, emit: &mut Emit<'_>) {
    let (gate, up, dy, out) = (emit.view(0), emit.view(1), emit.view(2), emit.out());
    let of_gelu = emit.temporary(dy.dtype, dy.shape.clone());
    emit.calls.extend([
        Call::Mul { a: dy.clone(), b: up, out: of_gelu.clone() },
        Call::GeluGrad { dy: of_gelu, x: gate.clone(), out },
    ]);
    if let Some(out) = emit.result(1) {
        emit.calls
            .extend([Call::Gelu { x: gate, out: out.clone() }, Call::Mul { a: out.clone(), b: dy, out }]);
    }
}

pub(in crate::program) fn rms_norm_grad(_: &Kind, emit: &mut Emit<'_>) {
    let (dy, x, rstd, mut gamma, dx) = (emit.view(0), emit.view(1), emit.view(2), emit.view(3), emit.out());
    if x.elems() == 0 {
        zeros(emit);
        return;
    }
    let dgamma = emit.result(1).unwrap_or_else(|| emit.temporary(DType::F32, gamma.shape.clone()));
    if gamma.dtype != DType::F32 {
        let wide = emit.temporary(DType::F32, gamma.shape.clone());
        emit.calls.push(Call::Cast { x: gamma, out: wide.clone() });
        gamma = wide;
    }
    // The operator needs more dims than gamma has.
    let [dy, x, rstd, dx] = [&dy, &x, &column(&rstd), &dx].map(|view| view.repeat(0, 1));
    emit.calls.push(Call::RmsNormGrad { dy, x, rstd, gamma, dx, dgamma });
}

pub(in crate::program) fn gamma_terms(_: &Kind, emit: &mut Emit<'_>) {
    let (dy, x, rstd, out) = (emit.view(0), emit.view(1), emit.view(2), emit.out());
    emit.calls.push(Call::Mul { a: dy, b: x, out: out.clone() });
    emit.calls.push(Call::Mul { a: out.clone(), b: column(&rstd), out });
}

/// Computes attention without the sinks. With its log-sum-exp `l`, all keys together have the
/// weight `sigmoid(l - sink)`, which the result is multiplied by.
pub(in crate::program) fn sink_attention(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::SinkAttention { scale } = *kind else { return };
    let [q, keys, values, mask, sinks] = [0, 1, 2, 3, 4].map(|operand| emit.view(operand));
    let &[b, s, k, g, _] = q.shape.sizes() else { return };
    let (out, [max, with_sink, of_sink]) = (emit.out(), [1, 2, 3].map(|result| emit.result(result)));
    let [sum, above, share] = [(); 3].map(|()| emit.temporary(DType::F32, [b, k, g, s]));
    let max = max.unwrap_or_else(|| emit.temporary(DType::F32, [b, k, g, s]));
    if q.elems() == 0 {
        return;
    }
    let dtype = q.dtype;
    let statistics = [out.clone(), max.clone(), sum.clone()];
    joined::alone(&Kind::Attention { scale }, vec![q, keys, values, mask], &statistics, emit);
    emit.calls.extend([
        Call::Log { x: sum.clone(), out: above.clone() },
        Call::Add { a: above.clone(), b: max, out: above.clone() },
        Call::Sub { a: above.clone(), b: sinks.repeat(2, 1).repeat(0, 1), out: above.clone() },
        Call::Sigmoid { x: above.clone(), out: share.clone() },
    ]);
    if let Some(out) = with_sink {
        emit.calls.push(Call::Div { a: sum, b: share.clone(), out });
    }
    if let Some(out) = of_sink {
        emit.calls.extend([
            Call::Muls { x: above.clone(), out: above.clone(), by: Number::Float(-1.0) },
            Call::Sigmoid { x: above, out },
        ]);
    }
    let share = match dtype {
        DType::F32 => share,
        _ => {
            let narrow = emit.temporary(dtype, share.shape.clone());
            emit.calls.push(Call::Cast { x: share, out: narrow.clone() });
            narrow
        }
    };
    let b = share.permute(&[0, 3, 1, 2]).repeat(4, 1);
    emit.calls.push(Call::Mul { a: out.clone(), b, out });
}

pub(in crate::program) fn attention_grad(kind: &Kind, emit: &mut Emit<'_>) {
    let (Kind::AttentionGrad { scale }
    | Kind::AttentionGradByHead { scale }
    | Kind::RingAttentionGrad { scale, .. }) = *kind
    else {
        return;
    };
    if emit.view(0).elems() == 0 || emit.view(1).elems() == 0 {
        zeros(emit);
        return;
    }
    let [q, mut k, mut v, mask] = attention_operands(emit);
    let &[b, s, heads, _] = q.shape.sizes() else { return };
    if matches!(kind, Kind::AttentionGradByHead { .. }) {
        // The operator needs separate keys and values for each query head.
        let &[_, t, kv_heads, d] = k.shape.sizes() else { return };
        [k, v] = [k, v].map(|view| {
            let by_head = view.repeat(3, heads / kv_heads);
            let by_head = emit.shaped(by_head, [b, t, heads, d]);
            emit.dense(by_head)
        });
    }
    let [dy, out] = [4, 5].map(|operand| {
        let view = emit.view(operand);
        let view = emit.shaped(view, q.shape.clone());
        emit.dense(view)
    });
    let [max, sum] = [6, 7].map(|operand| {
        let row = emit.view(operand);
        let row = emit.shaped(row, [b, heads, s]);
        emit.dense(row.repeat(3, COPIES))
    });
    let mut made = Vec::with_capacity(3);
    for (result, like) in [&q, &k, &v].into_iter().enumerate() {
        let view =
            emit.result(result).and_then(|view| view.reshape(like.shape.clone())).filter(View::is_contiguous);
        made.push(view.unwrap_or_else(|| emit.temporary(like.dtype, like.shape.clone())));
    }
    let [q, k, v, dy, mask, max, sum, out] = [q, k, v, dy, mask, max, sum, out].map(Box::new);
    let [dq, dk, dv] = [0, 1, 2].map(|result: usize| Box::new(made[result].clone()));
    emit.calls.push(Call::FlashAttentionGrad { q, k, v, dy, mask, max, sum, out, dq, dk, dv, heads, scale });
    for (result, made) in made.into_iter().enumerate() {
        let Some(into) = emit.result(result).filter(|into| into.buffer != made.buffer) else { continue };
        let from = emit.shaped(made, into.shape.clone());
        emit.calls.push(Call::Copy { from, into });
    }
}

/// Returns a dense copy of `view` with zeros where `elsewhere` is true.
pub(super) fn blanked(emit: &mut Emit<'_>, view: View, elsewhere: Option<View>) -> View {
    let Some(mask) = elsewhere else { return view };
    let into = emit.temporary(view.dtype, view.shape.clone());
    let mask = (mask.shape.rank()..into.shape.rank()).fold(mask, |mask, dim| mask.repeat(dim, 1));
    emit.calls.push(Call::Copy { from: view, into: into.clone() });
    emit.calls.push(Call::MaskedFill { mask, into: into.clone(), value: Number::Float(0.0) });
    into
}

pub(in crate::program) fn embed_grad(_: &Kind, emit: &mut Emit<'_>) {
    let (ids, dy, into) = (emit.view(0), emit.view(1), emit.out());
    zeros(emit);
    if ids.elems() == 0 {
        return;
    }
    let of = emit.results[0].clone();
    let (index, elsewhere) = local_index(emit, ids, &of, 0);
    let dy = blanked(emit, dy, elsewhere);
    let (count, width) = (index.elems(), into.shape[1]);
    let index = emit.shaped(index, [count]);
    let rows = emit.shaped(dy, [count, width]);
    emit.calls.push(Call::IndexAdd { index, rows, into, dim: 0 });
}

pub(in crate::program) fn take_grad(_: &Kind, emit: &mut Emit<'_>) {
    let (index, dy, into) = (emit.view(0), emit.view(1), emit.out());
    zeros(emit);
    let index = index.repeat(1, 1).repeat(2, into.shape[2]);
    emit.calls.push(Call::ScatterAdd { index, from: dy.repeat(1, 1), into, dim: 1 });
}

pub(in crate::program) fn clip_factor(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::ClipFactor { largest } = kind else { return };
    let (x, norm) = (emit.view(0), emit.out());
    emit.calls.push(Call::Sqrt { x, out: norm.clone() });
    let Some(out) = emit.result(1) else { return };
    if *largest <= 0.0 {
        emit.calls.push(Call::Fill { into: out, value: Number::Float(1.0) });
        return;
    }
    emit.calls.extend([
        Call::Adds { x: norm.clone(), out: out.clone(), by: Number::Float(1e-6) },
        Call::Reciprocal { x: out.clone(), out: out.clone() },
        Call::Muls { x: out.clone(), out: out.clone(), by: Number::Float(*largest) },
        Call::Clamp { x: out.clone(), out: out.clone(), low: Number::Float(0.0), high: Number::Float(1.0) },
    ]);
    // A NaN norm does not change the gradients. Only updates with a NaN gradient become NaN.
    let is_nan = emit.temporary(DType::Bool, norm.shape.clone());
    emit.calls.extend([
        Call::Ne { a: norm.clone(), b: norm, out: is_nan.clone() },
        Call::MaskedFill { mask: is_nan, into: out, value: Number::Float(1.0) },
    ]);
}

pub(in crate::program) fn adamw(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::AdamW { beta1, beta2, epsilon, decay } = *kind else { return };
    let (from, grad, factor) = (emit.view(0), emit.view(3), emit.view(4));
    let (rate, step) = (emit.view(5), emit.view(6).repeat(0, 1));
    let (m, v) = (emit.out(), emit.results[1].view.clone());
    if m.elems() == 0 {
        return;
    }
    // The operator takes the learning rate as a host number, which a plan fixes. A copy of the
    // weights therefore takes a step at rate 1, and the weights are interpolated towards it by the
    // actual rate.
    let [w, scaled] = [(); 2].map(|()| emit.temporary(from.dtype, from.shape.clone()));
    emit.calls.extend([
        Call::Mul { a: grad, b: factor, out: scaled.clone() },
        Call::Copy { from: from.clone(), into: w.clone() },
        Call::AdamW { grad: scaled, step, w: w.clone(), m, v, beta1, beta2, decay, epsilon },
    ]);
    if let Some(out) = emit.result(2) {
        emit.calls.push(Call::Lerp { a: from, b: w, weight: rate, out });
    }
}

pub(in crate::program) fn assign(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Copy { from: emit.view(1), into: emit.out() });
}
