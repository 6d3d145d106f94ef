//! Ctrl-C and the launcher's request to end, and the end of another process.
//!
//! Input → output: SIGINT, SIGTERM or SIGHUP → exit code 130; the failure of another process → exit
//! code 3. Invariants: the other processes of the world are told at once. [`catch`] lets a command
//! come to its end in order, by a flag that loading and generating look at, and ends it from here
//! if it does not, because a card or another process does not answer. Between [`end_in_order`] and
//! [`end_soon`] the command takes the time it needs, tells the others itself, and a second signal
//! ends it (but see [`ignore_second_signal`]); [`end_at_once`] is for one whose work is worth
//! nothing unfinished.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ascend_tp::world::ProcessGroup;

use super::failure::{FAILED, INTERRUPTED};
use super::note;

/// How long a command may take to give its cards back.
const GRACE: Duration = Duration::from_secs(5);

/// Launchers pass on what a terminal has sent to all: a signal so soon after the first is the same
/// one.
const SAME: Duration = Duration::from_secs(1);

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static FIRST: OnceLock<Instant> = OnceLock::new();
static IS_IN_ORDER: AtomicBool = AtomicBool::new(false);
static IGNORES_SECOND: AtomicBool = AtomicBool::new(false);
static LAST_REPORT: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Whether somebody has asked this process to end.
pub(super) fn is_requested() -> bool {
    REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed))
}

/// From here on the command looks at [`is_requested`] and ends in its own time, after it has agreed
/// with the other processes and saved what it has: nobody is told, and nothing ends it but a second
/// signal.
pub(super) fn end_in_order() {
    IS_IN_ORDER.store(true, Ordering::Relaxed);
}

/// From here on only the first signal counts, for a rank that a supervisor has started: the first
/// may be the supervisor's request to save and start on more cards, and a Ctrl-C behind it must not
/// cut that short. A second Ctrl-C ends the supervisor, and the system its ranks.
pub(super) fn ignore_second_signal() {
    IGNORES_SECOND.store(true, Ordering::Relaxed);
}

/// Sets the report that is printed when a signal ends the process at once.
pub(super) fn report_at_end(report: impl FnOnce() + Send + 'static) {
    *LAST_REPORT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(report));
}

/// Waits for the end of this process if a signal has come, or comes within a second. A terminal
/// sends a signal to children too, and their failure may be seen first.
pub(super) fn give_way() {
    let started = Instant::now();
    while started.elapsed() < SAME || is_requested() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the command ends in its own time.
pub(super) fn is_in_order() -> bool {
    IS_IN_ORDER.load(Ordering::Relaxed)
}

/// Signals are again as [`catch`] has them; its flag.
pub(super) fn end_soon() -> Arc<AtomicBool> {
    IS_IN_ORDER.store(false, Ordering::Relaxed);
    Arc::clone(REQUESTED.get_or_init(Arc::default))
}

/// From here on signals end the command in order. The flag that is given is set by the first.
///
/// The handler lives as long as the process, so it must not keep the group alive: what the first
/// process still has to pass on is passed on when its group is dropped.
pub(super) fn catch(group: &Arc<ProcessGroup>) -> Arc<AtomicBool> {
    let requested = Arc::clone(REQUESTED.get_or_init(Arc::default));
    let (flag, group) = (Arc::clone(&requested), Arc::downgrade(group));
    let handler = move || {
        let is_second = flag.swap(true, Ordering::Relaxed);
        let first = FIRST.get_or_init(Instant::now);
        let is_in_order = is_in_order();
        let is_another = first.elapsed() >= SAME && !IGNORES_SECOND.load(Ordering::Relaxed);
        if is_second && (!is_in_order || is_another) {
            exit(INTERRUPTED.into());
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
    // Without a handler a signal ends the process as ever: its cards are given back by the system.
    let _uncaught = ctrlc::set_handler(handler);
    requested
}

/// From here on a signal ends this process at once, and so does the failure of another of the
/// group: also one that is killed, or stopped. What it has begun is left as it is.
///
/// Others end as soon as they hear of the signal, which may come back here before this process has
/// ended: a process that a signal ends says so, whoever fails after it.
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
    // Without a handler a signal ends the process as ever.
    let _uncaught = ctrlc::set_handler(handler);
}
