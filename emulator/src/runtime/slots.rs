//! The machine of a C function call. C functions have no `self`, so each machine has a slot, and
//! its table contains functions instantiated for that slot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use crate::machine::Machine;
use crate::runtime::thread::SLOTS;

pub(super) static MACHINES: [RwLock<Weak<Machine>>; SLOTS] = [const { RwLock::new(Weak::new()) }; SLOTS];
pub(super) static TAKEN: Mutex<Taken> = Mutex::new([false; SLOTS]);

pub(crate) type Taken = [bool; SLOTS];

#[derive(Debug)]
pub(crate) struct MachineSlot(usize);

impl MachineSlot {
    pub(crate) fn take() -> Option<Self> {
        let mut taken = taken();
        let free = taken.iter().position(|taken| !taken)?;
        taken[free] = true;
        Some(Self(free))
    }

    pub(crate) fn number(&self) -> usize {
        self.0
    }

    pub(crate) fn install(&self, machine: &Arc<Machine>) {
        *MACHINES[self.0].write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(machine);
    }
}

impl Drop for MachineSlot {
    fn drop(&mut self) {
        *MACHINES[self.0].write().unwrap_or_else(PoisonError::into_inner) = Weak::new();
        taken()[self.0] = false;
    }
}

pub(crate) fn taken() -> MutexGuard<'static, Taken> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn machine(slot: usize) -> Option<Arc<Machine>> {
    MACHINES[slot].read().unwrap_or_else(PoisonError::into_inner).upgrade()
}
