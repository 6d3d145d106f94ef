//! Functions of the program that are called when a device or stream changes
//! (`aclrtRegStreamStateCallback`, `aclrtRegDeviceStateCallback`).
//!
//! Input: functions with names, and changes. Output: calls in the order of the names, on the thread
//! that makes the change. Invariants: a name is registered once. No lock is held during a call, so
//! the function may call the runtime. Not here: default streams, which change with their contexts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::failure::{Failure, code};

/// A function of the program. Its arguments are the object (device number or stream handle) and the
/// change.
pub(crate) type StateCallback = Arc<dyn Fn(usize, u32) + Send + Sync>;

/// The kind of objects that a function observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallbackSubject {
    /// Streams that are created and destroyed.
    Streams,
    /// Devices that are set and reset.
    Devices,
}

/// Registered functions. They have a separate lock, because scheduling does not depend on them.
#[derive(Default)]
pub(crate) struct StateCallbacks(Mutex<BTreeMap<(CallbackSubject, String), StateCallback>>);

impl std::fmt::Debug for StateCallbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.lock().unwrap_or_else(PoisonError::into_inner).keys()).finish()
    }
}

impl StateCallbacks {
    /// Registers a function. `None` removes the function with that name.
    ///
    /// # Errors
    /// The name is in use, or no function has the name to remove.
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
                let what = format!(
                    "no callback {:?} is registered, so none can be taken away (callback is NULL)",
                    key.1
                );
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            (false, Some(callback)) => callbacks.insert(key, callback),
            (true, None) => callbacks.remove(&key),
        };
        Ok(())
    }

    /// Calls the functions that observe `what`.
    pub(crate) fn tell(&self, what: CallbackSubject, object: usize, state: u32) {
        let told: Vec<StateCallback> = {
            let callbacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            callbacks
                .iter()
                .filter(|((of, _), _)| *of == what)
                .map(|(_, callback)| Arc::clone(callback))
                .collect()
        };
        for callback in told {
            callback(object, state);
        }
    }
}
