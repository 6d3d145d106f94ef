//! Reports of failed tasks to the program.
//!
//! Input: failures of streams. Output: one call of the program's function per failure, on a
//! separate thread and without locks. Invariant: without a function nothing is stored. Not here: C
//! signatures (see `abi`).

use std::sync::Arc;

use crate::scheduler::thread;

#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedTask {
    /// Position in its stream, from 1.
    pub(crate) task: u32,
    pub(crate) stream: u32,
    /// Operating system id of the thread that enqueued the task.
    pub(crate) thread: u32,
    pub(crate) card: u32,
    /// Error code in the numbering of AscendCL.
    pub(crate) code: i32,
}

pub(crate) type ExceptionCallback = Arc<dyn Fn(FailedTask) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Exceptions {
    pub(crate) callback: Option<ExceptionCallback>,
    pending: Vec<FailedTask>,
}

impl std::fmt::Debug for Exceptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exceptions").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl Exceptions {
    pub(crate) fn note(&mut self, failed: FailedTask) {
        if self.callback.is_some() {
            self.pending.push(failed);
        }
    }

    /// Reports pending failures to the program. A failure is not reported if the host refuses a
    /// thread.
    pub(crate) fn tell(&mut self) {
        let Some(callback) = &self.callback else { return };
        for failed in std::mem::take(&mut self.pending) {
            let callback = Arc::clone(callback);
            let body = move || {
                thread::is_of_machine();
                callback(failed);
            };
            // Every later call on the stream still returns the failure.
            let _ = std::thread::Builder::new().name("ascend-exceptions".into()).spawn(body);
        }
    }
}
