//! Time limits of waits hold regardless of earlier work and of how the program checks the stream.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Card, Gate, call, hccl_ok, machine_of, ok, world};
use ascend_tp_emulator::{Config, Emulator};
use ascend_tp_sys::{
    ACL_ERROR_RT_TASK_TIMEOUT, HcclComm, HcclDataType, HcclReduceOp, Table, aclrtEventRecordedStatus,
    aclrtStreamStatus,
};

/// A test counts as hanging after this time.
const NEVER: Duration = Duration::from_secs(120);

/// Collectives of two cards wait one second.
fn impatient() -> (Emulator, Arc<Table>) {
    let config = Config { exec_timeout: Duration::from_secs(1), ..Config::with_cards(2) };
    let (emulator, table) = machine_of(config);
    (emulator, table)
}

fn call_alone(table: &Table, card: &Card<'_>, comm: HcclComm) {
    let buffer = card.malloc(64);
    let (fp32, sum) = (HcclDataType::HCCL_DATA_TYPE_FP32, HcclReduceOp::HCCL_REDUCE_SUM);
    hccl_ok(table, call!(table, HcclAllReduce(buffer, buffer, 16, fp32, sum, comm, card.stream)));
}

fn poll(look: impl Fn() -> i32) -> i32 {
    let since = Instant::now();
    loop {
        let code = look();
        if code != 0 {
            return code;
        }
        assert!(since.elapsed() < NEVER, "the limit is not kept");
        std::thread::yield_now();
    }
}

#[test]
fn a_collective_waits_no_longer_for_being_reached_after_the_host_began_to_wait() {
    let (_emulator, table) = impatient();
    let (cards, comms) = world(&table, 2);
    let gate = Arc::new(Gate::default());
    cards[0].enter();
    gate.enqueue(&table, cards[0].stream);
    call_alone(&table, &cards[0], comms[0]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cards[0].outcome());
        gate.open();
        let (code, text) = waiting.join().expect("no panic");
        assert_eq!(code, ACL_ERROR_RT_TASK_TIMEOUT, "{text}");
        assert!(
            text.contains("no data after 1 s (HCCL_EXEC_TIMEOUT); ranks [1] have not made their call"),
            "{text}"
        );
        assert_eq!(text.matches("communicator").count(), 1, "said where once: {text}");
    });
}

#[test]
fn who_only_polls_hears_of_it_too() {
    let (_emulator, table) = impatient();
    let (cards, comms) = world(&table, 2);
    cards[0].enter();
    let event = cards[0].event();
    call_alone(&table, &cards[0], comms[0]);
    ok(&table, call!(table, aclrtRecordEvent(event, cards[0].stream)));
    let code = poll(|| {
        let mut status = aclrtStreamStatus(0);
        call!(table, aclrtStreamQuery(cards[0].stream, &raw mut status))
    });
    assert_eq!(code, ACL_ERROR_RT_TASK_TIMEOUT);
    let mut reached = aclrtEventRecordedStatus(7);
    let since = Instant::now();
    while reached != aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE {
        ok(&table, call!(table, aclrtQueryEventStatus(event, &raw mut reached)));
        assert!(since.elapsed() < NEVER);
    }
}

#[test]
fn a_notify_is_waited_for_no_longer_behind_work() {
    let (_emulator, table) = impatient();
    let card = Card::new(&table, 0);
    let mut notify = null_mut();
    let (create, wait) =
        (table.aclrtCreateNotify.expect("modelled"), table.aclrtWaitAndResetNotify.expect("modelled"));
    // SAFETY: a valid pointer.
    ok(&table, unsafe { create(&raw mut notify, 0) });
    let gate = Arc::new(Gate::default());
    gate.enqueue(&table, card.stream);
    // SAFETY: handles of this table.
    ok(&table, unsafe { wait(notify, card.stream, 1) });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| card.outcome());
        gate.open();
        let (code, text) = waiting.join().expect("no panic");
        assert_eq!(code, ACL_ERROR_RT_TASK_TIMEOUT, "{text}");
        assert!(text.contains("was not recorded within the limit of 1 s"), "{text}");
    });
}
