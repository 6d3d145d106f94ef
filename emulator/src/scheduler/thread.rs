//! Identity of this process's threads, and actions at their end.
//!
//! Until it ends, a thread is a stranger to every turnstile or a participant.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scheduler::strangers;
use crate::scheduler::watch::{self, Tid};

static THREADS_SEEN: AtomicU64 = AtomicU64::new(0);

struct EndOfThread {
    tid: Tid,
    tasks: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        // This order keeps the thread a stranger or a participant.
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

pub(crate) fn number() -> u64 {
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

pub(crate) fn system_number() -> u32 {
    match ENDING.try_with(|ending| ending.tid) {
        Ok(tid) if tid > 0 => tid,
        _ => os_thread(),
    }
}

/// No other machine waits for the first call of a marked thread.
pub(crate) fn is_of_machine() {
    let _ = ENDING.try_with(|_| ());
}

/// Returns false if this thread is already ending.
pub(crate) fn at_end(task: impl FnOnce() + 'static) -> bool {
    ENDING.try_with(|ending| ending.tasks.borrow_mut().push(Box::new(task))).is_ok()
}

#[cfg(target_os = "linux")]
fn os_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// Returns the substitute number on systems without thread ids.
#[cfg(not(target_os = "linux"))]
fn os_thread() -> u32 {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or_default()
}
