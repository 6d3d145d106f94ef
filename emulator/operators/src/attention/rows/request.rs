//! Common form of a fused attention call.

use std::ops::Range;

use crate::attention::kernels::{AttentionBatch, AttentionCall};
use crate::attention::rows::lengths;
use crate::attention::rows::order::{Extents, Order};
use crate::operator::Refusal;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::view::StridedView;

/// Scales of caches of 8-bit integers.
pub(super) struct CacheScales<'a> {
    pub(super) key: &'a CheckedTensor,
    pub(super) value: &'a CheckedTensor,
}

/// Parameters, with their names in the operator.
pub(super) struct AttentionRequest<'a> {
    pub(super) keys: &'a [CheckedTensor],
    pub(super) values: &'a [CheckedTensor],
    /// Set if keys and values are caches.
    pub(super) table: Option<&'a CheckedTensor>,
    pub(super) table_name: Name<CheckedTensor>,
    pub(super) block_size: i64,
    /// Set if keys and values are 8-bit integers.
    pub(super) scales: Option<CacheScales<'a>>,
    pub(super) mask: Option<&'a CheckedTensor>,
    pub(super) mask_name: Name<CheckedTensor>,
    /// Bias of the scores.
    pub(super) bias: Option<&'a CheckedTensor>,
    pub(super) bias_name: Name<CheckedTensor>,
    pub(super) query_lengths: Option<&'a [i64]>,
    pub(super) query_lengths_name: Name<[i64]>,
    pub(super) key_lengths: Option<&'a [i64]>,
    pub(super) key_lengths_name: Name<[i64]>,
    pub(super) sparse_mode: i64,
    pub(super) before: i64,
    pub(super) after: i64,
    /// The rules for a single query position apply.
    pub(super) decoding: bool,
    /// Packed sequences are allowed.
    pub(super) packs: bool,
    pub(super) log_sum_exp: Option<&'a CheckedTensor>,
}

/// Name, input order and output order.
const LAYOUTS: [(&str, Order, Order); 6] = [
    ("BSH", Order::Bsh, Order::Bsh),
    ("BSND", Order::Bsnd, Order::Bsnd),
    ("BNSD", Order::Bnsd, Order::Bnsd),
    (TURNED, Order::Bnsd, Order::Bsnd),
    ("TND", Order::Tnd, Order::Tnd),
    ("NTD_TND", Order::Ntd, Order::Tnd),
];

/// Requires more than one query position.
const TURNED: &str = "BNSD_BSND";

/// Returns `None` for packed or unknown layouts.
pub(super) fn positions(call: &OperatorCall) -> Result<Option<usize>, Refusal> {
    let (query, layout) = (call.tensor(QUERY)?, call.text(INPUT_LAYOUT)?);
    let found = LAYOUTS.iter().find(|(name, order, _)| *name == layout && !order.is_packed());
    Ok(found.and_then(|(_, order, _)| query.dims.get(order.position()).copied()))
}

fn layout(call: &OperatorCall, request: &AttentionRequest<'_>) -> Result<(Order, Order), Refusal> {
    let layout = call.text(INPUT_LAYOUT)?;
    let is_legal = |(name, order, _): &&(&str, Order, Order)| {
        *name == layout && (!request.decoding || *name != TURNED) && (request.packs || !order.is_packed())
    };
    let found = LAYOUTS.iter().find(is_legal).map(|(_, order, out)| (*order, *out));
    found.ok_or_else(|| {
        let packed = if request.packs { ", TND, NTD_TND" } else { "" };
        let text = format!(
            "expected BSH, BSND, BNSD{packed}, or {TURNED} for more than one query position, found {layout}"
        );
        call.refuse(INPUT_LAYOUT, text)
    })
}

#[derive(Clone, Debug)]
pub(super) struct QueryRows {
    pub(super) order: Order,
    pub(super) out_order: Order,
    pub(super) extents: Extents,
    sequences: Option<Vec<Range<usize>>>,
    /// Valid rows per batch.
    pub(super) lengths: Vec<usize>,
}

impl QueryRows {
    pub(super) fn of(
        call: &OperatorCall,
        request: &AttentionRequest<'_>,
        heads: usize,
    ) -> Result<Self, Refusal> {
        let (order, out_order) = layout(call, request)?;
        let extents = order.extents(call, QUERY, &call.tensor(QUERY)?.dims, heads)?;
        if extents.batch > 65_536 {
            return Err(call.refuse(QUERY, format!("expected up to 65536 batches, found {}", extents.batch)));
        }
        let name = request.query_lengths_name;
        let (sequences, lengths) = if order.is_packed() {
            let sequences = lengths::packed(call, name, request.query_lengths, extents.len)?;
            let lengths = sequences.iter().map(Range::len).collect();
            (Some(sequences), lengths)
        } else {
            let given = if request.decoding { None } else { request.query_lengths };
            (None, lengths::padded(call, name, given, &vec![extents.len; extents.batch])?)
        };
        Ok(Self { order, out_order, extents, sequences, lengths })
    }

    pub(super) fn batches(&self) -> usize {
        self.lengths.len()
    }

    pub(super) fn check(&self, call: &OperatorCall, value_depth: usize) -> Result<(), Refusal> {
        let depth = self.extents.depth;
        let apart = (depth, value_depth) == (192, 128);
        let (legal, expected) = match self.order {
            Order::Tnd => {
                (depth.is_multiple_of(16) && (16..=256).contains(&depth), "a multiple of 16 up to 256")
            }
            Order::Ntd => ([64, 128].contains(&depth), "64 or 128"),
            _ => (depth.is_multiple_of(16) && (16..=512).contains(&depth), "a multiple of 16 up to 512"),
        };
        if !legal && !apart {
            return Err(call.refuse(QUERY, format!("expected a head size that is {expected}, found {depth}")));
        }
        if depth != value_depth && !apart {
            let text =
                format!("expected values of head size {depth}, or 128 with keys of 192, found {value_depth}");
            return Err(call.refuse(VALUE, text));
        }
        call.expect_dtype(ATTENTION_OUT, call.tensor(QUERY)?.dtype, "the type of query")?;
        let out = self.out_order.dims(Extents { depth: value_depth, ..self.extents });
        call.expect_shape(ATTENTION_OUT, &out, "of query in the layout of the output")
    }

    /// Returns the order of the log-sum-exps, one per head and row.
    pub(super) fn sums_order(&self) -> Order {
        if self.order.is_packed() { Order::Tnd } else { Order::Bnsd }
    }

    /// Returns one job for all batches of equal length, or one per nonempty sequence.
    pub(super) fn jobs(&self, all: AttentionCall) -> Vec<AttentionCall> {
        let Some(sequences) = &self.sequences else { return vec![all] };
        let with_rows = sequences.iter().zip(all.batches).filter(|(range, _)| !range.is_empty());
        let job = |(range, batch): (&Range<usize>, AttentionBatch)| {
            let part = |view: &StridedView| view.slice(2, range.start, range.len(), 1);
            AttentionCall {
                query: part(&all.query),
                batches: vec![batch],
                scale: all.scale,
                out: part(&all.out),
                statistics: all.statistics.map(part),
            }
        };
        with_rows.map(job).collect()
    }
}
