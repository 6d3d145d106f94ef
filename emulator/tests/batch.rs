//! Batches of copies, and attributes of streams.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::common::{Card, call, machine, message, ok};
use ascend_tp_emulator::{Emulator, dropin};
use ascend_tp_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_PARAM_INVALID, Table, aclError, aclrtDevResLimitType,
    aclrtMemLocation, aclrtMemLocationType, aclrtMemcpyBatchAttr, aclrtStream, aclrtStreamAttr,
    aclrtStreamAttrValue, aclrtUuid,
};

const HOST: aclrtMemLocation =
    aclrtMemLocation { id: 0, type_: aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_HOST };
const CARD: aclrtMemLocation =
    aclrtMemLocation { id: 0, type_: aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_DEVICE };
const TO_CARD: aclrtMemcpyBatchAttr = aclrtMemcpyBatchAttr { dstLoc: CARD, srcLoc: HOST, rsv: [0; 16] };
const TO_HOST: aclrtMemcpyBatchAttr = aclrtMemcpyBatchAttr { dstLoc: HOST, srcLoc: CARD, rsv: [0; 16] };

macro_rules! given {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: live arrays, addresses and handles, or arguments that the function refuses.
        unsafe { dropin::$name($($arg),*) }.expect("modelled")
    };
}

struct Batch {
    dsts: Vec<*mut c_void>,
    srcs: Vec<*mut c_void>,
    sizes: Vec<usize>,
    attributes: Vec<aclrtMemcpyBatchAttr>,
    firsts: Vec<usize>,
}

impl Batch {
    fn new(attribute: aclrtMemcpyBatchAttr, copies: &[(*mut c_void, *mut c_void, usize)]) -> Self {
        Self {
            dsts: copies.iter().map(|copy| copy.0).collect(),
            srcs: copies.iter().map(|copy| copy.1).collect(),
            sizes: copies.iter().map(|copy| copy.2).collect(),
            attributes: vec![attribute],
            firsts: vec![0],
        }
    }

    /// Returns the code and the index of the failed copy.
    fn run(&mut self, emulator: &Emulator, stream: Option<aclrtStream>) -> (aclError, usize) {
        let (mut maxima, mut failed, count) = (self.sizes.clone(), 77, self.dsts.len());
        let (dsts, most, srcs) = (self.dsts.as_mut_ptr(), maxima.as_mut_ptr(), self.srcs.as_mut_ptr());
        let (sizes, attributes) = (self.sizes.as_mut_ptr(), self.attributes.as_mut_ptr());
        let (firsts, kinds, failed_at) = (self.firsts.as_mut_ptr(), self.firsts.len(), &raw mut failed);
        let code = match stream {
            None => given!(aclrtMemcpyBatch(
                emulator, dsts, most, srcs, sizes, count, attributes, firsts, kinds, failed_at
            )),
            Some(stream) => given!(aclrtMemcpyBatchAsync(
                emulator, dsts, most, srcs, sizes, count, attributes, firsts, kinds, failed_at, stream
            )),
        };
        (code, failed)
    }

    #[track_caller]
    fn refused(&mut self, table: &Table, emulator: &Emulator, code: aclError, at: usize, part: &str) {
        assert_eq!(self.run(emulator, None), (code, at));
        assert!(message(table).contains(part), "{}", message(table));
    }
}

#[test]
fn a_batch_copies_all_its_parts_in_one_direction() {
    let (emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let targets = [card.malloc(8), card.malloc(3), card.malloc(5)];
    let sources: [Vec<u8>; 3] = [vec![1; 8], vec![2; 3], vec![3; 5]];
    let copies: Vec<_> = targets
        .iter()
        .zip(&sources)
        .map(|(target, source)| (*target, source.as_ptr().cast_mut().cast(), source.len()))
        .collect();
    let mut uploads = Batch::new(TO_CARD, &copies);
    for stream in [None, Some(card.stream)] {
        targets.iter().zip(&sources).for_each(|(target, source)| {
            ok(&table, call!(table, aclrtMemset(*target, source.len(), 0, source.len())));
        });
        assert_eq!(uploads.run(&emulator, stream), (0, usize::MAX), "{}", message(&table));
        card.synchronize();
        for (target, source) in targets.iter().zip(&sources) {
            assert_eq!(card.download(*target, source.len()), *source);
        }
    }
    // Page-locked memory makes the batch asynchronous, and each attribute has its own copies.
    let mut host = null_mut();
    ok(&table, call!(table, aclrtMallocHost(&raw mut host, 16)));
    let places = [host, host.wrapping_byte_add(8), host.wrapping_byte_add(11)];
    let copies: Vec<_> = (0..3).map(|at| (places[at], targets[at], sources[at].len())).collect();
    let mut downloads = Batch::new(TO_HOST, &copies);
    downloads.attributes.push(TO_HOST);
    downloads.firsts.push(2);
    assert_eq!(downloads.run(&emulator, Some(card.stream)), (0, usize::MAX), "{}", message(&table));
    card.synchronize();
    // SAFETY: 16 bytes of page-locked memory, and the copies are done.
    let found = unsafe { std::slice::from_raw_parts(host.cast::<u8>(), 16) };
    assert_eq!(found, sources.concat());
}

#[test]
fn a_wrong_batch_copies_nothing_and_names_the_copy() {
    let (emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (first, second, bytes) = (card.upload(&[0; 4]), card.upload(&[0; 4]), [1_u8; 4]);
    let host = bytes.as_ptr().cast_mut().cast();
    let two = || Batch::new(TO_CARD, &[(first, host, 4), (second, host, 4)]);
    let mut wrong = Batch::new(TO_CARD, &[(first, host, 4), (second, first, 4)]);
    wrong.refused(
        &table,
        &emulator,
        ACL_ERROR_RT_PARAM_INVALID,
        1,
        "copy 1: its attribute says from the host",
    );
    let mut wrong = two();
    (wrong.attributes, wrong.firsts) = (vec![TO_CARD, TO_HOST], vec![0, 1]);
    wrong.refused(
        &table,
        &emulator,
        ACL_ERROR_RT_PARAM_INVALID,
        1,
        "expected all copies from host to device",
    );
    let mut wrong = two();
    wrong.attributes[0].srcLoc = CARD;
    wrong.refused(&table, &emulator, ACL_ERROR_RT_PARAM_INVALID, 0, "found 1 to 1");
    let mut wrong = two();
    wrong.firsts = vec![1];
    wrong.refused(&table, &emulator, ACL_ERROR_RT_PARAM_INVALID, usize::MAX, "ascending indexes");
    let mut wrong = two();
    wrong.attributes[0].rsv[3] = 1;
    wrong.refused(&table, &emulator, ACL_ERROR_INVALID_PARAM, usize::MAX, "expected zeros");
    let mut wrong = Batch::new(TO_CARD, &[]);
    wrong.refused(&table, &emulator, ACL_ERROR_INVALID_PARAM, usize::MAX, "num_batches: expected 1 to 4096");
    assert_eq!((card.download(first, 4), card.download(second, 4)), (vec![0; 4], vec![0; 4]));
}

#[test]
fn attributes_and_limits_of_streams_are_stored_also_while_capturing() {
    let (emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let mode = ascend_tp_sys::aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    ok(&table, call!(table, aclmdlRICaptureBegin(card.stream, mode)));
    let mut value = aclrtStreamAttrValue { cacheOpInfoSwitch: 1 };
    let cache = aclrtStreamAttr::ACL_STREAM_ATTR_CACHE_OP_INFO;
    ok(&table, given!(aclrtSetStreamAttribute(&emulator, card.stream, cache, &raw mut value)));
    let mut found = aclrtStreamAttrValue { reserve: [0; 4] };
    ok(&table, given!(aclrtGetStreamAttribute(&emulator, card.stream, cache, &raw mut found)));
    // SAFETY: the attribute selects this member.
    assert_eq!(unsafe { found.cacheOpInfoSwitch }, 1);
    let mut graph = null_mut();
    ok(&table, call!(table, aclmdlRICaptureEnd(card.stream, &raw mut graph)));
    value.cacheOpInfoSwitch = 2;
    let code = given!(aclrtSetStreamAttribute(&emulator, card.stream, cache, &raw mut value));
    assert_eq!(code, ACL_ERROR_INVALID_PARAM);

    let cores = aclrtDevResLimitType::ACL_RT_DEV_RES_CUBE_CORE;
    let limit = || {
        let mut value = 0;
        ok(&table, crate::common::young!(table, aclrtGetResInCurrentThread(cores, &raw mut value)));
        value
    };
    assert_eq!(limit(), 20);
    ok(&table, given!(aclrtSetStreamResLimit(&emulator, card.stream, cores, 6)));
    assert_eq!(limit(), 20, "no thread uses it");
    ok(&table, given!(aclrtUseStreamResInCurrentThread(&emulator, card.stream)));
    assert_eq!(limit(), 6);
    ok(&table, given!(aclrtUnuseStreamResInCurrentThread(&emulator, card.stream)));
    assert_eq!(limit(), 20);
}

#[test]
fn a_device_answers_before_it_is_set() {
    let (emulator, table) = machine(2);
    let (mut free, mut total, mut active) = (0, 0, 7);
    let kind = ascend_tp_sys::aclrtMemAttr::ACL_HBM_MEM;
    ok(&table, call!(table, aclrtGetMemInfo(kind, &raw mut free, &raw mut total)));
    assert!(free == total && total > 0);
    ok(&table, given!(aclrtGetPrimaryCtxState(&emulator, 1, null_mut(), &raw mut active)));
    assert_eq!(active, 0);
    ok(&table, call!(table, aclrtSetDevice(1)));
    ok(&table, given!(aclrtGetPrimaryCtxState(&emulator, 1, null_mut(), &raw mut active)));
    assert_eq!(active, 1);
    let mut ids = [aclrtUuid { bytes: [0; 16] }; 2];
    for (device, id) in ids.iter_mut().enumerate() {
        ok(&table, given!(aclrtDeviceGetUuid(&emulator, device as i32, id)));
    }
    assert_ne!(ids[0].bytes, ids[1].bytes);
}
