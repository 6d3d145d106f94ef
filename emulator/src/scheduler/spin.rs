//! Looking again, for a bounded time, before going to sleep.
//!
//! Input: a condition that another thread is about to make true. Output: whether it became true within the limit.
//! Why: to wake a thread that sleeps takes the one that wakes it a system call and the sleeper tens of microseconds, more
//! than a small operator takes; work that follows work comes sooner than that. A thread looks for as long as a sleep and a
//! wake-up take of its core, so looking never doubles the cost of a wait, and who finds nothing then sleeps: an idle machine
//! takes no time. Between looks the core is offered to whoever else can run, so many threads that look do not hold up one that
//! works; what others take of it meanwhile is not counted, as far as [`LIMIT`], or threads of more processes than there are
//! cores would go to sleep just because they share them, and each be woken in turn.
//! Does not: replace a sleep; the caller goes on to one that cannot miss the change.

use std::time::{Duration, Instant};

/// How long a thread looks at most, whoever has its core meanwhile.
const LIMIT: Duration = Duration::from_micros(500);

/// How often it offers the core, each time a microsecond or less of its own: 50 together.
const OFFERS: usize = 64;

/// Looks between two offers of the core, about half a microsecond.
const LOOKS: usize = 16;

/// Looks until `is_over`, or for as long as a sleep and a wake-up would take; gives whether it is over.
pub(crate) fn until(is_over: impl Fn() -> bool) -> bool {
    let mut since = None;
    for _ in 0..OFFERS {
        for _ in 0..LOOKS {
            if is_over() {
                return true;
            }
            std::hint::spin_loop();
        }
        if since.get_or_insert_with(Instant::now).elapsed() > LIMIT {
            break;
        }
        std::thread::yield_now();
    }
    is_over()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_look_ends_with_the_condition_or_without_it() {
        let flag = AtomicBool::new(true);
        assert!(until(|| flag.load(Ordering::Relaxed)));
        flag.store(false, Ordering::Relaxed);
        assert!(!until(|| flag.load(Ordering::Relaxed)));
    }
}
