//! A program: who takes part, what they do step by step, and how it ends.
//!
//! Input: made by `generate`, cut by `shrink`. Output: data that the oracle computes and the ranks run. Invariants: steps stand
//! in one order for all ranks, and each rank does its own in that order, so nothing can wait in a circle; what orders the
//! bytes of different streams is not part of a program but follows from it (see `order`), so that every sub-list of the
//! steps of a program is a program.

use std::collections::BTreeMap;

use crate::collective::Call;
use crate::probe::Probe;

/// A place in the memory of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferPlace {
    /// Which of its allocations.
    pub(crate) pool: u8,
    /// Bytes from the start of it.
    pub(crate) offset: u64,
}

impl BufferPlace {
    /// The place `bytes` further on.
    #[must_use]
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Self { pool: self.pool, offset: self.offset + bytes }
    }
}

/// What an operator computes, all of it on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `aclnnInplaceAdd` of int32.
    Add { count: u64 },
    /// `aclrtReduceAsync` of int32.
    ReduceAsync { count: u64 },
    /// `aclnnCast` from int32 to int64.
    Cast { count: u64 },
    /// `aclnnMatmul` of small whole numbers in fp32, which are loaded first.
    Matmul {
        /// Rows, inner dim, columns.
        dims: [u64; 3],
    },
}

/// One step; `rank` does it, or all ranks of a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// `aclrtMemsetAsync` of `bytes` bytes to `value`.
    Fill {
        rank: u32,
        /// On which of its streams.
        stream: u8,
        at: BufferPlace,
        bytes: u64,
        value: u8,
    },
    /// `aclrtMemcpyAsync` of bytes that `salt` names from the host.
    Load {
        rank: u32,
        /// On which of its streams.
        stream: u8,
        at: BufferPlace,
        bytes: u64,
        /// Names the bytes.
        salt: u64,
        /// From page-locked memory, so that the call returns before the bytes are read.
        is_pinned: bool,
    },
    /// `aclrtMemcpyAsync` or, of several rows, `aclrtMemcpy2dAsync` on the card.
    Copy {
        rank: u32,
        /// On which of its streams.
        stream: u8,
        from: BufferPlace,
        to: BufferPlace,
        /// Bytes of a row; rows of the source lie `width` apart, those of the destination `width + 64`.
        width: u64,
        rows: u64,
    },
    Compute {
        rank: u32,
        /// On which of its streams.
        stream: u8,
        operator: Operator,
        from: [BufferPlace; 2],
        to: BufferPlace,
    },
    /// The host reads bytes back, which are compared.
    Read { rank: u32, at: BufferPlace, bytes: u64 },
    /// The host waits for a stream, in one of several ways.
    Wait {
        rank: u32,
        /// For which of its streams.
        stream: u8,
        /// Picks the way.
        way: u8,
    },
    /// A stream is destroyed in order and another made in its place.
    Renew { rank: u32, stream: u8 },
    /// Ranks make a communicator.
    Join {
        comm: u32,
        /// Its ranks, in order.
        ranks: Vec<u32>,
        /// Made by `HcclCreateSubCommConfig` of this one; else by a root info.
        parent: Option<u32>,
    },
    /// The ranks of a communicator destroy it.
    Part { comm: u32 },
    /// All members of a communicator call a collective.
    Collective {
        comm: u32,
        /// What they call.
        call: Call,
        /// Where they send from.
        send: BufferPlace,
        /// Where they receive.
        recv: BufferPlace,
        /// How often in a row.
        times: u32,
    },
    /// An allocation is exported by key while work on it may run; another rank reads it through the key.
    Share {
        rank: u32,
        at: BufferPlace,
        /// How many bytes.
        bytes: u64,
        reader: Option<u32>,
    },
    /// A rank tries something that needs no other rank and says itself whether it went as documented.
    Probe { rank: u32, probe: Probe },
    /// The first asynchronous collective on a fresh buffer while the first of two ranks has work running elsewhere.
    Stall { ranks: Vec<u32> },
    /// Members of a fresh communicator wait for one that does not call, until HCCL's limit.
    Absent {
        /// Its ranks; the last does not call.
        ranks: Vec<u32>,
        /// Milliseconds of work that stands before the collective.
        work_ms: u64,
        /// How the hosts wait.
        waiting: crate::probe::Waiting,
    },
}

/// How a program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All ranks end in order.
    InOrder,
    /// A process destroys its communicators and ends; the others call it afterwards.
    Leaves { process: u32 },
    /// A process ends without destroying its communicators.
    Quits { process: u32 },
    /// A process is killed while the others have so many collectives queued that it does not come to.
    Dies {
        process: u32,
        queued: u32,
        /// It has called them too, behind a wait that does not end.
        has_called: bool,
    },
}

/// Processes, their machines and the memory of their ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The ranks of each process, rank 0 in the first.
    pub(crate) processes: Vec<Vec<u32>>,
    /// Data goes by TCP.
    pub(crate) by_tcp: bool,
    /// Strict mode with this seed; else parallel mode.
    pub(crate) strict: Option<u64>,
    /// Threads that load the cores meanwhile.
    pub(crate) busy: u32,
    /// Threads of each machine.
    pub(crate) threads: usize,
    /// Streams of each rank.
    pub(crate) streams: u8,
    /// Allocations of each rank.
    pub(crate) pools: u8,
    /// Bytes of each.
    pub(crate) pool_bytes: u64,
    /// `HCCL_EXEC_TIMEOUT` in seconds.
    pub(crate) exec_limit_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    /// Who takes part.
    pub(crate) setup: Setup,
    /// What they do.
    pub(crate) steps: Vec<Step>,
    /// How it ends.
    pub(crate) ending: Ending,
}

impl Step {
    /// The ranks that do it, given the communicators there are.
    #[must_use]
    pub(crate) fn ranks(&self, comms: &BTreeMap<u32, Vec<u32>>) -> Vec<u32> {
        match self {
            Self::Fill { rank, .. }
            | Self::Load { rank, .. }
            | Self::Copy { rank, .. }
            | Self::Compute { rank, .. }
            | Self::Read { rank, .. }
            | Self::Wait { rank, .. }
            | Self::Renew { rank, .. }
            | Self::Probe { rank, .. } => vec![*rank],
            Self::Share { rank, reader, .. } => [*rank].into_iter().chain(*reader).collect(),
            Self::Join { ranks, .. } | Self::Absent { ranks, .. } | Self::Stall { ranks } => ranks.clone(),
            Self::Part { comm } | Self::Collective { comm, .. } => comms.get(comm).cloned().unwrap_or_default(),
        }
    }
}

impl Program {
    /// Number of ranks.
    #[must_use]
    pub(crate) fn world(&self) -> u32 {
        self.setup.processes.iter().map(|ranks| ranks.len() as u32).sum()
    }

    /// Steps, each counted for every rank that does it.
    #[must_use]
    pub(crate) fn size(&self) -> u64 {
        let mut comms = BTreeMap::new();
        let mut size = 0;
        for step in &self.steps {
            note_comm(&mut comms, step);
            size += step.ranks(&comms).len() as u64;
        }
        size
    }

    /// The program with only the ranks below `world` and only the steps at `keep` that still make sense.
    #[must_use]
    pub(crate) fn cut(&self, world: u32, keep: &[usize]) -> Self {
        let mut cut = self.clone();
        for ranks in &mut cut.setup.processes {
            ranks.retain(|rank| *rank < world);
        }
        cut.setup.processes.retain(|ranks| !ranks.is_empty());
        let mut comms: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        cut.steps = Vec::new();
        for at in keep {
            let Some(mut step) = self.steps.get(*at).cloned() else { continue };
            let makes_sense = match &mut step {
                Step::Join { ranks, parent, .. } => {
                    ranks.retain(|rank| *rank < world);
                    // A sub-communicator is made from the one it was cut out of, or not at all.
                    !ranks.is_empty() && parent.is_none_or(|parent| comms.contains_key(&parent))
                }
                Step::Absent { ranks, .. } | Step::Stall { ranks } => {
                    ranks.retain(|rank| *rank < world);
                    ranks.len() > 1
                }
                Step::Part { comm } => comms.contains_key(comm),
                Step::Collective { comm, call, .. } => comms
                    .get(comm)
                    .is_some_and(|ranks| ranks.len() > 1 || call.kind != crate::collective::Kind::SendRecv),
                Step::Share { rank, reader, .. } => {
                    *reader = reader.filter(|reader| *reader < world);
                    *rank < world
                }
                other => other.ranks(&comms).iter().all(|rank| *rank < world),
            };
            if makes_sense {
                note_comm(&mut comms, &step);
                cut.steps.push(step);
            }
        }
        let last = cut.setup.processes.len() as u32 - 1;
        cut.ending = match self.ending {
            Ending::InOrder => Ending::InOrder,
            _ if last == 0 => Ending::InOrder,
            Ending::Leaves { process } => Ending::Leaves { process: process.min(last) },
            Ending::Quits { process } => Ending::Quits { process: process.min(last) },
            Ending::Dies { process, queued, has_called } => {
                Ending::Dies { process: process.min(last), queued, has_called }
            }
        };
        cut
    }
}

/// Keeps account of the communicators there are.
pub(crate) fn note_comm(comms: &mut BTreeMap<u32, Vec<u32>>, step: &Step) {
    if let Step::Join { comm, ranks, .. } = step {
        comms.insert(*comm, ranks.clone());
    }
}

/// The stream on which a rank calls the collectives of a communicator.
#[must_use]
pub(crate) const fn home_stream(comm: u32, rank: u32, streams: u8) -> u8 {
    ((comm + rank / 2) % streams as u32) as u8
}
