//! Scaled dot-product attention: `softmax(scale * q k^T + mask) v`, and optional softmax statistics
//! per row.
//!
//! [`gradient`] has the backward pass; [`merge`] combines results over disjoint keys.
//!
//! Invariants: all arithmetic is f32, and outputs are rounded once. A row without visible keys is
//! zeros. The bits of a row depend only on its query, its visible keys and their positions. Caches
//! with blocks of a multiple of 256 keys give the same bits as contiguous keys.
//!
//! Masks are read first, so keys that a block of rows never sees cost nothing. Blocks of rows meet
//! blocks of keys in an online softmax (Milakov and Gimelshein, "Online normalizer calculation for
//! softmax", 2018). With few rows, as in decode, each range is a tile and its keys are read in
//! place.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::lane::Lane;
use crate::math;
use crate::matmul::kernels::Precision;
use crate::matmul::panel::{PanelPacking, PanelScratch, add_product, line_stride, sized};
use crate::simd::block::{RUN, WIDTH};
use crate::simd::dot::{self, MOST_VECTORS, PADDING, Vectors};
use crate::simd::isa::{Isa, isa};
use crate::view::StridedView;
use crate::{Serial, Tiles};

const ROWS: usize = 64;
const KEYS: usize = 256;
/// Up to this many rows, each range is a separate tile and keys are read in place.
const FEW_ROWS: usize = 16;
/// Number of keys per range.
const RANGE: usize = 2 * KEYS;
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
    pub(crate) query_len: usize,
    pub(crate) key_len: usize,
    /// Mask `[Sq, Skv]` of bytes, possibly larger; nonzero hides the key.
    pub(crate) mask: Option<StridedView>,
    /// Row `i` sees no key below `i - before`.
    pub(crate) before: i64,
    /// Row `i` sees no key above `i + after`.
    pub(crate) after: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Attention {
    /// Queries `[B, N, Sq, D]`; N is a multiple of Nkv.
    pub(crate) query: StridedView,
    pub(crate) batches: Vec<AttentionBatch>,
    pub(crate) scale: f32,
    pub(crate) out: StridedView,
    pub(crate) statistics: Statistics,
}

#[derive(Clone, Debug)]
pub(crate) enum Statistics {
    None,
    /// Log of the sum of exponentials, `[B, N, Sq]`; +inf without visible keys.
    LogSumExp(StridedView),
    /// Greatest score, and sum of exponentials relative to it, each `[B, N, Sq, 8]` with eight
    /// copies. Without visible keys: the least finite number and 0.
    MaxAndSum(StridedView, StridedView),
}

/// One vector register of f32.
pub(crate) const COPIES: usize = 8;

impl Statistics {
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

    /// Returns the end of the contiguous keys within one block of [`KEYS`].
    fn piece_end(&self, start: usize) -> usize {
        let end = (start + 1).next_multiple_of(KEYS);
        match &self.blocks {
            Some(_) => end.min((start + 1).next_multiple_of(self.key.dims()[2])),
            None => end,
        }
    }

    fn piece(&self, all: &StridedView, head: usize, keys: &Range<usize>) -> StridedView {
        let Some(blocks) = &self.blocks else {
            return all.at(0, head).slice(0, keys.start, keys.len(), 1);
        };
        let block = all.dims()[2];
        all.at(0, blocks[keys.start / block]).at(0, head).slice(0, keys.start % block, keys.len(), 1)
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

pub(crate) fn attention(tiles: &dyn Tiles, job: &Attention) {
    attend(tiles, isa(), job);
}

fn attend(tiles: &dyn Tiles, isa: Isa, job: &Attention) {
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
    let most_ranges = sights.iter().map(|batch| ranges(&union(batch.iter())).len()).max().unwrap_or(0);
    if !few || most_ranges <= 1 {
        tiles.run(pairs * blocks, &|tile| {
            let (head, block) = (head_of(tile / blocks), tile % blocks);
            let rows = block * ROWS..((block + 1) * ROWS).min(group * rows);
            let keys = head.keys(&rows);
            head.finish(&rows, head.weigh(&rows, &keys));
        });
        return;
    }
    let rows = 0..group * rows;
    let parts: Vec<Mutex<Option<WeightedValues>>> =
        (0..pairs * most_ranges).map(|_| Mutex::new(None)).collect();
    tiles.run(parts.len(), &|tile| {
        let head = head_of(tile / most_ranges);
        let keys = head.keys(&rows);
        if let Some(range) = ranges(&keys).nth(tile % most_ranges) {
            let weighed = head.weigh(&rows, &range_keys(range, &keys));
            *parts[tile].lock().unwrap_or_else(PoisonError::into_inner) = Some(weighed);
        }
    });
    let mut parts = parts.into_iter().map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner));
    for pair in 0..pairs {
        let head = head_of(pair);
        head.finish(
            &rows,
            WeightedValues::merged(parts.by_ref().take(most_ranges).flatten(), rows.len(), head.width),
        );
    }
}

fn ranges(keys: &Range<usize>) -> Range<usize> {
    keys.start / RANGE..keys.end.div_ceil(RANGE)
}

fn range_keys(range: usize, keys: &Range<usize>) -> Range<usize> {
    keys.start.max(range * RANGE)..keys.end.min((range + 1) * RANGE)
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
    scale: f32,
    query: StridedView,
    depth: usize,
    width: usize,
    out: StridedView,
    statistics: Statistics,
}

/// Values weighted by exponentials of scores relative to `max`, and the sum of the weights, per
/// row.
struct WeightedValues {
    max: Vec<f32>,
    sum: Vec<f32>,
    values: Vec<f32>,
}

impl WeightedValues {
    fn new(rows: usize, width: usize) -> Self {
        Self { max: vec![f32::NEG_INFINITY; rows], sum: vec![0.0; rows], values: vec![0.0; rows * width] }
    }

    /// Returns the score to subtract.
    fn raise(&mut self, row: usize, max: f32) -> f32 {
        let old = self.max[row];
        if max > old {
            let width = self.values.len() / self.max.len();
            let factor = (old - max).exp();
            self.max[row] = max;
            self.sum[row] *= factor;
            math::scale(&mut self.values[row * width..(row + 1) * width], factor);
        }
        // With scores of minus infinity, the weights are 0.
        if self.max[row] == f32::NEG_INFINITY { 0.0 } else { self.max[row] }
    }

    fn merged(parts: impl Iterator<Item = Self>, rows: usize, width: usize) -> Self {
        let joined = parts.reduce(|mut whole, part| {
            whole.merge(&part);
            whole
        });
        joined.unwrap_or_else(|| Self::new(rows, width))
    }

    fn merge(&mut self, other: &Self) {
        let width = self.values.len() / self.max.len();
        for row in 0..self.max.len() {
            let shift = self.raise(row, other.max[row]);
            let factor = (other.max[row] - shift).exp();
            self.sum[row] += other.sum[row] * factor;
            let columns = row * width..(row + 1) * width;
            math::add_scaled(&mut self.values[columns.clone()], &other.values[columns], factor);
        }
    }
}

#[derive(Default)]
struct AttentionScratch {
    /// Padded with zeros to a multiple of `PADDING`.
    query: Vec<f32>,
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    sums: Vec<f32>,
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

    fn weigh(&self, rows: &Range<usize>, keys: &Range<usize>) -> WeightedValues {
        SCRATCH.with_borrow_mut(|scratch| {
            let stride = self.depth.next_multiple_of(PADDING);
            let query = sized(&mut scratch.query, rows.len() * stride);
            for (row, line) in rows.clone().zip(query.chunks_exact_mut(stride)) {
                f32::load(&self.query, row * self.depth, &mut line[..self.depth]);
                line[self.depth..].fill(0.0);
            }
            let parts = ranges(keys).map(|range| {
                let keys = range_keys(range, keys);
                let mut part = WeightedValues::new(rows.len(), self.width);
                // Chunks of `RUN` also begin at fixed keys.
                let mut start = keys.start / RUN * RUN;
                while start < keys.end {
                    let end = self.batch.piece_end(start).min(keys.end);
                    self.add(rows, &(start..end), scratch, &mut part);
                    start = end;
                }
                part
            });
            WeightedValues::merged(parts, rows.len(), self.width)
        })
    }

    fn add(
        &self,
        rows: &Range<usize>,
        block: &Range<usize>,
        scratch: &mut AttentionScratch,
        weighed: &mut WeightedValues,
    ) {
        let (count, len, isa) = (rows.len(), block.len(), self.isa);
        let packing = PanelPacking { isa, precision: Precision::Keep };
        let [key, value] =
            [&self.batch.key, &self.batch.value].map(|all| self.batch.piece(all, self.head, block));
        let in_place = |view: &StridedView| view.strides()[1] == 1;
        let few = count <= FEW_ROWS && in_place(&key) && in_place(&value);
        let query_stride = self.depth.next_multiple_of(PADDING);
        let stride = if few { len } else { len.next_multiple_of(WIDTH) };
        let scores = sized(&mut scratch.scores, count * stride);
        if few {
            dot::prefetch_rows(&value.rows(0, len));
            let element =
                dot::Element::of(key.dtype()).expect("keys are of a floating type, as their row says");
            let keys = key.rows(0, len);
            let vectors = scratch.query[..count * query_stride].chunks(MOST_VECTORS * query_stride);
            for (vectors, scores) in vectors.zip(scores.chunks_mut(MOST_VECTORS * len)) {
                dot::dots(isa, element, &keys, Vectors::Singles(vectors), scores);
            }
        } else {
            let keys = sized(&mut scratch.keys, stride * line_stride::<f32>(self.depth));
            packing.slabs(&key, &mut scratch.stage, keys);
            scores.fill(0.0);
            add_product(isa, &scratch.query, query_stride, keys, count, self.depth, scores);
        }
        for (i, line) in scores.chunks_exact_mut(stride).enumerate() {
            self.weights(rows.start + i, block, &mut line[..len], weighed, i);
        }
        let columns = self.width.next_multiple_of(WIDTH);
        let values = sized(&mut scratch.values, columns * line_stride::<f32>(len));
        packing.slabs(&value.permute(&[1, 0]), &mut scratch.stage, values);
        let sums = sized(&mut scratch.sums, count * columns);
        sums.fill(0.0);
        let slab_len = WIDTH * line_stride::<f32>(len);
        if scores.chunks_exact(stride).any(|line| math::has_zero(&line[..len]))
            && !values.chunks_exact(slab_len).all(|slab| math::are_finite(&slab[..WIDTH * len]))
        {
            // A key of weight zero must add nothing, even NaN or infinity.
            for (line, sums) in scores.chunks_exact(stride).zip(sums.chunks_exact_mut(columns)) {
                let mut values = values.to_vec();
                for slab in values.chunks_exact_mut(slab_len) {
                    let rows = slab.chunks_exact_mut(WIDTH).zip(line);
                    rows.filter(|(_, weight)| **weight == 0.0).for_each(|(row, _)| row.fill(0.0));
                }
                add_product(isa, line, stride, &values, 1, len, sums);
            }
        } else {
            add_product(isa, scores, stride, values, count, len, sums);
        }
        for (values, sums) in weighed.values.chunks_exact_mut(self.width).zip(sums.chunks_exact(columns)) {
            math::add(values, &sums[..self.width]);
        }
    }

    /// Computes weights, 0 for hidden keys.
    fn weights(
        &self,
        row: usize,
        block: &Range<usize>,
        line: &mut [f32],
        weighed: &mut WeightedValues,
        i: usize,
    ) {
        let sight = self.sight(row);
        let from = sight.keys.start.clamp(block.start, block.end) - block.start;
        let to = sight.keys.end.clamp(block.start, block.end) - block.start;
        line[..from].fill(0.0);
        line[to.max(from)..].fill(0.0);
        if from >= to {
            return;
        }
        let seen = &mut line[from..to];
        math::scale(seen, self.scale);
        if sight.gaps
            && let Some(mask) = &self.batch.mask
        {
            let mut hidden = [0u8; KEYS];
            let hidden = &mut hidden[..seen.len()];
            mask.at(0, row % self.sights.len()).slice(0, block.start + from, seen.len(), 1).read(0, hidden);
            for (score, _) in seen.iter_mut().zip(hidden).filter(|(_, hidden)| **hidden != 0) {
                *score = f32::NEG_INFINITY;
            }
        }
        let shift = weighed.raise(i, math::greatest(seen));
        weighed.sum[i] += math::exp_shifted(seen, shift);
    }

    fn finish(&self, rows: &Range<usize>, weighed: WeightedValues) {
        let WeightedValues { max, sum, mut values } = weighed;
        let means = values.chunks_exact_mut(self.width);
        for (i, ((mean, &max), &sum)) in means.zip(&max).zip(&sum).enumerate() {
            let blind = self.sight(rows.start + i).keys.is_empty();
            // At least one visible key has weight 1, except with infinite or NaN scores.
            let factor = if blind { 0.0 } else { 1.0 / sum };
            // Adding 0.0 makes the zeros of hidden keys positive.
            mean.iter_mut().for_each(|value| *value = *value * factor + 0.0);
            self.statistics.store(rows.start + i, max, sum, blind);
        }
        f32::store(&self.out, rows.start * self.width, &values);
    }
}

pub(crate) mod gradient;
pub(crate) mod merge;
#[cfg(test)]
mod tests;
