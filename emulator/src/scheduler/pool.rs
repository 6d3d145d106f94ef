//! The thread pool that runs the ready tasks of all cards and splits large tasks into tiles.
//!
//! Invariants:
//! - An idle thread spins for a bounded time (`spin`) and then sleeps. No thread is woken while
//!   enough threads spin.
//! - Queued work never waits for a sleeping thread.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::base::failure::Failure;
use crate::memory::tiles::TileSet;
use crate::scheduler::spin;

/// Work of one stream entry, which a captured graph runs many times. An `Err` or a panic becomes
/// the stream's sticky error.
pub(crate) type StreamTask = Arc<dyn Fn(&Workers) -> Result<(), Failure> + Send + Sync>;

pub(crate) type PoolJob = Box<dyn FnOnce(&Workers) + Send>;

pub(crate) struct Workers {
    queue: Mutex<TaskQueue>,
    wake: Condvar,
    threads: usize,
    /// Incremented for every queued item. Read without the lock.
    posted: AtomicU32,
    /// Stops threads that run several jobs.
    closed: AtomicBool,
}

#[derive(Default)]
struct TaskQueue {
    jobs: VecDeque<PoolJob>,
    tiles: Vec<Arc<TileSet>>,
    /// Threads that spin on [`Workers::posted`].
    looking: usize,
    sleeping: usize,
}

impl TaskQueue {
    fn take(&mut self) -> Option<PoolWork> {
        if let Some(job) = self.jobs.pop_front() {
            return Some(PoolWork::Job(job));
        }
        let set = self.tiles.iter().find(|set| set.has_work())?;
        Some(PoolWork::Tiles(Arc::clone(set)))
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Workers {
    /// Runs `tile(0)` to `tile(count - 1)` on the pool and waits for them. Only a task may call
    /// this, and not from inside a tile.
    pub(crate) fn tiles(&self, count: usize, tile: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.threads == 1 {
            (0..count).for_each(tile);
            return;
        }
        let publish = |set: &Arc<TileSet>| {
            let mut queue = self.lock();
            queue.tiles.push(Arc::clone(set));
            self.announce(&queue, count - 1);
        };
        let retract = |set: &Arc<TileSet>| self.lock().tiles.retain(|other| !Arc::ptr_eq(other, set));
        TileSet::share(count, tile, publish, retract);
    }

    pub(crate) fn spawn(&self, jobs: impl IntoIterator<Item = PoolJob>) {
        let mut jobs = jobs.into_iter().peekable();
        if jobs.peek().is_none() {
            return;
        }
        let mut queue = self.lock();
        queue.jobs.extend(jobs);
        self.announce(&queue, queue.jobs.len());
    }

    pub(crate) fn has_jobs(&self) -> bool {
        !self.lock().jobs.is_empty()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn announce(&self, queue: &TaskQueue, threads: usize) {
        self.posted.fetch_add(1, Ordering::Release);
        for _ in 0..threads.saturating_sub(queue.looking).min(queue.sleeping) {
            self.wake.notify_one();
        }
    }

    /// A thread without a job helps with tiles.
    fn run(&self) {
        loop {
            match self.next() {
                PoolWork::Job(job) => {
                    // A job reports its own panics; the thread survives if that fails.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(self)));
                }
                PoolWork::Tiles(set) => set.help(),
                PoolWork::End => return,
            }
        }
    }

    fn next(&self) -> PoolWork {
        let mut queue = self.lock();
        loop {
            if self.is_closed() {
                return PoolWork::End;
            }
            if let Some(work) = queue.take() {
                return work;
            }
            // New work now counts this thread as spinning.
            let seen = self.posted.load(Ordering::Acquire);
            queue.looking += 1;
            drop(queue);
            spin::until(|| self.posted.load(Ordering::Acquire) != seen);
            queue = self.lock();
            queue.looking -= 1;
            if self.posted.load(Ordering::Acquire) == seen {
                queue.sleeping += 1;
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.sleeping -= 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum PoolWork {
    Job(PoolJob),
    Tiles(Arc<TileSet>),
    End,
}

/// Dropping the pool finishes running jobs and discards waiting jobs.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    workers: Arc<Workers>,
    handles: Vec<JoinHandle<()>>,
}

impl WorkerPool {
    pub(crate) fn new(threads: usize) -> io::Result<Self> {
        let workers = Arc::new(Workers {
            queue: Mutex::default(),
            wake: Condvar::new(),
            threads,
            posted: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        });
        let mut pool = Self { workers, handles: Vec::with_capacity(threads) };
        for index in 0..threads {
            let workers = Arc::clone(&pool.workers);
            let thread = std::thread::Builder::new().name(format!("ascend-core-{index}"));
            pool.handles.push(thread.spawn(move || {
                crate::scheduler::thread::is_of_machine();
                workers.run();
            })?);
        }
        Ok(pool)
    }

    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let discarded = {
            let mut queue = self.workers.lock();
            self.workers.closed.store(true, Ordering::Relaxed);
            self.workers.posted.fetch_add(1, Ordering::Release);
            std::mem::take(&mut queue.jobs)
        };
        drop(discarded);
        self.workers.wake.notify_all();
        for handle in self.handles.drain(..) {
            // A host callback may drop the last owner. A thread cannot join itself.
            if handle.thread().id() != std::thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_and_tiles_are_complete_for_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = WorkerPool::new(threads).expect("threads start");
            let (send, receive) = mpsc::channel();
            for job in 0..20_usize {
                let send = send.clone();
                pool.workers().spawn([Box::new(move |workers: &Workers| {
                    let sum = AtomicUsize::new(0);
                    workers.tiles(job, &|index| {
                        sum.fetch_add(index + 1, Ordering::Relaxed);
                    });
                    let _ = send.send((job, sum.into_inner()));
                }) as PoolJob]);
            }
            let mut sums: Vec<_> = (0..20).map(|_| receive.recv().expect("job ran")).collect();
            sums.sort_unstable();
            assert!(sums.iter().all(|(job, sum)| *sum == job * (job + 1) / 2), "{threads}: {sums:?}");
        }
    }

    #[test]
    fn a_panicking_job_does_not_cost_its_thread() {
        let pool = WorkerPool::new(1).expect("threads start");
        let (send, receive) = mpsc::channel();
        let jobs: [PoolJob; 2] =
            [Box::new(|_| panic!("job")), Box::new(move |_| send.send(7).expect("receiver is alive"))];
        pool.workers().spawn(jobs);
        assert_eq!(receive.recv(), Ok(7));
    }
}

/// Effect of work on a machine without numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Without {
    Nothing,
    /// Other work depends on this work, so it still runs.
    Same,
}
