//! Parallel execution of the tiles of one large task by several threads.
//!
//! Invariants: no thread is inside the closure when [`TileSet::share`] returns or unwinds. The
//! owner spins for a bounded time (`spin`) before it sleeps.
#![expect(
    unsafe_code,
    reason = "a borrowed closure is lent to the pool's threads for the length of one call"
)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::scheduler::spin;

pub(crate) struct TileSet {
    tile: ErasedTile,
    count: usize,
    next: AtomicUsize,
    /// [`CLOSED`] if no more helpers may enter.
    helpers: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The owner sleeps on `left` with this mutex.
    gate: Mutex<()>,
    left: Condvar,
}

const CLOSED: usize = 1 << (usize::BITS - 1);

/// The lifetime is erased. Called only during `share`.
struct ErasedTile(*const (dyn Fn(usize) + Sync));

// SAFETY: the closure behind the pointer is `Sync`, so calling it from any thread is sound.
unsafe impl Send for ErasedTile {}
// SAFETY: as above.
unsafe impl Sync for ErasedTile {}

impl std::fmt::Debug for TileSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TileSet").field("count", &self.count).finish_non_exhaustive()
    }
}

impl TileSet {
    /// `publish` makes the set visible to helpers, `retract` removes it. The calling thread works
    /// too.
    pub(crate) fn share(
        count: usize,
        tile: &(dyn Fn(usize) + Sync),
        publish: impl FnOnce(&Arc<Self>),
        retract: impl FnOnce(&Arc<Self>),
    ) {
        // SAFETY: only the lifetime changes. `close_and_wait` below runs in every case (`work`
        // catches panics, `publish` and `retract` run under the guard), so no call outlives the
        // borrow.
        let erased: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(tile) };
        let set = Arc::new(Self {
            tile: ErasedTile(std::ptr::from_ref(erased)),
            count,
            next: AtomicUsize::new(0),
            helpers: AtomicUsize::new(0),
            panic: Mutex::default(),
            gate: Mutex::default(),
            left: Condvar::new(),
        });
        let guard = CloseOnDrop(&set);
        publish(&set);
        set.work();
        retract(&set);
        drop(guard);
        let panic = set.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.count
    }

    /// Returns at once if the set is closed.
    pub(crate) fn help(&self) {
        let enter = |helpers: usize| (helpers & CLOSED == 0).then_some(helpers + 1);
        if self.helpers.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_err() {
            return;
        }
        self.work();
        // `Release`: the owner then sees the results of this thread's tiles.
        if self.helpers.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            // The owner sleeps, or will see that no helper is inside.
            drop(self.gate.lock());
            self.left.notify_one();
        }
    }

    fn work(&self) {
        let body = || {
            loop {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                if index >= self.count {
                    return;
                }
                // SAFETY: this thread is the owner inside `share`, or `close_and_wait` waits for
                // it. The closure is alive.
                let tile = unsafe { &*self.tile.0 };
                tile(index);
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            self.next.store(self.count, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    fn close_and_wait(&self) {
        self.helpers.fetch_or(CLOSED, Ordering::Acquire);
        let is_alone = || self.helpers.load(Ordering::Acquire) == CLOSED;
        if spin::until(is_alone) {
            return;
        }
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_alone() {
            gate = self.left.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct CloseOnDrop<'a>(&'a TileSet);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close_and_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_runs_once_with_helpers() {
        let hits: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            let publish = |set: &Arc<TileSet>| {
                for _ in 0..3 {
                    let set = Arc::clone(set);
                    scope.spawn(move || set.help());
                }
            };
            let tile = |index: usize| {
                hits[index].fetch_add(1, Ordering::Relaxed);
            };
            TileSet::share(hits.len(), &tile, publish, |_| {});
        });
        assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn a_late_helper_finds_the_set_closed() {
        let mut kept = None;
        let calls = AtomicUsize::new(0);
        let tile = |_: usize| {
            calls.fetch_add(1, Ordering::Relaxed);
        };
        TileSet::share(2, &tile, |set| kept = Some(Arc::clone(set)), |_| {});
        kept.expect("published").help();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_panicking_tile_reaches_the_owner() {
        let share = || TileSet::share(4, &|index| assert!(index != 2, "tile 2"), |_| {}, |_| {});
        assert!(catch_unwind(share).is_err());
    }
}
