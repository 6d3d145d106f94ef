//! Collectives of the storm: buffer sizes and results.
//!
//! The rules come from HCCL's documentation and share no code with the emulator.

use crate::element::{Element, Reduction, fold};
use crate::random::scramble;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) element: Element,
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

impl Call {
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
            Kind::SendRecv => member == self.root(world) || member == self.receiver(world),
            _ => true,
        }
    }

    #[must_use]
    pub(crate) const fn reduction(&self) -> Option<Reduction> {
        match self.kind {
            Kind::AllReduce(how)
            | Kind::Reduce(how)
            | Kind::ReduceScatter(how)
            | Kind::ReduceScatterV(how) => Some(how),
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
        let gap = u64::from(self.kind == Kind::AllToAllV);
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
            Kind::AllReduce(_) | Kind::Reduce(_) | Kind::AllGather | Kind::Batch => self.count,
            Kind::ReduceScatter(_) | Kind::AllToAll => self.count * world as u64,
            Kind::ReduceScatterV(_) => extent(&self.blocks(world)),
            Kind::AllGatherV => self.blocks(world)[member].1,
            Kind::Broadcast | Kind::SendRecv if is_root => self.count,
            Kind::Scatter if is_root => self.count * world as u64,
            Kind::AllToAllV | Kind::AllToAllVC => extent(&self.row(world, member, true)),
            Kind::Broadcast | Kind::SendRecv | Kind::Scatter | Kind::Barrier => 0,
        }
    }

    /// Returns the number of elements of the receive buffer; 0 if there is none.
    #[must_use]
    pub(crate) fn receives(&self, world: usize, member: usize) -> u64 {
        let is_root = member == self.root(world);
        match self.kind {
            Kind::AllReduce(_) | Kind::ReduceScatter(_) | Kind::Scatter | Kind::Batch => self.count,
            Kind::ReduceScatterV(_) => self.blocks(world)[member].1,
            Kind::AllGather | Kind::AllToAll => self.count * world as u64,
            Kind::AllGatherV => extent(&self.blocks(world)),
            Kind::Reduce(_) if is_root => self.count,
            Kind::Broadcast if !is_root => self.count,
            Kind::SendRecv if member == self.receiver(world) => self.count,
            Kind::AllToAllV | Kind::AllToAllVC => extent(&self.row(world, member, false)),
            Kind::Reduce(_) | Kind::Broadcast | Kind::SendRecv | Kind::Barrier => 0,
        }
    }

    /// Returns the element offsets of both buffers in the common buffer of an in-place call.
    #[must_use]
    pub(crate) const fn in_place_shift(&self, member: usize) -> (u64, u64) {
        match self.kind {
            Kind::ReduceScatter(_) => (0, member as u64 * self.count),
            Kind::AllGather => (member as u64 * self.count, 0),
            _ => (0, 0),
        }
    }

    #[must_use]
    pub(crate) const fn may_be_in_place(&self) -> bool {
        matches!(self.kind, Kind::AllReduce(_) | Kind::Reduce(_) | Kind::ReduceScatter(_) | Kind::AllGather)
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
            Kind::Barrier => vec![Vec::new(); world],
            Kind::AllReduce(reduction) => vec![vec![(0, reduced(reduction, whole))]; world],
            Kind::Reduce(reduction) => {
                let total = reduced(reduction, whole);
                members
                    .map(|member| if member == root { vec![(0, total.clone())] } else { Vec::new() })
                    .collect()
            }
            Kind::ReduceScatter(reduction) => {
                members.map(|member| vec![(0, reduced(reduction, uniform(member)))]).collect()
            }
            Kind::ReduceScatterV(reduction) => {
                self.blocks(world).into_iter().map(|block| vec![(0, reduced(reduction, block))]).collect()
            }
            Kind::AllGather => {
                let all: Vec<ReceivedPiece> =
                    members.map(|from| (uniform(from).0 * size, cut(from, whole))).collect();
                vec![all; world]
            }
            Kind::AllGatherV => {
                let blocks = self.blocks(world).into_iter().enumerate();
                let all: Vec<ReceivedPiece> =
                    blocks.map(|(from, (at, count))| (at * size, cut(from, (0, count)))).collect();
                vec![all; world]
            }
            Kind::Broadcast => {
                let data = cut(root, whole);
                members
                    .map(|member| if member == root { Vec::new() } else { vec![(0, data.clone())] })
                    .collect()
            }
            Kind::Scatter => members.map(|member| vec![(0, cut(root, uniform(member)))]).collect(),
            Kind::AllToAll => members
                .map(|to| (0..world).map(|from| (uniform(from).0 * size, cut(from, uniform(to)))).collect())
                .collect(),
            Kind::AllToAllV | Kind::AllToAllVC => members
                .map(|to| {
                    let places = self.row(world, to, false).into_iter().enumerate();
                    places
                        .map(|(from, (at, _))| (at * size, cut(from, self.row(world, from, true)[to])))
                        .collect()
                })
                .collect(),
            Kind::SendRecv => {
                let receiver = self.receiver(world);
                let got = |member| if member == receiver { vec![(0, cut(root, whole))] } else { Vec::new() };
                members.map(got).collect()
            }
            Kind::Batch => {
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

    fn call(kind: Kind, count: u64) -> Call {
        Call { kind, element: Element::U8, count, root: 1, in_place: false, salt: 7 }
    }

    #[test]
    fn what_is_received_is_what_the_documents_say() {
        let sent = [vec![1, 2, 3, 4], vec![5, 6, 7, 8]];
        let results = |kind, count| call(kind, count).results(&sent);
        assert_eq!(results(Kind::AllReduce(Reduction::Sum), 4), vec![vec![(0, vec![6, 8, 10, 12])]; 2]);
        assert_eq!(results(Kind::Reduce(Reduction::Max), 4), [vec![], vec![(0, vec![5, 6, 7, 8])]]);
        assert_eq!(
            results(Kind::ReduceScatter(Reduction::Min), 2),
            [vec![(0, vec![1, 2])], vec![(0, vec![3, 4])]]
        );
        assert_eq!(results(Kind::AllGather, 4), vec![vec![(0, vec![1, 2, 3, 4]), (4, vec![5, 6, 7, 8])]; 2]);
        assert_eq!(results(Kind::Broadcast, 4), [vec![(0, vec![5, 6, 7, 8])], vec![]]);
        assert_eq!(results(Kind::Scatter, 2), [vec![(0, vec![5, 6])], vec![(0, vec![7, 8])]]);
        assert_eq!(results(Kind::AllToAll, 2)[1], [(0, vec![3, 4]), (2, vec![7, 8])]);
        assert_eq!(results(Kind::SendRecv, 4), [vec![(0, vec![5, 6, 7, 8])], vec![]]);
        assert_eq!(results(Kind::Batch, 4), [vec![(0, vec![5, 6, 7, 8])], vec![(0, vec![1, 2, 3, 4])]]);
    }

    #[test]
    fn nobody_receives_beyond_the_receive_buffer() {
        let kinds = [
            Kind::ReduceScatterV(Reduction::Sum),
            Kind::AllGatherV,
            Kind::AllToAllV,
            Kind::AllToAllVC,
            Kind::AllToAll,
            Kind::Barrier,
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
