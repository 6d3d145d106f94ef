//! The timer ends expired waits (see [`MachineState::next_expiry`]), independent of the threads of
//! the program.
//!
//! Conductors of strict and timed mode and calls with their own limit do not use the timer.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crate::machine::Machine;
use crate::scheduler::alarm::Alarm;
use crate::state::MachineState;

#[derive(Debug)]
pub(crate) struct Timer {
    alarm: Arc<Alarm>,
    handle: Option<JoinHandle<()>>,
}

impl Timer {
    /// Starts the timer of a machine without a conductor.
    pub(crate) fn start(machine: &Arc<Machine>) -> io::Result<Self> {
        let alarm = Arc::clone(&machine.lock().scheduler.alarm);
        let (heard, machine) = (Arc::clone(&alarm), Arc::downgrade(machine));
        let handle =
            std::thread::Builder::new().name("ascend-timer".into()).spawn(move || run(&heard, &machine))?;
        Ok(Self { alarm, handle: Some(handle) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.alarm.close();
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != std::thread::current().id()
        {
            let _ = handle.join();
        }
    }
}

fn run(alarm: &Alarm, machine: &Weak<Machine>) {
    crate::scheduler::thread::is_of_machine();
    while alarm.wait() {
        let Some(machine) = machine.upgrade() else { return };
        machine.update(MachineState::expire);
    }
}

impl MachineState {
    fn expire(&mut self) {
        self.scheduler.alarm_at = None;
        self.expire_waits();
        self.expire_matchings();
        if let Some(next) = self.next_expiry() {
            self.scheduler.limit(next);
        }
    }
}
