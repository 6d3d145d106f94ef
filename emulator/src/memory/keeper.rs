//! Invalidation of cached spans when memory is freed.
//!
//! Invariant: no span from an old generation stays cached, so an idle owner does not keep freed
//! memory mapped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// A cache of spans, which keep their memory mapped.
pub(crate) trait Keeper: std::fmt::Debug + Send + Sync {
    /// Called when some memory of the machine is freed.
    fn let_go(&self);
}

#[derive(Debug, Default)]
pub(crate) struct Keepers {
    generation: AtomicU64,
    all: Mutex<Vec<Weak<dyn Keeper>>>,
}

impl Keepers {
    /// Memory found in this generation still exists.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Registers a cache filled in `generation`. If that generation has ended, the cache is cleared
    /// at once.
    pub(crate) fn keep(&self, generation: u64, keeper: Weak<dyn Keeper>) {
        let mut all = self.lock();
        if self.generation() != generation {
            drop(all);
            keeper.upgrade().iter().for_each(|keeper| keeper.let_go());
            return;
        }
        if all.len() == all.capacity() {
            all.retain(|keeper| keeper.strong_count() > 0);
            let left = all.len();
            all.reserve(left + 1);
        }
        all.push(keeper);
    }

    pub(crate) fn end_generation(&self) {
        let all = {
            let mut all = self.lock();
            self.generation.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut *all)
        };
        all.iter().filter_map(Weak::upgrade).for_each(|keeper| keeper.let_go());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Keeper>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[derive(Debug, Default)]
    struct Kept(AtomicBool);

    impl Keeper for Kept {
        fn let_go(&self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_is_kept_beyond_its_generation() {
        let (keepers, keeper) = (Keepers::default(), Arc::new(Kept::default()));
        let keep = |generation| {
            keeper.0.store(true, Ordering::Relaxed);
            let weak: Weak<Kept> = Arc::downgrade(&keeper);
            keepers.keep(generation, weak);
            keeper.0.load(Ordering::Relaxed)
        };
        let first = keepers.generation();
        assert!(keep(first), "its generation goes on");
        keepers.end_generation();
        assert!(!keeper.0.load(Ordering::Relaxed), "its generation has ended");
        assert!(!keep(first), "and what was found in it is not kept any more");
        assert!(keep(keepers.generation()));
    }

    #[test]
    fn who_is_no_more_takes_no_room() {
        let keepers = Keepers::default();
        for _ in 0..1000 {
            let weak: Weak<Kept> = Arc::downgrade(&Arc::new(Kept::default()));
            keepers.keep(0, weak);
        }
        assert!(keepers.lock().len() < 10);
    }
}
