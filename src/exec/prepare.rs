//! One call of a plan, as the operator of `device` that runs it.

use crate::device::operator as op;
use crate::device::{AdamWRates, AttentionSettings, Layout, Prepared, Result, Scalar, Tensor};
use crate::schedule::plan::{Call, Number, View};

const fn scalar(number: Number) -> Scalar {
    match number {
        Number::Float(value) => Scalar::Float(value),
        Number::Int(value) => Scalar::Int(value),
    }
}

/// Of keys `[b,t,n,d]`.
fn flash(heads: usize, keys: &View, scale: f64) -> AttentionSettings {
    AttentionSettings { heads, kv_heads: keys.shape[2], scale, layout: Layout::Bsnd }
}

/// Checks a call with the card's library and makes it ready to run. `tensor` gives the card's memory of a view.
///
/// # Errors
/// The library's refusal, or what `tensor` refuses.
pub fn prepare(call: &Call, tensor: &dyn Fn(&View) -> Result<Tensor>) -> Result<Prepared> {
    let t = tensor;
    match call {
        Call::Matmul { a, b, out } => op::matmul(&t(a)?, &t(b)?, &t(out)?),
        Call::DynamicQuant { x, out, scales } => op::dynamic_quant(&t(x)?, &t(out)?, &t(scales)?),
        Call::QuantMatmul { x, w, scale, tokens, out } => {
            op::quant_matmul(&t(x)?, &t(w)?, &t(scale)?, &t(tokens)?, &t(out)?)
        }
        Call::Add { a, b, out } => op::add(&t(a)?, &t(b)?, &t(out)?),
        Call::Mul { a, b, out } => op::mul(&t(a)?, &t(b)?, &t(out)?),
        Call::Sub { a, b, out } => op::sub(&t(a)?, &t(b)?, &t(out)?),
        Call::Div { a, b, out } => op::div(&t(a)?, &t(b)?, &t(out)?),
        Call::Exp { x, out } => op::exp(&t(x)?, &t(out)?),
        Call::Log { x, out } => op::log(&t(x)?, &t(out)?),
        Call::Sqrt { x, out } => op::sqrt(&t(x)?, &t(out)?),
        Call::Reciprocal { x, out } => op::reciprocal(&t(x)?, &t(out)?),
        Call::IndexAdd { index, rows, into, dim } => op::index_add(&t(into)?, *dim, &t(index)?, &t(rows)?),
        Call::ScatterAdd { index, from, into, dim } => op::scatter_add(&t(into)?, *dim, &t(index)?, &t(from)?),
        Call::Muls { x, out, by } => op::muls(&t(x)?, scalar(*by), &t(out)?),
        Call::Adds { x, out, by } => op::adds(&t(x)?, scalar(*by), &t(out)?),
        Call::RmsNormGrad { dy, x, rstd, gamma, dx, dgamma } => {
            op::rms_norm_grad(&t(dy)?, &t(x)?, &t(rstd)?, &t(gamma)?, &t(dx)?, &t(dgamma)?)
        }
        Call::SiluGrad { dy, x, out } => op::silu_grad(&t(dy)?, &t(x)?, &t(out)?),
        Call::AdamW { grad, step, w, m, v, beta1, beta2, decay, epsilon } => {
            let [beta1, beta2, decay, epsilon] = [beta1, beta2, decay, epsilon].map(|number| *number as f32);
            let rates = AdamWRates { rate: 1.0, beta1, beta2, decay, epsilon };
            op::adamw([&t(w)?, &t(m)?, &t(v)?], &t(grad)?, &t(step)?, rates)
        }
        Call::Lerp { a, b, weight, out } => op::lerp(&t(a)?, &t(b)?, &t(weight)?, &t(out)?),
        Call::Silu { x, out } => op::silu(&t(x)?, &t(out)?),
        Call::RmsNorm { x, gamma, out, rstd, epsilon } => {
            op::rms_norm(&t(x)?, &t(gamma)?, *epsilon, &t(out)?, &t(rstd)?)
        }
        Call::Rotary { x, cos, sin, out } => op::rotary(&t(x)?, &t(cos)?, &t(sin)?, &t(out)?),
        Call::Embedding { table, ids, out } => op::embedding(&t(table)?, &t(ids)?, &t(out)?),
        Call::IndexCopy { index, rows, into, dim } => op::index_copy(&t(into)?, *dim, &t(index)?, &t(rows)?),
        Call::Gather { x, index, out, dim } => op::gather(&t(x)?, *dim, &t(index)?, &t(out)?),
        Call::Softmax { x, out, dim } => op::softmax(&t(x)?, *dim, &t(out)?),
        Call::MaxDim { x, values, indices, dim } => op::max_dim(&t(x)?, *dim, &t(values)?, &t(indices)?),
        Call::ReduceSum { x, out, dim } => op::reduce_sum(&t(x)?, &[*dim], &t(out)?),
        Call::Clamp { x, out, low, high } => op::clamp(&t(x)?, scalar(*low), scalar(*high), &t(out)?),
        Call::Ne { a, b, out } => op::ne(&t(a)?, &t(b)?, &t(out)?),
        Call::MaskedFill { mask, into, value } => op::masked_fill(&t(into)?, &t(mask)?, scalar(*value)),
        Call::Cast { x, out } => op::cast(&t(x)?, &t(out)?),
        Call::Copy { from, into } => op::copy(&t(into)?, &t(from)?),
        Call::Zero { into } => op::zero(&t(into)?),
        Call::Fill { into, value } => op::fill(&t(into)?, scalar(*value)),
        Call::FusedAttention { q, k, v, mask, out, heads, kv_heads, scale } => {
            let mask = mask.as_ref().map(t).transpose()?;
            let settings =
                AttentionSettings { heads: *heads, kv_heads: *kv_heads, scale: *scale, layout: Layout::Bsnd };
            op::fused_attention(&t(q)?, &t(k)?, &t(v)?, mask.as_ref(), settings, &t(out)?)
        }
        Call::FlashAttention { q, k, v, mask, out, max, sum, heads, scale } => {
            let settings = flash(*heads, k, *scale);
            op::flash_attention([&t(q)?, &t(k)?, &t(v)?], &t(mask)?, settings, &t(out)?, [&t(max)?, &t(sum)?])
        }
        Call::FlashAttentionGrad { q, k, v, mask, dy, out, max, sum, dq, dk, dv, heads, scale } => {
            let settings = flash(*heads, k, *scale);
            let (given, made) = ([&t(dy)?, &t(out)?], [&t(dq)?, &t(dk)?, &t(dv)?]);
            op::flash_attention_grad([&t(q)?, &t(k)?, &t(v)?], &t(mask)?, settings, given, [&t(max)?, &t(sum)?], made)
        }
    }
}
