//! AscendCL's runtime: its objects, and the state of the program's threads.
//!
//! Invariants: an object belongs to one machine, and its number is never reused. A thread's errors
//! are its own. Not here: execution (see `scheduler`), collectives (see `hccl`), operators (see
//! `nn`).

pub(crate) mod budget;
pub(crate) mod callback;
pub(crate) mod callbacks;
pub(crate) mod compiled;
pub(crate) mod context;
pub(crate) mod contexts;
pub(crate) mod event;
pub(crate) mod events;
pub(crate) mod exception;
pub mod fork;
pub(crate) mod graph;
pub(crate) mod kernel;
pub(crate) mod notifies;
pub(crate) mod notify;
pub(crate) mod objects;
pub(crate) mod options;
pub(crate) mod overflow;
pub(crate) mod profile;
pub(crate) mod saturation;
pub(crate) mod signal;
pub(crate) mod signals;
pub(crate) mod slots;
pub(crate) mod state_callback;
pub(crate) mod stream;
pub(crate) mod streams;
pub(crate) mod thread;
