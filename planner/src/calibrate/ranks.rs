//! Work of all ranks of a communicator in parallel.

use std::panic::resume_unwind;
use std::thread::{ScopedJoinHandle, scope};

use ascend_tp::device::Communicator;

/// Runs `body` on one thread per rank; results are in the order of `ends`. A failed rank aborts, so
/// that the other ranks return.
///
/// # Errors
/// The first failure that is not a consequence of another.
pub fn on_all_ranks<T: Send, E: Send>(
    ends: Vec<Communicator>,
    is_consequence: impl Fn(&E) -> bool,
    body: impl Fn(&Communicator) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let results: Vec<Result<T, E>> = scope(|scope| {
        let body = &body;
        let start = |end: Communicator| {
            scope.spawn(move || {
                let done = body(&end);
                if done.is_err() {
                    // An error of `abort` adds nothing to the cause.
                    let _left = end.abort();
                }
                done
            })
        };
        let threads: Vec<_> = ends.into_iter().map(start).collect();
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    });
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => done.push(value),
            Err(error) => failed.push(error),
        }
    }
    let cause = failed.iter().position(|error| !is_consequence(error)).unwrap_or(0);
    if failed.is_empty() { Ok(done) } else { Err(failed.swap_remove(cause)) }
}
