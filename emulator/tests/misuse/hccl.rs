//! Misuse of HCCL: arguments, mismatched calls, absent ranks.

use std::ptr::null_mut;

use ascend_tp_sys::{
    HcclComm, HcclConfig, HcclConfigValue, HcclDataType, HcclReduceOp, HcclRootInfo, HcclSendRecvItem,
    HcclSendRecvType,
};

use super::Case;
use super::bench::{Bench, c};

const FP32: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;
const FP64: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP64;
const BF16: HcclDataType = HcclDataType::HCCL_DATA_TYPE_BFP16;
const SUM: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_SUM;
const MAX: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_MAX;
const PROD: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_PROD;

fn all_reduce(
    b: &Bench<'_>,
    rank: usize,
    comm: HcclComm,
    count: u64,
    dtype: HcclDataType,
    op: HcclReduceOp,
) -> i64 {
    b.cards[rank].enter();
    let (buffer, stream) = (b.buffers[rank], b.cards[rank].stream);
    c!(b, HcclAllReduce(buffer, buffer, count, dtype, op, comm, stream))
}

/// Rank 0 sums 4 fp32 values, rank 1 calls `odd`.
fn against(b: &Bench<'_>, odd: impl Fn(HcclComm) -> i64) -> i64 {
    let comms = b.comms();
    assert_eq!(all_reduce(b, 0, comms[0], 4, FP32, SUM), 0);
    b.cards[1].enter();
    odd(comms[1])
}

fn item(b: &Bench<'_>, kind: u32, remote: u32) -> HcclSendRecvItem {
    let sendRecvType = HcclSendRecvType(kind);
    HcclSendRecvItem { sendRecvType, buf: b.at(0), count: 4, dataType: FP32, remoteRank: remote }
}

pub(crate) const CASES: &[Case] = &[
    ("a communicator of no ranks", |b| {
        c!(b, HcclCommInitAll(0, [0].as_mut_ptr(), [null_mut()].as_mut_ptr()))
    }),
    ("a communicator with a card twice", |b| {
        c!(b, HcclCommInitAll(2, [1, 1].as_mut_ptr(), [null_mut(); 2].as_mut_ptr()))
    }),
    ("a communicator with a card that does not exist", |b| {
        c!(b, HcclCommInitAll(2, [0, 5].as_mut_ptr(), [null_mut(); 2].as_mut_ptr()))
    }),
    ("a communicator with nowhere to put its handles", |b| {
        c!(b, HcclCommInitAll(1, [0].as_mut_ptr(), null_mut()))
    }),
    ("a rank beyond the world", |b| {
        let (mut info, mut comm) = (HcclRootInfo { internal: [0; 4108] }, null_mut());
        c!(b, HcclGetRootInfo(&raw mut info));
        c!(b, HcclCommInitRootInfo(2, &raw const info, 2, &raw mut comm))
    }),
    ("a root info that nobody made", |b| {
        let (info, mut comm) = (HcclRootInfo { internal: [7; 4108] }, null_mut());
        c!(b, HcclCommInitRootInfo(2, &raw const info, 0, &raw mut comm))
    }),
    ("no root info", |b| {
        let mut comm = null_mut();
        c!(b, HcclCommInitRootInfo(2, std::ptr::null(), 0, &raw mut comm))
    }),
    ("determinism that does not exist", |b| {
        c!(b, HcclSetConfig(HcclConfig::HCCL_DETERMINISTIC, HcclConfigValue { value: 3 }))
    }),
    ("a setting that does not exist", |b| c!(b, HcclSetConfig(HcclConfig(4), HcclConfigValue { value: 1 }))),
    ("no communicator", |b| all_reduce(b, 0, null_mut(), 4, FP32, SUM)),
    ("a communicator that is a stream", |b| all_reduce(b, 0, b.stream(), 4, FP32, SUM)),
    ("a communicator that is destroyed", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclCommDestroy(comm));
        all_reduce(b, 0, comm, 4, FP32, SUM)
    }),
    ("a communicator destroyed twice", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclCommDestroy(comm));
        c!(b, HcclCommDestroy(comm))
    }),
    ("no stream", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAllReduce(b.at(0), b.at(0), 4, FP32, SUM, comm, null_mut()))
    }),
    ("a stream of another card", |b| {
        let [comm, _] = b.comms();
        b.cards[1].enter();
        c!(b, HcclAllReduce(b.at(0), b.at(0), 4, FP32, SUM, comm, b.cards[1].stream))
    }),
    ("no send buffer", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAllReduce(null_mut(), b.at(0), 4, FP32, SUM, comm, b.stream()))
    }),
    ("no receive buffer", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAllReduce(b.at(0), null_mut(), 4, FP32, SUM, comm, b.stream()))
    }),
    ("a send buffer on the host", |b| {
        let ([comm, _], mut host) = (b.comms(), [0_f32; 4]);
        c!(b, HcclAllReduce(host.as_mut_ptr().cast(), b.at(0), 4, FP32, SUM, comm, b.stream()))
    }),
    ("a send buffer on another card", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAllReduce(b.buffers[1], b.at(0), 4, FP32, SUM, comm, b.stream()))
    }),
    ("a buffer that is too small", |b| {
        let [comm, _] = b.comms();
        all_reduce(b, 0, comm, 257, FP32, SUM)
    }),
    ("more elements than there are addresses", |b| {
        let [comm, _] = b.comms();
        all_reduce(b, 0, comm, u64::MAX, FP32, SUM)
    }),
    ("a buffer that is not aligned", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAllReduce(b.at(2), b.at(512), 4, FP32, SUM, comm, b.stream()))
    }),
    ("buffers that overlap", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAllReduce(b.at(0), b.at(8), 4, FP32, SUM, comm, b.stream()))
    }),
    ("an exchange in place", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAlltoAll(b.at(0), 4, FP32, b.at(0), 4, FP32, comm, b.stream()))
    }),
    ("an exchange of unequal types", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAlltoAll(b.at(0), 4, FP32, b.at(512), 4, BF16, comm, b.stream()))
    }),
    ("an exchange of unequal counts", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclAlltoAll(b.at(0), 4, FP32, b.at(512), 5, FP32, comm, b.stream()))
    }),
    ("a type that is not reduced", |b| {
        let [comm, _] = b.comms();
        all_reduce(b, 0, comm, 4, FP64, SUM)
    }),
    ("a product that is not offered", |b| {
        let [comm, _] = b.comms();
        all_reduce(b, 0, comm, 4, BF16, PROD)
    }),
    ("a type that does not exist", |b| {
        let [comm, _] = b.comms();
        all_reduce(b, 0, comm, 4, HcclDataType(99), SUM)
    }),
    ("a reduction that does not exist", |b| {
        let [comm, _] = b.comms();
        all_reduce(b, 0, comm, 4, FP32, HcclReduceOp(7))
    }),
    ("a root beyond the world", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclBroadcast(b.at(0), 4, FP32, 2, comm, b.stream()))
    }),
    ("a send to itself", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclSend(b.at(0), 4, FP32, 0, comm, b.stream()))
    }),
    ("a count that contradicts its array", |b| {
        let ([comm, _], counts, displs) = (b.comms(), [4_u64, 4], [0_u64, 4]);
        let (counts, displs) = (counts.as_ptr().cast(), displs.as_ptr().cast());
        c!(b, HcclAllGatherV(b.at(0), 3, b.at(512), counts, displs, FP32, comm, b.stream()))
    }),
    ("a gathering without its counts", |b| {
        let ([comm, _], displs) = (b.comms(), [0_u64, 4]);
        let displs = displs.as_ptr().cast();
        c!(b, HcclAllGatherV(b.at(0), 4, b.at(512), std::ptr::null(), displs, FP32, comm, b.stream()))
    }),
    ("a batch of nothing", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclBatchSendRecv([item(b, 0, 1)].as_mut_ptr(), 0, comm, b.stream()))
    }),
    ("a batch that names a rank twice", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclBatchSendRecv([item(b, 0, 1), item(b, 0, 1)].as_mut_ptr(), 2, comm, b.stream()))
    }),
    ("a batch of something that is no transfer", |b| {
        let [comm, _] = b.comms();
        c!(b, HcclBatchSendRecv([item(b, 5, 1)].as_mut_ptr(), 1, comm, b.stream()))
    }),
    ("ranks that disagree about the count", |b| against(b, |comm| all_reduce(b, 1, comm, 5, FP32, SUM))),
    ("ranks that disagree about the type", |b| against(b, |comm| all_reduce(b, 1, comm, 4, BF16, SUM))),
    ("ranks that disagree about the reduction", |b| against(b, |comm| all_reduce(b, 1, comm, 4, FP32, MAX))),
    ("ranks that disagree about the collective", |b| {
        against(b, |comm| c!(b, HcclBroadcast(b.buffers[1], 4, FP32, 0, comm, b.cards[1].stream)))
    }),
    ("ranks that disagree about the root", |b| {
        let comms = b.comms();
        c!(b, HcclBroadcast(b.at(0), 4, FP32, 0, comms[0], b.stream()));
        b.cards[1].enter();
        c!(b, HcclBroadcast(b.buffers[1], 4, FP32, 1, comms[1], b.cards[1].stream))
    }),
    ("ranks that disagree about the order", |b| {
        let comms = b.comms();
        all_reduce(b, 0, comms[0], 4, FP32, SUM);
        c!(b, HcclBarrier(comms[0], b.stream()));
        b.cards[1].enter();
        c!(b, HcclBarrier(comms[1], b.cards[1].stream))
    }),
    ("a transfer of unequal counts", |b| {
        let comms = b.comms();
        c!(b, HcclSend(b.at(0), 4, FP32, 1, comms[0], b.stream()));
        b.cards[1].enter();
        c!(b, HcclRecv(b.buffers[1], 3, FP32, 0, comms[1], b.cards[1].stream))
    }),
    ("a peer that has left", |b| {
        let comms = b.comms();
        c!(b, HcclCommDestroy(comms[1]));
        all_reduce(b, 0, comms[0], 4, FP32, SUM)
    }),
    ("a rank that never comes", |b| {
        let comms = b.comms();
        all_reduce(b, 0, comms[0], 4, FP32, SUM);
        c!(b, aclrtSynchronizeStream(b.stream()))
    }),
    ("a group of a group", |b| {
        let ([comm, _], mut sub, mut deeper) = (b.comms(), null_mut(), null_mut());
        let mut config = super::config();
        let (mut parent, mut ranks) = (comm, [0_u32]);
        let at = &raw mut config;
        c!(b, HcclCreateSubCommConfig(&raw mut parent, 1, ranks.as_mut_ptr(), 1, 0, at, &raw mut sub));
        c!(b, HcclCreateSubCommConfig(&raw mut sub, 1, ranks.as_mut_ptr(), 2, 0, at, &raw mut deeper))
    }),
    ("a group of ranks out of order", |b| {
        let ([mut comm, _], mut sub, mut config) = (b.comms(), null_mut(), super::config());
        let mut ranks = [1_u32, 0];
        let at = &raw mut config;
        c!(b, HcclCreateSubCommConfig(&raw mut comm, 2, ranks.as_mut_ptr(), 1, 1, at, &raw mut sub))
    }),
    ("a configuration nobody initialised", |b| {
        let (mut info, mut comm) = (HcclRootInfo { internal: [0; 4108] }, null_mut());
        c!(b, HcclGetRootInfo(&raw mut info));
        let mut config = super::config();
        config.reserved = [0; 24];
        c!(b, HcclCommInitRootInfoConfig(1, &raw const info, 0, &raw const config, &raw mut comm))
    }),
];
