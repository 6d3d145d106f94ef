//! Threads for collectives with remote ranks, cached for reuse.
//!
//! Each function runs at once on its own thread, so collectives do not wait for each other. The
//! number of streams limits the threads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

type ThreadBody = Box<dyn FnOnce() + Send>;

/// Idle threads; dropping the value ends them.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    idle: Arc<Mutex<Vec<Sender<ThreadBody>>>>,
}

impl Threads {
    pub(crate) fn run(&self, body: ThreadBody) -> io::Result<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(thread) = idle else { return self.start(body) };
        thread.send(body).map_err(|_| io::Error::other("an idle thread ended"))
    }

    fn start(&self, first: ThreadBody) -> io::Result<()> {
        // The thread holds no sender, so idle threads end with the last owner.
        let idle = Arc::downgrade(&self.idle);
        let run = move || {
            crate::scheduler::thread::is_of_machine();
            let mut next = Some(first);
            while let Some(body) = next {
                // The function reports its own panics; the thread survives if that fails.
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
