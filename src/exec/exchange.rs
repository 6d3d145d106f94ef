//! A prepared collective of a plan. Enqueueing does not allocate.

use crate::base::{DType, Reduce};
use crate::device::{BufferSlice, Communicator, RankParts, ReduceOp, Result, Stream};
use crate::schedule::plan::{Collective, CollectiveKind};

pub(super) struct RankExchange {
    pub(super) communicator: usize,
    kind: CollectiveKind,
    /// Starts of the ranks' blocks in the send and receive buffers.
    starts: [Vec<usize>; 2],
    send: BufferSlice,
    recv: BufferSlice,
    dtype: DType,
}

impl RankExchange {
    pub(super) fn new(
        exchange: &Collective,
        communicator: usize,
        send: BufferSlice,
        recv: BufferSlice,
    ) -> Self {
        let kind = exchange.kind.clone();
        let starts = match &kind {
            CollectiveKind::AllGather { counts } => [Vec::new(), starts(counts)],
            CollectiveKind::ReduceScatter { counts, .. } => [starts(counts), Vec::new()],
            CollectiveKind::AllToAll { send_counts, recv_counts } => {
                [starts(send_counts), starts(recv_counts)]
            }
            CollectiveKind::AllReduce { .. }
            | CollectiveKind::Reduce { .. }
            | CollectiveKind::Broadcast { .. }
            | CollectiveKind::Send { .. }
            | CollectiveKind::Receive { .. } => Default::default(),
        };
        Self { communicator, kind, starts, send, recv, dtype: exchange.send.dtype }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Equal block lengths use simpler calls.
    pub(super) fn enqueue(&self, communicator: &Communicator, stream: &Stream) -> Result<()> {
        let Self { send, recv, dtype, starts: [sent, received], .. } = self;
        let dtype = *dtype;
        match &self.kind {
            CollectiveKind::AllReduce { reduce } => {
                communicator.enqueue_all_reduce(send, recv, dtype, reduce_op(*reduce), stream)
            }
            CollectiveKind::AllGather { counts } if all_equal(counts) => {
                communicator.enqueue_all_gather(send, recv, dtype, stream)
            }
            CollectiveKind::AllGather { counts } => {
                communicator.enqueue_all_gather_v(send, recv, parts(counts, received), dtype, stream)
            }
            CollectiveKind::ReduceScatter { reduce, counts } if all_equal(counts) => {
                communicator.enqueue_reduce_scatter(send, recv, dtype, reduce_op(*reduce), stream)
            }
            CollectiveKind::ReduceScatter { reduce, counts } => {
                let parts = parts(counts, sent);
                communicator.enqueue_reduce_scatter_v(send, parts, recv, dtype, reduce_op(*reduce), stream)
            }
            CollectiveKind::AllToAll { send_counts, recv_counts } => {
                let (sent, received) = (parts(send_counts, sent), parts(recv_counts, received));
                communicator.enqueue_all_to_all_v(send, sent, recv, received, dtype, stream)
            }
            CollectiveKind::Reduce { reduce, root } => {
                communicator.enqueue_reduce(send, recv, dtype, reduce_op(*reduce), *root, stream)
            }
            CollectiveKind::Broadcast { root } => communicator.enqueue_broadcast(recv, dtype, *root, stream),
            CollectiveKind::Send { to } => communicator.enqueue_send(send, dtype, *to, stream),
            CollectiveKind::Receive { from } => communicator.enqueue_recv(recv, dtype, *from, stream),
        }
    }
}

fn starts(counts: &[usize]) -> Vec<usize> {
    let start = |next: &mut usize, count: &usize| {
        *next += count;
        Some(*next - count)
    };
    counts.iter().scan(0, start).collect()
}

const fn parts<'a>(counts: &'a [usize], displacements: &'a [usize]) -> RankParts<'a> {
    RankParts { counts, displacements }
}

fn all_equal(counts: &[usize]) -> bool {
    counts.iter().all(|count| *count == counts[0])
}

const fn reduce_op(reduce: Reduce) -> ReduceOp {
    match reduce {
        // Plans contain no collective with tree order; `schedule::verify` checks this.
        Reduce::Sum | Reduce::Tree => ReduceOp::Sum,
        Reduce::Max => ReduceOp::Max,
        Reduce::Min => ReduceOp::Min,
    }
}
