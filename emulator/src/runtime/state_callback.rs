//! Functions of the program that are told when a device or stream comes and goes (`aclrtRegStreamStateCallback`,
//! `aclrtRegDeviceStateCallback`).
//!
//! Input: functions under names, changes. Output: the functions called, in the order of their names, on the thread that makes
//! the change. Invariants: a name is registered once; no lock is held while a function runs, so it may call the runtime.
//! Does not: tell of default streams, which come and go with their contexts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::failure::{Failure, code};

/// A function of the program: it gets what changes (a device's number, a stream's handle) and how.
pub(crate) type StateCallback = Arc<dyn Fn(usize, u32) + Send + Sync>;

/// What a function is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallbackSubject {
    /// Streams that are created and destroyed.
    Streams,
    /// Devices that are set and reset.
    Devices,
}

/// Who is told of what, behind a lock of its own: nothing that schedules depends on it.
#[derive(Default)]
pub(crate) struct StateCallbacks(Mutex<BTreeMap<(CallbackSubject, String), StateCallback>>);

impl std::fmt::Debug for StateCallbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.lock().unwrap_or_else(PoisonError::into_inner).keys()).finish()
    }
}

impl StateCallbacks {
    /// Registers a function, or with None forgets the one of that name.
    ///
    /// # Errors
    /// The name is taken, or nothing has it.
    pub(crate) fn register(
        &self,
        what: CallbackSubject,
        name: String,
        callback: Option<StateCallback>,
    ) -> Result<(), Failure> {
        let mut callbacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (what, name);
        match (callbacks.contains_key(&key), callback) {
            (true, Some(_)) => {
                let what = format!("a callback {:?} is registered already; a name is registered once", key.1);
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            (false, None) => {
                let what =
                    format!("no callback {:?} is registered, so none can be taken away (callback is NULL)", key.1);
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            (false, Some(callback)) => callbacks.insert(key, callback),
            (true, None) => callbacks.remove(&key),
        };
        Ok(())
    }

    /// Calls who is to be told.
    pub(crate) fn tell(&self, what: CallbackSubject, object: usize, state: u32) {
        let told: Vec<StateCallback> = {
            let callbacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            callbacks.iter().filter(|((of, _), _)| *of == what).map(|(_, callback)| Arc::clone(callback)).collect()
        };
        for callback in told {
            callback(object, state);
        }
    }
}
