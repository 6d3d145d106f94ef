//! Lowers several ops to one call, if their operands are adjacent in memory.
//!
//! If an operator does not support its operands, the function returns the reason as a sentence, and
//! each op is launched separately. The limits are from the operators' documentation for a 910B.

use super::{Emit, Local, QuantisedProduct, row_sizes};
use crate::base::{DType, Dims, Shape};
use crate::call::{Call, View};
use crate::program::op::Kind;
use crate::program::rule::PackedDims;

/// The only head size that aclnnApplyRotaryPosEmb supports.
const ROTARY_PAIR_HEAD_SIZE: usize = 128;

/// Bytes of unified buffer per vector core of a 910B. aclnnApplyRotaryPosEmb stores all heads of a
/// token in it.
const UNIFIED_BUFFER_BYTES: usize = 192 << 10;

/// Largest number of inputs and outputs of aclnnWeightQuantBatchMatmulV2.
const LARGEST_PACKED_SIDE: usize = 65_535;

pub(crate) struct Activation {
    pub(crate) x: View,
    /// Row scales `[m]`, if the rows are 8-bit integers.
    pub(crate) tokens: Option<View>,
}

/// Emits the product of an activation with weight rows `[n,k]`, into the dense `out[m,n]`.
/// Quantised weights have scales `[n]`, and packed weights scales and offsets of groups. A bias
/// `[n]` is added before the single rounding, but separately after a quantised or packed product.
pub(crate) fn product(
    kind: &Kind,
    of: Activation,
    weights: Vec<View>,
    bias: Option<View>,
    out: View,
    emit: &mut Emit<'_>,
) {
    if let Some(PackedDims { group, .. }) = kind.packed() {
        let k = of.x.elems() / out.shape[0];
        let x = emit.shaped(of.x, [out.shape[0], k]);
        let made = if bias.is_some() { emit.temporary(out.dtype, out.shape.clone()) } else { out.clone() };
        emit.packed_product(x, weights, group, made.clone());
        emit.calls.extend(bias.map(|b| Call::Add { a: made, b, out }));
        return;
    }
    let mut weights = weights.into_iter();
    let Some(w) = weights.next() else { return };
    let x = emit.shaped(of.x, [out.shape[0], w.shape[1]]);
    match (of.tokens, weights.next()) {
        (Some(tokens), Some(scale)) => {
            let tokens = emit.shaped(tokens, [out.shape[0]]);
            let made =
                if bias.is_some() { emit.temporary(out.dtype, out.shape.clone()) } else { out.clone() };
            emit.quantised_product(QuantisedProduct { x, tokens, w, scale, bias: None, out: made.clone() });
            emit.calls.extend(bias.map(|b| Call::Add { a: made, b, out }));
        }
        _ => {
            let b = w.permute(&[1, 0]);
            emit.calls.push(match bias {
                Some(bias) => Call::Addmm { bias, a: x, b, out },
                None => Call::Matmul { a: x, b, out },
            });
        }
    }
}

pub(crate) fn quantised(kind: &Kind, x: View, [scales, integers]: [View; 2], emit: &mut Emit<'_>) {
    let Kind::RowScale { dims } = kind else { return };
    let [m, k] = row_sizes(&x.shape, *dims);
    let x = emit.shaped(x, [m, k]);
    emit.write_shaped(scales, [m], |emit, scales| {
        emit.write_shaped(integers, [m, k], |emit, out| {
            emit.calls.push(Call::DynamicQuant { x, out, scales });
        });
    });
}

/// Returns the reason why a product with `n` columns in all is not joined, if there is one.
#[must_use]
pub(crate) fn refusal(kind: &Kind, n: usize) -> Option<String> {
    (kind.packed().is_some() && n > LARGEST_PACKED_SIDE)
        .then(|| format!("the operator has at most {LARGEST_PACKED_SIDE} columns, and {n} are joined"))
}

#[must_use]
pub(crate) const fn adds_bias(kind: &Kind) -> bool {
    matches!(kind, Kind::MatMul { .. })
}

/// Emits `sum = a + b` and its RMS norm; also `rstd` if it is used.
pub(crate) fn add_rms_norm(
    kind: &Kind,
    [a, b, gamma, sum, out]: [View; 5],
    rstd: Option<View>,
    emit: &mut Emit<'_>,
) {
    let Kind::RmsNorm { epsilon } = kind else { return };
    let last = sum.shape.rank() - 1;
    let rstd = match rstd {
        Some(rstd) => rstd.repeat(last, 1),
        None => emit.temporary(DType::F32, sum.shape.with(last, 1)),
    };
    let [a, b, gamma, sum, out, rstd] = [a, b, gamma, sum, out, rstd].map(Box::new);
    emit.calls.push(Call::AddRmsNorm { a, b, gamma, out, rstd, sum, epsilon: *epsilon });
}

/// Returns the rotary embedding of `q` and `k`, in place.
///
/// # Errors
/// The tensors are not dense, or the operator does not support the head size or count.
pub(crate) fn rotary_pair(q: &View, k: &View, cos: &View, sin: &View) -> Result<Call, String> {
    let by_token = |view: &View| {
        let [b, s, .., d] = *view.shape.sizes() else { return None };
        let heads = view.elems().checked_div(b * s * d)?;
        view.reshape([b, s, heads, d]).filter(View::is_contiguous)
    };
    let (Some(q), Some(k)) = (by_token(q), by_token(k)) else {
        return Err("queries and keys are parts of wider rows".to_owned());
    };
    let [b, s, heads, d] = [0, 1, 2, 3].map(|dim| q.shape[dim]);
    let (cos, sin) = (cos.reshape([b, s, 1, d]), sin.reshape([b, s, 1, d]));
    let (Some(cos), Some(sin)) = (cos, sin) else { return Err("cosines and sines are strided".to_owned()) };
    if d != ROTARY_PAIR_HEAD_SIZE || q.elems() == 0 || k.elems() == 0 {
        return Err(format!(
            "aclnnApplyRotaryPosEmb takes heads of {ROTARY_PAIR_HEAD_SIZE}, these are of {d}"
        ));
    }
    let computed = if q.dtype == DType::F16 { 2 } else { 4 };
    let cast = if q.dtype == DType::BF16 { 8 * d } else { 0 };
    let heads = heads + k.shape[2];
    let bytes = 5 * heads * d * computed + 4 * d * q.dtype.size_bytes() + cast;
    if bytes > UNIFIED_BUFFER_BYTES {
        return Err(format!(
            "{heads} heads of a token take {bytes} bytes of a vector core's {UNIFIED_BUFFER_BYTES}"
        ));
    }
    Ok(Call::RotaryPair { cos, sin, q, k })
}

/// Largest head size of kernel `cache_write`, and the required divisor of head sizes.
const TURNED_HEAD_SIZES: (usize, usize) = (256, 16);

/// Returns the operands in the layout of the kernel: unrotated keys and values as
/// `[tokens,heads,d]`, both caches, and the places of the tokens.
///
/// # Errors
/// The layout, types or sizes are not supported.
pub(crate) fn turned_rows(
    [keys, values, key_cache, value_cache, slots]: [View; 5],
) -> Result<[View; 5], String> {
    let [b, s, heads, d] = *keys.shape.sizes() else { return Err("keys have other dims".to_owned()) };
    let (largest, multiple) = TURNED_HEAD_SIZES;
    if d > largest || !d.is_multiple_of(multiple) {
        return Err(format!(
            "the kernel takes heads of a multiple of {multiple} up to {largest}, these are of {d}"
        ));
    }
    if !matches!(keys.dtype, DType::F16 | DType::BF16) || keys.elems() == 0 || b * s != slots.elems() {
        return Err("the kernel takes a non-empty tensor of 16-bit keys".to_owned());
    }
    let by_token = |view: &View| {
        let rows = view.reshape([b * s, heads, d])?;
        (rows.strides[1..] == [d, 1] || rows.shape[1] == 1 && rows.strides[2] == 1).then_some(rows)
    };
    let (Some(keys), Some(values)) = (by_token(&keys), by_token(&values)) else {
        return Err("tokens of keys or values have no constant stride".to_owned());
    };
    let is_dense = [&key_cache, &value_cache, &slots].into_iter().all(View::is_contiguous);
    if !is_dense || key_cache.shape != value_cache.shape || u32::try_from(key_cache.elems()).is_err() {
        return Err("the caches are parts of larger tensors".to_owned());
    }
    Ok([keys, values, key_cache, value_cache, slots])
}

pub(crate) fn alone(kind: &Kind, operands: Vec<View>, results: &[View], emit: &mut Emit<'_>) {
    let local =
        |view: View| Local { starts: Dims::from_elem(0, view.shape.rank()), whole: view.shape.clone(), view };
    emit.operands = operands.into_iter().map(local).collect();
    emit.results = results.iter().cloned().map(local).collect();
    (kind.row().npu)(kind, emit);
}

/// Returns two adjacent caches as one cache of twice the blocks, and their new rows as the rows of
/// twice the sequences.
///
/// # Errors
/// The caches or rows are not adjacent.
pub(crate) fn cache_pair(caches: [&View; 2], rows: [&View; 2]) -> Result<[View; 2], String> {
    let one = |[a, b]: [&View; 2], what: &str| {
        let whole = |view: &View| view.reshape([1, view.elems()]);
        let joined = whole(a).zip(whole(b)).and_then(|(a, b)| View::side_by_side(&[a, b]));
        let sizes: Shape = std::iter::once(a.shape[0] * 2).chain(a.shape[1..].iter().copied()).collect();
        let joined = joined.filter(|_| a.is_contiguous() && b.is_contiguous() && a.elems() > 0);
        joined
            .and_then(|view| view.reshape(sizes))
            .ok_or_else(|| format!("{what} are not adjacent in memory"))
    };
    Ok([one(caches, "the caches of keys and values")?, one(rows, "the new keys and values")?])
}
