//! Handling of signals and of failures of other processes.
//!
//! - Input: SIGINT, SIGTERM, SIGHUP, or the failure of another process.
//! - Output: exit code 130 after a signal, exit code 3 after a failure.
//!
//! Three modes exist:
//!
//! - The handler of [`catch`] notifies the other processes and sets a flag. The loader and the
//!   generation loop poll the flag. If the command does not end in time,
//!   for example because a card hangs, the handler ends the process.
//! - Between [`end_in_order`] and [`end_soon`], the command takes the time it needs and notifies
//!   the other processes itself. A second signal ends it (but see [`ignore_second_signal`]).
//! - [`end_at_once`] is for commands with no unfinished work worth saving.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ascend_tp::world::ProcessGroup;

use super::failure::{FAILED, INTERRUPTED};
use super::note;

const GRACE: Duration = Duration::from_secs(5);

/// The terminal sends Ctrl-C to every process, and a launcher sends the signal again. A second
/// signal within this time counts as a copy of the first.
const SAME: Duration = Duration::from_secs(1);

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static FIRST: OnceLock<Instant> = OnceLock::new();
static IS_IN_ORDER: AtomicBool = AtomicBool::new(false);
static IGNORES_SECOND: AtomicBool = AtomicBool::new(false);
static LAST_REPORT: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Returns whether a signal has asked this process to end.
pub(super) fn is_requested() -> bool {
    REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed))
}

/// From now on the command polls [`is_requested`] and ends after all processes have
/// agreed on the last step and saved.
///
/// The handler notifies no process, and ends this process only at a second signal.
pub(super) fn end_in_order() {
    IS_IN_ORDER.store(true, Ordering::Relaxed);
}

/// Ignores every signal after the first one, for ranks that a supervisor has started.
///
/// The first signal may be the supervisor's request to save and restart on more cards. A later
/// Ctrl-C must not interrupt the saving. A second Ctrl-C ends the supervisor, and the Linux
/// kernel then kills its ranks.
pub(super) fn ignore_second_signal() {
    IGNORES_SECOND.store(true, Ordering::Relaxed);
}

/// Sets the report that is printed when a signal ends the process at once.
pub(super) fn report_at_end(report: impl FnOnce() + Send + 'static) {
    *LAST_REPORT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(report));
}

/// Waits one second for a signal. If a signal arrives, waits for the end of this process.
///
/// A terminal sends signals to children too, and their failure may be seen first.
pub(super) fn wait_for_signal() {
    let started = Instant::now();
    while started.elapsed() < SAME || is_requested() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn is_in_order() -> bool {
    IS_IN_ORDER.load(Ordering::Relaxed)
}

/// Ends the mode of [`end_in_order`] and returns the flag of [`catch`].
pub(super) fn end_soon() -> Arc<AtomicBool> {
    IS_IN_ORDER.store(false, Ordering::Relaxed);
    Arc::clone(REQUESTED.get_or_init(Arc::default))
}

/// Returns whether a second signal ends the process at once.
fn ends_process(since_first: Duration, is_ignored: bool) -> bool {
    since_first >= SAME && !is_ignored
}

/// Installs a handler that ends the command gracefully. Returns the flag that the first signal
/// sets.
///
/// The handler lives as long as the process and must not keep the group alive. Dropping the group
/// forwards the remaining messages of the first process.
pub(super) fn catch(group: &Arc<ProcessGroup>) -> Arc<AtomicBool> {
    let requested = Arc::clone(REQUESTED.get_or_init(Arc::default));
    let (flag, group) = (Arc::clone(&requested), Arc::downgrade(group));
    let handler = move || {
        let is_second = flag.swap(true, Ordering::Relaxed);
        let since_first = FIRST.get_or_init(Instant::now).elapsed();
        let is_in_order = is_in_order();
        if is_second {
            if ends_process(since_first, is_in_order && IGNORES_SECOND.load(Ordering::Relaxed)) {
                exit(INTERRUPTED.into());
            }
            return;
        }
        if is_in_order {
            return;
        }
        let group = Weak::clone(&group);
        let watch = std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
            if let Some(group) = group.upgrade() {
                group.fail("interrupted by a signal");
            }
            std::thread::sleep(GRACE);
            exit(INTERRUPTED.into());
        });
        if watch.is_err() {
            exit(INTERRUPTED.into());
        }
    };
    // The error is ignored: without a handler, a signal kills the process and the system releases
    // its cards.
    let _uncaught = ctrlc::set_handler(handler);
    requested
}

/// Installs handlers that end this process at once after a signal or after the failure of another
/// process, including killed or stopped processes. Unfinished work is lost.
///
/// Other processes end as soon as they receive the notice of a signal, and their end may arrive
/// here first. After a signal, this process therefore reports the signal, not their failures.
pub(super) fn end_at_once(group: &Arc<ProcessGroup>) {
    let requested = Arc::clone(REQUESTED.get_or_init(Arc::default));
    group.on_failure(|failure| {
        if is_requested() {
            return;
        }
        note(&format!("error: {failure}"));
        exit(FAILED.into());
    });
    let ending = Arc::downgrade(group);
    let handler = move || {
        requested.store(true, Ordering::Relaxed);
        if let Some(group) = ending.upgrade() {
            group.fail("interrupted by a signal");
        }
        let report = LAST_REPORT.lock().unwrap_or_else(PoisonError::into_inner).take();
        report.into_iter().for_each(|report| report());
        note("interrupted");
        exit(INTERRUPTED.into());
    };
    let _uncaught = ctrlc::set_handler(handler);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_signal_leaves_the_process_its_time_to_end() {
        assert!(!ends_process(Duration::from_millis(999), false));
        assert!(ends_process(SAME, false));
        assert!(!ends_process(SAME, true), "a supervisor ends this process");
    }
}
