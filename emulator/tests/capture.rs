//! Captured graphs: replays equal eager work bit for bit, and misuse is refused.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::common::operators::add;
use crate::common::{Card, D2D, D2H, H2D, call, hccl_ok, machine, message, ok, refused, world, young};
use ascend_tp_sys::{
    ACL_ERROR_RT_CAPTURE_DEPENDENCY, ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC,
    ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, ACL_ERROR_RT_EVENT_CAPTURED, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_MODEL_CAPTURED, ACL_ERROR_RT_MODEL_CONTEXT, ACL_ERROR_RT_MODEL_RUNNING,
    ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
    ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
    ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, ACL_ERROR_RT_STREAM_CAPTURED, ACL_ERROR_RT_STREAM_MODEL,
    ACL_ERROR_RT_STREAM_NOT_CAPTURED, ACL_ERROR_RT_STREAM_UNJOINED, ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT,
    ACL_ERROR_STREAM_CAPTURE_CONFLICT, ACL_ERROR_STREAM_TASK_GROUP_STATUS, HcclDataType, HcclReduceOp, Table,
    aclError, aclmdlRI, aclmdlRICaptureMode, aclmdlRICaptureStatus, aclrtEvent, aclrtStream,
};

const GLOBAL: aclmdlRICaptureMode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: aclmdlRICaptureMode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: aclmdlRICaptureMode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

fn begin(table: &Table, stream: aclrtStream, mode: aclmdlRICaptureMode) {
    ok(table, call!(table, aclmdlRICaptureBegin(stream, mode)));
}

fn try_end(table: &Table, stream: aclrtStream) -> Result<aclmdlRI, (aclError, String)> {
    let mut graph = null_mut();
    match call!(table, aclmdlRICaptureEnd(stream, &raw mut graph)) {
        0 => Ok(graph),
        code => Err((code, message(table))),
    }
}

#[track_caller]
fn end(table: &Table, stream: aclrtStream) -> aclmdlRI {
    try_end(table, stream).unwrap_or_else(|(code, text)| panic!("{code}: {text}"))
}

#[track_caller]
fn end_refused(table: &Table, stream: aclrtStream, expected: aclError) -> String {
    let (code, text) = try_end(table, stream).expect_err("the capture is not sound");
    assert_eq!(code, expected, "{text}");
    text
}

fn execute(table: &Table, graph: aclmdlRI, stream: aclrtStream) {
    ok(table, call!(table, aclmdlRIExecuteAsync(graph, stream)));
}

fn event(card: &Card<'_>) -> aclrtEvent {
    card.enter();
    let mut event = null_mut();
    ok(card.table, call!(card.table, aclrtCreateEventExWithFlag(&raw mut event, 1)));
    event
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn copy(
    table: &Table,
    into: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: aclrtStream,
) -> aclError {
    call!(table, aclrtMemcpyAsync(into, bytes, from, bytes, D2D, stream))
}

#[test]
fn a_replay_equals_eager_work_and_nothing_runs_before_it() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (x, y) = (card.upload(&floats(&[1.5, 2.5])), card.upload(&floats(&[3.0, -4.0])));
    let (sum, eager, out) = (card.malloc(8), card.malloc(8), card.upload(&floats(&[9.0, 9.0])));
    add(&card, card.stream, [x, y, eager], 0.5, 2).expect("eager");
    card.synchronize();
    begin(&table, card.stream, GLOBAL);
    add(&card, card.stream, [x, y, sum], 0.5, 2).expect("recorded");
    ok(&table, copy(&table, out, sum, 8, card.stream));
    let graph = end(&table, card.stream);
    card.synchronize();
    assert_eq!(card.download(out, 8), floats(&[9.0, 9.0]));
    let other = card.stream();
    for replay in 0..3 {
        execute(&table, graph, if replay == 1 { other } else { card.stream });
    }
    ok(&table, call!(table, aclrtSynchronizeStream(other)));
    card.synchronize();
    assert_eq!(card.download(out, 8), card.download(eager, 8));
    // A graph stores addresses, not contents.
    ok(&table, call!(table, aclrtMemcpy(x, 8, floats(&[10.0, 20.0]).as_ptr().cast(), 8, H2D)));
    execute(&table, graph, card.stream);
    card.synchronize();
    assert_eq!(card.download(out, 8), floats(&[11.5, 18.0]));
    ok(&table, call!(table, aclmdlRIDestroy(graph)));
    assert!(
        refused(&table, call!(table, aclmdlRIDestroy(graph)), ACL_ERROR_RT_PARAM_INVALID)
            .contains("does not exist")
    );
}

#[test]
fn a_second_stream_joins_by_an_event_and_every_replay_runs_both() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (side, fork, join) = (card.stream(), event(&card), event(&card));
    let (one, total) = (card.upload(&floats(&[1.0])), card.upload(&floats(&[0.0])));
    let (doubled, out) = (card.malloc(4), card.malloc(4));
    begin(&table, card.stream, THREAD_LOCAL);
    add(&card, card.stream, [total, one, total], 1.0, 1).expect("recorded");
    ok(&table, call!(table, aclrtRecordEvent(fork, card.stream)));
    ok(&table, call!(table, aclrtStreamWaitEvent(side, fork)));
    add(&card, side, [total, total, doubled], 1.0, 1).expect("recorded on the joined stream");
    ok(&table, call!(table, aclrtRecordEvent(join, side)));
    ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, join)));
    ok(&table, copy(&table, out, doubled, 4, card.stream));
    let graph = end(&table, card.stream);
    for replay in 1..=5 {
        execute(&table, graph, card.stream);
        if replay % 2 == 1 {
            card.synchronize();
            assert_eq!(card.download(out, 4), floats(&[2.0 * replay as f32]));
        }
    }
    // Streams are free again, and events have no record.
    ok(&table, call!(table, aclrtSynchronizeStream(side)));
    ok(&table, call!(table, aclrtSynchronizeEvent(join)));
    ok(&table, call!(table, aclrtDestroyStream(side)));
    execute(&table, graph, card.stream);
    card.synchronize();
    assert_eq!(card.download(out, 4), floats(&[12.0]));
    ok(&table, call!(table, aclmdlRIDestroy(graph)));
}

#[test]
fn four_ranks_replay_their_all_reduce_three_times() {
    let (_emulator, table) = machine(4);
    let (cards, comms) = world(&table, 4);
    let buffers: Vec<*mut c_void> =
        (0..4).map(|rank| cards[rank].upload(&floats(&[rank as f32 + 1.0]))).collect();
    let graphs: Vec<aclmdlRI> = (0..4)
        .map(|rank| {
            let (card, buffer) = (&cards[rank], buffers[rank]);
            card.enter();
            begin(&table, card.stream, THREAD_LOCAL);
            let (dtype, sum) = (HcclDataType::HCCL_DATA_TYPE_FP32, HcclReduceOp::HCCL_REDUCE_SUM);
            hccl_ok(
                &table,
                call!(table, HcclAllReduce(buffer, buffer, 1, dtype, sum, comms[rank], card.stream)),
            );
            end(&table, card.stream)
        })
        .collect();
    for _ in 0..3 {
        for (card, graph) in cards.iter().zip(&graphs) {
            card.enter();
            execute(&table, *graph, card.stream);
        }
    }
    for (card, buffer) in cards.iter().zip(&buffers) {
        card.synchronize();
        // 1 + 2 + 3 + 4, then four times that, twice.
        assert_eq!(card.download(*buffer, 4), floats(&[160.0]));
    }
}

#[test]
fn ranks_that_replay_different_captures_are_told() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let buffers: Vec<*mut c_void> = cards.iter().map(|card| card.upload(&floats(&[1.0, 2.0]))).collect();
    let mut graphs = Vec::new();
    for rank in 0..2 {
        cards[rank].enter();
        begin(&table, cards[rank].stream, RELAXED);
        let (dtype, sum) = (HcclDataType::HCCL_DATA_TYPE_FP32, HcclReduceOp::HCCL_REDUCE_SUM);
        let (buffer, count) = (buffers[rank], rank as u64 + 1);
        let (comm, stream) = (comms[rank], cards[rank].stream);
        hccl_ok(&table, call!(table, HcclAllReduce(buffer, buffer, count, dtype, sum, comm, stream)));
        graphs.push(end(&table, stream));
    }
    cards[0].enter();
    execute(&table, graphs[0], cards[0].stream);
    cards[1].enter();
    let code = call!(table, aclmdlRIExecuteAsync(graphs[1], cards[1].stream));
    assert_ne!(code, 0);
    let text = message(&table);
    assert!(
        text.contains("ranks disagree") && text.contains("count 1") && text.contains("count 2"),
        "{text}"
    );
    let (code, text) = cards[0].outcome();
    assert!(code != 0 && text.contains("ranks disagree"), "{text}");
}

#[test]
fn a_failure_in_a_joined_stream_is_one_of_the_replaying_stream() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (side, fork, join) = (card.stream(), event(&card), event(&card));
    let (weight, index, out) = (card.upload(&[0; 16]), card.upload(&9_i64.to_le_bytes()), card.malloc(64));
    begin(&table, card.stream, RELAXED);
    ok(&table, call!(table, aclrtRecordEvent(fork, card.stream)));
    ok(&table, call!(table, aclrtStreamWaitEvent(side, fork)));
    let on_side = Card { table: &table, context: card.context, stream: side };
    let lookup = crate::common::operators::embedding(&on_side, weight, index, out);
    lookup.expect("only the card can see the index");
    ok(&table, call!(table, aclrtRecordEvent(join, side)));
    ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, join)));
    let graph = end(&table, card.stream);
    execute(&table, graph, card.stream);
    let (code, text) = card.outcome();
    assert!(code != 0 && text.contains("aclnnEmbedding"), "{text}");
    ok(&table, call!(table, aclrtSynchronizeStream(side)));
}

#[test]
fn begin_and_end_take_one_stream_once() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let code = call!(table, aclmdlRICaptureBegin(null_mut(), GLOBAL));
    assert!(refused(&table, code, ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT).contains("default stream"));
    let code = call!(table, aclmdlRICaptureBegin(card.stream, aclmdlRICaptureMode(3)));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("capture mode 3"));
    assert!(
        end_refused(&table, card.stream, ACL_ERROR_RT_STREAM_NOT_CAPTURED).contains("is not being captured")
    );
    begin(&table, card.stream, GLOBAL);
    let code = call!(table, aclmdlRICaptureBegin(card.stream, GLOBAL));
    assert!(refused(&table, code, ACL_ERROR_RT_STREAM_CAPTURED).contains("is being captured"));
    let (side, fork) = (card.stream(), event(&card));
    ok(&table, call!(table, aclrtRecordEvent(fork, card.stream)));
    ok(&table, call!(table, aclrtStreamWaitEvent(side, fork)));
    assert!(
        end_refused(&table, side, ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED)
            .contains("joined the capture of stream")
    );
    let text = end_refused(&table, card.stream, ACL_ERROR_RT_STREAM_UNJOINED);
    assert!(text.contains("does not lead back"), "{text}");
    // A failed end changes nothing.
    ok(&table, call!(table, aclrtSynchronizeStream(side)));
    card.synchronize();
}

#[test]
fn only_a_relaxed_capture_may_end_on_another_thread() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    begin(&table, card.stream, THREAD_LOCAL);
    let elsewhere = || {
        card.enter();
        try_end(&table, card.stream).map(|_| ())
    };
    let (code, text) =
        std::thread::scope(|scope| scope.spawn(elsewhere).join().expect("no panic")).expect_err("refused");
    assert_eq!(code, ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, "{text}");
    end(&table, card.stream);
    begin(&table, card.stream, RELAXED);
    std::thread::scope(|scope| scope.spawn(elsewhere).join().expect("no panic"))
        .expect("RELAXED may end anywhere");
}

#[test]
fn unsafe_calls_are_refused_by_mode_and_make_the_capture_worthless() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let device = card.malloc(8);
    let mut host = [0_u8; 8];
    let host = host.as_mut_ptr().cast::<c_void>();
    let memset = || call!(table, aclrtMemset(device, 8, 1, 8));
    let memcpy = || call!(table, aclrtMemcpy(host, 8, device, 8, D2H));
    for mode in [GLOBAL, THREAD_LOCAL] {
        for unsafe_call in [&memset as &dyn Fn() -> aclError, &memcpy] {
            begin(&table, card.stream, mode);
            let text = refused(&table, unsafe_call(), ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT);
            assert!(text.contains("is an unsafe call while thread"), "{text}");
            let mut status = aclmdlRICaptureStatus::ACL_MODEL_RI_CAPTURE_STATUS_NONE;
            ok(&table, call!(table, aclmdlRICaptureGetInfo(card.stream, &raw mut status, &mut null_mut())));
            assert_eq!(status, aclmdlRICaptureStatus::ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
            let text = end_refused(&table, card.stream, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
            assert!(text.contains("is invalid since: aclrtMem"), "{text}");
        }
    }
    // The thread's own mode permits the call.
    begin(&table, card.stream, GLOBAL);
    let mut mode = RELAXED;
    ok(&table, call!(table, aclmdlRICaptureThreadExchangeMode(&raw mut mode)));
    assert_eq!(mode, GLOBAL);
    ok(&table, memset());
    ok(&table, call!(table, aclmdlRICaptureThreadExchangeMode(&raw mut mode)));
    assert_eq!(mode, RELAXED);
    let graph = end(&table, card.stream);
    ok(&table, call!(table, aclmdlRIDestroy(graph)));
    begin(&table, card.stream, RELAXED);
    ok(&table, memset());
    end(&table, card.stream);
}

#[test]
fn other_threads_are_bound_by_a_global_capture_alone() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let device = card.malloc(8);
    let shared = device.expose_provenance();
    let elsewhere = |own: Option<aclmdlRICaptureMode>| {
        std::thread::scope(|scope| {
            let body = || {
                card.enter();
                if let Some(mut mode) = own {
                    ok(&table, call!(table, aclmdlRICaptureThreadExchangeMode(&raw mut mode)));
                }
                call!(table, aclrtMemset(std::ptr::with_exposed_provenance_mut(shared), 8, 1, 8))
            };
            scope.spawn(body).join().expect("no panic")
        })
    };
    begin(&table, card.stream, THREAD_LOCAL);
    assert_eq!(elsewhere(None), 0);
    end(&table, card.stream);
    begin(&table, card.stream, GLOBAL);
    assert_eq!(elsewhere(Some(THREAD_LOCAL)), 0);
    assert_eq!(elsewhere(None), ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT);
    end_refused(&table, card.stream, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn what_would_wait_for_a_captured_stream_is_refused() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let device = card.malloc(8);
    let mut host = [0_u8; 8];
    let host = host.as_mut_ptr().cast::<c_void>();
    let stream = card.stream;
    let synchronize = || call!(table, aclrtSynchronizeStream(stream));
    let query = || call!(table, aclrtStreamQuery(stream, &mut ascend_tp_sys::aclrtStreamStatus(0)));
    let destroy = || call!(table, aclrtDestroyStream(stream));
    let abort = || call!(table, aclrtStreamAbort(stream));
    for waits in [&synchronize as &dyn Fn() -> aclError, &query, &destroy, &abort] {
        begin(&table, stream, RELAXED);
        let text = refused(&table, waits(), ACL_ERROR_RT_STREAM_CAPTURED);
        assert!(text.contains("which is being captured; call aclmdlRICaptureEnd first"), "{text}");
        end_refused(&table, stream, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    }
    begin(&table, stream, RELAXED);
    refused(&table, call!(table, aclrtSynchronizeDevice()), ACL_ERROR_RT_STREAM_CAPTURED);
    end(&table, stream);
    begin(&table, stream, GLOBAL);
    let pageable = || call!(table, aclrtMemcpyAsync(host, 8, device, 8, D2H, stream));
    let text = refused(&table, pageable(), ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC);
    assert!(text.contains("aclrtMemcpyAsync is an unsafe call"), "{text}");
    end_refused(&table, stream, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    begin(&table, stream, RELAXED);
    assert!(refused(&table, pageable(), ACL_ERROR_RT_STREAM_CAPTURED).contains("pageable host memory"));
    end_refused(&table, stream, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn events_join_captures_only_in_their_own_way() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (first, second, outside) = (card.stream, card.stream(), card.stream());
    let (inner, eager) = (event(&card), event(&card));
    // Events without a record in the capture.
    ok(&table, call!(table, aclrtRecordEvent(eager, outside)));
    for foreign in [eager, event(&card)] {
        begin(&table, first, RELAXED);
        let code = call!(table, aclrtStreamWaitEvent(first, foreign));
        assert!(refused(&table, code, ACL_ERROR_RT_CAPTURE_DEPENDENCY).contains("has not recorded"));
        end_refused(&table, first, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    }
    // This kind cannot be captured.
    begin(&table, first, RELAXED);
    let code = call!(table, aclrtRecordEvent(card.event(), first));
    assert!(refused(&table, code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT).contains("aclrtCreateEventExWithFlag"));
    end_refused(&table, first, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    // Outside use of a captured event.
    begin(&table, first, RELAXED);
    ok(&table, call!(table, aclrtRecordEvent(inner, first)));
    let code = call!(table, aclrtRecordEvent(inner, outside));
    assert!(refused(&table, code, ACL_ERROR_RT_EVENT_CAPTURED).contains("is not part of that capture"));
    refused(&table, call!(table, aclrtSynchronizeEvent(inner)), ACL_ERROR_RT_EVENT_CAPTURED);
    end_refused(&table, first, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    // Captures cannot be joined, and the default stream cannot join.
    begin(&table, first, RELAXED);
    begin(&table, second, RELAXED);
    ok(&table, call!(table, aclrtRecordEvent(inner, first)));
    let code = call!(table, aclrtStreamWaitEvent(second, inner));
    assert!(refused(&table, code, ACL_ERROR_STREAM_CAPTURE_CONFLICT).contains("two captures cannot wait"));
    for stream in [first, second] {
        end_refused(&table, stream, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    }
    begin(&table, first, RELAXED);
    ok(&table, call!(table, aclrtRecordEvent(inner, first)));
    let code = call!(table, aclrtStreamWaitEvent(null_mut(), inner));
    assert!(refused(&table, code, ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT).contains("cannot join the capture"));
    end_refused(&table, first, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn a_graph_is_replayed_and_destroyed_only_when_it_is_ready() {
    let (_emulator, table) = machine(2);
    let (card, other) = (Card::new(&table, 0), Card::new(&table, 1));
    card.enter();
    let mut notify = null_mut();
    ok(&table, young!(table, aclrtCreateNotify(&raw mut notify, 0)));
    begin(&table, card.stream, RELAXED);
    let (mut status, mut graph) = (aclmdlRICaptureStatus(9), null_mut());
    ok(&table, call!(table, aclmdlRICaptureGetInfo(card.stream, &raw mut status, &raw mut graph)));
    assert_eq!(status, aclmdlRICaptureStatus::ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
    let side = card.stream();
    refused(&table, call!(table, aclmdlRIExecuteAsync(graph, side)), ACL_ERROR_RT_MODEL_CAPTURED);
    refused(&table, call!(table, aclmdlRIDestroy(graph)), ACL_ERROR_RT_MODEL_CAPTURED);
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, card.stream, 0)));
    assert_eq!(end(&table, card.stream), graph);
    other.enter();
    let code = call!(table, aclmdlRIExecuteAsync(graph, other.stream));
    assert!(refused(&table, code, ACL_ERROR_RT_MODEL_CONTEXT).contains("belongs to context"));
    card.enter();
    execute(&table, graph, card.stream);
    let text = refused(&table, call!(table, aclmdlRIDestroy(graph)), ACL_ERROR_RT_MODEL_RUNNING);
    assert!(text.contains("has not ended; synchronize its stream"), "{text}");
    ok(&table, young!(table, aclrtRecordNotify(notify, side)));
    card.synchronize();
    ok(&table, call!(table, aclmdlRIDestroy(graph)));
}

#[test]
fn a_task_group_is_replaced_by_operators_of_the_same_kind() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let update = card.stream();
    let (x, y, z) =
        (card.upload(&floats(&[1.0])), card.upload(&floats(&[10.0])), card.upload(&floats(&[100.0])));
    let out = card.malloc(4);
    begin(&table, card.stream, RELAXED);
    ok(&table, call!(table, aclmdlRICaptureTaskGrpBegin(card.stream)));
    let code = call!(table, aclmdlRICaptureTaskGrpBegin(card.stream));
    refused(&table, code, ACL_ERROR_STREAM_TASK_GROUP_STATUS);
    add(&card, card.stream, [x, y, out], 1.0, 1).expect("recorded");
    refused(&table, copy(&table, x, y, 4, card.stream), ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT);
    let mut group = null_mut();
    ok(&table, call!(table, aclmdlRICaptureTaskGrpEnd(card.stream, &raw mut group)));
    let graph = end(&table, card.stream);
    execute(&table, graph, card.stream);
    card.synchronize();
    assert_eq!(card.download(out, 4), floats(&[11.0]));

    ok(&table, call!(table, aclmdlRICaptureTaskUpdateBegin(update, group)));
    let code = call!(table, aclmdlRICaptureTaskUpdateBegin(card.stream, group));
    refused(&table, code, ACL_ERROR_STREAM_TASK_GROUP_STATUS);
    add(&card, update, [x, z, out], 1.0, 1).expect("replaces the first");
    let text = add(&card, update, [x, z, out], 1.0, 1).expect_err("one operator was recorded");
    assert!(text.contains("expected no further one, as recorded, found aclnnAdd"), "{text}");
    ok(&table, call!(table, aclmdlRICaptureTaskUpdateEnd(update)));
    ok(&table, call!(table, aclrtSynchronizeStream(update)));
    execute(&table, graph, card.stream);
    card.synchronize();
    assert_eq!(card.download(out, 4), floats(&[101.0]));

    ok(&table, call!(table, aclmdlRICaptureTaskUpdateBegin(update, group)));
    let text = refused(
        &table,
        call!(table, aclmdlRICaptureTaskUpdateEnd(update)),
        ACL_ERROR_STREAM_TASK_GROUP_STATUS,
    );
    assert!(text.contains("gives 0 operators, but 1 were recorded"), "{text}");
}

/// Creates a shared word for captured streams (`ACL_EVENT_EXTERNAL`).
fn external(card: &Card<'_>) -> aclrtEvent {
    card.enter();
    let mut event = null_mut();
    ok(card.table, call!(card.table, aclrtCreateEventWithFlag(&raw mut event, 0x20)));
    event
}

/// Updates like vllm-ascend: each replay waits before the attention until the operator has been
/// replaced.
fn replay_with_updates(emulator: &ascend_tp_emulator::Emulator) {
    let table = emulator.table();
    ok(&table, call!(table, aclInit(std::ptr::null())));
    let card = Card::new(&table, 0);
    let (update, updated) = (card.stream(), external(&card));
    let (x, out) = (card.upload(&floats(&[1.0])), card.upload(&floats(&[0.0])));
    let steps: Vec<*mut c_void> =
        (1..5_u16).map(|step| card.upload(&floats(&[10.0 * f32::from(step)]))).collect();
    begin(&table, card.stream, RELAXED);
    ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, updated)));
    ok(&table, call!(table, aclrtResetEvent(updated, card.stream)));
    ok(&table, call!(table, aclmdlRICaptureTaskGrpBegin(card.stream)));
    add(&card, card.stream, [x, x, out], 1.0, 1).expect("recorded");
    let mut group = null_mut();
    ok(&table, call!(table, aclmdlRICaptureTaskGrpEnd(card.stream, &raw mut group)));
    let graph = end(&table, card.stream);
    for step in steps {
        // The replay starts first and waits.
        execute(&table, graph, card.stream);
        ok(&table, call!(table, aclmdlRICaptureTaskUpdateBegin(update, group)));
        add(&card, update, [out, step, out], 1.0, 1).expect("replaces");
        ok(&table, call!(table, aclmdlRICaptureTaskUpdateEnd(update)));
        ok(&table, call!(table, aclrtRecordEvent(updated, update)));
        ok(&table, call!(table, aclrtSynchronizeStream(update)));
        card.synchronize();
    }
    assert_eq!(card.download(out, 4), floats(&[100.0]));
    ok(&table, call!(table, aclmdlRIDestroy(graph)));
    ok(&table, call!(table, aclrtDestroyEvent(updated)));
}

#[test]
fn an_external_event_holds_each_replay_until_it_is_updated() {
    replay_with_updates(
        &ascend_tp_emulator::Emulator::new(ascend_tp_emulator::Config::with_cards(1)).expect("starts"),
    );
    for seed in 0..4 {
        let emulator = ascend_tp_emulator::Emulator::strict(seed).expect("the emulator starts");
        replay_with_updates(&emulator);
        assert!(emulator.reports().is_empty(), "seed {seed}: {:?}", emulator.reports());
    }
}

#[test]
fn an_external_event_is_a_word_that_stays_until_it_is_reset() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (side, word) = (card.stream(), external(&card));
    let state = || {
        let mut status = ascend_tp_sys::aclrtEventRecordedStatus(7);
        ok(&table, call!(table, aclrtQueryEventStatus(word, &raw mut status)));
        status.0
    };
    // A wait may precede the record; one record releases all waits.
    ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, word)));
    ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, word)));
    assert_eq!(state(), 0);
    ok(&table, call!(table, aclrtRecordEvent(word, side)));
    card.synchronize();
    assert_eq!(state(), 1);
    ok(&table, call!(table, aclrtResetEvent(word, card.stream)));
    card.synchronize();
    assert_eq!(state(), 0);
    let wait = young!(table, aclrtStreamWaitEventWithFlag(card.stream, word, 1, 0));
    ok(&table, wait);
    let (code, text) = card.outcome();
    assert!(
        code == ascend_tp_sys::ACL_ERROR_RT_TASK_TIMEOUT && text.contains("was not recorded within"),
        "{text}"
    );
    let code = call!(table, aclrtSynchronizeEvent(word));
    assert!(refused(&table, code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT).contains("ACL_EVENT_EXTERNAL"));
    ok(&table, call!(table, aclrtStreamWaitEvent(side, word)));
    ok(&table, call!(table, aclrtDestroyEvent(word)));
    let code = call!(table, aclrtSynchronizeStream(side));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("does not exist"));
}

#[test]
fn strict_mode_names_the_external_event_that_nobody_records() {
    let emulator = ascend_tp_emulator::Emulator::strict(3).expect("the emulator starts");
    let table = emulator.table();
    ok(&table, call!(table, aclInit(std::ptr::null())));
    let card = Card::new(&table, 0);
    let word = external(&card);
    ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, word)));
    assert_ne!(card.outcome().0, 0);
    let text = format!("{:?}", emulator.reports());
    assert!(text.contains("for event") && text.contains("which no queued call records"), "{text}");
}

#[test]
fn a_graph_and_a_stream_outside_wait_for_each_other_at_every_replay() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (side, before, after) = (card.stream(), event(&card), event(&card));
    let (x, y, z) = (card.upload(&[0; 4]), card.upload(&[0; 4]), card.upload(&[0; 4]));
    let record = |event, stream| young!(table, aclrtRecordEventWithFlag(event, stream, 1));
    let wait =
        |event, stream, timeout| young!(table, aclrtStreamWaitEventWithFlag(stream, event, timeout, 1));
    assert!(
        refused(&table, record(after, card.stream), ACL_ERROR_RT_STREAM_NOT_CAPTURED)
            .contains("not being captured")
    );
    begin(&table, card.stream, RELAXED);
    for timeout in [3, u32::MAX] {
        let found = wait(before, card.stream, timeout);
        let told = refused(&table, found, ascend_tp_sys::ACL_ERROR_INVALID_PARAM);
        assert!(told.contains("timeout: expected 0"), "{told}");
    }
    ok(&table, wait(before, card.stream, 0));
    assert!(
        refused(&table, record(before, card.stream), ACL_ERROR_RT_PARAM_INVALID).contains("take two events")
    );
    assert!(
        refused(&table, record(card.event(), card.stream), ACL_ERROR_RT_PARAM_INVALID)
            .contains("ACL_EVENT_SYNC")
    );
    ok(&table, copy(&table, y, x, 4, card.stream));
    ok(&table, record(after, card.stream));
    let graph = end(&table, card.stream);
    for step in 1..4_u8 {
        ok(&table, call!(table, aclrtMemsetAsync(x, 4, i32::from(step), 4, side)));
        ok(&table, call!(table, aclrtRecordEvent(before, side)));
        execute(&table, graph, card.stream);
        ok(&table, call!(table, aclrtStreamWaitEvent(side, after)));
        ok(&table, copy(&table, z, y, 4, side));
        ok(&table, call!(table, aclrtSynchronizeStream(side)));
        assert_eq!(card.download(z, 4), [step; 4]);
    }
    card.synchronize();
    ok(&table, call!(table, aclmdlRIDestroy(graph)));
}

#[test]
fn an_open_task_group_binds_the_whole_capture() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (side, fork) = (card.stream(), event(&card));
    let x = card.upload(&floats(&[1.0]));
    begin(&table, card.stream, RELAXED);
    ok(&table, call!(table, aclrtRecordEvent(fork, card.stream)));
    ok(&table, call!(table, aclrtStreamWaitEvent(side, fork)));
    ok(&table, call!(table, aclmdlRICaptureTaskGrpBegin(card.stream)));
    let text = add(&card, side, [x, x, x], 1.0, 1).expect_err("another stream records a group");
    assert!(text.contains("while stream") && text.contains("records a task group"), "{text}");
    let text = end_refused(&table, card.stream, ACL_ERROR_STREAM_TASK_GROUP_STATUS);
    assert!(text.contains("call aclmdlRICaptureTaskGrpEnd first"), "{text}");
}

#[test]
fn a_graph_is_written_down_as_a_trace() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let x = card.upload(&floats(&[1.0]));
    begin(&table, card.stream, RELAXED);
    ok(&table, call!(table, aclprofMarkEx(c"layer \"0\"".as_ptr(), 9, card.stream)));
    add(&card, card.stream, [x, x, x], 1.0, 1).expect("recorded");
    let graph = end(&table, card.stream);
    let folder = std::env::temp_dir().join(format!("ascend-graph-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = std::ffi::CString::new(folder.join("graph.json").display().to_string()).expect("no NUL");
    let print = table.aclmdlRIDebugJsonPrint.expect("modelled");
    // SAFETY: a live graph and a string.
    ok(&table, unsafe { print(graph, path.as_ptr(), 0) });
    let text = std::fs::read_to_string(folder.join("graph.json")).expect("written");
    assert!(
        text.contains("\"name\":\"aclnnAdd\"") && text.contains("\"Mark\":\"layer \\\"0\\\"\""),
        "{text}"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
    // SAFETY: as above.
    let code = unsafe { print(graph, path.as_ptr(), 0) };
    assert!(
        refused(&table, code, ascend_tp_sys::ACL_ERROR_RT_FILE_OPEN).contains("cannot write the graph to")
    );
}

#[test]
fn a_built_graph_runs_its_bound_streams_together() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (x, y) = (card.upload(&floats(&[1.0])), card.upload(&floats(&[10.0])));
    let (mut graph, mut first, mut second) = (null_mut(), null_mut(), null_mut());
    ok(&table, young!(table, aclmdlRIBuildBegin(&raw mut graph, 0)));
    let code = young!(table, aclmdlRIBindStream(graph, card.stream, 0));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("ACL_STREAM_PERSISTENT"));
    for stream in [&raw mut first, &raw mut second] {
        ok(&table, call!(table, aclrtCreateStreamWithConfig(stream, 0, 4)));
    }
    let code = young!(table, aclmdlRIBindStream(graph, first, 0x7FFF_FFFF));
    assert!(refused(&table, code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT).contains("aclrtActiveStream"));
    ok(&table, young!(table, aclmdlRIBindStream(graph, first, 0)));
    ok(&table, young!(table, aclmdlRIBindStream(graph, second, 0)));
    let code = young!(table, aclmdlRIBindStream(graph, second, 0));
    assert!(refused(&table, code, ACL_ERROR_RT_STREAM_MODEL).contains("bound to one at a time"));
    add(&card, first, [x, x, x], 1.0, 1).expect("recorded");
    add(&card, second, [y, y, y], 1.0, 1).expect("recorded");
    let code = young!(table, aclmdlRIBuildEnd(graph, null_mut()));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("has no end; call aclmdlRIEndTask"));
    ok(&table, young!(table, aclmdlRIEndTask(graph, first)));
    let text = add(&card, first, [x, x, x], 1.0, 1).expect_err("after the end");
    assert!(text.contains("has ended graph"), "{text}");
    refused(&table, call!(table, aclmdlRIExecuteAsync(graph, card.stream)), ACL_ERROR_RT_MODEL_CAPTURED);
    ok(&table, young!(table, aclmdlRIBuildEnd(graph, null_mut())));
    let text = add(&card, second, [y, y, y], 1.0, 1).expect_err("complete");
    assert!(text.contains("which is complete; call aclmdlRIUnbindStream first"), "{text}");
    execute(&table, graph, card.stream);
    ok(&table, young!(table, aclmdlRIExecute(graph, -1)));
    card.synchronize();
    assert_eq!([card.download(x, 4), card.download(y, 4)], [floats(&[4.0]), floats(&[40.0])]);
    for stream in [first, second] {
        ok(&table, young!(table, aclmdlRIUnbindStream(graph, stream)));
        ok(&table, call!(table, aclrtSynchronizeStream(stream)));
    }
    let code = young!(table, aclmdlRIUnbindStream(graph, first));
    assert!(refused(&table, code, ACL_ERROR_RT_STREAM_MODEL).contains("is not bound to graph"));
    ok(&table, call!(table, aclmdlRIDestroy(graph)));
}

#[test]
fn strict_mode_replays_a_sound_capture_without_a_report() {
    for seed in 0..8 {
        let emulator = ascend_tp_emulator::Emulator::strict(seed).expect("the emulator starts");
        let table = emulator.table();
        ok(&table, call!(table, aclInit(std::ptr::null())));
        let card = Card::new(&table, 0);
        let (side, fork, join) = (card.stream(), event(&card), event(&card));
        let (one, total, doubled) =
            (card.upload(&floats(&[1.0])), card.upload(&floats(&[0.0])), card.malloc(4));
        begin(&table, card.stream, THREAD_LOCAL);
        add(&card, card.stream, [total, one, total], 1.0, 1).expect("recorded");
        ok(&table, call!(table, aclrtRecordEvent(fork, card.stream)));
        ok(&table, call!(table, aclrtStreamWaitEvent(side, fork)));
        add(&card, side, [total, total, doubled], 1.0, 1).expect("recorded on the joined stream");
        ok(&table, call!(table, aclrtRecordEvent(join, side)));
        ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, join)));
        let graph = end(&table, card.stream);
        for _ in 0..3 {
            execute(&table, graph, card.stream);
        }
        card.synchronize();
        assert_eq!(card.download(doubled, 4), floats(&[6.0]), "seed {seed}");
        ok(&table, call!(table, aclmdlRIDestroy(graph)));
        assert!(emulator.reports().is_empty(), "seed {seed}: {:?}", emulator.reports());
    }
}
