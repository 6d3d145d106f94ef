//! Reports of failed tasks to the program.
//!
//! Each failure causes one call of the program's function, on a separate thread and without locks.
//! Invariant: without a function nothing is stored.

use std::sync::Arc;

use crate::scheduler::thread;

#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedTask {
    /// Position in the stream, from 1.
    pub(crate) task: u32,
    pub(crate) stream: u32,
    /// Operating system id of the enqueuing thread.
    pub(crate) thread: u32,
    pub(crate) card: u32,
    /// In the numbering of AscendCL.
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

    /// Failures are not reported if the host refuses a thread.
    pub(crate) fn tell(&mut self) {
        let Some(callback) = &self.callback else { return };
        for failed in std::mem::take(&mut self.pending) {
            let callback = Arc::clone(callback);
            let body = move || {
                thread::is_of_machine();
                callback(failed);
            };
            // Later calls on the stream still return the failure.
            let _ = std::thread::Builder::new().name("ascend-exceptions".into()).spawn(body);
        }
    }
}
