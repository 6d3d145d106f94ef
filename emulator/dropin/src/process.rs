//! The machine of this process.
//!
//! Invariants: the first call builds the machine, which lives as long as the process. A forked
//! child never uses its parent's machine, because it lacks the machine's threads.
#![expect(unsafe_code, reason = "one machine for callers that carry no state, and hooks of the C library")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use ascend_tp_emulator::{Config, Emulator, Table, fork};

use crate::{loaded, notice};

#[derive(Debug)]
pub(crate) enum Process {
    Machine(Emulator, Arc<Table>),
    Refusing(CString),
}

/// Set once, then never freed; a forked child starts with NULL.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// This process has become a user of the runtime.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// A user of the runtime forked this process.
static FORKED_IN_USE: AtomicBool = AtomicBool::new(false);

/// Exit code for reports of strict mode.
const EXIT_CODE_OF_REPORTS: c_int = 66;

pub(crate) fn current(name: &'static str) -> &'static Process {
    let process = match get() {
        Some(process) => process,
        None => build(),
    };
    if makes_user(name) {
        IN_USE.store(true, Ordering::Relaxed);
    }
    process
}

/// Returns `None` if this process has a machine.
pub(crate) fn refusal() -> Option<&'static CStr> {
    match get()? {
        Process::Refusing(why) => Some(why),
        Process::Machine(..) => None,
    }
}

fn get() -> Option<&'static Process> {
    let process = CURRENT.load(Ordering::Acquire);
    // SAFETY: NULL or from `Box::into_raw`; the box is never freed.
    unsafe { process.as_ref() }
}

/// A fork after such a call is unsafe.
fn makes_user(name: &str) -> bool {
    matches!(name, "aclInit" | "aclrtSetDevice" | "aclrtCreateContext")
}

/// Builds the machine, unless another thread is faster. A forked child would inherit a lock, so
/// none is held.
#[cold]
fn build() -> &'static Process {
    let made = match machine() {
        Ok(emulator) => {
            let table = emulator.table();
            Process::Machine(emulator, table)
        }
        Err(why) => Process::Refusing(CString::new(why.replace('\0', "\\0")).unwrap_or_default()),
    };
    let made = Box::into_raw(Box::new(made));
    match CURRENT.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            introduce();
            // SAFETY: stored in CURRENT, so never freed.
            unsafe { &*made }
        }
        Err(first) => {
            // SAFETY: the box was made above and was not shared.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: a pointer in CURRENT that is not NULL is never freed.
            unsafe { &*first }
        }
    }
}

fn machine() -> Result<Emulator, String> {
    if FORKED_IN_USE.load(Ordering::Relaxed) {
        return Err(
            "this process was forked from one that had called aclInit or set a device; CANN does not support fork \
                    between processes that use it (restrictions of AscendCL, \"Processes\"): fork before the first \
                    call, or start the child with exec (in Python: the start method \"spawn\")"
                .to_owned(),
        );
    }
    if let Some(path) = loaded::foreign_library() {
        return Err(format!(
            "{path} is loaded in this process and is not the emulator's; it would mix with the emulator, so every call is \
             refused: remove the toolkit's or the emulator's folder from LD_LIBRARY_PATH"
        ));
    }
    let config = Config::from_env().map_err(|error| error.to_string())?;
    Emulator::new(config)
        .map_err(|error| format!("the environment requests a machine that cannot be made: {error}"))
}

fn introduce() {
    if let Some(why) = refusal() {
        notice::say(&why.to_string_lossy());
    }
    static HOOKED: AtomicBool = AtomicBool::new(false);
    // A forked child inherits the hooks.
    if !HOOKED.swap(true, Ordering::Relaxed) {
        // SAFETY: functions without arguments in this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        // SAFETY: as above; `at_exit` has the required signature.
        unsafe { on_exit(at_exit, ptr::null_mut()) };
    }
}

extern "C" fn before_fork() {
    fork::before_fork();
}

extern "C" fn in_parent() {
    fork::after_fork_in_parent();
}

/// Threads that do not exist in the child may hold locks of the parent's machine.
extern "C" fn in_child() {
    fork::after_fork_in_child();
    if IN_USE.swap(false, Ordering::Relaxed) {
        FORKED_IN_USE.store(true, Ordering::Relaxed);
    }
    CURRENT.store(ptr::null_mut(), Ordering::Release);
}

unsafe extern "C" {
    /// Works like `atexit`, with the exit status (glibc).
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Changes the exit code if strict mode has reports.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    let Some(Process::Machine(emulator, _)) = get() else { return };
    // Peers must not treat this exit as a crash.
    emulator.say_farewell();
    let reports = emulator.reports();
    if reports.is_empty() {
        return;
    }
    // Each report was already printed.
    let count = reports.len();
    notice::say(&format!("strict mode has {count} {}", if count == 1 { "report" } else { "reports" }));
    if status == 0 {
        // SAFETY: NULL means all streams.
        unsafe { libc::fflush(ptr::null_mut()) };
        // SAFETY: ends the process. Functions registered earlier with atexit do not run, which is
        // the price of another exit code (as with sanitizers).
        unsafe { libc::_exit(EXIT_CODE_OF_REPORTS) };
    }
}
