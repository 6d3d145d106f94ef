//! Streams that a slow or stuck card held.

use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn release_due(&mut self, now: Instant) {
        for stream in self.delays.due(now) {
            if self.delays.release(stream) {
                let what = "a task did not end within its time limit (injected fault)";
                self.fail_head(stream, Failure::new(code::AICORE_TIMEOUT, what));
            }
            self.scheduler.ready.push(stream);
        }
    }
}

impl Machine {
    pub(super) fn end_delays(&self, fault: u64) {
        self.update(|state| {
            let released = state.delays.end(fault);
            state.scheduler.ready.extend(released);
        });
        if let Some(turnstile) = self.turnstile() {
            turnstile.nudge();
        }
    }
}
