//! Memory accesses and cost that a task reports to the thread that runs it.
//!
//! Invariant: task and reader use the same thread.

use std::cell::RefCell;

use crate::memory::access::Access;

#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) accesses: Vec<Access>,
    pub(crate) measured: Option<Measured>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Cycles of the slowest core.
    pub(crate) cycles: u64,
    /// Global memory bytes over all cores.
    pub(crate) bytes: u64,
}

thread_local! {
    static LAST: RefCell<Ran> = RefCell::new(Ran::default());
}

pub(crate) fn tell(ran: Ran) {
    LAST.replace(ran);
}

pub(crate) fn take() -> Ran {
    LAST.take()
}
