//! Threads for collectives with ranks elsewhere: as many as run at once, kept for the next.
//!
//! Input: bodies that may block. Output: each runs at once on a thread of its own, so that no collective waits for
//! another and none takes a core from the cards' pool. Does not: limit how many there are; streams do.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

type Body = Box<dyn FnOnce() + Send>;

/// Idle threads, each waiting for its next body. Dropping it ends them.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    idle: Arc<Mutex<Vec<Sender<Body>>>>,
}

impl Threads {
    /// Runs `body` on a thread of its own.
    ///
    /// # Errors
    /// No thread is idle and the system refuses another; the body is dropped.
    pub(crate) fn run(&self, body: Body) -> io::Result<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(thread) = idle else { return self.start(body) };
        // An idle thread waits for what this sender sends.
        thread.send(body).map_err(|_| io::Error::other("an idle thread ended"))
    }

    fn start(&self, first: Body) -> io::Result<()> {
        // Weak, and no sender of its own: with the last owner the senders go, and idle threads end.
        let idle = Arc::downgrade(&self.idle);
        let run = move || {
            crate::scheduler::thread::is_of_machine();
            let mut next = Some(first);
            while let Some(body) = next {
                // A body reports its own panics; this keeps the thread if even that fails.
                let _ = catch_unwind(AssertUnwindSafe(body));
                let Some(idle) = idle.upgrade() else { return };
                let (send, receive) = mpsc::channel();
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(send);
                drop(idle);
                next = receive.recv().ok();
            }
        };
        std::thread::Builder::new().name("ascend-collective".into()).spawn(run).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_wait_for_each_other_all_run() {
        let threads = Threads::default();
        for _ in 0..3 {
            let barrier = Arc::new(std::sync::Barrier::new(5));
            for _ in 0..4 {
                let barrier = Arc::clone(&barrier);
                threads
                    .run(Box::new(move || {
                        barrier.wait();
                    }))
                    .expect("a thread");
            }
            barrier.wait();
        }
    }
}
