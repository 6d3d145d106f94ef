//! The one machine of this process.
//!
//! Input: the first call, and the environment. Output: the machine's table, or why there is none. Invariants: whoever
//! calls first builds it, everyone else gets the same; it lives as long as the process; a forked child never touches its
//! parent's machine, whose threads it does not have. Does not: know what the functions do.
#![expect(unsafe_code, reason = "one machine for callers that carry no state, and hooks of the C library")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use ascend_tp_emulator::{Config, Emulator, Table, fork};

use crate::{loaded, notice};

/// What answers the calls of this process.
#[derive(Debug)]
pub(crate) enum Process {
    /// A machine, and its functions.
    Machine(Emulator, Arc<Table>),
    /// None, and why.
    Refusing(CString),
}

/// Built once and then never changed nor freed; a forked child starts again from NULL.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// Some call has made this process a user of the runtime.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// This process was forked from one that was a user of the runtime.
static FORKED_IN_USE: AtomicBool = AtomicBool::new(false);

/// A process that ends well although strict mode has found something ends with this code instead.
const EXIT_CODE_OF_REPORTS: c_int = 66;

/// What answers the call of `name`.
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

/// Why this process has no machine; None if it has one.
pub(crate) fn refusal() -> Option<&'static CStr> {
    match get()? {
        Process::Refusing(why) => Some(why),
        Process::Machine(..) => None,
    }
}

fn get() -> Option<&'static Process> {
    let process = CURRENT.load(Ordering::Acquire);
    // SAFETY: a pointer in CURRENT is NULL or came from `Box::into_raw` and is never freed; the box is never changed.
    unsafe { process.as_ref() }
}

/// Calls after which a fork is no longer harmless: those that make the process known to a card.
fn makes_user(name: &str) -> bool {
    matches!(name, "aclInit" | "aclrtSetDevice" | "aclrtCreateContext")
}

/// Builds the machine, unless another thread is faster. No lock is held, since a child forked meanwhile would inherit it.
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
            // SAFETY: this pointer has just gone into CURRENT, so it is never freed.
            unsafe { &*made }
        }
        Err(first) => {
            // SAFETY: the box was made above and nobody else has seen it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: a pointer in CURRENT that is not NULL is never freed.
            unsafe { &*first }
        }
    }
}

/// The machine the environment asks for.
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
             refused: take either the toolkit's folder or the emulator's out of LD_LIBRARY_PATH"
        ));
    }
    let config = Config::from_env().map_err(|error| error.to_string())?;
    Emulator::new(config).map_err(|error| format!("no machine as the environment asks for: {error}"))
}

/// Says what a person should know at the start, and asks to be called at fork and at the end.
fn introduce() {
    if let Some(why) = refusal() {
        notice::say(&why.to_string_lossy());
    }
    static HOOKED: AtomicBool = AtomicBool::new(false);
    // A child inherits the hooks.
    if !HOOKED.swap(true, Ordering::Relaxed) {
        // SAFETY: functions without arguments that live as long as this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        // SAFETY: as above; `at_exit` has the signature `on_exit` asks for.
        unsafe { on_exit(at_exit, ptr::null_mut()) };
    }
}

extern "C" fn before_fork() {
    fork::before_fork();
}

extern "C" fn in_parent() {
    fork::after_fork_in_parent();
}

/// The parent's machine is left alone: its locks may be held by threads this process does not have.
extern "C" fn in_child() {
    fork::after_fork_in_child();
    if IN_USE.swap(false, Ordering::Relaxed) {
        FORKED_IN_USE.store(true, Ordering::Relaxed);
    }
    CURRENT.store(ptr::null_mut(), Ordering::Release);
}

unsafe extern "C" {
    /// As `atexit`, with the status the process is about to return (glibc).
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// The process ends in order; one that strict mode has reports on does not end well.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    let Some(Process::Machine(emulator, _)) = get() else { return };
    // Peers shall not take this end for a death.
    emulator.say_farewell();
    let reports = emulator.reports();
    if reports.is_empty() {
        return;
    }
    // Each was told when it was found.
    let count = reports.len();
    notice::say(&format!("strict mode has {count} {}", if count == 1 { "report" } else { "reports" }));
    if status == 0 {
        // SAFETY: writes out what the program has printed and is still buffered; NULL means all streams.
        unsafe { libc::fflush(ptr::null_mut()) };
        // SAFETY: ends the process; the functions registered with atexit before this library's first call do not run,
        // which is the price of another exit code (as with the sanitizers).
        unsafe { libc::_exit(EXIT_CODE_OF_REPORTS) };
    }
}
