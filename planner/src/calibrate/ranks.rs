//! Work of all ranks of a communicator at once.

use std::panic::resume_unwind;
use std::thread::{ScopedJoinHandle, scope};

use ascend_tp::device::Communicator;

/// Gives every rank of this process a thread; what each found, in the order of `ends`. A rank that fails leaves, so that the others
/// end.
///
/// # Errors
/// Of those that failed the first whose failure is no consequence of another's.
pub fn on_all_ranks<T: Send, E: Send>(
    ends: Vec<Communicator>,
    is_consequence: impl Fn(&E) -> bool,
    body: impl Fn(&Communicator) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let found: Vec<Result<T, E>> = scope(|scope| {
        let body = &body;
        let start = |end: Communicator| {
            scope.spawn(move || {
                let done = body(&end);
                if done.is_err() {
                    // The cause is known; that leaving failed too adds nothing.
                    let _left = end.abort();
                }
                done
            })
        };
        let threads: Vec<_> = ends.into_iter().map(start).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    });
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for result in found {
        match result {
            Ok(value) => done.push(value),
            Err(error) => failed.push(error),
        }
    }
    let cause = failed.iter().position(|error| !is_consequence(error)).unwrap_or(0);
    if failed.is_empty() { Ok(done) } else { Err(failed.swap_remove(cause)) }
}
