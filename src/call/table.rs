//! The table of calls. An entry defines a variant of [`Call`] with its operands in text order, the
//! aclnn operator, and the arguments of the C function in order.
//!
//! Kernels of this project have the name of their file in `kernels/`, and the arguments of their
//! entry function.

use std::ffi::CStr;
use std::fmt;

use ascend_tp_machine::launch::Access;

use crate::base::{Argument, Number};

use super::{CallOperand, Field, View, Views, access, field, fields, mark};

const NONE: Argument<CallOperand<'static>> = Argument::Absent;
/// `activeNum`, `expertCapacity`: no row is dropped.
const DROP_NONE: i64 = 0;
/// `dropPadMode` of [`Call::SortByExpert`]: rows follow each other without padding.
const WITHOUT_PADDING: i64 = 0;
/// `expertTokensCountOrCumsumFlag`: rows per expert.
const COUNTS: i64 = 2;
/// `dropPadMode` of [`Call::SumOfExperts`]: no padding, and places are ordered by token.
const BY_TOKEN: i64 = 2;
/// `splitItem` of [`Call::GroupedMatmul`]: one tensor for all groups.
const ONE_RESULT: i64 = 3;
/// `groupListType`: rows per group.
const LENGTHS: i64 = 1;
/// `actType`: no activation.
const NO_ACTIVATION: i64 = 0;
/// `cubeMathType`: multiply in the type of the operands.
const OWN_PRECISION: i64 = 0;
/// `axis` of [`Call::Quantize`]: a scale a row.
const ROWS: i64 = 0;
/// `mode` of the rotary embedding: element `i` is rotated with element `i + d/2`.
const ROTATE_HALVES: i64 = 0;
/// `preTokens`, `nextTokens`: no window.
const ALL_TOKENS: i64 = i32::MAX as i64;
/// `inputLayout` of attention: batch, sequence, heads, head size.
const BSND: &CStr = c"BSND";
/// `inputLayout` of ring attention updates: sequence, batch, hidden size.
const SBH: &CStr = c"SBH";
/// `layout` of the fused rotary embedding: batch, sequence, heads, head size.
const BSND_NUMBER: i64 = 1;
/// `sparseMode` of attention with gradients: only the mask hides keys.
const MASK_ALONE: i64 = 1;
/// Learning rate of [`Call::AdamW`].
const RATE: f64 = 1.0;
/// Value of `scale` of [`Call::SquareSums`].
const UNSCALED: f64 = 1.0;
/// Value of `rewrites` of [`Call::SquareSums`].
const NOT_REWRITTEN: i64 = 0;
/// `group` of fused exchanges until the communicator is known.
const UNNAMED: &CStr = c"";
/// `reduceOp` of fused exchanges.
const SUM: &CStr = c"sum";
/// `commTurn` of fused exchanges: the library chooses how to split rows.
const ANY_TURNS: i64 = 0;
/// `streamMode` of fused exchanges: the only supported mode.
const ON_ITS_STREAM: i64 = 1;
/// `gatherIndex`: the left matrix is gathered.
const GATHER_LEFT: i64 = 0;
/// `threshold` of [`Call::Softplus`]: above it the function is `x`.
pub const SOFTPLUS_THRESHOLD: f64 = 20.0;
/// Value of `keepProb` without dropout.
const KEEP_ALL: f64 = 1.0;

/// `each` of [`Call::TurnedRows`]: each token has a place of its own.
const ONE_TOKEN_A_START: usize = 1;
/// `rows` of [`Call::TurnedRows`]: places count the rows of all blocks.
const PLACES_OF_ALL_ROWS: usize = 0;

/// `preTokens` of a window. 0: no window.
const fn tokens_before(window: usize) -> i64 {
    if window == 0 { ALL_TOKENS } else { window as i64 - 1 }
}

/// `nextTokens` of a window. 0: no window.
const fn tokens_after(window: usize) -> i64 {
    if window == 0 { ALL_TOKENS } else { 0 }
}

/// `keyAntiquantMode` and `valueAntiquantMode`: one scale per token and head, in blocks.
const fn scale_mode(scales: Option<CallOperand<'_>>) -> i64 {
    if scales.is_some() { 5 } else { 0 }
}

/// Returns a list of one tensor, or NULL.
fn list(tensor: Option<CallOperand<'_>>) -> Argument<CallOperand<'_>> {
    tensor.map_or(Argument::Absent, |tensor| Argument::Tensors(vec![tensor]))
}

/// Lengths of sequences until they are known: all rows of their blocks.
fn every_row(table: Option<CallOperand<'_>>, block: usize) -> Argument<CallOperand<'static>> {
    table.map_or(NONE, |table| Argument::Ints(vec![(table.size(1) * block) as i64; table.size(0)]))
}

super::calls! {
    /// `out = a @ b`, batch dims broadcast.
    Matmul "aclnnMatmul" { read a, read b, write out } (a, b, out, OWN_PRECISION)
    /// `out = Σ a · b` of two vectors, on the vector cores. A matrix product would compute each
    /// element on one cube unit.
    Dot "aclnnDot" { read a, read b, write out } (a, b, out)
    /// `out = a @ b + bias`, rounded once. `bias` is a row.
    Addmm "aclnnAddmm" { read a, read b, read bias, write out } (bias, a, b, a.one(), a.one(), out, OWN_PRECISION)
    /// `into = into + a @ b`, with each product rounded before the addition. f32, `[batch,m,n]`.
    AddProduct "aclnnInplaceBaddbmm" { read a, read b, update into } (into, a, b, into.one(), into.one(), OWN_PRECISION)
    /// `scales[r] = max |x[r]| / 127`, `out[r] = round(x[r] / scales[r])`; x, out `[r,k]`, out i8,
    /// scales f32.
    DynamicQuant "aclnnDynamicQuant" { read x, write out, write scales } (x, NONE, out, scales)
    /// `out[r,k] = round(x[r,k] / scales[r])`, saturated; x, scales f32, out i8.
    Quantize "aclnnQuantize" { read x, read scales, write out } (x, scales, NONE, out.dtype(), ROWS, out)
    /// `out[r,n] = (Σ x[r,k] · w[n,k] + bias[n]) · scale[n] · tokens[r]`; x, w i8, scale, tokens
    /// f32, bias i32.
    QuantMatmul "aclnnQuantMatmulV4" { read x, read w, read scale, read tokens, maybe_read bias, write out } (
        // x1, x2, scale, offset, pertokenScale, bias, transposeX1, transposeX2, out
        x, w, scale, NONE, tokens, bias.map_or(NONE, Argument::from), false, true, out
    )
    /// `out = x @ w`, with weights `(q + offset) · scale` that are rounded to the type of `x`. `w
    /// [k/8,n]` i32 has eight signed 4-bit integers `q` per word. `scale` and `offset` are
    /// `[groups,n]`. `group` is the number of inputs per scale, or 0 for a single group.
    WeightQuantMatmul "aclnnWeightQuantBatchMatmulV2" {
        read x, read w, read scale, maybe_read offset, write out, with group: usize
    } (
        // x, weight, antiquantScale, antiquantOffset, quantScale, quantOffset, bias
        x, w, scale, offset.map_or(NONE, Argument::from), NONE, NONE, NONE,
        // antiquantGroupSize, y
        group, out
    )
    /// Products of groups. The groups share dim 0 of `x` for `group_type` 0, and `out[rows of g] =
    /// x[rows of g] @ w[g]`. They share the summed dim for 2: `out[g] = x[:, g] @ w[g]`. `groups`
    /// has their sizes. Rows after the last group are unchanged. `bias [g,n]` is added to the rows
    /// of `g`; f32 for bf16. Products of 8-bit integers have scales: `tokens [m]` f32 of rows, and
    /// `scale [g,n]` of columns, bf16 for results in bf16 and f32 for results in f16. With
    /// `weight_scale` and `weight_offset [g,groups,n]`, `w [g,k/8,n]` i32 has the words of
    /// [`Call::WeightQuantMatmul`], in memory as `[g,n,k/8]`. All groups of inputs are equal.
    GroupedMatmul "aclnnGroupedMatmulV4" {
        far_read x, far_read w, maybe_read bias, maybe_read scale, maybe_read weight_scale,
        maybe_read weight_offset, maybe_read tokens, far_read groups, far_update out, with group_type: usize
    } (
        // x, weight, bias, scale, offset, antiquantScale, antiquantOffset, perTokenScale
        Argument::Tensors(vec![x]), Argument::Tensors(vec![w]),
        list(bias), list(scale), NONE, list(weight_scale), list(weight_offset), list(tokens),
        // groupList, activationInput, activationQuantScale, activationQuantOffset
        groups, NONE, NONE, NONE,
        // splitItem, groupType, groupListType, actType, out, activationFeatureOut,
        // dynQuantScaleOut
        ONE_RESULT, group_type, LENGTHS, NO_ACTIVATION, Argument::Tensors(vec![out]), NONE, NONE
    )
    /// `k` copies of each row of `x[n,h]`, sorted by expert. `experts[n,k]` i32 are below `count`.
    /// `places[n·k]` i32 is the row of each copy in `rows[n·k,h]`, and `counts[count]` i32 the
    /// number of rows of each expert.
    SortByExpert "aclnnMoeInitRoutingV2" {
        far_read x, far_read experts, far_write rows, far_write places, far_write counts, with count: usize
    } (
        // x, expertIdx, activeNum, expertCapacity, expertNum, dropPadMode,
        // expertTokensCountOrCumsumFlag, expertTokensBeforeCapacityFlag
        x, experts, DROP_NONE, DROP_NONE, count, WITHOUT_PADDING, COUNTS, false,
        // expandedXOut, expandedRowIdxOut, expertTokensCountOrCumsumOut,
        // expertTokensBeforeCapacityOut
        rows, places, counts, NONE
    )
    /// `out[n] = Σ weights[n,k] · rows[places[n·k + j]]`, for the results of
    /// [`Call::SortByExpert`].
    SumOfExperts "aclnnMoeFinalizeRoutingV2" { far_read rows, far_read places, far_read weights, far_write out } (
        // expandedX, expandedRowIdx, x1, x2, bias, scales, expertIdx, dropPadMode, out
        rows, places, NONE, NONE, NONE, weights, NONE, BY_TOKEN, out
    )
    /// Computes the sum of `a @ b` over the ranks of a group.
    MatmulAllReduce "aclnnMatmulAllReduce" { read a, read b, write out } (
        // x1, x2, bias, group, reduceOp, commTurn, streamMode, output
        a, b, NONE, UNNAMED, SUM, ANY_TURNS, ON_ITS_STREAM, out
    )
    /// `gathered` is the concatenation of the rows `a` of all ranks; `out = gathered @ b`.
    AllGatherMatmul "aclnnAllGatherMatmul" { read a, read b, write out, write gathered } (
        // x1, x2, bias, group, gatherIndex, commTurn, streamMode, output, gatherOut
        a, b, NONE, UNNAMED, GATHER_LEFT, ANY_TURNS, ON_ITS_STREAM, out, gathered
    )
    /// Computes this rank's rows of the sum of `a @ b` over the ranks of a group.
    MatmulReduceScatter "aclnnMatmulReduceScatter" { read a, read b, write out } (
        // x1, x2, bias, group, reduceOp, commTurn, streamMode, output
        a, b, NONE, UNNAMED, SUM, ANY_TURNS, ON_ITS_STREAM, out
    )
    /// The operator computes `out = a + b`.
    Add "aclnnAdd" { read a, read b, write out } (a, b, a.one(), out)
    /// The operator computes `out = a · b`.
    Mul "aclnnMul" { read a, read b, write out } (a, b, out)
    /// The operator computes `out = a - b`.
    Sub "aclnnSub" { read a, read b, write out } (a, b, a.one(), out)
    /// The operator computes `out = a / b`.
    Div "aclnnDiv" { read a, read b, write out } (a, b, out)
    /// The operator computes `out = e^x`.
    Exp "aclnnExp" { read x, write out } (x, out)
    /// The operator computes `out = ln x`.
    Log "aclnnLog" { read x, write out } (x, out)
    /// The operator computes `out = √x`.
    Sqrt "aclnnSqrt" { read x, write out } (x, out)
    /// The operator computes `out = 1 / √x`.
    Rsqrt "aclnnRsqrt" { read x, write out } (x, out)
    /// The operator computes `out = tanh x`.
    Tanh "aclnnTanh" { read x, write out } (x, out)
    /// `out = gelu(x)`, in the tanh form.
    Gelu "aclnnGelu" { read x, write out } (x, out)
    /// The operator computes `out = dy · gelu'(x)`.
    GeluGrad "aclnnGeluBackward" { read dy, read x, write out } (dy, x, out)
    /// The operator computes `out = |x|`.
    Abs "aclnnAbs" { read x, write out } (x, out)
    /// The operator computes `out = 1 / x`.
    Reciprocal "aclnnReciprocal" { read x, write out } (x, out)
    /// The operator computes `out = by · x`.
    Muls "aclnnMuls" { read x, write out, with by: Number } (x, by, out)
    /// The operator computes `out = x + by`.
    Adds "aclnnAdds" { read x, write out, with by: Number } (x, by, x.one(), out)
    /// The operator computes `out = floor(x / by)`.
    FloorDivides "aclnnFloorDivides" { read x, write out, with by: Number } (x, by, out)
    /// The operator computes `out = sigmoid(x)`.
    Sigmoid "aclnnSigmoid" { read x, write out } (x, out)
    /// `out = ln(1 + e^x)`, and `x` above 20.
    Softplus "aclnnSoftplus" { read x, write out } (x, x.one(), Number::Float(SOFTPLUS_THRESHOLD), out)
    /// The sums of each element and all earlier ones along `dim`.
    CumSum "aclnnCumsum" { read x, write out, with dim: usize } (x, dim, out.dtype(), out)
    /// The elements of matrices at the main diagonal, or at the diagonal `below` rows below it, and
    /// below. Other elements are zero.
    Lower "aclnnTril" { read x, write out, with below: usize } (x, -(below as i64), out)
    /// The operator computes `out = x · sigmoid(x)`.
    Silu "aclnnSilu" { read x, write out } (x, out)
    /// `out = silu(x₁) · x₂` of the halves of `x` along `dim`.
    SwiGlu "aclnnSwiGlu" { read x, write out, with dim: usize } (x, dim, out)
    /// `sum = a + b`, and its norm as [`Call::RmsNorm`].
    AddRmsNorm "aclnnAddRmsNorm" {
        far_read a, far_read b, far_read gamma, far_write out, far_write rstd, far_write sum, with epsilon: f64
    } (a, b, gamma, epsilon, out, rstd, sum)
    /// RMS norm over the last dim. `rstd` is f32.
    RmsNorm "aclnnRmsNorm" { read x, read gamma, write out, write rstd, with epsilon: f64 } (x, gamma, epsilon, out, rstd)
    /// x, out `[b,s,n,d]`; cos, sin `[b,s,1,d]`; halves rotated.
    Rotary "aclnnRotaryPositionEmbedding" { read x, read cos, read sin, write out } (x, cos, sin, ROTATE_HALVES, out)
    /// q `[b,s,n,128]` and k `[b,s,m,128]` in place; cos, sin `[b,s,1,128]`; halves rotated.
    RotaryPair "aclnnApplyRotaryPosEmb" { read cos, read sin, update q, update k } (q, k, cos, sin, BSND_NUMBER)
    /// Looks up rows of `table [v,h]` by `ids`.
    Embedding "aclnnEmbedding" { read table, read ids, write out } (table, ids, out)
    /// Copies rows to the places `index` of dim `dim` of `into`.
    IndexCopy "aclnnInplaceIndexCopy" { read index, read rows, update into, with dim: usize } (into, dim, index, rows)
    /// Collects the elements `index` of dim `dim`.
    IndexSelect "aclnnIndexSelect" { read x, read index, write out, with dim: usize } (x, dim, index, out)
    /// Adds `rows` to the rows `index` of dim `dim` of `into`.
    IndexAdd "aclnnIndexAdd" { read index, read rows, update into, with dim: usize } (into.read(), dim, index, rows, into.one(), into.written())
    /// Adds elements at indices: `into[i][index[i][j][k]][k] += from[i][j][k]` for dim 1.
    ScatterAdd "aclnnScatterAdd" { read index, read from, update into, with dim: usize } (
        into.read(), dim, index, from, into.written()
    )
    /// Reads elements at indices: `out[i][j][k] = x[i][index[i][j][k]][k]` for dim 1.
    Gather "aclnnGather" { read x, read index, write out, with dim: usize } (x, dim, index, out)
    /// Softmax over one dim.
    Softmax "aclnnSoftmax" { read x, write out, with dim: usize } (x, dim, out)
    /// Maximum over one dim, and its first index.
    MaxDim "aclnnMaxDim" { read x, write values, write indices, with dim: usize } (
        x, dim, x.keeps_dims(values), values, indices
    )
    /// The `k` largest elements along one dim, sorted, and their i64 indices. `k` is the size of
    /// that dim in both results.
    Topk "aclnnTopk" { read x, write values, write indices, with dim: usize } (
        x, values.view.shape[dim], dim, true, true, values, indices
    )
    /// One bit per element of `x[n]`, packed in bytes: 1 if the element is at least 0.
    SignBitsPack "aclnnSignBitsPack" { read x, write out } (x, out.view.shape[0], out)
    /// Inverse of [`Call::SignBitsPack`]: 1 or -1 per bit of the bytes `x[n]`.
    SignBitsUnpack "aclnnSignBitsUnpack" { read x, write out } (x, out.view.shape[0], out.dtype(), out)
    /// Sum over one dim.
    ReduceSum "aclnnReduceSum" { read x, write out, with dim: usize } (
        x, Argument::Ints(vec![dim as i64]), x.keeps_dims(out), out.dtype(), out
    )
    /// The operator computes `out = min(max(x, low), high)`.
    Clamp "aclnnClamp" { read x, write out, with low: Number, with high: Number } (x, low, high, out)
    /// The operator computes `out = a != b`.
    Ne "aclnnNeTensor" { read a, read b, write out } (a, b, out)
    /// The numbers from `from` up to below `to`, `by` apart.
    Arange "aclnnArange" { write out, with from: Number, with to: Number, with by: Number } (from, to, by, out)
    /// Sets the elements of `into` to `value` where `mask` is true.
    MaskedFill "aclnnInplaceMaskedFillScalar" { read mask, update into, with value: Number } (into, mask, value)
    /// Converts the element type of a tensor.
    Cast "aclnnCast" { read x, write out } (x, out.dtype(), out)
    /// Copies elements between any strides.
    Copy "aclnnInplaceCopy" { read from, write into } (into, from)
    /// Sets every element to 0.
    Zero "aclnnInplaceZero" { write into } (into)
    /// Sets every element to `value`.
    Fill "aclnnInplaceFillScalar" { write into, with value: Number } (into, value)
    /// Attention over `k` and `v` (layout BSND). `mask [b,1,s,t]`: true hides a key; without a
    /// mask, each token reads all keys. With a table `[b,w]`, `k` and `v` are blocks
    /// `[n,block,k·d]`, the table has the blocks of each sequence, and `lengths[b]` is a host list:
    /// see [`Call::lengths`]. Blocks of i8 have scales `[n,kv_heads,block]`, f32, for a single
    /// query position.
    ///
    /// With sparse mode 0 the mask is as given. With 3 and 4 it is a triangle of 2048 tokens for
    /// all sizes, the last token reads the last key, and each earlier one reads one key less; with
    /// 4 a token reads `window` keys. Otherwise `window` is 0.
    FusedAttention "aclnnFusedInferAttentionScoreV2" {
        far_read q, far_read k, far_read v, maybe_read mask, maybe_read table, maybe_read k_scale, maybe_read v_scale,
        maybe_read lengths, far_write out, with heads: usize, with kv_heads: usize, with scale: f64, with block: usize, with sparse_mode: usize,
        with window: usize
    } (
        // query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv
        q, Argument::Tensors(vec![k]), Argument::Tensors(vec![v]), NONE, mask, NONE, every_row(lengths.and(table), block),
        // deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2, antiquantScale,
        // antiquantOffset
        NONE, NONE, NONE, NONE, NONE, NONE, NONE,
        // blockTable, queryPaddingSize, kvPaddingSize
        table, NONE, NONE,
        // keyAntiquantScale, keyAntiquantOffset, valueAntiquantScale, valueAntiquantOffset
        k_scale, NONE, v_scale, NONE,
        // keySharedPrefix, valueSharedPrefix, actualSharedPrefixLen
        NONE, NONE, NONE,
        // numHeads, scaleValue, preTokens, nextTokens, inputLayout, numKeyValueHeads
        heads, scale, tokens_before(window), tokens_after(window), BSND, kv_heads,
        // sparseMode, innerPrecise (sums in full precision), blockSize, antiquantMode
        sparse_mode, 0_i64, block, 0_i64,
        // softmaxLseFlag, keyAntiquantMode, valueAntiquantMode, attentionOut, softmaxLse
        false, scale_mode(k_scale), scale_mode(v_scale), out, NONE,
    )
    /// Attention with the statistics that its gradient needs. `max` and `sum` are f32 `[b,n,s,8]`:
    /// the maximum score of each row and the sum of exponentials relative to it, each repeated
    /// eight times.
    FlashAttention "aclnnFlashAttentionScore" {
        far_read q, far_read k, far_read v, far_read mask, far_write max, far_write sum, far_write out,
        with heads: usize, with scale: f64
    } (
        // query, key, value, realShift, dropMask, paddingMask, attenMask, prefix
        q, k, v, NONE, NONE, NONE, mask, NONE,
        // scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise,
        // sparseMode
        scale, KEEP_ALL, ALL_TOKENS, ALL_TOKENS, heads, BSND, 0_i64, MASK_ALONE,
        // softmaxMax, softmaxSum, softmaxOut, attentionOut
        max, sum, NONE, out,
    )
    /// Gradients of [`Call::FlashAttention`], from its operands, its results and the gradient `dy`
    /// of `out`.
    FlashAttentionGrad "aclnnFlashAttentionScoreGrad" {
        far_read q, far_read k, far_read v, far_read dy, far_read mask, far_read max, far_read sum, far_read out,
        far_write dq, far_write dk, far_write dv, with heads: usize, with scale: f64
    } (
        // query, key, value, dy, pseShift, dropMask, paddingMask, attenMask
        q, k, v, dy, NONE, NONE, NONE, mask,
        // softmaxMax, softmaxSum, softmaxIn, attentionIn, prefix
        max, sum, NONE, out, NONE,
        // scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise,
        // sparseMode
        scale, KEEP_ALL, ALL_TOKENS, ALL_TOKENS, heads, BSND, 0_i64, MASK_ALONE,
        // dq, dk, dv, dpse
        dq, dk, dv, NONE,
    )
    /// Combines attention over two sets of keys. Results are `[s,b,n·d]`; `max` and `sum` are as in
    /// [`Call::FlashAttention`].
    JoinedAttention "aclnnRingAttentionUpdate" {
        far_read before, far_read before_max, far_read before_sum, far_read more, far_read more_max, far_read more_sum,
        far_write out, far_write max, far_write sum
    } (before, before_max, before_sum, more, more_max, more_sum, NONE, SBH, out, max, sum)
    /// Gradients of [`Call::RmsNorm`] from `dy`: `dx`, and `dgamma` in f32.
    RmsNormGrad "aclnnRmsNormGrad" { read dy, read x, read rstd, read gamma, write dx, write dgamma } (
        dy, x, rstd, gamma, dx, dgamma
    )
    /// The operator computes `out = dy · silu'(x)`.
    SiluGrad "aclnnSiluBackward" { read dy, read x, write out } (dy, x, out)
    /// One `AdamW` step at learning rate 1 with moments `m` and `v`. `step`, f32, counts the
    /// previous steps.
    AdamW "aclnnApplyAdamWV2" {
        read grad, read step, update w, update m, update v, with beta1: f64, with beta2: f64, with decay: f64, with epsilon: f64
    } (
        // varRef, mRef, vRef, maxGradNormOptionalRef, grad, step, lr, beta1, beta2, weightDecay,
        // eps, amsgrad, maximize
        w, m, v, NONE, grad, step, RATE, beta1, beta2, decay, epsilon, false, false
    )
    /// The operator computes `out = a + weight · (b - a)`.
    Lerp "aclnnLerp" { read a, read b, read weight, write out } (a, b, weight, out)
    /// Writes new tokens to both caches `[blocks,t,n,d]`: token `i` to place `slots[i]` of all
    /// rows. `keys` are rotated by f32 `cos`, `sin` `[tokens,d/2]`; `values` are copied. Both are
    /// `[tokens,n,d]`, dense except for the token stride.
    TurnedRows "cache_write" {
        far_read keys, far_read values, far_read cos, far_read sin, far_read slots, far_update key_cache, far_update value_cache
    } (
        // key, value, cosine, sine, starts, keyCache, valueCache
        keys, values, cos, sin, slots, key_cache, value_cache,
        // tokens, each, heads, dim, rows, keyStride, valueStride
        keys.size(0), ONE_TOKEN_A_START, keys.size(1), keys.size(2), PLACES_OF_ALL_ROWS, keys.view.strides[0],
        values.view.strides[0]
    )
    /// Sums the squares of `x` per core, in f32. A record of `[cores,24]` holds 8 sums, 8 rounding
    /// corrections, and 8 flags: 0, or NaN if any element is not finite. `x` is unchanged.
    SquareSums "grad_stats" { read x, write records } (x, records, UNSCALED, NOT_REWRITTEN, x.view.elems())
    /// Statistics of each row of `x[rows,vocab]`: the maximum `m`, the sum of `exp(x - m)`, the
    /// label's element and the first index of the maximum. Records `[rows,8]` in f32, labels i32.
    /// `first` is the first token of the vocabulary shard.
    VocabularyStatistics "vocab_ce_forward" { read x, read labels, write records, with first: usize } (
        x, labels, records, x.size(0), x.size(1), first as i64
    )
    /// `x[r,v] = (exp(x[r,v] - m[r]) / s[r] - [v is the label]) * g[r]`, where scales `[rows,8]`
    /// start with m, s and g. f32, labels i32. `first` is the first token of the vocabulary shard.
    VocabularyGradient "vocab_ce_backward" { update x, read labels, read scales, with first: usize } (
        x, labels, scales, x.size(0), x.size(1), first as i64
    )
    /// `out[n]` is the sum of the rows of `x[rows,n]` in tree order. f32, 1 to 32 rows.
    OrderedSum "ordered_sum" { read x, write out } (x, out, x.size(0), x.size(1))
    /// Compresses `u = whole / parts + x + kept` (without `whole` if `parts` is 0) to signs and the
    /// mean magnitude of each row, as `records[count,bytes]` u8. `kept` becomes the compression
    /// error, but all of `u` in the `share` records at index `own`.
    SignsSaid "sign_compress" {
        far_read x, far_read whole, far_update kept, far_write records, with share: usize, with own: usize, with parts: usize
    } (x, whole, kept, records, x.view.elems(), records.size(0), share, own, parts)
    /// Decodes `records[cards,share,bytes]` and sums them in rank order. `out` is f32.
    SignsAdded "sign_compress_reduce" { read records, write out } (
        records, out, out.view.elems(), records.size(1), records.size(0)
    )
    /// One round of a threshold search: the threshold that at most `most` magnitudes of `x + kept`,
    /// f32, reach. Narrows the range of the round `before`, and counts for eight thresholds within
    /// it. Results are i32 `[cores + 1,8]`: counts per core, then the range. The first round gets
    /// zeros; the last one has `last` = 1.
    MagnitudesCounted "topk_threshold_count" {
        far_read x, far_read kept, far_read before, far_write after, with most: usize, with last: usize
    } (x, kept, before, after, x.view.elems(), most, last)
    /// Selects the elements of `x + kept` that the last round counted, as `values` and i32
    /// `places`. Entries between and after them are unchanged. `kept` becomes the other elements,
    /// with zeros for the selected ones.
    MagnitudesChosen "topk_threshold_choose" {
        far_read x, far_update kept, far_read round, far_update values, far_update places
    } (x, kept, round, values, places, x.view.elems(), values.view.elems())
}
