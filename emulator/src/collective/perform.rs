//! Moving the data of a complete meeting: who reads what from whom, cut into tiles over the pool.
//!
//! Input: the calls of all ranks. Output: every rank's result. Invariants: each contribution is read once and each
//! result written once; tiles are independent and of fixed size, so the number of threads changes nothing.
//! Does not: check sizes or overlap; the calls were checked when they were made, and spans check every access.

use crate::abi::raw::RawSpan;
use crate::collective::meeting::Meeting;
use crate::collective::reduce::reduce;
use crate::collective::{Blocks, Call, DataType, Kind, ReduceOp};
use crate::failure::{Failure, code};
use crate::pool::Workers;

/// Bytes of one rank's part in a tile: small enough that a tile of many ranks stays in cache, large enough to share.
const TILE_BYTES: usize = 32 << 10;

/// One process's share of the tiles of a collective: part `index` of `count` that are as equal as can be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl Share {
    /// All there is.
    const ALL: Self = Self { index: 0, count: 1 };

    /// Its part of `total` tiles.
    pub(crate) fn of(self, total: usize) -> std::ops::Range<usize> {
        total * self.index / self.count..total * (self.index + 1) / self.count
    }
}

/// Inputs reduced into the same place of every output.
struct Reduction {
    inputs: Vec<RawSpan>,
    outputs: Vec<RawSpan>,
    count: usize,
}

/// One source copied to several places of the same length.
struct Fan {
    from: RawSpan,
    to: Vec<RawSpan>,
}

impl Meeting {
    /// Moves and reduces the data of all ranks.
    ///
    /// # Errors
    /// The calls are not parts of one collective.
    pub(crate) fn perform(&self, workers: &Workers) -> Result<(), Failure> {
        self.perform_share(Share::ALL, workers).map(|_| ())
    }

    /// Moves and reduces a share of the data of all ranks, whose buffers are all in reach; gives the number of tiles of
    /// which it took a share.
    ///
    /// # Errors
    /// The calls are not parts of one collective.
    pub(crate) fn perform_share(&self, share: Share, workers: &Workers) -> Result<usize, Failure> {
        let calls: Vec<&Call> = self.calls().collect();
        let Some(first) = calls.first() else { return Ok(0) };
        let element = first.dtype.size_bytes();
        let world = calls.len();
        Ok(match &first.kind {
            Kind::AllReduce { count: 0, .. } | Kind::Reduce { count: 0, .. } | Kind::Broadcast { count: 0, .. } => 0,
            Kind::Scatter { count: 0, .. } | Kind::Send { count: 0, .. } | Kind::Barrier => 0,
            Kind::AllReduce { count, op } => {
                let (inputs, outputs) = (sends(&calls)?, receives(&calls)?);
                let whole = Reduction { inputs, outputs, count: *count as usize };
                reduce_all(&[whole], first.dtype, *op, share, workers)
            }
            Kind::Reduce { count, op, root } => {
                let outputs = vec![receive(calls[*root as usize])?];
                let whole = Reduction { inputs: sends(&calls)?, outputs, count: *count as usize };
                reduce_all(&[whole], first.dtype, *op, share, workers)
            }
            Kind::ReduceScatter { blocks, op } => {
                let inputs_of =
                    |rank: usize| calls.iter().map(move |call| block(&send(call)?, blocks_of(call), rank, element));
                let reductions: Result<Vec<Reduction>, Failure> = (0..world)
                    .filter(|rank| blocks.at(*rank).1 > 0)
                    .map(|rank| {
                        let inputs = inputs_of(rank).collect::<Result<_, _>>()?;
                        let count = blocks.at(rank).1 as usize;
                        Ok(Reduction { inputs, outputs: vec![receive(calls[rank])?], count })
                    })
                    .collect();
                reduce_all(&reductions?, first.dtype, *op, share, workers)
            }
            Kind::AllGather { blocks } => {
                let mut fans = Vec::with_capacity(world);
                for (rank, call) in calls.iter().enumerate().filter(|(rank, _)| blocks.at(*rank).1 > 0) {
                    let place = |to: &&Call| block(&receive(to)?, blocks_of(to), rank, element);
                    let to = calls.iter().map(place).collect::<Result<_, _>>()?;
                    fans.push(Fan { from: send(call)?, to });
                }
                copy_all(&fans, share, workers)
            }
            Kind::Broadcast { root, .. } => {
                let from = send(calls[*root as usize])?;
                let others = calls.iter().enumerate().filter(|(rank, _)| *rank != *root as usize);
                let to = others.map(|(_, call)| receive(call)).collect::<Result<_, _>>()?;
                copy_all(&[Fan { from, to }], share, workers)
            }
            Kind::Scatter { count, root } => {
                let from = send(calls[*root as usize])?;
                let blocks = Blocks::Uniform(*count);
                let mut fans = Vec::with_capacity(world);
                for (rank, call) in calls.iter().enumerate() {
                    fans.push(Fan { from: block(&from, &blocks, rank, element)?, to: vec![receive(call)?] });
                }
                copy_all(&fans, share, workers)
            }
            Kind::AllToAll { .. } => copy_all(&all_to_all(&calls, element)?, share, workers),
            Kind::Send { .. } => {
                let to = calls.get(1).map_or_else(|| Err(incomplete(first)), |call| receive(call))?;
                copy_all(&[Fan { from: send(first)?, to: vec![to] }], share, workers)
            }
            Kind::Recv { .. } => return Err(incomplete(first)),
        })
    }
}

fn all_to_all(calls: &[&Call], element: usize) -> Result<Vec<Fan>, Failure> {
    let mut fans = Vec::new();
    for (from_rank, from) in calls.iter().enumerate() {
        for (to_rank, to) in calls.iter().enumerate() {
            let (Kind::AllToAll { send: sent, .. }, Kind::AllToAll { recv: received, .. }) = (&from.kind, &to.kind)
            else {
                return Err(incomplete(from));
            };
            if sent.at(to_rank).1 > 0 {
                let source = block(&send(from)?, sent, to_rank, element)?;
                fans.push(Fan { from: source, to: vec![block(&receive(to)?, received, from_rank, element)?] });
            }
        }
    }
    Ok(fans)
}

/// The blocks of a gathering or scattering call.
pub(super) fn blocks_of(call: &Call) -> &Blocks {
    match &call.kind {
        Kind::ReduceScatter { blocks, .. } | Kind::AllGather { blocks } => blocks,
        _ => unreachable!("{call} has no blocks"),
    }
}

pub(super) fn block(span: &RawSpan, blocks: &Blocks, rank: usize, element: usize) -> Result<RawSpan, Failure> {
    let (displacement, count) = blocks.at(rank);
    let (offset, bytes) = (displacement as usize * element, count as usize * element);
    if bytes > span.len_bytes() || offset > span.len_bytes() - bytes {
        let what = format!("block of {bytes} bytes at {offset} leaves a buffer of {} bytes", span.len_bytes());
        return Err(Failure::new(code::HCCL_INTERNAL, what));
    }
    Ok(span.slice(offset, bytes))
}

pub(super) fn send(call: &Call) -> Result<RawSpan, Failure> {
    call.send.clone().ok_or_else(|| incomplete(call))
}

pub(super) fn receive(call: &Call) -> Result<RawSpan, Failure> {
    call.recv.clone().ok_or_else(|| incomplete(call))
}

fn sends(calls: &[&Call]) -> Result<Vec<RawSpan>, Failure> {
    calls.iter().map(|call| send(call)).collect()
}

fn receives(calls: &[&Call]) -> Result<Vec<RawSpan>, Failure> {
    calls.iter().map(|call| receive(call)).collect()
}

pub(super) fn incomplete(call: &Call) -> Failure {
    Failure::new(code::HCCL_INTERNAL, format!("{call} reached its data without a buffer"))
}

fn reduce_all(reductions: &[Reduction], dtype: DataType, op: ReduceOp, share: Share, workers: &Workers) -> usize {
    let tile = TILE_BYTES / dtype.size_bytes();
    let tiles_of = |reduction: &Reduction| reduction.count.div_ceil(tile);
    tiled(reductions, tiles_of, share, workers, |reduction, index| {
        let first = index * tile;
        let count = tile.min(reduction.count - first);
        reduce(&reduction.inputs, &reduction.outputs, dtype, op, first, count);
    })
}

fn copy_all(fans: &[Fan], share: Share, workers: &Workers) -> usize {
    let tiles_of = |fan: &Fan| fan.from.len_bytes().div_ceil(TILE_BYTES);
    tiled(fans, tiles_of, share, workers, |fan, index| {
        let offset = index * TILE_BYTES;
        let len = TILE_BYTES.min(fan.from.len_bytes() - offset);
        for to in &fan.to {
            if !to.is_same_as(&fan.from) {
                to.copy_from(offset, &fan.from, offset, len);
            }
        }
    })
}

/// Runs `body(item, tile of that item)` for a share of all tiles of all items over the pool; gives their number.
fn tiled<T: Sync>(
    items: &[T],
    tiles_of: impl Fn(&T) -> usize,
    share: Share,
    workers: &Workers,
    body: impl Fn(&T, usize) + Sync,
) -> usize {
    // ends[i] is the number of tiles of items 0..=i.
    let ends: Vec<usize> = items
        .iter()
        .scan(0, |sum, item| {
            *sum += tiles_of(item);
            Some(*sum)
        })
        .collect();
    let Some(total) = ends.last().copied() else { return 0 };
    let own = share.of(total);
    workers.tiles(own.len(), &|tile| {
        let tile = own.start + tile;
        let item = ends.partition_point(|end| *end <= tile);
        let before = if item == 0 { 0 } else { ends[item - 1] };
        body(&items[item], tile - before);
    });
    total
}
