//! Functions of the program that are told when a device or stream comes and goes (`aclrtRegStreamStateCallback`,
//! `aclrtRegDeviceStateCallback`).
//!
//! Input: functions under names, changes. Output: the functions called, in the order of their names, on the thread that makes
//! the change. Invariants: a name is registered once; no lock is held while a function runs, so it may call the runtime.
//! Does not: tell of default streams, which come and go with their contexts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::machine::Machine;

/// A function of the program: it gets what changes (a device's number, a stream's handle) and how.
pub(crate) type Watcher = Arc<dyn Fn(usize, u32) + Send + Sync>;

/// Who is told of what.
#[derive(Default)]
pub(crate) struct Watchers {
    streams: BTreeMap<String, Watcher>,
    devices: BTreeMap<String, Watcher>,
}

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (streams, devices) = (self.streams.keys(), self.devices.keys());
        f.debug_struct("Watchers").field("streams", &streams).field("devices", &devices).finish()
    }
}

/// What a function is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Streams that are created and destroyed.
    Streams,
    /// Devices that are set and reset.
    Devices,
}

impl Watchers {
    fn of(&mut self, what: Watched) -> &mut BTreeMap<String, Watcher> {
        match what {
            Watched::Streams => &mut self.streams,
            Watched::Devices => &mut self.devices,
        }
    }

    /// Registers a function, or with None forgets the one of that name.
    ///
    /// # Errors
    /// The name is taken, or nothing has it.
    fn register(&mut self, what: Watched, name: String, watcher: Option<Watcher>) -> Result<(), Failure> {
        let watchers = self.of(what);
        match (watchers.contains_key(&name), watcher) {
            (true, Some(_)) => {
                let what = format!("a callback {name:?} is registered already; a name is registered once");
                Err(Failure::new(code::PARAM_INVALID, what))
            }
            (false, None) => {
                let what = format!("no callback {name:?} is registered, so none can be taken away (callback is NULL)");
                Err(Failure::new(code::PARAM_INVALID, what))
            }
            (false, Some(watcher)) => {
                watchers.insert(name, watcher);
                Ok(())
            }
            (true, None) => {
                watchers.remove(&name);
                Ok(())
            }
        }
    }
}

impl Machine {
    /// Registers a function, or with None forgets the one of that name.
    ///
    /// # Errors
    /// The name is taken, or nothing has it.
    pub(crate) fn register_watcher(
        &self,
        what: Watched,
        name: String,
        watcher: Option<Watcher>,
    ) -> Result<(), Failure> {
        self.lock().watchers_of_state.register(what, name, watcher)
    }

    /// Calls who is to be told.
    pub(crate) fn tell(&self, what: Watched, object: usize, state: u32) {
        let told: Vec<Watcher> = self.lock().watchers_of_state.of(what).values().cloned().collect();
        for watcher in told {
            watcher(object, state);
        }
    }
}
