//! Forks: what all machines of a process share stays whole in a child.
//!
//! Input: the moments before and after a fork, from whoever asks the C library for them. Output: locks that belong to no
//! machine are free in the child, and it knows no threads of its parent. Invariant: the thread that forks holds these locks
//! while it does, so no other thread, which the child does not have, can. Does not: carry machines over; a child makes its own.

use std::cell::RefCell;
use std::sync::MutexGuard;

use crate::memory::fault;
use crate::memory::fault::Unused;
use crate::runtime::slots;
use crate::runtime::slots::Taken;
use crate::scheduler::strangers;
use crate::scheduler::strangers::Claims;

/// The locks, in the order in which they are taken.
struct ForkLocks {
    _taken: MutexGuard<'static, Taken>,
    claims: MutexGuard<'static, Claims>,
    _unused: MutexGuard<'static, Unused>,
}

thread_local! {
    static LOCKS: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// The calling thread is about to fork.
pub fn before_fork() {
    let locks = ForkLocks { _taken: slots::taken(), claims: strangers::claims(), _unused: fault::unused() };
    LOCKS.set(Some(locks));
}

/// The calling thread has forked, and is in the parent.
pub fn after_fork_in_parent() {
    LOCKS.take();
}

/// The calling thread has forked, and is the only one of the child.
pub fn after_fork_in_child() {
    if let Some(mut locks) = LOCKS.take() {
        locks.claims.clear();
    }
}
