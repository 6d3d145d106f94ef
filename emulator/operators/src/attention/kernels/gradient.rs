//! Gradients of [`attention`](crate::attention::kernels::attention) for queries, keys and values.
//!
//! Invariants: all arithmetic is f32 with one rounding at the store. Neither tiles nor threads
//! change any bit.
//!
//! Blocks of keys meet blocks of rows, and five products update the three gradients (Dao et al.,
//! "`FlashAttention`", 2022). Each range of keys is a tile, which owns its key and value gradients;
//! query gradients are summed over ranges in order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::attention::kernels::{AttentionBatch, COPIES, DROPOUT_KEYS, ROWS, SMALL, VisibleKeys, union};
use crate::lane::Lane;
use crate::math;
use crate::matmul::kernels::OperandRounding;
use crate::matmul::panel::{PanelPacking, PanelScratch, add_product, line_stride, sized};
use crate::simd::block::WIDTH;
use crate::simd::isa::{Isa, isa};
use crate::simd::transpose::{SIDE, transpose};
use crate::view::StridedView;
use crate::{Serial, Tiles};

/// Number of keys that meet a block of rows.
const KEYS: usize = 256;
const _: () = assert!(KEYS <= DROPOUT_KEYS, "a block is one call");
/// Number of keys per tile.
const RANGE: usize = 2 * KEYS;

#[derive(Clone, Debug)]
pub(crate) struct AttentionGrad {
    pub(crate) query: StridedView,
    pub(crate) batches: Vec<AttentionBatch>,
    pub(crate) scale: f32,
    /// Output of the forward pass, `[B, N, Sq, D]`.
    pub(crate) out: StridedView,
    pub(crate) out_grad: StridedView,
    /// Greatest score and sum of exponentials, each `[B, N, Sq, 8]`.
    pub(crate) statistics: [StridedView; 2],
    pub(crate) query_grad: StridedView,
    /// Gradient of the keys, `[B, Nkv, Skv, D]`.
    pub(crate) key_grad: StridedView,
    pub(crate) value_grad: StridedView,
}

/// Query gradients of one key/value head.
#[derive(Default)]
struct GatheredGradients {
    ranges: usize,
    total: Vec<f32>,
    waiting: BTreeMap<usize, Vec<f32>>,
}

impl GatheredGradients {
    /// Adds in range order; returns the total after the last of `count` ranges.
    fn add(&mut self, range: usize, part: Vec<f32>, count: usize) -> Option<Vec<f32>> {
        self.waiting.insert(range, part);
        while let Some(part) = self.waiting.remove(&self.ranges) {
            if self.ranges == 0 {
                self.total = part;
            } else {
                math::add(&mut self.total, &part);
            }
            self.ranges += 1;
        }
        (self.ranges == count).then(|| std::mem::take(&mut self.total))
    }
}

pub(crate) fn attention_grad(tiles: &dyn Tiles, job: &AttentionGrad) {
    let &[_, heads, rows, depth] = job.query.dims() else {
        unreachable!("queries have four dims");
    };
    let Some(batch) = job.batches.first() else { return };
    let (kv_heads, keys) = (batch.key.dims()[0], batch.key.dims()[1]);
    let group = heads / kv_heads;
    let sights: Vec<Vec<VisibleKeys>> = job.batches.iter().map(|batch| batch.sights(rows)).collect();
    let ranges = keys.div_ceil(RANGE);
    let pairs = job.batches.len() * kv_heads;
    let gathered: Vec<Mutex<GatheredGradients>> = (0..pairs).map(|_| Mutex::default()).collect();
    let tiles = if pairs * group * rows * keys * depth < SMALL { &Serial } else { tiles };
    tiles.run(pairs * ranges, &|tile| {
        let (pair, range) = (tile / ranges, tile % ranges);
        let (batch, head) = (pair / kv_heads, pair % kv_heads);
        // The query heads of one key/value head form one long matrix.
        let part = |view: &StridedView| view.split(1, kv_heads, group).at(0, batch).at(0, head).collapsed();
        let head = GradientHead {
            isa: isa(),
            batch: &job.batches[batch],
            sights: &sights[batch],
            head,
            group,
            scale: job.scale,
            rows: group * rows,
            depth,
            query: part(&job.query),
            out: part(&job.out),
            out_grad: part(&job.out_grad),
            statistics: [part(&job.statistics[0]), part(&job.statistics[1])],
            key_grad: job.key_grad.at(0, batch).at(0, head),
            value_grad: job.value_grad.at(0, batch).at(0, head),
        };
        let sums = head.range(&(range * RANGE..keys.min((range + 1) * RANGE)));
        let mut gathered = gathered[pair].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(total) = gathered.add(range, sums, ranges) {
            let out = part(&job.query_grad);
            for (row, line) in total.chunks_exact(head.columns()).enumerate() {
                f32::store(&out, row * depth, &line[..depth]);
            }
        }
    });
}

/// Query heads that share one key/value head, `[group * Sq, D]`.
struct GradientHead<'a> {
    isa: Isa,
    batch: &'a AttentionBatch,
    sights: &'a [VisibleKeys],
    head: usize,
    /// Query heads per key/value head.
    group: usize,
    scale: f32,
    rows: usize,
    depth: usize,
    query: StridedView,
    out: StridedView,
    out_grad: StridedView,
    statistics: [StridedView; 2],
    /// Gradient of one head's keys, `[Skv, D]`, like `value_grad`.
    key_grad: StridedView,
    value_grad: StridedView,
}

/// Rows are padded to whole slabs.
#[derive(Default)]
struct GradientScratch {
    stage: PanelScratch<f32>,
    /// Slabs as `[keys, D]` and `[D, keys]`; values as `[keys, D]`.
    key: Vec<f32>,
    key_across: Vec<f32>,
    value: Vec<f32>,
    key_sums: Vec<f32>,
    value_sums: Vec<f32>,
    query: Vec<f32>,
    out_grad: Vec<f32>,
    out: Vec<f32>,
    slabs: Vec<f32>,
    /// `[rows, keys]`; `across` is a transpose.
    weights: Vec<f32>,
    score_grads: Vec<f32>,
    across: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<GradientScratch> = RefCell::default();
}

impl GradientHead<'_> {
    /// Returns the depth in whole slabs.
    fn columns(&self) -> usize {
        self.depth.next_multiple_of(WIDTH)
    }

    /// Stores the key and value gradients of a range. Returns the contribution to the query
    /// gradients, in rows of [`GradientHead::columns`].
    fn range(&self, keys: &Range<usize>) -> Vec<f32> {
        let mut sums = vec![0f32; self.rows * self.columns()];
        SCRATCH.with_borrow_mut(|scratch| {
            for start in keys.clone().step_by(KEYS) {
                self.block(&(start..keys.end.min(start + KEYS)), scratch, &mut sums);
            }
        });
        sums
    }

    fn block(&self, block: &Range<usize>, scratch: &mut GradientScratch, sums: &mut [f32]) {
        let (len, columns) = (block.len(), self.columns());
        let packing = PanelPacking { isa: self.isa, precision: OperandRounding::Keep };
        let part = |all: &StridedView| all.at(0, self.head).slice(0, block.start, len, 1);
        let (key, value) = (part(&self.batch.key), part(&self.batch.value));
        let padded = len.next_multiple_of(WIDTH);
        let along = padded * line_stride::<f32>(self.depth);
        packing.slabs(&key, &mut scratch.stage, sized(&mut scratch.key, along));
        packing.slabs(&value, &mut scratch.stage, sized(&mut scratch.value, along));
        let across = sized(&mut scratch.key_across, columns * line_stride::<f32>(len));
        packing.slabs(&key.permute(&[1, 0]), &mut scratch.stage, across);
        sized(&mut scratch.key_sums, len * columns).fill(0.0);
        sized(&mut scratch.value_sums, len * columns).fill(0.0);
        for first in (0..self.rows).step_by(ROWS) {
            let rows = first..self.rows.min(first + ROWS);
            let seen = union(rows.clone().map(|row| self.sight(row)));
            if seen.start < block.end && block.start < seen.end {
                self.rows(&rows, block, scratch, &mut sums[rows.start * columns..rows.end * columns]);
            }
        }
        for (grad, sums) in [(&self.key_grad, &scratch.key_sums), (&self.value_grad, &scratch.value_sums)] {
            for (key, line) in block.clone().zip(sums.chunks_exact(columns)) {
                f32::store(grad, key * self.depth, &line[..self.depth]);
            }
        }
    }

    fn sight(&self, row: usize) -> &VisibleKeys {
        &self.sights[row % self.sights.len()]
    }

    fn rows(
        &self,
        rows: &Range<usize>,
        block: &Range<usize>,
        scratch: &mut GradientScratch,
        sums: &mut [f32],
    ) {
        let (count, len, columns, depth, isa) =
            (rows.len(), block.len(), self.columns(), self.depth, self.isa);
        let stride = len.next_multiple_of(WIDTH);
        let along = stride * line_stride::<f32>(depth);
        let query = self.load(&self.query, rows, &mut scratch.query);
        let out_grad = self.load(&self.out_grad, rows, &mut scratch.out_grad);
        let out = self.load(&self.out, rows, &mut scratch.out);
        // Whole blocks are transposed; rows past `count` are never read.
        let weights = sized(&mut scratch.weights, ROWS * stride);
        weights[..count * stride].fill(0.0);
        add_product(isa, query, columns, &scratch.key[..along], count, depth, &mut weights[..count * stride]);
        let grads = sized(&mut scratch.score_grads, ROWS * stride);
        grads[..count * stride].fill(0.0);
        add_product(
            isa,
            out_grad,
            columns,
            &scratch.value[..along],
            count,
            depth,
            &mut grads[..count * stride],
        );
        let lines = weights.chunks_exact_mut(stride).zip(grads.chunks_exact_mut(stride)).take(count);
        let outs = out.chunks_exact(columns).zip(out_grad.chunks_exact(columns));
        for ((row, (weights, grads)), (out, out_grad)) in rows.clone().zip(lines).zip(outs) {
            self.weigh(row, block, weights, grads, math::dot(out, out_grad));
        }
        let key_across = &scratch.key_across[..columns * line_stride::<f32>(len)];
        add_product(isa, grads, stride, key_across, count, len, sums);
        for (scores, others, sums) in
            [(weights, out_grad, &mut scratch.value_sums), (grads, query, &mut scratch.key_sums)]
        {
            let across = sized(&mut scratch.across, stride * ROWS);
            for row in (0..count).step_by(SIDE) {
                for key in (0..stride).step_by(SIDE) {
                    transpose(
                        isa,
                        &scores[row * stride + key..],
                        stride,
                        &mut across[key * ROWS + row..],
                        ROWS,
                    );
                }
            }
            let slabs = sized(&mut scratch.slabs, columns * line_stride::<f32>(count));
            for (slab, words) in slabs.chunks_exact_mut(WIDTH * line_stride::<f32>(count)).enumerate() {
                for (word, line) in words.chunks_exact_mut(WIDTH).zip(others.chunks_exact(columns)) {
                    word.copy_from_slice(&line[slab * WIDTH..(slab + 1) * WIDTH]);
                }
            }
            add_product(isa, across, ROWS, slabs, len, count, &mut sums[..len * columns]);
        }
    }

    fn load<'s>(&self, view: &StridedView, rows: &Range<usize>, into: &'s mut Vec<f32>) -> &'s [f32] {
        let lines = sized(into, rows.len() * self.columns());
        for (row, line) in rows.clone().zip(lines.chunks_exact_mut(self.columns())) {
            f32::load(view, row * self.depth, &mut line[..self.depth]);
            line[self.depth..].fill(0.0);
        }
        lines
    }

    /// Turns scores into weights, and products of output gradient and values into score gradients;
    /// 0 for hidden keys. `total` is the dot product of the row's output and its gradient.
    fn weigh(&self, row: usize, block: &Range<usize>, weights: &mut [f32], grads: &mut [f32], total: f32) {
        let sight = self.sight(row);
        let from = sight.keys.start.clamp(block.start, block.end) - block.start;
        let to = (sight.keys.end.clamp(block.start, block.end) - block.start).max(from);
        for line in [&mut *weights, &mut *grads] {
            line[..from].fill(0.0);
            line[to..].fill(0.0);
        }
        if from == to {
            return;
        }
        let (weights, grads) = (&mut weights[from..to], &mut grads[from..to]);
        let (mut max, mut sum) = ([0f32], [0f32]);
        f32::load(&self.statistics[0], row * COPIES, &mut max);
        f32::load(&self.statistics[1], row * COPIES, &mut sum);
        math::exp_scaled(weights, self.scale, max[0], 1.0 / sum[0]);
        let query_head = self.head * self.group + row / self.sights.len();
        let place = self.batch.place(query_head, row % self.sights.len(), block.start + from);
        if let Some(dropout) = &self.batch.dropout {
            dropout.apply(place, grads);
        }
        math::softmax_grad(grads, weights, total, self.scale);
        if let Some(dropout) = &self.batch.dropout {
            dropout.apply(place, weights);
        }
        if sight.gaps
            && let Some(mask) = &self.batch.mask
        {
            let mut hidden = [0u8; KEYS];
            let hidden = &mut hidden[..weights.len()];
            mask.at(0, row % self.sights.len())
                .slice(0, block.start + from, weights.len(), 1)
                .read(0, hidden);
            for ((weight, grad), _) in
                weights.iter_mut().zip(grads).zip(hidden).filter(|(_, hidden)| **hidden != 0)
            {
                (*weight, *grad) = (0.0, 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::kernels::tests::values;
    use crate::attention::kernels::{AttentionCall, SoftmaxStatistics, attention};
    use crate::dtype::AclType;
    use crate::raw::tests::span_of;
    use crate::tests::Threads;
    use crate::view::contiguous_strides;

    fn view(data: &mut [f32], dims: &[usize]) -> StridedView {
        StridedView::new(span_of(data), AclType::F32, dims, &contiguous_strides(dims), 0).unwrap()
    }

    fn gradients(tiles: &dyn Tiles, group: usize, rows: usize, keys: usize, depth: usize) -> [Vec<f32>; 3] {
        let (batches, kv_heads) = (2, 2);
        let queries = [batches, kv_heads * group, rows, depth];
        let pairs = [batches, kv_heads, keys, depth];
        let count = |dims: [usize; 4]| dims.iter().product::<usize>();
        let (mut q, mut k, mut v) =
            (values(count(queries), 1), values(count(pairs), 2), values(count(pairs), 3));
        let (mut out, mut dy) = (vec![0f32; q.len()], values(count(queries), 4));
        let eight = [batches, kv_heads * group, rows, COPIES];
        let (mut max, mut sum) = (vec![0f32; count(eight)], vec![0f32; count(eight)]);
        let (query, key, value) = (view(&mut q, &queries), view(&mut k, &pairs), view(&mut v, &pairs));
        let (out, out_grad) = (view(&mut out, &queries), view(&mut dy, &queries));
        let (max, sum) = (view(&mut max, &eight), view(&mut sum, &eight));
        let batch = |b| AttentionBatch {
            key: key.at(0, b),
            value: value.at(0, b),
            blocks: None,
            scales: None,
            query_len: rows,
            key_len: keys,
            mask: None,
            before: i64::MAX,
            after: (keys - rows) as i64,
            bias: None,
            dropout: None,
        };
        let batches: Vec<AttentionBatch> = (0..batches).map(batch).collect();
        let statistics = SoftmaxStatistics::MaxAndSum(max.clone(), sum.clone());
        let forward = AttentionCall {
            query: query.clone(),
            batches: batches.clone(),
            scale: 0.2,
            out: out.clone(),
            statistics,
        };
        attention(tiles, &forward);
        let mut grads =
            [vec![f32::NAN; count(queries)], vec![f32::NAN; count(pairs)], vec![f32::NAN; count(pairs)]];
        let [dq, dk, dv] = grads.each_mut();
        let (query_grad, key_grad, value_grad) = (view(dq, &queries), view(dk, &pairs), view(dv, &pairs));
        let statistics = [max, sum];
        let job = AttentionGrad {
            query,
            batches,
            scale: 0.2,
            out,
            out_grad,
            statistics,
            query_grad,
            key_grad,
            value_grad,
        };
        attention_grad(tiles, &job);
        grads
    }

    #[test]
    fn gradients_do_not_depend_on_threads_or_the_order_of_tiles() {
        for (group, rows, keys, depth) in [(1, 3, 5, 8), (3, 70, 600, 16), (2, 100, 1300, 72)] {
            let alone = gradients(&Serial, group, rows, keys, depth);
            assert!(alone.iter().flatten().all(|value| value.is_finite()));
            for threads in [1, 2, 5] {
                assert!(gradients(&Threads(threads), group, rows, keys, depth) == alone, "{threads} threads");
            }
        }
    }

    #[test]
    fn ranges_are_added_in_their_order() {
        let mut gathered = GatheredGradients::default();
        assert_eq!(gathered.add(2, vec![-1e9], 3), None);
        assert_eq!(gathered.add(0, vec![1.0], 3), None);
        assert_eq!(
            gathered.add(1, vec![1e9], 3),
            Some(vec![0.0]),
            "1 is lost in 1e9, which is taken away again"
        );
    }
}
