//! CANN functions that `ascend_tp_sys` does not declare and this library implements (`answered` in
//! `exports.txt`).
//!
//! Some do nothing by design: dumps and profiling marks write no files (see docs/EMULATOR.md).
//! Others wrap functions of the table. Calls in the wrong order are refused as documented. Failures
//! are recorded and reported like failures of the table's functions.
#![expect(unsafe_code, reason = "functions called from C")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ascend_tp_emulator::Emulator;
use ascend_tp_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_REPEAT_INITIALIZE, ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_UNINITIALIZE,
    Library, aclError, aclrtStream,
};

use crate::failure::{MissingSymbolReply, NoAnswer};
use crate::process::{self, Process};

type AclOutcome = Result<(), (aclError, String)>;

fn answer(name: &'static str, found: impl FnOnce(&Emulator) -> AclOutcome) -> aclError {
    match process::current(name) {
        Process::Machine(emulator, _) => emulator.answer(name, || found(emulator)),
        Process::Refusing(_) => MissingSymbolReply::none(name, Library::AscendCl, NoAnswer::NoMachine),
    }
}

fn refuse(code: aclError, what: impl Into<String>) -> AclOutcome {
    Err((code, what.into()))
}

fn require(pointer: *const c_void, name: &str) -> AclOutcome {
    if pointer.is_null() {
        refuse(ACL_ERROR_INVALID_PARAM, format!("argument {name} is NULL"))
    } else {
        Ok(())
    }
}

/// Discards a line for CANN's log. `torch_npu` calls it while it reports a failure, so the recent
/// message must not change.
#[unsafe(no_mangle)]
extern "C" fn aclAppLog() {}

static DUMPING: AtomicBool = AtomicBool::new(false);

fn require_dump() -> AclOutcome {
    if DUMPING.load(Ordering::SeqCst) {
        return Ok(());
    }
    refuse(ACL_ERROR_UNINITIALIZE, "aclmdlInitDump has not been called")
}

#[unsafe(no_mangle)]
extern "C" fn aclmdlInitDump() -> aclError {
    answer("aclmdlInitDump", |emulator| {
        if !emulator.is_initialized() {
            return refuse(ACL_ERROR_UNINITIALIZE, "aclInit has not been called");
        }
        if DUMPING.swap(true, Ordering::SeqCst) {
            return refuse(
                ACL_ERROR_REPEAT_INITIALIZE,
                "aclmdlInitDump was called before; call aclmdlFinalizeDump first",
            );
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn aclmdlSetDump(config: *const c_char) -> aclError {
    answer("aclmdlSetDump", |_| {
        require_dump()?;
        require(config.cast(), "dumpCfgPath")
    })
}

#[unsafe(no_mangle)]
extern "C" fn aclmdlFinalizeDump() -> aclError {
    answer("aclmdlFinalizeDump", |_| {
        require_dump()?;
        DUMPING.store(false, Ordering::SeqCst);
        Ok(())
    })
}

/// Defines functions without effect, which do not read their arguments.
macro_rules! nothing {
    ($( $name:ident )*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> aclError {
            answer(stringify!($name), |_| Ok(()))
        }
    )* };
}

nothing! {
    acldumpRegCallback aclopStartDumpArgs aclopStopDumpArgs aclprofSetConfig aclprofMark aclprofPush aclprofPop
    aclprofRangePushEx aclprofRangePop aclprofRangeStop aclprofSetStampTraceMessage aclprofGetStepTimestamp
}

macro_rules! nothing_at_all {
    ($( $name:ident )*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )* };
}

nothing_at_all! { acldumpUnregCallback aclprofDestroyStamp aclprofDestroyStepInfo }

/// The token is opaque to the program.
fn token() -> *mut c_void {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    std::ptr::without_provenance_mut((0xD1 << 56 | (GIVEN.fetch_add(1, Ordering::Relaxed) + 1)) as usize)
}

#[unsafe(no_mangle)]
extern "C" fn aclprofCreateStamp() -> *mut c_void {
    token()
}

#[unsafe(no_mangle)]
extern "C" fn aclprofCreateStepInfo() -> *mut c_void {
    token()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclprofRangeStart(_stamp: *mut c_void, range_id: *mut u32) -> aclError {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    answer("aclprofRangeStart", |_| {
        require(range_id.cast(), "rangeId")?;
        // SAFETY: not NULL, so a valid pointer of the C caller.
        unsafe { range_id.write(STARTED.fetch_add(1, Ordering::Relaxed) + 1) };
        Ok(())
    })
}

/// Returns the FNV-1a hash, so equal texts have equal ids.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclprofStr2Id(message: *const c_char) -> u64 {
    if message.is_null() {
        return u64::MAX;
    }
    // SAFETY: not NULL, so the C caller's string.
    let text = unsafe { CStr::from_ptr(message) };
    let hash = text.to_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash & (u64::MAX >> 1)
}

#[derive(Clone, Copy, Debug, Default)]
struct StreamConfig {
    flag: u32,
    priority: u32,
}

fn configs() -> MutexGuard<'static, BTreeMap<usize, StreamConfig>> {
    static CONFIGS: Mutex<BTreeMap<usize, StreamConfig>> = Mutex::new(BTreeMap::new());
    CONFIGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone(handle: *const c_void) -> (aclError, String) {
    (ACL_ERROR_RT_PARAM_INVALID, format!("{handle:p} is no configuration of aclrtCreateStreamConfigHandle"))
}

#[unsafe(no_mangle)]
extern "C" fn aclrtCreateStreamConfigHandle() -> *mut c_void {
    let handle = token();
    configs().insert(handle.addr(), StreamConfig::default());
    handle
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtSetStreamConfigOpt(
    handle: *mut c_void,
    attr: c_int,
    value: *const c_void,
    size: usize,
) -> aclError {
    answer("aclrtSetStreamConfigOpt", |_| {
        require(value, "attrValue")?;
        let mut configs = configs();
        let config = configs.get_mut(&handle.addr()).ok_or_else(|| gone(handle))?;
        let number = || match size {
            // SAFETY: not NULL, so `size` bytes of the C caller, at any alignment.
            4 => Ok(unsafe { value.cast::<u32>().read_unaligned() }),
            // SAFETY: as above.
            8 => Ok(unsafe { value.cast::<u64>().read_unaligned() } as u32),
            _ => Err((ACL_ERROR_INVALID_PARAM, format!("valueSize is {size}; a number has 4 or 8 bytes"))),
        };
        match attr {
            // The stream's task memory on a card, which the emulator ignores.
            0 | 1 => {}
            2 => config.flag = number()?,
            3 => config.priority = number()?,
            _ => return refuse(ACL_ERROR_INVALID_PARAM, format!("attr {attr} is none of 0 to 3")),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn aclrtDestroyStreamConfigHandle(handle: *mut c_void) -> aclError {
    answer("aclrtDestroyStreamConfigHandle", |_| {
        configs().remove(&handle.addr()).map(|_| ()).ok_or_else(|| gone(handle))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCreateStreamV2(stream: *mut aclrtStream, handle: *const c_void) -> aclError {
    let Process::Machine(_, table) = process::current("aclrtCreateStreamV2") else {
        return MissingSymbolReply::none("aclrtCreateStreamV2", Library::AscendCl, NoAnswer::NoMachine);
    };
    let found =
        if handle.is_null() { Some(StreamConfig::default()) } else { configs().get(&handle.addr()).copied() };
    match found {
        // SAFETY: the caller upholds this contract.
        Some(config) => unsafe { (table.aclrtCreateStreamWithConfig)(stream, config.priority, config.flag) },
        None => answer("aclrtCreateStreamV2", |_| Err(gone(handle))),
    }
}

/// A device's overflow status has functions of two names.
macro_rules! overflow_status {
    ($( $get:ident $reset:ident )*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $get(address: *mut c_void, bytes: u64, stream: aclrtStream) -> aclError {
            answer(stringify!($get), |emulator| emulator.write_overflow_status(address, bytes as usize, stream))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $reset(stream: aclrtStream) -> aclError {
            answer(stringify!($reset), |emulator| emulator.reset_overflow_status(stream))
        }
    )* };
}

overflow_status! {
    aclrtGetOverflowStatus aclrtResetOverflowStatus
    aclrtGetFloatOverflowStatus aclrtResetFloatOverflowStatus
}

type DeviceStateCallback = unsafe extern "C" fn(device: u32, state: c_int, args: *mut c_void);

struct CallbackArgument(*mut c_void);

// SAFETY: the library only passes the pointer on. The program allows its use on threads that set
// devices.
unsafe impl Send for CallbackArgument {}
// SAFETY: as above.
unsafe impl Sync for CallbackArgument {}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtRegDeviceStateCallback(
    name: *const c_char,
    callback: Option<DeviceStateCallback>,
    args: *mut c_void,
) -> aclError {
    answer("aclrtRegDeviceStateCallback", |emulator| {
        require(name.cast(), "regName")?;
        // SAFETY: not NULL, so the C caller's string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let args = CallbackArgument(args);
        let watcher = callback.map(|function| -> Box<dyn Fn(u32, u32) + Send + Sync> {
            Box::new(move |device, state| {
                let args: &CallbackArgument = &args;
                // SAFETY: the program registered this function together with its argument.
                unsafe { function(device, state.cast_signed(), args.0) };
            })
        });
        emulator.watch_devices(&name, watcher).map_err(|what| (ACL_ERROR_RT_PARAM_INVALID, what))
    })
}
