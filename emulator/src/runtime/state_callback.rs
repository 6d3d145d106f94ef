//! Callbacks for changes of devices and streams (`aclrtRegStreamStateCallback`,
//! `aclrtRegDeviceStateCallback`).
//!
//! They are called in the order of their names, on the thread that makes the change. No lock is
//! held during a call, so a callback may call the runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::failure::{Failure, code};

/// Receives the object (device number or stream handle) and the change.
pub(crate) type StateCallback = Arc<dyn Fn(usize, u32) + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallbackSubject {
    Streams,
    Devices,
}

/// Scheduling does not depend on these functions, so they have a separate lock.
#[derive(Default)]
pub(crate) struct StateCallbacks(Mutex<BTreeMap<(CallbackSubject, String), StateCallback>>);

impl std::fmt::Debug for StateCallbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.lock().unwrap_or_else(PoisonError::into_inner).keys()).finish()
    }
}

impl StateCallbacks {
    /// A `callback` of `None` removes the function with that name.
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
