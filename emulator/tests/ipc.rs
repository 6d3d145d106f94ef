//! Memory, notifies and events shared by key and by handle, within one process and between two.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CStr, CString, c_char};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use crate::common::{Card, H2D, call, hccl_refused, machine_of, notify, ok, refused, world, young};
use ascend_tp_emulator::{Config, Emulator, Sharing};
use ascend_tp_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_TASK_TIMEOUT, HcclResult, Table, aclrtEvent, aclrtExceptionInfo, aclrtIpcEventHandle,
    aclrtMemAllocationType, aclrtMemAttr, aclrtMemHandleType, aclrtMemLocation, aclrtMemLocationType,
    aclrtNotify, aclrtPhysicalMemProp, aclrtStreamStatus,
};

fn shared(cards: usize) -> (Emulator, Arc<Table>) {
    machine_of(Config { sharing: Sharing::Host, ..Config::with_cards(cards) })
}

const PART: &str = "ASCEND_TP_TEST_IPC_PART";
const MIB: usize = 1 << 20;

fn export(table: &Table, address: *mut std::ffi::c_void, size: usize, flags: u64) -> CString {
    let mut key = [0 as c_char; 65];
    ok(table, young!(table, aclrtIpcMemGetExportKey(address, size, key.as_mut_ptr(), 65, flags)));
    // SAFETY: the library wrote a C string.
    unsafe { CStr::from_ptr(key.as_ptr()) }.to_owned()
}

fn physical(table: &Table, size: usize) -> *mut std::ffi::c_void {
    let prop = aclrtPhysicalMemProp {
        handleType: aclrtMemHandleType::ACL_MEM_HANDLE_TYPE_NONE,
        allocationType: aclrtMemAllocationType::ACL_MEM_ALLOCATION_TYPE_PINNED,
        memAttr: aclrtMemAttr::ACL_HBM_MEM_HUGE,
        location: aclrtMemLocation { id: 0, type_: aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_DEVICE },
        reserve: 0,
    };
    let mut handle = null_mut();
    ok(table, call!(table, aclrtMallocPhysical(&raw mut handle, size, &raw const prop, 0)));
    handle
}

#[test]
fn a_key_gives_the_same_bytes_at_another_address() {
    let (emulator, table) = shared(1);
    let card = Card::new(&table, 0);
    let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let memory = card.upload(&bytes);
    let used = emulator.usage()[0].used_bytes;
    let part = memory.wrapping_byte_add(70_001);
    let key = export(&table, part, 1000, 0);
    let mut seen = null_mut();
    ok(&table, young!(table, aclrtIpcMemImportByKey(&raw mut seen, key.as_ptr(), 0)));
    assert_ne!(seen, part);
    assert_eq!(card.download(seen, 1000), bytes[70_001..71_001]);
    assert_eq!(emulator.usage()[0].used_bytes, used, "shared memory counts once");
    ok(&table, call!(table, aclrtMemsetAsync(seen, 1000, 3, 10, card.stream)));
    card.synchronize();
    ok(&table, call!(table, aclrtMemcpy(part.wrapping_byte_add(20), 1, [9_u8].as_ptr().cast(), 1, H2D)));
    assert_eq!(card.download(part, 10), [3; 10]);
    assert_eq!(card.download(seen.wrapping_byte_add(20), 1), [9]);
    assert_eq!(card.download(memory, 70_001), bytes[..70_001]);
    let code = call!(table, aclrtMemset(seen, 2000, 0, 1001));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("out of bounds"));

    let code = call!(table, aclrtFree(memory));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("exported under 1 keys"));
    let code = call!(table, aclrtFree(seen));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("aclrtIpcMemClose"));
    // The first call closes the import, the second the export.
    ok(&table, young!(table, aclrtIpcMemClose(key.as_ptr())));
    ok(&table, young!(table, aclrtIpcMemClose(key.as_ptr())));
    let code = young!(table, aclrtIpcMemClose(key.as_ptr()));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("neither imported nor exported"));
    let code = young!(table, aclrtIpcMemImportByKey(&raw mut seen, key.as_ptr(), 0));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("no longer shared"));
    ok(&table, call!(table, aclrtFree(memory)));
    let code = young!(table, aclrtIpcMemGetExportKey(null_mut(), 8, seen.cast(), 64, 0));
    refused(&table, code, ACL_ERROR_INVALID_PARAM);
}

struct Second {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Second {
    fn start(part: &str) -> Self {
        let this = std::env::current_exe().expect("this test's file");
        let mut command = Command::new(this);
        command.args(["--exact", "ipc::the_second_process", "--nocapture"]).env(PART, part);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// Returns the answer that begins with `answer`.
    fn ask(&mut self, line: &str, answer: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{line}").expect("it listens");
        loop {
            let mut text = String::new();
            assert_ne!(self.lines.read_line(&mut text).expect("it speaks"), 0, "it ended without an answer");
            if let Some(at) = text.find(answer) {
                return text[at + answer.len()..].trim().to_owned();
            }
        }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

#[test]
fn the_second_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let (_emulator, table) = shared(2);
    let card = Card::new(&table, 1);
    let mut lines = std::io::stdin().lines();
    let mut next = || lines.next().expect("a line").expect("text");
    let mut pid = 0;
    ok(&table, call!(table, aclrtDeviceGetBareTgid(&raw mut pid)));
    let say = |text: String| {
        // The harness locks standard output only between tests.
        writeln!(std::io::stdout(), "{text}").expect("someone listens");
    };
    let first = next();
    say(format!("PID {pid}"));
    assert_eq!(first, "who");
    let line = next();
    match part.as_str() {
        "key" => reads_by_key(&table, &card, line, next, say),
        "signals" => records_and_waits(&table, &card, &line, next, say),
        _ => maps_physical_memory(&table, &card, &line, next, say),
    }
    say("CLOSED it".into());
}

fn reads_by_key(
    table: &Table,
    card: &Card<'_>,
    line: String,
    mut next: impl FnMut() -> String,
    say: impl Fn(String),
) {
    let (key, mut seen) = (CString::new(line).expect("text"), null_mut());
    let code = young!(table, aclrtIpcMemImportByKey(&raw mut seen, key.as_ptr(), 1));
    say(format!("REFUSED {code} {}", crate::common::message(table)));
    assert_eq!(next(), "again");
    ok(table, young!(table, aclrtIpcMemImportByKey(&raw mut seen, key.as_ptr(), 1)));
    say(format!("READ {:?}", card.download(seen, 4)));
    assert_eq!(next(), "write");
    let own = card.upload(&[8, 8]);
    ok(table, call!(table, aclrtMemcpyAsync(seen, 2, own, 2, crate::common::D2D, card.stream)));
    card.synchronize();
    say("WROTE it".into());
    assert_eq!(next(), "close");
    ok(table, young!(table, aclrtIpcMemClose(key.as_ptr())));
}

fn records_and_waits(
    table: &Table,
    card: &Card<'_>,
    line: &str,
    mut next: impl FnMut() -> String,
    say: impl Fn(String),
) {
    let (notify_key, event_key) = line.split_once(' ').expect("two keys");
    let (notify_key, mut event) = (CString::new(notify_key).expect("text"), null_mut());
    ok(table, young!(table, aclrtIpcOpenEventHandle(handle_of(event_key), &raw mut event)));
    let import = |flags, notify: &mut aclrtNotify| {
        young!(table, aclrtNotifyImportByKey(&raw mut *notify, notify_key.as_ptr(), flags))
    };
    let mut notify = null_mut();
    let code = import(0, &mut notify);
    say(format!("REFUSED {code} {}", crate::common::message(table)));
    assert_eq!(next(), "again");
    ok(table, import(0, &mut notify));
    let code = young!(table, aclrtRecordNotify(notify, card.stream));
    say(format!("REFUSED {code} {}", crate::common::message(table)));
    assert_eq!(next(), "record");
    ok(table, call!(table, aclrtDeviceEnablePeerAccess(0, 0)));
    ok(table, young!(table, aclrtRecordNotify(notify, card.stream)));
    ok(table, call!(table, aclrtStreamWaitEvent(card.stream, event)));
    card.synchronize();
    say("RECORDED it".into());
    assert_eq!(next(), "close");
    ok(table, young!(table, aclrtDestroyNotify(notify)));
    ok(table, call!(table, aclrtDestroyEvent(event)));
}

fn maps_physical_memory(
    table: &Table,
    card: &Card<'_>,
    line: &str,
    mut next: impl FnMut() -> String,
    say: impl Fn(String),
) {
    let shareable: u64 = line.parse().expect("a number");
    let (mut seen, mut handle) = (null_mut(), null_mut());
    let code = call!(table, aclrtMemImportFromShareableHandle(shareable, 1, &raw mut handle));
    say(format!("REFUSED {code} {}", crate::common::message(table)));
    assert_eq!(next(), "again");
    ok(table, call!(table, aclrtDeviceEnablePeerAccess(0, 0)));
    ok(table, call!(table, aclrtMemImportFromShareableHandle(shareable, 1, &raw mut handle)));
    ok(table, call!(table, aclrtReserveMemAddress(&raw mut seen, 2 * MIB, 0, null_mut(), 0)));
    ok(table, call!(table, aclrtMapMem(seen, 2 * MIB, 0, handle, 0)));
    say(format!("READ {:?}", card.download(seen, 4)));
    assert_eq!(next(), "write");
    ok(table, call!(table, aclrtMemset(seen, 2, 8, 2)));
    say("WROTE it".into());
    assert_eq!(next(), "close");
    ok(table, call!(table, aclrtUnmapMem(seen)));
    ok(table, call!(table, aclrtFreePhysical(handle)));
}

#[test]
fn another_process_on_the_list_reads_and_writes_the_memory_of_a_key() {
    let (_emulator, table) = shared(2);
    let card = Card::new(&table, 0);
    let memory = card.upload(&[1, 2, 3, 4]);
    let key = export(&table, memory, 4, 0);
    let mut second = Second::start("key");
    let mut pid: i32 = second.ask("who", "PID ").parse().expect("a number");
    let message = second.ask(key.to_str().expect("text"), "REFUSED ");
    assert!(
        message.starts_with(&ACL_ERROR_RT_PARAM_INVALID.to_string()) && message.contains("on the list"),
        "{message}"
    );
    ok(&table, young!(table, aclrtIpcMemSetImportPid(key.as_ptr(), &raw mut pid, 1)));
    assert_eq!(second.ask("again", "READ "), "[1, 2, 3, 4]");
    second.ask("write", "WROTE ");
    assert_eq!(card.download(memory, 4), [8, 8, 3, 4]);
    let code = young!(table, aclrtIpcMemClose(key.as_ptr()));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("1 imports of the key are open"));
    second.ask("close", "CLOSED ");
    second.end();
    ok(&table, young!(table, aclrtIpcMemClose(key.as_ptr())));
}

#[test]
fn another_process_maps_the_physical_memory_of_a_handle() {
    let (_emulator, table) = shared(2);
    let card = Card::new(&table, 0);
    let (handle, mut address) = (physical(&table, 2 * MIB), null_mut());
    ok(&table, call!(table, aclrtReserveMemAddress(&raw mut address, 2 * MIB, 0, null_mut(), 0)));
    ok(&table, call!(table, aclrtMapMem(address, 2 * MIB, 0, handle, 0)));
    ok(&table, call!(table, aclrtMemcpy(address, 4, [1_u8, 2, 3, 4].as_ptr().cast(), 4, H2D)));
    let (mut shareable, none) = (0, aclrtMemHandleType::ACL_MEM_HANDLE_TYPE_NONE);
    ok(&table, call!(table, aclrtMemExportToShareableHandle(handle, none, 0, &raw mut shareable)));
    let mut again = 0;
    let code = call!(table, aclrtMemExportToShareableHandle(handle, none, 0, &raw mut again));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("exported already"));
    let mut own = null_mut();
    let code = call!(table, aclrtMemImportFromShareableHandle(shareable, 0, &raw mut own));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("by other processes only"));

    let mut second = Second::start("handle");
    let mut pid: i32 = second.ask("who", "PID ").parse().expect("a number");
    assert!(second.ask(&shareable.to_string(), "REFUSED ").contains("on the list"));
    ok(&table, call!(table, aclrtMemSetPidToShareableHandle(shareable, &raw mut pid, 1)));
    assert_eq!(second.ask("again", "READ "), "[1, 2, 3, 4]");
    second.ask("write", "WROTE ");
    assert_eq!(card.download(address, 4), [8, 8, 3, 4]);
    second.ask("close", "CLOSED ");
    second.end();
    ok(&table, call!(table, aclrtUnmapMem(address)));
    ok(&table, call!(table, aclrtFreePhysical(handle)));
}

fn notify_key(table: &Table, notify: aclrtNotify, flags: u64) -> CString {
    let mut key = [0 as c_char; 65];
    ok(table, young!(table, aclrtNotifyGetExportKey(notify, key.as_mut_ptr(), 65, flags)));
    // SAFETY: the library wrote a C string.
    unsafe { CStr::from_ptr(key.as_ptr()) }.to_owned()
}

fn shared_event(table: &Table) -> (aclrtEvent, String) {
    let (mut event, mut handle) = (null_mut(), aclrtIpcEventHandle { reserved: [0; 64] });
    ok(table, call!(table, aclrtCreateEventExWithFlag(&raw mut event, 0x40)));
    ok(table, young!(table, aclrtIpcGetEventHandle(event, &raw mut handle)));
    let text = handle
        .reserved
        .iter()
        .take_while(|byte| **byte != 0)
        .flat_map(|byte| byte.to_ne_bytes())
        .map(char::from)
        .collect();
    (event, text)
}

fn handle_of(text: &str) -> aclrtIpcEventHandle {
    let mut handle = aclrtIpcEventHandle { reserved: [0; 64] };
    for (into, from) in handle.reserved.iter_mut().zip(text.bytes()) {
        *into = from as c_char;
    }
    handle
}

#[test]
fn a_stream_waits_for_a_notify_and_an_event_of_another_process() {
    let (_emulator, table) = shared(2);
    let card = Card::new(&table, 0);
    let (notify, (event, handle)) = (notify(&table), shared_event(&table));
    let key = notify_key(&table, notify, 0);
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, card.stream, 0)));
    ok(&table, call!(table, aclrtRecordEvent(event, card.stream)));
    let mut second = Second::start("signals");
    let mut pid: i32 = second.ask("who", "PID ").parse().expect("a number");
    let keys = format!("{} {handle}", key.to_str().expect("text"));
    assert!(second.ask(&keys, "REFUSED ").contains("on the list"));
    ok(&table, young!(table, aclrtNotifySetImportPid(notify, &raw mut pid, 1)));
    assert!(second.ask("again", "REFUSED ").contains("aclrtDeviceEnablePeerAccess(0)"));
    let mut status = aclrtStreamStatus(9);
    ok(&table, call!(table, aclrtStreamQuery(card.stream, &raw mut status)));
    assert_eq!(status, aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY);
    second.ask("record", "RECORDED ");
    card.synchronize();
    ok(&table, call!(table, aclrtSynchronizeEvent(event)));
    second.ask("close", "CLOSED ");
    second.end();
    ok(&table, young!(table, aclrtDestroyNotify(notify)));
    ok(&table, call!(table, aclrtDestroyEvent(event)));
}

#[test]
fn one_record_of_a_shared_notify_releases_one_wait_whoever_waits() {
    let (_emulator, table) = shared(1);
    let card = Card::new(&table, 0);
    let (first, side) = (notify(&table), card.stream());
    ok(&table, young!(table, aclrtRecordNotify(first, card.stream)));
    card.synchronize();
    let key = notify_key(&table, first, 2);
    assert_eq!(notify_key(&table, first, 2), key);
    let mut second = null_mut();
    ok(&table, young!(table, aclrtNotifyImportByKey(&raw mut second, key.as_ptr(), 2)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(second, side, 0)));
    ok(&table, call!(table, aclrtSynchronizeStream(side)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(first, card.stream, 0)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(second, side, 0)));
    let recording = card.stream();
    ok(&table, young!(table, aclrtRecordNotify(second, recording)));
    ok(&table, call!(table, aclrtSynchronizeStream(recording)));
    ok(&table, young!(table, aclrtRecordNotify(first, recording)));
    ok(&table, call!(table, aclrtSynchronizeStream(recording)));
    // Records do not accumulate, so the second may have preceded the first wait.
    ok(&table, young!(table, aclrtRecordNotify(first, recording)));
    let limited = card.stream();
    ok(&table, young!(table, aclrtWaitAndResetNotify(first, limited, 1)));
    let code = call!(table, aclrtSynchronizeStream(limited));
    assert!(code == 0 || code == ACL_ERROR_RT_TASK_TIMEOUT, "{code}");
    for notify in [first, second] {
        ok(&table, young!(table, aclrtDestroyNotify(notify)));
    }
    let code = young!(table, aclrtNotifyImportByKey(&raw mut second, c"nonsense".as_ptr(), 0));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("not made by this emulator"));
}

#[test]
fn keys_of_words_and_of_memory_are_told_apart_and_one_process_modes_have_none() {
    let (_emulator, table) = shared(1);
    let card = Card::new(&table, 0);
    let notify = notify(&table);
    let (key, mut seen) = (notify_key(&table, notify, 2), null_mut());
    let code = young!(table, aclrtIpcMemImportByKey(&raw mut seen, key.as_ptr(), 0));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("no memory"));
    let memory = export(&table, card.malloc(8), 8, 1);
    let code = young!(table, aclrtNotifyImportByKey(&raw mut seen, memory.as_ptr(), 0));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("names memory and not a notify"));
    let event = card.event();
    let mut handle = aclrtIpcEventHandle { reserved: [0; 64] };
    let code = young!(table, aclrtIpcGetEventHandle(event, &raw mut handle));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("ACL_EVENT_IPC"));

    let emulator = Emulator::strict(1).expect("the emulator starts");
    let table = emulator.table();
    ok(&table, call!(table, aclInit(std::ptr::null())));
    let _card = Card::new(&table, 0);
    let mut event = null_mut();
    let code = call!(table, aclrtCreateEventExWithFlag(&raw mut event, 0x40));
    assert!(refused(&table, code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT).contains("order one process"));
}

/// Task, stream, thread, device, code.
static TOLD: Mutex<Option<[u32; 5]>> = Mutex::new(None);
static WAS_TOLD: Condvar = Condvar::new();
static TELLER: OnceLock<Arc<Table>> = OnceLock::new();

unsafe extern "C" fn note(info: *mut aclrtExceptionInfo) {
    let table = TELLER.get().expect("set before work is enqueued");
    let told = [
        call!(table, aclrtGetTaskIdFromExceptionInfo(info)),
        call!(table, aclrtGetStreamIdFromExceptionInfo(info)),
        call!(table, aclrtGetThreadIdFromExceptionInfo(info)),
        call!(table, aclrtGetDeviceIdFromExceptionInfo(info)),
        call!(table, aclrtGetErrorCodeFromExceptionInfo(info)),
    ];
    *TOLD.lock().expect("not poisoned") = Some(told);
    WAS_TOLD.notify_all();
}

#[test]
fn a_program_is_told_of_the_task_that_failed() {
    let (_emulator, table) = shared(2);
    assert!(TELLER.set(table.clone()).is_ok());
    let card = Card::new(&table, 1);
    ok(&table, call!(table, aclrtSetExceptionInfoCallback(Some(note))));
    let memory = card.malloc(8);
    ok(&table, call!(table, aclrtMemsetAsync(memory, 8, 0, 8, card.stream)));
    let mut notify = null_mut();
    ok(&table, young!(table, aclrtCreateNotify(&raw mut notify, 0)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, card.stream, 0)));
    let (mut last, mut stream) = (0, 0);
    ok(&table, call!(table, aclrtGetThreadLastTaskId(&raw mut last)));
    ok(&table, call!(table, aclrtStreamGetId(card.stream, &raw mut stream)));
    assert_eq!(last, 2);
    // Streams that wait for the destroyed notify fail.
    ok(&table, young!(table, aclrtDestroyNotify(notify)));
    let (code, _) = card.outcome();
    let mut told = TOLD.lock().expect("not poisoned");
    while told.is_none() {
        told = WAS_TOLD.wait(told).expect("not poisoned");
    }
    let [task, on, thread, device, reason] = told.expect("told");
    assert_eq!((task, on, device, reason), (last, stream as u32, 1, code as u32));
    assert_ne!(thread, 0);
    ok(&table, call!(table, aclrtSetExceptionInfoCallback(None)));
}

#[test]
fn zero_copy_memory_of_communicators_is_of_another_card() {
    let (_emulator, table) = shared(2);
    let (cards, comms) = world(&table, 2);
    let memory = cards[0].malloc(64);
    let code = call!(table, HcclCommSetMemoryRange(comms[0], memory, 64, 0, 0));
    assert!(hccl_refused(&table, code, HcclResult::HCCL_E_NOT_SUPPORT).contains("Atlas A3 alone"));
    let code = call!(table, HcclCommDeactivateCommMemory(comms[0], null_mut()));
    hccl_refused(&table, code, HcclResult::HCCL_E_PTR);
}
