//! A fault that is injected into a machine until it is lifted.

use std::fmt;
use std::sync::Arc;

use crate::faults::fault::{Fault, FaultError};
use crate::machine::Machine;

/// An injected fault. Dropping the value lifts the fault.
#[must_use = "dropping this removes the fault at once"]
pub struct Injected {
    machine: Arc<Machine>,
    id: u64,
    stays: bool,
}

impl fmt::Debug for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injected")
            .field("id", &self.id)
            .field("struck", &self.struck())
            .finish_non_exhaustive()
    }
}

impl Injected {
    pub(crate) fn new(machine: Arc<Machine>, fault: Fault) -> Result<Self, FaultError> {
        fault.check(machine.config().cards)?;
        if fault.strikes_transfers() && machine.lock().hccl.communicators.any_in_shared_memory() {
            return Err(FaultError::TooLate { fault: fault.to_string() });
        }
        let id = machine.faults().number();
        machine.lock().delays.begin(id, &fault);
        machine.faults().lay(id, fault);
        Ok(Self { machine, id, stays: false })
    }

    /// Returns how often the fault has struck so far.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.machine.faults().struck(self.id) + self.machine.lock().delays.struck(self.id)
    }

    /// Lifts the fault and returns how often it struck.
    pub fn lift(self) -> u64 {
        self.struck()
    }

    /// Keeps the fault active for the lifetime of the machine.
    pub fn stay(mut self) {
        self.stays = true;
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        for card in self.machine.faults().lift(self.id) {
            self.machine.revive(card);
        }
        self.machine.end_delays(self.id);
    }
}
