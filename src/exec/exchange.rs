//! One collective of a plan, ready to be enqueued again and again.
//!
//! Input → output: a [`Collective`] with its bytes on the card → a call of the communicator. Invariant: what a call needs
//! besides the communicator is made once, so that enqueueing allocates nothing. It does not know who is in the group.

use crate::base::{DType, Reduce};
use crate::device::{BufferSlice, Communicator, RankParts, ReduceOp, Result, Stream};
use crate::schedule::plan::{Collective, CollectiveKind};

/// A collective with its memory.
pub(super) struct Exchange {
    /// Which of the rank's communicators.
    pub(super) communicator: usize,
    name: &'static str,
    transfer: Transfer,
    send: BufferSlice,
    recv: BufferSlice,
    dtype: DType,
}

/// What is called: blocks of one length have a call of their own.
enum Transfer {
    AllReduce(ReduceOp),
    AllGather,
    AllGatherBlocks(Blocks),
    ReduceScatter(ReduceOp),
    ReduceScatterBlocks(ReduceOp, Blocks),
    AllToAll { sent: Blocks, received: Blocks },
    Reduce { reduce: ReduceOp, root: usize },
    Broadcast { root: usize },
    Send { to: usize },
    Receive { from: usize },
}

/// A block for each rank, one behind the other.
struct Blocks {
    counts: Vec<usize>,
    displacements: Vec<usize>,
}

impl Blocks {
    fn new(counts: &[usize]) -> Self {
        let starts = |next: &mut usize, count: &usize| {
            *next += count;
            Some(*next - count)
        };
        Self { counts: counts.to_vec(), displacements: counts.iter().scan(0, starts).collect() }
    }

    fn parts(&self) -> RankParts<'_> {
        RankParts { counts: &self.counts, displacements: &self.displacements }
    }
}

impl Exchange {
    /// The collective between two ranges of the card's memory.
    pub(super) fn new(exchange: &Collective, communicator: usize, send: BufferSlice, recv: BufferSlice) -> Self {
        let transfer = match &exchange.kind {
            CollectiveKind::AllReduce { reduce } => Transfer::AllReduce(reduce_op(*reduce)),
            CollectiveKind::AllGather { counts } if all_equal(counts) => Transfer::AllGather,
            CollectiveKind::AllGather { counts } => Transfer::AllGatherBlocks(Blocks::new(counts)),
            CollectiveKind::ReduceScatter { reduce, counts } if all_equal(counts) => {
                Transfer::ReduceScatter(reduce_op(*reduce))
            }
            CollectiveKind::ReduceScatter { reduce, counts } => {
                Transfer::ReduceScatterBlocks(reduce_op(*reduce), Blocks::new(counts))
            }
            CollectiveKind::AllToAll { send_counts, recv_counts } => {
                Transfer::AllToAll { sent: Blocks::new(send_counts), received: Blocks::new(recv_counts) }
            }
            CollectiveKind::Reduce { reduce, root } => Transfer::Reduce { reduce: reduce_op(*reduce), root: *root },
            CollectiveKind::Broadcast { root } => Transfer::Broadcast { root: *root },
            CollectiveKind::Send { to } => Transfer::Send { to: *to },
            CollectiveKind::Receive { from } => Transfer::Receive { from: *from },
        };
        Self { communicator, name: exchange.kind.name(), transfer, send, recv, dtype: exchange.send.dtype }
    }

    /// The name in messages.
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn enqueue(&self, communicator: &Communicator, stream: &Stream) -> Result<()> {
        let Self { send, recv, dtype, .. } = self;
        match &self.transfer {
            Transfer::AllReduce(reduce) => communicator.enqueue_all_reduce(send, recv, *dtype, *reduce, stream),
            Transfer::AllGather => communicator.enqueue_all_gather(send, recv, *dtype, stream),
            Transfer::AllGatherBlocks(blocks) => {
                communicator.enqueue_all_gather_v(send, recv, blocks.parts(), *dtype, stream)
            }
            Transfer::ReduceScatter(reduce) => communicator.enqueue_reduce_scatter(send, recv, *dtype, *reduce, stream),
            Transfer::ReduceScatterBlocks(reduce, blocks) => {
                communicator.enqueue_reduce_scatter_v(send, blocks.parts(), recv, *dtype, *reduce, stream)
            }
            Transfer::AllToAll { sent, received } => {
                communicator.enqueue_all_to_all_v(send, sent.parts(), recv, received.parts(), *dtype, stream)
            }
            Transfer::Reduce { reduce, root } => {
                communicator.enqueue_reduce(send, recv, *dtype, *reduce, *root, stream)
            }
            Transfer::Broadcast { root } => communicator.enqueue_broadcast(recv, *dtype, *root, stream),
            Transfer::Send { to } => communicator.enqueue_send(send, *dtype, *to, stream),
            Transfer::Receive { from } => communicator.enqueue_recv(recv, *dtype, *from, stream),
        }
    }
}

fn all_equal(counts: &[usize]) -> bool {
    counts.iter().all(|count| *count == counts[0])
}

const fn reduce_op(reduce: Reduce) -> ReduceOp {
    match reduce {
        // Plans have no exchange that sums as a tree, which `schedule::verify` checks.
        Reduce::Sum | Reduce::Tree => ReduceOp::Sum,
        Reduce::Max => ReduceOp::Max,
        Reduce::Min => ReduceOp::Min,
    }
}
