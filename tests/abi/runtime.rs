//! The AscendCL runtime: initialisation, devices, memory, streams, events, notifies, callbacks,
//! errors.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use ascend_tp_sys::{
    Table, aclrtCallbackBlockType, aclrtEventRecordedStatus, aclrtMemAttr, aclrtMemMallocPolicy,
    aclrtRunMode, aclrtStreamStatus,
};

use super::common::{Card, D2D, D2H, H2D, call, message, ok, refused};

pub(crate) fn initialisation(table: &Table, _: usize) {
    ok(table, call!(table, aclInit(null())));
    refused(table, call!(table, aclInit(null())), 100_002);
    let (mut major, mut minor, mut patch) = (-1, -1, -1);
    ok(table, call!(table, aclrtGetVersion(&raw mut major, &raw mut minor, &raw mut patch)));
    assert!(major >= 1 && minor >= 0 && patch >= 0, "{major}.{minor}.{patch}");
    let soc = call!(table, aclrtGetSocName());
    assert!(!soc.is_null());
    // SAFETY: a C string of the library that is valid as long as the library is loaded.
    let soc = unsafe { CStr::from_ptr(soc) }.to_string_lossy();
    assert!(soc.starts_with("Ascend"), "{soc}");
    let mut mode = aclrtRunMode(7);
    ok(table, call!(table, aclrtGetRunMode(&raw mut mode)));
    assert_eq!(mode, aclrtRunMode::ACL_HOST);
}

pub(crate) fn devices_and_contexts(table: &Table, cards: usize) {
    let mut device = -1;
    refused(table, call!(table, aclrtGetDevice(&raw mut device)), 107_002);
    ok(table, call!(table, aclrtSetDevice(0)));
    ok(table, call!(table, aclrtGetDevice(&raw mut device)));
    assert_eq!(device, 0);
    let mut of_device = null_mut();
    ok(table, call!(table, aclrtGetCurrentContext(&raw mut of_device)));
    refused(table, call!(table, aclrtSetDevice(cards as i32)), 107_001);

    let last = cards as i32 - 1;
    let mut context = null_mut();
    ok(table, call!(table, aclrtCreateContext(&raw mut context, last)));
    ok(table, call!(table, aclrtGetDevice(&raw mut device)));
    assert_eq!(device, last, "creating a context makes it current");
    ok(table, call!(table, aclrtSetCurrentContext(of_device)));
    ok(table, call!(table, aclrtGetDevice(&raw mut device)));
    assert_eq!(device, 0, "a context brings its device");
    ok(table, call!(table, aclrtDestroyContext(context)));
    ok(table, call!(table, aclrtSynchronizeDevice()));
    ok(table, call!(table, aclrtResetDevice(0)));
}

pub(crate) fn memory(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let (mut free, mut total) = (0, 0);
    let hbm = aclrtMemAttr::ACL_HBM_MEM;
    ok(table, call!(table, aclrtGetMemInfo(hbm, &raw mut free, &raw mut total)));
    assert!(0 < free && free <= total, "{free} of {total}");

    let bytes: Vec<u8> = (0..100_003_u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let n = bytes.len();
    let (source, copy) = (card.upload(&bytes), card.malloc(n));
    assert_eq!(source.addr() % 64, 0);
    ok(table, call!(table, aclrtMemcpyAsync(copy, n, source, n, D2D, card.stream)));
    card.synchronize();
    assert!(card.download(copy, n) == bytes);
    ok(table, call!(table, aclrtMemset(copy, n, 0x1FF, n)));
    assert!(card.download(copy, n).iter().all(|byte| *byte == 0xFF), "a fill takes the low byte");
    ok(table, call!(table, aclrtMemsetAsync(copy, n, 3, 5, card.stream)));
    card.synchronize();
    assert_eq!(card.download(copy, 7), [3, 3, 3, 3, 3, 0xFF, 0xFF]);

    // Page-locked memory can be copied asynchronously.
    let mut host = null_mut();
    ok(table, call!(table, aclrtMallocHost(&raw mut host, n)));
    ok(table, call!(table, aclrtMemcpyAsync(host, n, source, n, D2H, card.stream)));
    card.synchronize();
    let mut read = vec![0_u8; n];
    let h2h = ascend_tp_sys::aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_HOST;
    ok(table, call!(table, aclrtMemcpy(read.as_mut_ptr().cast(), n, host, n, h2h)));
    assert!(read == bytes);
    ok(table, call!(table, aclrtFreeHost(host)));
    ok(table, call!(table, aclrtFree(copy)));
    ok(table, call!(table, aclrtFree(source)));
    leave(&card);
}

pub(crate) fn copies_of_rows(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let device = card.upload(&[0; 64]);
    let rows: Vec<u8> = (1..=12).collect();
    // Three rows of 3 of 4 bytes, to a pitch of 16 and back to a pitch of 3.
    ok(table, call!(table, aclrtMemcpy2d(device, 16, rows.as_ptr().cast(), 4, 3, 3, H2D)));
    let found = card.download(device, 64);
    let row = |i: usize| &found[i * 16..i * 16 + 4];
    assert_eq!((row(0), row(1), row(2)), (&[1, 2, 3, 0][..], &[5, 6, 7, 0][..], &[9, 10, 11, 0][..]));
    let mut back = [0_u8; 9];
    ok(
        table,
        call!(table, aclrtMemcpy2dAsync(back.as_mut_ptr().cast(), 3, device, 16, 3, 3, D2H, card.stream)),
    );
    card.synchronize();
    assert_eq!(back, [1, 2, 3, 5, 6, 7, 9, 10, 11]);
    ok(table, call!(table, aclrtFree(device)));
    leave(&card);
}

pub(crate) fn streams_and_events(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let (first, second) = (card.stream, card.stream());
    let (mut id, mut other_id) = (-1, -1);
    ok(table, call!(table, aclrtStreamGetId(first, &raw mut id)));
    ok(table, call!(table, aclrtStreamGetId(second, &raw mut other_id)));
    assert!(id >= 0 && id != other_id, "{id}, {other_id}");

    let event = card.event();
    let recorded = || {
        let mut status = aclrtEventRecordedStatus(7);
        ok(table, call!(table, aclrtQueryEventStatus(event, &raw mut status)));
        status
    };
    assert_eq!(recorded(), aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY, "never recorded");
    // The second stream copies data that the first stream wrote before the record.
    let n = 1 << 16;
    let (between, seen) = (card.upload(&vec![0; n]), card.upload(&vec![0; n]));
    for round in 1..=20 {
        ok(table, call!(table, aclrtMemsetAsync(between, n, round, n, first)));
        ok(table, call!(table, aclrtRecordEvent(event, first)));
        ok(table, call!(table, aclrtStreamWaitEvent(second, event)));
        ok(table, call!(table, aclrtMemcpyAsync(seen, n, between, n, D2D, second)));
        ok(table, call!(table, aclrtSynchronizeStreamWithTimeout(second, 60_000)));
        assert!(card.download(seen, n).iter().all(|byte| i32::from(*byte) == round), "round {round}");
    }
    ok(table, call!(table, aclrtSynchronizeEvent(event)));
    assert_eq!(recorded(), aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE);
    let mut status = aclrtStreamStatus(7);
    ok(table, call!(table, aclrtStreamQuery(second, &raw mut status)));
    assert_eq!(status, aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE);
    ok(table, call!(table, aclrtDestroyEvent(event)));
    ok(table, call!(table, aclrtDestroyStream(second)));
    for address in [between, seen] {
        ok(table, call!(table, aclrtFree(address)));
    }
    leave(&card);
}

pub(crate) fn events_keep_time(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let (start, end) = (card.event(), card.event());
    let buffer = card.malloc(1 << 20);
    ok(table, call!(table, aclrtRecordEvent(start, card.stream)));
    ok(table, call!(table, aclrtMemsetAsync(buffer, 1 << 20, 1, 1 << 20, card.stream)));
    ok(table, call!(table, aclrtRecordEvent(end, card.stream)));
    card.synchronize();
    let mut ms = -1.0_f32;
    ok(table, call!(table, aclrtEventElapsedTime(&raw mut ms, start, end)));
    assert!(ms >= 0.0, "{ms} ms");
    for event in [start, end] {
        ok(table, call!(table, aclrtDestroyEvent(event)));
    }
    ok(table, call!(table, aclrtFree(buffer)));
    leave(&card);
}

/// Skipped on toolkits without notifies (CANN 8.1).
pub(crate) fn notifies(table: &Table, _: usize) {
    let (Some(create), Some(destroy), Some(record), Some(wait)) = (
        table.aclrtCreateNotify,
        table.aclrtDestroyNotify,
        table.aclrtRecordNotify,
        table.aclrtWaitAndResetNotify,
    ) else {
        return;
    };
    let card = Card::new(table, 0);
    let second = card.stream();
    let mut notify = null_mut();
    // SAFETY: the pointer is valid for a write.
    ok(table, unsafe { create(&raw mut notify, 0) });
    let (source, target) = (card.upload(&[5; 4]), card.upload(&[0; 4]));
    for _ in 0..3 {
        // SAFETY: live handles; 0 waits without a limit.
        ok(table, unsafe { wait(notify, second, 0) });
        ok(table, call!(table, aclrtMemcpyAsync(target, 4, source, 4, D2D, second)));
        // SAFETY: live handles.
        ok(table, unsafe { record(notify, card.stream) });
        ok(table, call!(table, aclrtSynchronizeStream(second)));
        card.synchronize();
        assert_eq!(card.download(target, 4), [5; 4]);
        ok(table, call!(table, aclrtMemset(target, 4, 0, 4)));
    }
    // SAFETY: a live handle, and no stream waits for it.
    ok(table, unsafe { destroy(notify) });
    ok(table, call!(table, aclrtDestroyStream(second)));
    for address in [source, target] {
        ok(table, call!(table, aclrtFree(address)));
    }
    leave(&card);
}

pub(crate) fn callbacks(table: &Table, _: usize) {
    unsafe extern "C" fn count(counter: *mut c_void) {
        // SAFETY: the test keeps the counter alive until the stream is done.
        let counter = unsafe { &*counter.cast::<AtomicUsize>() };
        counter.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" {
        fn pthread_self() -> usize;
    }
    let card = Card::new(table, 0);
    let counter = AtomicUsize::new(0);
    let argument: *mut c_void = (&raw const counter).cast_mut().cast();
    let subscribed = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            card.enter();
            // SAFETY: the function has no conditions.
            let thread = unsafe { pthread_self() } as u64;
            ok(table, call!(table, aclrtSubscribeReport(thread, card.stream)));
            subscribed.wait();
            for _ in 0..2 {
                ok(table, call!(table, aclrtProcessReport(60_000)));
            }
            subscribed.wait();
            ok(table, call!(table, aclrtUnSubscribeReport(thread, card.stream)));
        });
        subscribed.wait();
        card.enter();
        for block in
            [aclrtCallbackBlockType::ACL_CALLBACK_NO_BLOCK, aclrtCallbackBlockType::ACL_CALLBACK_BLOCK]
        {
            ok(table, call!(table, aclrtLaunchCallback(Some(count), argument, block, card.stream)));
        }
        card.synchronize();
        assert_eq!(counter.load(Ordering::SeqCst), 2, "the stream waited for the blocking one");
        subscribed.wait();
    });
    if let Some(launch) = table.aclrtLaunchHostFunc {
        let own = card.stream();
        // SAFETY: a live stream, and a counter that outlives the synchronisation below.
        ok(table, unsafe { launch(own, Some(count), argument) });
        ok(table, call!(table, aclrtSynchronizeStream(own)));
        assert_eq!(counter.load(Ordering::SeqCst), 3);
        ok(table, call!(table, aclrtDestroyStream(own)));
    }
    leave(&card);
}

pub(crate) fn errors_and_messages(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let mut address = null_mut();
    let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_NORMAL_ONLY;
    assert_ne!(call!(table, aclrtMalloc(&raw mut address, 0, policy)), 0, "no allocation has no bytes");
    assert!(!message(table).is_empty(), "a failed call explains itself");
    assert!(message(table).is_empty(), "the explanation is given once");
    let bytes = [0_u8; 8];
    let device = card.malloc(4);
    refused(table, call!(table, aclrtMemcpy(device, 4, bytes.as_ptr().cast(), 8, H2D)), 107_000);
    // The message belongs to the thread of the failed call.
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| message(table)).join().expect("no panic"));
    assert_eq!(elsewhere, "");
    ok(table, call!(table, aclrtFree(device)));
    leave(&card);
}

pub(crate) fn finalisation(table: &Table, _: usize) {
    ok(table, call!(table, aclFinalize()));
}

pub(crate) fn leave(card: &Card<'_>) {
    card.enter();
    ok(card.table, call!(card.table, aclrtDestroyStream(card.stream)));
    ok(card.table, call!(card.table, aclrtDestroyContext(card.context)));
}
