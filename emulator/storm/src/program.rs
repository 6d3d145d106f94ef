//! A program: ranks, steps, and ending.
//!
//! `generate` creates programs, `shrink` shortens them. All ranks share one order of steps, so no
//! circular wait occurs. The order between streams follows from it (see `order`). Every sub-list of
//! the steps is therefore a program.

use std::collections::BTreeMap;

use crate::collective::StormCall;
use crate::probe::StormProbe;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferPlace {
    pub(crate) pool: u8,
    pub(crate) offset: u64,
}

impl BufferPlace {
    #[must_use]
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Self { pool: self.pool, offset: self.offset + bytes }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StormOperator {
    /// An `aclnnInplaceAdd` of `count` int32 elements.
    Add { count: u64 },
    /// The reduction `aclrtReduceAsync` of int32.
    ReduceAsync { count: u64 },
    /// `aclnnCast` from int32 to int64.
    Cast { count: u64 },
    /// `aclnnMatmul` of small whole numbers in fp32.
    Matmul {
        /// Rows, inner dim, columns.
        dims: [u64; 3],
    },
}

/// Step of one rank or of all ranks of a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StormStep {
    /// `aclrtMemsetAsync` of `bytes` bytes to `value`.
    Fill {
        rank: u32,
        /// Index of the rank's stream.
        stream: u8,
        at: BufferPlace,
        bytes: u64,
        value: u8,
    },
    /// `aclrtMemcpyAsync` from the host of bytes selected by `salt`.
    Load {
        rank: u32,
        /// Index of the rank's stream.
        stream: u8,
        at: BufferPlace,
        bytes: u64,
        salt: u64,
        /// With page-locked memory, the call returns before the bytes are read.
        is_pinned: bool,
    },
    /// `aclrtMemcpyAsync` on the card; `aclrtMemcpy2dAsync` for several rows.
    Copy {
        rank: u32,
        /// Index of the rank's stream.
        stream: u8,
        from: BufferPlace,
        to: BufferPlace,
        /// The row pitch is `width` in the source and `width + 64` in the destination.
        width: u64,
        rows: u64,
    },
    Compute {
        rank: u32,
        /// Index of the rank's stream.
        stream: u8,
        operator: StormOperator,
        from: [BufferPlace; 2],
        to: BufferPlace,
    },
    /// The host reads bytes back and compares them.
    Read { rank: u32, at: BufferPlace, bytes: u64 },
    /// The host waits for a stream.
    Wait {
        rank: u32,
        /// Index of the rank's stream.
        stream: u8,
        /// Index of the method to wait.
        way: u8,
    },
    /// A new stream replaces a destroyed one.
    Renew { rank: u32, stream: u8 },
    /// Ranks create a communicator.
    Join {
        comm: u32,
        /// World ranks in communicator order.
        ranks: Vec<u32>,
        /// Parent for `HcclCreateSubCommConfig`; `None` uses a root info.
        parent: Option<u32>,
    },
    /// The ranks destroy a communicator.
    Part { comm: u32 },
    /// The members call a collective.
    Collective {
        comm: u32,
        /// The collective that the members call.
        call: StormCall,
        /// Place of the send buffer.
        send: BufferPlace,
        recv: BufferPlace,
        /// Number of consecutive calls.
        times: u32,
    },
    /// Another rank reads an exported allocation through its key, while work on it may run.
    Share {
        rank: u32,
        at: BufferPlace,
        /// Size of the exported range.
        bytes: u64,
        reader: Option<u32>,
    },
    /// A rank runs a probe, which needs no other rank.
    Probe { rank: u32, probe: StormProbe },
    /// The first asynchronous collective on a new buffer, while the first of two ranks runs other
    /// work.
    Stall { ranks: Vec<u32> },
    /// Members wait until HCCL's limit for a member that does not call.
    Absent {
        /// The last rank does not call.
        ranks: Vec<u32>,
        /// Work before the collective, in milliseconds.
        work_ms: u64,
        /// Method with which the hosts wait.
        waiting: crate::probe::Waiting,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The ranks end normally.
    InOrder,
    /// A process destroys its communicators and ends; the others use them afterwards.
    Leaves { process: u32 },
    /// A process ends with its communicators.
    Quits { process: u32 },
    /// A process is killed while the others have queued this many collectives that it never
    /// executes.
    Dies {
        process: u32,
        queued: u32,
        /// The victim also calls them, after an endless wait.
        has_called: bool,
    },
}

/// Processes, machines and memory of the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Ranks per process; the first has rank 0.
    pub(crate) processes: Vec<Vec<u32>>,
    /// Data is transferred by TCP.
    pub(crate) by_tcp: bool,
    /// `None` is parallel mode.
    pub(crate) strict: Option<u64>,
    pub(crate) busy: u32,
    pub(crate) threads: usize,
    pub(crate) streams: u8,
    pub(crate) pools: u8,
    pub(crate) pool_bytes: u64,
    /// Limit `HCCL_EXEC_TIMEOUT`, in seconds.
    pub(crate) exec_limit_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StormProgram {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    pub(crate) steps: Vec<StormStep>,
    pub(crate) ending: Ending,
}

impl StormStep {
    /// Returns the ranks that execute the step, given the existing communicators.
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
            Self::Part { comm } | Self::Collective { comm, .. } => {
                comms.get(comm).cloned().unwrap_or_default()
            }
        }
    }
}

impl StormProgram {
    #[must_use]
    pub(crate) fn world(&self) -> u32 {
        self.setup.processes.iter().map(|ranks| ranks.len() as u32).sum()
    }

    /// Counts each step once per executing rank.
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

    /// Keeps the ranks below `world` and the valid steps in `keep`.
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
                StormStep::Join { ranks, parent, .. } => {
                    ranks.retain(|rank| *rank < world);
                    !ranks.is_empty() && parent.is_none_or(|parent| comms.contains_key(&parent))
                }
                StormStep::Absent { ranks, .. } | StormStep::Stall { ranks } => {
                    ranks.retain(|rank| *rank < world);
                    ranks.len() > 1
                }
                StormStep::Part { comm } => comms.contains_key(comm),
                StormStep::Collective { comm, call, .. } => comms.get(comm).is_some_and(|ranks| {
                    ranks.len() > 1 || call.kind != crate::collective::StormCollective::SendRecv
                }),
                StormStep::Share { rank, reader, .. } => {
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

pub(crate) fn note_comm(comms: &mut BTreeMap<u32, Vec<u32>>, step: &StormStep) {
    if let StormStep::Join { comm, ranks, .. } = step {
        comms.insert(*comm, ranks.clone());
    }
}

/// Returns the stream of a rank for a communicator's collectives.
#[must_use]
pub(crate) const fn home_stream(comm: u32, rank: u32, streams: u8) -> u8 {
    ((comm + rank / 2) % streams as u32) as u8
}
