//! Scaled dot-product attention: `softmax(scale * q k^T + mask) v`, and optional softmax statistics
//! per row.
//!
//! [`gradient`] has the backward pass; [`merge`] combines results over disjoint keys.
//!
//! Invariants: all arithmetic is f32, and outputs are rounded once. A row without visible keys is
//! zeros. Keys are processed in pieces of [`PIECE`] that begin at its multiples. Each piece gives
//! a maximum, a sum and weighted values relative to that maximum, and pieces are merged in the
//! order of the keys. Therefore the bits of a row depend only on:
//! - its query and scale;
//! - its visible keys and values in their order, and the place of each in its piece;
//! - its bias and its dropout bits.
//!
//! They do not depend on cache blocks, pieces without visible keys, other rows, lengths, tiles or
//! threads.
//!
//! Masks are read first, so keys that a block of rows never sees cost nothing. A block of rows
//! processes pieces of keys with an online softmax (Milakov and Gimelshein, "Online normalizer
//! calculation for softmax", 2018). With few rows, as in decode, each range of pieces is a tile and
//! its keys are read in place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::dtype::AclType;
use crate::lane::Lane;
use crate::math;
use crate::matmul::kernels::OperandRounding;
use crate::matmul::panel::{PanelPacking, PanelScratch, add_product, line_stride, sized};
use crate::raw::Rows;
use crate::simd::block::{RUN, WIDTH};
use crate::simd::dot::{self, MOST_VECTORS, PADDING, Vectors};
use crate::simd::isa::{Isa, isa};
use crate::view::StridedView;
use crate::{Serial, Tiles};

const ROWS: usize = 64;
/// Number of keys that are summed relative to one maximum. The product kernels sum runs of this
/// length from zero, and caches commonly have blocks of this size.
const PIECE: usize = 128;
const _: () = assert!(PIECE == RUN, "a piece is one run of the product kernels");
/// Up to this many rows, each range is a separate tile and keys are read in place.
const FEW_ROWS: usize = 16;
/// Number of pieces per tile of few rows. It changes no bits.
const RANGE: usize = 4;
/// Below this many multiplications, waking a thread does not pay.
const SMALL: usize = 1 << 17;

#[derive(Clone, Debug)]
pub(crate) struct AttentionBatch {
    /// Keys `[Nkv, Skv, D]`, or cache blocks `[blocks, Nkv, block, D]`.
    pub(crate) key: StridedView,
    /// Values `[Nkv, Skv, Dv]`, or cache blocks `[blocks, Nkv, block, Dv]`.
    pub(crate) value: StridedView,
    /// Cache blocks in the order of the keys.
    pub(crate) blocks: Option<Vec<usize>>,
    /// Set if keys and values are 8-bit integers.
    pub(crate) scales: Option<KeyScales>,
    pub(crate) query_len: usize,
    pub(crate) key_len: usize,
    /// Mask `[Sq, Skv]` of bytes, possibly larger; nonzero hides the key.
    pub(crate) mask: Option<StridedView>,
    /// Row `i` sees no key below `i - before`.
    pub(crate) before: i64,
    /// Row `i` sees no key above `i + after`.
    pub(crate) after: i64,
    /// Addends of the scaled scores, `[N, Sq, Skv]`, possibly larger in the last two dims.
    pub(crate) bias: Option<StridedView>,
    pub(crate) dropout: Option<Dropout>,
}

/// Scales of 8-bit keys and values, each `[blocks, Nkv, block]`. Products with their scales are
/// rounded to type `dtype`.
#[derive(Clone, Debug)]
pub(crate) struct KeyScales {
    pub(crate) key: StridedView,
    pub(crate) value: StridedView,
    pub(crate) dtype: AclType,
}

/// Bits `[N, Sq, Skv]`, lowest bit of a byte first; 0 drops a weight. The others are divided by
/// `kept`, after their sum.
#[derive(Clone, Debug)]
pub(crate) struct Dropout {
    pub(crate) bytes: StridedView,
    pub(crate) first_bit: usize,
    pub(crate) kept: f32,
}

impl Dropout {
    /// Multiplies the values of keys from bit `at` on.
    fn apply(&self, at: usize, values: &mut [f32]) {
        let first = self.first_bit + at;
        let (start, end) = (first / 8, (first + values.len()).div_ceil(8));
        let mut bytes = [0_u8; DROPOUT_KEYS / 8 + 2];
        let bytes = &mut bytes[..end - start];
        self.bytes.slice(0, start, bytes.len(), 1).read(0, bytes);
        let factor = 1.0 / self.kept;
        for (bit, value) in (first % 8..).zip(values) {
            *value *= if bytes[bit / 8] >> (bit % 8) & 1 == 1 { factor } else { 0.0 };
        }
    }
}

/// Greatest number of keys that one call of [`Dropout::apply`] takes.
const DROPOUT_KEYS: usize = 256;
const _: () = assert!(PIECE <= DROPOUT_KEYS, "a piece is one call");

#[derive(Clone, Debug)]
pub(crate) struct AttentionCall {
    /// Queries `[B, N, Sq, D]`; N is a multiple of Nkv.
    pub(crate) query: StridedView,
    pub(crate) batches: Vec<AttentionBatch>,
    pub(crate) scale: f32,
    pub(crate) out: StridedView,
    pub(crate) statistics: SoftmaxStatistics,
}

#[derive(Clone, Debug)]
pub(crate) enum SoftmaxStatistics {
    None,
    /// Log of the sum of exponentials, `[B, N, Sq]`; +inf without visible keys.
    LogSumExp(StridedView),
    /// Greatest score, and sum of exponentials relative to it, each `[B, N, Sq, 8]` with eight
    /// copies. Without visible keys: the least finite number and 0.
    MaxAndSum(StridedView, StridedView),
}

/// One vector register of f32.
pub(crate) const COPIES: usize = 8;

impl SoftmaxStatistics {
    pub(crate) fn map(&self, change: impl Fn(&StridedView) -> StridedView) -> Self {
        match self {
            Self::None => Self::None,
            Self::LogSumExp(sums) => Self::LogSumExp(change(sums)),
            Self::MaxAndSum(max, sum) => Self::MaxAndSum(change(max), change(sum)),
        }
    }

    fn store(&self, row: usize, max: f32, sum: f32, is_blind: bool) {
        match self {
            Self::None => {}
            Self::LogSumExp(sums) => {
                f32::store(sums, row, &[if is_blind { f32::INFINITY } else { max + sum.ln() }]);
            }
            Self::MaxAndSum(greatest, sums) => {
                let (max, sum) = if is_blind { (f32::MIN, 0.0) } else { (max, sum) };
                f32::store(greatest, row * COPIES, &[max; COPIES]);
                f32::store(sums, row * COPIES, &[sum; COPIES]);
            }
        }
    }
}

/// 8-bit keys or values with their scales.
#[derive(Clone, Copy)]
struct Quantised<'a> {
    all: &'a StridedView,
    scales: &'a StridedView,
    dtype: AclType,
}

#[derive(Clone, Debug)]
struct VisibleKeys {
    keys: Range<usize>,
    /// The mask hides keys inside the range.
    gaps: bool,
}

impl AttentionBatch {
    fn kv_heads(&self) -> usize {
        let dims = self.key.dims();
        dims[dims.len() - 3]
    }

    /// Returns the place of a pair in `[N, Sq, Skv]`.
    fn place(&self, query_head: usize, position: usize, key: usize) -> usize {
        (query_head * self.query_len + position) * self.key_len + key
    }

    /// Splits keys at the ends of cache blocks.
    fn segments(&self, keys: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let block = self.blocks.as_ref().map_or(usize::MAX, |_| self.key.dims()[2]);
        let (mut start, end) = (keys.start, keys.end);
        std::iter::from_fn(move || {
            let segment = start..end.min((start / block + 1).saturating_mul(block));
            start = segment.end;
            (!segment.is_empty()).then_some(segment)
        })
    }

    /// Returns the keys or values of one segment, `[keys, D]`.
    fn segment(&self, all: &StridedView, head: usize, keys: &Range<usize>) -> StridedView {
        let Some(blocks) = &self.blocks else {
            return all.at(0, head).slice(0, keys.start, keys.len(), 1);
        };
        let block = all.dims()[2];
        all.at(0, blocks[keys.start / block]).at(0, head).slice(0, keys.start % block, keys.len(), 1)
    }

    /// Writes the keys or values of one segment as rows of `rows`, multiplied by their scales.
    fn dequantised(&self, part: Quantised<'_>, head: usize, keys: &Range<usize>, rows: &mut [f32]) {
        let Quantised { all, scales, dtype } = part;
        f32::load(&self.segment(all, head, keys), 0, rows);
        let mut factors = [0_f32; PIECE];
        let factors = &mut factors[..keys.len()];
        f32::load(&self.segment(&scales.unsqueeze(3), head, keys), 0, factors);
        for (row, factor) in rows.chunks_exact_mut(rows.len() / keys.len()).zip(factors) {
            row.iter_mut().for_each(|number| *number = (*number * *factor).rounded(dtype));
        }
    }

    fn sights(&self, rows: usize) -> Vec<VisibleKeys> {
        let mut hidden = vec![0u8; if self.mask.is_some() { self.key_len } else { 0 }];
        let limit = self.key_len as i64;
        let sight = |i: usize| {
            if i >= self.query_len {
                return VisibleKeys { keys: 0..0, gaps: false };
            }
            let low = (i as i64).saturating_sub(self.before).clamp(0, limit) as usize;
            let high = (i as i64).saturating_add(self.after).saturating_add(1).clamp(0, limit) as usize;
            let band = low..high.max(low);
            let Some(mask) = &self.mask else { return VisibleKeys { keys: band, gaps: false } };
            let hidden = &mut hidden[..band.len()];
            mask.at(0, i).slice(0, band.start, band.len(), 1).read(0, hidden);
            let (seen, count) = math::zeros(hidden);
            VisibleKeys { gaps: count < seen.len(), keys: band.start + seen.start..band.start + seen.end }
        };
        (0..rows).map(sight).collect()
    }
}

pub(crate) fn attention(tiles: &dyn Tiles, job: &AttentionCall) {
    attend(tiles, isa(), job);
}

fn attend(tiles: &dyn Tiles, isa: Isa, job: &AttentionCall) {
    if job.out.is_empty() {
        return;
    }
    let &[_, heads, rows, depth] = job.query.dims() else {
        unreachable!("queries have four dims");
    };
    let kv_heads = job.batches[0].kv_heads();
    let group = heads / kv_heads;
    let sights: Vec<Vec<VisibleKeys>> = job.batches.iter().map(|batch| batch.sights(rows)).collect();
    // The query heads of one key/value head form one long matrix.
    let (query, out) = (job.query.split(1, kv_heads, group), job.out.split(1, kv_heads, group));
    let statistics = job.statistics.map(|view| view.split(1, kv_heads, group));
    let blocks = (group * rows).div_ceil(ROWS);
    let few = group * rows <= FEW_ROWS;
    let head_of = |tile: usize| {
        let (batch, head) = (tile / kv_heads, tile % kv_heads);
        let part = |view: &StridedView| view.at(0, batch).at(0, head).collapsed();
        AttentionHead {
            isa,
            batch: &job.batches[batch],
            sights: &sights[batch],
            head,
            group,
            scale: job.scale,
            query: part(&query),
            depth,
            width: job.out.dims()[3],
            out: part(&out),
            statistics: statistics.map(part),
        }
    };
    let longest = |batch: &Vec<VisibleKeys>| batch.iter().map(|sight| sight.keys.len()).max().unwrap_or(0);
    let keys = sights.iter().map(longest).max().unwrap_or(0);
    let pairs = job.batches.len() * kv_heads;
    let tiles = if pairs * group * rows * keys * depth < SMALL { &Serial } else { tiles };
    let most_ranges =
        sights.iter().map(|batch| pieces(&union(batch.iter())).len().div_ceil(RANGE)).max().unwrap_or(0);
    if !few || most_ranges <= 1 {
        tiles.run(pairs * blocks, &|tile| {
            let (head, block) = (head_of(tile / blocks), tile % blocks);
            let rows = block * ROWS..((block + 1) * ROWS).min(group * rows);
            head.finish(&rows, head.weigh(&rows));
        });
        return;
    }
    let rows = 0..group * rows;
    let columns = job.out.dims()[3].next_multiple_of(WIDTH);
    let gathered: Vec<Mutex<Gathered>> =
        (0..pairs).map(|_| Mutex::new(Gathered::new(rows.len(), columns))).collect();
    tiles.run(pairs * most_ranges, &|tile| {
        let (head, range) = (head_of(tile / most_ranges), tile % most_ranges);
        let parts = head.parts(&rows, range);
        let mut gathered = gathered[tile / most_ranges].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(whole) = gathered.add(range, parts, most_ranges) {
            head.finish(&rows, whole);
        }
    });
}

/// Returns the numbers of the pieces that hold these keys.
fn pieces(keys: &Range<usize>) -> Range<usize> {
    keys.start / PIECE..keys.end.div_ceil(PIECE)
}

fn union<'a>(sights: impl Iterator<Item = &'a VisibleKeys>) -> Range<usize> {
    let seen = sights.filter(|sight| !sight.keys.is_empty()).map(|sight| sight.keys.clone());
    seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// Query heads that share one key/value head, `[group * Sq, D]`.
struct AttentionHead<'a> {
    isa: Isa,
    batch: &'a AttentionBatch,
    /// Visible keys per query position.
    sights: &'a [VisibleKeys],
    head: usize,
    /// Query heads per key/value head.
    group: usize,
    scale: f32,
    query: StridedView,
    depth: usize,
    width: usize,
    out: StridedView,
    statistics: SoftmaxStatistics,
}

/// Values weighted by exponentials of scores relative to `max`, and the sum of the weights, per
/// row. Lines of values are padded to whole slabs.
#[derive(Default)]
struct WeightedValues {
    max: Vec<f32>,
    sum: Vec<f32>,
    values: Vec<f32>,
}

impl WeightedValues {
    fn new(rows: usize, columns: usize) -> Self {
        Self { max: vec![f32::NEG_INFINITY; rows], sum: vec![0.0; rows], values: vec![0.0; rows * columns] }
    }

    /// Adds a later piece. A piece without visible keys changes nothing.
    fn merge(&mut self, part: &Self) {
        let (rows, columns) = (self.max.len(), self.values.len() / self.max.len());
        let mut factors = [[0_f32; ROWS]; 2];
        let [own, other] = factors.each_mut().map(|factors| &mut factors[..rows]);
        for (row, (own, other)) in own.iter_mut().zip(&mut *other).enumerate() {
            let (before, found) = (self.max[row], part.max[row]);
            let max = if found > before { found } else { before };
            self.max[row] = max;
            (*own, *other) = (before - reference(max), found - reference(max));
        }
        math::exp(own);
        math::exp(other);
        let lines = self.values.chunks_exact_mut(columns).zip(part.values.chunks_exact(columns));
        for (row, (values, others)) in lines.enumerate() {
            self.sum[row] = self.sum[row] * own[row] + part.sum[row] * other[row];
            math::scale_and_add(values, own[row], others, other[row]);
        }
    }
}

/// Returns the score to subtract. If all scores are minus infinity, it is 0, so the weights are 0.
fn reference(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// Pieces of one key/value head, which tiles compute in any order.
struct Gathered {
    ranges: usize,
    whole: WeightedValues,
    waiting: BTreeMap<usize, Vec<WeightedValues>>,
}

impl Gathered {
    fn new(rows: usize, columns: usize) -> Self {
        Self { ranges: 0, whole: WeightedValues::new(rows, columns), waiting: BTreeMap::new() }
    }

    /// Merges ranges in the order of the keys. Returns the total after the last of `count` ranges.
    fn add(&mut self, range: usize, parts: Vec<WeightedValues>, count: usize) -> Option<WeightedValues> {
        self.waiting.insert(range, parts);
        while let Some(parts) = self.waiting.remove(&self.ranges) {
            parts.iter().for_each(|part| self.whole.merge(part));
            self.ranges += 1;
        }
        (self.ranges == count).then(|| std::mem::take(&mut self.whole))
    }
}

#[derive(Default)]
struct AttentionScratch {
    /// Padded with zeros to a multiple of `PADDING`.
    query: Vec<f32>,
    scores: Vec<f32>,
    /// Scores of one segment, if a piece has several.
    segment: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    stage: PanelScratch<f32>,
}

thread_local! {
    static SCRATCH: RefCell<AttentionScratch> = RefCell::default();
}

impl AttentionHead<'_> {
    fn sight(&self, row: usize) -> &VisibleKeys {
        &self.sights[row % self.sights.len()]
    }

    fn keys(&self, rows: &Range<usize>) -> Range<usize> {
        union(rows.clone().map(|row| self.sight(row)))
    }

    /// Returns the width in whole slabs.
    fn columns(&self) -> usize {
        self.width.next_multiple_of(WIDTH)
    }

    fn weigh(&self, rows: &Range<usize>) -> WeightedValues {
        let keys = self.keys(rows);
        let mut whole = WeightedValues::new(rows.len(), self.columns());
        let mut part = WeightedValues::new(rows.len(), self.columns());
        self.with_query(rows, |scratch| {
            for piece in pieces(&keys) {
                self.piece(rows, &piece_keys(piece, &keys), scratch, &mut part);
                whole.merge(&part);
            }
        });
        whole
    }

    /// Returns the pieces of one range of [`RANGE`], counted from the first piece with visible
    /// keys.
    fn parts(&self, rows: &Range<usize>, range: usize) -> Vec<WeightedValues> {
        let keys = self.keys(rows);
        let range = pieces(&keys).skip(range * RANGE).take(RANGE);
        self.with_query(rows, |scratch| {
            let part = |piece| {
                let mut part = WeightedValues::new(rows.len(), self.columns());
                self.piece(rows, &piece_keys(piece, &keys), scratch, &mut part);
                part
            };
            range.map(part).collect()
        })
    }

    fn with_query<T>(&self, rows: &Range<usize>, body: impl FnOnce(&mut AttentionScratch) -> T) -> T {
        SCRATCH.with_borrow_mut(|scratch| {
            let stride = self.depth.next_multiple_of(PADDING);
            let query = sized(&mut scratch.query, rows.len() * stride);
            for (row, line) in rows.clone().zip(query.chunks_exact_mut(stride)) {
                f32::load(&self.query, row * self.depth, &mut line[..self.depth]);
                line[self.depth..].fill(0.0);
            }
            body(scratch)
        })
    }

    /// Computes the result of one piece.
    fn piece(
        &self,
        rows: &Range<usize>,
        keys: &Range<usize>,
        scratch: &mut AttentionScratch,
        part: &mut WeightedValues,
    ) {
        let (count, len) = (rows.len(), keys.len());
        let in_place = |view: &StridedView| view.strides().last() == Some(&1);
        let few = self.batch.scales.is_some()
            || count <= FEW_ROWS && in_place(&self.batch.key) && in_place(&self.batch.value);
        let stride = if few { len } else { len.next_multiple_of(WIDTH) };
        match &self.batch.scales {
            Some(scales) => self.score_quantised(count, keys, scales, scratch),
            None if few => self.score_few(count, keys, scratch),
            None => self.score_many(count, keys, scratch),
        }
        let scores = &mut scratch.scores[..count * stride];
        for (i, line) in scores.chunks_exact_mut(stride).enumerate() {
            (part.max[i], part.sum[i]) = self.weights(rows.start + i, keys, &mut line[..len]);
        }
        match &self.batch.scales {
            Some(scales) => self.pack_quantised(keys, scales, scratch),
            None => self.pack_values(keys, &mut scratch.values, &mut scratch.stage),
        }
        let scores = (&scratch.scores[..count * stride], stride);
        let slab_len = WIDTH * line_stride::<f32>(len);
        let values = &scratch.values[..self.columns() / WIDTH * slab_len];
        part.values.fill(0.0);
        if scores.0.chunks_exact(stride).any(|line| math::has_zero(&line[..len]))
            && !values.chunks_exact(slab_len).all(|slab| math::are_finite(&slab[..WIDTH * len]))
        {
            // A key of weight zero must add nothing, even NaN or infinity.
            let lines = scores.0.chunks_exact(stride).zip(part.values.chunks_exact_mut(self.columns()));
            for (line, sums) in lines {
                let mut values = values.to_vec();
                for slab in values.chunks_exact_mut(slab_len) {
                    let rows = slab.chunks_exact_mut(WIDTH).zip(line);
                    rows.filter(|(_, weight)| **weight == 0.0).for_each(|(row, _)| row.fill(0.0));
                }
                add_product(self.isa, line, stride, &values, 1, len, sums);
            }
        } else {
            add_product(self.isa, scores.0, scores.1, values, count, len, &mut part.values);
        }
    }

    /// Computes scores from keys in place. Lines of scores are adjacent.
    fn score_few(&self, count: usize, keys: &Range<usize>, scratch: &mut AttentionScratch) {
        let (len, query_stride) = (keys.len(), self.depth.next_multiple_of(PADDING));
        let query = &scratch.query[..count * query_stride];
        let scores = sized(&mut scratch.scores, count * len);
        for segment in self.batch.segments(keys) {
            let key = self.batch.segment(&self.batch.key, self.head, &segment);
            let value = self.batch.segment(&self.batch.value, self.head, &segment);
            dot::prefetch_rows(&value.rows(0, segment.len()));
            let element =
                dot::RowElement::of(key.dtype()).expect("keys are of a floating type, as their row says");
            let rows = key.rows(0, segment.len());
            let vectors = query.chunks(MOST_VECTORS * query_stride);
            for (vectors, scores) in vectors.zip(scores.chunks_mut(MOST_VECTORS * len)) {
                if segment == *keys {
                    dot::dots(self.isa, element, &rows, Vectors::Singles(vectors), scores);
                    continue;
                }
                let found = sized(&mut scratch.segment, scores.len() / len * segment.len());
                dot::dots(self.isa, element, &rows, Vectors::Singles(vectors), found);
                let at = segment.start - keys.start;
                for (line, found) in scores.chunks_exact_mut(len).zip(found.chunks_exact(segment.len())) {
                    line[at..at + segment.len()].copy_from_slice(found);
                }
            }
        }
    }

    /// Computes scores from 8-bit keys. Lines of scores are adjacent.
    fn score_quantised(
        &self,
        count: usize,
        keys: &Range<usize>,
        scales: &KeyScales,
        scratch: &mut AttentionScratch,
    ) {
        let (len, query_stride) = (keys.len(), self.depth.next_multiple_of(PADDING));
        let part = Quantised { all: &self.batch.key, scales: &scales.key, dtype: scales.dtype };
        let found = sized(&mut scratch.keys, len * self.depth);
        for segment in self.batch.segments(keys) {
            let at = (segment.start - keys.start) * self.depth..(segment.end - keys.start) * self.depth;
            self.batch.dequantised(part, self.head, &segment, &mut found[at]);
        }
        let rows = Rows::in_slice(found, self.depth, len, self.depth);
        let scores = sized(&mut scratch.scores, count * len);
        let vectors = scratch.query[..count * query_stride].chunks(MOST_VECTORS * query_stride);
        for (vectors, scores) in vectors.zip(scores.chunks_mut(MOST_VECTORS * len)) {
            dot::dots(self.isa, dot::RowElement::Single, &rows, Vectors::Singles(vectors), scores);
        }
    }

    /// As [`Self::pack_values`], from 8-bit values.
    fn pack_quantised(&self, keys: &Range<usize>, scales: &KeyScales, scratch: &mut AttentionScratch) {
        let part = Quantised { all: &self.batch.value, scales: &scales.value, dtype: scales.dtype };
        let slab_len = WIDTH * line_stride::<f32>(keys.len());
        let slabs = sized(&mut scratch.values, self.columns() / WIDTH * slab_len);
        slabs.fill(0.0);
        let rows = sized(&mut scratch.keys, keys.len() * self.width);
        for segment in self.batch.segments(keys) {
            let at = (segment.start - keys.start) * self.width..(segment.end - keys.start) * self.width;
            self.batch.dequantised(part, self.head, &segment, &mut rows[at]);
        }
        for (key, row) in rows.chunks_exact(self.width).enumerate() {
            for (columns, slab) in row.chunks(WIDTH).zip(slabs.chunks_exact_mut(slab_len)) {
                slab[key * WIDTH..][..columns.len()].copy_from_slice(columns);
            }
        }
    }

    /// Computes scores from packed keys. Lines of scores are padded to whole slabs.
    fn score_many(&self, count: usize, keys: &Range<usize>, scratch: &mut AttentionScratch) {
        let (stride, line) = (keys.len().next_multiple_of(WIDTH), line_stride::<f32>(self.depth));
        let packing = PanelPacking { isa: self.isa, precision: OperandRounding::Keep };
        // A segment may begin inside a slab, and slabs are packed whole.
        let slabs = sized(&mut scratch.keys, stride * line + WIDTH);
        for segment in self.batch.segments(keys) {
            let key = self.batch.segment(&self.batch.key, self.head, &segment);
            let mut at = segment.start - keys.start;
            let end = segment.end - keys.start;
            while at < end {
                let past = end.min((at + 1).next_multiple_of(WIDTH));
                let first = at + keys.start - segment.start;
                let slab = &mut slabs[at / WIDTH * WIDTH * line + at % WIDTH..][..WIDTH * line];
                packing.slabs(&key.slice(0, first, past - at, 1), &mut scratch.stage, slab);
                at = past;
            }
        }
        let scores = sized(&mut scratch.scores, count * stride);
        scores.fill(0.0);
        let query = (&scratch.query[..], self.depth.next_multiple_of(PADDING));
        add_product(self.isa, query.0, query.1, &slabs[..stride * line], count, self.depth, scores);
    }

    /// Packs values into slabs of [`WIDTH`] columns, with a word per key.
    fn pack_values(&self, keys: &Range<usize>, values: &mut Vec<f32>, stage: &mut PanelScratch<f32>) {
        let packing = PanelPacking { isa: self.isa, precision: OperandRounding::Keep };
        let slab_len = WIDTH * line_stride::<f32>(keys.len());
        let slabs = sized(values, self.columns() / WIDTH * slab_len);
        for segment in self.batch.segments(keys) {
            let value = self.batch.segment(&self.batch.value, self.head, &segment).permute(&[1, 0]);
            let words = (segment.start - keys.start) * WIDTH..;
            let len = WIDTH * line_stride::<f32>(segment.len());
            for (first, slab) in (0..self.width).step_by(WIDTH).zip(slabs.chunks_exact_mut(slab_len)) {
                let columns = value.slice(0, first, WIDTH.min(self.width - first), 1);
                packing.slabs(&columns, stage, &mut slab[words.clone()][..len]);
            }
        }
    }

    /// Turns scores into weights, 0 for hidden keys. Returns the greatest score and the sum.
    fn weights(&self, row: usize, keys: &Range<usize>, line: &mut [f32]) -> (f32, f32) {
        let sight = self.sight(row);
        let from = sight.keys.start.clamp(keys.start, keys.end) - keys.start;
        let to = sight.keys.end.clamp(keys.start, keys.end) - keys.start;
        line[..from].fill(0.0);
        line[to.max(from)..].fill(0.0);
        if from >= to {
            return (f32::NEG_INFINITY, 0.0);
        }
        let seen = &mut line[from..to];
        math::scale(seen, self.scale);
        if sight.gaps
            && let Some(mask) = &self.batch.mask
        {
            let mut hidden = [0u8; PIECE];
            let hidden = &mut hidden[..seen.len()];
            mask.at(0, row % self.sights.len()).slice(0, keys.start + from, seen.len(), 1).read(0, hidden);
            for (score, _) in seen.iter_mut().zip(hidden).filter(|(_, hidden)| **hidden != 0) {
                *score = f32::NEG_INFINITY;
            }
        }
        let (first, position) = (keys.start + from, row % self.sights.len());
        let query_head = self.head * self.group + row / self.sights.len();
        if let Some(bias) = &self.batch.bias {
            let mut addends = [0_f32; PIECE];
            let addends = &mut addends[..seen.len()];
            f32::load(&bias.at(0, query_head).at(0, position).slice(0, first, seen.len(), 1), 0, addends);
            math::add(seen, addends);
        }
        let max = math::greatest(seen);
        let sum = math::exp_shifted(seen, reference(max));
        if let Some(dropout) = &self.batch.dropout {
            dropout.apply(self.batch.place(query_head, position, first), seen);
        }
        (max, sum)
    }

    fn finish(&self, rows: &Range<usize>, weighed: WeightedValues) {
        let (columns, WeightedValues { max, sum, mut values }) = (self.columns(), weighed);
        for (i, line) in values.chunks_exact_mut(columns).enumerate() {
            let (row, mean) = (rows.start + i, &mut line[..self.width]);
            let blind = self.sight(row).keys.is_empty();
            // At least one visible key has weight 1, except with infinite or NaN scores.
            let factor = if blind { 0.0 } else { 1.0 / sum[i] };
            // Adding 0.0 makes the zeros of hidden keys positive.
            mean.iter_mut().for_each(|value| *value = *value * factor + 0.0);
            self.statistics.store(row, max[i], sum[i], blind);
        }
        if columns == self.width {
            f32::store(&self.out, rows.start * self.width, &values);
            return;
        }
        for (row, line) in rows.clone().zip(values.chunks_exact(columns)) {
            f32::store(&self.out, row * self.width, &line[..self.width]);
        }
    }
}

fn piece_keys(piece: usize, keys: &Range<usize>) -> Range<usize> {
    piece * PIECE..keys.end.min((piece + 1) * PIECE)
}

pub(crate) mod gradient;
pub(crate) mod merge;
#[cfg(test)]
mod tests;
