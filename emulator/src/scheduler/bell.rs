//! Notifications between processes that share memory.
//!
//! Threads of the program that synchronize handle notifications; otherwise the process's listener
//! thread does.
//!
//! Threads sleep by futex on a notification count in shared memory.
//!
//! Invariants:
//! - No thread sleeps through a notification that came after the count it last saw.
//! - A notification makes a system call only if a thread sleeps.
//! - A thread that stops listening checks for notifications that came meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use crate::memory::shared_words::SharedWords;

pub(crate) const BELL_BYTES: usize = 64;

/// Counts of notifications, listening threads, sleeping threads, and notifications without a
/// listening thread.
const RUNG: usize = 0;
const LISTENING: usize = 4;
const ASLEEP: usize = 8;
const UNHEARD: usize = 12;

#[derive(Debug)]
pub(crate) struct Bell {
    words: SharedWords,
}

impl Bell {
    /// The memory of [`BELL_BYTES`] must have been zero at allocation.
    pub(crate) fn new(words: SharedWords) -> Self {
        Self { words }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.words.at_32(at)
    }

    /// One of the process's threads will check the shared memory.
    pub(crate) fn ring(&self) {
        self.wake();
        if self.word(LISTENING).load(Ordering::SeqCst) == 0 {
            self.word(UNHEARD).fetch_add(1, Ordering::SeqCst);
            wake_all(self.word(UNHEARD));
        }
    }

    pub(crate) fn wake(&self) {
        self.word(RUNG).fetch_add(1, Ordering::SeqCst);
        if self.word(ASLEEP).load(Ordering::SeqCst) > 0 {
            wake_all(self.word(RUNG));
        }
    }

    pub(crate) fn rings(&self) -> u32 {
        self.word(RUNG).load(Ordering::SeqCst)
    }

    pub(crate) fn listen(&self) {
        self.word(LISTENING).fetch_add(1, Ordering::SeqCst);
    }

    /// The calling thread must still handle notifications that it has not seen.
    pub(crate) fn cease(&self) {
        self.word(LISTENING).fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps until there are more than `seen` notifications, or for `limit`. Spurious wake-ups are
    /// possible.
    pub(crate) fn sleep(&self, seen: u32, limit: Option<Duration>) {
        self.word(ASLEEP).fetch_add(1, Ordering::SeqCst);
        sleep_on(self.word(RUNG), seen, limit);
        self.word(ASLEEP).fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn unheard(&self) -> u32 {
        self.word(UNHEARD).load(Ordering::SeqCst)
    }

    /// Works like [`Bell::sleep`], for notifications without a listening thread.
    pub(crate) fn await_unheard(&self, seen: u32) {
        sleep_on(self.word(UNHEARD), seen, None);
    }

    pub(crate) fn nudge(&self) {
        self.word(UNHEARD).fetch_add(1, Ordering::SeqCst);
        wake_all(self.word(UNHEARD));
    }
}

fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.cast_unsigned());
}

fn sleep_on(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit.and_then(|limit| limit.try_into().ok());
    // The caller checks again in any case.
    let _ = futex::wait(word, futex::Flags::empty(), seen, limit.as_ref());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::location::Location;
    use crate::memory::raw::Allocation;

    fn bell() -> Arc<Bell> {
        let memory = Arc::new(Allocation::new(BELL_BYTES, Location::Host, None).expect("memory"));
        Arc::new(Bell::new(SharedWords::of(memory.span(0, BELL_BYTES), BELL_BYTES).expect("aligned")))
    }

    #[test]
    fn a_ring_is_for_those_who_listen_or_else_for_the_listener() {
        let bell = bell();
        bell.ring();
        assert_eq!((bell.rings(), bell.unheard()), (1, 1));
        bell.listen();
        bell.ring();
        assert_eq!((bell.rings(), bell.unheard()), (2, 1));
        bell.cease();
        bell.ring();
        assert_eq!((bell.rings(), bell.unheard()), (3, 2));
    }

    #[test]
    fn nobody_sleeps_through_a_ring() {
        let bell = bell();
        bell.listen();
        let seen = bell.rings();
        bell.ring();
        bell.sleep(seen, None);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (bell, seen) = (Arc::clone(&bell), bell.rings());
                scope.spawn(move || {
                    while bell.rings() == seen {
                        bell.sleep(seen, None);
                    }
                });
            }
            bell.ring();
        });
        let unheard = bell.unheard();
        std::thread::scope(|scope| {
            scope.spawn(|| bell.await_unheard(unheard));
            bell.nudge();
        });
    }
}
