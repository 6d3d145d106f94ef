//! Marks, which name the following work of their stream, and profiling sessions.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::CString;
use std::ptr::null_mut;

use crate::common::operators::embedding;
use crate::common::{Card, call, machine, message, ok, refused};
use ascend_tp_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_PROF_ALREADY_RUN, ACL_ERROR_PROF_NOT_RUN, Table, aclprofAicoreMetrics,
    aclprofConfig, aclrtStream,
};

fn mark(table: &Table, text: &str, stream: aclrtStream) {
    let bytes = CString::new(text).expect("no NUL");
    ok(table, call!(table, aclprofMarkEx(bytes.as_ptr(), text.len(), stream)));
}

#[test]
fn a_failure_names_the_mark_that_held_when_its_work_was_enqueued() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    // Fails on the card, after both marks.
    let (weight, index) = (card.upload(&[0; 16]), card.upload(&9_i64.to_le_bytes()));
    let out = card.malloc(64);
    mark(&table, "layer 3 o_proj", card.stream);
    let failing = embedding(&card, weight, index, out);
    mark(&table, "layer 4", card.stream);
    failing.expect("only the card can see the index");
    let (code, text) = card.outcome();
    assert_ne!(code, 0);
    assert!(text.contains("at \"layer 3 o_proj\"") && text.contains("aclnnEmbedding"), "{text}");
    assert!(!text.contains("layer 4"), "{text}");
}

#[test]
fn marks_are_at_most_127_bytes_and_an_empty_one_ends_the_last() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let text = CString::new("x".repeat(128)).expect("no NUL");
    ok(&table, call!(table, aclprofMarkEx(text.as_ptr(), 127, card.stream)));
    let code = call!(table, aclprofMarkEx(text.as_ptr(), 128, card.stream));
    assert!(refused(&table, code, ACL_ERROR_INVALID_PARAM).contains("128 bytes long; at most 127"));
    let code = call!(table, aclprofMarkEx(std::ptr::null(), 3, card.stream));
    assert!(refused(&table, code, ACL_ERROR_INVALID_PARAM).contains("msg is NULL"));
    mark(&table, "first", card.stream);
    mark(&table, "", card.stream);
    let (weight, index, out) = (card.upload(&[0; 16]), card.upload(&9_i64.to_le_bytes()), card.malloc(64));
    embedding(&card, weight, index, out).expect("enqueued");
    let (_, text) = card.outcome();
    assert!(!text.contains("first"), "{text}");
}

fn config(table: &Table, cards: &mut [u32]) -> *mut aclprofConfig {
    let none = aclprofAicoreMetrics::ACL_AICORE_NONE;
    call!(table, aclprofCreateConfig(cards.as_mut_ptr(), cards.len() as u32, none, null_mut(), 0))
}

#[test]
fn a_session_is_opened_started_stopped_and_closed_in_that_order() {
    let (_emulator, table) = machine(3);
    let (first, second) = (config(&table, &mut [0, 1]), config(&table, &mut [1, 2]));
    assert!(!first.is_null() && !second.is_null());
    assert!(config(&table, &mut [0, 3]).is_null());
    assert!(message(&table).contains("device_id_list[1] is 3: expected ids below 3"));
    assert!(
        refused(&table, call!(table, aclprofStart(first)), ACL_ERROR_PROF_NOT_RUN)
            .contains("before aclprofInit")
    );
    let path = c"profile";
    ok(&table, call!(table, aclprofInit(path.as_ptr(), 7)));
    ok(&table, call!(table, aclprofStart(first)));
    let text = refused(&table, call!(table, aclprofStart(second)), ACL_ERROR_PROF_ALREADY_RUN);
    assert!(text.contains("card 1"), "{text}");
    assert!(
        refused(&table, call!(table, aclprofFinalize()), ACL_ERROR_PROF_ALREADY_RUN).contains("still runs")
    );
    ok(&table, call!(table, aclprofStop(first)));
    ok(&table, call!(table, aclprofFinalize()));
    ok(&table, call!(table, aclprofDestroyConfig(first)));
    ok(&table, call!(table, aclprofDestroyConfig(second)));
}
