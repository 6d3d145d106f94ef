//! Forks: keeps process-wide state consistent in a child.
//!
//! Invariant: the forking thread holds these locks during the fork.

use std::cell::RefCell;
use std::sync::MutexGuard;

use crate::memory::fault;
use crate::memory::fault::Unused;
use crate::runtime::slots;
use crate::runtime::slots::Taken;
use crate::scheduler::strangers;
use crate::scheduler::strangers::Claims;

struct ForkLocks {
    _taken: MutexGuard<'static, Taken>,
    claims: MutexGuard<'static, Claims>,
    _unused: MutexGuard<'static, Unused>,
}

thread_local! {
    static LOCKS: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// Locks process-wide state before the calling thread forks.
pub fn before_fork() {
    let locks = ForkLocks { _taken: slots::taken(), claims: strangers::claims(), _unused: fault::unused() };
    LOCKS.set(Some(locks));
}

/// Unlocks process-wide state in the parent after a fork.
pub fn after_fork_in_parent() {
    LOCKS.take();
}

/// Unlocks process-wide state in the child and removes the parent's threads.
pub fn after_fork_in_child() {
    if let Some(mut locks) = LOCKS.take() {
        locks.claims.clear();
    }
}
