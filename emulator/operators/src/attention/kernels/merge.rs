//! Merges two attention results for the same queries over different keys.
//!
//! Invariants: f32 arithmetic, rounded once; rows are independent.

use std::ops::Range;

use crate::Tiles;
use crate::attention::kernels::{COPIES, ROWS};
use crate::lane::Lane;
use crate::view::StridedView;

#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Attention output over some keys, `[B, N, S, D]`.
    pub(crate) out: StridedView,
    /// Greatest score and sum of exponentials, each `[B, N, S, 8]`.
    pub(crate) statistics: [StridedView; 2],
}

impl Share {
    fn head(&self, batch: usize, head: usize) -> Self {
        let part = |view: &StridedView| view.at(0, batch).at(0, head);
        Self { out: part(&self.out), statistics: self.statistics.each_ref().map(part) }
    }

    fn statistics(&self, first: usize, rows: usize) -> [Vec<f32>; 2] {
        self.statistics.each_ref().map(|view| load(view, first * COPIES, rows * COPIES))
    }
}

fn load(view: &StridedView, start: usize, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    f32::load(view, start, &mut values);
    values
}

pub(crate) fn merge(tiles: &dyn Tiles, both: &[Share; 2], into: &Share) {
    let &[batches, heads, rows, depth] = into.out.dims() else { unreachable!("results have four dims") };
    let blocks = rows.div_ceil(ROWS);
    tiles.run(batches * heads * blocks, &|tile| {
        let (pair, first) = (tile / blocks, tile % blocks * ROWS);
        let [prev, cur, into] =
            [&both[0], &both[1], into].map(|share| share.head(pair / heads, pair % heads));
        merge_rows([prev, cur], &into, first..rows.min(first + ROWS), depth);
    });
}

fn merge_rows([prev, cur]: [Share; 2], into: &Share, rows: Range<usize>, depth: usize) {
    let (first, rows) = (rows.start, rows.len());
    let ([prev_max, prev_sum], [cur_max, cur_sum]) =
        (prev.statistics(first, rows), cur.statistics(first, rows));
    let max: Vec<f32> = prev_max.iter().zip(&cur_max).map(|(prev, cur)| prev.max(*cur)).collect();
    // Relative to the greatest score of both results.
    let below = |sum: &[f32], own: &[f32]| -> Vec<f32> {
        sum.iter().zip(own).zip(&max).map(|((sum, own), max)| sum * (own - max).exp()).collect()
    };
    let (prev_sum, cur_sum) = (below(&prev_sum, &prev_max), below(&cur_sum, &cur_max));
    let sum: Vec<f32> = prev_sum.iter().zip(&cur_sum).map(|(prev, cur)| prev + cur).collect();
    let [mut out, other] = [&prev, &cur].map(|share| load(&share.out, first * depth, rows * depth));
    for (row, (out, other)) in out.chunks_mut(depth).zip(other.chunks(depth)).enumerate() {
        let at = row * COPIES;
        let [prev, cur] = [prev_sum[at] / sum[at], cur_sum[at] / sum[at]];
        out.iter_mut().zip(other).for_each(|(out, other)| *out = *out * prev + *other * cur);
    }
    f32::store(&into.out, first * depth, &out);
    for (view, values) in into.statistics.iter().zip([max, sum]) {
        f32::store(view, first * COPIES, &values);
    }
}
