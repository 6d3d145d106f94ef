//! A uniform call of every HCCL function that transfers data.

use std::ffi::c_void;

use ascend_tp_sys::{HcclComm, HcclDataType, HcclReduceOp, HcclResult, HcclSendRecvItem, HcclSendRecvType};

use super::{Card, call};

/// `count` elements per rank, contiguous.
#[derive(Clone, Copy)]
pub(crate) struct Args {
    pub(crate) send: *mut c_void,
    pub(crate) recv: *mut c_void,
    pub(crate) count: u64,
    pub(crate) dtype: HcclDataType,
    pub(crate) op: HcclReduceOp,
    /// Root, or the peer of a transfer.
    pub(crate) other: u32,
}

/// Sums in place over the ranks.
pub(crate) fn sum(
    card: &Card<'_>,
    comm: HcclComm,
    buffer: *mut c_void,
    dtype: HcclDataType,
    count: u64,
) -> HcclResult {
    card.enter();
    let sum = HcclReduceOp::HCCL_REDUCE_SUM;
    call!(card.table, HcclAllReduce(buffer, buffer, count, dtype, sum, comm, card.stream))
}

/// Returns a value that is exact in every type, also summed over nine ranks.
pub(crate) fn value(rank: usize, i: usize) -> i64 {
    ((i * 7 + rank * 3) % 11) as i64 - 5
}

fn factor(rank: usize, i: usize) -> i64 {
    [1, -1, 2, 1, 1][(i + rank) % 5]
}

/// Returns element `i` of a rank's operand. Products have small factors.
pub(crate) fn contribution(op: Option<HcclReduceOp>, rank: usize, i: usize) -> i64 {
    if op == Some(HcclReduceOp::HCCL_REDUCE_PROD) { factor(rank, i) } else { value(rank, i) }
}

pub(crate) fn reduced(op: HcclReduceOp, world: usize, i: usize) -> i64 {
    let all = (0..world).map(|rank| contribution(Some(op), rank, i));
    match op {
        HcclReduceOp::HCCL_REDUCE_SUM => all.sum(),
        HcclReduceOp::HCCL_REDUCE_PROD => all.product(),
        HcclReduceOp::HCCL_REDUCE_MAX => all.max().unwrap_or_default(),
        HcclReduceOp::HCCL_REDUCE_MIN => all.min().unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

/// Returns element `i` that one rank sends to another.
pub(crate) fn addressed(from: usize, to: usize, i: usize) -> i64 {
    ((from * 31 + to * 7 + i) % 100) as i64
}

pub(crate) fn invoke(
    function: &str,
    card: &Card<'_>,
    comm: HcclComm,
    rank: usize,
    world: usize,
    args: Args,
) -> HcclResult {
    let Args { send, recv, count, dtype, op, other } = args;
    let (table, stream) = (card.table, card.stream);
    card.enter();
    let counts = vec![count; world];
    let displs: Vec<u64> = (0..world as u64).map(|rank| rank * count).collect();
    let matrix = vec![count; world * world];
    let (counts, displs, matrix) = (counts.as_ptr().cast(), displs.as_ptr().cast(), matrix.as_ptr().cast());
    match function {
        "HcclAllReduce" => call!(table, HcclAllReduce(send, recv, count, dtype, op, comm, stream)),
        "HcclReduce" => call!(table, HcclReduce(send, recv, count, dtype, op, other, comm, stream)),
        "HcclReduceScatter" => call!(table, HcclReduceScatter(send, recv, count, dtype, op, comm, stream)),
        "HcclReduceScatterV" => {
            call!(table, HcclReduceScatterV(send, counts, displs, recv, count, dtype, op, comm, stream))
        }
        "HcclBroadcast" => call!(table, HcclBroadcast(send, count, dtype, other, comm, stream)),
        "HcclScatter" => call!(table, HcclScatter(send, recv, count, dtype, other, comm, stream)),
        "HcclAllGather" => call!(table, HcclAllGather(send, recv, count, dtype, comm, stream)),
        "HcclAllGatherV" => {
            call!(table, HcclAllGatherV(send, count, recv, counts, displs, dtype, comm, stream))
        }
        "HcclAlltoAll" => call!(table, HcclAlltoAll(send, count, dtype, recv, count, dtype, comm, stream)),
        "HcclAlltoAllV" => {
            call!(
                table,
                HcclAlltoAllV(send, counts, displs, dtype, recv, counts, displs, dtype, comm, stream)
            )
        }
        "HcclAlltoAllVC" => {
            let function = table.HcclAlltoAllVC.expect("modelled");
            // SAFETY: live handles, buffers of the required sizes, and a matrix of world x world
            // counts.
            unsafe { function(send, matrix, dtype, recv, dtype, comm, stream) }
        }
        "HcclSend" => call!(table, HcclSend(send, count, dtype, other, comm, stream)),
        "HcclRecv" => call!(table, HcclRecv(recv, count, dtype, other, comm, stream)),
        "HcclBatchSendRecv" => {
            let item = |kind, buf| HcclSendRecvItem {
                sendRecvType: kind,
                buf,
                count,
                dataType: dtype,
                remoteRank: other,
            };
            let mut items =
                [item(HcclSendRecvType::HCCL_SEND, send), item(HcclSendRecvType::HCCL_RECV, recv)];
            call!(table, HcclBatchSendRecv(items.as_mut_ptr(), 2, comm, stream))
        }
        "HcclBarrier" => call!(table, HcclBarrier(comm, stream)),
        other => panic!("rank {rank}: no way to call {other}"),
    }
}
