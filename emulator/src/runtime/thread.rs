//! Runtime state of the calling thread: current context, last error and recent message.
//!
//! A message is returned once and stays readable until the next one.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::sync::Arc;

use crate::base::failure::code;
use crate::scheduler::thread::is_of_machine;

#[derive(Default)]
struct ThreadState {
    machine: u64,
    context: Option<u64>,
    /// Stream whose core limits the thread uses.
    limits_of: Option<u64>,
    calling: Option<Calling>,
    label: Option<Arc<str>>,
    capture_mode: CaptureMode,
    last_task: u32,
    last_error: i32,
    message: Option<String>,
    shown: CString,
    time: ThreadTime,
}

#[derive(Default)]
struct ThreadTime {
    /// In nanoseconds of the machine's time.
    clock_ns: u64,
    /// The machine waits for the thread.
    has_joined: bool,
    is_late: bool,
    /// Host times of functions, by the address of their names.
    costs: Vec<(*const u8, u64)>,
}

const COSTS: usize = 128;

thread_local! {
    static THREADS: RefCell<[ThreadState; SLOTS]> = RefCell::new(std::array::from_fn(|_| ThreadState::default()));
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineKey {
    /// Slot number below [`SLOTS`].
    pub(crate) slot: usize,
    /// Unique in this process.
    pub(crate) id: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Calling {
    pub(crate) number: u64,
    pub(crate) name: &'static str,
}

fn with<R>(key: MachineKey, f: impl FnOnce(&mut ThreadState) -> R) -> R {
    let mut f = Some(f);
    let on_thread = THREADS.try_with(|threads| {
        let state = &mut threads.borrow_mut()[key.slot];
        if state.machine != key.id {
            is_of_machine();
            *state = ThreadState { machine: key.id, ..ThreadState::default() };
        }
        f.take().map(|f| f(state))
    });
    match (on_thread.ok().flatten(), f) {
        (Some(result), _) => result,
        // The thread's states are gone when a destructor makes this call.
        (None, Some(f)) => f(&mut ThreadState::default()),
        (None, None) => unreachable!("the closure was taken, so it returned a result"),
    }
}

pub(crate) fn context(key: MachineKey) -> Option<u64> {
    with(key, |thread| thread.context)
}

pub(crate) fn set_context(key: MachineKey, context: Option<u64>) {
    with(key, |thread| thread.context = context);
}

pub(crate) fn limits_of(key: MachineKey) -> Option<u64> {
    with(key, |thread| thread.limits_of)
}

pub(crate) fn set_limits_of(key: MachineKey, stream: Option<u64>) {
    with(key, |thread| thread.limits_of = stream);
}

pub(crate) fn last_task(key: MachineKey) -> u32 {
    with(key, |thread| thread.last_task)
}

pub(crate) fn set_last_task(key: MachineKey, task: u32) {
    with(key, |thread| thread.last_task = task);
}

pub(crate) fn capture_mode(key: MachineKey) -> CaptureMode {
    with(key, |thread| thread.capture_mode)
}

pub(crate) fn set_capture_mode(key: MachineKey, mode: CaptureMode) -> CaptureMode {
    with(key, |thread| std::mem::replace(&mut thread.capture_mode, mode))
}

pub(crate) fn calling(key: MachineKey) -> Option<Calling> {
    with(key, |thread| thread.calling)
}

/// A callback may call from within a call, so this returns the outer call.
pub(crate) fn set_calling(key: MachineKey, calling: Option<Calling>) -> Option<Calling> {
    with(key, |thread| std::mem::replace(&mut thread.calling, calling))
}

pub(crate) fn name(key: MachineKey) -> Arc<str> {
    let named = || {
        let thread = std::thread::current();
        thread.name().map_or_else(|| format!("{:?}", thread.id()).into(), Arc::from)
    };
    with(key, |thread| thread.label.clone()).unwrap_or_else(named)
}

pub(crate) fn set_label(key: MachineKey, label: Option<Arc<str>>) {
    with(key, |thread| thread.label = label);
}

/// `floor_ns` is the earliest start. `cost` returns a function's host time in nanoseconds. Returns
/// true for the thread's first call.
pub(crate) fn begin_timed_call(
    key: MachineKey,
    name: &'static str,
    floor_ns: u64,
    cost: impl FnOnce(&'static str) -> u64,
) -> bool {
    with(key, |thread| {
        let time = &mut thread.time;
        if time.costs.is_empty() {
            time.costs = vec![(std::ptr::null(), 0); COSTS];
        }
        let address = name.as_ptr();
        let place = (address.addr() ^ (address.addr() >> 7)) % COSTS;
        if time.costs[place].0 != address {
            time.costs[place] = (address, cost(name));
        }
        time.clock_ns = time.clock_ns.max(floor_ns) + time.costs[place].1;
        !std::mem::replace(&mut time.has_joined, true)
    })
}

pub(crate) fn clock(key: MachineKey) -> u64 {
    with(key, |thread| thread.time.clock_ns)
}

pub(crate) fn advance_clock(key: MachineKey, ns: u64) {
    with(key, |thread| thread.time.clock_ns += ns);
}

pub(crate) fn raise_clock(key: MachineKey, ns: u64) {
    with(key, |thread| thread.time.clock_ns = thread.time.clock_ns.max(ns));
}

pub(crate) fn set_late(key: MachineKey, is_late: bool) {
    with(key, |thread| thread.time.is_late = is_late);
}

/// Returns the flag and resets it.
pub(crate) fn take_late(key: MachineKey) -> bool {
    with(key, |thread| std::mem::take(&mut thread.time.is_late))
}

pub(crate) fn record(key: MachineKey, code: i32, message: String) {
    with(key, |thread| {
        thread.last_error = code;
        thread.message = Some(message);
    });
}

pub(crate) fn last_error(key: MachineKey) -> i32 {
    with(key, |thread| thread.last_error)
}

pub(crate) fn take_last_error(key: MachineKey) -> i32 {
    with(key, |thread| std::mem::replace(&mut thread.last_error, code::SUCCESS))
}

/// Returns NULL if there is no message. The string is valid on this thread until the next call.
pub(crate) fn take_message(key: MachineKey) -> *const c_char {
    with(key, |thread| {
        let Some(message) = thread.message.take() else { return std::ptr::null() };
        // NUL bytes would end the text early. Only text from callers may contain them.
        thread.shown = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        thread.shown.as_ptr()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_do_not_share_thread_state() {
        let (a, b) = (MachineKey { slot: 0, id: u64::MAX }, MachineKey { slot: 0, id: u64::MAX - 1 });
        set_context(a, Some(5));
        record(a, 7, "seven".into());
        assert_eq!((context(a), last_error(a)), (Some(5), 7));
        assert_eq!(take_last_error(a), 7);
        assert_eq!(last_error(a), 0);
        assert!(!take_message(a).is_null());
        assert!(take_message(a).is_null());
        assert_eq!(context(b), None);
        assert_eq!(context(a), None);
    }
}

/// A thread's own mode limits how captures of other threads affect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CaptureMode {
    #[default]
    Global,
    /// The capturing thread may not make unsafe calls.
    ThreadLocal,
    Relaxed,
}

/// Machines in one process at a time.
pub(crate) const SLOTS: usize = 32;
