//! What a task found out while it ran, for the thread that runs it to hand on.
//!
//! Input: a kernel's own account of what it touched and took. Output: the same, once, after the task. Invariant: a task and
//! who takes this are on one thread. Does not: outlive a task.

use std::cell::RefCell;

use crate::memory::access::Access;

/// What only running a task tells.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// The bytes it touched.
    pub(crate) accesses: Vec<Access>,
    /// What it took of its card.
    pub(crate) measured: Option<Measured>,
}

/// The work of a kernel that counted it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Of the slowest core.
    pub(crate) cycles: u64,
    /// Of global memory, over all cores.
    pub(crate) bytes: u64,
}

thread_local! {
    static LAST: RefCell<Ran> = RefCell::new(Ran::default());
}

/// The task that runs on this thread tells this.
pub(crate) fn tell(ran: Ran) {
    LAST.replace(ran);
}

/// What the task that ran on this thread told.
pub(crate) fn take() -> Ran {
    LAST.take()
}
