//! The seed alone decides the order, and an endless wait causes a report instead of a hang.
//!
//! Real threads pause differently in every run. Traces and reports are compared exactly.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::strict::*;
use crate::common::*;
use ascend_tp_sys::HcclRootInfo;

fn program(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("program".into());
        thread.spawn_scoped(scope, body).expect("a thread starts");
    });
}

const TASK_TIMEOUT: i32 = ascend_tp_sys::ACL_ERROR_RT_TASK_TIMEOUT;

#[test]
fn page_locked_memory_is_read_when_the_copy_runs() {
    program(|| {
        let mut seen = BTreeSet::new();
        for seed in 0..16 {
            let (emulator, table) = strict(1, seed);
            let card = Card::new(&table, 0);
            let buffer = card.malloc(4);
            let mut host = null_mut();
            ok(&table, call!(table, aclrtMallocHost(&raw mut host, 4)));
            let host = host.cast::<i32>();
            // SAFETY: 4 aligned bytes of page-locked memory.
            unsafe { host.write(1) };
            ok(&table, call!(table, aclrtMemcpyAsync(buffer, 4, host.cast(), 4, H2D, card.stream)));
            // The copy may run before the value changes.
            ok(&table, call!(table, aclrtSetCurrentContext(card.context)));
            // SAFETY: as above.
            unsafe { host.write(2) };
            card.synchronize();
            let value = card.download(buffer, 4);
            assert_eq!(emulator.config().cards, 1);
            seen.insert(value[0]);
        }
        assert_eq!(seen, BTreeSet::from([1, 2]), "some seeds run the copy late, some early");
    });
}

#[test]
fn a_rank_that_never_comes_is_named() {
    program(|| {
        let (emulator, table) = strict(3, 7);
        let (cards, comms) = world(&table, 3);
        let comms: Vec<usize> = comms.into_iter().map(|comm| comm.addr()).collect();
        on_threads(3, |rank| {
            let card = &cards[rank];
            let buffer = card.malloc(16);
            if rank == 1 {
                return;
            }
            let comm = std::ptr::without_provenance_mut(comms[rank]);
            all_reduce(&table, card, buffer, 4, comm);
            let (code, message) = card.outcome();
            assert_eq!(code, TASK_TIMEOUT, "{message}");
            assert!(message.contains("rank 1 has not made the call"), "{message}");
        });
        assert_eq!(
            texts(&emulator),
            ["rank absent: communicator hccl_world_10, collective 0: rank 1 has not made the call; \
                 rank 0 waits at [1]; \
                 rank 2 waits at [2]; \
                 rank 1 is on card 1: thread rank-1 has ended after aclrtMalloc; \
                 [1] HcclAllReduce (call 20 on thread rank-0, rank 0, card 0, stream 3); \
                 [2] HcclAllReduce (call 15 on thread rank-2, rank 2, card 2, stream 9)"]
        );
    });
}

#[test]
fn two_streams_that_wait_for_each_other_are_a_cycle() {
    program(|| {
        let (emulator, table) = strict(1, 3);
        let card = Card::new(&table, 0);
        let (one, two) = (card.stream(), card.stream());
        let (first, second) = (card.event(), card.event());
        // The records precede the waits, but follow a wait for a notify that is recorded later.
        let mut notify = null_mut();
        let create = table.aclrtCreateNotify.expect("modelled");
        // SAFETY: a valid pointer.
        ok(&table, unsafe { create(&raw mut notify, 0) });
        let (wait, record) =
            (table.aclrtWaitAndResetNotify.expect("modelled"), table.aclrtRecordNotify.expect("modelled"));
        // SAFETY: live handles.
        ok(&table, unsafe { wait(notify, one, 0) });
        ok(&table, call!(table, aclrtRecordEvent(first, one)));
        ok(&table, call!(table, aclrtStreamWaitEvent(two, first)));
        ok(&table, call!(table, aclrtRecordEvent(second, two)));
        ok(&table, call!(table, aclrtStreamWaitEvent(card.stream, second)));
        // SAFETY: as above.
        ok(&table, unsafe { record(notify, card.stream) });
        assert_eq!(call!(table, aclrtSynchronizeStream(one)), TASK_TIMEOUT);
        assert_eq!(
            texts(&emulator),
            ["deadlock: a cycle of 3 waits: stream 3 of card 0 waits at [1] for event 7, recorded by [2] \
                 later on stream 5; \
                 stream 5 of card 0 waits at [3] for event 6, recorded by [4] later on stream 4; \
                 stream 4 of card 0 waits at [5] for notify 8, recorded by [6] later on stream 3; \
                 [1] aclrtStreamWaitEvent (call 17 on thread program, card 0, stream 3); \
                 [2] aclrtRecordEvent (call 16 on thread program, card 0, stream 5); \
                 [3] aclrtStreamWaitEvent (call 15 on thread program, card 0, stream 5); \
                 [4] aclrtRecordEvent (call 14 on thread program, card 0, stream 4); \
                 [5] aclrtWaitAndResetNotify (call 13 on thread program, card 0, stream 4); \
                 [6] aclrtRecordNotify (call 18 on thread program, card 0, stream 3)"]
        );
    });
}

#[test]
fn two_communicators_in_opposite_order_are_a_cycle() {
    program(|| {
        let (emulator, table) = strict(2, 11);
        let (cards, comms) = world(&table, 2);
        let mut others = vec![null_mut(); 2];
        hccl_ok(&table, call!(table, HcclCommInitAll(2, [0_i32, 1].as_mut_ptr(), others.as_mut_ptr())));
        let comms: Vec<[usize; 2]> = (0..2).map(|rank| [comms[rank].addr(), others[rank].addr()]).collect();
        on_threads(2, |rank| {
            let card = &cards[rank];
            let buffer = card.malloc(16);
            let comm = |which: usize| std::ptr::without_provenance_mut(comms[rank][which]);
            all_reduce(&table, card, buffer, 4, comm(rank));
            all_reduce(&table, card, buffer, 4, comm(1 - rank));
            assert_eq!(card.outcome().0, TASK_TIMEOUT);
        });
        assert_eq!(
            texts(&emulator),
            ["deadlock: a cycle of 2 waits: stream 3 of card 0 waits at [1] in communicator hccl_world_7, \
                 collective 0, for rank 1, which calls [2] later on stream 6; \
                 stream 6 of card 1 waits at [3] in communicator hccl_world_10, collective 0, for rank 0, which calls [4] \
                 later on stream 3; \
                 [1] HcclAllReduce (call 15 on thread rank-0, rank 0, card 0, stream 3); \
                 [2] HcclAllReduce (call 17 on thread rank-1, rank 1, card 1, stream 6); \
                 [3] HcclAllReduce (call 14 on thread rank-1, rank 1, card 1, stream 6); \
                 [4] HcclAllReduce (call 21 on thread rank-0, rank 0, card 0, stream 3)"]
        );
    });
}

#[test]
fn a_thread_that_waits_between_two_communicators_is_part_of_the_cycle() {
    program(|| {
        let (emulator, table) = strict(2, 12);
        let (cards, comms) = world(&table, 2);
        let mut others = vec![null_mut(); 2];
        hccl_ok(&table, call!(table, HcclCommInitAll(2, [0_i32, 1].as_mut_ptr(), others.as_mut_ptr())));
        let comms: Vec<[usize; 2]> = (0..2).map(|rank| [comms[rank].addr(), others[rank].addr()]).collect();
        on_threads(2, |rank| {
            let card = &cards[rank];
            let buffer = card.malloc(16);
            let comm = |which: usize| std::ptr::without_provenance_mut(comms[rank][which]);
            all_reduce(&table, card, buffer, 4, comm(rank));
            assert_eq!(card.outcome().0, TASK_TIMEOUT);
        });
        assert_eq!(
            texts(&emulator),
            ["deadlock: a cycle of 4 waits: stream 3 of card 0 waits at [1] in communicator hccl_world_7, \
                 collective 0, for rank 1, but thread rank-1 has not made the call; \
                 thread rank-1 waits in [2] for stream 6; \
                 stream 6 of card 1 waits at [3] in communicator hccl_world_10, collective 0, for rank 0, but thread rank-0 \
                 has not made the call; \
                 thread rank-0 waits in [4] for stream 3; \
                 [1] HcclAllReduce (call 16 on thread rank-0, rank 0, card 0, stream 3); \
                 [2] aclrtSynchronizeStream (call 17 on thread rank-1, rank 1, card 1, stream 6); \
                 [3] HcclAllReduce (call 13 on thread rank-1, rank 1, card 1, stream 6); \
                 [4] aclrtSynchronizeStream (call 19 on thread rank-0, rank 0, card 0, stream 3)"]
        );
    });
}

#[test]
fn a_communicator_that_lacks_a_rank_is_not_waited_for() {
    program(|| {
        let (emulator, table) = strict(3, 5);
        let card = Card::new(&table, 0);
        card.enter();
        let mut root = HcclRootInfo { internal: [0; 4108] };
        hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut root)));
        on_threads(2, |rank| {
            let _card = Card::new(&table, rank as i32);
            let mut comm = null_mut();
            let code = call!(table, HcclCommInitRootInfo(3, &raw const root, rank as u32, &raw mut comm));
            let message = hccl_refused(&table, code, ascend_tp_sys::HcclResult::HCCL_E_TIMEOUT);
            assert!(message.contains("(HCCL_CONNECT_TIMEOUT) ranks [2] of 3 have not come"), "{message}");
        });
        let reports = texts(&emulator);
        let start = "rank absent: a communicator of 3 ranks is being built: rank 2 has not come; rank 0 waits at [1]; \
                     rank 1 waits at [2]; thread program waits for another thread outside the library after \
                     HcclGetRootInfo; [1] HcclCommInitRootInfo (call ";
        assert!(reports.len() == 1 && reports[0].starts_with(start), "{reports:?}");
    });
}

#[test]
fn time_limits_end_waits_without_a_clock() {
    program(|| {
        let (emulator, table) = strict(2, 1);
        let (cards, comms) = world(&table, 2);
        let buffer = cards[0].malloc(16);
        all_reduce(&table, &cards[0], buffer, 4, comms[0]);
        // The limits of one and ten minutes end immediately, in this order.
        for timeout in [60_000, 600_000] {
            let code = call!(table, aclrtSynchronizeStreamWithTimeout(cards[0].stream, timeout));
            assert_eq!(code, ascend_tp_sys::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
        }
        assert_eq!(texts(&emulator), Vec::<String>::new());
        let buffer = cards[1].malloc(16);
        all_reduce(&table, &cards[1], buffer, 4, comms[1]);
        cards[0].synchronize();
        cards[1].synchronize();
    });
}

#[test]
fn an_event_nobody_has_recorded_orders_nothing() {
    program(|| {
        let (emulator, table) = strict(1, 1);
        let card = Card::new(&table, 0);
        let event = card.event();
        let code = call!(table, aclrtStreamWaitEvent(card.stream, event));
        refused(&table, code, ascend_tp_sys::ACL_ERROR_RT_PARAM_INVALID);
        let code = call!(table, aclrtSynchronizeEvent(event));
        refused(&table, code, ascend_tp_sys::ACL_ERROR_RT_PARAM_INVALID);
        assert_eq!(
            texts(&emulator),
            [
                "wait before record: event 4 is waited for, but no record is enqueued, so the wait \
                 orders nothing; \
                 call aclrtRecordEvent first; \
                 [1] aclrtStreamWaitEvent (call 6 on thread program, card 0, stream 3)",
                "wait before record: event 4 is waited for, but no record is enqueued, so the wait \
                 orders nothing; \
                 call aclrtRecordEvent first; \
                 [1] aclrtSynchronizeEvent (call 7 on thread program, card 0)"
            ]
        );
    });
}

unsafe extern "C" fn count_cards(seen: *mut c_void) {
    // SAFETY: the counter outlives the stream.
    let seen = unsafe { &*seen.cast::<AtomicU64>() };
    seen.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn functions_of_the_program_run_in_their_turn() {
    program(|| {
        for seed in 0..8 {
            let (emulator, table) = strict(1, seed);
            let card = Card::new(&table, 0);
            let seen = AtomicU64::new(0);
            let launch = table.aclrtLaunchHostFunc.expect("modelled");
            for _ in 0..3 {
                // SAFETY: live handles; the counter outlives the synchronization.
                ok(&table, unsafe {
                    launch(card.stream, Some(count_cards), (&raw const seen).cast_mut().cast())
                });
            }
            card.synchronize();
            assert_eq!(seen.load(Ordering::Relaxed), 3);
            let runs = emulator
                .trace()
                .iter()
                .filter(|event| event.to_string().ends_with("runs host function"))
                .count();
            assert_eq!(runs, 3);
            assert_eq!(texts(&emulator), Vec::<String>::new());
        }
    });
}

#[test]
fn a_rank_that_waits_outside_the_library_is_named_with_what_it_does() {
    program(|| {
        let (emulator, table) = strict(2, 9);
        let (cards, comms) = world(&table, 2);
        let comms: Vec<usize> = comms.into_iter().map(|comm| comm.addr()).collect();
        let (tell, told) = std::sync::mpsc::channel();
        let (tell, told) = (std::sync::Mutex::new(Some(tell)), std::sync::Mutex::new(told));
        on_threads(2, |rank| {
            let card = &cards[rank];
            let buffer = card.malloc(16);
            let comm = std::ptr::without_provenance_mut(comms[rank]);
            if rank == 1 {
                told.lock().expect("one user").recv().expect("rank 0 tells");
                return;
            }
            all_reduce(&table, card, buffer, 4, comm);
            assert_eq!(card.outcome().0, TASK_TIMEOUT);
            let tell = tell.lock().expect("one user").take().expect("told once");
            tell.send(()).expect("rank 1 listens");
        });
        assert_eq!(
            texts(&emulator),
            ["rank absent: communicator hccl_world_7, collective 0: rank 1 has not made the call; \
                 rank 0 waits at [1]; \
                 rank 1 is on card 1: thread program waits for another thread outside the library after \
                 HcclCommInitAll, thread rank-1 waits for another thread outside the library after aclrtMalloc; \
                 [1] HcclAllReduce (call 12 on thread rank-0, rank 0, card 0, stream 3)"]
        );
    });
}

#[test]
fn a_callback_that_never_comes_ends_its_wait() {
    program(|| {
        let (emulator, table) = strict(1, 4);
        let card = Card::new(&table, 0);
        let thread = this_thread();
        ok(&table, call!(table, aclrtSubscribeReport(thread, card.stream)));
        let code = call!(table, aclrtProcessReport(-1));
        refused(&table, code, TASK_TIMEOUT);
        assert_eq!(
            texts(&emulator),
            ["deadlock: thread program waits in [1] for a callback that no stream will bring; \
                 [1] aclrtProcessReport (call 5 on thread program, card 0)"]
        );
    });
}

#[test]
fn a_notify_nobody_records_is_named() {
    program(|| {
        let (emulator, table) = strict(1, 4);
        let card = Card::new(&table, 0);
        let mut notify = null_mut();
        let create = table.aclrtCreateNotify.expect("modelled");
        // SAFETY: a valid pointer.
        ok(&table, unsafe { create(&raw mut notify, 0) });
        let wait = table.aclrtWaitAndResetNotify.expect("modelled");
        // SAFETY: live handles.
        ok(&table, unsafe { wait(notify, card.stream, 0) });
        assert_eq!(card.outcome().0, TASK_TIMEOUT);
        assert_eq!(
            texts(&emulator),
            ["deadlock: stream 3 of card 0 waits at [1] for notify 4, which no queued call records; \
                 [1] aclrtWaitAndResetNotify (call 5 on thread program, card 0, stream 3)"]
        );
    });
}

#[test]
fn a_machine_may_be_dropped_while_threads_that_called_it_live_on() {
    program(|| {
        let (emulator, table) = strict(1, 2);
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let worker = {
            let table = Arc::clone(&table);
            std::thread::spawn(move || {
                let card = Card::new(&table, 0);
                card.synchronize();
                drop(table);
                told.recv().expect_err("the test hangs up");
            })
        };
        drop(table);
        drop(emulator);
        drop(tell);
        worker.join().expect("the worker ends");
    });
}

unsafe extern "C" {
    fn pthread_self() -> usize;
}

fn this_thread() -> u64 {
    // SAFETY: always succeeds and has no conditions.
    unsafe { pthread_self() as u64 }
}
