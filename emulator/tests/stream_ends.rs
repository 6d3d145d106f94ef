//! Streams that are aborted, destroyed or fail while they wait.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::sync::Arc;

use crate::common::{Card, Gate, call, machine, message, notify, ok, refused, young};
use ascend_tp_sys::{ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_STREAM_ABORT, ACL_ERROR_RT_TASK_TIMEOUT};
use ascend_tp_sys::{Table, aclrtStream};

fn outcome(table: &Table, stream: aclrtStream) -> i32 {
    call!(table, aclrtSynchronizeStream(stream))
}

#[test]
fn a_stream_destroyed_by_force_swallows_no_notify() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (gone, other) = (card.stream(), card.stream());
    let notify = notify(&table);
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, gone, 0)));
    ok(&table, call!(table, aclrtDestroyStreamForce(gone)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, other, 0)));
    ok(&table, young!(table, aclrtRecordNotify(notify, card.stream)));
    ok(&table, outcome(&table, other));
}

#[test]
fn an_aborted_stream_waits_for_nothing_any_more() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let [for_notify, for_event, for_value] = [(); 3].map(|()| card.stream());
    let (notify, gate, event) = (notify(&table), Arc::new(Gate::default()), card.event());
    let place = card.upload(&[0; 8]);
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, for_notify, 0)));
    gate.enqueue(&table, card.stream);
    ok(&table, call!(table, aclrtRecordEvent(event, card.stream)));
    ok(&table, call!(table, aclrtStreamWaitEvent(for_event, event)));
    ok(&table, young!(table, aclrtValueWait(place, 7, 1, for_value)));
    for stream in [for_notify, for_event, for_value] {
        ok(&table, call!(table, aclrtStreamAbort(stream)));
        assert_eq!(outcome(&table, stream), ACL_ERROR_RT_STREAM_ABORT);
    }
    let other = card.stream();
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, other, 0)));
    ok(&table, call!(table, aclrtStreamWaitEvent(other, event)));
    gate.open();
    ok(&table, young!(table, aclrtRecordNotify(notify, card.stream)));
    ok(&table, outcome(&table, other));
    card.synchronize();
}

/// Makes the stream fail with an unsatisfied wait of one second.
fn fail(table: &Table, stream: aclrtStream) {
    let never = notify(table);
    ok(table, young!(table, aclrtWaitAndResetNotify(never, stream, 1)));
}

#[test]
fn what_follows_a_failure_is_run_and_taken() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let memory = card.upload(&[0; 16]);
    fail(&table, card.stream);
    ok(&table, call!(table, aclrtMemsetAsync(memory, 8, 5, 8, card.stream)));
    assert_eq!(outcome(&table, card.stream), ACL_ERROR_RT_TASK_TIMEOUT);
    let later = memory.wrapping_byte_add(8);
    ok(&table, call!(table, aclrtMemsetAsync(later, 8, 6, 8, card.stream)));
    assert_eq!(outcome(&table, card.stream), ACL_ERROR_RT_TASK_TIMEOUT);
    assert!(message(&table).contains("was not recorded within the limit"), "{}", message(&table));
    assert_eq!(card.download(memory, 16), [[5; 8], [6; 8]].concat());
}

#[test]
fn stop_on_failure_stops_the_streams_of_the_context() {
    let (_emulator, table) = machine(1);
    let (card, apart) = (Card::new(&table, 0), Card::new(&table, 0));
    card.enter();
    let (failing, other, waiting) = (card.stream(), card.stream(), card.stream());
    let memory = card.upload(&[1; 8]);
    ok(&table, call!(table, aclrtSetStreamFailureMode(other, 1)));
    let twice = call!(table, aclrtSetStreamFailureMode(other, 0));
    assert!(refused(&table, twice, ACL_ERROR_RT_PARAM_INVALID).contains("can be set once"));
    let gate = Arc::new(Gate::default());
    gate.enqueue(&table, other);
    ok(&table, call!(table, aclrtMemsetAsync(memory, 8, 9, 8, other)));
    let never = notify(&table);
    ok(&table, young!(table, aclrtWaitAndResetNotify(never, waiting, 0)));
    fail(&table, failing);
    assert_eq!(outcome(&table, failing), ACL_ERROR_RT_TASK_TIMEOUT);
    assert_eq!(outcome(&table, waiting), ACL_ERROR_RT_TASK_TIMEOUT, "it waits no longer");
    gate.open();
    assert_eq!(outcome(&table, other), ACL_ERROR_RT_TASK_TIMEOUT);
    let refusal = call!(table, aclrtMemsetAsync(memory, 8, 9, 8, other));
    assert!(refused(&table, refusal, ACL_ERROR_RT_TASK_TIMEOUT).contains("was not recorded"));
    assert_eq!(card.download(memory, 8), [1; 8]);
    apart.enter();
    ok(&table, call!(table, aclrtMemsetAsync(memory, 8, 3, 8, apart.stream)));
    apart.synchronize();
    assert_eq!(apart.download(memory, 8), [3; 8]);
}
