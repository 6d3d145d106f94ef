//! Ctrl-C and the launcher's request to end, and the end of another process.
//!
//! Input → output: SIGINT, SIGTERM or SIGHUP → exit code 130; the failure of another process → exit code 3. Invariants: the
//! other processes of the world are told at once. [`catch`] lets a command come to its end in order, by a flag that loading
//! and generating look at, and ends it from here if it does not, because a card or another process does not answer;
//! [`end_at_once`] is for one whose work is worth nothing unfinished.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ascend_tp::world::ProcessGroup;

use super::failure::{FAILED, INTERRUPTED};
use super::note;

/// How long a command may take to give its cards back.
const GRACE: Duration = Duration::from_secs(5);

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Whether somebody has asked this process to end.
pub(super) fn is_requested() -> bool {
    REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed))
}

/// From here on signals end the command in order. The flag that is given is set by the first.
///
/// The handler lives as long as the process, so it must not keep the group alive: what the first process still has to pass on
/// is passed on when its group is dropped.
pub(super) fn catch(group: &Arc<ProcessGroup>) -> Arc<AtomicBool> {
    let requested = Arc::clone(REQUESTED.get_or_init(Arc::default));
    let (flag, group) = (Arc::clone(&requested), Arc::downgrade(group));
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            exit(INTERRUPTED.into());
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

/// From here on a signal ends this process at once, and so does the failure of another of the group: also one that is
/// killed, or stopped. What it has begun is left as it is.
///
/// Others end as soon as they hear of the signal, which may come back here before this process has ended: a process that a
/// signal ends says so, whoever fails after it.
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
        note("interrupted");
        exit(INTERRUPTED.into());
    };
    // Without a handler a signal ends the process as ever.
    let _uncaught = ctrlc::set_handler(handler);
}
