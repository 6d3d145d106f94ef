//! Events: order, completion, and times.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ptr::null_mut;
use std::sync::Arc;

use crate::common::*;
use ascend_tp_sys::aclrtEventRecordedStatus;

#[test]
fn events_order_streams_and_threads() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (first, second) = (card.stream, card.stream());
    let event = card.event();
    let status = || {
        let mut status = aclrtEventRecordedStatus(7);
        ok(&table, call!(table, aclrtQueryEventStatus(event, &raw mut status)));
        status
    };
    assert_eq!(status(), aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY, "never recorded");
    let (mut reused, mut of_reused) = (null_mut(), aclrtEventRecordedStatus(7));
    ok(&table, call!(table, aclrtCreateEventExWithFlag(&raw mut reused, 1)));
    ok(&table, call!(table, aclrtQueryEventStatus(reused, &raw mut of_reused)));
    assert_eq!(of_reused, aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE, "holds no tasks yet");
    let source = card.upload(&[7; 8]);
    let target = card.upload(&[0; 8]);
    let seen = card.upload(&[0; 8]);
    let gate = Arc::new(Gate::default());
    gate.enqueue(&table, first);
    ok(&table, call!(table, aclrtMemcpyAsync(target, 8, source, 8, D2D, first)));
    ok(&table, call!(table, aclrtRecordEvent(event, first)));
    ok(&table, call!(table, aclrtStreamWaitEvent(second, event)));
    ok(&table, call!(table, aclrtMemcpyAsync(seen, 8, target, 8, D2D, second)));
    assert_eq!(status(), aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY);
    assert!(
        refused(&table, call!(table, aclrtSynchronizeEventWithTimeout(event, 3)), 507_047)
            .contains("not done")
    );
    let third = card.stream();
    let other_gate = Arc::new(Gate::default());
    other_gate.enqueue(&table, third);
    ok(&table, call!(table, aclrtRecordEvent(event, third)));
    gate.open();
    ok(&table, call!(table, aclrtSynchronizeStream(second)));
    assert_eq!(card.download(seen, 8), [7; 8]);
    assert_eq!(status(), aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY);
    other_gate.open();
    ok(&table, call!(table, aclrtSynchronizeEvent(event)));
    assert_eq!(status(), aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE);
}

#[test]
fn events_keep_time_and_obey_their_flags() {
    let (_emulator, table) = machine(2);
    let card = Card::new(&table, 0);
    let (start, end) = (card.event(), card.event());
    let mut ms = -1.0_f32;
    let early = refused(&table, call!(table, aclrtEventElapsedTime(&raw mut ms, start, end)), 107_006);
    assert!(early.contains("not been recorded"), "{early}");
    ok(&table, call!(table, aclrtRecordEvent(start, card.stream)));
    ok(&table, call!(table, aclrtRecordEvent(end, card.stream)));
    card.synchronize();
    ok(&table, call!(table, aclrtEventElapsedTime(&raw mut ms, start, end)));
    assert!(ms >= 0.0);
    let (mut first_us, mut last_us) = (0, 0);
    ok(&table, call!(table, aclrtEventGetTimestamp(start, &raw mut first_us)));
    ok(&table, call!(table, aclrtEventGetTimestamp(end, &raw mut last_us)));
    assert!(first_us <= last_us);

    let mut event = null_mut();
    ok(&table, call!(table, aclrtCreateEventWithFlag(&raw mut event, 8)));
    ok(&table, call!(table, aclrtRecordEvent(event, card.stream)));
    let flag = refused(&table, call!(table, aclrtStreamWaitEvent(card.stream, event)), 107_000);
    assert!(flag.contains("ACL_EVENT_SYNC"), "{flag}");
    refused(&table, call!(table, aclrtResetEvent(event, card.stream)), 107_000);
    refused(&table, call!(table, aclrtResetEvent(start, card.stream)), 107_000);
    ok(&table, call!(table, aclrtCreateEventWithFlag(&raw mut event, 1)));
    ok(&table, call!(table, aclrtResetEvent(event, card.stream)));
    assert!(
        refused(&table, call!(table, aclrtEventElapsedTime(&raw mut ms, event, end)), 107_006)
            .contains("TIME_LINE")
    );
    refused(&table, call!(table, aclrtCreateEventWithFlag(&raw mut event, 0x40)), 100_000);
    let other = Card::new(&table, 1);
    let crossed = refused(&table, call!(table, aclrtRecordEvent(start, other.stream)), 107_000);
    assert!(crossed.contains("belongs to card 0"), "{crossed}");
    ok(&table, call!(table, aclrtDestroyEvent(start)));
    other.enter();
    assert!(refused(&table, call!(table, aclrtDestroyEvent(start)), 107_000).contains("does not exist"));
}
