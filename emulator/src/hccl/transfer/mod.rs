//! The data that a collective moves: blocks to reduce and blocks to copy.
//!
//! [`Transfers`] are executed directly in memory (`transfer::local`) or between processes
//! (`transfer::tcp`).
//!
//! Invariants:
//! - One block writes each byte of a result.
//! - No block writes bytes that a block reads, unless both are the same location.

pub(crate) mod local;
pub(crate) mod reduce;
mod tcp;

use crate::base::failure::{Failure, code};
use crate::hccl::{Blocks, CollectiveCall, CollectiveOperation, CombineOp, DataType};
use crate::memory::raw::RawSpan;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hccl) enum Side {
    Send,
    Receive,
}

/// Location in a rank's buffer. Positions are ranks, or sender and receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hccl) struct Spot {
    pub(in crate::hccl) position: usize,
    pub(in crate::hccl) side: Side,
    pub(in crate::hccl) offset_bytes: usize,
}

impl Spot {
    const fn send(position: usize, offset_bytes: usize) -> Self {
        Self { position, side: Side::Send, offset_bytes }
    }

    const fn receive(position: usize, offset_bytes: usize) -> Self {
        Self { position, side: Side::Receive, offset_bytes }
    }

    pub(in crate::hccl) fn span(
        self,
        calls: &[&CollectiveCall],
        len_bytes: usize,
    ) -> Result<RawSpan, Failure> {
        let call = calls[self.position];
        let buffer = match self.side {
            Side::Send => call.send.as_ref(),
            Side::Receive => call.recv.as_ref(),
        };
        let buffer = buffer.ok_or_else(|| incomplete(call))?;
        let (offset, total) = (self.offset_bytes, buffer.len_bytes());
        if len_bytes > total || offset > total - len_bytes {
            let what = format!("block of {len_bytes} bytes at {offset} leaves a buffer of {total} bytes");
            return Err(Failure::new(code::HCCL_INTERNAL, what));
        }
        Ok(buffer.slice(offset, len_bytes))
    }
}

/// Elements of every rank's send buffer, with all destinations of their reduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hccl) struct RangeReduction {
    pub(in crate::hccl) from_bytes: usize,
    pub(in crate::hccl) to: Vec<Spot>,
    pub(in crate::hccl) count: usize,
}

/// Bytes copied from one location to several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hccl) struct Fan {
    pub(in crate::hccl) from: Spot,
    pub(in crate::hccl) to: Vec<Spot>,
    pub(in crate::hccl) len_bytes: usize,
}

/// Reductions come before copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hccl) struct Transfers {
    pub(in crate::hccl) dtype: DataType,
    /// Meaningful only with reductions.
    pub(in crate::hccl) op: CombineOp,
    pub(in crate::hccl) reductions: Vec<RangeReduction>,
    pub(in crate::hccl) fans: Vec<Fan>,
}

impl Transfers {
    pub(in crate::hccl) fn of(calls: &[&CollectiveCall]) -> Result<Self, Failure> {
        let Some(first) = calls.first() else { return Ok(Self::nothing(DataType::Int8)) };
        let (dtype, world) = (first.dtype, calls.len());
        let element = dtype.size_bytes();
        let nothing = Self::nothing(dtype);
        let fans = |fans: Vec<Fan>| Self { fans, ..Self::nothing(dtype) };
        let reduced =
            |op: CombineOp, reductions: Vec<RangeReduction>| Self { op, reductions, ..Self::nothing(dtype) };
        let (displacement, bytes) = (
            |blocks: &Blocks, rank: usize| blocks.at(rank).0 as usize * element,
            |blocks: &Blocks, rank: usize| blocks.at(rank).1 as usize * element,
        );
        Ok(match &first.kind {
            CollectiveOperation::Barrier => nothing,
            CollectiveOperation::AllReduce { count: 0, .. }
            | CollectiveOperation::Reduce { count: 0, .. }
            | CollectiveOperation::Broadcast { count: 0, .. } => nothing,
            CollectiveOperation::Scatter { count: 0, .. } | CollectiveOperation::Send { count: 0, .. } => {
                nothing
            }
            CollectiveOperation::AllReduce { count, op } => {
                let to = (0..world).map(|position| Spot::receive(position, 0)).collect();
                reduced(*op, vec![RangeReduction { from_bytes: 0, to, count: *count as usize }])
            }
            CollectiveOperation::Reduce { count, op, root } => {
                let to = vec![Spot::receive(*root as usize, 0)];
                reduced(*op, vec![RangeReduction { from_bytes: 0, to, count: *count as usize }])
            }
            CollectiveOperation::ReduceScatter { blocks, op } => {
                let some = (0..world).filter(|rank| blocks.at(*rank).1 > 0);
                let of_rank = |rank: usize| RangeReduction {
                    from_bytes: displacement(blocks, rank),
                    to: vec![Spot::receive(rank, 0)],
                    count: blocks.at(rank).1 as usize,
                };
                reduced(*op, some.map(of_rank).collect())
            }
            CollectiveOperation::AllGather { blocks } => {
                let some = (0..world).filter(|rank| blocks.at(*rank).1 > 0);
                let of_rank = |rank: usize| Fan {
                    from: Spot::send(rank, 0),
                    to: (0..world).map(|to| Spot::receive(to, displacement(blocks, rank))).collect(),
                    len_bytes: bytes(blocks, rank),
                };
                fans(some.map(of_rank).collect())
            }
            CollectiveOperation::Broadcast { count, root } => {
                let root = *root as usize;
                let to = (0..world).filter(|to| *to != root).map(|to| Spot::receive(to, 0)).collect();
                fans(vec![Fan { from: Spot::send(root, 0), to, len_bytes: *count as usize * element }])
            }
            CollectiveOperation::Scatter { count, root } => {
                let len_bytes = *count as usize * element;
                let from = |rank: usize| Spot::send(*root as usize, rank * len_bytes);
                let of_rank = |rank| Fan { from: from(rank), to: vec![Spot::receive(rank, 0)], len_bytes };
                fans((0..world).map(of_rank).collect())
            }
            CollectiveOperation::AllToAll { .. } => fans(Self::all_to_all(calls, element)?),
            CollectiveOperation::Send { count, .. } => {
                let len_bytes = *count as usize * element;
                fans(vec![Fan { from: Spot::send(0, 0), to: vec![Spot::receive(1, 0)], len_bytes }])
            }
            CollectiveOperation::Recv { .. } => return Err(incomplete(first)),
        })
    }

    fn nothing(dtype: DataType) -> Self {
        Self { dtype, op: CombineOp::Sum, reductions: Vec::new(), fans: Vec::new() }
    }

    fn all_to_all(calls: &[&CollectiveCall], element: usize) -> Result<Vec<Fan>, Failure> {
        let mut fans = Vec::new();
        for (from_rank, from) in calls.iter().enumerate() {
            for (to_rank, to) in calls.iter().enumerate() {
                let (CollectiveOperation::AllToAll { send, .. }, CollectiveOperation::AllToAll { recv, .. }) =
                    (&from.kind, &to.kind)
                else {
                    return Err(incomplete(from));
                };
                let (at, count) = send.at(to_rank);
                if count > 0 {
                    fans.push(Fan {
                        from: Spot::send(from_rank, at as usize * element),
                        to: vec![Spot::receive(to_rank, recv.at(from_rank).0 as usize * element)],
                        len_bytes: count as usize * element,
                    });
                }
            }
        }
        Ok(fans)
    }

    /// Splits reductions of more than `most_bytes` into one share per destination. Each destination
    /// reduces its share and copies it to the others.
    pub(in crate::hccl) fn with_shares(self, most_bytes: usize) -> Self {
        let element = self.dtype.size_bytes();
        let (mut reductions, mut fans) = (Vec::new(), self.fans);
        for whole in self.reductions {
            let owners = whole.to.len();
            if owners == 1 || whole.count * element <= most_bytes {
                reductions.push(whole);
                continue;
            }
            let bound = |owner: usize| whole.count * owner / owners;
            for (owner, to) in whole.to.iter().enumerate() {
                let (first, count) = (bound(owner), bound(owner + 1) - bound(owner));
                let moved = |spot: &Spot| Spot { offset_bytes: spot.offset_bytes + first * element, ..*spot };
                if count > 0 {
                    let from_bytes = whole.from_bytes + first * element;
                    reductions.push(RangeReduction { from_bytes, to: vec![moved(to)], count });
                    let others = whole.to.iter().filter(|other| *other != to).map(moved).collect();
                    fans.push(Fan { from: moved(to), to: others, len_bytes: count * element });
                }
            }
        }
        Self { reductions, fans, ..self }
    }
}

fn incomplete(call: &CollectiveCall) -> Failure {
    Failure::new(code::HCCL_INTERNAL, format!("{call} reached its data without a buffer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: CollectiveOperation) -> CollectiveCall {
        CollectiveCall {
            name: "HcclAllReduce",
            kind,
            dtype: DataType::Int32,
            send: None,
            recv: None,
            places: None,
            product_ns: 0,
        }
    }

    fn of(kind: &CollectiveOperation, world: usize) -> Transfers {
        let calls: Vec<CollectiveCall> = (0..world).map(|_| call(kind.clone())).collect();
        Transfers::of(&calls.iter().collect::<Vec<_>>()).expect("one collective")
    }

    #[test]
    fn a_large_all_reduce_is_a_reduction_of_shares_and_a_rendezvous() {
        let whole = of(&CollectiveOperation::AllReduce { count: 10, op: CombineOp::Max }, 3);
        assert_eq!((whole.reductions.len(), whole.reductions[0].to.len(), whole.fans.len()), (1, 3, 0));
        assert_eq!(whole.clone().with_shares(40), whole, "small ones stay whole");
        let cut = whole.with_shares(39);
        let counts: Vec<usize> = cut.reductions.iter().map(|reduction| reduction.count).collect();
        assert_eq!((counts, cut.op), (vec![3, 3, 4], CombineOp::Max));
        assert_eq!(cut.reductions[2].from_bytes, 24);
        assert_eq!(cut.reductions[2].to, [Spot::receive(2, 24)]);
        assert_eq!(cut.fans[1].from, Spot::receive(1, 12));
        assert_eq!(cut.fans[1].to, [Spot::receive(0, 12), Spot::receive(2, 12)]);
    }

    #[test]
    fn every_byte_of_a_result_has_one_source() {
        let listed = Blocks::Listed(vec![(0, 2), (5, 0), (2, 3)]);
        for kind in [
            CollectiveOperation::AllGather { blocks: listed.clone() },
            CollectiveOperation::ReduceScatter { blocks: listed, op: CombineOp::Sum },
            CollectiveOperation::Broadcast { count: 4, root: 1 },
            CollectiveOperation::Scatter { count: 4, root: 2 },
            CollectiveOperation::AllToAll { send: Blocks::Uniform(2), recv: Blocks::Uniform(2) },
        ] {
            let transfers = of(&kind, 3);
            let copied = transfers.fans.iter().flat_map(|fan| fan.to.iter().map(|to| (*to, fan.len_bytes)));
            let reduced =
                transfers.reductions.iter().flat_map(|one| one.to.iter().map(|to| (*to, one.count * 4)));
            let mut written: Vec<(usize, usize)> = copied
                .chain(reduced)
                .flat_map(|(to, len)| {
                    (to.offset_bytes..to.offset_bytes + len).map(move |byte| (to.position, byte))
                })
                .collect();
            let count = written.len();
            written.sort_unstable();
            written.dedup();
            assert_eq!(written.len(), count, "{kind:?}");
            let expected = match kind {
                CollectiveOperation::AllGather { .. } => 3 * 20,
                CollectiveOperation::ReduceScatter { .. } => 20,
                CollectiveOperation::Broadcast { .. } => 2 * 16,
                CollectiveOperation::Scatter { .. } => 3 * 16,
                _ => 9 * 8,
            };
            assert_eq!(count, expected, "{kind:?}");
        }
    }

    #[test]
    fn nothing_moves_without_elements_and_a_receive_begins_nothing() {
        assert_eq!(
            of(&CollectiveOperation::Barrier, 4),
            of(&CollectiveOperation::AllReduce { count: 0, op: CombineOp::Sum }, 4)
        );
        let receive = call(CollectiveOperation::Recv { count: 1, from: 0 });
        assert!(Transfers::of(&[&receive, &receive]).is_err());
        assert!(
            Spot::send(0, 0)
                .span(&[&receive], 4)
                .expect_err("no buffer")
                .message
                .contains("without a buffer")
        );
    }
}
