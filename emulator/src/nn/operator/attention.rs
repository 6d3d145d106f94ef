//! Rows of the fused attention operators of inference, and the plan they share.
//!
//! The three differ in how keys and values come (one tensor or a list), in whether the query may have more than one
//! position, and in which lengths they take. Quantisation, position bias, paged and padded caches and shared prefixes are
//! not modelled: their parameters must be NULL.

use super::argument::Tensor;
use super::call::OperatorCall;
use super::names::{
    ACTUAL_SEQ_LENGTHS, ACTUAL_SEQ_LENGTHS_KV, ACTUAL_SEQ_LENGTHS_KV_OPTIONAL, ACTUAL_SEQ_LENGTHS_OPTIONAL,
    ACTUAL_SHARED_PREFIX_LEN_OPTIONAL, ANTIQUANT_MODE, ANTIQUANT_OFFSET, ANTIQUANT_OFFSET_OPTIONAL, ANTIQUANT_SCALE,
    ANTIQUANT_SCALE_OPTIONAL, ATTEN_MASK, ATTEN_MASK_OPTIONAL, ATTENTION_OUT, BLOCK_SIZE, BLOCK_TABLE_OPTIONAL,
    BLOCKTABLE, DEQ_SCALE1, DEQ_SCALE1_OPTIONAL, DEQ_SCALE2, DEQ_SCALE2_OPTIONAL, DEQUANT_SCALE1, DEQUANT_SCALE2,
    INNER_PRECISE, INPUT_LAYOUT, KEY, KEY_ANTIQUANT_MODE, KEY_ANTIQUANT_OFFSET_OPTIONAL, KEY_ANTIQUANT_SCALE_OPTIONAL,
    KEY_LIST, KEY_ROPE_ANTIQUANT_SCALE_OPTIONAL, KEY_ROPE_OPTIONAL, KEY_SHARED_PREFIX_OPTIONAL, KV_PADDING_SIZE,
    KV_PADDING_SIZE_OPTIONAL, NEXT_TOKENS, NUM_HEADS, NUM_KEY_VALUE_HEADS, Name, PRE_TOKENS, PSE_SHIFT,
    PSE_SHIFT_OPTIONAL, QUANT_OFFSET2, QUANT_OFFSET2_OPTIONAL, QUANT_SCALE1, QUANT_SCALE1_OPTIONAL, QUANT_SCALE2,
    QUANT_SCALE2_OPTIONAL, QUERY, QUERY_PADDING_SIZE_OPTIONAL, QUERY_ROPE_OPTIONAL, SCALE_VALUE, SOFTMAX_LSE,
    SOFTMAX_LSE_FLAG, SPARSE_MODE, VALUE, VALUE_ANTIQUANT_MODE, VALUE_ANTIQUANT_OFFSET_OPTIONAL,
    VALUE_ANTIQUANT_SCALE_OPTIONAL, VALUE_LIST, VALUE_SHARED_PREFIX_OPTIONAL,
};
use super::row::{Operator, Parameter, attribute, input, inputs, ints, output, unmodelled};
use super::sets::{HALVES, MASKS, SINGLE};
use super::{PartRead, Plan, Refusal, ViewIndex, Views};
use crate::nn::attention::{Attention, Batch, Statistics, attention};
use crate::nn::view::View;

/// What the operators ask for besides their data: the tiling library's share.
pub(super) const WORKSPACE_BYTES: usize = 16 << 20;
/// Extent of the masks of the compressed sparse modes.
pub(super) const COMPRESSED: usize = 2048;

const FUSED: &[Parameter] = &[
    input(QUERY, HALVES, 3, 4).contiguous(),
    inputs(KEY_LIST, HALVES, 3, 4).contiguous(),
    inputs(VALUE_LIST, HALVES, 3, 4).contiguous(),
    unmodelled(PSE_SHIFT_OPTIONAL),
    input(ATTEN_MASK_OPTIONAL, MASKS, 2, 4).contiguous().optional(),
    ints(ACTUAL_SEQ_LENGTHS_OPTIONAL).optional(),
    ints(ACTUAL_SEQ_LENGTHS_KV_OPTIONAL).optional(),
    unmodelled(DEQ_SCALE1_OPTIONAL),
    unmodelled(QUANT_SCALE1_OPTIONAL),
    unmodelled(DEQ_SCALE2_OPTIONAL),
    unmodelled(QUANT_SCALE2_OPTIONAL),
    unmodelled(QUANT_OFFSET2_OPTIONAL),
    unmodelled(ANTIQUANT_SCALE_OPTIONAL),
    unmodelled(ANTIQUANT_OFFSET_OPTIONAL),
    unmodelled(BLOCK_TABLE_OPTIONAL),
    unmodelled(QUERY_PADDING_SIZE_OPTIONAL),
    unmodelled(KV_PADDING_SIZE_OPTIONAL),
    unmodelled(KEY_ANTIQUANT_SCALE_OPTIONAL),
    unmodelled(KEY_ANTIQUANT_OFFSET_OPTIONAL),
    unmodelled(VALUE_ANTIQUANT_SCALE_OPTIONAL),
    unmodelled(VALUE_ANTIQUANT_OFFSET_OPTIONAL),
    unmodelled(KEY_SHARED_PREFIX_OPTIONAL),
    unmodelled(VALUE_SHARED_PREFIX_OPTIONAL),
    unmodelled(ACTUAL_SHARED_PREFIX_LEN_OPTIONAL),
    attribute(NUM_HEADS),
    attribute(SCALE_VALUE),
    attribute(PRE_TOKENS),
    attribute(NEXT_TOKENS),
    attribute(INPUT_LAYOUT),
    attribute(NUM_KEY_VALUE_HEADS),
    attribute(SPARSE_MODE),
    attribute(INNER_PRECISE),
    attribute(BLOCK_SIZE),
    attribute(ANTIQUANT_MODE),
    attribute(SOFTMAX_LSE_FLAG),
    attribute(KEY_ANTIQUANT_MODE),
    attribute(VALUE_ANTIQUANT_MODE),
    output(ATTENTION_OUT, HALVES, 3, 4).contiguous(),
    output(SOFTMAX_LSE, SINGLE, 1, 4).contiguous().optional(),
];

/// How many parameters of [`FUSED`] are before those that [`FUSED_WITH_ROPE`] has more.
const BEFORE_ROPE: usize = 24;

/// What the third version has more.
const ROPE: [Parameter; 3] =
    [unmodelled(QUERY_ROPE_OPTIONAL), unmodelled(KEY_ROPE_OPTIONAL), unmodelled(KEY_ROPE_ANTIQUANT_SCALE_OPTIONAL)];

/// The parameters of the third version.
const FUSED_WITH_ROPE: &[Parameter] = &{
    let mut all = [ROPE[0]; FUSED.len() + ROPE.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at {
            ..BEFORE_ROPE => FUSED[at],
            _ if at < BEFORE_ROPE + ROPE.len() => ROPE[at - BEFORE_ROPE],
            _ => FUSED[at - ROPE.len()],
        };
        at += 1;
    }
    all
};

const PROMPT: &[Parameter] = &[
    input(QUERY, HALVES, 3, 4).contiguous(),
    input(KEY, HALVES, 3, 4).contiguous(),
    input(VALUE, HALVES, 3, 4).contiguous(),
    unmodelled(PSE_SHIFT),
    input(ATTEN_MASK, MASKS, 2, 4).contiguous().optional(),
    ints(ACTUAL_SEQ_LENGTHS).optional(),
    ints(ACTUAL_SEQ_LENGTHS_KV).optional(),
    unmodelled(DEQ_SCALE1),
    unmodelled(QUANT_SCALE1),
    unmodelled(DEQ_SCALE2),
    unmodelled(QUANT_SCALE2),
    unmodelled(QUANT_OFFSET2),
    attribute(NUM_HEADS),
    attribute(SCALE_VALUE),
    attribute(PRE_TOKENS),
    attribute(NEXT_TOKENS),
    attribute(INPUT_LAYOUT),
    attribute(NUM_KEY_VALUE_HEADS),
    attribute(SPARSE_MODE),
    attribute(INNER_PRECISE),
    output(ATTENTION_OUT, HALVES, 3, 4).contiguous(),
];

const INCREMENTAL: &[Parameter] = &[
    input(QUERY, HALVES, 3, 4).contiguous(),
    inputs(KEY_LIST, HALVES, 3, 4).contiguous(),
    inputs(VALUE_LIST, HALVES, 3, 4).contiguous(),
    unmodelled(PSE_SHIFT),
    input(ATTEN_MASK, MASKS, 2, 4).contiguous().optional(),
    ints(ACTUAL_SEQ_LENGTHS).optional(),
    unmodelled(DEQUANT_SCALE1),
    unmodelled(QUANT_SCALE1),
    unmodelled(DEQUANT_SCALE2),
    unmodelled(QUANT_SCALE2),
    unmodelled(QUANT_OFFSET2),
    unmodelled(ANTIQUANT_SCALE),
    unmodelled(ANTIQUANT_OFFSET),
    unmodelled(BLOCKTABLE),
    unmodelled(KV_PADDING_SIZE),
    attribute(NUM_HEADS),
    attribute(SCALE_VALUE),
    attribute(INPUT_LAYOUT),
    attribute(NUM_KEY_VALUE_HEADS),
    attribute(BLOCK_SIZE),
    attribute(INNER_PRECISE),
    output(ATTENTION_OUT, HALVES, 3, 4).contiguous(),
];

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFusedInferAttentionScoreV2",
        parameters: FUSED,
        limits: "one element type; D a multiple of 16 up to 512, N up to 256, B up to 65536; numHeads a multiple of \
                 numKeyValueHeads (0 = numHeads), at most 64 times; key and value of one shape, one tensor or B tensors of \
                 batch 1; layouts BSH, BSND, BNSD, BNSD_BSND (query longer than 1); sparseMode 0–4, 2–4 with a 2048 x 2048 \
                 mask; mask [Q,KV], [B|1,Q,KV], [B|1,1,Q,KV], or [B,KV], [B,1,KV], [B,1,1,KV] for one query position",
        source: "ops-transformer attention/fused_infer_attention_score/docs/aclnnFusedInferAttentionScoreV2.md",
        plan: fused,
    },
    Operator {
        name: "aclnnFusedInferAttentionScoreV3",
        parameters: FUSED_WITH_ROPE,
        limits: "as aclnnFusedInferAttentionScoreV2",
        source: "ops-transformer attention/fused_infer_attention_score/docs/aclnnFusedInferAttentionScoreV3.md",
        plan: fused,
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
        limits: "as aclnnFusedInferAttentionScoreV2 for one query position; actualSeqLengths are those of the keys",
        source: "CANN 8.1 aclnn API reference, aclnnIncreFlashAttentionV4",
        plan: incremental,
    },
];

/// Order of the dims of queries, keys, values or outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Batch, position, heads times depth.
    Bsh,
    /// Batch, position, head, depth.
    Bsnd,
    /// Batch, head, position, depth.
    Bnsd,
}

/// Extents of queries, keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) len: usize,
    pub(super) depth: usize,
}

impl Order {
    /// The extents of a tensor in this order.
    pub(super) fn extents(
        self,
        call: &OperatorCall,
        name: Name<Tensor>,
        dims: &[usize],
        heads: usize,
    ) -> Result<Extents, Refusal> {
        let found = match (self, dims) {
            (Self::Bsh, &[batch, len, width]) => {
                if width == 0 || !width.is_multiple_of(heads) {
                    let text = format!("expected a last dim that {heads} heads divide, found {dims:?}");
                    return Err(call.refuse(name, text));
                }
                Extents { batch, heads, len, depth: width / heads }
            }
            (Self::Bsnd, &[batch, len, found, depth]) => Extents { batch, heads: found, len, depth },
            (Self::Bnsd, &[batch, found, len, depth]) => Extents { batch, heads: found, len, depth },
            _ => return Err(call.refuse(name, format!("{dims:?} has the wrong number of dims for this inputLayout"))),
        };
        if found.heads != heads {
            let text = format!("expected {heads} heads as the attributes say, found {} in {dims:?}", found.heads);
            return Err(call.refuse(name, text));
        }
        Ok(found)
    }

    /// The dims of a tensor of these extents.
    pub(super) fn dims(self, e: Extents) -> Vec<usize> {
        match self {
            Self::Bsh => vec![e.batch, e.len, e.heads * e.depth],
            Self::Bsnd => vec![e.batch, e.len, e.heads, e.depth],
            Self::Bnsd => vec![e.batch, e.heads, e.len, e.depth],
        }
    }

    /// A tensor in this order as batch, head, position, depth.
    pub(super) fn head_major(self, view: &View, e: Extents) -> View {
        match self {
            Self::Bsh => view.split(2, e.heads, e.depth).permute(&[0, 2, 1, 3]),
            Self::Bsnd => view.permute(&[0, 2, 1, 3]),
            Self::Bnsd => view.clone(),
        }
    }
}

/// Names of the parameters that differ between the operators, and what the call passed for the rest.
struct Request<'a> {
    keys: &'a [Tensor],
    values: &'a [Tensor],
    mask: Option<&'a Tensor>,
    mask_name: Name<Tensor>,
    query_lengths: Option<&'a [i64]>,
    query_lengths_name: Name<[i64]>,
    key_lengths: Option<&'a [i64]>,
    key_lengths_name: Name<[i64]>,
    sparse_mode: i64,
    before: i64,
    after: i64,
    /// Whether the rules of a single query position hold.
    decoding: bool,
    log_sum_exp: Option<&'a Tensor>,
}

fn fused(call: &OperatorCall) -> Result<Plan, Refusal> {
    for name in [ANTIQUANT_MODE, KEY_ANTIQUANT_MODE, VALUE_ANTIQUANT_MODE] {
        if call.int(name)? != 0 {
            return Err(call.refuse(name, "expected 0: quantisation is not modelled"));
        }
    }
    precise(call, 3)?;
    let log_sum_exp = if call.flag(SOFTMAX_LSE_FLAG)? { Some(call.tensor(SOFTMAX_LSE)?) } else { None };
    let query = call.tensor(QUERY)?;
    // In each layout the position is the second dim, but for BNSD.
    let position = if call.text(INPUT_LAYOUT)?.starts_with("BNSD") { 2 } else { 1 };
    shared(
        call,
        &Request {
            keys: call.tensors(KEY_LIST)?,
            values: call.tensors(VALUE_LIST)?,
            mask: call.tensor_if_given(ATTEN_MASK_OPTIONAL)?,
            mask_name: ATTEN_MASK_OPTIONAL,
            query_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS_OPTIONAL)?,
            query_lengths_name: ACTUAL_SEQ_LENGTHS_OPTIONAL,
            key_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS_KV_OPTIONAL)?,
            key_lengths_name: ACTUAL_SEQ_LENGTHS_KV_OPTIONAL,
            sparse_mode: call.int(SPARSE_MODE)?,
            before: call.int(PRE_TOKENS)?,
            after: call.int(NEXT_TOKENS)?,
            decoding: query.dims[position] == 1,
            log_sum_exp,
        },
    )
}

fn prompt(call: &OperatorCall) -> Result<Plan, Refusal> {
    precise(call, 3)?;
    shared(
        call,
        &Request {
            keys: std::slice::from_ref(call.tensor(KEY)?),
            values: std::slice::from_ref(call.tensor(VALUE)?),
            mask: call.tensor_if_given(ATTEN_MASK)?,
            mask_name: ATTEN_MASK,
            query_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS)?,
            query_lengths_name: ACTUAL_SEQ_LENGTHS,
            key_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS_KV)?,
            key_lengths_name: ACTUAL_SEQ_LENGTHS_KV,
            sparse_mode: call.int(SPARSE_MODE)?,
            before: call.int(PRE_TOKENS)?,
            after: call.int(NEXT_TOKENS)?,
            decoding: false,
            log_sum_exp: None,
        },
    )
}

fn incremental(call: &OperatorCall) -> Result<Plan, Refusal> {
    precise(call, 1)?;
    let layout = call.text(INPUT_LAYOUT)?;
    let query = call.tensor(QUERY)?;
    let position = if layout.starts_with("BNSD") { 2 } else { 1 };
    if query.dims[position] != 1 {
        return Err(call.refuse(QUERY, format!("expected one position, found {:?} in {layout}", query.dims)));
    }
    shared(
        call,
        &Request {
            keys: call.tensors(KEY_LIST)?,
            values: call.tensors(VALUE_LIST)?,
            mask: call.tensor_if_given(ATTEN_MASK)?,
            mask_name: ATTEN_MASK,
            query_lengths: None,
            query_lengths_name: ACTUAL_SEQ_LENGTHS,
            key_lengths: call.ints_if_given(ACTUAL_SEQ_LENGTHS)?,
            key_lengths_name: ACTUAL_SEQ_LENGTHS,
            sparse_mode: 0,
            before: i64::MAX,
            after: i64::MAX,
            decoding: true,
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

/// The orders of the inputs and of the output.
fn layout(call: &OperatorCall, decoding: bool) -> Result<(Order, Order), Refusal> {
    match call.text(INPUT_LAYOUT)? {
        "BSH" => Ok((Order::Bsh, Order::Bsh)),
        "BSND" => Ok((Order::Bsnd, Order::Bsnd)),
        "BNSD" => Ok((Order::Bnsd, Order::Bnsd)),
        "BNSD_BSND" if !decoding => Ok((Order::Bnsd, Order::Bsnd)),
        other => {
            let text =
                format!("expected BSH, BSND, BNSD, or BNSD_BSND for more than one query position, found {other}");
            Err(call.refuse(INPUT_LAYOUT, text))
        }
    }
}

/// Query heads and key/value heads.
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

/// One length per batch: given once for all, or for each; `limits` are the extents of the tensors.
fn lengths(
    call: &OperatorCall,
    name: Name<[i64]>,
    given: Option<&[i64]>,
    limits: &[usize],
) -> Result<Vec<usize>, Refusal> {
    let Some(given) = given else {
        return Ok(limits.to_vec());
    };
    if given.len() != 1 && given.len() < limits.len() {
        let text = format!("expected 1 length or one for each of {} batches, found {}", limits.len(), given.len());
        return Err(call.refuse(name, text));
    }
    let pairs =
        limits.iter().enumerate().map(|(i, &limit)| (i, limit, if given.len() == 1 { given[0] } else { given[i] }));
    pairs
        .map(|(i, limit, value)| match usize::try_from(value) {
            Ok(value) if value <= limit => Ok(value),
            _ => Err(call.refuse(name, format!("expected 0 to {limit} for batch {i}, found {value}"))),
        })
        .collect()
}

/// How the mask parameter is used.
#[derive(Clone, Copy, Debug)]
enum Mask {
    /// Nothing is masked.
    None,
    /// Element by element; the view has to be brought to batch, query, key.
    Full(ViewIndex),
    /// The pattern of the sparse mode; the tensor only has to hold the documented triangle.
    Compressed(ViewIndex),
}

/// Whether an extent of a mask covers `len`, exactly or rounded up as the documentation allows.
fn covers(extent: usize, len: usize) -> bool {
    [len, len.next_multiple_of(16), len.next_multiple_of(32)].contains(&extent)
}

fn mask(call: &OperatorCall, request: &Request<'_>, query: Extents, key_len: usize) -> Result<Mask, Refusal> {
    let name = request.mask_name;
    if !(0..=4).contains(&request.sparse_mode) {
        return Err(call.refuse(SPARSE_MODE, format!("expected 0 to 4, found {}", request.sparse_mode)));
    }
    let sparse_mode = if request.decoding { 0 } else { request.sparse_mode };
    let Some(mask) = request.mask else {
        if sparse_mode != 0 {
            return Err(call.refuse(name, format!("sparseMode {sparse_mode} needs a mask, found NULL")));
        }
        return Ok(Mask::None);
    };
    if mask.len() == 0 {
        return Err(call.refuse(name, format!("expected a mask with elements or NULL, found {:?}", mask.dims)));
    }
    if sparse_mode >= 2 {
        let legal = matches!(mask.dims[..], [COMPRESSED, COMPRESSED] | [1, COMPRESSED, COMPRESSED])
            || mask.dims == [1, 1, COMPRESSED, COMPRESSED];
        if !legal {
            let text =
                format!("expected {COMPRESSED} x {COMPRESSED} for sparseMode {sparse_mode}, found {:?}", mask.dims);
            return Err(call.refuse(name, text));
        }
        return Ok(Mask::Compressed(mask.slot));
    }
    let one_or_batch = |extent| extent == 1 || extent == query.batch;
    let legal = match (request.decoding, &mask.dims[..]) {
        (true, &[batch, keys] | &[batch, 1, keys] | &[batch, 1, 1, keys]) => {
            batch == query.batch && covers(keys, key_len)
        }
        (false, &[rows, keys]) => covers(rows, query.len) && covers(keys, key_len),
        (false, &[batch, rows, keys] | &[batch, 1, rows, keys]) => {
            one_or_batch(batch) && covers(rows, query.len) && covers(keys, key_len)
        }
        _ => false,
    };
    if !legal {
        let (batch, rows) = (query.batch, query.len);
        let expected = if request.decoding {
            format!("[{batch}, {key_len}], [{batch}, 1, {key_len}] or [{batch}, 1, 1, {key_len}]")
        } else {
            format!("[{rows}, {key_len}], [{batch} or 1, {rows}, {key_len}] or [{batch} or 1, 1, {rows}, {key_len}]")
        };
        return Err(call.refuse(name, format!("expected {expected}, found {:?}", mask.dims)));
    }
    Ok(Mask::Full(mask.slot))
}

/// What is read of keys, values and a full mask where keys behind a length are not: each tensor has an index of its first dim for
/// each length, one if there is a tensor for each batch.
fn parts_read(
    tensors: &[(ViewIndex, ViewIndex, Extents)],
    order: Order,
    mask: Option<&Tensor>,
    lengths: &[usize],
) -> Vec<PartRead> {
    let dim = if order == Order::Bnsd { 2 } else { 1 };
    let part = |slot, dim, lengths: &[usize]| PartRead { slot, dim, lengths: lengths.to_vec() };
    let each = lengths.len() / tensors.len();
    let keys = tensors
        .iter()
        .zip(lengths.chunks(each.max(1)))
        .flat_map(|((key, value, _), lengths)| [*key, *value].map(|slot| part(slot, dim, lengths)));
    let own = |mask: &&Tensor| mask.dims.len() > 2 && mask.dims[0] == lengths.len() && mask.len() > 0;
    keys.chain(mask.filter(own).map(|mask| part(mask.slot, mask.dims.len() - 1, lengths))).collect()
}

/// A full mask as batch, query, key.
fn mask_of_batches(mask: &View, query: Extents) -> View {
    let three = match mask.rank() {
        // One query position: [B, KV]; else [Q, KV], shared by the batches.
        2 if query.len == 1 && mask.dims()[0] == query.batch => mask.unsqueeze(1),
        2 => mask.unsqueeze(0),
        4 => mask.at(1, 0),
        _ => mask.clone(),
    };
    let (rows, keys) = (three.dims()[1], three.dims()[2]);
    three.broadcast_to(&[query.batch, rows, keys])
}

/// Refuses a compressed mask that is not ones above the diagonal and zeros elsewhere, judged by its first and last rows.
pub(super) fn check_triangle(mask: &View) -> Result<(), String> {
    let square = (0..mask.rank() - 2).fold(mask.clone(), |view, _| view.at(0, 0));
    let mut row = [0u8; COMPRESSED];
    for (line, masked_from) in [(0, 1), (COMPRESSED - 1, COMPRESSED)] {
        square.at(0, line).read(0, &mut row);
        if let Some(key) = (0..COMPRESSED).find(|&key| (row[key] != 0) != (key >= masked_from)) {
            return Err(format!(
                "the compressed mask must be 1 above the diagonal and 0 elsewhere; row {line}, key {key} is not"
            ));
        }
    }
    Ok(())
}

fn check_query(call: &OperatorCall, q: Extents, out_order: Order) -> Result<(), Refusal> {
    let query = call.tensor(QUERY)?;
    if !q.depth.is_multiple_of(16) || !(16..=512).contains(&q.depth) {
        return Err(
            call.refuse(QUERY, format!("expected a head size that is a multiple of 16 up to 512, found {}", q.depth))
        );
    }
    if q.batch > 65_536 {
        return Err(call.refuse(QUERY, format!("expected up to 65536 batches, found {}", q.batch)));
    }
    call.expect_dtype(ATTENTION_OUT, query.dtype, "that of query")?;
    call.expect_shape(ATTENTION_OUT, &out_order.dims(q), "of query in the layout of the output")
}

/// Keys and values with their extents: one tensor each for all batches, or one per batch.
fn key_parts(
    call: &OperatorCall,
    request: &Request<'_>,
    order: Order,
    (q, kv_heads): (Extents, usize),
) -> Result<Vec<(ViewIndex, ViewIndex, Extents)>, Refusal> {
    let query = call.tensor(QUERY)?;
    let count = request.keys.len();
    let listed = count != 1;
    if request.values.len() != count || (listed && (count != q.batch || count > 256)) {
        let text = format!(
            "expected 1 tensor, or one of batch 1 for each of {} batches (256 at most), found {count} keys and {} values",
            q.batch,
            request.values.len()
        );
        return Err(call.refuse(KEY, text));
    }
    let mut parts = Vec::with_capacity(count);
    for (i, (key, value)) in request.keys.iter().zip(request.values).enumerate() {
        for (name, tensor) in [(KEY, key), (VALUE, value)] {
            if tensor.dtype != query.dtype {
                return Err(call.refuse(name, format!("expected {} as query, found {}", query.dtype, tensor.dtype)));
            }
        }
        if key.dims != value.dims {
            return Err(call.refuse(VALUE, format!("expected the shape of key {:?}, found {:?}", key.dims, value.dims)));
        }
        let k = order.extents(call, KEY, &key.dims, kv_heads)?;
        let batch = if listed { 1 } else { q.batch };
        if k.batch != batch || k.depth != q.depth {
            let text = format!(
                "expected batch {batch} and head size {} as query {:?} has, found {:?} (tensor {i})",
                q.depth, query.dims, key.dims
            );
            return Err(call.refuse(KEY, text));
        }
        parts.push((key.slot, value.slot, k));
    }
    Ok(parts)
}

/// By batch: how many keys before and behind its own place a row sees.
fn bands(request: &Request<'_>, mask: Mask, key_lengths: &[usize], query_lengths: &[usize]) -> Vec<(i64, i64)> {
    key_lengths
        .iter()
        .zip(query_lengths)
        .map(|(&keys, &rows)| {
            let shift = keys as i64 - rows as i64;
            match (mask, request.sparse_mode) {
                (Mask::Compressed(_), 2) => (i64::MAX, 0),
                (Mask::Compressed(_), 3) => (i64::MAX, shift),
                (Mask::Compressed(_), _) => (request.before.saturating_sub(shift), request.after.saturating_add(shift)),
                (Mask::Full(_), 0) if !request.decoding => (request.before, request.after),
                _ => (i64::MAX, i64::MAX),
            }
        })
        .collect()
}

fn shared(call: &OperatorCall, request: &Request<'_>) -> Result<Plan, Refusal> {
    let query = call.tensor(QUERY)?;
    let (in_order, out_order) = layout(call, request.decoding)?;
    let (heads, kv_heads) = heads(call)?;
    let q = in_order.extents(call, QUERY, &query.dims, heads)?;
    check_query(call, q, out_order)?;
    let parts = key_parts(call, request, in_order, (q, kv_heads))?;
    let listed = parts.len() != 1;
    let key_extents: Vec<usize> = (0..q.batch).map(|b| parts[if listed { b } else { 0 }].2.len).collect();
    let longest = parts.iter().map(|part| part.2.len).max().unwrap_or(0);
    let key_lengths = lengths(call, request.key_lengths_name, request.key_lengths, &key_extents)?;
    let given = if request.decoding { None } else { request.query_lengths };
    let query_lengths = lengths(call, request.query_lengths_name, given, &vec![q.len; q.batch])?;
    let mask = mask(call, request, q, longest)?;
    let full = request.mask.filter(|_| matches!(mask, Mask::Full(_)));
    let read = request.key_lengths.map_or_else(Vec::new, |_| parts_read(&parts, in_order, full, &key_lengths));
    if let Some(sums) = request.log_sum_exp {
        let expected = [q.batch, q.heads, q.len, 1];
        if sums.dims != expected {
            return Err(call.refuse(SOFTMAX_LSE, format!("expected {expected:?}, found {:?}", sums.dims)));
        }
    }

    let bands = bands(request, mask, &key_lengths, &query_lengths);
    let scale = call.float(SCALE_VALUE)? as f32;
    let (query, out) = (query.slot, call.tensor(ATTENTION_OUT)?.slot);
    let sums = request.log_sum_exp.map(|tensor| tensor.slot);
    let plan = Plan::new(move |views: &Views<'_>, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let full = match mask {
            Mask::Full(slot) => Some(mask_of_batches(views.of(slot), q)),
            Mask::Compressed(slot) => {
                check_triangle(views.of(slot))?;
                None
            }
            Mask::None => None,
        };
        let batches = (0..q.batch)
            .map(|b| {
                let (key, value, extents) = parts[if listed { b } else { 0 }];
                let part = |slot| in_order.head_major(views.of(slot), extents).at(0, if listed { 0 } else { b });
                Batch {
                    key: part(key),
                    value: part(value),
                    query_len: query_lengths[b],
                    key_len: key_lengths[b],
                    mask: full.as_ref().map(|full| full.at(0, b)),
                    before: bands[b].0,
                    after: bands[b].1,
                }
            })
            .collect();
        let job = Attention {
            query: in_order.head_major(views.of(query), q),
            batches,
            scale,
            out: out_order.head_major(views.of(out), q),
            statistics: sums.map_or(Statistics::None, |slot| Statistics::LogSumExp(views.of(slot).at(3, 0))),
        };
        attention(tiles, &job);
        Ok(())
    })?;
    Ok(plan.with_workspace(WORKSPACE_BYTES).reading(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_extents_may_be_rounded_up_to_the_documented_alignments() {
        assert!(covers(17, 17) && covers(32, 17) && !covers(18, 17) && !covers(16, 17));
        assert!(covers(48, 40) && covers(64, 40));
    }

    #[test]
    fn orders_agree_on_extents_and_dims() {
        let e = Extents { batch: 2, heads: 3, len: 5, depth: 16 };
        assert_eq!(Order::Bsh.dims(e), [2, 5, 48]);
        assert_eq!(Order::Bsnd.dims(e), [2, 5, 3, 16]);
        assert_eq!(Order::Bnsd.dims(e), [2, 3, 5, 16]);
        assert_eq!(WORKSPACE_BYTES % 512, 0);
    }

    #[test]
    fn lengths_say_which_part_of_each_tensor_is_read() {
        let extents = Extents { batch: 2, heads: 3, len: 5, depth: 16 };
        let part = |slot, dim, lengths: &[usize]| PartRead { slot: ViewIndex(slot), dim, lengths: lengths.to_vec() };
        let one = [(ViewIndex(1), ViewIndex(2), extents)];
        for (order, dim) in [(Order::Bsnd, 1), (Order::Bsh, 1), (Order::Bnsd, 2)] {
            let expected = [part(1, dim, &[4, 0]), part(2, dim, &[4, 0])];
            assert_eq!(parts_read(&one, order, None, &[4, 0]), expected);
        }
        let of_batches = [(ViewIndex(1), ViewIndex(3), extents), (ViewIndex(2), ViewIndex(4), extents)];
        let expected = [part(1, 1, &[4]), part(3, 1, &[4]), part(2, 1, &[0]), part(4, 1, &[0])];
        assert_eq!(parts_read(&of_batches, Order::Bsnd, None, &[4, 0]), expected);
    }
}
