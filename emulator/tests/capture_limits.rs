//! Limits of captures: streams, and calls that a CANN release cannot capture.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_tp_emulator::{CannVersion, CollectiveEngine, Config, Emulator};
use ascend_tp_sys::{
    ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, ACL_ERROR_RT_NO_STREAM_RESOURCE,
    ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, HcclComm, HcclDataType, HcclResult, aclError, aclmdlRI,
    aclmdlRICaptureMode, aclrtMemMallocPolicy,
};

use crate::common::collective::sum;
use crate::common::operators::add;
use crate::common::strict::strict;

use crate::common::{Card, call, hccl_ok, hccl_refused, machine, machine_of, ok, refused, world, young};

const FP32: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;
const THREAD_LOCAL: aclmdlRICaptureMode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: aclmdlRICaptureMode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

fn begin(card: &Card<'_>, mode: aclmdlRICaptureMode) {
    card.enter();
    ok(card.table, call!(card.table, aclmdlRICaptureBegin(card.stream, mode)));
}

fn end(card: &Card<'_>) -> (aclError, aclmdlRI) {
    let mut graph = null_mut();
    let code = call!(card.table, aclmdlRICaptureEnd(card.stream, &raw mut graph));
    (code, graph)
}

fn graph_of(card: &Card<'_>, comm: HcclComm, buffer: *mut c_void) -> (aclError, aclmdlRI) {
    begin(card, RELAXED);
    hccl_ok(card.table, sum(card, comm, buffer, FP32, 1));
    end(card)
}

/// Returns their number and the refusal of the next one.
fn communicators(engine: CollectiveEngine, most: usize) -> (usize, Option<String>) {
    let (_emulator, table) = machine_of(Config { engine, ..Config::with_cards(1) });
    ok(&table, call!(table, aclrtSetDevice(0)));
    for made in 0..most {
        let (mut device, mut comm) = (0, null_mut());
        let result = call!(table, HcclCommInitAll(1, &raw mut device, &raw mut comm));
        if result != HcclResult::HCCL_SUCCESS {
            return (made, Some(hccl_refused(&table, result, HcclResult::HCCL_E_RUNTIME)));
        }
    }
    (most, None)
}

#[test]
fn communicators_take_streams_when_they_are_made() {
    // The default stream counts too; each communicator takes 40.
    let (made, refusal) = communicators(CollectiveEngine::Streams, 60);
    let refusal = refusal.expect("a card has no streams for 60");
    assert_eq!(made, 1983 / 40, "{refusal}");
    assert!(refusal.contains("too few left for a communicator, which takes 40: 1 are created"), "{refusal}");
    // Vector cores need no streams.
    assert_eq!(communicators(CollectiveEngine::VectorCores, 60), (60, None));
}

#[test]
fn a_built_graph_takes_what_a_captured_one_does() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let buffer = card.malloc(4);
    let (mut graph, mut bound) = (null_mut(), [null_mut(); 2]);
    ok(&table, young!(table, aclmdlRIBuildBegin(&raw mut graph, 0)));
    for stream in &mut bound {
        ok(&table, call!(table, aclrtCreateStreamWithConfig(std::ptr::from_mut(stream), 0, 4)));
        ok(&table, young!(table, aclmdlRIBindStream(graph, *stream, 0)));
        add(&card, *stream, [buffer, buffer, buffer], 1.0, 1).expect("recorded");
    }
    ok(&table, young!(table, aclmdlRIEndTask(graph, bound[0])));
    // All streams but one, in addition to the default, the card's own and the two bound streams.
    let mut streams: Vec<_> = (5..1984).map(|_| card.stream()).collect();
    let code = young!(table, aclmdlRIBuildEnd(graph, null_mut()));
    let refusal = refused(&table, code, ACL_ERROR_RT_NO_STREAM_RESOURCE);
    assert!(refusal.contains("too few left for a graph, which takes 2"), "{refusal}");
    ok(&table, call!(table, aclrtDestroyStream(streams.pop().expect("some"))));
    ok(&table, young!(table, aclmdlRIBuildEnd(graph, null_mut())));
}

#[test]
fn graphs_and_communicators_take_of_a_cards_streams() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let card = &cards[0];
    card.enter();
    let buffer = card.malloc(4);
    let mut graphs = Vec::new();
    let refused_with = loop {
        match graph_of(card, comms[0], buffer) {
            (0, graph) => graphs.push(graph),
            (code, _) => break refused(&table, code, ACL_ERROR_RT_NO_STREAM_RESOURCE),
        }
    };
    // Each graph uses one stream and two for its communicator, which uses 40 itself.
    let own = 1984 - 40 - 3 * graphs.len();
    assert!((2..2 + 3).contains(&own), "{} graphs", graphs.len());
    let expected =
        format!("are created, 40 belong to 1 communicators, {} to {} graphs", 3 * graphs.len(), graphs.len());
    assert!(refused_with.contains("card 0") && refused_with.contains(&expected), "{refused_with}");
    assert!(refused_with.contains("capture fewer sizes"), "{refused_with}");
    // A graph without a collective takes one stream.
    ok(&table, call!(table, aclmdlRIDestroy(graphs.pop().expect("some"))));
    let mut small = Vec::new();
    let refused_with = loop {
        begin(card, RELAXED);
        add(card, card.stream, [buffer, buffer, buffer], 1.0, 1).expect("recorded");
        match end(card) {
            (0, graph) => small.push(graph),
            (code, _) => break code,
        }
    };
    assert_eq!((refused_with, small.len() >= 3), (ACL_ERROR_RT_NO_STREAM_RESOURCE, true));
    let full = small.len();
    for (left, expected) in [(2, ACL_ERROR_RT_NO_STREAM_RESOURCE), (3, 0)] {
        while small.len() + left > full {
            ok(&table, call!(table, aclmdlRIDestroy(small.pop().expect("some"))));
        }
        assert_eq!(graph_of(card, comms[0], buffer).0, expected, "{left} streams left");
    }
}

#[test]
fn collectives_are_captured_from_8_5_on() {
    for (cann, is_taken) in [(CannVersion::V8_1, false), (CannVersion::V8_5, true), (CannVersion::V9_0, true)]
    {
        let mut config = Config::with_cards(2);
        config.cann = cann;
        let table = Emulator::new(config).expect("the emulator starts").table();
        ok(&table, call!(table, aclInit(std::ptr::null())));
        let (cards, comms) = world(&table, 2);
        cards[0].enter();
        let buffer = cards[0].malloc(4);
        begin(&cards[0], RELAXED);
        let found = sum(&cards[0], comms[0], buffer, FP32, 1);
        if is_taken {
            hccl_ok(&table, found);
            ok(&table, end(&cards[0]).0);
        } else {
            let text = hccl_refused(&table, found, HcclResult::HCCL_E_NOT_SUPPORT);
            assert!(text.contains("from CANN 8.5 on, and this is 8.1"), "{text}");
            refused(&table, end(&cards[0]).0, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
        }
    }
}

#[test]
fn strict_mode_refuses_what_a_capture_takes_with_luck() {
    let (_emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    let mut address = null_mut();
    let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
    let mut malloc = || call!(table, aclrtMalloc(&raw mut address, 64, policy));
    begin(&card, THREAD_LOCAL);
    let text = refused(&table, malloc(), ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT);
    assert!(text.contains("aclrtMalloc is an unsafe call"), "{text}");
    refused(&table, end(&card).0, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    begin(&card, RELAXED);
    ok(&table, malloc());
    ok(&table, end(&card).0);
}

#[test]
fn strict_mode_refuses_links_that_are_made_while_capturing() {
    let (_emulator, table) = strict(2, 1);
    let (cards, comms) = world(&table, 2);
    let buffers: Vec<*mut c_void> = cards
        .iter()
        .map(|card| {
            card.enter();
            card.malloc(4)
        })
        .collect();
    begin(&cards[0], RELAXED);
    let found = sum(&cards[0], comms[0], buffers[0], FP32, 1);
    let text = crate::common::message(&table);
    assert!(
        found != HcclResult::HCCL_SUCCESS && text.contains("first collective of a communicator"),
        "{text}"
    );
    refused(&table, end(&cards[0]).0, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    for ((card, comm), buffer) in cards.iter().zip(&comms).zip(&buffers) {
        hccl_ok(&table, sum(card, *comm, *buffer, FP32, 1));
    }
    for card in &cards {
        card.synchronize();
    }
    let (code, _) = graph_of(&cards[0], comms[0], buffers[0]);
    ok(&table, code);
}
