//! Looking again, for a bounded time, before going to sleep.
//!
//! Input: a condition that another thread is about to make true. Output: whether it became true within the limit.
//! Why: to wake a thread that sleeps takes the one that wakes it a system call and the sleeper tens of microseconds, more
//! than a small operator takes; work that follows work comes sooner than that. The limit is what a sleep and a wake-up
//! cost, so looking never doubles the cost of a wait, and who finds nothing then sleeps: an idle machine takes no time.
//! Between looks the core is offered to whoever else can run, so many threads that look do not hold up one that works.
//! Does not: replace a sleep; the caller goes on to one that cannot miss the change.

use std::time::{Duration, Instant};

/// How long a thread looks.
const LIMIT: Duration = Duration::from_micros(50);

/// Looks between two offers of the core, about half a microsecond.
const LOOKS: usize = 16;

/// Looks until `is_over`, or for as long as a sleep and a wake-up would take; gives whether it is over.
pub(crate) fn until(is_over: impl Fn() -> bool) -> bool {
    let mut since = None;
    loop {
        for _ in 0..LOOKS {
            if is_over() {
                return true;
            }
            std::hint::spin_loop();
        }
        if since.get_or_insert_with(Instant::now).elapsed() > LIMIT {
            return is_over();
        }
        std::thread::yield_now();
    }
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
