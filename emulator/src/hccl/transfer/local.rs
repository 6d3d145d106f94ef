//! Data transfer of a collective with all buffers in reach, in tiles over the thread pool.
//!
//! Invariants:
//! - Each contribution is read once and each result is written once.
//! - Tiles are independent and have a fixed size, so the number of threads and processes does not
//!   matter.

use crate::base::failure::Failure;
use crate::hccl::transfer::reduce::reduce;
use crate::hccl::transfer::{Fan, RangeReduction, Side, Spot, Transfers};
use crate::hccl::{CollectiveCall, CombineOp, DataType};
use crate::memory::raw::RawSpan;
use crate::scheduler::pool::Workers;

/// Bytes of one rank's part of a tile.
const TILE_BYTES: usize = 32 << 10;

/// Share `index` of `count` nearly equal shares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkShare {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl WorkShare {
    pub(crate) const ALL: Self = Self { index: 0, count: 1 };

    fn of(self, total: usize) -> std::ops::Range<usize> {
        total * self.index / self.count..total * (self.index + 1) / self.count
    }
}

struct Reduced {
    inputs: Vec<RawSpan>,
    outputs: Vec<RawSpan>,
    count: usize,
}

struct Copied {
    from: RawSpan,
    to: Vec<RawSpan>,
}

/// Requires all buffers in reach. Fails if the calls do not belong to one collective.
pub(crate) fn perform(calls: &[&CollectiveCall], share: WorkShare, workers: &Workers) -> Result<(), Failure> {
    let Transfers { dtype, op, reductions, fans } = Transfers::of(calls)?;
    let spans = |spots: &[Spot], len_bytes: usize| -> Result<Vec<RawSpan>, Failure> {
        spots.iter().map(|spot| spot.span(calls, len_bytes)).collect()
    };
    let mut reduced = Vec::with_capacity(reductions.len());
    for RangeReduction { from_bytes, to, count } in &reductions {
        let len_bytes = count * dtype.size_bytes();
        let from = |position| Spot { position, side: Side::Send, offset_bytes: *from_bytes };
        let from: Vec<Spot> = (0..calls.len()).map(from).collect();
        reduced.push(Reduced {
            inputs: spans(&from, len_bytes)?,
            outputs: spans(to, len_bytes)?,
            count: *count,
        });
    }
    let mut copied = Vec::with_capacity(fans.len());
    for Fan { from, to, len_bytes } in &fans {
        copied.push(Copied { from: from.span(calls, *len_bytes)?, to: spans(to, *len_bytes)? });
    }
    reduce_all(&reduced, dtype, op, share, workers);
    copy_all(&copied, share, workers);
    Ok(())
}

fn reduce_all(reductions: &[Reduced], dtype: DataType, op: CombineOp, share: WorkShare, workers: &Workers) {
    let tile = TILE_BYTES / dtype.size_bytes();
    let tiles_of = |reduction: &Reduced| reduction.count.div_ceil(tile);
    tiled(reductions, tiles_of, share, workers, |reduction, index| {
        let first = index * tile;
        let count = tile.min(reduction.count - first);
        if share.count > 1 {
            let size = dtype.size_bytes();
            reduction.outputs.iter().for_each(|output| output.touch(first * size, count * size));
        }
        reduce(&reduction.inputs, &reduction.outputs, dtype, op, first, count);
    });
}

fn copy_all(copies: &[Copied], share: WorkShare, workers: &Workers) {
    let tiles_of = |copy: &Copied| copy.from.len_bytes().div_ceil(TILE_BYTES);
    tiled(copies, tiles_of, share, workers, |copy, index| {
        let offset = index * TILE_BYTES;
        let len = TILE_BYTES.min(copy.from.len_bytes() - offset);
        for to in &copy.to {
            if !to.is_same_as(&copy.from) {
                if share.count > 1 {
                    to.touch(offset, len);
                }
                to.copy_from(offset, &copy.from, offset, len);
            }
        }
    });
}

/// Runs `body(item, tile of the item)` for a share of all tiles.
fn tiled<T: Sync>(
    items: &[T],
    tiles_of: impl Fn(&T) -> usize,
    share: WorkShare,
    workers: &Workers,
    body: impl Fn(&T, usize) + Sync,
) {
    // `ends[i]` is the number of tiles of items `0..=i`.
    let ends: Vec<usize> = items
        .iter()
        .scan(0, |sum, item| {
            *sum += tiles_of(item);
            Some(*sum)
        })
        .collect();
    let Some(total) = ends.last().copied() else { return };
    let own = share.of(total);
    workers.tiles(own.len(), &|tile| {
        let tile = own.start + tile;
        let item = ends.partition_point(|end| *end <= tile);
        let before = if item == 0 { 0 } else { ends[item - 1] };
        body(&items[item], tile - before);
    });
}
