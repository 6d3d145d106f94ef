//! Storage of keys and values: batch tensors, packed sequences or cache blocks.

use std::ops::Range;

use crate::attention::rows::lengths;
use crate::attention::rows::order::{Extents, Order};
use crate::attention::rows::request::{AttentionRequest, QueryRows};
use crate::dtype::AclType;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::{Attended, KeySequence, PartRead, Refusal, StridedViews, ViewIndex};
use crate::view::StridedView;

/// Unit of cache block sizes.
const BLOCK_UNIT: i64 = 16;
const MOST_OF_BLOCK: i64 = 1024;
/// Maximum line width of a cache with adjacent heads (hardware copies).
const WIDEST_LINE: usize = 65_535;

#[derive(Clone, Copy, Debug)]
struct KeyPart {
    key: ViewIndex,
    value: ViewIndex,
    extents: Extents,
}

/// First dim of keys and values.
#[derive(Clone, Debug)]
enum FirstDim {
    /// One if there is a tensor per batch.
    Batches,
    /// Position within packed sequences.
    Sequences(Vec<Range<usize>>),
    /// The table lists the cache blocks of each batch in key order.
    Blocks(ViewIndex),
}

#[derive(Clone, Debug)]
pub(super) struct KeyRows {
    order: Order,
    /// For all batches, or one per batch.
    parts: Vec<KeyPart>,
    place: FirstDim,
    /// Valid keys per batch.
    pub(super) lengths: Vec<usize>,
    /// Maximum keys per batch.
    pub(super) room: usize,
    /// Head size of the values.
    pub(super) value_depth: usize,
}

pub(super) struct BatchKeys {
    pub(super) key: StridedView,
    pub(super) value: StridedView,
    pub(super) blocks: Option<Vec<usize>>,
}

impl KeyRows {
    /// Checks keys, values, lengths and block table against the queries.
    pub(super) fn of(
        call: &OperatorCall,
        request: &AttentionRequest<'_>,
        rows: &QueryRows,
        kv_heads: usize,
    ) -> Result<Self, Refusal> {
        let order = match request.table {
            Some(_) => cache_order(call, request, kv_heads)?,
            None => rows.order,
        };
        let (parts, value_depth) = parts(call, request, order, kv_heads)?;
        for part in &parts {
            if part.extents.depth != rows.extents.depth {
                let text = format!(
                    "expected head size {} as query has, found {}",
                    rows.extents.depth, part.extents.depth
                );
                return Err(call.refuse(KEY, text));
            }
        }
        let keys = Self { order, parts, place: FirstDim::Batches, lengths: Vec::new(), room: 0, value_depth };
        match request.table {
            Some(table) => keys.in_blocks(call, request, rows, table),
            None if order.is_packed() => keys.in_sequences(call, request, rows),
            None => keys.in_batches(call, request, rows),
        }
    }

    fn in_batches(
        self,
        call: &OperatorCall,
        request: &AttentionRequest<'_>,
        rows: &QueryRows,
    ) -> Result<Self, Refusal> {
        let (count, batches) = (self.parts.len(), rows.batches());
        let listed = count != 1;
        if listed && (count != batches || count > 256) {
            let text = format!(
                "expected 1 tensor, or one of batch 1 for each of {batches} batches (256 at most), found {count} keys"
            );
            return Err(call.refuse(KEY, text));
        }
        let batch = if listed { 1 } else { batches };
        if let Some((i, part)) = self.parts.iter().enumerate().find(|(_, part)| part.extents.batch != batch) {
            let text =
                format!("expected batch {batch} as query has, found {} (tensor {i})", part.extents.batch);
            return Err(call.refuse(KEY, text));
        }
        let limits: Vec<usize> = (0..batches).map(|b| self.part(b).extents.len).collect();
        let lengths = lengths::padded(call, request.key_lengths_name, request.key_lengths, &limits)?;
        Ok(Self { lengths, room: limits.into_iter().max().unwrap_or(0), ..self })
    }

    fn in_sequences(
        self,
        call: &OperatorCall,
        request: &AttentionRequest<'_>,
        rows: &QueryRows,
    ) -> Result<Self, Refusal> {
        let [part] = self.parts[..] else {
            return Err(call
                .refuse(KEY, format!("expected 1 tensor in this inputLayout, found {}", self.parts.len())));
        };
        let name = request.key_lengths_name;
        let ranges = lengths::packed(call, name, request.key_lengths, part.extents.len)?;
        if ranges.len() != rows.batches() {
            let text = format!("expected {} ends as for query, found {}", rows.batches(), ranges.len());
            return Err(call.refuse(name, text));
        }
        let lengths: Vec<usize> = ranges.iter().map(Range::len).collect();
        let room = lengths.iter().copied().max().unwrap_or(0);
        Ok(Self { lengths, room, place: FirstDim::Sequences(ranges), ..self })
    }

    fn in_blocks(
        self,
        call: &OperatorCall,
        request: &AttentionRequest<'_>,
        rows: &QueryRows,
        table: &CheckedTensor,
    ) -> Result<Self, Refusal> {
        let ([part], &[lines, columns]) = (&self.parts[..], &table.dims[..]) else {
            return Err(call.refuse(KEY, format!("expected 1 cache of blocks, found {}", self.parts.len())));
        };
        if lines != rows.batches() || columns == 0 {
            let text = format!(
                "expected a line of blocks for each of {} batches, found {:?}",
                rows.batches(),
                table.dims
            );
            return Err(call.refuse(request.table_name, text));
        }
        if request.key_lengths.is_none_or(<[i64]>::is_empty) {
            return Err(call.refuse(
                request.key_lengths_name,
                "a cache of blocks needs the lengths of keys, found NULL",
            ));
        }
        let room = columns * part.extents.len;
        let limits = vec![room; lines];
        let lengths = lengths::padded(call, request.key_lengths_name, request.key_lengths, &limits)?;
        let place = FirstDim::Blocks(table.slot);
        Ok(Self { lengths, room, place, ..self })
    }

    /// Returns the blocks, heads, tokens of a block and head size of caches.
    pub(super) fn cache_sizes(&self) -> [usize; 4] {
        let Extents { batch, heads, len, depth } = self.part(0).extents;
        [batch, heads, len, depth]
    }

    fn part(&self, batch: usize) -> KeyPart {
        self.parts[if self.parts.len() == 1 { 0 } else { batch }]
    }

    /// Fails if the table names a missing block.
    pub(super) fn batch(&self, views: &StridedViews<'_>, batch: usize) -> Result<BatchKeys, String> {
        let KeyPart { key, value, extents } = self.part(batch);
        let head_major = |slot, depth| self.order.head_major(views.of(slot), Extents { depth, ..extents });
        let (key, value) = (head_major(key, extents.depth), head_major(value, self.value_depth));
        let of_batch = |view: &StridedView| match &self.place {
            FirstDim::Batches => view.at(0, if self.parts.len() == 1 { batch } else { 0 }),
            FirstDim::Sequences(ranges) => {
                view.at(0, 0).slice(1, ranges[batch].start, ranges[batch].len(), 1)
            }
            FirstDim::Blocks(_) => view.clone(),
        };
        let blocks = match self.place {
            FirstDim::Blocks(table) => Some(self.blocks(views.of(table), batch, extents)?),
            FirstDim::Batches | FirstDim::Sequences(_) => None,
        };
        Ok(BatchKeys { key: of_batch(&key), value: of_batch(&value), blocks })
    }

    /// Returns only blocks with valid keys.
    fn blocks(&self, table: &StridedView, batch: usize, cache: Extents) -> Result<Vec<usize>, String> {
        let mut line = vec![0i32; self.lengths[batch].div_ceil(cache.len)];
        table.at(0, batch).read(0, &mut line);
        let block = |(i, &found): (usize, &i32)| {
            usize::try_from(found).ok().filter(|&block| block < cache.batch).ok_or_else(|| {
                format!(
                    "block table: expected blocks below {} as the cache has, batch {batch} has {found} at place {i}",
                    cache.batch
                )
            })
        };
        line.iter().enumerate().map(block).collect()
    }

    /// Returns the valid parts of keys, values and a full mask, if keys are stored by batch. Each
    /// tensor has one length per index of the first dim.
    pub(super) fn read(&self, mask: Option<&CheckedTensor>) -> Vec<PartRead> {
        if !matches!(self.place, FirstDim::Batches) {
            return Vec::new();
        }
        let part = |slot, dim, lengths: &[usize]| PartRead { slot, dim, lengths: lengths.to_vec() };
        let (dim, each) = (self.order.position(), self.lengths.len() / self.parts.len());
        let keys = self
            .parts
            .iter()
            .zip(self.lengths.chunks(each.max(1)))
            .flat_map(|(of, lengths)| [of.key, of.value].map(|slot| part(slot, dim, lengths)));
        let own = |mask: &&CheckedTensor| {
            mask.dims.len() > 2 && mask.dims[0] == self.lengths.len() && !mask.is_empty()
        };
        keys.chain(mask.filter(own).map(|mask| part(mask.slot, mask.dims.len() - 1, &self.lengths))).collect()
    }

    /// Batch tensors may have capacity for more keys than the valid ones.
    pub(super) fn attended(
        &self,
        query: ViewIndex,
        rows: &QueryRows,
        triangle: Option<ViewIndex>,
    ) -> Attended {
        let extents = self.part(0).extents;
        let sequence = |(batch, (&rows, &keys)): (usize, (&usize, &usize))| {
            let room =
                if matches!(self.place, FirstDim::Batches) { self.part(batch).extents.len } else { keys };
            KeySequence { rows, keys, room }
        };
        Attended {
            query,
            keys: self.parts.iter().map(|part| [part.key, part.value]).collect(),
            heads: [rows.extents.heads, extents.heads],
            depths: [extents.depth, self.value_depth],
            scales: None,
            triangle,
            sequences: rows.lengths.iter().zip(&self.lengths).enumerate().map(sequence).collect(),
        }
    }
}

/// Returns also the head size of the values.
fn parts(
    call: &OperatorCall,
    request: &AttentionRequest<'_>,
    order: Order,
    kv_heads: usize,
) -> Result<(Vec<KeyPart>, usize), Refusal> {
    let (dtype, expected): (AclType, _) = match request.scales {
        Some(_) => (AclType::I8, "INT8 with scales"),
        None => (call.tensor(QUERY)?.dtype, "the type of query without scales"),
    };
    if request.keys.is_empty() || request.keys.len() != request.values.len() {
        let text =
            format!("expected the number of keys, {}, found {}", request.keys.len(), request.values.len());
        return Err(call.refuse(VALUE, text));
    }
    let mut value_depth = 0;
    let mut parts = Vec::with_capacity(request.keys.len());
    for (i, (key, value)) in request.keys.iter().zip(request.values).enumerate() {
        for (name, tensor) in [(KEY, key), (VALUE, value)] {
            if tensor.dtype != dtype {
                let text = format!("expected {dtype}, {expected}; found {}", tensor.dtype);
                return Err(call.refuse(name, text));
            }
        }
        let extents = order.extents(call, KEY, &key.dims, kv_heads)?;
        let found = order.extents(call, VALUE, &value.dims, kv_heads)?;
        if i > 0 && found.depth != value_depth || (Extents { depth: extents.depth, ..found }) != extents {
            let text =
                format!("expected the shape of key {:?}, found {:?} (tensor {i})", key.dims, value.dims);
            return Err(call.refuse(VALUE, text));
        }
        value_depth = found.depth;
        parts.push(KeyPart { key: key.slot, value: value.slot, extents });
    }
    Ok((parts, value_depth))
}

/// The cache layout is `[blocks, block, heads times D]` or `[blocks, heads, block, D]`, for any
/// query layout.
fn cache_order(
    call: &OperatorCall,
    request: &AttentionRequest<'_>,
    kv_heads: usize,
) -> Result<Order, Refusal> {
    let block = request.block_size;
    if !(BLOCK_UNIT..=MOST_OF_BLOCK).contains(&block) || block % BLOCK_UNIT != 0 {
        let text = format!(
            "expected a multiple of {BLOCK_UNIT} up to {MOST_OF_BLOCK} with a block table, found {block}"
        );
        return Err(call.refuse(BLOCK_SIZE, text));
    }
    let [cache, ..] = request.keys else {
        return Err(call.refuse(KEY, "expected a cache of blocks, found an empty list"));
    };
    if call.text(INPUT_LAYOUT)? == "NTD_TND" {
        return Err(call.refuse(INPUT_LAYOUT, "NTD_TND takes no block table"));
    }
    let (order, found) = match cache.dims[..] {
        [_, found, width] if width <= WIDEST_LINE => (Order::Bsh, found),
        [_, _, width] => {
            let text =
                format!("expected up to {WIDEST_LINE} elements a line of {kv_heads} heads, found {width}");
            return Err(call.refuse(NUM_KEY_VALUE_HEADS, text));
        }
        [_, _, found, _] => (Order::Bnsd, found),
        _ => return Err(call.refuse(KEY, format!("expected 3 or 4 dims, found {:?}", cache.dims))),
    };
    if found != block as usize {
        let text =
            format!("expected blocks of {block} keys as blockSize says, found {found} in {:?}", cache.dims);
        return Err(call.refuse(KEY, text));
    }
    Ok(order)
}
