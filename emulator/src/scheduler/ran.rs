//! Memory accesses and cost that a task reports to the thread that runs it.
//!
//! Invariant: task and reader use the same thread.

use std::cell::RefCell;

use crate::memory::access::MemoryAccess;

#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Bytes that the task touched.
    pub(crate) accesses: Vec<MemoryAccess>,
    /// Work that the task measured.
    pub(crate) measured: Option<MeasuredKernel>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MeasuredKernel {
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
