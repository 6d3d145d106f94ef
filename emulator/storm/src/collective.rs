//! Collectives of the storm: buffer sizes and results.
//!
//! The rules come from HCCL's documentation and share no code with the emulator.

use crate::element::{Reduction, StormElement, fold};
use crate::random::scramble;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StormCollective {
    AllReduce(Reduction),
    Reduce(Reduction),
    ReduceScatter(Reduction),
    ReduceScatterV(Reduction),
    AllGather,
    AllGatherV,
    Broadcast,
    Scatter,
    AllToAll,
    AllToAllV,
    AllToAllVC,
    Barrier,
    /// `HcclSend` and its `HcclRecv`; the other members do nothing.
    SendRecv,
    /// `HcclBatchSendRecv` around a ring.
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StormCall {
    pub(crate) kind: StormCollective,
    pub(crate) element: StormElement,
    /// Elements of a buffer or of a member's block.
    pub(crate) count: u64,
    /// Root or sender, modulo the number of members.
    pub(crate) root: u32,
    /// The buffers are equal, or one is the own block of the other.
    pub(crate) in_place: bool,
    /// Selects the uneven counts and the inputs of float reductions.
    pub(crate) salt: u64,
}

/// Bytes at an offset of a receive buffer.
pub(crate) type ReceivedPiece = (u64, Vec<u8>);

impl StormCall {
    #[must_use]
    pub(crate) const fn root(&self, world: usize) -> usize {
        self.root as usize % world
    }

    #[must_use]
    pub(crate) const fn receiver(&self, world: usize) -> usize {
        (self.root(world) + 1 + self.salt as usize % (world - 1)) % world
    }

    #[must_use]
    pub(crate) const fn is_called_by(&self, world: usize, member: usize) -> bool {
        match self.kind {
            StormCollective::SendRecv => member == self.root(world) || member == self.receiver(world),
            _ => true,
        }
    }

    #[must_use]
    pub(crate) const fn reduction(&self) -> Option<Reduction> {
        match self.kind {
            StormCollective::AllReduce(how)
            | StormCollective::Reduce(how)
            | StormCollective::ReduceScatter(how)
            | StormCollective::ReduceScatterV(how) => Some(how),
            _ => None,
        }
    }

    /// Small whole numbers are loaded first.
    #[must_use]
    pub(crate) const fn needs_small(&self) -> bool {
        self.reduction().is_some() && self.element.rounds()
    }

    /// Returns (displacement, count) per member, with gaps.
    #[must_use]
    pub(crate) fn blocks(&self, world: usize) -> Vec<(u64, u64)> {
        let mut end = self.salt % 3;
        let block = |member: u64| {
            let count = self.count / 2 + scramble(self.salt ^ member) % (self.count / 2 + 1);
            let displacement = end;
            end += count + member % 2;
            (displacement, count)
        };
        (0..world as u64).map(block).collect()
    }

    /// Returns the number of elements between two members in an uneven all-to-all.
    #[must_use]
    pub(crate) fn cell(&self, from: usize, to: usize) -> u64 {
        scramble(self.salt ^ (from as u64) << 8 ^ (to as u64) << 32) % (self.count + 1)
    }

    /// Returns (displacement, count) to or from each member in an uneven all-to-all.
    #[must_use]
    pub(crate) fn row(&self, world: usize, member: usize, is_send: bool) -> Vec<(u64, u64)> {
        let gap = u64::from(self.kind == StormCollective::AllToAllV);
        let mut end = 0;
        let block = |other: usize| {
            let count = if is_send { self.cell(member, other) } else { self.cell(other, member) };
            let displacement = end;
            end += count + gap;
            (displacement, count)
        };
        (0..world).map(block).collect()
    }

    /// Returns the number of elements of the send buffer; 0 if there is none.
    #[must_use]
    pub(crate) fn sends(&self, world: usize, member: usize) -> u64 {
        let is_root = member == self.root(world);
        match self.kind {
            StormCollective::AllReduce(_)
            | StormCollective::Reduce(_)
            | StormCollective::AllGather
            | StormCollective::Batch => self.count,
            StormCollective::ReduceScatter(_) | StormCollective::AllToAll => self.count * world as u64,
            StormCollective::ReduceScatterV(_) => extent(&self.blocks(world)),
            StormCollective::AllGatherV => self.blocks(world)[member].1,
            StormCollective::Broadcast | StormCollective::SendRecv if is_root => self.count,
            StormCollective::Scatter if is_root => self.count * world as u64,
            StormCollective::AllToAllV | StormCollective::AllToAllVC => {
                extent(&self.row(world, member, true))
            }
            StormCollective::Broadcast
            | StormCollective::SendRecv
            | StormCollective::Scatter
            | StormCollective::Barrier => 0,
        }
    }

    /// Returns the number of elements of the receive buffer; 0 if there is none.
    #[must_use]
    pub(crate) fn receives(&self, world: usize, member: usize) -> u64 {
        let is_root = member == self.root(world);
        match self.kind {
            StormCollective::AllReduce(_)
            | StormCollective::ReduceScatter(_)
            | StormCollective::Scatter
            | StormCollective::Batch => self.count,
            StormCollective::ReduceScatterV(_) => self.blocks(world)[member].1,
            StormCollective::AllGather | StormCollective::AllToAll => self.count * world as u64,
            StormCollective::AllGatherV => extent(&self.blocks(world)),
            StormCollective::Reduce(_) if is_root => self.count,
            StormCollective::Broadcast if !is_root => self.count,
            StormCollective::SendRecv if member == self.receiver(world) => self.count,
            StormCollective::AllToAllV | StormCollective::AllToAllVC => {
                extent(&self.row(world, member, false))
            }
            StormCollective::Reduce(_)
            | StormCollective::Broadcast
            | StormCollective::SendRecv
            | StormCollective::Barrier => 0,
        }
    }

    /// Returns the element offsets of both buffers in the common buffer of an in-place call.
    #[must_use]
    pub(crate) const fn in_place_shift(&self, member: usize) -> (u64, u64) {
        match self.kind {
            StormCollective::ReduceScatter(_) => (0, member as u64 * self.count),
            StormCollective::AllGather => (member as u64 * self.count, 0),
            _ => (0, 0),
        }
    }

    #[must_use]
    pub(crate) const fn may_be_in_place(&self) -> bool {
        matches!(
            self.kind,
            StormCollective::AllReduce(_)
                | StormCollective::Reduce(_)
                | StormCollective::ReduceScatter(_)
                | StormCollective::AllGather
        )
    }

    /// Returns the data that each member receives, given the data that each sends.
    #[must_use]
    pub(crate) fn results(&self, sent: &[Vec<u8>]) -> Vec<Vec<ReceivedPiece>> {
        let (world, size) = (sent.len(), self.element.bytes());
        let cut = |from: usize, (first, count): (u64, u64)| {
            sent[from][(first * size) as usize..((first + count) * size) as usize].to_vec()
        };
        let reduced = |reduction, block: (u64, u64)| {
            let mut total = cut(0, block);
            for member in 1..world {
                fold(&mut total, &cut(member, block), self.element, reduction);
            }
            total
        };
        let uniform = |member: usize| (member as u64 * self.count, self.count);
        let whole = (0, self.count);
        let (root, members) = (self.root(world), 0..world);
        match self.kind {
            StormCollective::Barrier => vec![Vec::new(); world],
            StormCollective::AllReduce(reduction) => vec![vec![(0, reduced(reduction, whole))]; world],
            StormCollective::Reduce(reduction) => {
                let total = reduced(reduction, whole);
                members
                    .map(|member| if member == root { vec![(0, total.clone())] } else { Vec::new() })
                    .collect()
            }
            StormCollective::ReduceScatter(reduction) => {
                members.map(|member| vec![(0, reduced(reduction, uniform(member)))]).collect()
            }
            StormCollective::ReduceScatterV(reduction) => {
                self.blocks(world).into_iter().map(|block| vec![(0, reduced(reduction, block))]).collect()
            }
            StormCollective::AllGather => {
                let all: Vec<ReceivedPiece> =
                    members.map(|from| (uniform(from).0 * size, cut(from, whole))).collect();
                vec![all; world]
            }
            StormCollective::AllGatherV => {
                let blocks = self.blocks(world).into_iter().enumerate();
                let all: Vec<ReceivedPiece> =
                    blocks.map(|(from, (at, count))| (at * size, cut(from, (0, count)))).collect();
                vec![all; world]
            }
            StormCollective::Broadcast => {
                let data = cut(root, whole);
                members
                    .map(|member| if member == root { Vec::new() } else { vec![(0, data.clone())] })
                    .collect()
            }
            StormCollective::Scatter => members.map(|member| vec![(0, cut(root, uniform(member)))]).collect(),
            StormCollective::AllToAll => members
                .map(|to| (0..world).map(|from| (uniform(from).0 * size, cut(from, uniform(to)))).collect())
                .collect(),
            StormCollective::AllToAllV | StormCollective::AllToAllVC => members
                .map(|to| {
                    let places = self.row(world, to, false).into_iter().enumerate();
                    places
                        .map(|(from, (at, _))| (at * size, cut(from, self.row(world, from, true)[to])))
                        .collect()
                })
                .collect(),
            StormCollective::SendRecv => {
                let receiver = self.receiver(world);
                let got = |member| if member == receiver { vec![(0, cut(root, whole))] } else { Vec::new() };
                members.map(got).collect()
            }
            StormCollective::Batch => {
                members.map(|member| vec![(0, cut((member + world - 1) % world, whole))]).collect()
            }
        }
    }
}

fn extent(blocks: &[(u64, u64)]) -> u64 {
    blocks.iter().map(|(at, count)| at + count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: StormCollective, count: u64) -> StormCall {
        StormCall { kind, element: StormElement::U8, count, root: 1, in_place: false, salt: 7 }
    }

    #[test]
    fn what_is_received_is_what_the_documents_say() {
        let sent = [vec![1, 2, 3, 4], vec![5, 6, 7, 8]];
        let results = |kind, count| call(kind, count).results(&sent);
        assert_eq!(
            results(StormCollective::AllReduce(Reduction::Sum), 4),
            vec![vec![(0, vec![6, 8, 10, 12])]; 2]
        );
        assert_eq!(
            results(StormCollective::Reduce(Reduction::Max), 4),
            [vec![], vec![(0, vec![5, 6, 7, 8])]]
        );
        assert_eq!(
            results(StormCollective::ReduceScatter(Reduction::Min), 2),
            [vec![(0, vec![1, 2])], vec![(0, vec![3, 4])]]
        );
        assert_eq!(
            results(StormCollective::AllGather, 4),
            vec![vec![(0, vec![1, 2, 3, 4]), (4, vec![5, 6, 7, 8])]; 2]
        );
        assert_eq!(results(StormCollective::Broadcast, 4), [vec![(0, vec![5, 6, 7, 8])], vec![]]);
        assert_eq!(results(StormCollective::Scatter, 2), [vec![(0, vec![5, 6])], vec![(0, vec![7, 8])]]);
        assert_eq!(results(StormCollective::AllToAll, 2)[1], [(0, vec![3, 4]), (2, vec![7, 8])]);
        assert_eq!(results(StormCollective::SendRecv, 4), [vec![(0, vec![5, 6, 7, 8])], vec![]]);
        assert_eq!(
            results(StormCollective::Batch, 4),
            [vec![(0, vec![5, 6, 7, 8])], vec![(0, vec![1, 2, 3, 4])]]
        );
    }

    #[test]
    fn nobody_receives_beyond_the_receive_buffer() {
        let kinds = [
            StormCollective::ReduceScatterV(Reduction::Sum),
            StormCollective::AllGatherV,
            StormCollective::AllToAllV,
            StormCollective::AllToAllVC,
            StormCollective::AllToAll,
            StormCollective::Barrier,
        ];
        for kind in kinds {
            for (count, world) in [(0, 2), (1, 3), (17, 4), (64, 8)] {
                let call = call(kind, count);
                let sent: Vec<Vec<u8>> =
                    (0..world).map(|rank| vec![1; call.sends(world, rank) as usize]).collect();
                for (member, pieces) in call.results(&sent).iter().enumerate() {
                    let end = pieces.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap_or(0);
                    assert!(end <= call.receives(world, member), "{kind:?} {count} {world} {member}");
                }
            }
        }
    }
}
