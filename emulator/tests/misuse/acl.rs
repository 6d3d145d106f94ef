//! Misuse of AscendCL: devices, contexts, memory, copies, streams, events, notifies.

use std::ptr::null_mut;

use ascend_tp_sys::{
    aclrtFloatOverflowMode, aclrtMemAttr, aclrtMemMallocPolicy as Policy, aclrtMemcpyKind as Kind,
};

use super::Case;
use super::bench::{Bench, c, young};
use crate::common::{D2D, D2H, H2D, ok};

const HUGE: Policy = Policy::ACL_MEM_MALLOC_HUGE_FIRST;
const TIME_LINE: u32 = 8;
const SYNC: u32 = 1;

fn garbage() -> *mut std::ffi::c_void {
    std::ptr::without_provenance_mut(0x1230)
}

pub(crate) const CASES: &[Case] = &[
    ("finalize twice", |b| {
        c!(b, aclFinalize());
        c!(b, aclFinalize())
    }),
    ("a device that does not exist", |b| c!(b, aclrtSetDevice(2))),
    ("a negative device", |b| c!(b, aclrtSetDevice(-1))),
    ("reset of a device that is not set", |b| c!(b, aclrtResetDevice(1))),
    ("a context on a device that does not exist", |b| {
        let mut context = null_mut();
        c!(b, aclrtCreateContext(&raw mut context, 9))
    }),
    ("a context with nowhere to put it", |b| c!(b, aclrtCreateContext(null_mut(), 0))),
    ("a current context that is destroyed", |b| {
        c!(b, aclrtDestroyContext(b.cards[1].context));
        c!(b, aclrtSetCurrentContext(b.cards[1].context))
    }),
    ("a context destroyed twice", |b| {
        c!(b, aclrtDestroyContext(b.cards[1].context));
        c!(b, aclrtDestroyContext(b.cards[1].context))
    }),
    ("destroying a default context", |b| {
        let mut context = null_mut();
        c!(b, aclrtSetDevice(0));
        c!(b, aclrtGetCurrentContext(&raw mut context));
        c!(b, aclrtDestroyContext(context))
    }),
    ("work without a context", |b| {
        c!(b, aclrtDestroyContext(b.cards[0].context));
        c!(b, aclrtSynchronizeDevice())
    }),
    ("a context that is a stream", |b| c!(b, aclrtSetCurrentContext(b.stream()))),
    ("memory of no size", |b| {
        let mut address = null_mut();
        c!(b, aclrtMalloc(&raw mut address, 0, HUGE))
    }),
    ("memory by a policy that does not exist", |b| {
        let mut address = null_mut();
        c!(b, aclrtMalloc(&raw mut address, 64, Policy(0x7777)))
    }),
    ("memory with nowhere to put it", |b| c!(b, aclrtMalloc(null_mut(), 64, HUGE))),
    ("more memory than the card has", |b| {
        let mut address = null_mut();
        c!(b, aclrtMalloc(&raw mut address, 1 << 40, HUGE))
    }),
    ("page-locked memory of no size", |b| {
        let mut address = null_mut();
        c!(b, aclrtMallocHost(&raw mut address, 0))
    }),
    ("free of NULL", |b| c!(b, aclrtFree(null_mut()))),
    ("free twice", |b| {
        c!(b, aclrtFree(b.buffers[0]));
        c!(b, aclrtFree(b.buffers[0]))
    }),
    ("free of an address inside", |b| c!(b, aclrtFree(b.at(64)))),
    ("free of an address that is nothing", |b| c!(b, aclrtFree(garbage()))),
    ("free of page-locked memory as device memory", |b| {
        let mut address = null_mut();
        c!(b, aclrtMallocHost(&raw mut address, 64));
        c!(b, aclrtFree(address))
    }),
    ("free of device memory as page-locked memory", |b| c!(b, aclrtFreeHost(b.buffers[0]))),
    ("a copy larger than its destination says", |b| {
        c!(b, aclrtMemcpy(b.at(0), 8, [0_u8; 16].as_ptr().cast(), 16, H2D))
    }),
    ("a copy beyond its destination", |b| {
        c!(b, aclrtMemcpy(b.at(1020), 16, [0_u8; 16].as_ptr().cast(), 16, H2D))
    }),
    ("a copy beyond its source", |b| {
        c!(b, aclrtMemcpy([0_u8; 16].as_mut_ptr().cast(), 16, b.at(1020), 16, D2H))
    }),
    ("a copy of a kind that does not exist", |b| {
        c!(b, aclrtMemcpy(b.at(0), 16, [0_u8; 16].as_ptr().cast(), 16, Kind(9)))
    }),
    ("a copy to the device whose destination is the host", |b| {
        let (mut into, from) = ([0_u8; 16], [0_u8; 16]);
        c!(b, aclrtMemcpy(into.as_mut_ptr().cast(), 16, from.as_ptr().cast(), 16, H2D))
    }),
    ("a copy to the host whose source is the host", |b| {
        let (mut into, from) = ([0_u8; 16], [0_u8; 16]);
        c!(b, aclrtMemcpy(into.as_mut_ptr().cast(), 16, from.as_ptr().cast(), 16, D2H))
    }),
    ("a copy to NULL", |b| c!(b, aclrtMemcpy(null_mut(), 16, b.at(0), 16, D2D))),
    ("a copy from freed memory", |b| {
        c!(b, aclrtFree(b.buffers[0]));
        c!(b, aclrtMemcpy([0_u8; 16].as_mut_ptr().cast(), 16, b.at(0), 16, D2H))
    }),
    ("a copy between cards without peer access", |b| c!(b, aclrtMemcpy(b.buffers[1], 16, b.at(0), 16, D2D))),
    ("an asynchronous copy from host to host", |b| {
        let (mut into, from) = ([0_u8; 16], [0_u8; 16]);
        let kind = Kind::ACL_MEMCPY_HOST_TO_HOST;
        c!(b, aclrtMemcpyAsync(into.as_mut_ptr().cast(), 16, from.as_ptr().cast(), 16, kind, b.stream()))
    }),
    ("an asynchronous copy on another context's stream", |b| {
        c!(b, aclrtMemcpyAsync(b.at(0), 16, b.at(64), 16, D2D, b.cards[1].stream))
    }),
    ("rows wider than their pitch", |b| {
        c!(b, aclrtMemcpy2d(b.at(0), 8, [0_u8; 64].as_ptr().cast(), 32, 16, 2, H2D))
    }),
    ("rows from host to host", |b| {
        let (mut into, from) = ([0_u8; 64], [0_u8; 64]);
        let kind = Kind::ACL_MEMCPY_HOST_TO_HOST;
        c!(b, aclrtMemcpy2d(into.as_mut_ptr().cast(), 32, from.as_ptr().cast(), 32, 16, 2, kind))
    }),
    ("rows beyond their destination", |b| {
        c!(b, aclrtMemcpy2d(b.at(960), 64, [0_u8; 64].as_ptr().cast(), 16, 16, 4, H2D))
    }),
    ("a fill larger than its memory says", |b| c!(b, aclrtMemset(b.at(0), 8, 1, 16))),
    ("a fill beyond its memory", |b| c!(b, aclrtMemset(b.at(1020), 16, 1, 16))),
    ("memory of an attribute that does not exist", |b| {
        let (mut free, mut total) = (0, 0);
        c!(b, aclrtGetMemInfo(aclrtMemAttr(77), &raw mut free, &raw mut total))
    }),
    ("peer access to itself", |b| c!(b, aclrtDeviceEnablePeerAccess(0, 0))),
    ("peer access with flags", |b| c!(b, aclrtDeviceEnablePeerAccess(1, 3))),
    ("peer access disabled that was not enabled", |b| c!(b, aclrtDeviceDisablePeerAccess(1))),
    ("an overflow mode that does not exist", |b| c!(b, aclrtSetDeviceSatMode(aclrtFloatOverflowMode(2)))),
    ("a stream that is destroyed", |b| {
        c!(b, aclrtDestroyStream(b.stream()));
        c!(b, aclrtSynchronizeStream(b.stream()))
    }),
    ("a stream destroyed twice", |b| {
        c!(b, aclrtDestroyStream(b.stream()));
        c!(b, aclrtDestroyStream(b.stream()))
    }),
    ("a stream of another context", |b| c!(b, aclrtSynchronizeStream(b.cards[1].stream))),
    ("a stream that is an event", |b| c!(b, aclrtSynchronizeStream(b.event(SYNC)))),
    ("a stream that is nothing", |b| c!(b, aclrtSynchronizeStream(garbage()))),
    ("destroying no stream", |b| c!(b, aclrtDestroyStream(null_mut()))),
    ("a stream of a priority that does not exist", |b| {
        let mut stream = null_mut();
        c!(b, aclrtCreateStreamWithConfig(&raw mut stream, 8, 0))
    }),
    ("a stream with flags that do not exist", |b| {
        let mut stream = null_mut();
        c!(b, aclrtCreateStreamWithConfig(&raw mut stream, 0, 0x8000_0000))
    }),
    ("a failure mode that does not exist", |b| c!(b, aclrtSetStreamFailureMode(b.stream(), 2))),
    ("waiting for no time", |b| c!(b, aclrtSynchronizeStreamWithTimeout(b.stream(), 0))),
    ("waiting for negative time", |b| c!(b, aclrtSynchronizeStreamWithTimeout(b.stream(), -2))),
    ("work on a stream that was aborted", |b| {
        c!(b, aclrtStreamAbort(b.stream()));
        c!(b, aclrtMemsetAsync(b.at(0), 16, 1, 16, b.stream()))
    }),
    ("an event with nowhere to put it", |b| c!(b, aclrtCreateEvent(null_mut()))),
    ("an event with flags that do not exist", |b| {
        let mut event = null_mut();
        c!(b, aclrtCreateEventWithFlag(&raw mut event, 0x40))
    }),
    ("a record on another card's stream", |b| {
        let event = b.event(SYNC);
        b.cards[1].enter();
        c!(b, aclrtRecordEvent(event, b.cards[1].stream))
    }),
    ("a wait before any record", |b| c!(b, aclrtStreamWaitEvent(b.stream(), b.event(SYNC)))),
    ("a wait for an event that cannot be waited for", |b| {
        let event = b.event(TIME_LINE);
        c!(b, aclrtRecordEvent(event, b.stream()));
        c!(b, aclrtStreamWaitEvent(b.stream(), event))
    }),
    ("a time between events that keep none", |b| {
        let (event, mut ms) = (b.event(SYNC), 0.0);
        c!(b, aclrtRecordEvent(event, b.stream()));
        c!(b, aclrtSynchronizeStream(b.stream()));
        c!(b, aclrtEventElapsedTime(&raw mut ms, event, event))
    }),
    ("a time between events that were not recorded", |b| {
        let (event, mut ms) = (b.event(TIME_LINE), 0.0);
        c!(b, aclrtEventElapsedTime(&raw mut ms, event, event))
    }),
    ("a time that runs backwards", |b| {
        let (first, second, mut ms) = (b.event(TIME_LINE), b.event(TIME_LINE), 0.0);
        c!(b, aclrtRecordEvent(first, b.stream()));
        c!(b, aclrtRecordEvent(second, b.stream()));
        c!(b, aclrtSynchronizeStream(b.stream()));
        c!(b, aclrtEventElapsedTime(&raw mut ms, second, first))
    }),
    ("a reset of an event that has none", |b| {
        let mut event = null_mut();
        c!(b, aclrtCreateEvent(&raw mut event));
        c!(b, aclrtResetEvent(event, b.stream()))
    }),
    ("an event destroyed twice", |b| {
        let event = b.event(SYNC);
        c!(b, aclrtDestroyEvent(event));
        c!(b, aclrtDestroyEvent(event))
    }),
    ("a destroyed event recorded", |b| {
        let event = b.event(SYNC);
        c!(b, aclrtDestroyEvent(event));
        c!(b, aclrtRecordEvent(event, b.stream()))
    }),
    ("a notify with flags", |b| {
        let mut notify = null_mut();
        young!(b, aclrtCreateNotify(&raw mut notify, 2))
    }),
    ("a destroyed notify recorded", |b| {
        let mut notify = null_mut();
        ok(b.table, young!(b, aclrtCreateNotify(&raw mut notify, 0)) as i32);
        young!(b, aclrtDestroyNotify(notify));
        young!(b, aclrtRecordNotify(notify, b.stream()))
    }),
    ("a callback on a stream nobody serves", |b| {
        unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}
        let block = ascend_tp_sys::aclrtCallbackBlockType::ACL_CALLBACK_BLOCK;
        c!(b, aclrtLaunchCallback(Some(nothing), null_mut(), block, b.stream()))
    }),
    ("streams unordered over the same bytes", |b| {
        let other = b.cards[0].stream();
        c!(b, aclrtMemsetAsync(b.at(0), 16, 1, 16, b.stream()));
        c!(b, aclrtMemsetAsync(b.at(8), 16, 2, 16, other));
        c!(b, aclrtSynchronizeStream(b.stream()));
        c!(b, aclrtSynchronizeStream(other))
    }),
    ("memory freed while queued work uses it", |b| {
        c!(b, aclrtMemsetAsync(b.at(0), 16, 1, 16, b.stream()));
        c!(b, aclrtFree(b.buffers[0]))
    }),
    ("a notify nobody records", |b| {
        let mut notify = null_mut();
        young!(b, aclrtCreateNotify(&raw mut notify, 0));
        young!(b, aclrtWaitAndResetNotify(notify, b.stream(), 0));
        c!(b, aclrtSynchronizeStream(b.stream()))
    }),
];

const _: fn(&Bench<'_>) -> i64 = CASES[0].1;
