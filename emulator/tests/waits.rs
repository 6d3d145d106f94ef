//! Waits with a limit, waits for values, reductions by the copy engine, and registered host memory.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ptr::null_mut;

use crate::common::{Card, D2H, H2D, call, machine, ok, refused, young};
use ascend_tp_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_NOT_CAPTURED, ACL_ERROR_RT_TASK_TIMEOUT, aclDataType, aclrtHostRegisterType,
    aclrtReduceKind, aclrtStreamStatus,
};

#[test]
fn a_wait_that_takes_too_long_fails_its_stream_and_names_what_it_waited_for() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (other, third) = (card.stream(), card.stream());
    let mut notify = null_mut();
    ok(&table, young!(table, aclrtCreateNotify(&raw mut notify, 0)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, card.stream, 1)));
    let (code, message) = card.outcome();
    assert_eq!(code, ACL_ERROR_RT_TASK_TIMEOUT, "{message}");
    assert!(message.contains("was not recorded within the limit of 1 s"), "{message}");

    let event = card.event();
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, other, 0)));
    ok(&table, call!(table, aclrtRecordEvent(event, other)));
    ok(&table, young!(table, aclrtStreamWaitEventWithFlag(third, event, 1, 0)));
    let code = call!(table, aclrtSynchronizeStream(third));
    assert!(refused(&table, code, ACL_ERROR_RT_TASK_TIMEOUT).contains("the event was not recorded"));
    // A limit that is not reached has no effect. The notify releases the waiting streams.
    let fourth = card.stream();
    ok(&table, young!(table, aclrtRecordNotify(notify, fourth)));
    ok(&table, young!(table, aclrtStreamWaitEventWithFlag(fourth, event, 3600, 0)));
    ok(&table, call!(table, aclrtSynchronizeStream(fourth)));
    ok(&table, young!(table, aclrtRecordEventWithFlag(event, fourth, 0)));
    ok(&table, call!(table, aclrtSynchronizeEvent(event)));
    let code = young!(table, aclrtRecordEventWithFlag(event, fourth, 1));
    assert!(refused(&table, code, ACL_ERROR_RT_STREAM_NOT_CAPTURED).contains("is not being captured"));
    let code = young!(table, aclrtStreamStop(fourth));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("ACL_STREAM_DEVICE_USE_ONLY"));
}

#[test]
fn streams_wait_for_values_other_streams_or_the_host_write() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let other = card.stream();
    let place = card.upload(&[0; 16]);
    ok(&table, young!(table, aclrtValueWait(place, 7, 1, card.stream)));
    let after = place.wrapping_byte_add(8);
    ok(&table, young!(table, aclrtValueWrite(after, u64::MAX, 0, card.stream)));
    let waits = || {
        let mut status = aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE;
        ok(&table, call!(table, aclrtStreamQuery(card.stream, &raw mut status)));
        status == aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY
    };
    ok(&table, young!(table, aclrtValueWrite(place, 6, 0, other)));
    ok(&table, call!(table, aclrtSynchronizeStream(other)));
    assert!(waits(), "6 is not 7");
    ok(&table, young!(table, aclrtValueWrite(place, 7, 0, other)));
    card.synchronize();
    assert_eq!(card.download(after, 8), [0xFF; 8]);

    ok(&table, young!(table, aclrtValueWait(place, 9, 0, card.stream)));
    assert!(waits());
    ok(&table, call!(table, aclrtMemcpy(place, 8, 10_u64.to_le_bytes().as_ptr().cast(), 8, H2D)));
    card.synchronize();

    let code = young!(table, aclrtValueWait(place, 0, 4, card.stream));
    assert!(refused(&table, code, ACL_ERROR_INVALID_PARAM).contains("none of GEQ 0"));
    let code = young!(table, aclrtValueWrite(place.wrapping_byte_add(4), 0, 0, card.stream));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("no multiple of 8"));
}

#[test]
fn the_copy_engine_reduces_what_an_atlas_a2_reduces() {
    let (_emulator, table) = machine(2);
    let card = Card::new(&table, 0);
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let sum = aclrtReduceKind::ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM;
    let max = aclrtReduceKind::ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX;
    let (dst, src) = (card.upload(&floats(&[1.5, -2.0, 8.0])), card.upload(&floats(&[1.0, 4.0, -1.0])));
    let reduce = |kind, dtype, bytes| {
        young!(table, aclrtReduceAsync(dst, src, bytes, kind, dtype, card.stream, null_mut()))
    };
    ok(&table, reduce(sum, aclDataType::ACL_FLOAT, 12));
    ok(&table, reduce(max, aclDataType::ACL_FLOAT, 8));
    card.synchronize();
    assert_eq!(card.download(dst, 12), floats(&[2.5, 4.0, 7.0]));
    let code = reduce(aclrtReduceKind::ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL, aclDataType::ACL_FLOAT, 12);
    assert!(refused(&table, code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT).contains("EQUAL 13"));
    assert!(
        refused(&table, reduce(sum, aclDataType::ACL_INT64, 8), ACL_ERROR_RT_FEATURE_NOT_SUPPORT)
            .contains("type 9")
    );
    assert!(
        refused(&table, reduce(sum, aclDataType::ACL_FLOAT, 6), ACL_ERROR_RT_PARAM_INVALID)
            .contains("no multiple")
    );
    let far = Card::new(&table, 1);
    let elsewhere = far.malloc(12);
    card.enter();
    let code = young!(
        table,
        aclrtReduceAsync(dst, elsewhere, 12, sum, aclDataType::ACL_FLOAT, card.stream, null_mut())
    );
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("src is not on card 0"));
}

#[test]
fn registered_host_memory_is_page_locked_and_has_bounds() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let other = card.stream();
    let mut bytes = vec![0_u8; 4096];
    let (address, mut seen) = (bytes.as_mut_ptr().cast(), null_mut());
    let mapped = aclrtHostRegisterType::ACL_HOST_REGISTER_MAPPED;
    ok(&table, call!(table, aclrtHostRegister(address, 4096, mapped, &raw mut seen)));
    assert_eq!(seen, address);
    let inside = address.wrapping_byte_add(100);
    let code = call!(table, aclrtHostRegister(inside, 8, mapped, &raw mut seen));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("registered already"));

    // The call returns before the copy runs.
    let mut notify = null_mut();
    ok(&table, young!(table, aclrtCreateNotify(&raw mut notify, 0)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, card.stream, 0)));
    let source = card.upload(&[5; 8]);
    ok(&table, call!(table, aclrtMemcpyAsync(inside, 8, source, 8, D2H, card.stream)));
    let code = call!(table, aclrtHostUnregister(address));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("queued work still uses"));
    ok(&table, young!(table, aclrtRecordNotify(notify, other)));
    card.synchronize();
    assert_eq!(bytes[99..109], [0, 5, 5, 5, 5, 5, 5, 5, 5, 0]);
    let end = address.wrapping_byte_add(4092);
    let code = call!(table, aclrtMemcpy(end, 8, source, 8, D2H));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("out of bounds"));
    let code = call!(table, aclrtFreeHost(address));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("aclrtHostUnregister"));
    ok(&table, call!(table, aclrtHostUnregister(address)));
    let code = call!(table, aclrtHostUnregister(address));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("is not registered"));
}
