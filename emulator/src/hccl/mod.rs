//! HCCL's collectives: calls, matching across ranks, and data transfer.
//!
//! Modules, in reading order:
//! - [`rendezvous`] gathers the ranks that hold one root info or one rank table.
//! - [`communicator`] holds ranks, devices and counts of calls; `lifecycle` creates and destroys
//!   them.
//! - [`matching`] compares the calls of all ranks; `progress` launches a complete matching.
//! - [`transfer`] copies and reduces: `local` with all buffers in reach, `tcp` between hosts.
//! - [`peer`] applies what ranks in other processes do. A communicator exchanges calls through
//!   [`shared_memory`] or [`tcp`], chosen when it is created ([`communicator::ChosenTransport`]).
//!
//! Invariants:
//! - Reductions run over ranks 0, 1, 2, … with one rounding at the end.
//! - A disagreement is an error on every rank, never a hang.
//!
//! Not here: pointer checks (see `abi::hccl`).

pub(crate) mod communicator;
pub(crate) mod key;
pub(crate) mod lifecycle;
pub(crate) mod matching;
pub(crate) mod peer;
mod progress;
pub(crate) mod rank_location;
pub(crate) mod rendezvous;
pub(crate) mod rules;
pub(crate) mod shared_memory;
pub(crate) mod state;
pub(crate) mod tcp;
pub(crate) mod transfer;

use std::fmt;

pub(crate) use ascend_tp_emulator_operators::combine::CombineOp;
use ascend_tp_sys::{HcclDataType, HcclReduceOp};
use serde::{Deserialize, Serialize};

use crate::base::failure::{Failure, code};
use crate::memory::access::MemoryAccess;
use crate::memory::footprint::Footprint;
use crate::memory::place::PeerBuffer;
use crate::memory::raw::RawSpan;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DataType {
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Fp16,
    Fp32,
    Fp64,
    Bf16,
}

impl DataType {
    /// HCCL's numbering differs from AscendCL's.
    ///
    /// Fails for types that no modelled chip supports.
    pub(crate) fn parse(value: HcclDataType) -> Result<Self, Failure> {
        Ok(match value {
            HcclDataType::HCCL_DATA_TYPE_INT8 => Self::Int8,
            HcclDataType::HCCL_DATA_TYPE_INT16 => Self::Int16,
            HcclDataType::HCCL_DATA_TYPE_INT32 => Self::Int32,
            HcclDataType::HCCL_DATA_TYPE_INT64 => Self::Int64,
            HcclDataType::HCCL_DATA_TYPE_UINT8 => Self::Uint8,
            HcclDataType::HCCL_DATA_TYPE_UINT16 => Self::Uint16,
            HcclDataType::HCCL_DATA_TYPE_UINT32 => Self::Uint32,
            HcclDataType::HCCL_DATA_TYPE_UINT64 => Self::Uint64,
            HcclDataType::HCCL_DATA_TYPE_FP16 => Self::Fp16,
            HcclDataType::HCCL_DATA_TYPE_FP32 => Self::Fp32,
            HcclDataType::HCCL_DATA_TYPE_FP64 => Self::Fp64,
            HcclDataType::HCCL_DATA_TYPE_BFP16 => Self::Bf16,
            other => {
                let what = format!(
                    "data type {} is not one that cards exchange (int8 to int64, uint8 to uint64, fp16, fp32, \
                     fp64, bfp16)",
                    other.0
                );
                return Err(Failure::new(code::HCCL_NOT_SUPPORT, what));
            }
        })
    }

    pub(crate) fn size_bytes(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Int32 | Self::Uint32 | Self::Fp32 => 4,
            Self::Int64 | Self::Uint64 | Self::Fp64 => 8,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Uint16 => "uint16",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Fp16 => "fp16",
            Self::Fp32 => "fp32",
            Self::Fp64 => "fp64",
            Self::Bf16 => "bfp16",
        })
    }
}

pub(crate) fn parse_reduce_op(value: HcclReduceOp) -> Result<CombineOp, Failure> {
    match value {
        HcclReduceOp::HCCL_REDUCE_SUM => Ok(CombineOp::Sum),
        HcclReduceOp::HCCL_REDUCE_PROD => Ok(CombineOp::Prod),
        HcclReduceOp::HCCL_REDUCE_MAX => Ok(CombineOp::Max),
        HcclReduceOp::HCCL_REDUCE_MIN => Ok(CombineOp::Min),
        other => {
            let what = format!("reduce operation {} is none of sum 0, prod 1, max 2, min 3", other.0);
            Err(Failure::new(code::HCCL_PARA, what))
        }
    }
}

/// Blocks of all ranks in a buffer, in elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Blocks {
    /// Equal contiguous blocks of this many elements.
    Uniform(u64),
    /// Displacement and count per rank.
    Listed(Vec<(u64, u64)>),
}

impl Blocks {
    pub(crate) fn at(&self, rank: usize) -> (u64, u64) {
        match self {
            Self::Uniform(count) => (rank as u64 * count, *count),
            Self::Listed(blocks) => blocks[rank],
        }
    }

    /// Returns the number of elements that hold every block. `None` on overflow.
    pub(crate) fn extent(&self, world: usize) -> Option<u64> {
        let mut extent = 0_u64;
        for rank in 0..world {
            let (displacement, count) = match self {
                Self::Uniform(count) => (count.checked_mul(rank as u64)?, *count),
                Self::Listed(blocks) => blocks[rank],
            };
            if count > 0 {
                extent = extent.max(displacement.checked_add(count)?);
            }
        }
        Some(extent)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CollectiveOperation {
    AllReduce { count: u64, op: CombineOp },
    Reduce { count: u64, op: CombineOp, root: u32 },
    ReduceScatter { blocks: Blocks, op: CombineOp },
    AllGather { blocks: Blocks },
    Broadcast { count: u64, root: u32 },
    Scatter { count: u64, root: u32 },
    AllToAll { send: Blocks, recv: Blocks },
    Barrier,
    Send { count: u64, to: u32 },
    Recv { count: u64, from: u32 },
}

/// Includes the aclnn operators that fuse communication with computation.
pub(crate) const FUNCTIONS: &[&str] = &[
    "HcclAllReduce",
    "HcclReduce",
    "HcclReduceScatter",
    "HcclReduceScatterV",
    "HcclAllGather",
    "HcclAllGatherV",
    "HcclBroadcast",
    "HcclScatter",
    "HcclAlltoAll",
    "HcclAlltoAllV",
    "HcclAlltoAllVC",
    "HcclBarrier",
    "HcclSend",
    "HcclRecv",
    BATCH,
    "aclnnMatmulAllReduce",
    "aclnnMatmulAllReduceV2",
    "aclnnQuantMatmulAllReduce",
    "aclnnQuantMatmulAllReduceV2",
    "aclnnQuantMatmulAllReduceV3",
    "aclnnWeightQuantMatmulAllReduce",
    "aclnnAllGatherMatmul",
    "aclnnMatmulReduceScatter",
    "aclnnMoeDistributeDispatch",
    "aclnnMoeDistributeDispatchV2",
    "aclnnMoeDistributeCombine",
    "aclnnMoeDistributeCombineV2",
    "aclnnMoeDistributeCombineAddRmsNorm",
];

/// Sends and receives of a batch match only each other.
const BATCH: &str = "HcclBatchSendRecv";

#[derive(Debug, Clone)]
pub(crate) struct CollectiveCall {
    pub(crate) name: &'static str,
    pub(crate) kind: CollectiveOperation,
    pub(crate) dtype: DataType,
    /// `None` if this rank contributes nothing.
    pub(crate) send: Option<RawSpan>,
    /// `None` if this rank receives nothing.
    pub(crate) recv: Option<RawSpan>,
    /// Buffer locations for other processes of this host. `None` if they cannot reach the buffers.
    pub(crate) places: Option<Places>,
    /// Duration of the fused matrix product, in timed mode. 0 without a product.
    pub(crate) product_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    pub(crate) send: Option<PeerBuffer>,
    pub(crate) recv: Option<PeerBuffer>,
}

impl CollectiveCall {
    pub(crate) fn accesses(&self) -> Vec<MemoryAccess> {
        let (send_name, recv_name) = match self.kind {
            CollectiveOperation::Broadcast { .. } => ("buf", "buf"),
            _ => ("send_buf", "recv_buf"),
        };
        let (sent, received) = match &self.kind {
            CollectiveOperation::ReduceScatter { blocks, .. } => (Some(blocks), None),
            CollectiveOperation::AllGather { blocks } => (None, Some(blocks)),
            CollectiveOperation::AllToAll { send, recv } => (Some(send), Some(recv)),
            _ => (None, None),
        };
        let parts = |access: MemoryAccess, blocks: Option<&Blocks>| match blocks {
            Some(Blocks::Listed(blocks)) => access.within(Some(self.footprint(blocks))),
            _ => access,
        };
        let send = self.send.as_ref().map(|span| parts(MemoryAccess::read(send_name, span), sent));
        let recv = self.recv.as_ref().map(|span| parts(MemoryAccess::write(recv_name, span), received));
        send.into_iter().chain(recv).collect()
    }

    fn footprint(&self, blocks: &[(u64, u64)]) -> Footprint {
        let element = self.dtype.size_bytes();
        Footprint::lines(blocks.iter().map(|(displacement, count)| {
            let start = *displacement as usize * element;
            start..start + *count as usize * element
        }))
    }

    /// Every pair of ranks must be compared if each has its own sizes.
    pub(crate) fn is_pairwise(&self) -> bool {
        matches!(self.kind, CollectiveOperation::AllToAll { .. })
    }

    pub(crate) fn agrees(&self, rank: u32, other: &Self, other_rank: u32) -> bool {
        if self.dtype != other.dtype {
            return false;
        }
        if let (CollectiveOperation::Send { count: a, .. }, CollectiveOperation::Recv { count: b, .. })
        | (CollectiveOperation::Recv { count: a, .. }, CollectiveOperation::Send { count: b, .. }) =
            (&self.kind, &other.kind)
        {
            return a == b && (self.name == BATCH) == (other.name == BATCH);
        }
        if self.name != other.name {
            return false;
        }
        match (&self.kind, &other.kind) {
            (
                CollectiveOperation::AllToAll { send, recv },
                CollectiveOperation::AllToAll { send: other_send, recv: other_recv },
            ) => {
                send.at(other_rank as usize).1 == other_recv.at(rank as usize).1
                    && recv.at(other_rank as usize).1 == other_send.at(rank as usize).1
            }
            (kind, other_kind) => kind == other_kind,
        }
    }
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, dtype) = (self.name, self.dtype);
        match &self.kind {
            CollectiveOperation::AllReduce { count, op } => write!(f, "{name}(count {count}, {dtype}, {op})"),
            CollectiveOperation::Reduce { count, op, root } => {
                write!(f, "{name}(count {count}, {dtype}, {op}, root {root})")
            }
            CollectiveOperation::ReduceScatter { blocks, op } => write!(f, "{name}({blocks}, {dtype}, {op})"),
            CollectiveOperation::AllGather { blocks } => write!(f, "{name}({blocks}, {dtype})"),
            CollectiveOperation::Broadcast { count, root } | CollectiveOperation::Scatter { count, root } => {
                write!(f, "{name}(count {count}, {dtype}, root {root})")
            }
            CollectiveOperation::AllToAll { send, recv } => {
                write!(f, "{name}(send {send}, receive {recv}, {dtype})")
            }
            CollectiveOperation::Barrier => write!(f, "{name}()"),
            CollectiveOperation::Send { count, to } => {
                write!(f, "{name}(count {count}, {dtype}, to rank {to})")
            }
            CollectiveOperation::Recv { count, from } => {
                write!(f, "{name}(count {count}, {dtype}, from rank {from})")
            }
        }
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(count) => write!(f, "count {count}"),
            Self::Listed(blocks) => {
                let counts: Vec<u64> = blocks.iter().map(|(_, count)| *count).collect();
                let displacements: Vec<u64> = blocks.iter().map(|(displacement, _)| *displacement).collect();
                write!(f, "counts {counts:?} at {displacements:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &'static str, kind: CollectiveOperation, dtype: DataType) -> CollectiveCall {
        CollectiveCall { name, kind, dtype, send: None, recv: None, places: None, product_ns: 0 }
    }

    #[test]
    fn calls_agree_only_when_everything_does() {
        let sum = |count| {
            call(
                "HcclAllReduce",
                CollectiveOperation::AllReduce { count, op: CombineOp::Sum },
                DataType::Fp32,
            )
        };
        assert!(sum(4).agrees(0, &sum(4), 1));
        assert!(!sum(4).agrees(0, &sum(5), 1));
        let max = call(
            "HcclAllReduce",
            CollectiveOperation::AllReduce { count: 4, op: CombineOp::Max },
            DataType::Fp32,
        );
        assert!(!sum(4).agrees(0, &max, 1));
        let half = call(
            "HcclAllReduce",
            CollectiveOperation::AllReduce { count: 4, op: CombineOp::Sum },
            DataType::Fp16,
        );
        assert!(!sum(4).agrees(0, &half, 1));
    }

    #[test]
    fn all_to_all_agrees_pairwise() {
        let with = |send: [u64; 2], recv: [u64; 2]| {
            let blocks = |counts: [u64; 2]| Blocks::Listed(counts.iter().map(|count| (0, *count)).collect());
            call(
                "HcclAlltoAllV",
                CollectiveOperation::AllToAll { send: blocks(send), recv: blocks(recv) },
                DataType::Int8,
            )
        };
        assert!(with([1, 2], [1, 3]).agrees(0, &with([3, 4], [2, 4]), 1));
        assert!(!with([1, 2], [1, 3]).agrees(0, &with([3, 4], [5, 4]), 1));
    }

    #[test]
    fn blocks_extend_to_their_furthest_end() {
        assert_eq!(Blocks::Uniform(3).extent(4), Some(12));
        assert_eq!(Blocks::Listed(vec![(10, 2), (0, 5), (99, 0)]).extent(3), Some(12));
        assert_eq!(Blocks::Uniform(u64::MAX).extent(3), None);
    }

    #[test]
    fn unknown_numbers_are_refused() {
        assert!(DataType::parse(HcclDataType(12)).is_err() && parse_reduce_op(HcclReduceOp(4)).is_err());
    }

    #[test]
    fn a_call_prints_what_it_asks_for() {
        let scatter = call(
            "HcclReduceScatterV",
            CollectiveOperation::ReduceScatter {
                blocks: Blocks::Listed(vec![(0, 3), (3, 4)]),
                op: CombineOp::Min,
            },
            DataType::Bf16,
        );
        assert_eq!(scatter.to_string(), "HcclReduceScatterV(counts [3, 4] at [0, 3], bfp16, min)");
    }
}
