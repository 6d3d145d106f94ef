//! The one timer: ends what has waited too long, whoever looks and whoever does not.
//!
//! Input: the time of the next limit, said whenever one begins. Output: at that time the machine's state ends the waits
//! whose limit is over (see [`State::next_expiry`]). Invariant: a limit is kept whatever the program's threads do meanwhile,
//! sleep, poll or compute. Does not: run in strict or timed mode, whose conductors take the same times from a virtual clock,
//! or end calls with a limit of their own, whose threads sleep no longer than that.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crate::machine::Machine;
use crate::scheduler::alarm::Alarm;
use crate::state::State;

/// The running thread; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Timer {
    alarm: Arc<Alarm>,
    handle: Option<JoinHandle<()>>,
}

impl Timer {
    /// Starts the thread for a machine without a conductor.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn start(machine: &Arc<Machine>) -> io::Result<Self> {
        let alarm = Arc::clone(&machine.lock().scheduler.alarm);
        let (heard, machine) = (Arc::clone(&alarm), Arc::downgrade(machine));
        let handle = std::thread::Builder::new().name("ascend-timer".into()).spawn(move || run(&heard, &machine))?;
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
        machine.update(State::expire);
    }
}

impl State {
    /// Ends what has waited too long, and sets the alarm for what is left.
    fn expire(&mut self) {
        self.scheduler.alarm_at = None;
        self.expire_waits();
        self.expire_meetings();
        if let Some(next) = self.next_expiry() {
            self.scheduler.limit(next);
        }
    }
}
