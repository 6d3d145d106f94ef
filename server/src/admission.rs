//! Admission of requests: how many run, and how many wait for how long.
//!
//! - Input: the number of sequences of a request, and its priority.
//! - Output: a [`Permit`], which is held while the sequences run.
//! - Invariants: at most [`AdmissionLimits::running`] sequences run. Waiting requests start by
//!   priority, then by arrival, and none overtakes another. Dropping a permit or a waiting call
//!   frees its place.
//! - Not here: which sequence a step computes. That is the scheduler of the library.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Limits of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionLimits {
    /// Maximum number of sequences that run at once.
    pub(crate) running: usize,
    /// Maximum number of waiting requests.
    pub(crate) waiting: usize,
    /// Maximum time that a request waits.
    pub(crate) wait: Duration,
}

/// Why a request does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("the queue is full: {0} requests wait")]
    Full(usize),
    #[error("the request waited longer than {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// The queue of requests that wait for a place.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: AdmissionLimits,
    queue: Mutex<AdmissionQueue>,
}

#[derive(Debug)]
struct AdmissionQueue {
    free: usize,
    waiting: BTreeMap<Position, Waiter>,
    next: u64,
}

/// Order of waiting requests: the highest priority, then the first to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    priority: Reverse<i32>,
    number: u64,
}

#[derive(Debug)]
struct Waiter {
    sequences: usize,
    /// Whether the request has not started, so that it counts for the limit.
    is_new: bool,
    admitted: oneshot::Sender<Permit>,
}

/// The right to run a number of sequences.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    sequences: usize,
}

/// Whether a part of the request already runs. Later parts wait without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    First,
    Later,
}

impl Admission {
    pub(crate) fn new(limits: AdmissionLimits) -> Arc<Self> {
        let queue = AdmissionQueue { free: limits.running, waiting: BTreeMap::new(), next: 0 };
        Arc::new(Self { limits, queue: Mutex::new(queue) })
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Waits until `sequences` sequences may run. More than can ever run at once start when nothing
    /// else runs.
    ///
    /// # Errors
    /// The queue is full, or the time is over.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        sequences: usize,
        priority: i32,
        part: RequestProgress,
    ) -> Result<Permit, AdmissionError> {
        let (admitted, permit) = oneshot::channel();
        let _place = self.enter(sequences, priority, part, admitted)?;
        self.start_waiting();
        let late = AdmissionError::TimedOut(self.limits.wait);
        // The sender is dropped only with the place, which lives longer.
        let permit = async { permit.await.map_err(|_gone| late) };
        match part {
            RequestProgress::Later => permit.await,
            RequestProgress::First => {
                tokio::time::timeout(self.limits.wait, permit).await.unwrap_or(Err(late))
            }
        }
    }

    /// Adds a request to the queue.
    fn enter(
        self: &Arc<Self>,
        sequences: usize,
        priority: i32,
        part: RequestProgress,
        admitted: oneshot::Sender<Permit>,
    ) -> Result<QueuePlace, AdmissionError> {
        let is_new = part == RequestProgress::First;
        let sequences = sequences.min(self.limits.running);
        let mut queue = self.lock();
        let others = queue.waiting.values().filter(|waiter| waiter.is_new).count();
        let starts = queue.waiting.is_empty() && queue.free >= sequences;
        if is_new && !starts && others >= self.limits.waiting {
            return Err(AdmissionError::Full(others));
        }
        let position = Position { priority: Reverse(priority), number: queue.next };
        queue.next += 1;
        queue.waiting.insert(position, Waiter { sequences, is_new, admitted });
        Ok(QueuePlace { admission: Arc::clone(self), position })
    }

    /// Starts requests while the first one fits.
    fn start_waiting(self: &Arc<Self>) {
        let mut queue = self.lock();
        let mut gone = Vec::new();
        loop {
            let AdmissionQueue { free, waiting, .. } = &mut *queue;
            let Some(first) = waiting.first_entry().filter(|first| first.get().sequences <= *free) else {
                break;
            };
            let Waiter { sequences, admitted, .. } = first.remove();
            *free -= sequences;
            // A permit of a client that is gone comes back, and is dropped without the lock.
            gone.extend(admitted.send(Permit { admission: Arc::clone(self), sequences }).err());
        }
        drop(queue);
        drop(gone);
    }
}

/// The place of a call in the queue. Dropping it leaves the queue.
struct QueuePlace {
    admission: Arc<Admission>,
    position: Position,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let waiter = self.admission.lock().waiting.remove(&self.position);
        if waiter.is_some() {
            // The next one may fit.
            self.admission.start_waiting();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.lock().free += self.sequences;
        self.admission.start_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(test);
    }

    fn limits(running: usize, waiting: usize) -> AdmissionLimits {
        AdmissionLimits { running, waiting, wait: Duration::from_secs(600) }
    }

    async fn turns() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn the_queue_is_bounded_and_a_place_comes_back() {
        run(async {
            let admission = Admission::new(limits(2, 1));
            let two = admission.admit(2, 0, RequestProgress::First).await.unwrap();
            let waits = tokio::spawn({
                let admission = Arc::clone(&admission);
                async move { admission.admit(1, 0, RequestProgress::First).await }
            });
            turns().await;
            assert_eq!(admission.waiting(), 1);
            assert_eq!(
                admission.admit(1, 0, RequestProgress::First).await.unwrap_err(),
                AdmissionError::Full(1)
            );
            // A client that leaves frees its place.
            waits.abort();
            assert!(waits.await.unwrap_err().is_cancelled());
            assert_eq!(admission.waiting(), 0);
            drop(two);
            let all = admission.admit(9, 0, RequestProgress::First).await.unwrap();
            assert_eq!((admission.lock().free, all.sequences), (0, 2));
        });
    }

    #[test]
    fn a_request_waits_for_a_limited_time() {
        run(async {
            let admission = Admission::new(AdmissionLimits { wait: Duration::ZERO, ..limits(1, 9) });
            let one = admission.admit(1, 0, RequestProgress::First).await.unwrap();
            let late = admission.admit(1, 0, RequestProgress::First).await.unwrap_err();
            assert_eq!((late, admission.waiting()), (AdmissionError::TimedOut(Duration::ZERO), 0));
            drop(one);
        });
    }

    #[test]
    fn requests_start_by_priority_then_by_arrival() {
        run(async {
            let admission = Admission::new(limits(1, 9));
            let first = admission.admit(1, 0, RequestProgress::First).await.unwrap();
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", -1)] {
                let (admission, order) = (Arc::clone(&admission), Arc::clone(&order));
                tasks.push(tokio::spawn(async move {
                    let permit = admission.admit(1, priority, RequestProgress::First).await.unwrap();
                    order.lock().unwrap().push(name);
                    drop(permit);
                }));
            }
            turns().await;
            drop(first);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.lock().unwrap(), ["b", "a", "c", "d"]);
        });
    }
}
