//! Results that a task reports while it runs, for the thread that runs it.
//!
//! Input: memory accesses and cost that a kernel measured. Output: the same, once, after the task.
//! Invariant: task and reader use the same thread. Not here: data that outlives a task.

use std::cell::RefCell;

use crate::memory::access::Access;

/// Results that only the execution of a task reveals.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Bytes that the task touched.
    pub(crate) accesses: Vec<Access>,
    /// Work that the task measured.
    pub(crate) measured: Option<Measured>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Cycles of the slowest core.
    pub(crate) cycles: u64,
    /// Bytes of global memory, over all cores.
    pub(crate) bytes: u64,
}

thread_local! {
    static LAST: RefCell<Ran> = RefCell::new(Ran::default());
}

/// Stores the results of this thread's current task.
pub(crate) fn tell(ran: Ran) {
    LAST.replace(ran);
}

/// Returns and clears the results of this thread's last task.
pub(crate) fn take() -> Ran {
    LAST.take()
}
