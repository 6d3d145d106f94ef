//! Races in strict mode: unordered work is reported, ordered work is not.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::common::collective::sum;
use crate::common::strict::{strict, texts};
use crate::common::{Card, D2D, D2H, H2D, call, hccl_ok, ok, world};
use ascend_tp_emulator::{Fault, ReportKind};
use ascend_tp_sys::{
    HcclDataType, Table, aclmdlRICaptureMode, aclrtEvent, aclrtEventRecordedStatus, aclrtStream,
    aclrtStreamStatus,
};

fn me() -> String {
    std::thread::current().name().expect("test threads have names").to_owned()
}

fn stream_number(table: &Table, stream: aclrtStream) -> i32 {
    let mut number = 0;
    ok(table, call!(table, aclrtStreamGetId(stream, &raw mut number)));
    number
}

fn copy(table: &Table, into: *mut c_void, from: *const c_void, bytes: usize, stream: aclrtStream) {
    ok(table, call!(table, aclrtMemcpyAsync(into, bytes, from, bytes, D2D, stream)));
}

fn fill(table: &Table, into: *mut c_void, bytes: usize, stream: aclrtStream) {
    ok(table, call!(table, aclrtMemsetAsync(into, bytes, 1, bytes, stream)));
}

/// Orders later work of `waiting` after the work so far of `recording`.
fn order(table: &Table, event: aclrtEvent, recording: aclrtStream, waiting: aclrtStream) {
    ok(table, call!(table, aclrtRecordEvent(event, recording)));
    ok(table, call!(table, aclrtStreamWaitEvent(waiting, event)));
}

#[test]
fn a_read_on_one_stream_of_what_another_writes_is_a_race_in_every_order() {
    for seed in 0..20 {
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        let (shared, own) = (card.malloc(64), card.malloc(64));
        let other = card.stream();
        let [one, two] = [card.stream, other].map(|stream| stream_number(&table, stream));
        fill(&table, shared, 64, card.stream);
        copy(&table, own, shared.wrapping_byte_add(16), 48, other);
        ok(&table, call!(table, aclrtSynchronizeDevice()));
        let (first, second) = (12, 13);
        let me = me();
        assert_eq!(
            texts(&emulator),
            [format!(
                "race: bytes 16 to 63 of the 64-byte buffer on card 0 (aclrtMalloc, call 5): [1] writes dev_ptr, [2] reads \
                 src, and nothing orders them; record an event on stream {one} after [1] and let stream {two} wait for it \
                 before [2]; [1] aclrtMemsetAsync (call {first} on thread {me}, card 0, stream {one}); \
                 [2] aclrtMemcpyAsync (call {second} on thread {me}, card 0, stream {two})"
            )],
            "seed {seed}"
        );
    }
}

#[test]
fn a_blocking_copy_does_not_wait_for_streams() {
    let (emulator, table) = strict(1, 3);
    let card = Card::new(&table, 0);
    let buffer = card.malloc(8);
    fill(&table, buffer, 8, card.stream);
    let _ = card.download(buffer, 8);
    card.synchronize();
    let stream = stream_number(&table, card.stream);
    let found = texts(&emulator);
    assert_eq!(found.len(), 1, "{found:?}");
    let expected = format!(
        "[1] writes dev_ptr, [2] reads src, and nothing orders them; synchronize stream {stream}, or an event recorded on it \
         after [1], before [2]; [1] aclrtMemsetAsync"
    );
    assert!(found[0].contains(&expected), "{}", found[0]);
}

#[test]
fn memory_freed_while_work_may_use_it_is_named_with_that_work() {
    let (emulator, table) = strict(1, 5);
    let card = Card::new(&table, 0);
    let buffer = card.malloc(32);
    fill(&table, buffer, 32, card.stream);
    ok(&table, call!(table, aclrtFree(buffer)));
    card.synchronize();
    let (me, stream) = (me(), stream_number(&table, card.stream));
    assert_eq!(
        texts(&emulator),
        [format!(
            "destroy while busy: the 32-byte buffer on card 0 (aclrtMalloc, call 5) is freed by [2] while [1] may still write \
             it as dev_ptr; synchronize stream {stream} before [2]; [1] aclrtMemsetAsync (call 6 on thread {me}, card 0, \
             stream {stream}); [2] aclrtFree (call 7 on thread {me}, card 0)"
        )]
    );
}

#[test]
fn one_missing_event_of_a_double_buffer_is_found_and_the_whole_program_is_clean() {
    for missing in [None, Some(0), Some(1)] {
        let (emulator, table) = strict(1, 7);
        let card = Card::new(&table, 0);
        let (buffers, out) = ([card.malloc(256), card.malloc(256)], card.malloc(1024));
        let mut host = null_mut();
        ok(&table, call!(table, aclrtMallocHost(&raw mut host, 1024)));
        let compute = card.stream();
        let (filled, drained) = ([card.event(), card.event()], [card.event(), card.event()]);
        for step in 0..4_usize {
            let slot = step % 2;
            if step >= 2 && missing != Some(1) {
                ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, drained[slot])));
            }
            let from = host.wrapping_byte_add(256 * step);
            ok(&table, call!(table, aclrtMemcpyAsync(buffers[slot], 256, from, 256, H2D, card.stream)));
            ok(&table, call!(table, aclrtRecordEvent(filled[slot], card.stream)));
            if missing != Some(0) {
                ok(&table, call!(table, aclrtStreamWaitEvent(compute, filled[slot])));
            }
            copy(&table, out.wrapping_byte_add(256 * step), buffers[slot], 256, compute);
            ok(&table, call!(table, aclrtRecordEvent(drained[slot], compute)));
        }
        ok(&table, call!(table, aclrtSynchronizeStream(card.stream)));
        ok(&table, call!(table, aclrtSynchronizeStream(compute)));
        let _ = card.download(out, 1024);
        let kinds: Vec<ReportKind> =
            emulator.reports().iter().map(ascend_tp_emulator::Report::kind).collect();
        match missing {
            None => assert_eq!(texts(&emulator), [""; 0]),
            Some(_) => assert_eq!(kinds, [ReportKind::Race; 2], "{:?}", texts(&emulator)),
        }
    }
}

#[test]
fn ping_pong_between_two_streams_and_columns_side_by_side_are_clean() {
    let (emulator, table) = strict(1, 11);
    let card = Card::new(&table, 0);
    let (a, b) = (card.malloc(4096), card.malloc(4096));
    let other = card.stream();
    let event = card.event();
    fill(&table, a, 4096, card.stream);
    for round in 0..6 {
        let (on, next) = if round % 2 == 0 { (card.stream, other) } else { (other, card.stream) };
        let (into, from) = if round % 2 == 0 { (b, a) } else { (a, b) };
        copy(&table, into, from, 4096, on);
        order(&table, event, on, next);
    }
    // Even columns on one stream, odd columns on the other.
    order(&table, event, card.stream, other);
    for column in 0..8 {
        let on = if column % 2 == 0 { card.stream } else { other };
        let into = a.wrapping_byte_add(32 * column);
        let from = b.wrapping_byte_add(32 * column);
        ok(&table, call!(table, aclrtMemcpy2dAsync(into, 256, from, 256, 32, 16, D2D, on)));
    }
    ok(&table, call!(table, aclrtSynchronizeDevice()));
    assert_eq!(texts(&emulator), [""; 0]);
    ok(&table, call!(table, aclrtMemcpy2dAsync(a, 256, b, 256, 33, 16, D2D, card.stream)));
    let (into, from) = (a.wrapping_byte_add(32), b.wrapping_byte_add(32));
    ok(&table, call!(table, aclrtMemcpy2dAsync(into, 256, from, 256, 32, 16, D2D, other)));
    ok(&table, call!(table, aclrtSynchronizeDevice()));
    let found = texts(&emulator);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("race: bytes 32 to 32 of the 4096-byte buffer"), "{}", found[0]);
}

fn all_reduce(table: &Table, cards: &[Card<'_>], comms: &[*mut c_void], buffers: &[*mut c_void]) {
    for ((card, comm), buffer) in cards.iter().zip(comms).zip(buffers) {
        hccl_ok(table, sum(card, *comm, *buffer, HcclDataType::HCCL_DATA_TYPE_FP32, 16));
    }
}

#[test]
fn collectives_order_the_ranks_whose_data_they_receive() {
    let (emulator, table) = strict(2, 13);
    let (cards, comms) = world(&table, 2);
    cards[0].enter();
    ok(&table, call!(table, aclrtDeviceEnablePeerAccess(1, 0)));
    let buffers: Vec<*mut c_void> = cards.iter().map(|card| card.malloc(64)).collect();
    let (source, copied) = (cards[1].malloc(64), cards[0].malloc(64));
    cards[1].enter();
    fill(&table, source, 64, cards[1].stream);
    for (card, buffer) in cards.iter().zip(&buffers) {
        card.enter();
        fill(&table, *buffer, 64, card.stream);
    }
    all_reduce(&table, &cards, &comms, &buffers);
    cards[0].enter();
    copy(&table, copied, source, 64, cards[0].stream);
    cards.iter().for_each(Card::synchronize);
    assert_eq!(texts(&emulator), [""; 0]);

    // A broadcast does not order its root after other ranks.
    cards[1].enter();
    fill(&table, source, 64, cards[1].stream);
    for ((card, comm), buffer) in cards.iter().zip(&comms).zip(&buffers) {
        card.enter();
        let dtype = HcclDataType::HCCL_DATA_TYPE_FP32;
        hccl_ok(&table, call!(table, HcclBroadcast(*buffer, 16, dtype, 0, *comm, card.stream)));
    }
    cards[0].enter();
    copy(&table, copied, source, 64, cards[0].stream);
    cards.iter().for_each(Card::synchronize);
    let kinds: Vec<ReportKind> = emulator.reports().iter().map(ascend_tp_emulator::Report::kind).collect();
    assert_eq!(kinds, [ReportKind::Race], "{:?}", texts(&emulator));
}

#[test]
fn a_buffer_used_on_a_second_stream_while_a_collective_runs_is_a_race() {
    let (emulator, table) = strict(2, 17);
    let (cards, comms) = world(&table, 2);
    let buffers: Vec<*mut c_void> = cards.iter().map(|card| card.malloc(64)).collect();
    let other = cards[0].stream();
    for (card, buffer) in cards.iter().zip(&buffers) {
        card.enter();
        fill(&table, *buffer, 64, card.stream);
        card.synchronize();
    }
    all_reduce(&table, &cards, &comms, &buffers);
    cards[0].enter();
    fill(&table, buffers[0], 4, other);
    ok(&table, call!(table, aclrtSynchronizeDevice()));
    cards[1].synchronize();
    let found = texts(&emulator);
    let buffer = "bytes 0 to 3 of the 64-byte buffer on card 0";
    assert_eq!(
        found.iter().filter(|text| text.starts_with("race: ") && text.contains(buffer)).count(),
        found.len()
    );
    assert!(!found.is_empty() && found.iter().all(|text| text.contains("HcclAllReduce")), "{found:?}");
}

#[test]
fn that_one_rank_has_received_does_not_say_that_another_has() {
    for (seed, waits_for) in (0..20).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let (emulator, table) = strict(2, seed);
        let (cards, comms) = world(&table, 2);
        let buffers: Vec<*mut c_void> = cards.iter().map(|card| card.malloc(64)).collect();
        let (before, copied, sum) = (cards[1].malloc(64), cards[1].malloc(64), cards[1].malloc(64));
        let other = cards[1].stream();
        cards[1].enter();
        fill(&table, before, 64, cards[1].stream);
        for (card, buffer) in cards.iter().zip(&buffers) {
            card.enter();
            fill(&table, *buffer, 64, card.stream);
        }
        all_reduce(&table, &cards, &comms, &buffers);
        cards[waits_for].synchronize();
        // The host follows the work before card 1's call, but its result only after a wait.
        cards[1].enter();
        copy(&table, copied, before, 64, other);
        copy(&table, sum, buffers[1], 64, other);
        cards[1].synchronize();
        ok(&table, call!(table, aclrtSynchronizeStream(other)));
        cards[0].synchronize();
        let found = texts(&emulator);
        if waits_for == 1 {
            assert_eq!(found, [""; 0], "seed {seed}");
            continue;
        }
        assert_eq!(found.len(), 1, "seed {seed}: {found:?}");
        let is_named = [
            "race: bytes 0 to 63 of the 64-byte buffer on card 1",
            "[1] HcclAllReduce",
            "[2] aclrtMemcpyAsync",
        ];
        assert!(is_named.iter().all(|part| found[0].contains(part)), "seed {seed}: {}", found[0]);
    }
}

/// The stream of the second access has not started when history is pruned.
#[test]
fn a_wait_of_the_host_orders_nothing_that_was_enqueued_before_it() {
    for (seed, is_enqueued_after) in (0..5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        let (shared, own, scratch) = (card.malloc(64), card.malloc(64), card.malloc(64));
        let other = card.stream();
        if is_enqueued_after {
            fill(&table, shared, 64, card.stream);
            card.synchronize();
        }
        let stuck = emulator.inject(Fault::Stuck { at: 1, card: 0, limit: None }).expect("card 0 is there");
        copy(&table, own, shared, 64, other);
        while stuck.struck() == 0 {
            let mut status = aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY;
            ok(&table, call!(table, aclrtStreamQuery(other, &raw mut status)));
        }
        if !is_enqueued_after {
            fill(&table, shared, 64, card.stream);
            card.synchronize();
        }
        for _ in 0..600 {
            fill(&table, scratch, 64, card.stream);
        }
        card.synchronize();
        assert_eq!(stuck.lift(), 1);
        ok(&table, call!(table, aclrtSynchronizeStream(other)));
        let kinds: Vec<ReportKind> =
            emulator.reports().iter().map(ascend_tp_emulator::Report::kind).collect();
        let expected: &[ReportKind] = if is_enqueued_after { &[] } else { &[ReportKind::Race] };
        assert_eq!(kinds, expected, "seed {seed}: {:?}", texts(&emulator));
    }
}

/// The first replay may end before the second is requested.
#[test]
fn replays_of_one_graph_on_two_streams_are_in_order() {
    for seed in 0..20 {
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        let (buffer, other) = (card.malloc(64), card.stream());
        let mode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
        ok(&table, call!(table, aclmdlRICaptureBegin(card.stream, mode)));
        fill(&table, buffer, 64, card.stream);
        let mut graph = null_mut();
        ok(&table, call!(table, aclmdlRICaptureEnd(card.stream, &raw mut graph)));
        for stream in [card.stream, other] {
            ok(&table, call!(table, aclmdlRIExecuteAsync(graph, stream)));
            for _ in 0..3 {
                let _ = card.event();
            }
        }
        ok(&table, call!(table, aclrtSynchronizeDevice()));
        ok(&table, call!(table, aclmdlRIDestroy(graph)));
        assert_eq!(texts(&emulator), [""; 0], "seed {seed}");
    }
}

#[test]
fn what_the_host_learned_by_polling_counts() {
    let (emulator, table) = strict(1, 19);
    let card = Card::new(&table, 0);
    let buffer = card.malloc(64);
    fill(&table, buffer, 64, card.stream);
    loop {
        let mut status = aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY;
        ok(&table, call!(table, aclrtStreamQuery(card.stream, &raw mut status)));
        if status == aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE {
            break;
        }
    }
    let mut out = [0_u8; 64];
    ok(&table, call!(table, aclrtMemcpy(out.as_mut_ptr().cast(), 64, buffer, 64, D2H)));
    let event = card.event();
    fill(&table, buffer, 64, card.stream);
    ok(&table, call!(table, aclrtRecordEvent(event, card.stream)));
    loop {
        let mut status = aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY;
        ok(&table, call!(table, aclrtQueryEventStatus(event, &raw mut status)));
        if status == aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE {
            break;
        }
    }
    ok(&table, call!(table, aclrtFree(buffer)));
    assert_eq!(texts(&emulator), [""; 0]);
}

#[test]
fn a_long_program_without_conflicts_stays_clean_while_streams_come_and_go() {
    let (emulator, table) = strict(1, 23);
    let card = Card::new(&table, 0);
    let (buffer, event) = (card.malloc(1024), card.event());
    for round in 0..300_usize {
        let stream = card.stream();
        fill(&table, buffer.wrapping_byte_add(round % 7), 900, stream);
        order(&table, event, stream, card.stream);
        copy(&table, buffer, buffer.wrapping_byte_add(512), 256, card.stream);
        ok(&table, call!(table, aclrtDestroyStream(stream)));
        if round % 3 == 0 {
            card.synchronize();
        }
        card.synchronize();
    }
    assert_eq!(texts(&emulator), [""; 0]);
}
