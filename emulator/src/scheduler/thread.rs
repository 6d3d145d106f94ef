//! Threads of this process as the emulator tells them apart: their numbers, and what is to be done when one ends.
//!
//! Input: threads that call a machine or work for one. Output: numbers, which no other thread has or had. Invariant: a thread
//! is a stranger to every turnstile, or a participant, until it ends. Does not: keep what the runtime knows of a thread (see
//! `runtime::thread`).

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scheduler::strangers;
use crate::scheduler::watch::{self, Tid};

static THREADS_SEEN: AtomicU64 = AtomicU64::new(0);

/// What is to be done when this thread ends.
struct EndOfThread {
    tid: Tid,
    tasks: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        // First a stranger, then no participant: at no time is it neither.
        strangers::unclaim(self.tid);
        for task in self.tasks.take() {
            task();
        }
    }
}

thread_local! {
    static ENDING: EndOfThread = {
        let tid = watch::this_thread();
        strangers::claim(tid);
        EndOfThread { tid, tasks: RefCell::default() }
    };
    static NUMBER: u64 = THREADS_SEEN.fetch_add(1, Ordering::Relaxed) + 1;
}

/// This thread's number, which no other thread of the process has or had.
pub(crate) fn number() -> u64 {
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// The operating system's number of this thread.
pub(crate) fn system_number() -> u32 {
    match ENDING.try_with(|ending| ending.tid) {
        Ok(tid) if tid > 0 => tid,
        _ => os_thread(),
    }
}

/// This thread works for a machine, or calls one: no other machine need wait for its first call.
pub(crate) fn is_of_machine() {
    let _ = ENDING.try_with(|_| ());
}

/// Has `task` done when this thread ends; false when it is ending already.
pub(crate) fn at_end(task: impl FnOnce() + 'static) -> bool {
    ENDING.try_with(|ending| ending.tasks.borrow_mut().push(Box::new(task))).is_ok()
}

/// The operating system's number of the calling thread.
#[cfg(target_os = "linux")]
fn os_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// The calling thread's number where threads have no number of the system.
#[cfg(not(target_os = "linux"))]
fn os_thread() -> u32 {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or_default()
}
