//! The calls: an entry each, which gives its variant of [`Call`] with the tensors and numbers in the order of texts, the aclnn operator,
//! and the arguments of its C function in their order.
//!
//! A kernel of this project is called as an operator is, by the name of its file in `kernels/` and with the arguments of its entry
//! functions.

use std::ffi::CStr;
use std::fmt;

use ascend_tp_machine::launch::Access;

use crate::base::{Argument, Number};

use super::{CallOperand, Field, View, Views, access, field, fields, mark};

/// A tensor or array that is not given.
const NONE: Argument<CallOperand<'static>> = Argument::Absent;
/// `cubeMathType`: multiply in the operands' own type.
const OWN_PRECISION: i64 = 0;
/// `mode` of the rotary embedding: element `i` is rotated with element `i + d/2`.
const ROTATE_HALVES: i64 = 0;
/// `preTokens`, `nextTokens`: no window.
const ALL_TOKENS: i64 = i32::MAX as i64;
/// `inputLayout` of attention: batch, sequence, heads, head size.
const BSND: &CStr = c"BSND";
/// `inputLayout` of attention that is joined: sequence, batch, heads and head size as one.
const SBH: &CStr = c"SBH";
/// `layout` of the rotary embedding of queries and keys: batch, sequence, heads, head size.
const BSND_NUMBER: i64 = 1;
/// `sparseMode` of the attention operators with a gradient: the mask alone says what is hidden.
const MASK_ALONE: i64 = 1;
/// The rate at which [`Call::AdamW`] takes its step.
const RATE: f64 = 1.0;
/// `scale` of [`Call::SquareSums`].
const UNSCALED: f64 = 1.0;
/// `rewrites` of [`Call::SquareSums`].
const NOT_REWRITTEN: i64 = 0;
/// `group` of a product that is exchanged, until its communicator is known.
const UNNAMED: &CStr = c"";
/// `reduceOp` of a product that is exchanged.
const SUM: &CStr = c"sum";
/// `commTurn` of a product that is exchanged: the library cuts rows as it likes.
const ANY_TURNS: i64 = 0;
/// `streamMode` of a product that is exchanged: the only one there is.
const ON_ITS_STREAM: i64 = 1;
/// `gatherIndex`: the left matrix is gathered.
const GATHER_LEFT: i64 = 0;
/// `keepProb`: nothing is dropped.
const KEEP_ALL: f64 = 1.0;

super::calls! {
    /// `out = a @ b`, batch dims broadcast.
    Matmul "aclnnMatmul" { read a, read b, write out } (a, b, out, OWN_PRECISION)
    /// `out = Σ a · b` of two vectors, by the vector cores: a product of matrices gives each of its elements to one cube unit.
    Dot "aclnnDot" { read a, read b, write out } (a, b, out)
    /// `out = a @ b + bias`, rounded once; `bias` is a row.
    Addmm "aclnnAddmm" { read a, read b, read bias, write out } (bias, a, b, a.one(), a.one(), out, OWN_PRECISION)
    /// `into = into + a @ b`, each product rounded before it is added; of f32, `[batch,m,n]`.
    AddProduct "aclnnInplaceBaddbmm" { read a, read b, update into } (into, a, b, into.one(), into.one(), OWN_PRECISION)
    /// `scales[r] = max |x[r]| / 127`, `out[r] = round(x[r] / scales[r])`; x, out `[r,k]`, out i8, scales f32.
    DynamicQuant "aclnnDynamicQuant" { read x, write out, write scales } (x, NONE, out, scales)
    /// `out[r,n] = (Σ x[r,k] · w[n,k]) · scale[n] · tokens[r]`; x, w i8, scale, tokens f32.
    QuantMatmul "aclnnQuantMatmulV4" { read x, read w, read scale, read tokens, write out } (
        // x1, x2, scale, offset, pertokenScale, bias, transposeX1, transposeX2, out
        x, w, scale, NONE, tokens, NONE, false, true, out
    )
    /// `out` is the sum of `a @ b` over the cards of a group.
    MatmulAllReduce "aclnnMatmulAllReduce" { read a, read b, write out } (
        // x1, x2, bias, group, reduceOp, commTurn, streamMode, output
        a, b, NONE, UNNAMED, SUM, ANY_TURNS, ON_ITS_STREAM, out
    )
    /// `gathered` is the rows `a` of all cards of a group, one behind the other; `out = gathered @ b`.
    AllGatherMatmul "aclnnAllGatherMatmul" { read a, read b, write out, write gathered } (
        // x1, x2, bias, group, gatherIndex, commTurn, streamMode, output, gatherOut
        a, b, NONE, UNNAMED, GATHER_LEFT, ANY_TURNS, ON_ITS_STREAM, out, gathered
    )
    /// `out` is this card's rows of the sum of `a @ b` over the cards of a group.
    MatmulReduceScatter "aclnnMatmulReduceScatter" { read a, read b, write out } (
        // x1, x2, bias, group, reduceOp, commTurn, streamMode, output
        a, b, NONE, UNNAMED, SUM, ANY_TURNS, ON_ITS_STREAM, out
    )
    /// `out = a + b`.
    Add "aclnnAdd" { read a, read b, write out } (a, b, a.one(), out)
    /// `out = a · b`.
    Mul "aclnnMul" { read a, read b, write out } (a, b, out)
    /// `out = a - b`.
    Sub "aclnnSub" { read a, read b, write out } (a, b, a.one(), out)
    /// `out = a / b`.
    Div "aclnnDiv" { read a, read b, write out } (a, b, out)
    /// `out = e^x`.
    Exp "aclnnExp" { read x, write out } (x, out)
    /// `out = ln x`.
    Log "aclnnLog" { read x, write out } (x, out)
    /// `out = √x`.
    Sqrt "aclnnSqrt" { read x, write out } (x, out)
    /// `out = |x|`.
    Abs "aclnnAbs" { read x, write out } (x, out)
    /// `out = 1 / x`.
    Reciprocal "aclnnReciprocal" { read x, write out } (x, out)
    /// `out = by · x`.
    Muls "aclnnMuls" { read x, write out, with by: Number } (x, by, out)
    /// `out = x + by`.
    Adds "aclnnAdds" { read x, write out, with by: Number } (x, by, x.one(), out)
    /// `out = x · sigmoid(x)`.
    Silu "aclnnSilu" { read x, write out } (x, out)
    /// `out = silu(x₁) · x₂` of the halves of `x` along `dim`.
    SwiGlu "aclnnSwiGlu" { read x, write out, with dim: usize } (x, dim, out)
    /// `sum = a + b`, and its norm as [`Call::RmsNorm`].
    AddRmsNorm "aclnnAddRmsNorm" {
        far_read a, far_read b, far_read gamma, far_write out, far_write rstd, far_write sum, with epsilon: f64
    } (a, b, gamma, epsilon, out, rstd, sum)
    /// Normalises the last dim; `rstd` is f32.
    RmsNorm "aclnnRmsNorm" { read x, read gamma, write out, write rstd, with epsilon: f64 } (x, gamma, epsilon, out, rstd)
    /// x, out `[b,s,n,d]`; cos, sin `[b,s,1,d]`; halves rotated.
    Rotary "aclnnRotaryPositionEmbedding" { read x, read cos, read sin, write out } (x, cos, sin, ROTATE_HALVES, out)
    /// q `[b,s,n,128]` and k `[b,s,m,128]` in place; cos, sin `[b,s,1,128]`; halves rotated.
    RotaryPair "aclnnApplyRotaryPosEmb" { read cos, read sin, update q, update k } (q, k, cos, sin, BSND_NUMBER)
    /// Rows of `table [v,h]` by `ids`.
    Embedding "aclnnEmbedding" { read table, read ids, write out } (table, ids, out)
    /// `into[i][start[i] + j][k] = rows[i][j][k]` for dim 1.
    ScatterUpdate "aclnnInplaceScatterUpdate" { read start, read rows, update into, with dim: usize } (into, start, rows, dim)
    /// Adds rows `rows` to rows `index` of dim `dim` of `into`.
    IndexAdd "aclnnIndexAdd" { read index, read rows, update into, with dim: usize } (into.read(), dim, index, rows, into.one(), into.written())
    /// `into[i][index[i][j][k]][k] += from[i][j][k]` for dim 1.
    ScatterAdd "aclnnScatterAdd" { read index, read from, update into, with dim: usize } (
        into.read(), dim, index, from, into.written()
    )
    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for dim 1.
    Gather "aclnnGather" { read x, read index, write out, with dim: usize } (x, dim, index, out)
    /// Over one dim.
    Softmax "aclnnSoftmax" { read x, write out, with dim: usize } (x, dim, out)
    /// Largest element over one dim and the first index that has it.
    MaxDim "aclnnMaxDim" { read x, write values, write indices, with dim: usize } (
        x, dim, x.keeps_dims(values), values, indices
    )
    /// The `k` greatest elements along one dim, in order, and their indices, i64; `k` is that dim's size in both results.
    Topk "aclnnTopk" { read x, write values, write indices, with dim: usize } (
        x, values.view.shape[dim], dim, true, true, values, indices
    )
    /// A bit for each element of `x[n]`, in rows of bytes: whether it is 0 or more.
    SignBitsPack "aclnnSignBitsPack" { read x, write out } (x, out.view.shape[0], out)
    /// Its inverse: rows of 1 and -1 from bytes `x[n]`.
    SignBitsUnpack "aclnnSignBitsUnpack" { read x, write out } (x, out.view.shape[0], out.dtype(), out)
    /// Sum over one dim.
    ReduceSum "aclnnReduceSum" { read x, write out, with dim: usize } (
        x, Argument::Ints(vec![dim as i64]), x.keeps_dims(out), out.dtype(), out
    )
    /// `out = min(max(x, low), high)`.
    Clamp "aclnnClamp" { read x, write out, with low: Number, with high: Number } (x, low, high, out)
    /// `out = a != b`.
    Ne "aclnnNeTensor" { read a, read b, write out } (a, b, out)
    /// Elements of `into` where `mask` is true become `value`.
    MaskedFill "aclnnInplaceMaskedFillScalar" { read mask, update into, with value: Number } (into, mask, value)
    /// Converts the element type.
    Cast "aclnnCast" { read x, write out } (x, out.dtype(), out)
    /// Copies between any strides.
    Copy "aclnnInplaceCopy" { read from, write into } (into, from)
    /// Every element becomes 0.
    Zero "aclnnInplaceZero" { write into } (into)
    /// One value everywhere.
    Fill "aclnnInplaceFillScalar" { write into, with value: Number } (into, value)
    /// Attention over `k`, `v` (layout BSND), `mask [b,1,s,t]` true = hidden; see [`Call::key_lengths`].
    FusedAttention "aclnnFusedInferAttentionScoreV2" {
        read q, read k, read v, read mask, write out, with heads: usize, with kv_heads: usize, with scale: f64
    } (
        // query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv
        q, Argument::Tensors(vec![k]), Argument::Tensors(vec![v]), NONE, mask, NONE, NONE,
        // deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2, antiquantScale, antiquantOffset
        NONE, NONE, NONE, NONE, NONE, NONE, NONE,
        // blockTable, queryPaddingSize, kvPaddingSize
        NONE, NONE, NONE,
        // keyAntiquantScale, keyAntiquantOffset, valueAntiquantScale, valueAntiquantOffset
        NONE, NONE, NONE, NONE,
        // keySharedPrefix, valueSharedPrefix, actualSharedPrefixLen
        NONE, NONE, NONE,
        // numHeads, scaleValue, preTokens, nextTokens, inputLayout, numKeyValueHeads
        heads, scale, ALL_TOKENS, ALL_TOKENS, BSND, kv_heads,
        // sparseMode (the mask as given), innerPrecise (sums in full precision), blockSize, antiquantMode
        0_i64, 0_i64, 0_i64, 0_i64,
        // softmaxLseFlag, keyAntiquantMode, valueAntiquantMode, attentionOut, softmaxLse
        false, 0_i64, 0_i64, out, NONE,
    )
    /// The same with what its gradient needs of each row: `max` and `sum`, f32 `[b,n,s,8]`, the greatest score and the sum of the
    /// exponentials below it, eight times.
    FlashAttention "aclnnFlashAttentionScore" {
        far_read q, far_read k, far_read v, far_read mask, far_write max, far_write sum, far_write out,
        with heads: usize, with scale: f64
    } (
        // query, key, value, realShift, dropMask, paddingMask, attenMask, prefix
        q, k, v, NONE, NONE, NONE, mask, NONE,
        // scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode
        scale, KEEP_ALL, ALL_TOKENS, ALL_TOKENS, heads, BSND, 0_i64, MASK_ALONE,
        // softmaxMax, softmaxSum, softmaxOut, attentionOut
        max, sum, NONE, out,
    )
    /// Its gradients, of what it took and gave and of the cotangent `dy` of `out`.
    FlashAttentionGrad "aclnnFlashAttentionScoreGrad" {
        far_read q, far_read k, far_read v, far_read dy, far_read mask, far_read max, far_read sum, far_read out,
        far_write dq, far_write dk, far_write dv, with heads: usize, with scale: f64
    } (
        // query, key, value, dy, pseShift, dropMask, paddingMask, attenMask
        q, k, v, dy, NONE, NONE, NONE, mask,
        // softmaxMax, softmaxSum, softmaxIn, attentionIn, prefix
        max, sum, NONE, out, NONE,
        // scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode
        scale, KEEP_ALL, ALL_TOKENS, ALL_TOKENS, heads, BSND, 0_i64, MASK_ALONE,
        // dq, dk, dv, dpse
        dq, dk, dv, NONE,
    )
    /// Of attention to some keys and of that to others attention to all: results `[s,b,n·d]`, and `max` and `sum` of each as
    /// [`Call::FlashAttention`] gives them.
    JoinedAttention "aclnnRingAttentionUpdate" {
        far_read before, far_read before_max, far_read before_sum, far_read more, far_read more_max, far_read more_sum,
        far_write out, far_write max, far_write sum
    } (before, before_max, before_sum, more, more_max, more_sum, NONE, SBH, out, max, sum)
    /// `dx` and `dgamma`, f32, of the cotangent `dy` of [`Call::RmsNorm`].
    RmsNormGrad "aclnnRmsNormGrad" { read dy, read x, read rstd, read gamma, write dx, write dgamma } (
        dy, x, rstd, gamma, dx, dgamma
    )
    /// `out = dy · silu'(x)`.
    SiluGrad "aclnnSiluBackward" { read dy, read x, write out } (dy, x, out)
    /// A step of `AdamW` at rate 1 with moments `m` and `v`; `step`, f32, counts those before it.
    AdamW "aclnnApplyAdamWV2" {
        read grad, read step, update w, update m, update v, with beta1: f64, with beta2: f64, with decay: f64, with epsilon: f64
    } (
        // varRef, mRef, vRef, maxGradNormOptionalRef, grad, step, lr, beta1, beta2, weightDecay, eps, amsgrad, maximize
        w, m, v, NONE, grad, step, RATE, beta1, beta2, decay, epsilon, false, false
    )
    /// `out = a + weight · (b - a)`.
    Lerp "aclnnLerp" { read a, read b, read weight, write out } (a, b, weight, out)
    /// Row `start[i] + j` of sequence `i` of both caches `[b,t,n,d]` becomes token `j` of that sequence: of `keys` with halves rotated
    /// by f32 `cos`, `sin` `[tokens,d/2]`, of `values` as it is; both `[tokens,n,d]`, dense but for the way from token to token.
    TurnedRows "cache_write" {
        far_read keys, far_read values, far_read cos, far_read sin, far_read start, far_update key_cache, far_update value_cache
    } (
        // key, value, cosine, sine, starts, keyCache, valueCache
        keys, values, cos, sin, start, key_cache, value_cache,
        // tokens, each, heads, dim, rows, keyStride, valueStride
        keys.size(0), keys.size(0) / start.size(0), keys.size(1), keys.size(2), key_cache.size(1), keys.view.strides[0],
        values.view.strides[0]
    )
    /// Of the squares of `x`, by core of the launch and f32: 8 sums, 8 times what rounding took from them, and 8 that are 0, or NaN where
    /// not all is finite; records `[cores,24]`. `x` stays as it is.
    SquareSums "grad_stats" { read x, write records } (x, records, UNSCALED, NOT_REWRITTEN, x.view.elems())
    /// Of each row of `x[rows,vocab]` the largest element `m`, the sum of `exp(x - m)`, the label's element and the first of the largest;
    /// f32, labels i32, records `[rows,8]`. `first` is the token that the vocabulary begins with.
    VocabularyStatistics "vocab_ce_forward" { read x, read labels, write records, with first: usize } (
        x, labels, records, x.size(0), x.size(1), first as i64
    )
    /// `x[r,v] = (exp(x[r,v] - m[r]) / s[r] - [v is the label]) * g[r]` of scales `[rows,8]` that begin with m, s and g; f32, labels i32.
    /// `first` is the token that the vocabulary begins with.
    VocabularyGradient "vocab_ce_backward" { update x, read labels, read scales, with first: usize } (
        x, labels, scales, x.size(0), x.size(1), first as i64
    )
    /// `out[n]`, the sum of the rows of `x[rows,n]` by pairs, those by pairs, and so on; f32, 1 to 32 rows.
    OrderedSum "ordered_sum" { read x, write out } (x, out, x.size(0), x.size(1))
    /// Of `u = whole / parts + x + kept`, without a whole if there are no parts, the sign of each element and the mean magnitude of each
    /// row, as `records[count,bytes]` u8; `kept` becomes what that leaves out, but all of it in the `share` records of place `own`.
    SignsSaid "sign_compress" {
        far_read x, far_read whole, far_update kept, far_write records, with share: usize, with own: usize, with parts: usize
    } (x, whole, kept, records, x.view.elems(), records.size(0), share, own, parts)
    /// `out`, f32, the sum of what `records[cards,share,bytes]` say, card by card.
    SignsAdded "sign_compress_reduce" { read records, write out } (
        records, out, out.view.elems(), records.size(1), records.size(0)
    )
    /// Narrows what the round `before` says of the threshold that at most `most` magnitudes of `x + kept`, f32, reach, and counts those
    /// that reach each of eight thresholds in it: by core of the launch, and behind them the range, i32 `[cores + 1,8]`. Zeros begin,
    /// and `last`, 1, ends.
    MagnitudesCounted "topk_threshold_count" {
        far_read x, far_read kept, far_read before, far_write after, with most: usize, with last: usize
    } (x, kept, before, after, x.view.elems(), most, last)
    /// Those elements of `x + kept` that the last round counted, as `values` and `places`, i32, of which entries between and behind
    /// them stay as they are; the others, and zeros, become `kept`.
    MagnitudesChosen "topk_threshold_choose" {
        far_read x, far_update kept, far_read round, far_update values, far_update places
    } (x, kept, round, values, places, x.view.elems(), values.view.elems())
}
