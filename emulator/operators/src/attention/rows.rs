//! Rows of the fused inference attention operators.
//!
//! Rotary parts, left padding and shared prefixes must be NULL, and so must parameters for
//! quantisation, except the scales of 8-bit caches.

mod keys;
mod lengths;
mod mask;
mod order;
mod quantised;
mod request;

use crate::attention::kernels::{AttentionBatch, AttentionCall, KeyScales, SoftmaxStatistics, attention};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, input, inputs, ints, output, unmodelled};
use crate::operator::sets::{CUBED, HALVES, MASKS, SINGLE, WHOLE32};
use crate::operator::{Attended, CallPlan, Refusal, StridedViews};

use self::keys::{BatchKeys, KeyRows};
pub(crate) use self::mask::COMPRESSED;
use self::mask::Mask;
pub(crate) use self::mask::check_triangle;
pub(crate) use self::order::{Extents, Order};
use self::request::{AttentionRequest, QueryRows, positions};

/// The part of the tiling library, for all calls.
pub(crate) const WORKSPACE_BYTES: usize = 16 << 20;

const FUSED: &[Parameter] = &[
    input(QUERY, HALVES, 3, 4),
    inputs(KEY_LIST, CUBED, 3, 4),
    inputs(VALUE_LIST, CUBED, 3, 4),
    input(PSE_SHIFT_OPTIONAL, HALVES, 4, 4).optional(),
    input(ATTEN_MASK_OPTIONAL, MASKS, 2, 4).optional(),
    ints(ACTUAL_SEQ_LENGTHS_OPTIONAL).optional(),
    ints(ACTUAL_SEQ_LENGTHS_KV_OPTIONAL).optional(),
    input(BLOCK_TABLE_OPTIONAL, WHOLE32, 2, 2).optional(),
    input(KEY_ANTIQUANT_SCALE_OPTIONAL, SINGLE, 3, 3).contiguous().optional(),
    input(VALUE_ANTIQUANT_SCALE_OPTIONAL, SINGLE, 3, 3).contiguous().optional(),
    unmodelled(ACTUAL_SHARED_PREFIX_LEN_OPTIONAL),
    output(ATTENTION_OUT, HALVES, 3, 4).contiguous(),
    output(SOFTMAX_LSE, SINGLE, 1, 4).contiguous().optional(),
];

const PROMPT: &[Parameter] = &[
    input(QUERY, HALVES, 3, 4).contiguous(),
    input(KEY, HALVES, 3, 4).contiguous(),
    input(VALUE, HALVES, 3, 4).contiguous(),
    input(PSE_SHIFT, HALVES, 4, 4).contiguous().optional(),
    input(ATTEN_MASK, MASKS, 2, 4).contiguous().optional(),
    ints(ACTUAL_SEQ_LENGTHS).optional(),
    ints(ACTUAL_SEQ_LENGTHS_KV).optional(),
    output(ATTENTION_OUT, HALVES, 3, 4).contiguous(),
];

const INCREMENTAL: &[Parameter] = &[
    input(QUERY, HALVES, 3, 4).contiguous(),
    inputs(KEY_LIST, HALVES, 3, 4).contiguous(),
    inputs(VALUE_LIST, HALVES, 3, 4).contiguous(),
    input(PSE_SHIFT, HALVES, 4, 4).contiguous().optional(),
    input(ATTEN_MASK, MASKS, 2, 4).contiguous().optional(),
    ints(ACTUAL_SEQ_LENGTHS).optional(),
    input(BLOCKTABLE, WHOLE32, 2, 2).optional(),
    output(ATTENTION_OUT, HALVES, 3, 4).contiguous(),
];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFusedInferAttentionScoreV2",
        parameters: FUSED,
        limits: "one element type; D a multiple of 16 up to 512, N up to 256, B up to 65536; numHeads a multiple of \
                 numKeyValueHeads (0 = numHeads), at most 64 times; key and value of one shape, one tensor or B tensors of \
                 batch 1; layouts BSH, BSND, BNSD, BNSD_BSND (query longer than 1); sparseMode 0–4, 2–4 with a 2048 x 2048 \
                 mask; mask [Q,KV], [B|1,Q,KV], [B|1,1,Q,KV], or [B,KV], [B,1,KV], [B,1,1,KV] for one query position; pseShiftOptional [B|1,N,Q,KV], which may be larger in \
                 Q and KV, of the type of query. Layouts \
                 TND and NTD_TND: the lengths are the ends of the sequences; D a multiple of 16 up to 256 (NTD_TND: 64, 128), \
                 or 192 with values of 128; sparseMode 0 without a mask, 3, 4. With a block table key and value are caches \
                 [blocks, block, heads x D] or [blocks, heads, block, D], blockSize a multiple of 16 up to 1024, the table [B, \
                 blocks of a batch] and actualSeqLengthsKv the length of each batch; not with NTD_TND. Caches of INT8 with one \
                 query position: keyAntiquantMode and valueAntiquantMode 5 with scales [blocks, heads, block], D and \
                 blockSize multiples of 32; products with scales are rounded to the type of query",
        source: "ops-transformer attention/fused_infer_attention_score/docs/aclnnFusedInferAttentionScoreV2.md",
        plan: fused,
    },
    Operator {
        name: "aclnnFusedInferAttentionScoreV3",
        parameters: FUSED,
        limits: "as aclnnFusedInferAttentionScoreV2",
        source: "ops-transformer attention/fused_infer_attention_score/docs/aclnnFusedInferAttentionScoreV3.md",
        plan: fused,
    },
    Operator {
        name: "aclnnFusedInferAttentionScoreV4",
        parameters: FUSED,
        limits: "as aclnnFusedInferAttentionScoreV3; queryQuantMode 0; no sinks",
        source: "ops-transformer attention/fused_infer_attention_score/docs/aclnnFusedInferAttentionScoreV4.md",
        plan: |call| call.int_in(QUERY_QUANT_MODE, 0..=0).and_then(|_| fused(call)),
    },
    Operator {
        name: "aclnnPromptFlashAttentionV3",
        parameters: PROMPT,
        limits: "as aclnnFusedInferAttentionScoreV2 for queries longer than 1",
        source: "CANN 8.1 aclnn API reference, aclnnPromptFlashAttentionV3",
        plan: prompt,
    },
    Operator {
        name: "aclnnIncreFlashAttentionV4",
        parameters: INCREMENTAL,
        limits: "as aclnnFusedInferAttentionScoreV2 for one query position; actualSeqLengths are the lengths of the \
                 keys",
        source: "CANN 8.1 aclnn API reference, aclnnIncreFlashAttentionV4",
        plan: incremental,
    },
];

fn fused(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    if call.int(ANTIQUANT_MODE)? != 0 {
        return Err(call.refuse(ANTIQUANT_MODE, "expected 0: keys and values have separate scales"));
    }
    precise(call, 3)?;
    let log_sum_exp = if call.flag(SOFTMAX_LSE_FLAG)? { Some(call.tensor(SOFTMAX_LSE)?) } else { None };
    shared(
        call,
        &AttentionRequest {
            keys: call.tensors(KEY_LIST)?,
            values: call.tensors(VALUE_LIST)?,
            table: call.tensor_if_given(BLOCK_TABLE_OPTIONAL)?,
            table_name: BLOCK_TABLE_OPTIONAL,
            block_size: call.int(BLOCK_SIZE)?,
            scales: quantised::scales(call)?,
            mask: call.tensor_if_given(ATTEN_MASK_OPTIONAL)?,
            mask_name: ATTEN_MASK_OPTIONAL,
            bias: call.tensor_if_given(PSE_SHIFT_OPTIONAL)?,
            bias_name: PSE_SHIFT_OPTIONAL,
            query_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS_OPTIONAL)?,
            query_lengths_name: ACTUAL_SEQ_LENGTHS_OPTIONAL,
            key_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS_KV_OPTIONAL)?,
            key_lengths_name: ACTUAL_SEQ_LENGTHS_KV_OPTIONAL,
            sparse_mode: call.int(SPARSE_MODE)?,
            before: call.int(PRE_TOKENS)?,
            after: call.int(NEXT_TOKENS)?,
            decoding: positions(call)? == Some(1),
            packs: true,
            log_sum_exp,
        },
    )
}

fn prompt(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    precise(call, 3)?;
    shared(
        call,
        &AttentionRequest {
            keys: std::slice::from_ref(call.tensor(KEY)?),
            values: std::slice::from_ref(call.tensor(VALUE)?),
            table: None,
            table_name: BLOCKTABLE,
            block_size: 0,
            scales: None,
            mask: call.tensor_if_given(ATTEN_MASK)?,
            mask_name: ATTEN_MASK,
            bias: call.tensor_if_given(PSE_SHIFT)?,
            bias_name: PSE_SHIFT,
            query_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS)?,
            query_lengths_name: ACTUAL_SEQ_LENGTHS,
            key_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS_KV)?,
            key_lengths_name: ACTUAL_SEQ_LENGTHS_KV,
            sparse_mode: call.int(SPARSE_MODE)?,
            before: call.int(PRE_TOKENS)?,
            after: call.int(NEXT_TOKENS)?,
            decoding: false,
            packs: false,
            log_sum_exp: None,
        },
    )
}

fn incremental(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    precise(call, 1)?;
    if positions(call)? != Some(1) {
        let (dims, layout) = (&call.tensor(QUERY)?.dims, call.text(INPUT_LAYOUT)?);
        return Err(call.refuse(QUERY, format!("expected one position, found {dims:?} in {layout}")));
    }
    shared(
        call,
        &AttentionRequest {
            keys: call.tensors(KEY_LIST)?,
            values: call.tensors(VALUE_LIST)?,
            table: call.tensor_if_given(BLOCKTABLE)?,
            table_name: BLOCKTABLE,
            block_size: call.int(BLOCK_SIZE)?,
            scales: None,
            mask: call.tensor_if_given(ATTEN_MASK)?,
            mask_name: ATTEN_MASK,
            bias: call.tensor_if_given(PSE_SHIFT)?,
            bias_name: PSE_SHIFT,
            query_lengths: None,
            query_lengths_name: ACTUAL_SEQ_LENGTHS,
            key_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS)?,
            key_lengths_name: ACTUAL_SEQ_LENGTHS,
            sparse_mode: 0,
            before: i64::MAX,
            after: i64::MAX,
            decoding: true,
            packs: false,
            log_sum_exp: None,
        },
    )
}

fn precise(call: &OperatorCall, highest: i64) -> Result<(), Refusal> {
    let value = call.int(INNER_PRECISE)?;
    if !(0..=highest).contains(&value) {
        return Err(call.refuse(INNER_PRECISE, format!("expected 0 to {highest}, found {value}")));
    }
    Ok(())
}

fn heads(call: &OperatorCall) -> Result<(usize, usize), Refusal> {
    let heads = call.int(NUM_HEADS)?;
    if !(1..=256).contains(&heads) {
        return Err(call.refuse(NUM_HEADS, format!("expected 1 to 256, found {heads}")));
    }
    let kv_heads = match call.int(NUM_KEY_VALUE_HEADS)? {
        0 => heads,
        given => given,
    };
    if kv_heads < 1 || heads % kv_heads != 0 || heads / kv_heads > 64 {
        let text = format!("expected a divisor of numHeads {heads} of at least a 64th, found {kv_heads}");
        return Err(call.refuse(NUM_KEY_VALUE_HEADS, text));
    }
    Ok((heads as usize, kv_heads as usize))
}

fn shared(call: &OperatorCall, request: &AttentionRequest<'_>) -> Result<CallPlan, Refusal> {
    let (heads, kv_heads) = heads(call)?;
    let rows = QueryRows::of(call, request, heads)?;
    let keys = KeyRows::of(call, request, &rows, kv_heads)?;
    let scales = request.scales.as_ref().map(|scales| scales.checked(call, request, &keys)).transpose()?;
    rows.check(call, keys.value_depth)?;
    let mask = mask::mask(call, request, &rows, &keys)?;
    let bias = mask::bias(call, request, &rows, &keys)?;
    let full = request.mask.filter(|_| matches!(mask, Mask::Full(_)));
    let read = request.key_lengths.map_or_else(Vec::new, |_| keys.read(full));
    let sums_dims = Extents { depth: 1, ..rows.extents };
    if let Some(sums) = request.log_sum_exp {
        let expected = rows.sums_order().dims(sums_dims);
        if sums.dims != expected {
            return Err(call.refuse(SOFTMAX_LSE, format!("expected {expected:?}, found {:?}", sums.dims)));
        }
    }

    let bands = mask::bands(request, mask, &rows, &keys);
    let scale = call.float(SCALE_VALUE)? as f32;
    let (query, out) = (call.tensor(QUERY)?.slot, call.tensor(ATTENTION_OUT)?.slot);
    let sums_slot = request.log_sum_exp.map(|tensor| tensor.slot);
    let triangle = if let Mask::Compressed(slot) = mask { Some(slot) } else { None };
    let attended = Attended { scales, ..keys.attended(query, &rows, triangle) };
    let dtype = call.tensor(QUERY)?.dtype;
    let plan = CallPlan::new(move |views: &StridedViews<'_>, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let full = match mask {
            Mask::Full(slot) => Some(mask::of_batches(views.of(slot), rows.extents)),
            Mask::Compressed(slot) => {
                check_triangle(views.of(slot))?;
                None
            }
            Mask::None => None,
        };
        let batch = |b: usize| {
            let BatchKeys { key, value, blocks } = keys.batch(views, b)?;
            let (query_len, key_len, (before, after)) = (rows.lengths[b], keys.lengths[b], bands[b]);
            let mask = full.as_ref().map(|full| full.at(0, b));
            let bias = bias.map(|slot| views.of(slot)).map(|bias| bias.at(0, b.min(bias.dims()[0] - 1)));
            Ok(AttentionBatch {
                key,
                value,
                blocks,
                scales: scales.map(|[key, value]| KeyScales {
                    key: views.of(key).clone(),
                    value: views.of(value).clone(),
                    dtype,
                }),
                query_len,
                key_len,
                mask,
                before,
                after,
                bias,
                dropout: None,
            })
        };
        let sums = |slot| rows.sums_order().head_major(views.of(slot), sums_dims).at(3, 0);
        let all = AttentionCall {
            query: rows.order.head_major(views.of(query), rows.extents),
            batches: (0..rows.batches()).map(batch).collect::<Result<_, String>>()?,
            scale,
            out: rows
                .out_order
                .head_major(views.of(out), Extents { depth: keys.value_depth, ..rows.extents }),
            statistics: sums_slot
                .map_or(SoftmaxStatistics::None, |slot| SoftmaxStatistics::LogSumExp(sums(slot))),
        };
        rows.jobs(all).iter().for_each(|job| attention(tiles, job));
        Ok(())
    })?;
    Ok(plan.with_workspace(WORKSPACE_BYTES).reading(read).attending(attended))
}
