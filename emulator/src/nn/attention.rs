//! Scaled dot-product attention with grouped key/value heads, masks and per-batch lengths.
//!
//! Input: queries `[B, N, Sq, D]`, keys and values `[Nkv, Skv, D]` per batch, lengths, and who may see whom.
//! Output: `softmax(scale * q k^T + mask) v` of the shape of the queries, and optionally the log-sum-exp of each row.
//! The masks are read first, so that keys which no row of a block sees cost nothing; then blocks of rows meet blocks of
//! keys, with a softmax that is corrected when a greater score appears (Milakov and Gimelshein, "Online normalizer
//! calculation for softmax", 2018). A few rows, as in decoding, read a long cache in ranges that are merged in order.
//! Invariants: scores, softmax and the weighted sum are f32, the output is rounded once; scratch is as large as one block
//! of keys, never `Sq x Skv`; blocks and ranges depend on shapes and masks only, so the result does not depend on the
//! number of threads; a row that sees nothing, or lies past its length, is zeros.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::lane::Lane;
use super::math;
use super::matmul::Precision;
use super::panel::{Packing, Stage, add_product, line_stride, room};
use super::simd::block::WIDTH;
use super::simd::dot::{self, MOST_VECTORS, PADDING, Vectors};
use super::view::View;
use super::{Serial, Tiles};
use crate::simd::isa;

/// Query rows computed together.
const ROWS: usize = 64;
/// Keys packed at a time.
const KEYS: usize = 256;
/// Up to this many rows the keys are cut into ranges, each a tile, and are read where they lie.
const FEW_ROWS: usize = 16;
/// Keys of which a few rows take the scores at a time: their values, widened, stay in a first-level cache.
const FEW_ROWS_KEYS: usize = 128;
/// Keys in such a range.
const RANGE: usize = 512;
/// Multiplications below which waking another thread takes longer than it saves.
const SMALL: usize = 1 << 17;

/// Keys, values and lengths of one batch.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// `[Nkv, Skv, D]`.
    pub(crate) key: View,
    /// `[Nkv, Skv, Dv]`.
    pub(crate) value: View,
    /// Valid query rows; the rest of the output is zeros.
    pub(crate) query_len: usize,
    /// Valid keys.
    pub(crate) key_len: usize,
    /// `[Sq, Skv]` of one-byte elements; not zero means masked. May be larger than the lengths.
    pub(crate) mask: Option<View>,
    /// Row `i` sees no key below `i - before`.
    pub(crate) before: i64,
    /// Row `i` sees no key above `i + after`.
    pub(crate) after: i64,
}

/// What [`attention`] computes.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    /// `[B, N, Sq, D]`; N is a multiple of the key/value heads.
    pub(crate) query: View,
    /// One entry per batch.
    pub(crate) batches: Vec<Batch>,
    /// Factor of the scores.
    pub(crate) scale: f32,
    /// `[B, N, Sq, Dv]`.
    pub(crate) out: View,
    /// `[B, N, Sq]` of f32, if wanted: log of the sum of the exponentials; +inf for a row that sees nothing.
    pub(crate) log_sum_exp: Option<View>,
}

/// Which keys a query position sees.
#[derive(Clone, Debug)]
struct Sight {
    /// From the first to past the last.
    keys: Range<usize>,
    /// Whether the mask hides some of them.
    gaps: bool,
}

impl Batch {
    /// What each of `rows` positions sees.
    fn sights(&self, rows: usize) -> Vec<Sight> {
        let mut hidden = vec![0u8; if self.mask.is_some() { self.key_len } else { 0 }];
        let limit = self.key_len as i64;
        let sight = |i: usize| {
            if i >= self.query_len {
                return Sight { keys: 0..0, gaps: false };
            }
            let low = (i as i64).saturating_sub(self.before).clamp(0, limit) as usize;
            let high = (i as i64).saturating_add(self.after).saturating_add(1).clamp(0, limit) as usize;
            let band = low..high.max(low);
            let Some(mask) = &self.mask else { return Sight { keys: band, gaps: false } };
            let hidden = &mut hidden[..band.len()];
            mask.at(0, i).slice(0, band.start, band.len(), 1).read(0, hidden);
            let (seen, count) = math::zeros(hidden);
            Sight { gaps: count < seen.len(), keys: band.start + seen.start..band.start + seen.end }
        };
        (0..rows).map(sight).collect()
    }
}

/// Computes `job.out`, and `job.log_sum_exp` if it is wanted.
pub(crate) fn attention(tiles: &dyn Tiles, job: &Attention) {
    if job.out.is_empty() {
        return;
    }
    let &[_, heads, rows, depth] = job.query.dims() else {
        unreachable!("queries have four dims");
    };
    let kv_heads = job.batches[0].key.dims()[0];
    let group = heads / kv_heads;
    let sights: Vec<Vec<Sight>> = job.batches.iter().map(|batch| batch.sights(rows)).collect();
    // The query heads of one key/value head are consecutive, so their rows form one long matrix.
    let (query, out) = (job.query.split(1, kv_heads, group), job.out.split(1, kv_heads, group));
    let sums = job.log_sum_exp.as_ref().map(|view| view.split(1, kv_heads, group));
    let blocks = (group * rows).div_ceil(ROWS);
    let few = group * rows <= FEW_ROWS;
    let head_of = |tile: usize| {
        let (batch, head) = (tile / kv_heads, tile % kv_heads);
        let part = |view: &View| view.at(0, batch).at(0, head).collapsed();
        Head {
            batch: &job.batches[batch],
            sights: &sights[batch],
            head,
            scale: job.scale,
            query: part(&query),
            depth,
            width: job.out.dims()[3],
            out: part(&out),
            sums: sums.as_ref().map(part),
        }
    };
    let longest = |batch: &Vec<Sight>| batch.iter().map(|sight| sight.keys.len()).max().unwrap_or(0);
    let keys = sights.iter().map(longest).max().unwrap_or(0);
    let pairs = job.batches.len() * kv_heads;
    let tiles = if pairs * group * rows * keys * depth < SMALL { &Serial } else { tiles };
    let ranges = if few { keys_seen(&sights).div_ceil(RANGE) } else { 1 };
    if ranges <= 1 {
        tiles.run(pairs * blocks, &|tile| {
            let (head, block) = (head_of(tile / blocks), tile % blocks);
            let rows = block * ROWS..((block + 1) * ROWS).min(group * rows);
            let keys = head.keys(&rows);
            head.finish(&rows, head.weigh(&rows, keys));
        });
        return;
    }
    let rows = 0..group * rows;
    let parts: Vec<Mutex<Option<Weighed>>> = (0..pairs * ranges).map(|_| Mutex::new(None)).collect();
    tiles.run(parts.len(), &|tile| {
        let head = head_of(tile / ranges);
        let keys = head.keys(&rows);
        let start = keys.start + tile % ranges * RANGE;
        if start < keys.end {
            let weighed = head.weigh(&rows, start..keys.end.min(start + RANGE));
            *parts[tile].lock().unwrap_or_else(PoisonError::into_inner) = Some(weighed);
        }
    });
    let mut parts = parts.into_iter().map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner));
    for pair in 0..pairs {
        let head = head_of(pair);
        let mut whole = Weighed::new(rows.len(), head.width);
        parts.by_ref().take(ranges).flatten().for_each(|part| whole.merge(&part));
        head.finish(&rows, whole);
    }
}

/// The most keys between the first and the last that some row of a batch sees.
fn keys_seen(sights: &[Vec<Sight>]) -> usize {
    sights.iter().map(|batch| union(batch.iter()).len()).max().unwrap_or(0)
}

/// From the first to past the last key that any of them sees.
fn union<'a>(sights: impl Iterator<Item = &'a Sight>) -> Range<usize> {
    let seen = sights.filter(|sight| !sight.keys.is_empty()).map(|sight| sight.keys.clone());
    seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// The rows of the query heads that share one key/value head, `[group * Sq, D]`.
struct Head<'a> {
    batch: &'a Batch,
    /// Per query position.
    sights: &'a [Sight],
    /// Of the keys and values.
    head: usize,
    scale: f32,
    query: View,
    depth: usize,
    width: usize,
    out: View,
    sums: Option<View>,
}

/// Values weighed by the exponentials of scores of which the greatest is `max`, and the sum of those weights, per row.
struct Weighed {
    max: Vec<f32>,
    sum: Vec<f32>,
    values: Vec<f32>,
}

impl Weighed {
    fn new(rows: usize, width: usize) -> Self {
        Self { max: vec![f32::NEG_INFINITY; rows], sum: vec![0.0; rows], values: vec![0.0; rows * width] }
    }

    /// Makes `max` the reference of a row if it is greater than the present one; gives the shift of its scores.
    fn raise(&mut self, row: usize, max: f32) -> f32 {
        let old = self.max[row];
        if max > old {
            let width = self.values.len() / self.max.len();
            let factor = (old - max).exp();
            self.max[row] = max;
            self.sum[row] *= factor;
            math::scale(&mut self.values[row * width..(row + 1) * width], factor);
        }
        // Where all scores are minus infinity their weights are 0.
        if self.max[row] == f32::NEG_INFINITY { 0.0 } else { self.max[row] }
    }

    /// Adds what other keys gave.
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

/// Room for a block of keys, kept from tile to tile.
#[derive(Default)]
struct Scratch {
    /// Padded rows.
    query: Vec<f32>,
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    sums: Vec<f32>,
    stage: Stage<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Head<'_> {
    fn sight(&self, row: usize) -> &Sight {
        &self.sights[row % self.sights.len()]
    }

    /// The keys that some of the rows see.
    fn keys(&self, rows: &Range<usize>) -> Range<usize> {
        union(rows.clone().map(|row| self.sight(row)))
    }

    /// The values of `keys` weighed for each of `rows`.
    fn weigh(&self, rows: &Range<usize>, keys: Range<usize>) -> Weighed {
        let mut weighed = Weighed::new(rows.len(), self.width);
        SCRATCH.with_borrow_mut(|scratch| {
            let stride = self.depth.next_multiple_of(PADDING);
            let query = room(&mut scratch.query, rows.len() * stride);
            for (row, line) in rows.clone().zip(query.chunks_exact_mut(stride)) {
                f32::load(&self.query, row * self.depth, &mut line[..self.depth]);
                line[self.depth..].fill(0.0);
            }
            let few = rows.len() <= FEW_ROWS;
            let most = if few { FEW_ROWS_KEYS } else { KEYS };
            for start in keys.clone().step_by(most) {
                let block = start..keys.end.min(start + most);
                if few {
                    self.add_in_place(rows, &block, scratch, &mut weighed);
                } else {
                    self.add_packed(rows, &block, scratch, &mut weighed);
                }
            }
        });
        weighed
    }

    /// Adds the values of a block of keys, which a few rows read where they lie.
    fn add_in_place(&self, rows: &Range<usize>, block: &Range<usize>, scratch: &mut Scratch, weighed: &mut Weighed) {
        let (len, stride) = (block.len(), self.depth.next_multiple_of(PADDING));
        let (key, value) = (self.batch.key.at(0, self.head), self.batch.value.at(0, self.head));
        dot::prefetch_rows(&value.rows(block.start, len));
        let element = dot::Element::of(key.dtype()).expect("keys are of a floating type, as their row says");
        let keys = key.rows(block.start, len);
        let scores = room(&mut scratch.scores, rows.len() * len);
        let vectors = scratch.query[..rows.len() * stride].chunks(MOST_VECTORS * stride);
        for (vectors, scores) in vectors.zip(scores.chunks_mut(MOST_VECTORS * len)) {
            dot::dots(isa(), element, &keys, Vectors::Singles(vectors), scores);
        }
        for (i, line) in scores.chunks_exact_mut(len).enumerate() {
            self.weights(rows.start + i, block, line, weighed, i);
        }
        let values = room(&mut scratch.values, len * self.width);
        f32::load(&value.slice(0, block.start, len, 1).collapsed(), 0, values);
        math::add_weighted(scores, values, self.width, &mut weighed.values);
    }

    /// Adds the values of a block of keys by products of packed operands.
    fn add_packed(&self, rows: &Range<usize>, block: &Range<usize>, scratch: &mut Scratch, weighed: &mut Weighed) {
        let (count, len, stride) = (rows.len(), block.len(), self.depth.next_multiple_of(PADDING));
        let packing = Packing { isa: isa(), precision: Precision::Keep };
        let part = |all: &View| all.at(0, self.head).slice(0, block.start, len, 1);
        let padded = len.next_multiple_of(WIDTH);
        let scores = room(&mut scratch.scores, count * padded);
        let keys = room(&mut scratch.keys, padded * line_stride::<f32>(self.depth));
        packing.slabs(&part(&self.batch.key), &mut scratch.stage, keys);
        scores.fill(0.0);
        add_product(packing.isa, (&scratch.query, stride), keys, (count, self.depth), scores);
        for (i, line) in scores.chunks_exact_mut(padded).enumerate() {
            self.weights(rows.start + i, block, &mut line[..len], weighed, i);
        }
        let columns = self.width.next_multiple_of(WIDTH);
        let values = room(&mut scratch.values, columns * line_stride::<f32>(len));
        packing.slabs(&part(&self.batch.value).permute(&[1, 0]), &mut scratch.stage, values);
        let sums = room(&mut scratch.sums, count * columns);
        sums.fill(0.0);
        add_product(packing.isa, (scores, padded), values, (count, len), sums);
        for (values, sums) in weighed.values.chunks_exact_mut(self.width).zip(sums.chunks_exact(columns)) {
            math::add(values, &sums[..self.width]);
        }
    }

    /// Turns the products of a row with a block of keys into weights, 0 for what it does not see, and counts them.
    fn weights(&self, row: usize, block: &Range<usize>, line: &mut [f32], weighed: &mut Weighed, i: usize) {
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

    /// Stores the means of the values.
    fn finish(&self, rows: &Range<usize>, weighed: Weighed) {
        let Weighed { max, sum, mut values } = weighed;
        let means = values.chunks_exact_mut(self.width);
        for (i, ((mean, &max), &sum)) in means.zip(&max).zip(&sum).enumerate() {
            let blind = self.sight(rows.start + i).keys.is_empty();
            // Of keys that are seen one at least has weight 1, unless scores are infinite or no numbers.
            math::scale(mean, if blind { 0.0 } else { 1.0 / sum });
            if let Some(sums) = &self.sums {
                let value = if blind { f32::INFINITY } else { max + sum.ln() };
                f32::store(sums, rows.start + i, &[value]);
            }
        }
        f32::store(&self.out, rows.start * self.width, &values);
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::super::Serial;
    use super::super::dtype::DType;
    use super::super::raw::tests::span_of;
    use super::super::view::contiguous_strides;
    use super::*;

    fn values(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32).map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    fn view<T: super::super::raw::Pod>(data: &mut [T], dtype: DType, dims: &[usize]) -> View {
        View::new(span_of(data), dtype, dims, &contiguous_strides(dims), 0).unwrap()
    }

    /// `sees(i, j)` says whether query row `i` may use key `j`.
    fn naive(
        q: &[f32],
        k: &[f32],
        v: &[f32],
        depth: usize,
        scale: f32,
        sees: impl Fn(usize, usize) -> bool,
    ) -> Vec<f32> {
        let (rows, keys) = (q.len() / depth, k.len() / depth);
        let mut out = vec![0f32; q.len()];
        for i in 0..rows {
            let dot =
                |j: usize| (0..depth).map(|d| f64::from(q[i * depth + d]) * f64::from(k[j * depth + d])).sum::<f64>();
            let weights: Vec<f64> =
                (0..keys).map(|j| if sees(i, j) { (f64::from(scale) * dot(j)).exp() } else { 0.0 }).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..depth {
                let total: f64 = (0..keys).map(|j| weights[j] * f64::from(v[j * depth + d])).sum();
                out[i * depth + d] = if sum > 0.0 { (total / sum) as f32 } else { 0.0 };
            }
        }
        out
    }

    fn close(a: &[f32], b: &[f32], bound: f32) {
        assert_eq!(a.len(), b.len());
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            assert!((x - y).abs() <= bound, "element {i}: {x} and {y}");
        }
    }

    #[test]
    fn grouped_heads_causal_and_lengths_follow_the_definition() {
        let (batches, heads, kv_heads, rows, keys, depth) = (2, 6, 2, 37, 600, 16);
        let (q, k, v) = (
            values(batches * heads * rows * depth, 1),
            values(batches * kv_heads * keys * depth, 2),
            values(batches * kv_heads * keys * depth, 3),
        );
        let (mut q32, mut k32, mut v32) = (q.clone(), k.clone(), v.clone());
        let mut out = vec![f32::NAN; q.len()];
        let mut sums = vec![0f32; batches * heads * rows];
        let query = view(&mut q32, DType::F32, &[batches, heads, rows, depth]);
        let (key, value) = (
            view(&mut k32, DType::F32, &[batches, kv_heads, keys, depth]),
            view(&mut v32, DType::F32, &[batches, kv_heads, keys, depth]),
        );
        let lengths = [(37usize, 600usize), (30, 555)];
        let job = Attention {
            query,
            batches: (0..batches)
                .map(|b| Batch {
                    key: key.at(0, b),
                    value: value.at(0, b),
                    query_len: lengths[b].0,
                    key_len: lengths[b].1,
                    mask: None,
                    before: i64::MAX,
                    after: lengths[b].1 as i64 - lengths[b].0 as i64,
                })
                .collect(),
            scale: 0.25,
            out: view(&mut out, DType::F32, &[batches, heads, rows, depth]),
            log_sum_exp: Some(view(&mut sums, DType::F32, &[batches, heads, rows])),
        };
        attention(&Serial, &job);
        for (b, (query_len, key_len)) in lengths.into_iter().enumerate() {
            for n in 0..heads {
                let at = (b * heads + n) * rows * depth;
                let kv = (b * kv_heads + n / 3) * keys * depth;
                let expected = naive(
                    &q[at..at + rows * depth],
                    &k[kv..kv + keys * depth],
                    &v[kv..kv + keys * depth],
                    depth,
                    0.25,
                    |i, j| i < query_len && j < key_len && j <= i + key_len - query_len,
                );
                close(&out[at..at + rows * depth], &expected, 1e-5);
            }
        }
        assert!(sums[..heads * rows].iter().all(|s| s.is_finite()));
        assert_eq!(sums[heads * rows + 30], f32::INFINITY, "a row past its length");
    }

    /// Few rows over a long cache: ranges of keys are computed apart and merged, one of them wholly hidden.
    #[test]
    fn one_row_over_many_ranges_of_keys_follows_the_definition() {
        let (heads, kv_heads, keys, depth) = (6, 2, 4 * RANGE + 77, 32);
        let (q, k, v) =
            (values(heads * depth, 1), values(kv_heads * keys * depth, 2), values(kv_heads * keys * depth, 3));
        let is_hidden = |j: usize| (RANGE..2 * RANGE).contains(&j) || j % 5 == 3 || j >= keys - 30;
        let (mut q32, mut k32, mut v32) = (q.clone(), k.clone(), v.clone());
        let (mut out, mut sums) = (vec![f32::NAN; q.len()], vec![f32::NAN; heads]);
        let mut mask: Vec<u8> = (0..keys).map(|j| u8::from(is_hidden(j))).collect();
        let job = Attention {
            query: view(&mut q32, DType::F32, &[1, heads, 1, depth]),
            batches: vec![Batch {
                key: view(&mut k32, DType::F32, &[kv_heads, keys, depth]),
                value: view(&mut v32, DType::F32, &[kv_heads, keys, depth]),
                query_len: 1,
                key_len: keys,
                mask: Some(view(&mut mask, DType::Bool, &[1, keys])),
                before: i64::MAX,
                after: i64::MAX,
            }],
            scale: 0.125,
            out: view(&mut out, DType::F32, &[1, heads, 1, depth]),
            log_sum_exp: Some(view(&mut sums, DType::F32, &[1, heads, 1])),
        };
        attention(&Serial, &job);
        for head in 0..heads {
            let kv = head / 3 * keys * depth..(head / 3 + 1) * keys * depth;
            let row = head * depth..(head + 1) * depth;
            let expected = naive(&q[row.clone()], &k[kv.clone()], &v[kv], depth, 0.125, |_, j| !is_hidden(j));
            close(&out[row], &expected, 1e-5);
        }
        assert!(sums.iter().all(|sum| sum.is_finite()));
    }

    #[test]
    fn masks_hide_keys_and_a_fully_masked_row_is_zero() {
        let (rows, keys, depth) = (3, 5, 4);
        let (q, k, v) = (values(rows * depth, 4), values(keys * depth, 5), values(keys * depth, 6));
        let (mut q32, mut k32, mut v32, mut out) = (q.clone(), k.clone(), v.clone(), vec![f32::NAN; rows * depth]);
        let mut mask: Vec<u8> = vec![0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1];
        let hidden = mask.clone();
        let job = Attention {
            query: view(&mut q32, DType::F32, &[1, 1, rows, depth]),
            batches: vec![Batch {
                key: view(&mut k32, DType::F32, &[1, keys, depth]),
                value: view(&mut v32, DType::F32, &[1, keys, depth]),
                query_len: rows,
                key_len: keys,
                mask: Some(view(&mut mask, DType::Bool, &[rows, keys])),
                before: i64::MAX,
                after: i64::MAX,
            }],
            scale: 1.0,
            out: view(&mut out, DType::F32, &[1, 1, rows, depth]),
            log_sum_exp: None,
        };
        attention(&Serial, &job);
        close(&out, &naive(&q, &k, &v, depth, 1.0, |i, j| hidden[i * keys + j] == 0), 1e-6);
        assert_eq!(out[depth..2 * depth], [0.0; 4]);
    }

    #[test]
    fn no_keys_give_zeros() {
        let (mut q, mut out) = (values(8, 7), vec![f32::NAN; 8]);
        let job = Attention {
            query: view(&mut q, DType::F32, &[1, 1, 2, 4]),
            batches: vec![Batch {
                key: view(&mut [0f32; 0], DType::F32, &[1, 0, 4]),
                value: view(&mut [0f32; 0], DType::F32, &[1, 0, 4]),
                query_len: 2,
                key_len: 0,
                mask: None,
                before: i64::MAX,
                after: i64::MAX,
            }],
            scale: 1.0,
            out: view(&mut out, DType::F32, &[1, 1, 2, 4]),
            log_sum_exp: None,
        };
        attention(&Serial, &job);
        assert_eq!(out, [0.0; 8]);
    }

    #[test]
    fn bf16_in_a_token_major_layout() {
        // [B, S, N, D] memory seen as [B, N, S, D].
        let (rows, heads, depth) = (5, 2, 16);
        let round = |v: Vec<f32>| v.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let (mut q, mut k, mut v) = (
            round(values(rows * heads * depth, 8)),
            round(values(rows * heads * depth, 9)),
            round(values(rows * heads * depth, 10)),
        );
        let mut out = vec![bf16::NAN; q.len()];
        let tokens = |data: &mut [bf16]| view(data, DType::BF16, &[1, rows, heads, depth]).permute(&[0, 2, 1, 3]);
        let (vq, vk, vv, vo) = (tokens(&mut q), tokens(&mut k), tokens(&mut v), tokens(&mut out));
        let job = Attention {
            query: vq,
            batches: vec![Batch {
                key: vk.at(0, 0),
                value: vv.at(0, 0),
                query_len: rows,
                key_len: rows,
                mask: None,
                before: i64::MAX,
                after: 0,
            }],
            scale: 0.25,
            out: vo,
            log_sum_exp: None,
        };
        attention(&Serial, &job);
        for head in 0..heads {
            let pick = |data: &[bf16]| -> Vec<f32> {
                (0..rows * depth).map(|i| data[(i / depth * heads + head) * depth + i % depth].to_f32()).collect()
            };
            let expected = naive(&pick(&q), &pick(&k), &pick(&v), depth, 0.25, |i, j| j <= i);
            close(&pick(&out), &expected, 0.01);
        }
    }
}
