//! A process's bell, which the processes it shares memory with ring when something in that memory concerns it.
//!
//! Input: rings, from any thread of any process on this host. Output: whoever listens goes on. Who that is: the threads of
//! the program that synchronize, if there are any, because they have to run anyway when their wait is over; else the
//! process's one listener. Method: a count of rings in shared memory, on which threads sleep by futex. Invariants: nobody
//! sleeps through a ring that came after the count they last saw; a ring costs a system call only if somebody sleeps; a
//! thread that ceases to listen looks whether it rang meanwhile. Does not: say what has happened (see
//! `hccl::at_table`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use crate::memory::shared_words::SharedWords;

/// Bytes of a bell.
pub(crate) const BELL_BYTES: usize = 64;

/// Where its words are: rings; threads that listen; those of them that sleep; rings nobody listened to.
const RUNG: usize = 0;
const LISTENING: usize = 4;
const ASLEEP: usize = 8;
const UNHEARD: usize = 12;

/// The bell of this or another process.
#[derive(Debug)]
pub(crate) struct Bell {
    words: SharedWords,
}

impl Bell {
    /// The bell in these [`BELL_BYTES`], which were zero when its process took them.
    pub(crate) fn new(words: SharedWords) -> Self {
        Self { words }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.words.at_32(at)
    }

    /// Rings it: some thread of its process looks at the memory both share.
    pub(crate) fn ring(&self) {
        self.wake();
        if self.word(LISTENING).load(Ordering::SeqCst) == 0 {
            self.word(UNHEARD).fetch_add(1, Ordering::SeqCst);
            wake_all(self.word(UNHEARD));
        }
    }

    /// Wakes the threads of this process that sleep in [`Bell::sleep`].
    pub(crate) fn wake(&self) {
        self.word(RUNG).fetch_add(1, Ordering::SeqCst);
        if self.word(ASLEEP).load(Ordering::SeqCst) > 0 {
            wake_all(self.word(RUNG));
        }
    }

    /// How often it rang.
    pub(crate) fn rings(&self) -> u32 {
        self.word(RUNG).load(Ordering::SeqCst)
    }

    /// From now on the calling thread listens, until it says [`Bell::cease`].
    pub(crate) fn listen(&self) {
        self.word(LISTENING).fetch_add(1, Ordering::SeqCst);
    }

    /// The calling thread listens no more. What rang since it last looked is still its to look at.
    pub(crate) fn cease(&self) {
        self.word(LISTENING).fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps until it has rung more than `seen` times, or `limit` is over, or for no reason.
    pub(crate) fn sleep(&self, seen: u32, limit: Option<Duration>) {
        self.word(ASLEEP).fetch_add(1, Ordering::SeqCst);
        sleep_on(self.word(RUNG), seen, limit);
        self.word(ASLEEP).fetch_sub(1, Ordering::SeqCst);
    }

    /// How often it rang while no thread of the program listened.
    pub(crate) fn unheard(&self) -> u32 {
        self.word(UNHEARD).load(Ordering::SeqCst)
    }

    /// Sleeps until that is more than `seen`, or for no reason.
    pub(crate) fn await_unheard(&self, seen: u32) {
        sleep_on(self.word(UNHEARD), seen, None);
    }

    /// Lets the process's listener look, whoever else listens.
    pub(crate) fn nudge(&self) {
        self.word(UNHEARD).fetch_add(1, Ordering::SeqCst);
        wake_all(self.word(UNHEARD));
    }
}

fn wake_all(word: &AtomicU32) {
    // It fails for no word of this process.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.cast_unsigned());
}

fn sleep_on(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit.and_then(|limit| limit.try_into().ok());
    // Whatever ends it, the caller looks again.
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
        // It rang since: this returns at once.
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
