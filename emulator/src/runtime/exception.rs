//! Tasks that failed, for a program that wants to be told.
//!
//! Input: failures as streams settle. Output: one call of the program's function for each, on a thread of its own, outside
//! of every lock. Invariant: without a function nothing is kept. Does not: know C signatures (see `abi`).

use std::sync::Arc;

use crate::scheduler::thread;

/// What is told of one task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedTask {
    /// Its place in its stream, from 1 on.
    pub(crate) task: u32,
    pub(crate) stream: u32,
    /// The thread that enqueued it, by the operating system's number.
    pub(crate) thread: u32,
    pub(crate) card: u32,
    /// Code in the numbering of AscendCL.
    pub(crate) code: i32,
}

/// The program's function.
pub(crate) type ExceptionCallback = Arc<dyn Fn(FailedTask) + Send + Sync>;

/// The program's function and what it has yet to be told.
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
    /// A task has failed.
    pub(crate) fn note(&mut self, failed: FailedTask) {
        if self.callback.is_some() {
            self.pending.push(failed);
        }
    }

    /// Tells the program, if it wants to know. Threads that the host refuses leave it untold.
    pub(crate) fn tell(&mut self) {
        let Some(callback) = &self.callback else { return };
        for failed in std::mem::take(&mut self.pending) {
            let callback = Arc::clone(callback);
            let body = move || {
                thread::is_of_machine();
                callback(failed);
            };
            // The failure stays on its stream, where every later call finds it.
            let _ = std::thread::Builder::new().name("ascend-exceptions".into()).spawn(body);
        }
    }
}
