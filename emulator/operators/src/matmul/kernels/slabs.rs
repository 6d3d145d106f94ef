//! Products of some left rows with right rows along k, as in batched decode. Right rows are read
//! once, a slab at a time.
//!
//! - Each run of a slab stays in the first-level cache for all left rows. Meanwhile the next run is
//!   packed, and the run that follows is requested from memory.
//! - Left rows are read in place if they are words already, or packed once. They are widened if the
//!   processor multiplies f32 faster than bf16. The bits are the same.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::matmul::kernels::{BatchProduct, ProductElement, ProductJob, ProductScratch};
use crate::matmul::panel::{PanelPacking, add_run, line_stride, sized};
use crate::raw::Rows;
use crate::simd::ahead::{Ahead, Requests};
use crate::simd::block::{Lines, QUAD, RUN, WIDTH, WORD_BYTES};
use crate::simd::isa::Isa;
use crate::simd::pack::{self, PackSource, SlabPacking};
use crate::simd::rates;
use crate::view::StridedView;
use crate::{Serial, Tiles};

/// Enough for several threads.
const TILES: usize = 32;
/// Minimum elements of left rows that several threads pack.
const LEAST_SHARED: usize = 1 << 16;

/// Multiplies by right rows that [`PanelPacking::in_place`] accepts as `source`.
pub(super) fn product<T: ProductElement>(
    tiles: &dyn Tiles,
    isa: Isa,
    job: &ProductJob<'_>,
    parts: &[BatchProduct],
    source: PackSource,
) {
    let (m, n) = (parts[0].a.dims()[0], parts[0].b.dims()[0]);
    let packing = PanelPacking { isa, precision: job.precision };
    let left: Vec<OnceLock<Left<'_, T>>> = parts.iter().map(|_| OnceLock::new()).collect();
    if let ([left], [part]) = (&left[..], parts) {
        left.get_or_init(|| Left::of(tiles, packing, &part.a));
    }
    let width = n.div_ceil(TILES.div_ceil(parts.len())).next_multiple_of(WIDTH);
    let across = n.div_ceil(width);
    tiles.run(parts.len() * across, &|tile| {
        let (at, first) = (tile / across, tile % across * width);
        let (part, end) = (&parts[at], n.min(first + width));
        let left = left[at].get_or_init(|| Left::of(&Serial, packing, &part.a));
        T::with_scratch(|scratch| {
            let taken = scratch.order.take(tile, across - tile % across);
            SlabTile::<T> {
                isa,
                source,
                right: part.b.rows(0, n),
                k: part.b.dims()[1],
                left,
                m,
                columns: first..end,
                next: taken.next.map(|tile| tile % across * width),
            }
            .multiply(scratch, taken.is_expected);
            let (width, stride) = (end - first, (end - first).next_multiple_of(WIDTH));
            for line in 1..if stride == width { 0 } else { m } {
                scratch.sums.copy_within(line * stride..line * stride + width, line * width);
            }
            job.finish(part, &(0..m), &(first..end), &mut scratch.sums[..m * width]);
        });
    });
}

/// The tiles that a thread takes. Threads usually take turns, so the distance between two tiles is
/// likely that to the next one.
#[derive(Debug, Default)]
pub(super) struct TileOrder {
    last: usize,
    expected: Option<usize>,
}

struct TakenTile {
    /// The tile before requested its first runs.
    is_expected: bool,
    /// The likely next tile.
    next: Option<usize>,
}

impl TileOrder {
    /// `rest` counts the tiles from `tile` on that could be next.
    fn take(&mut self, tile: usize, rest: usize) -> TakenTile {
        let is_expected = self.expected == Some(tile);
        let distance = tile.saturating_sub(self.last);
        self.last = tile;
        self.expected = (1..rest).contains(&distance).then_some(tile + distance);
        TakenTile { is_expected, next: self.expected }
    }
}

/// Left rows as lines.
struct Left<'a, T> {
    words: LeftWords<'a, T>,
    widened: Option<LeftRuns<f32>>,
}

enum LeftWords<'a, T> {
    InPlace(Rows<'a>),
    Packed(LeftRuns<T>),
}

/// `[runs][m][line_stride(depth)]`, with fewer elements in the last run.
struct LeftRuns<T> {
    lines: Vec<T>,
    m: usize,
    /// Elements of whole runs.
    depth: usize,
}

impl<T: ProductElement> LeftRuns<T> {
    fn of(tiles: &dyn Tiles, packing: PanelPacking, a: &StridedView, depth: usize) -> Self {
        let (m, k) = (a.dims()[0], a.dims()[1]);
        let mut lines = vec![T::default(); m * line_stride::<T>(k)];
        let chunks: Vec<Mutex<&mut [T]>> = lines.chunks_mut(m * depth).map(Mutex::new).collect();
        let pack = |run: usize| {
            let (start, mut lines) =
                (run * depth, chunks[run].lock().unwrap_or_else(PoisonError::into_inner));
            let part = a.slice(1, start, depth.min(k - start), 1);
            T::with_scratch(|scratch| packing.lines(&part, &mut scratch.stage, &mut lines));
        };
        if m * k < LEAST_SHARED {
            (0..chunks.len()).for_each(pack);
        } else {
            tiles.run(chunks.len(), &pack);
        }
        Self { lines, m, depth }
    }

    /// Returns `count` elements of each line from `start`, the start of a run, on.
    fn run(&self, start: usize, count: usize) -> Rows<'_> {
        let lines = &self.lines[self.m * start..];
        Rows::in_slice(&lines[..lines.len().min(self.m * self.depth)], line_stride::<T>(count), self.m, count)
    }
}

impl<'a, T: ProductElement> Left<'a, T> {
    fn of(tiles: &dyn Tiles, packing: PanelPacking, a: &'a StridedView) -> Self {
        let depth = RUN * T::DEPTH;
        let words = packing
            .lines_in_place::<T>(a)
            .map_or_else(|| LeftWords::Packed(LeftRuns::of(tiles, packing, a, depth)), LeftWords::InPlace);
        let is_widened = T::DEPTH == 2 && rates::are_singles_faster(packing.isa);
        let widened = is_widened.then(|| LeftRuns::of(tiles, packing, a, depth));
        Self { words, widened: widened.filter(|widened| pack::is_plain(&widened.lines)) }
    }

    /// Returns `depth` elements of each line, from the start of a run on.
    fn lines(&self, start: usize, depth: usize, is_plain: bool) -> Lines<'_> {
        if let Some(widened) = self.widened.as_ref().filter(|_| is_plain) {
            return Lines::Widened(widened.run(start, depth.next_multiple_of(T::DEPTH)));
        }
        let depth = depth.next_multiple_of(T::DEPTH);
        Lines::Words(match &self.words {
            LeftWords::InPlace(rows) => {
                rows.columns(start / T::DEPTH * WORD_BYTES, depth / T::DEPTH * WORD_BYTES)
            }
            LeftWords::Packed(runs) => runs.run(start, depth),
        })
    }
}

/// Left rows times some right rows.
struct SlabTile<'a, T> {
    isa: Isa,
    source: PackSource,
    right: Rows<'a>,
    /// Elements of a right row, at least one.
    k: usize,
    left: &'a Left<'a, T>,
    m: usize,
    columns: Range<usize>,
    /// First column of the likely next tile.
    next: Option<usize>,
}

/// A part of right rows that is packed at once.
#[derive(Clone, Copy)]
struct SlabRun {
    col: usize,
    start: usize,
}

impl<T: ProductElement> SlabTile<'_, T> {
    const DEPTH: usize = RUN * T::DEPTH;

    fn depth(&self, run: SlabRun) -> usize {
        Self::DEPTH.min(self.k - run.start)
    }

    fn rows(&self, run: SlabRun) -> Rows<'_> {
        let size = self.right.bytes() / self.k;
        let count = WIDTH.min(self.right.count() - run.col);
        self.right.part(run.col, count).columns(run.start * size, self.depth(run) * size)
    }

    fn has(&self, run: SlabRun) -> bool {
        self.columns.contains(&run.col)
    }

    /// The first run of the next tile comes after the last one of this tile.
    fn after(&self, run: SlabRun) -> Option<SlabRun> {
        if run.start + Self::DEPTH < self.k {
            return Some(SlabRun { start: run.start + Self::DEPTH, ..run });
        }
        let col = if self.columns.contains(&(run.col + WIDTH)) { Some(run.col + WIDTH) } else { self.next };
        col.filter(|_| self.has(run)).map(|col| SlabRun { col, start: 0 })
    }

    /// `scratch.sums` becomes `[m, columns]`, with rows padded to whole slabs.
    fn multiply(&self, scratch: &mut ProductScratch<T>, is_requested: bool) {
        let ProductScratch { left: other, right: slab, sums, .. } = scratch;
        let padded = self.columns.len().next_multiple_of(WIDTH);
        let sums = sized(sums, self.m * padded);
        sums.fill(0.0);
        let [mut slab, mut other] = [slab, other].map(|slab| sized(slab, WIDTH * Self::DEPTH));
        let first = SlabRun { col: self.columns.start, start: 0 };
        if !is_requested {
            for run in [Some(first), self.after(first)].into_iter().flatten() {
                Requests::of(&self.rows(run), 1).finish();
            }
        }
        let mut is_plain = SlabPacking::new(self.isa, self.source, &self.rows(first), slab).finish();
        let mut upcoming = Some(first);
        while let Some(run) = upcoming.filter(|run| self.has(*run)) {
            upcoming = self.after(run);
            let lines = self.left.lines(run.start, self.depth(run), is_plain);
            let steps = lines.blocks() * lines.words().div_ceil(QUAD);
            let next = upcoming.filter(|next| self.has(*next)).map(|next| self.rows(next));
            let later = upcoming.and_then(|next| self.after(next)).map(|later| self.rows(later));
            let mut ahead = Ahead {
                packing: next.map(|next| SlabPacking::new(self.isa, self.source, &next, other)),
                requests: later.map(|later| Requests::of(&later, steps)).unwrap_or_default(),
            };
            add_run(self.isa, &lines, slab, &mut sums[run.col - self.columns.start..], padded, &mut ahead);
            is_plain = ahead.packing.as_mut().is_some_and(SlabPacking::finish);
            std::mem::swap(&mut slab, &mut other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_two_tiles_tells_the_next_one() {
        let mut order = TileOrder::default();
        let mut take = |tile: usize, rest: usize| {
            let taken = order.take(tile, rest);
            (taken.is_expected, taken.next)
        };
        assert_eq!(take(0, 8), (false, None));
        assert_eq!(take(2, 6), (false, Some(4)));
        assert_eq!(take(4, 4), (true, Some(6)));
        assert_eq!(take(5, 3), (false, Some(6)));
        assert_eq!(take(7, 1), (false, None), "the last one");
        assert_eq!(take(0, 8), (false, None), "of another product");
    }
}
