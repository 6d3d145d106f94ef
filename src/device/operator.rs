//! The operators a Transformer runtime calls: one function each, from operands to a [`Prepared`] call.
//!
//! Input → output: tensors of one card and attributes → a call whose types, shapes and strides the library has accepted.
//! Where an operator wants to know whether a reduced dim stays (as size 1), that follows from the rank of the result.
//!
//! Invariants: an output is the last tensor argument; in-place operators say so in their name or their text.
//! What it does not do: check shapes and types. The library does, and its message names the operator and the operand.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use ascend_tp_sys::{Table, aclDataType, aclIntArray, aclOpExecutor, aclScalar, aclTensor, aclTensorList};

use super::card::{Device, same_device};
use super::error::Result;
use super::handle::{IntArray, Scalar, ScalarHandle};
use super::prepared::{Names, Prepared};
use super::tensor::{Tensor, TensorList, acl_dtype};
use crate::base::{DType, Diagnostic};

/// `cubeMathType`: multiply in the operands' own type.
const OWN_PRECISION: i8 = 0;
/// `mode` of the rotary embedding: element `i` is rotated with element `i + d/2`.
const ROTATE_HALVES: i64 = 0;
/// `preTokens`, `nextTokens`: no window.
const ALL_TOKENS: i64 = i32::MAX as i64;

/// Defines the functions of this module. A line is the function, the two C functions and their arguments in C's order, and
/// what has to be made of the function's arguments first.
macro_rules! operators {
    ($(
        $(#[$doc:meta])*
        $name:ident($($parameter:ident: $type:ty),* $(,)?)
            = $run:ident, $plan:ident($($argument:ident),*)
            $(where { $($local:pat = $value:expr;)* })?;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// The operands are of different cards, or the library refuses their types, shapes or strides.
        pub fn $name($($parameter: $type),*) -> Result<Prepared> {
            $($(let $local = $value;)*)?
            let device = common_device(stringify!($run), &[$($argument.card()),*])?;
            $(let $argument = $argument.keep();)*
            let plan = move |table: &Table, workspace_bytes: *mut u64, executor: *mut *mut aclOpExecutor| {
                // SAFETY: the arguments are of the types of the C prototype; the objects behind them are owned by this
                // closure; both results are valid for a write, as `Prepared` passes them.
                unsafe { (table.$plan)($($argument.raw(),)* workspace_bytes, executor) }
            };
            let names = Names { plan: stringify!($plan), run: stringify!($run) };
            Prepared::new(&device, names, Box::new(plan), device.table().$run)
        }
    )* };
}

operators! {
    // Products.

    /// `out = a @ b`; dims before the last two are batches and broadcast.
    ///
    /// # Shapes
    /// a `[…,m,k]`, b `[…,k,n]`, out `[…,m,n]`; any strides.
    matmul(a: &Tensor, b: &Tensor, out: &Tensor)
        = aclnnMatmul, aclnnMatmulGetWorkspaceSize(a, b, out, precision) where { precision = OWN_PRECISION; };
    /// `out[i] = a[i] @ b[i]`.
    ///
    /// # Shapes
    /// a `[b,m,k]`, b `[b,k,n]`, out `[b,m,n]`; a batch of 1 broadcasts.
    batch_matmul(a: &Tensor, b: &Tensor, out: &Tensor)
        = aclnnBatchMatMul, aclnnBatchMatMulGetWorkspaceSize(a, b, out, precision) where { precision = OWN_PRECISION; };

    /// `scales[r] = max |x[r]| / 127`, `out[r] = round(x[r] / scales[r])`.
    ///
    /// # Shapes
    /// x `[…,k]`, f16 or bf16; out `[…,k]`, i8; scales `[…]`, f32.
    dynamic_quant(x: &Tensor, out: &Tensor, scales: &Tensor)
        = aclnnDynamicQuant, aclnnDynamicQuantGetWorkspaceSize(x, no_tensor, out, scales)
        where { no_tensor = None::<Tensor>; };
    /// `out[m,n] = (Σ x[m,k] · w[n,k]) · scale[n] · tokens[m]`.
    ///
    /// # Shapes
    /// x `[m,k]`, w `[n,k]`, i8; scale `[n]`, tokens `[m]`, f32; out `[m,n]`, f16 or bf16; k at most 65535.
    quant_matmul(x: &Tensor, w: &Tensor, scale: &Tensor, tokens: &Tensor, out: &Tensor)
        = aclnnQuantMatmulV4, aclnnQuantMatmulV4GetWorkspaceSize(
            // x1, x2, scale, offset, pertokenScale, bias, transposeX1, transposeX2, out
            x, w, scale, no_tensor, tokens, no_tensor, no, yes, out
        ) where { no_tensor = None::<Tensor>; (no, yes) = (false, true); };

    // Arithmetic, element by element; operands broadcast.

    /// `out = a + b`
    add(a: &Tensor, b: &Tensor, out: &Tensor)
        = aclnnAdd, aclnnAddGetWorkspaceSize(a, b, one, out) where { one = one(a.dtype()).on(a)?; };
    /// `out = a - b`
    sub(a: &Tensor, b: &Tensor, out: &Tensor)
        = aclnnSub, aclnnSubGetWorkspaceSize(a, b, one, out) where { one = one(a.dtype()).on(a)?; };
    /// `out = a · b`
    mul(a: &Tensor, b: &Tensor, out: &Tensor) = aclnnMul, aclnnMulGetWorkspaceSize(a, b, out);
    /// `out = a / b`
    div(a: &Tensor, b: &Tensor, out: &Tensor) = aclnnDiv, aclnnDivGetWorkspaceSize(a, b, out);
    /// The larger of two.
    maximum(a: &Tensor, b: &Tensor, out: &Tensor) = aclnnMaximum, aclnnMaximumGetWorkspaceSize(a, b, out);
    /// The smaller of two.
    minimum(a: &Tensor, b: &Tensor, out: &Tensor) = aclnnMinimum, aclnnMinimumGetWorkspaceSize(a, b, out);
    /// `out = x + by`
    adds(x: &Tensor, by: Scalar, out: &Tensor) = aclnnAdds, aclnnAddsGetWorkspaceSize(x, by, one, out)
        where { by = by.on(x)?; one = one(x.dtype()).on(x)?; };
    /// `out = by · x`
    muls(x: &Tensor, by: Scalar, out: &Tensor) = aclnnMuls, aclnnMulsGetWorkspaceSize(x, by, out)
        where { by = by.on(x)?; };
    /// `out = min(max(x, low), high)`
    clamp(x: &Tensor, low: Scalar, high: Scalar, out: &Tensor) = aclnnClamp, aclnnClampGetWorkspaceSize(x, low, high, out)
        where { low = low.on(x)?; high = high.on(x)?; };
    /// `out = -x`
    neg(x: &Tensor, out: &Tensor) = aclnnNeg, aclnnNegGetWorkspaceSize(x, out);
    /// `out = e^x`
    exp(x: &Tensor, out: &Tensor) = aclnnExp, aclnnExpGetWorkspaceSize(x, out);
    /// `out = ln x`
    log(x: &Tensor, out: &Tensor) = aclnnLog, aclnnLogGetWorkspaceSize(x, out);
    /// `out = √x`
    sqrt(x: &Tensor, out: &Tensor) = aclnnSqrt, aclnnSqrtGetWorkspaceSize(x, out);
    /// `out = 1/√x`
    rsqrt(x: &Tensor, out: &Tensor) = aclnnRsqrt, aclnnRsqrtGetWorkspaceSize(x, out);
    /// `out = 1/x`
    reciprocal(x: &Tensor, out: &Tensor) = aclnnReciprocal, aclnnReciprocalGetWorkspaceSize(x, out);

    // Activations and norms.

    /// `out = tanh x`
    tanh(x: &Tensor, out: &Tensor) = aclnnTanh, aclnnTanhGetWorkspaceSize(x, out);
    /// `out = 1 / (1 + e^-x)`
    sigmoid(x: &Tensor, out: &Tensor) = aclnnSigmoid, aclnnSigmoidGetWorkspaceSize(x, out);
    /// `out = x · sigmoid(x)`
    silu(x: &Tensor, out: &Tensor) = aclnnSilu, aclnnSiluGetWorkspaceSize(x, out);
    /// `out = silu(a) · b` with a and b the halves of dim `dim` of x.
    swiglu(x: &Tensor, dim: usize, out: &Tensor) = aclnnSwiGlu, aclnnSwiGluGetWorkspaceSize(x, dim, out)
        where { dim = signed(dim); };
    /// `out = x · rstd · gamma`, `rstd = 1/√(mean(x²) + epsilon)` over the dims of gamma.
    ///
    /// # Shapes
    /// gamma: the trailing dims of x; rstd: x with those dims 1, f32.
    rms_norm(x: &Tensor, gamma: &Tensor, epsilon: f64, out: &Tensor, rstd: &Tensor)
        = aclnnRmsNorm, aclnnRmsNormGetWorkspaceSize(x, gamma, epsilon, out, rstd);
    /// `sum = a + b`, `out = rms_norm(sum)`; see [`rms_norm`].
    add_rms_norm(a: &Tensor, b: &Tensor, gamma: &Tensor, epsilon: f64, out: &Tensor, rstd: &Tensor, sum: &Tensor)
        = aclnnAddRmsNorm, aclnnAddRmsNormGetWorkspaceSize(a, b, gamma, epsilon, out, rstd, sum);
    /// `out = e^x / Σ e^x` over dim `dim`.
    softmax(x: &Tensor, dim: usize, out: &Tensor) = aclnnSoftmax, aclnnSoftmaxGetWorkspaceSize(x, dim, out)
        where { dim = signed(dim); };

    /// The gradients of [`rms_norm`], of the cotangent `dy` of its result; `dgamma` is f32.
    rms_norm_grad(dy: &Tensor, x: &Tensor, rstd: &Tensor, gamma: &Tensor, dx: &Tensor, dgamma: &Tensor)
        = aclnnRmsNormGrad, aclnnRmsNormGradGetWorkspaceSize(dy, x, rstd, gamma, dx, dgamma);
    /// `out = dy · silu'(x)`
    silu_grad(dy: &Tensor, x: &Tensor, out: &Tensor)
        = aclnnSiluBackward, aclnnSiluBackwardGetWorkspaceSize(dy, x, out);

    // Optimizers.

    /// In place: a step of `AdamW` on `w` with its moments; `step`, one f32, counts the steps before it.
    adamw(state: [&Tensor; 3], grad: &Tensor, step: &Tensor, rates: AdamWRates)
        = aclnnApplyAdamWV2, aclnnApplyAdamWV2GetWorkspaceSize(
            w, m, v, greatest, grad, step, rate, beta1, beta2, decay, epsilon, no, no)
        where {
            [w, m, v] = state;
            greatest = None::<Tensor>;
            AdamWRates { rate, beta1, beta2, decay, epsilon } = rates;
            no = false;
        };
    /// `out = a + weight · (b - a)`; the weight broadcasts.
    lerp(a: &Tensor, b: &Tensor, weight: &Tensor, out: &Tensor) = aclnnLerp, aclnnLerpGetWorkspaceSize(a, b, weight, out);

    // Position and attention.

    /// Rotates the halves of the last dim: `out = x · cos + rotate(x) · sin`, `rotate([a, b]) = [-b, a]`.
    ///
    /// # Shapes
    /// x, out `[b,s,n,d]`; cos, sin broadcast to it, such as `[b,s,1,d]`.
    rotary(x: &Tensor, cos: &Tensor, sin: &Tensor, out: &Tensor)
        = aclnnRotaryPositionEmbedding, aclnnRotaryPositionEmbeddingGetWorkspaceSize(x, cos, sin, mode, out)
        where { mode = ROTATE_HALVES; };
    /// As [`fused_attention`], for training: keeps of each row's softmax what its gradient needs.
    ///
    /// # Shapes
    /// max, sum `[b,heads,s,8]`, f32: the greatest score, and the sum of the exponentials of what scores are below it.
    flash_attention(qkv: [&Tensor; 3], mask: &Tensor, settings: AttentionSettings, out: &Tensor, statistics: [&Tensor; 2])
        = aclnnFlashAttentionScore, aclnnFlashAttentionScoreGetWorkspaceSize(
            // query, key, value, realShift, dropMask, paddingMask, attenMask, prefix
            q, k, v, no_tensor, no_tensor, no_tensor, mask, no_lengths,
            // scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode (the mask alone)
            scale, keep_all, all, all, heads, layout, zero, mask_alone,
            max, sum, no_tensor, out
        ) where {
            AttentionSettings { heads, scale, layout, .. } = settings;
            (heads, all, zero, mask_alone, keep_all) = (signed(heads), ALL_TOKENS, 0_i64, 1_i64, 1.0_f64);
            (no_tensor, no_lengths, [q, k, v], [max, sum]) = (None::<Tensor>, None::<IntArray>, qkv, statistics);
        };
    /// The gradients `made` of [`flash_attention`], of what it took and gave; `given` are the cotangent of its result and that.
    flash_attention_grad(
        qkv: [&Tensor; 3], mask: &Tensor, settings: AttentionSettings, given: [&Tensor; 2], statistics: [&Tensor; 2],
        made: [&Tensor; 3],
    )
        = aclnnFlashAttentionScoreGrad, aclnnFlashAttentionScoreGradGetWorkspaceSize(
            // query, key, value, dy, pseShift, dropMask, paddingMask, attenMask
            q, k, v, dy, no_tensor, no_tensor, no_tensor, mask,
            // softmaxMax, softmaxSum, softmaxIn, attentionIn, prefix
            max, sum, no_tensor, out, no_lengths,
            // scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode (the mask alone)
            scale, keep_all, all, all, heads, layout, zero, mask_alone,
            dq, dk, dv, no_tensor
        ) where {
            AttentionSettings { heads, scale, layout, .. } = settings;
            (heads, all, zero, mask_alone, keep_all) = (signed(heads), ALL_TOKENS, 0_i64, 1_i64, 1.0_f64);
            (no_tensor, no_lengths, [q, k, v], [max, sum]) = (None::<Tensor>, None::<IntArray>, qkv, statistics);
            ([dy, out], [dq, dk, dv]) = (given, made);
        };
    /// `out = softmax(scale · q kᵀ) v`, with the scores hidden where `mask` is true.
    ///
    /// # Shapes
    /// q, out by [`Layout`] with `heads` heads; k, v with `kv_heads`; mask `[b,1,s,t]`. f16 or bf16.
    fused_attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, settings: AttentionSettings, out: &Tensor)
        = aclnnFusedInferAttentionScoreV2, aclnnFusedInferAttentionScoreV2GetWorkspaceSize(
            // query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv
            q, k, v, no_tensor, mask, no_lengths, no_lengths,
            // deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2, antiquantScale, antiquantOffset
            no_tensor, no_tensor, no_tensor, no_tensor, no_tensor, no_tensor, no_tensor,
            // blockTable, queryPaddingSize, kvPaddingSize
            no_tensor, no_tensor, no_tensor,
            // keyAntiquantScale, keyAntiquantOffset, valueAntiquantScale, valueAntiquantOffset
            no_tensor, no_tensor, no_tensor, no_tensor,
            // keySharedPrefix, valueSharedPrefix, actualSharedPrefixLen
            no_tensor, no_tensor, no_lengths,
            // numHeads, scaleValue, preTokens, nextTokens, inputLayout, numKeyValueHeads
            heads, scale, all, all, layout, kv_heads,
            // sparseMode (the mask as given), innerPrecise (sums in full precision), blockSize, antiquantMode
            zero, zero, zero, zero,
            // softmaxLseFlag, keyAntiquantMode, valueAntiquantMode, attentionOut, softmaxLse
            no_lse, zero, zero, out, no_tensor
        ) where {
            mask = mask.cloned();
            (heads, kv_heads) = (signed(settings.heads), signed(settings.kv_heads));
            (scale, layout) = (settings.scale, settings.layout);
            k = TensorList::new(q.device(), std::slice::from_ref(k))?;
            v = TensorList::new(q.device(), std::slice::from_ref(v))?;
            (no_tensor, no_lengths) = (None::<Tensor>, None::<IntArray>);
            (zero, all, no_lse) = (0_i64, ALL_TOKENS, false);
        };

    // Lookups.

    /// `out[…] = table[ids[…]]`
    ///
    /// # Shapes
    /// table `[v,h]`; ids of any shape, i32 or i64; out: ids' shape and h.
    embedding(table: &Tensor, ids: &Tensor, out: &Tensor)
        = aclnnEmbedding, aclnnEmbeddingGetWorkspaceSize(table, ids, out);
    /// Rows `index` of dim `dim`.
    ///
    /// # Shapes
    /// index `[n]`, i32 or i64; out: x with dim `dim` of size n.
    index_select(x: &Tensor, dim: usize, index: &Tensor, out: &Tensor)
        = aclnnIndexSelect, aclnnIndexSelectGetWorkspaceSize(x, dim, index, out) where { dim = signed(dim); };
    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for dim 1.
    ///
    /// # Shapes
    /// index and out alike, of x's rank; i32 or i64 indices.
    gather(x: &Tensor, dim: usize, index: &Tensor, out: &Tensor)
        = aclnnGather, aclnnGatherGetWorkspaceSize(x, dim, index, out) where { dim = signed(dim); };
    /// In place: rows `rows` are added to rows `index` of dim `dim` of `into`; an index may occur again.
    ///
    /// # Shapes
    /// index `[n]`, i32 or i64; rows: into with dim `dim` of size n.
    index_add(into: &Tensor, dim: usize, index: &Tensor, rows: &Tensor)
        = aclnnIndexAdd, aclnnIndexAddGetWorkspaceSize(into, dim, index, rows, one, out)
        where { one = one(into.dtype()).on(into)?; out = into.clone(); dim = signed(dim); };
    /// In place: `into[i][index[i][j][k]][k] += from[i][j][k]` for dim 1.
    ///
    /// # Shapes
    /// index and from alike, of into's rank; i32 or i64 indices.
    scatter_add(into: &Tensor, dim: usize, index: &Tensor, from: &Tensor)
        = aclnnScatterAdd, aclnnScatterAddGetWorkspaceSize(into, dim, index, from, out)
        where { out = into.clone(); dim = signed(dim); };
    /// In place: rows `rows` overwrite rows `index` of dim `dim` of `into`.
    ///
    /// # Shapes
    /// index `[n]`, i32 or i64; rows: into with dim `dim` of size n.
    index_copy(into: &Tensor, dim: usize, index: &Tensor, rows: &Tensor)
        = aclnnInplaceIndexCopy, aclnnInplaceIndexCopyGetWorkspaceSize(into, dim, index, rows)
        where { dim = signed(dim); };

    // Copies, conversions and fills.

    /// The elements in the type of `out`.
    cast(x: &Tensor, out: &Tensor) = aclnnCast, aclnnCastGetWorkspaceSize(x, dtype, out)
        where { dtype = acl_dtype(out.dtype()); };
    /// In place: `into = from`, between any strides, types and broadcast shapes.
    copy(into: &Tensor, from: &Tensor) = aclnnInplaceCopy, aclnnInplaceCopyGetWorkspaceSize(into, from);
    /// In place: zeros.
    zero(into: &Tensor) = aclnnInplaceZero, aclnnInplaceZeroGetWorkspaceSize(into);
    /// In place: one value everywhere.
    fill(into: &Tensor, value: Scalar) = aclnnInplaceFillScalar, aclnnInplaceFillScalarGetWorkspaceSize(into, value)
        where { value = value.on(into)?; };
    /// In place: `value` where `mask` is true; the mask broadcasts.
    masked_fill(into: &Tensor, mask: &Tensor, value: Scalar)
        = aclnnInplaceMaskedFillScalar, aclnnInplaceMaskedFillScalarGetWorkspaceSize(into, mask, value)
        where { value = value.on(into)?; };

    // Comparisons; results are bool.

    /// `out = a == b`
    eq(a: &Tensor, b: &Tensor, out: &Tensor) = aclnnEqTensor, aclnnEqTensorGetWorkspaceSize(a, b, out);
    /// `out = a != b`
    ne(a: &Tensor, b: &Tensor, out: &Tensor) = aclnnNeTensor, aclnnNeTensorGetWorkspaceSize(a, b, out);
    /// `out = x < than`
    lt_scalar(x: &Tensor, than: Scalar, out: &Tensor) = aclnnLtScalar, aclnnLtScalarGetWorkspaceSize(x, than, out)
        where { than = than.on(x)?; };
    /// `out = x > than`
    gt_scalar(x: &Tensor, than: Scalar, out: &Tensor) = aclnnGtScalar, aclnnGtScalarGetWorkspaceSize(x, than, out)
        where { than = than.on(x)?; };
    /// `out = not x`
    logical_not(x: &Tensor, out: &Tensor) = aclnnLogicalNot, aclnnLogicalNotGetWorkspaceSize(x, out);
    /// `out = a and b`
    logical_and(a: &Tensor, b: &Tensor, out: &Tensor) = aclnnLogicalAnd, aclnnLogicalAndGetWorkspaceSize(a, b, out);
    /// `out = a` where `condition` is true, else `b`.
    select(condition: &Tensor, a: &Tensor, b: &Tensor, out: &Tensor)
        = aclnnSWhere, aclnnSWhereGetWorkspaceSize(condition, a, b, out);

    // Reductions. A reduced dim stays as 1 if the result has as many dims as x.

    /// Largest element over dim `dim` and the first index that has it.
    max_dim(x: &Tensor, dim: usize, values: &Tensor, indices: &Tensor)
        = aclnnMaxDim, aclnnMaxDimGetWorkspaceSize(x, dim, keep, values, indices)
        where { dim = signed(dim); keep = keeps_dims(x, values); };
    /// First index of the largest element over dim `dim`.
    argmax(x: &Tensor, dim: usize, out: &Tensor) = aclnnArgMax, aclnnArgMaxGetWorkspaceSize(x, dim, keep, out)
        where { dim = signed(dim); keep = keeps_dims(x, out); };
    /// Sum over dims `dims`, accumulated and stored in the type of `out`.
    reduce_sum(x: &Tensor, dims: &[usize], out: &Tensor)
        = aclnnReduceSum, aclnnReduceSumGetWorkspaceSize(x, dims, keep, dtype, out)
        where { dims = int_array(x, dims)?; keep = keeps_dims(x, out); dtype = acl_dtype(out.dtype()); };
    /// Mean over dims `dims`, accumulated and stored in the type of `out`.
    mean(x: &Tensor, dims: &[usize], out: &Tensor)
        = aclnnMean, aclnnMeanGetWorkspaceSize(x, dims, keep, dtype, out)
        where { dims = int_array(x, dims)?; keep = keeps_dims(x, out); dtype = acl_dtype(out.dtype()); };
    /// The largest elements of dim `dim`, in falling order, and their indices; as many as `values` has there.
    topk(x: &Tensor, dim: usize, values: &Tensor, indices: &Tensor)
        = aclnnTopk, aclnnTopkGetWorkspaceSize(x, count, dim, largest, sorted, values, indices)
        where { count = signed(size_of_dim("aclnnTopk", values, dim)?); dim = signed(dim); (largest, sorted) = (true, true); };

    // Shape.

    /// Dims of x in the order `dims`.
    permute(x: &Tensor, dims: &[usize], out: &Tensor) = aclnnPermute, aclnnPermuteGetWorkspaceSize(x, dims, out)
        where { dims = int_array(x, dims)?; };
    /// Tensors one after another along dim `dim`.
    cat(tensors: &[Tensor], dim: usize, out: &Tensor) = aclnnCat, aclnnCatGetWorkspaceSize(list, dim, out)
        where { list = tensor_list("aclnnCat", tensors, out)?; dim = signed(dim); };
}

/// Order of the dims of attention's operands: batch, sequence, heads, head size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[b,s,n,d]`
    Bsnd,
    /// `[b,n,s,d]`
    Bnsd,
}

impl Layout {
    const fn name(self) -> &'static CStr {
        match self {
            Self::Bsnd => c"BSND",
            Self::Bnsd => c"BNSD",
        }
    }
}

/// Attributes of [`adamw`], as the library takes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWRates {
    /// The learning rate.
    pub rate: f32,
    /// Share of the first moment that stays.
    pub beta1: f32,
    /// Share of the second moment that stays.
    pub beta2: f32,
    /// Decoupled weight decay: what a step takes off a weight is `lr * decay` of it.
    pub decay: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
}

/// Attributes of [`fused_attention`] and [`flash_attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSettings {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// Factor of the scores, usually `1/√d`.
    pub scale: f64,
    /// Order of dims.
    pub layout: Layout,
}

/// An argument of a first phase: what it keeps alive, and how C sees it.
trait Argument: Clone + Send + Sync + 'static {
    type Raw;
    fn raw(&self) -> Self::Raw;
    /// The card it lives on, if it lives on one.
    fn card(&self) -> Option<&Arc<Device>> {
        None
    }
    fn keep(&self) -> Self {
        self.clone()
    }
}

impl Argument for Tensor {
    type Raw = *mut aclTensor;
    fn raw(&self) -> Self::Raw {
        self.as_ptr()
    }
    fn card(&self) -> Option<&Arc<Device>> {
        Some(self.device())
    }
}

impl Argument for Option<Tensor> {
    type Raw = *mut aclTensor;
    fn raw(&self) -> Self::Raw {
        self.as_ref().map_or(std::ptr::null_mut(), Tensor::as_ptr)
    }
    fn card(&self) -> Option<&Arc<Device>> {
        self.as_ref().map(Tensor::device)
    }
}

impl Argument for TensorList {
    type Raw = *mut aclTensorList;
    fn raw(&self) -> Self::Raw {
        self.as_ptr()
    }
    fn card(&self) -> Option<&Arc<Device>> {
        Some(self.device())
    }
}

impl Argument for ScalarHandle {
    type Raw = *mut aclScalar;
    fn raw(&self) -> Self::Raw {
        self.as_ptr()
    }
}

impl Argument for IntArray {
    type Raw = *mut aclIntArray;
    fn raw(&self) -> Self::Raw {
        self.as_ptr()
    }
}

impl Argument for Option<IntArray> {
    type Raw = *mut aclIntArray;
    fn raw(&self) -> Self::Raw {
        self.as_ref().map_or(std::ptr::null_mut(), IntArray::as_ptr)
    }
}

impl Argument for Layout {
    type Raw = *mut c_char;
    /// The library only reads it, whatever its prototype says.
    fn raw(&self) -> Self::Raw {
        self.name().as_ptr().cast_mut()
    }
}

macro_rules! plain_arguments {
    ($($type:ty),*) => { $(
        impl Argument for $type {
            type Raw = Self;
            fn raw(&self) -> Self {
                *self
            }
        }
    )* };
}
plain_arguments!(i8, i64, f32, f64, bool, aclDataType);

impl Scalar {
    /// As an object for operators on the card of `tensor`.
    fn on(self, tensor: &Tensor) -> Result<ScalarHandle> {
        ScalarHandle::new(tensor.device(), self)
    }
}

/// The factor of the second operand that changes nothing.
const fn one(dtype: DType) -> Scalar {
    if dtype.is_float() { Scalar::Float(1.0) } else { Scalar::Int(1) }
}

/// A dim, size or count as C takes it; shapes hold no more than `i64::MAX`, see [`Tensor::with_strides`].
const fn signed(value: usize) -> i64 {
    value as i64
}

fn int_array(tensor: &Tensor, values: &[usize]) -> Result<IntArray> {
    let values: Vec<i64> = values.iter().map(|value| signed(*value)).collect();
    IntArray::new(tensor.device(), &values)
}

fn keeps_dims(x: &Tensor, out: &Tensor) -> bool {
    x.shape().rank() == out.shape().rank()
}

fn size_of_dim(operator: &str, tensor: &Tensor, dim: usize) -> Result<usize> {
    tensor.shape().get(dim).copied().ok_or_else(|| {
        Diagnostic::new(operator, "no such dim").expected(format!("a dim of {tensor:?}")).found(dim).into()
    })
}

fn tensor_list(operator: &str, tensors: &[Tensor], out: &Tensor) -> Result<TensorList> {
    if tensors.is_empty() {
        return Err(Diagnostic::new(operator, "no tensors").expected("at least one").into());
    }
    for tensor in tensors {
        same_device(operator, out.device(), tensor.device())?;
    }
    TensorList::new(out.device(), tensors)
}

/// The card all operands live on.
fn common_device(operator: &str, cards: &[Option<&Arc<Device>>]) -> Result<Arc<Device>> {
    let mut cards = cards.iter().copied().flatten();
    let Some(first) = cards.next() else {
        return Err(Diagnostic::new(operator, "no operand on a card").expected("at least one tensor").into());
    };
    for card in cards {
        same_device(operator, first, card)?;
    }
    Ok(Arc::clone(first))
}
