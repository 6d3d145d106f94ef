//! Collectives that cannot complete: every rank gets the reason, and no rank hangs.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ptr::null_mut;
use std::time::Duration;

use crate::common::*;
use ascend_tp_emulator::Config;
use ascend_tp_sys::{
    HcclComm, HcclDataType, HcclReduceOp, HcclResult, HcclRootInfo, HcclSendRecvItem, HcclSendRecvType, Table,
};

const FP32: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;
const FP16: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP16;
const SUM: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_SUM;
const MAX: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_MAX;
const PARA: HcclResult = HcclResult::HCCL_E_PARA;

fn async_error(table: &Table, comm: HcclComm) -> HcclResult {
    let mut found = HcclResult(99);
    hccl_ok(table, call!(table, HcclGetCommAsyncError(comm, &raw mut found)));
    found
}

/// Rank 1 of three calls `odd`, which must be refused. The others call `all_reduce` and fail on
/// their streams.
fn disagreement(odd: impl Fn(&Table, &Card<'_>, HcclComm, *mut std::ffi::c_void) -> HcclResult) -> String {
    let (_emulator, table) = machine(3);
    let (cards, comms) = world(&table, 3);
    let buffers: Vec<_> = cards.iter().map(|card| card.malloc(64)).collect();
    let good = |rank: usize| {
        cards[rank].enter();
        let (buffer, stream) = (buffers[rank], cards[rank].stream);
        call!(table, HcclAllReduce(buffer, buffer, 4, FP32, SUM, comms[rank], stream))
    };
    hccl_ok(&table, good(0));
    hccl_ok(&table, good(2));
    cards[1].enter();
    let text = hccl_refused(&table, odd(&table, &cards[1], comms[1], buffers[1]), PARA);
    for rank in [0, 2] {
        let (code, on_stream) = cards[rank].outcome();
        assert_eq!(code, 107_000, "{on_stream}");
        let reason = text.split_once(": ").expect("a function and a reason").1;
        assert!(on_stream.contains(reason), "{on_stream}");
        assert_eq!(async_error(&table, comms[rank]), PARA);
        hccl_refused(&table, good(rank), PARA);
    }
    text
}

#[test]
fn disagreements_name_both_calls() {
    let count = disagreement(|table, card, comm, buffer| {
        call!(table, HcclAllReduce(buffer, buffer, 5, FP32, SUM, comm, card.stream))
    });
    assert!(count.contains("collective 0: ranks disagree: rank 0 called HcclAllReduce(count 4, fp32, sum), rank 1 called HcclAllReduce(count 5, fp32, sum)"), "{count}");
    let dtype = disagreement(|table, card, comm, buffer| {
        call!(table, HcclAllReduce(buffer, buffer, 4, FP16, SUM, comm, card.stream))
    });
    assert!(dtype.contains("rank 1 called HcclAllReduce(count 4, fp16, sum)"), "{dtype}");
    let op = disagreement(|table, card, comm, buffer| {
        call!(table, HcclAllReduce(buffer, buffer, 4, FP32, MAX, comm, card.stream))
    });
    assert!(op.contains("rank 1 called HcclAllReduce(count 4, fp32, max)"), "{op}");
    let kind = disagreement(|table, card, comm, buffer| {
        call!(table, HcclBroadcast(buffer, 4, FP32, 0, comm, card.stream))
    });
    assert!(kind.contains("rank 1 called HcclBroadcast(count 4, fp32, root 0)"), "{kind}");
    let none = disagreement(|table, card, comm, _| {
        call!(table, HcclAllReduce(null_mut(), null_mut(), 0, FP32, SUM, comm, card.stream))
    });
    assert!(none.contains("rank 1 called HcclAllReduce(count 0, fp32, sum)"), "{none}");
}

#[test]
fn roots_and_transfers_must_agree_too() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let buffers: Vec<_> = cards.iter().map(|card| card.malloc(64)).collect();
    cards[0].enter();
    hccl_ok(&table, call!(table, HcclSend(buffers[0], 4, FP32, 1, comms[0], cards[0].stream)));
    cards[1].enter();
    let code = call!(table, HcclRecv(buffers[1], 3, FP32, 0, comms[1], cards[1].stream));
    let text = hccl_refused(&table, code, PARA);
    assert!(text.contains("transfer 0 from rank 0 to rank 1"), "{text}");
    assert!(
        text.contains("HcclSend(count 4, fp32, to rank 1)")
            && text.contains("HcclRecv(count 3, fp32, from rank 0)")
    );
    assert_eq!(cards[0].outcome().0, 107_000);

    let (cards, comms) = (vec![Card::new(&table, 0), Card::new(&table, 1)], {
        let mut comms = vec![null_mut(); 2];
        hccl_ok(&table, call!(table, HcclCommInitAll(2, [0, 1].as_mut_ptr(), comms.as_mut_ptr())));
        comms
    });
    cards[0].enter();
    hccl_ok(&table, call!(table, HcclBroadcast(buffers[0], 4, FP32, 0, comms[0], cards[0].stream)));
    cards[1].enter();
    let code = call!(table, HcclBroadcast(buffers[1], 4, FP32, 1, comms[1], cards[1].stream));
    assert!(hccl_refused(&table, code, PARA).contains("root 0"));
}

/// Rank 0 of two waits in an `all_reduce` while `leave` removes rank 1; returns the message of rank
/// 0.
fn peer_leaves(leave: impl Fn(&Table, &Card<'_>, HcclComm)) -> String {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let buffer = cards[0].malloc(64);
    hccl_ok(&table, call!(table, HcclAllReduce(buffer, buffer, 4, FP32, SUM, comms[0], cards[0].stream)));
    cards[1].enter();
    leave(&table, &cards[1], comms[1]);
    let (code, text) = cards[0].outcome();
    assert_eq!(code, 507_057, "{text}");
    let again = call!(table, HcclAllReduce(buffer, buffer, 4, FP32, SUM, comms[0], cards[0].stream));
    hccl_refused(&table, again, HcclResult::HCCL_E_REMOTE);
    text
}

#[test]
fn peers_of_a_rank_that_leaves_are_told() {
    let destroyed = peer_leaves(|table, _, comm| hccl_ok(table, call!(table, HcclCommDestroy(comm))));
    assert!(destroyed.contains("rank 1 has left: it destroyed its communicator"), "{destroyed}");
    let context = peer_leaves(|table, card, _| ok(table, call!(table, aclrtDestroyContext(card.context))));
    assert!(context.contains("rank 1 has left") && context.contains("card 1"), "{context}");
    // A rank that waits in the collective, behind an endless wait, is torn down.
    let stream = peer_leaves(|table, card, comm| {
        let buffer = card.malloc(64);
        let mut notify = null_mut();
        // SAFETY: a valid pointer.
        ok(table, unsafe { (table.aclrtCreateNotify.expect("modelled"))(&raw mut notify, 0) });
        // SAFETY: live handles.
        ok(table, unsafe { (table.aclrtWaitAndResetNotify.expect("modelled"))(notify, card.stream, 0) });
        hccl_ok(table, call!(table, HcclAllReduce(buffer, buffer, 4, FP32, SUM, comm, card.stream)));
        ok(table, call!(table, aclrtDestroyStreamForce(card.stream)));
    });
    assert!(
        stream.contains("a peer left the collective") && stream.contains("destroyed by force"),
        "{stream}"
    );
    let aborted = peer_leaves(|table, card, comm| {
        let buffer = card.malloc(64);
        let mut notify = null_mut();
        // SAFETY: a valid pointer.
        ok(table, unsafe { (table.aclrtCreateNotify.expect("modelled"))(&raw mut notify, 0) });
        // SAFETY: live handles.
        ok(table, unsafe { (table.aclrtWaitAndResetNotify.expect("modelled"))(notify, card.stream, 0) });
        hccl_ok(table, call!(table, HcclAllReduce(buffer, buffer, 4, FP32, SUM, comm, card.stream)));
        ok(table, call!(table, aclrtStreamAbort(card.stream)));
    });
    assert!(aborted.contains("was aborted"), "{aborted}");
}

#[test]
fn a_device_reset_releases_the_peers() {
    let (_emulator, table) = machine(2);
    ok(&table, call!(table, aclrtSetDevice(1)));
    let mut comms = [null_mut(); 2];
    hccl_ok(&table, call!(table, HcclCommInitAll(2, [0, 1].as_mut_ptr(), comms.as_mut_ptr())));
    let card = Card::new(&table, 0);
    hccl_ok(&table, call!(table, HcclBarrier(comms[0], card.stream)));
    ok(&table, call!(table, aclrtResetDevice(1)));
    let (code, text) = card.outcome();
    assert_eq!(code, 507_057);
    assert!(text.contains("rank 1 has left") && text.contains("device was reset"), "{text}");
}

#[test]
fn a_collective_complete_before_a_rank_leaves_is_kept() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let buffers: Vec<_> = (0..2).map(|rank| cards[rank].upload(&encode(FP32, [3 + rank as i64]))).collect();
    cards[1].enter();
    hccl_ok(
        &table,
        call!(table, HcclAllReduce(buffers[1], buffers[1], 1, FP32, SUM, comms[1], cards[1].stream)),
    );
    hccl_ok(&table, call!(table, HcclCommDestroy(comms[1])));
    cards[0].enter();
    hccl_ok(
        &table,
        call!(table, HcclAllReduce(buffers[0], buffers[0], 1, FP32, SUM, comms[0], cards[0].stream)),
    );
    for (card, buffer) in cards.iter().zip(&buffers) {
        card.synchronize();
        assert_eq!(card.download(*buffer, 4), encode(FP32, [7]));
    }
    assert!(hccl_refused(&table, call!(table, HcclCommDestroy(comms[1])), PARA).contains("does not exist"));
    hccl_ok(&table, call!(table, HcclCommDestroy(comms[0])));
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let limits = Config {
        connect_timeout: Duration::from_millis(30),
        exec_timeout: Duration::from_millis(30),
        ..Config::with_cards(3)
    };
    let (_emulator, table) = machine_of(limits);
    let (cards, comms) = world(&table, 3);
    let mut info = HcclRootInfo { internal: [0; 4108] };
    cards[0].enter();
    hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut info)));
    std::thread::scope(|scope| {
        for rank in [0, 2_u32] {
            let (cards, table, info) = (&cards, &table, &info);
            scope.spawn(move || {
                cards[rank as usize].enter();
                let mut comm = null_mut();
                let code =
                    call!(table, HcclCommInitRootInfo(3, std::ptr::from_ref(info), rank, &raw mut comm));
                let text = hccl_refused(table, code, HcclResult::HCCL_E_TIMEOUT);
                assert!(text.contains("ranks [1] of 3 have not come"), "{text}");
            });
        }
    });
    cards[1].enter();
    hccl_ok(&table, call!(table, HcclBarrier(comms[1], cards[1].stream)));
    let (code, text) = cards[1].outcome();
    assert_eq!(code, 107_020, "{text}");
    assert!(
        text.contains("HCCL_EXEC_TIMEOUT") && text.contains("ranks [0, 2] have not made their call"),
        "{text}"
    );
}

#[test]
fn ranks_must_agree_on_who_they_are() {
    let (_emulator, table) = machine(2);
    let cards = [Card::new(&table, 0), Card::new(&table, 1)];
    cards[0].enter();
    let mut info = HcclRootInfo { internal: [0; 4108] };
    hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut info)));
    let mut comm = null_mut();
    let mut join = |n, rank| call!(table, HcclCommInitRootInfo(n, &raw const info, rank, &raw mut comm));
    assert!(hccl_refused(&table, join(2, 2), PARA).contains("rank 2 of 2"));
    hccl_refused(&table, join(0, 0), PARA);
    hccl_ok(&table, join(1, 0));
    let foreign = HcclRootInfo { internal: [1; 4108] };
    let code = call!(table, HcclCommInitRootInfo(1, &raw const foreign, 0, &raw mut comm));
    assert!(hccl_refused(&table, code, PARA).contains("not made by HcclGetRootInfo"));
    let mut devices = [1, 1];
    let mut comms = [null_mut(); 2];
    let code = call!(table, HcclCommInitAll(2, devices.as_mut_ptr(), comms.as_mut_ptr()));
    assert!(hccl_refused(&table, code, PARA).contains("rank 0 and rank 1 are both on card 1"));
    devices = [0, 9];
    hccl_refused(&table, call!(table, HcclCommInitAll(2, devices.as_mut_ptr(), comms.as_mut_ptr())), PARA);

    hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut info)));
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (table, cards, info) = (&table, &cards, &info);
            scope.spawn(move || {
                cards[0].enter();
                let mut comm = null_mut();
                let code =
                    call!(table, HcclCommInitRootInfo(2, std::ptr::from_ref(info), rank, &raw mut comm));
                assert!(hccl_refused(table, code, PARA).contains("both on card 0"));
            });
        }
    });
}

#[test]
fn arguments_are_checked_before_anything_is_enqueued() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let (mine, other) = (cards[0].malloc(64), cards[1].malloc(64));
    cards[0].enter();
    let (comm, stream) = (comms[0], cards[0].stream);
    let ptr = HcclResult::HCCL_E_PTR;
    let all_reduce = |send, recv, count, dtype, op, comm, stream| {
        call!(table, HcclAllReduce(send, recv, count, dtype, op, comm, stream))
    };
    assert!(
        hccl_refused(&table, all_reduce(null_mut(), mine, 4, FP32, SUM, comm, stream), ptr)
            .contains("send_buf is NULL")
    );
    hccl_refused(&table, all_reduce(mine, null_mut(), 4, FP32, SUM, comm, stream), ptr);
    hccl_refused(&table, all_reduce(mine, mine, 4, FP32, SUM, null_mut(), stream), ptr);
    hccl_refused(&table, all_reduce(mine, mine, 4, FP32, SUM, comm, null_mut()), ptr);
    let long = hccl_refused(&table, all_reduce(mine, mine, 25, FP32, SUM, comm, stream), PARA);
    assert!(
        long.contains("25 elements of fp32") && long.contains("of 64 bytes (and 32 spare bytes) on card 0"),
        "{long}"
    );
    let away = hccl_refused(&table, all_reduce(mine, other, 4, FP32, SUM, comm, stream), PARA);
    assert!(away.contains("recv_buf is on card 1, but rank 0 is on card 0"), "{away}");
    let odd =
        hccl_refused(&table, all_reduce(mine.wrapping_byte_add(2), mine, 4, FP32, SUM, comm, stream), PARA);
    assert!(odd.contains("not aligned to 4 bytes"), "{odd}");
    let shifted = all_reduce(mine, mine.wrapping_byte_add(4), 4, FP32, SUM, comm, stream);
    assert!(hccl_refused(&table, shifted, PARA).contains("overlap"));
    hccl_refused(&table, all_reduce(mine, mine, 4, FP32, HcclReduceOp(7), comm, stream), PARA);
    let not_offered = HcclResult::HCCL_E_NOT_SUPPORT;
    let fp64 = HcclDataType::HCCL_DATA_TYPE_FP64;
    let text = hccl_refused(&table, all_reduce(mine, mine, 4, fp64, SUM, comm, stream), not_offered);
    assert!(text.contains("sum of fp64 is not offered by HcclAllReduce on the Atlas A2"), "{text}");
    let bf16 = HcclDataType::HCCL_DATA_TYPE_BFP16;
    hccl_refused(
        &table,
        all_reduce(mine, mine, 4, bf16, HcclReduceOp::HCCL_REDUCE_PROD, comm, stream),
        not_offered,
    );

    let to_itself = call!(table, HcclSend(mine, 4, FP32, 0, comm, stream));
    assert!(hccl_refused(&table, to_itself, PARA).contains("another rank than 0"));
    let root = call!(table, HcclBroadcast(mine, 4, FP32, 2, comm, stream));
    assert!(hccl_refused(&table, root, PARA).contains("root 2 is not a rank of a communicator of 2"));
    let in_place = call!(table, HcclAlltoAll(mine, 4, FP32, mine, 4, FP32, comm, stream));
    assert!(hccl_refused(&table, in_place, PARA).contains("overlap"));
    let (counts, displs) = ([4_u64, 4], [0_u64, 4]);
    let (counts, displs) = (counts.as_ptr().cast(), displs.as_ptr().cast());
    let wrong = call!(table, HcclAllGatherV(mine, 3, mine, counts, displs, FP32, comm, stream));
    assert!(
        hccl_refused(&table, wrong, PARA)
            .contains("send_count is 3, but recv_counts[0], for the same transfer, is 4")
    );
    let item = |remote| HcclSendRecvItem {
        sendRecvType: HcclSendRecvType::HCCL_SEND,
        buf: mine,
        count: 4,
        dataType: FP32,
        remoteRank: remote,
    };
    let mut twice = [item(1), item(1)];
    let twice = call!(table, HcclBatchSendRecv(twice.as_mut_ptr(), 2, comm, stream));
    assert!(hccl_refused(&table, twice, PARA).contains("names rank 1 twice"));
    cards[1].enter();
    let strange = all_reduce(other, other, 4, FP32, SUM, comm, cards[1].stream);
    assert!(hccl_refused(&table, strange, PARA).contains("is on card 0, stream"));
    // No call was enqueued, so the communicator still works.
    let buffers = [mine, other];
    for (rank, buffer) in buffers.into_iter().enumerate() {
        cards[rank].enter();
        hccl_ok(&table, all_reduce(buffer, buffer, 4, FP32, SUM, comms[rank], cards[rank].stream));
    }
    cards.iter().for_each(Card::synchronize);
}

#[test]
fn a_failed_task_stays_on_its_stream_and_frees_its_peers() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let buffers: Vec<_> = cards.iter().map(|card| card.malloc(64)).collect();
    for (card, code) in [(&cards[0], 0), (&cards[1], 0)] {
        card.enter();
        assert_eq!(call!(table, aclrtSetStreamFailureMode(card.stream, 1)), code);
    }
    // Later calls return the failure of the abort.
    cards[1].enter();
    ok(&table, call!(table, aclrtStreamAbort(cards[1].stream)));
    let refused_code =
        call!(table, HcclAllReduce(buffers[1], buffers[1], 4, FP32, SUM, comms[1], cards[1].stream));
    let text = hccl_refused(&table, refused_code, HcclResult::HCCL_E_RUNTIME);
    assert!(text.contains("was aborted"), "{text}");
    cards[0].enter();
    hccl_ok(
        &table,
        call!(table, HcclAllReduce(buffers[0], buffers[0], 4, FP32, SUM, comms[0], cards[0].stream)),
    );
    cards[1].enter();
    hccl_ok(&table, call!(table, HcclCommDestroy(comms[1])));
    assert_eq!(cards[0].outcome().0, 507_057);
}

#[test]
fn error_strings_and_configuration() {
    let (_emulator, table) = machine(1);
    let text = |code| {
        let text = call!(table, HcclGetErrorString(code));
        // SAFETY: a static C string.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    assert_eq!(text(HcclResult::HCCL_E_TIMEOUT), "timeout");
    assert_eq!(text(HcclResult(12345)), "unknown HcclResult");
    let deterministic = ascend_tp_sys::HcclConfig::HCCL_DETERMINISTIC;
    let value = |value| ascend_tp_sys::HcclConfigValue { value };
    hccl_ok(&table, call!(table, HcclSetConfig(deterministic, value(1))));
    let mut found = value(9);
    hccl_ok(&table, call!(table, HcclGetConfig(deterministic, &raw mut found)));
    // SAFETY: the union has one member.
    assert_eq!(unsafe { found.value }, 1);
    hccl_refused(&table, call!(table, HcclSetConfig(deterministic, value(3))), PARA);
    hccl_refused(&table, call!(table, HcclSetConfig(ascend_tp_sys::HcclConfig(4), value(1))), PARA);
    assert_eq!(call!(table, HcclGetCommConfigCapability()), 5);
}
