//! Memory in strict mode: poison, red zones, freed memory, inaccessible memory.
#![expect(unsafe_code, reason = "tests call C functions and touch memory as a C program does")]

use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr::null_mut;

use crate::common::strict::{strict, texts};
use crate::common::{Card, D2D, D2H, H2D, call, machine_of, ok, refused};
use ascend_tp_emulator::{Config, Mode, ReportKind};

const PARAM_INVALID: i32 = 107_000;

fn at(address: *mut c_void, offset: usize) -> *mut c_void {
    address.wrapping_byte_add(offset)
}

#[test]
fn fresh_memory_is_not_a_number_and_addresses_are_the_least_aligned() {
    let (emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    for bytes in [2, 100, 4096, 1 << 20] {
        let address = card.malloc(bytes);
        assert_eq!(address.addr() % 128, 64);
        let found = card.download(address, bytes);
        assert!(found.chunks_exact(2).all(|pair| half::f16::from_le_bytes([pair[0], pair[1]]).is_nan()));
    }
    assert_eq!(texts(&emulator), [""; 0]);
}

#[test]
fn addresses_are_not_used_again_and_freed_memory_is_named_by_its_calls() {
    let (emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    let first = card.malloc(100);
    ok(&table, call!(table, aclrtFree(first)));
    let second = card.malloc(100);
    assert_ne!(first, second);
    let mut bytes = [0_u8; 4];
    let code = call!(table, aclrtMemcpy(bytes.as_mut_ptr().cast(), 4, at(first, 8), 4, D2H));
    refused(&table, code, PARAM_INVALID);
    let me = std::thread::current().name().expect("test threads have names").to_owned();
    let freed = at(first, 8).addr();
    assert_eq!(
        texts(&emulator),
        [format!(
            "use after free: src: address {freed:#x} is offset 8 of an allocation of 100 bytes on card 0 that was freed; \
             [1] aclrtMalloc (call 5 on thread {me}, card 0); [2] aclrtFree (call 6 on thread {me}, card 0); \
             [3] aclrtMemcpy (call 9 on thread {me}, card 0)"
        )]
    );
    let code = call!(table, aclrtFree(first));
    refused(&table, code, PARAM_INVALID);
    assert_eq!(emulator.reports()[1].kind(), ReportKind::UseAfterFree, "freed twice");
}

#[test]
fn ranges_past_an_end_are_out_of_bounds() {
    let (emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    let address = card.malloc(100);
    let bytes = [0_u8; 8];
    for (offset, len) in [(97, 4), (104, 4)] {
        let code = call!(table, aclrtMemcpy(at(address, offset), len, bytes.as_ptr().cast(), len, H2D));
        refused(&table, code, PARAM_INVALID);
    }
    let me = std::thread::current().name().expect("test threads have names").to_owned();
    let (inside, behind) = (at(address, 97).addr(), at(address, 104).addr());
    let sites = |call: u32| {
        format!(
            "[1] aclrtMalloc (call 5 on thread {me}, card 0); [2] aclrtMemcpy (call {call} on thread {me}, card 0)"
        )
    };
    assert_eq!(
        texts(&emulator),
        [
            format!(
                "out of bounds: dst: out of bounds: 4 bytes at {inside:#x}, but that is offset 97 of an allocation of 100 \
                 bytes on card 0; {}",
                sites(6)
            ),
            format!(
                "out of bounds: dst: address {behind:#x} is 4 bytes past the end of an allocation of 100 bytes on card 0; {}",
                sites(7)
            ),
        ]
    );
}

#[test]
fn writes_beside_page_locked_memory_are_found_at_the_next_look() {
    let (emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    let mut host = null_mut();
    ok(&table, call!(table, aclrtMallocHost(&raw mut host, 100)));
    for offset in [100_isize, 103] {
        // SAFETY: the red zone is mapped; such writes go undetected elsewhere.
        unsafe { host.cast::<u8>().wrapping_offset(offset).write_volatile(7) };
    }
    card.synchronize();
    card.synchronize();
    let me = std::thread::current().name().expect("test threads have names").to_owned();
    assert_eq!(
        texts(&emulator),
        [format!(
            "out of bounds: bytes 100 to 103 of a buffer with bytes 0 to 99 on the host were written by the program; \
             [1] allocated it, [2] found that; [1] aclrtMallocHost (call 4 on thread {me}, card 0); \
             [2] aclrtSynchronizeStream (call 6 on thread {me}, card 0)"
        )]
    );
    // SAFETY: as above, before the buffer.
    unsafe { host.cast::<u8>().wrapping_offset(-2).write_volatile(7) };
    ok(&table, call!(table, aclrtFreeHost(host)));
    let last = texts(&emulator).pop().expect("a report");
    assert!(
        last.contains("bytes -2 to -2 of a buffer with bytes 0 to 99") && last.contains("[2] aclrtFreeHost"),
        "{last}"
    );
}

#[test]
fn refused_calls_leave_one_report_each() {
    let (emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    for _ in 0..3 {
        let code = call!(table, aclrtMemcpy(card.malloc(8), 4, [0_u8; 8].as_ptr().cast(), 8, H2D));
        refused(&table, code, PARAM_INVALID);
    }
    let me = std::thread::current().name().expect("test threads have names").to_owned();
    assert_eq!(
        texts(&emulator),
        [format!(
            "misuse: count is 8 bytes, more than destMax, 4; [1] aclrtMemcpy (call 6 on thread {me}, card 0)"
        )]
    );
}

const CHILD: &str = "ASCEND_TEST_FAULT";

#[test]
fn child() {
    let Ok(fault) = std::env::var(CHILD) else { return };
    let (_emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    let address = card.malloc(1000).cast::<u8>();
    let mut host = null_mut();
    ok(&table, call!(table, aclrtMallocHost(&raw mut host, 64)));
    match fault.as_str() {
        // SAFETY: not satisfied on purpose; this process must crash here.
        "read" => assert_eq!(unsafe { address.wrapping_add(16).read_volatile() }, 0),
        "write freed" => {
            ok(&table, call!(table, aclrtFree(address.cast())));
            // SAFETY: not satisfied on purpose; this process must crash here.
            unsafe { address.write_volatile(1) };
        }
        "read freed host" => {
            ok(&table, call!(table, aclrtFreeHost(host)));
            // SAFETY: not satisfied on purpose; this process must crash here.
            assert_eq!(unsafe { host.cast::<u8>().read_volatile() }, 0);
        }
        // SAFETY: not satisfied on purpose; this process must crash here.
        "far behind host" => assert_eq!(unsafe { host.cast::<u8>().wrapping_add(5000).read_volatile() }, 0),
        other => panic!("no fault {other:?}"),
    }
}

/// Returns the line that the child prints before a signal ends it.
fn fault(kind: &str) -> String {
    let program = std::env::current_exe().expect("this test's program");
    let mut command = Command::new(program);
    command.args(["--exact", "strict_memory::child", "--nocapture", "--test-threads=1"]).env(CHILD, kind);
    let output = command.output().expect("the child runs");
    assert!(output.status.signal().is_some(), "{kind}: {:?}", output.status);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.starts_with("ascend emulator: host access: "));
    line.unwrap_or_else(|| panic!("{kind}: no line in {text}")).to_owned()
}

#[test]
fn a_host_access_to_a_cards_memory_ends_the_process_and_names_the_buffer() {
    let line = fault("read");
    assert!(
        line.ends_with(
            " is byte 16 of the 1000-byte buffer from aclrtMalloc (call 5, card 0); the host cannot touch memory of a card: \
             copy it with aclrtMemcpy"
        ),
        "{line}"
    );
    let line = fault("write freed");
    let end = " is byte 0 of the 1000-byte buffer from aclrtMalloc (call 5, card 0), which call 7 freed";
    assert!(line.ends_with(end), "{line}");
    let line = fault("read freed host");
    let end = " is byte 0 of the 64-byte buffer from aclrtMallocHost (call 6, page-locked host memory), which call 7 freed";
    assert!(line.ends_with(end), "{line}");
    let line = fault("far behind host");
    let end = " is 4936 bytes past the end of the 64-byte buffer from aclrtMallocHost (call 6, page-locked host memory)";
    assert!(line.ends_with(end), "{line}");
}

#[test]
fn what_is_not_given_back_is_named_with_its_makers() {
    let (emulator, table) = strict(2, 1);
    ok(&table, call!(table, aclrtSetDevice(1)));
    let policy = ascend_tp_sys::aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
    let mut buffers = [null_mut(); 2];
    for (buffer, bytes) in buffers.iter_mut().zip([100, 200]) {
        ok(&table, call!(table, aclrtMalloc(buffer, bytes, policy)));
    }
    let (mut host, mut event, mut stream) = (null_mut(), null_mut(), null_mut());
    ok(&table, call!(table, aclrtMallocHost(&raw mut host, 50)));
    ok(&table, call!(table, aclrtCreateEvent(&raw mut event)));
    ok(&table, call!(table, aclrtCreateStream(&raw mut stream)));
    ok(&table, call!(table, aclrtDestroyStream(stream)));
    ok(&table, call!(table, aclrtFree(buffers[0])));
    ok(&table, call!(table, aclrtResetDevice(1)));
    ok(&table, call!(table, aclFinalize()));
    let me = std::thread::current().name().expect("test threads have names").to_owned();
    assert_eq!(
        texts(&emulator),
        [
            format!(
                "leak: 1 buffer of 200 bytes left at aclrtResetDevice, made by [1]; call aclrtFree before; [1] aclrtMalloc \
                 (call 4 on thread {me}, card 1); [2] aclrtResetDevice (call 10 on thread {me})"
            ),
            format!(
                "leak: 1 buffer of 50 bytes left at aclFinalize, made by [1]; call aclrtFreeHost before; \
                 [1] aclrtMallocHost (call 5 on thread {me}, card 1); [2] aclFinalize (call 11 on thread {me})"
            ),
            format!(
                "leak: 1 event left at aclFinalize, made by [1]; call aclrtDestroyEvent before; [1] aclrtCreateEvent (call 6 \
                 on thread {me}, card 1); [2] aclFinalize (call 11 on thread {me})"
            ),
        ]
    );
}

#[test]
fn a_stream_destroyed_by_force_under_work_is_named_with_that_work() {
    let mut found = Vec::new();
    for seed in 0..16 {
        let config = Config { mode: Mode::Strict { seed }, ..Config::with_cards(1) };
        let (emulator, table) = machine_of(config);
        let card = Card::new(&table, 0);
        let (buffer, stream) = (card.malloc(8), card.stream());
        ok(&table, call!(table, aclrtMemsetAsync(buffer, 8, 0, 8, stream)));
        ok(&table, call!(table, aclrtDestroyStreamForce(stream)));
        found.extend(texts(&emulator));
    }
    let me = std::thread::current().name().expect("test threads have names").to_owned();
    let expected = format!(
        "destroy while busy: stream 4 is destroyed by [2] while [1] is not done; synchronize stream 4 before [2]; \
         [1] aclrtMemsetAsync (call 8 on thread {me}, card 0, stream 4); [2] aclrtDestroyStreamForce (call 9 on thread {me}, \
         card 0)"
    );
    // With some seeds the work runs before the call.
    assert!(!found.is_empty() && found.len() < 16, "{found:?}");
    assert!(found.iter().all(|text| *text == expected), "{found:?}");
}

#[test]
fn an_event_may_be_destroyed_before_its_records_are_reached() {
    for seed in 0..16 {
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        let (buffer, target) = (card.malloc(8), card.malloc(8));
        let (first, second) = (card.stream(), card.stream());
        let mut event = null_mut();
        ok(&table, call!(table, aclrtCreateEvent(&raw mut event)));
        ok(&table, call!(table, aclrtMemsetAsync(buffer, 8, 7, 8, first)));
        ok(&table, call!(table, aclrtRecordEvent(event, first)));
        ok(&table, call!(table, aclrtStreamWaitEvent(second, event)));
        ok(&table, call!(table, aclrtDestroyEvent(event)));
        // The destroyed event still orders the work.
        ok(&table, call!(table, aclrtMemcpyAsync(target, 8, buffer, 8, D2D, second)));
        ok(&table, call!(table, aclrtSynchronizeStream(second)));
        assert_eq!(card.download(target, 8), [7; 8], "seed {seed}");
        assert_eq!(texts(&emulator), [""; 0], "seed {seed}");
    }
}
