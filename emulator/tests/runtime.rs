//! Devices, contexts, memory, copies, streams, events and callbacks.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use crate::common::*;
use ascend_tp_emulator::{CannVersion, Config, Emulator, Mode};
use ascend_tp_sys::{
    aclCANNPackageName, aclCANNPackageVersion, aclrtCallbackBlockType, aclrtFloatOverflowMode,
    aclrtLastErrLevel, aclrtMemAttr, aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtStreamState,
    aclrtStreamStatus,
};

const HUGE: aclrtMemMallocPolicy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;

#[test]
fn the_machine_describes_itself() {
    let emulator = Emulator::new(Config::with_cards(3)).expect("the emulator starts");
    let table = emulator.table();
    let mut count = 0;
    ok(&table, call!(table, aclrtGetDeviceCount(&raw mut count)));
    assert_eq!(count, 3);
    let soc = call!(table, aclrtGetSocName());
    // SAFETY: a static C string.
    let soc = unsafe { CStr::from_ptr(soc) };
    assert_eq!(soc, c"Ascend910B3");
    let (mut major, mut minor, mut patch) = (0, 0, -1);
    ok(&table, call!(table, aclrtGetVersion(&raw mut major, &raw mut minor, &raw mut patch)));
    assert_eq!((major, minor, patch), (1, 17, 0));
    assert!(message(&table).is_empty());
}

#[test]
fn init_and_finalize_return_their_documented_codes() {
    let emulator = Emulator::new(Config::with_cards(1)).expect("the emulator starts");
    let table = emulator.table();
    assert!(refused(&table, call!(table, aclrtSetDevice(0)), 100_001).contains("aclInit"));
    refused(&table, call!(table, aclFinalize()), 100_037);
    ok(&table, call!(table, aclInit(std::ptr::null())));
    ok(&table, call!(table, aclFinalize()));
    refused(&table, call!(table, aclFinalize()), 100_037);
}

#[test]
fn a_second_init_is_harmless_and_counts_since_8_5() {
    for cann in CannVersion::ALL {
        let mode = Mode::Strict { seed: 1 };
        let (emulator, table) = machine_of(Config { cann, mode, ..Config::with_cards(1) });
        assert_eq!(call!(table, aclInit(std::ptr::null())), 100_002);
        assert!(message(&table).is_empty());
        assert_eq!(call!(table, aclrtGetLastError(aclrtLastErrLevel(0))), 0);
        let mut left = 9;
        match table.aclFinalizeReference {
            // SAFETY: `left` is a live variable.
            Some(give_back) => ok(&table, unsafe { give_back(&raw mut left) }),
            None => assert_eq!(cann, CannVersion::V8_1),
        }
        assert_eq!(left, if cann == CannVersion::V8_1 { 9 } else { 1 });
        ok(&table, call!(table, aclrtSetDevice(0)));
        ok(&table, call!(table, aclrtResetDevice(0)));
        assert_eq!(call!(table, aclInit(std::ptr::null())), 100_002);
        ok(&table, call!(table, aclFinalize()));
        assert!(emulator.reports().is_empty(), "{:?}", emulator.reports());
        refused(&table, call!(table, aclrtSetDevice(0)), 100_001);
    }
}

#[test]
fn operators_alone_can_be_initialised_and_profiling_needs_the_runtime() {
    let emulator = Emulator::new(Config::with_cards(1)).expect("the emulator starts");
    let table = emulator.table();
    let profile = || call!(table, aclprofInit(c"/tmp".as_ptr(), 4));
    assert!(refused(&table, profile(), 100_001).contains("aclInit"));
    assert_eq!(call!(table, aclnnInit(std::ptr::null())), 0);
    ok(&table, call!(table, aclrtSetDevice(0)));
    ok(&table, call!(table, aclInit(std::ptr::null())));
    ok(&table, profile());
    ok(&table, call!(table, aclprofFinalize()));
    assert_eq!(call!(table, aclnnFinalize()), 0);
    ok(&table, call!(table, aclrtResetDevice(0)));
    ok(&table, call!(table, aclFinalize()));
    refused(&table, call!(table, aclrtSetDevice(0)), 100_001);
}

#[test]
fn versions_follow_the_cann_that_is_asked_for() {
    for (cann, name, interface) in [
        (CannVersion::V8_1, c"8.1.RC1", (1, 13, 0)),
        (CannVersion::V8_5, c"8.5.0", (1, 16, 0)),
        (CannVersion::V9_0, c"9.0.0", (1, 17, 0)),
    ] {
        let emulator = Emulator::new(Config { cann, ..Config::with_cards(1) }).expect("the emulator starts");
        let table = emulator.table();
        let (mut major, mut minor, mut patch) = (0, 0, -1);
        ok(&table, call!(table, aclrtGetVersion(&raw mut major, &raw mut minor, &raw mut patch)));
        assert_eq!((major, minor, patch), interface);
        // SAFETY: zeros are valid characters.
        let mut version: aclCANNPackageVersion = unsafe { std::mem::zeroed() };
        ok(
            &table,
            call!(table, aclsysGetCANNVersion(aclCANNPackageName::ACL_PKG_NAME_CANN, &raw mut version)),
        );
        // SAFETY: the library wrote a C string.
        assert_eq!(unsafe { CStr::from_ptr(version.version.as_ptr()) }, name);
        assert_eq!(table.aclFinalizeReference.is_some(), cann > CannVersion::V8_1);
    }
}

#[test]
fn who_asks_for_it_is_told_when_streams_and_devices_come_and_go() {
    unsafe extern "C" fn note(stream: *mut c_void, state: aclrtStreamState, told: *mut c_void) {
        // SAFETY: the registered list lives until the end of the test.
        let told = unsafe { &*told.cast_const().cast::<Mutex<Vec<(usize, u32)>>>() };
        told.lock().expect("not poisoned").push((stream.addr(), state.0));
    }
    let (emulator, table) = machine(2);
    let told: Mutex<Vec<(usize, u32)>> = Mutex::default();
    let place: *mut c_void = (&raw const told).cast_mut().cast();
    let register = table.aclrtRegStreamStateCallback.expect("modelled");
    // SAFETY: `told` outlives every stream of this test.
    let register = |callback| unsafe { register(c"mine".as_ptr(), callback, place) };
    refused(&table, register(None), 107_000);
    ok(&table, register(Some(note)));
    assert!(refused(&table, register(Some(note)), 107_000).contains("registered already"));
    let devices: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
    let listed = Arc::clone(&devices);
    let watch = move |device, state| listed.lock().expect("not poisoned").push((device, state));
    emulator.watch_devices("mine", Some(Box::new(watch))).expect("a new name");
    ok(&table, call!(table, aclrtSetDevice(1)));
    let mut stream = null_mut();
    ok(&table, call!(table, aclrtCreateStream(&raw mut stream)));
    ok(&table, call!(table, aclrtDestroyStream(stream)));
    ok(&table, call!(table, aclrtCreateStreamWithConfig(&raw mut stream, 0, 1)));
    ok(&table, call!(table, aclrtDestroyStreamForce(stream)));
    let states: Vec<u32> = told.lock().expect("not poisoned").iter().map(|(_, state)| *state).collect();
    assert_eq!(states, [1, 2, 1, 2]);
    ok(&table, register(None));
    ok(&table, call!(table, aclrtCreateStream(&raw mut stream)));
    assert_eq!(told.lock().expect("not poisoned").len(), 4);
    ok(&table, call!(table, aclrtDestroyStream(stream)));
    ok(&table, call!(table, aclrtResetDevice(1)));
    assert_eq!(*devices.lock().expect("not poisoned"), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    emulator.watch_devices("mine", None).expect("registered");
    assert!(emulator.watch_devices("mine", None).expect_err("gone").contains("no callback"));
}

#[test]
fn in_saturation_mode_what_overflows_becomes_the_largest_number_and_is_told() {
    let (emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let mut mode = aclrtFloatOverflowMode(9);
    ok(&table, call!(table, aclrtGetDeviceSatMode(&raw mut mode)));
    assert_eq!(mode, aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_INFNAN);
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let x = card.upload(&bytes(&[f32::MAX, -f32::MAX, f32::NAN, 1.0]));
    let (out, status) = (card.malloc(16), card.malloc(64));
    let overflowed = || {
        emulator.write_overflow_status(status, 64, card.stream).expect("in order");
        card.synchronize();
        card.download(status, 64).iter().map(|byte| u32::from(*byte)).sum::<u32>()
    };
    let sum = || {
        operators::add(&card, card.stream, [x, x, out], 1.0, 4).expect("in order");
        card.synchronize();
        card.download(out, 16)
    };
    let plain = sum();
    assert_eq!(plain[..8], bytes(&[f32::INFINITY, f32::NEG_INFINITY]));
    assert_eq!(overflowed(), 0);
    ok(&table, call!(table, aclrtSetDeviceSatMode(aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_SATURATION)));
    ok(&table, call!(table, aclrtGetDeviceSatMode(&raw mut mode)));
    assert_eq!(mode, aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_SATURATION);
    assert_eq!(sum(), bytes(&[f32::MAX, -f32::MAX, 0.0, 2.0]));
    assert_eq!((overflowed(), overflowed()), (1, 1));
    emulator.reset_overflow_status(card.stream).expect("in order");
    assert_eq!(overflowed(), 0);
    let (code, what) = emulator.write_overflow_status(status, 63, card.stream).expect_err("too short");
    assert!(code == 100_000 && what.contains("64 bytes"), "{what}");
    ok(&table, call!(table, aclrtSetDeviceSatMode(aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_INFNAN)));
    assert_eq!(sum(), plain);
}

#[test]
fn streams_for_programs_on_the_card_can_be_made_and_stopped() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let stop = table.aclrtStreamStop.expect("modelled");
    // SAFETY: a handle of this table.
    let stop = |stream| unsafe { stop(stream) };
    assert!(
        refused(&table, stop(card.stream), 107_000)
            .contains("ACL_STREAM_DEVICE_USE_ONLY, and on an Atlas A2")
    );
    let mut stream = null_mut();
    ok(&table, call!(table, aclrtCreateStreamWithConfig(&raw mut stream, 0, 0x20)));
    ok(&table, stop(stream));
    ok(&table, call!(table, aclrtDestroyStream(stream)));
    let soc = ascend_tp_emulator::Soc::Ascend910_9391;
    let (_emulator, table) = machine_of(Config { soc, ..Config::with_cards(1) });
    let card = Card::new(&table, 0);
    let stop = table.aclrtStreamStop.expect("modelled");
    // SAFETY: a handle of this table.
    assert!(refused(&table, unsafe { stop(card.stream) }, 107_000).contains("on an Atlas A3"));
}

#[test]
fn faults_of_the_configuration_strike_from_the_first_call_on() {
    let fault = "error:at=2:call=aclrtGetDeviceCount:code=507899".parse().expect("a fault");
    let emulator =
        Emulator::new(Config { faults: vec![fault], ..Config::with_cards(1) }).expect("the emulator starts");
    let table = emulator.table();
    let mut count = 0;
    let mut ask = || call!(table, aclrtGetDeviceCount(&raw mut count));
    assert_eq!([ask(), ask(), ask()], [0, 507_899, 0]);
    let fault = "slow:card=1:us=5".parse().expect("a fault");
    let impossible = Emulator::new(Config { faults: vec![fault], ..Config::with_cards(1) });
    assert!(impossible.expect_err("no card 1").to_string().contains("there is no card 1"));
}

#[test]
fn a_function_without_a_slot_is_refused_like_those_of_the_table() {
    let (emulator, table) = machine(1);
    emulator.refuse("aclopCompileAndExecute", 200_006);
    let peek = || call!(table, aclrtPeekAtLastError(aclrtLastErrLevel(0)));
    assert_eq!((peek(), peek()), (200_006, 200_006));
    assert!(message(&table).contains("aclopCompileAndExecute is not modelled"));
    assert_eq!(call!(table, aclrtGetLastError(aclrtLastErrLevel(0))), 200_006);
    assert_eq!(peek(), 0);
}

#[test]
fn impossible_machines_are_refused() {
    let refused = |config: Config| Emulator::new(config).expect_err("impossible").to_string();
    assert!(refused(Config::with_cards(0)).contains("found 0"));
    assert!(refused(Config::with_cards(5000)).contains("1 to 1024 cards"));
    assert!(refused(Config { hbm_bytes: 0, ..Config::default() }).contains("hbm_bytes"));
    assert!(refused(Config { threads: 0, ..Config::default() }).contains("threads"));
}

#[test]
fn default_contexts_are_shared_and_counted() {
    let (_emulator, table) = machine(2);
    let current = || {
        let mut context = null_mut();
        ok(&table, call!(table, aclrtGetCurrentContext(&raw mut context)));
        context.addr()
    };
    let mut device = -1;
    assert!(
        refused(&table, call!(table, aclrtGetDevice(&raw mut device)), 107_002).contains("aclrtSetDevice")
    );
    ok(&table, call!(table, aclrtSetDevice(1)));
    ok(&table, call!(table, aclrtGetDevice(&raw mut device)));
    assert_eq!(device, 1);
    let here = current();
    let there = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            ok(&table, call!(table, aclrtSetDevice(1)));
            current()
        });
        other.join().expect("the thread ends")
    });
    assert_eq!(here, there);
    ok(&table, call!(table, aclrtResetDevice(1)));
    assert_eq!(current(), here, "one reference is left");
    ok(&table, call!(table, aclrtResetDevice(1)));
    let mut context = null_mut();
    let gone = refused(&table, call!(table, aclrtGetCurrentContext(&raw mut context)), 107_002);
    assert!(gone.contains("destroyed or its device reset"), "{gone}");
    refused(&table, call!(table, aclrtResetDevice(1)), 107_001);
    assert!(refused(&table, call!(table, aclrtSetDevice(2)), 107_001).contains("devices 0 to 1"));
    ok(&table, call!(table, aclrtSetDevice(0)));
    ok(&table, call!(table, aclrtSetDevice(0)));
    ok(&table, call!(table, aclrtResetDeviceForce(0)));
    refused(&table, call!(table, aclrtResetDeviceForce(0)), 107_001);
}

#[test]
fn resetting_a_device_returns_its_memory() {
    let (emulator, table) = machine(1);
    ok(&table, call!(table, aclrtSetDevice(0)));
    let mut address = null_mut();
    ok(&table, call!(table, aclrtMalloc(&raw mut address, 1 << 20, HUGE)));
    assert_eq!(emulator.usage()[0].used_bytes, (1 << 20) + 32);
    ok(&table, call!(table, aclrtResetDevice(0)));
    assert_eq!(emulator.usage()[0].used_bytes, 0);
    refused(&table, call!(table, aclrtFree(address)), 107_000);
}

#[test]
fn a_stream_belongs_to_its_context() {
    let (_emulator, table) = machine(2);
    let (a, b) = (Card::new(&table, 0), Card::new(&table, 1));
    b.enter();
    let wrong = refused(&table, call!(table, aclrtSynchronizeStream(a.stream)), 107_003);
    assert!(
        wrong.contains("belongs to context") && wrong.contains("on card 0") && wrong.contains("on card 1"),
        "{wrong}"
    );
    a.enter();
    ok(&table, call!(table, aclrtDestroyStream(a.stream)));
    let gone = refused(&table, call!(table, aclrtSynchronizeStream(a.stream)), 107_000);
    assert!(gone.contains("does not exist"), "{gone}");
    let event = a.event();
    assert!(refused(&table, call!(table, aclrtSynchronizeStream(event)), 107_000).contains("kind event"));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    ok(&table, call!(table, aclrtDestroyContext(a.context)));
    refused(&table, call!(table, aclrtSetCurrentContext(a.context)), 107_000);
    refused(&table, call!(table, aclrtSynchronizeDevice()), 107_002);
}

#[test]
fn streams_and_their_limit() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    // Two streams exist: the context's default and the card's own.
    let streams: Vec<_> = (2..1984).map(|_| card.stream()).collect();
    let mut one_more = null_mut();
    let full = refused(&table, call!(table, aclrtCreateStream(&raw mut one_more)), 207_008);
    assert!(full.contains("card 0 has all its 1984 streams in use"), "{full}");
    ok(&table, call!(table, aclrtDestroyStream(streams[7])));
    ok(&table, call!(table, aclrtCreateStreamWithConfig(&raw mut one_more, 7, 5)));
    let (mut priority, mut flags, mut id) = (0, 0, 0);
    // SAFETY: valid pointers and a live stream.
    ok(&table, unsafe { (table.aclrtStreamGetPriority.expect("modelled"))(one_more, &raw mut priority) });
    // SAFETY: as above.
    ok(&table, unsafe { (table.aclrtStreamGetFlags.expect("modelled"))(one_more, &raw mut flags) });
    ok(&table, call!(table, aclrtStreamGetId(one_more, &raw mut id)));
    assert_eq!((priority, flags), (7, 5));
    assert!(id > 0);
    refused(&table, call!(table, aclrtCreateStreamWithConfig(&raw mut one_more, 8, 0)), 100_000);
    refused(&table, call!(table, aclrtSetStreamFailureMode(card.stream, 2)), 100_000);
}

#[test]
fn out_of_memory_is_an_error_with_the_cards_numbers() {
    let config = Config { hbm_bytes: 1 << 30, ..Config::with_cards(2) };
    let (emulator, table) = machine_of(config);
    ok(&table, call!(table, aclrtSetDevice(1)));
    let (mut address, mut second) = (null_mut(), null_mut());
    ok(&table, call!(table, aclrtMalloc(&raw mut address, 600 << 20, HUGE)));
    let full = refused(&table, call!(table, aclrtMalloc(&raw mut second, 500 << 20, HUGE)), 207_001);
    assert!(
        full.starts_with("aclrtMalloc: card 1 is out of memory: asked 524288000 B (500.00 MiB)"),
        "{full}"
    );
    assert!(full.contains("used 629145632 B (600.00 MiB) of 1073741824 B (1.00 GiB)"), "{full}");
    let (mut free, mut total) = (0, 0);
    let hbm = aclrtMemAttr::ACL_HBM_MEM;
    ok(&table, call!(table, aclrtGetMemInfo(hbm, &raw mut free, &raw mut total)));
    assert_eq!((free, total), ((1 << 30) - (600 << 20) - 32, 1 << 30));
    assert_eq!(call!(table, aclrtPeekAtLastError(aclrtLastErrLevel(0))), 207_001);
    ok(&table, call!(table, aclrtFree(address)));
    ok(&table, call!(table, aclrtMalloc(&raw mut second, 500 << 20, HUGE)));
    assert_eq!(emulator.usage()[1].peak_bytes, (600 << 20) + 32);
    assert!(
        refused(&table, call!(table, aclrtMalloc(&raw mut address, 0, HUGE)), 100_000).contains("size is 0")
    );
}

#[test]
fn a_60_gib_card_costs_nothing_until_it_is_touched() {
    let (_emulator, table) = machine(8);
    let mut ends = Vec::new();
    for ordinal in 0..8 {
        let card = Card::new(&table, ordinal);
        let address = card.malloc(60 << 30);
        assert_eq!(address.addr() % 64, 0);
        let end = address.wrapping_byte_add((60 << 30) - 4);
        ok(&table, call!(table, aclrtMemcpy(end, 4, [1_u8, 2, 3, ordinal as u8].as_ptr().cast(), 4, H2D)));
        ends.push((card, end));
    }
    for (ordinal, (card, end)) in ends.iter().enumerate() {
        assert_eq!(card.download(*end, 4), [1, 2, 3, ordinal as u8]);
    }
}

#[test]
fn last_errors_and_messages_are_kept_per_thread() {
    let (_emulator, table) = machine(1);
    let level = aclrtLastErrLevel(0);
    assert_eq!(call!(table, aclrtFree(null_mut())), 100_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(message(&table).is_empty());
            assert_eq!(call!(table, aclrtPeekAtLastError(level)), 0);
        });
    });
    assert_eq!(call!(table, aclrtPeekAtLastError(level)), 100_000);
    assert_eq!(call!(table, aclrtFree(null_mut())), 100_000);
    assert_eq!(message(&table), "aclrtFree: argument dev_ptr is NULL");
    assert!(message(&table).is_empty(), "a message is read once");
    assert_eq!(call!(table, aclrtGetLastError(level)), 100_000);
    assert_eq!(call!(table, aclrtGetLastError(level)), 0);
}

#[test]
fn copies_of_every_kind() {
    let (_emulator, table) = machine(2);
    let (a, b) = (Card::new(&table, 0), Card::new(&table, 1));
    let bytes: Vec<u8> = (0..3_000_017_u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let n = bytes.len();
    let source = a.upload(&bytes);
    let copy = a.malloc(n);
    ok(&table, call!(table, aclrtMemcpyAsync(copy, n, source, n, D2D, a.stream)));
    a.synchronize();
    assert!(a.download(copy, n) == bytes);

    let remote = b.malloc(n);
    let barred = refused(&table, call!(table, aclrtMemcpy(remote, n, source, n, D2D)), 107_000);
    assert!(barred.contains("src is on card 0, dst on card 1"), "{barred}");
    let mut can = 0;
    ok(&table, call!(table, aclrtDeviceCanAccessPeer(&raw mut can, 1, 0)));
    assert_eq!(can, 1);
    ok(&table, call!(table, aclrtDeviceEnablePeerAccess(0, 0)));
    ok(&table, call!(table, aclrtMemcpyAsync(remote, n, source, n, D2D, b.stream)));
    b.synchronize();
    assert!(b.download(remote, n) == bytes);
    ok(&table, call!(table, aclrtDeviceDisablePeerAccess(0)));
    refused(&table, call!(table, aclrtDeviceDisablePeerAccess(0)), 107_000);

    let mut out = vec![0_u8; n];
    let into = out.as_mut_ptr().cast();
    let h2h = aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_HOST;
    ok(&table, call!(table, aclrtMemcpy(into, n, bytes.as_ptr().cast(), n, h2h)));
    assert!(out == bytes);
    refused(
        &table,
        call!(table, aclrtMemcpyAsync(into, n, bytes.as_ptr().cast(), n, h2h, b.stream)),
        207_000,
    );
    out.fill(0);
    let into = out.as_mut_ptr().cast();
    let by_pointer = aclrtMemcpyKind::ACL_MEMCPY_DEFAULT;
    ok(&table, call!(table, aclrtMemcpyAsync(into, n, remote, n, by_pointer, b.stream)));
    assert!(out == bytes);

    let more = refused(&table, call!(table, aclrtMemcpy(copy, 3, source, 4, D2D)), 107_000);
    assert!(more.contains("count is 4 bytes, more than destMax, 3"), "{more}");
    let beyond =
        refused(&table, call!(table, aclrtMemcpy(copy, n + 64, bytes.as_ptr().cast(), n + 64, H2D)), 107_000);
    assert!(beyond.contains("dst: out of bounds") && beyond.contains("on card 0"), "{beyond}");
    ok(&table, call!(table, aclrtFree(copy)));
    let freed = refused(&table, call!(table, aclrtMemcpy(copy, 4, source, 4, D2D)), 107_000);
    assert!(
        freed.contains("dst: device memory expected") && freed.contains("freed, or never allocated"),
        "{freed}"
    );
    refused(&table, call!(table, aclrtMemcpy(source, 4, null_mut(), 4, D2D)), 100_000);
    refused(&table, call!(table, aclrtMemcpy(source, 4, source, 4, aclrtMemcpyKind(9))), 100_000);
}

#[test]
fn asynchronous_copies_with_page_locked_memory_wait_their_turn() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let device = card.upload(&[1, 2, 3, 4]);
    let mut host = null_mut();
    ok(&table, call!(table, aclrtMallocHost(&raw mut host, 4)));
    let gate = Arc::new(Gate::default());
    gate.enqueue(&table, card.stream);
    ok(&table, call!(table, aclrtMemcpyAsync(host, 4, device, 4, D2H, card.stream)));
    let mut status = aclrtStreamStatus(7);
    ok(&table, call!(table, aclrtStreamQuery(card.stream, &raw mut status)));
    assert_eq!(status, aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY);
    let late = refused(&table, call!(table, aclrtSynchronizeStreamWithTimeout(card.stream, 5)), 507_046);
    assert!(late.contains("2 unfinished entries"), "{late}");
    // The copy does not wait for the stream.
    ok(&table, call!(table, aclrtMemcpy(device, 4, [9_u8; 4].as_ptr().cast(), 4, H2D)));
    gate.open();
    card.synchronize();
    ok(&table, call!(table, aclrtStreamQuery(card.stream, &raw mut status)));
    assert_eq!(status, aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE);
    let mut read = [0_u8; 4];
    let h2h = aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_HOST;
    ok(&table, call!(table, aclrtMemcpy(read.as_mut_ptr().cast(), 4, host, 4, h2h)));
    assert_eq!(read, [9; 4]);
    assert!(refused(&table, call!(table, aclrtFree(host)), 107_000).contains("aclrtFreeHost"));
    ok(&table, call!(table, aclrtFreeHost(host)));
}

#[test]
fn rows_and_fills() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let device = card.malloc(64);
    ok(&table, call!(table, aclrtMemset(device, 64, 0x1FF, 64)));
    assert_eq!(card.download(device, 64), [0xFF; 64]);
    ok(&table, call!(table, aclrtMemsetAsync(device, 64, 0, 60, card.stream)));
    card.synchronize();
    let rows: Vec<u8> = (1..=12).collect();
    // Three rows of 3 of 4 bytes, to a pitch of 16.
    ok(&table, call!(table, aclrtMemcpy2d(device, 16, rows.as_ptr().cast(), 4, 3, 3, H2D)));
    let found = card.download(device, 64);
    assert_eq!(
        (&found[..4], &found[16..20], &found[32..36]),
        (&[1, 2, 3, 0][..], &[5, 6, 7, 0][..], &[9, 10, 11, 0][..])
    );
    let mut back = [0_u8; 9];
    ok(
        &table,
        call!(table, aclrtMemcpy2dAsync(back.as_mut_ptr().cast(), 3, device, 16, 3, 3, D2H, card.stream)),
    );
    assert_eq!(back, [1, 2, 3, 5, 6, 7, 9, 10, 11]);
    let wide = call!(table, aclrtMemcpy2d(device, 2, rows.as_ptr().cast(), 4, 3, 3, H2D));
    assert!(refused(&table, wide, 107_000).contains("width"));
    let beyond = call!(table, aclrtMemcpy2d(device, 30, rows.as_ptr().cast(), 4, 4, 3, H2D));
    ok(&table, beyond);
    refused(&table, call!(table, aclrtMemcpy2d(device, 47, rows.as_ptr().cast(), 4, 3, 3, H2D)), 107_000);
    refused(&table, call!(table, aclrtMemset(device, 3, 0, 4)), 107_000);
}

#[test]
fn waits_cross_cards() {
    let (_emulator, table) = machine(2);
    let (a, b) = (Card::new(&table, 0), Card::new(&table, 1));
    let event = a.event();
    let gate = Arc::new(Gate::default());
    gate.enqueue(&table, a.stream);
    ok(&table, call!(table, aclrtRecordEvent(event, a.stream)));
    b.enter();
    ok(&table, call!(table, aclrtStreamWaitEvent(b.stream, event)));
    refused(&table, call!(table, aclrtSynchronizeDeviceWithTimeout(3)), 507_046);
    gate.open();
    ok(&table, call!(table, aclrtSynchronizeDevice()));
}

#[test]
fn a_destroyed_stream_does_not_hang_its_waiters() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (first, second) = (card.stream(), card.stream());
    let event = card.event();
    let gate = Arc::new(Gate::default());
    gate.enqueue(&table, first);
    ok(&table, call!(table, aclrtRecordEvent(event, first)));
    ok(&table, call!(table, aclrtStreamWaitEvent(second, event)));
    ok(&table, call!(table, aclrtDestroyStreamForce(first)));
    ok(&table, call!(table, aclrtSynchronizeStream(second)));
    gate.open();
    let third = card.stream();
    ok(&table, call!(table, aclrtStreamAbort(third)));
    let aborted = refused(&table, call!(table, aclrtSynchronizeStream(third)), 107_023);
    assert!(aborted.contains("was aborted"), "{aborted}");
}

#[test]
fn a_device_synchronizes_while_its_streams_come_and_go() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (source, target) = (card.upload(&[1; 64]), card.malloc(64));
                for _ in 0..100 {
                    let stream = card.stream();
                    ok(&table, call!(table, aclrtMemcpyAsync(target, 64, source, 64, D2D, stream)));
                    ok(&table, call!(table, aclrtSynchronizeDevice()));
                    ok(&table, call!(table, aclrtDestroyStream(stream)));
                }
            });
        }
    });
}

#[test]
fn notifies_hand_over_between_streams() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (first, second) = (card.stream, card.stream());
    let mut notify = null_mut();
    let record = table.aclrtRecordNotify.expect("modelled");
    let wait = table.aclrtWaitAndResetNotify.expect("modelled");
    // SAFETY: a valid pointer.
    ok(&table, unsafe { (table.aclrtCreateNotify.expect("modelled"))(&raw mut notify, 0) });
    let (source, target) = (card.upload(&[5; 4]), card.upload(&[0; 4]));
    for round in 0..3 {
        // SAFETY: live handles.
        ok(&table, unsafe { wait(notify, second, 0) });
        ok(&table, call!(table, aclrtMemcpyAsync(target, 4, source, 4, D2D, second)));
        refused(&table, call!(table, aclrtSynchronizeStreamWithTimeout(second, 3)), 507_046);
        // SAFETY: live handles.
        ok(&table, unsafe { record(notify, first) });
        ok(&table, call!(table, aclrtSynchronizeStream(second)));
        assert_eq!(card.download(target, 4), [5; 4], "round {round}");
    }
    // SAFETY: no stream waits for this live handle.
    ok(&table, unsafe { (table.aclrtDestroyNotify.expect("modelled"))(notify) });
    // SAFETY: the function refuses a stale handle.
    refused(&table, unsafe { record(notify, first) }, 107_000);
}

#[test]
fn callbacks_run_on_the_subscribed_thread() {
    unsafe extern "C" fn count(counter: *mut c_void) {
        // SAFETY: the counter outlives the stream's work.
        let counter = unsafe { &*counter.cast::<AtomicUsize>() };
        counter.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" {
        fn pthread_self() -> usize;
    }
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let counter = AtomicUsize::new(0);
    let argument = std::ptr::from_ref(&counter).cast_mut().cast();
    let block = aclrtCallbackBlockType::ACL_CALLBACK_BLOCK;
    let unsubscribed = call!(table, aclrtLaunchCallback(Some(count), argument, block, card.stream));
    assert!(refused(&table, unsubscribed, 107_015).contains("aclrtSubscribeReport"));
    let subscribed = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            card.enter();
            // SAFETY: this function has no conditions.
            let thread = unsafe { pthread_self() } as u64;
            refused(&table, call!(table, aclrtProcessReport(1)), 107_012);
            ok(&table, call!(table, aclrtSubscribeReport(thread, card.stream)));
            refused(&table, call!(table, aclrtSubscribeReport(thread, card.stream)), 107_011);
            subscribed.wait();
            for _ in 0..2 {
                ok(&table, call!(table, aclrtProcessReport(-1)));
            }
            refused(&table, call!(table, aclrtProcessReport(1)), 107_019);
            ok(&table, call!(table, aclrtUnSubscribeReport(thread, card.stream)));
        });
        subscribed.wait();
        card.enter();
        let free = aclrtCallbackBlockType::ACL_CALLBACK_NO_BLOCK;
        ok(&table, call!(table, aclrtLaunchCallback(Some(count), argument, free, card.stream)));
        ok(&table, call!(table, aclrtLaunchCallback(Some(count), argument, block, card.stream)));
        card.synchronize();
        assert_eq!(counter.load(Ordering::SeqCst), 2, "the stream waited for the blocking one");
    });
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let (_emulator, table) = machine(1);
    let print = call!(table, aclmdlRIDebugPrint(null_mut()));
    assert!(refused(&table, print, 207_000).contains("aclmdlRIDebugPrint is not modelled"));
    let suspend = call!(table, HcclCommSuspend(null_mut()));
    let text = hccl_refused(&table, suspend, ascend_tp_sys::HcclResult::HCCL_E_NOT_SUPPORT);
    assert!(text.contains("HcclCommSuspend is not modelled"), "{text}");
    assert!(table.aclrtCreateLabel.is_none());
}

#[test]
fn machines_are_apart() {
    let (first, table) = machine(1);
    let (_second, other) = machine(2);
    let (a, b) = (Card::new(&table, 0), Card::new(&other, 0));
    let address = a.malloc(64);
    b.enter();
    assert!(
        refused(&other, call!(other, aclrtFree(address)), 107_000).contains("no allocation of this machine")
    );
    a.synchronize();
    b.synchronize();
    assert_eq!(first.usage()[0].used_bytes, 96);
}
