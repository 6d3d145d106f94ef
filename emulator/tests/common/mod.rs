//! Common code: calls through the table, checked results, a rank's card. A failed call panics with
//! the library's own message.
#![expect(unsafe_code, reason = "tests call C functions")]
#![allow(dead_code, unused_macros, unused_imports, reason = "each test file uses its part")]

pub(crate) mod collective;
pub(crate) mod operators;
pub(crate) mod strict;

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex};

use ascend_tp_emulator::{Config, Emulator};
use ascend_tp_sys::{
    HcclComm, HcclDataType, HcclResult, Table, aclError, aclrtContext, aclrtEvent, aclrtMemMallocPolicy,
    aclrtMemcpyKind, aclrtNotify, aclrtStream,
};

macro_rules! call {
    ($table:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let function = $table.$name;
        // SAFETY: valid pointers and handles of this table, or arguments that the function refuses.
        unsafe { function($($arg),*) }
    }};
}
pub(crate) use call;

/// Calls a function that older releases of CANN lack.
macro_rules! young {
    ($table:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let function = $table.$name.expect("modelled");
        // SAFETY: valid pointers and handles of this table, or arguments that the function refuses.
        unsafe { function($($arg),*) }
    }};
}
pub(crate) use young;

pub(crate) const H2D: aclrtMemcpyKind = aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE;
pub(crate) const D2H: aclrtMemcpyKind = aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_HOST;
pub(crate) const D2D: aclrtMemcpyKind = aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_DEVICE;

pub(crate) fn message(table: &Table) -> String {
    let text = call!(table, aclGetRecentErrMsg());
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a C string that stays valid on this thread until the next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[track_caller]
pub(crate) fn ok(table: &Table, code: aclError) {
    assert_eq!(code, 0, "{}", message(table));
}

#[track_caller]
pub(crate) fn hccl_ok(table: &Table, code: HcclResult) {
    assert_eq!(code, HcclResult::HCCL_SUCCESS, "{}", message(table));
}

/// Returns the message; the call must fail with `code`.
#[track_caller]
pub(crate) fn refused(table: &Table, found: aclError, code: aclError) -> String {
    let message = message(table);
    assert_eq!(found, code, "{message}");
    message
}

#[track_caller]
pub(crate) fn hccl_refused(table: &Table, found: HcclResult, code: HcclResult) -> String {
    let message = message(table);
    assert_eq!(found, code, "{message}");
    message
}

pub(crate) fn machine_of(config: Config) -> (Emulator, Arc<Table>) {
    let emulator = Emulator::new(config).expect("the emulator starts");
    let table = emulator.table();
    ok(&table, call!(table, aclInit(std::ptr::null())));
    (emulator, table)
}

pub(crate) fn machine(cards: usize) -> (Emulator, Arc<Table>) {
    machine_of(Config::with_cards(cards))
}

pub(crate) fn notify(table: &Table) -> aclrtNotify {
    let mut notify = null_mut();
    ok(table, young!(table, aclrtCreateNotify(&raw mut notify, 0)));
    notify
}

/// Blocks a stream until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn enqueue(self: &Arc<Self>, table: &Table, stream: *mut c_void) {
        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: `enqueue` passed one reference count, and the function runs once.
            let gate = unsafe { Arc::from_raw(gate.cast_const().cast::<Gate>()) };
            let mut is_open = gate.is_open.lock().expect("not poisoned");
            while !*is_open {
                is_open = gate.opened.wait(is_open).expect("not poisoned");
            }
        }
        let launch = table.aclrtLaunchHostFunc.expect("modelled");
        // The function may outlive the test's gate: a forcibly destroyed stream does not wait for
        // it.
        let gate = Arc::into_raw(Arc::clone(self)).cast_mut().cast();
        // SAFETY: the function takes over this reference count.
        ok(table, unsafe { launch(stream, Some(wait), gate) });
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().expect("not poisoned") = true;
        self.opened.notify_all();
    }
}

/// One card with its context and stream, usable from any thread.
pub(crate) struct Card<'a> {
    pub(crate) table: &'a Table,
    pub(crate) context: aclrtContext,
    pub(crate) stream: aclrtStream,
}

// SAFETY: the library checks all handles, on any thread.
unsafe impl Send for Card<'_> {}
// SAFETY: as above.
unsafe impl Sync for Card<'_> {}

impl<'a> Card<'a> {
    pub(crate) fn new(table: &'a Table, ordinal: i32) -> Self {
        let (mut context, mut stream) = (null_mut(), null_mut());
        ok(table, call!(table, aclrtCreateContext(&raw mut context, ordinal)));
        ok(table, call!(table, aclrtCreateStream(&raw mut stream)));
        Self { table, context, stream }
    }

    pub(crate) fn enter(&self) {
        ok(self.table, call!(self.table, aclrtSetCurrentContext(self.context)));
    }

    pub(crate) fn malloc(&self, bytes: usize) -> *mut c_void {
        self.enter();
        let mut address = null_mut();
        let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
        ok(self.table, call!(self.table, aclrtMalloc(&raw mut address, bytes, policy)));
        address
    }

    /// Allocates at least one byte.
    pub(crate) fn upload(&self, bytes: &[u8]) -> *mut c_void {
        let address = self.malloc(bytes.len().max(1));
        let source = bytes.as_ptr().cast();
        ok(self.table, call!(self.table, aclrtMemcpy(address, bytes.len(), source, bytes.len(), H2D)));
        address
    }

    pub(crate) fn download(&self, address: *const c_void, bytes: usize) -> Vec<u8> {
        self.enter();
        let mut out = vec![0_u8; bytes];
        ok(self.table, call!(self.table, aclrtMemcpy(out.as_mut_ptr().cast(), bytes, address, bytes, D2H)));
        out
    }

    pub(crate) fn stream(&self) -> aclrtStream {
        self.enter();
        let mut stream = null_mut();
        ok(self.table, call!(self.table, aclrtCreateStream(&raw mut stream)));
        stream
    }

    pub(crate) fn event(&self) -> aclrtEvent {
        self.enter();
        let mut event = null_mut();
        ok(self.table, call!(self.table, aclrtCreateEvent(&raw mut event)));
        event
    }

    pub(crate) fn synchronize(&self) {
        self.enter();
        ok(self.table, call!(self.table, aclrtSynchronizeStream(self.stream)));
    }

    pub(crate) fn outcome(&self) -> (aclError, String) {
        self.enter();
        let code = call!(self.table, aclrtSynchronizeStream(self.stream));
        (code, message(self.table))
    }
}

/// Cards 0 to n - 1 and their communicator.
pub(crate) fn world(table: &Table, n: usize) -> (Vec<Card<'_>>, Vec<HcclComm>) {
    let cards: Vec<Card<'_>> = (0..n).map(|ordinal| Card::new(table, ordinal as i32)).collect();
    let mut devices: Vec<i32> = (0..n as i32).collect();
    let mut comms = vec![null_mut(); n];
    hccl_ok(table, call!(table, HcclCommInitAll(n as u32, devices.as_mut_ptr(), comms.as_mut_ptr())));
    (cards, comms)
}

/// Integers wrap; floats are exact for the tests' values.
pub(crate) fn encode(dtype: HcclDataType, values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match dtype {
            HcclDataType::HCCL_DATA_TYPE_INT8 | HcclDataType::HCCL_DATA_TYPE_UINT8 => bytes.push(value as u8),
            HcclDataType::HCCL_DATA_TYPE_INT16 | HcclDataType::HCCL_DATA_TYPE_UINT16 => {
                bytes.extend((value as i16).to_le_bytes());
            }
            HcclDataType::HCCL_DATA_TYPE_INT32 | HcclDataType::HCCL_DATA_TYPE_UINT32 => {
                bytes.extend((value as i32).to_le_bytes());
            }
            HcclDataType::HCCL_DATA_TYPE_INT64 | HcclDataType::HCCL_DATA_TYPE_UINT64 => {
                bytes.extend(value.to_le_bytes());
            }
            HcclDataType::HCCL_DATA_TYPE_FP16 => {
                bytes.extend(half::f16::from_f64(value as f64).to_le_bytes());
            }
            HcclDataType::HCCL_DATA_TYPE_BFP16 => {
                bytes.extend(half::bf16::from_f64(value as f64).to_le_bytes());
            }
            HcclDataType::HCCL_DATA_TYPE_FP32 => bytes.extend((value as f32).to_le_bytes()),
            HcclDataType::HCCL_DATA_TYPE_FP64 => bytes.extend((value as f64).to_le_bytes()),
            other => panic!("no test value of {other:?}"),
        }
    }
    bytes
}

pub(crate) const MOVED: &[HcclDataType] = &[
    HcclDataType::HCCL_DATA_TYPE_INT8,
    HcclDataType::HCCL_DATA_TYPE_INT16,
    HcclDataType::HCCL_DATA_TYPE_INT32,
    HcclDataType::HCCL_DATA_TYPE_INT64,
    HcclDataType::HCCL_DATA_TYPE_UINT8,
    HcclDataType::HCCL_DATA_TYPE_UINT16,
    HcclDataType::HCCL_DATA_TYPE_UINT32,
    HcclDataType::HCCL_DATA_TYPE_UINT64,
    HcclDataType::HCCL_DATA_TYPE_FP16,
    HcclDataType::HCCL_DATA_TYPE_FP32,
    HcclDataType::HCCL_DATA_TYPE_FP64,
    HcclDataType::HCCL_DATA_TYPE_BFP16,
];

pub(crate) const REDUCED: &[HcclDataType] = &[
    HcclDataType::HCCL_DATA_TYPE_INT8,
    HcclDataType::HCCL_DATA_TYPE_INT16,
    HcclDataType::HCCL_DATA_TYPE_INT32,
    HcclDataType::HCCL_DATA_TYPE_INT64,
    HcclDataType::HCCL_DATA_TYPE_FP16,
    HcclDataType::HCCL_DATA_TYPE_FP32,
    HcclDataType::HCCL_DATA_TYPE_BFP16,
];
