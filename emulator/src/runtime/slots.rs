//! Which machine a C function works on. C functions carry no `self`, so each machine has a slot and its table's
//! functions are instantiated for that slot.
//!
//! Input: a new machine. Output: a slot until the machine's last owner goes. Invariant: at most one machine per slot.
//! Does not: build tables (see `abi`) or run calls (see `machine`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use crate::machine::Machine;
use crate::runtime::thread::SLOTS;

pub(super) static MACHINES: [RwLock<Weak<Machine>>; SLOTS] = [const { RwLock::new(Weak::new()) }; SLOTS];
pub(super) static TAKEN: Mutex<Taken> = Mutex::new([false; SLOTS]);

/// Which slots have a machine.
pub(crate) type Taken = [bool; SLOTS];

/// The right to a slot; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct MachineSlot(usize);

impl MachineSlot {
    /// Takes a free slot, if there is one.
    pub(crate) fn take() -> Option<Self> {
        let mut taken = taken();
        let free = taken.iter().position(|taken| !taken)?;
        taken[free] = true;
        Some(Self(free))
    }

    /// The slot's number, below [`SLOTS`].
    pub(crate) fn number(&self) -> usize {
        self.0
    }

    /// Lets calls that name this slot find the machine.
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

/// Which slots have a machine, held.
pub(crate) fn taken() -> MutexGuard<'static, Taken> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine in a slot; None once its last owner is gone.
pub(crate) fn machine(slot: usize) -> Option<Arc<Machine>> {
    MACHINES[slot].read().unwrap_or_else(PoisonError::into_inner).upgrade()
}
