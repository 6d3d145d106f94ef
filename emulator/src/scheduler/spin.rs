//! Spinning for a bounded time before sleeping.
//!
//! Waking a sleeping thread costs a system call and tens of microseconds, more than a small
//! operator. A thread spins for about the core time of one sleep and wake-up, so spinning at most
//! doubles the cost of a wait.
//!
//! Between checks the thread yields. The time of other threads is not counted, unless the total
//! exceeds [`LIMIT`]. Otherwise threads would sleep just because more processes than cores share
//! the host.

use std::time::{Duration, Instant};

/// Includes the time of other threads on the core.
const LIMIT: Duration = Duration::from_micros(500);

/// Each round takes up to a microsecond of the thread's own time, 50 in total.
const OFFERS: usize = 64;

/// About half a microsecond between two yields.
const LOOKS: usize = 16;

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
