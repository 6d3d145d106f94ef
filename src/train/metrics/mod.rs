//! Metrics of each training step: JSON lines ([`StepLog`]), TensorBoard events ([`EventLog`]) and
//! slow ranks ([`straggler`]).
//!
//! After a resume, the log has each step once, and TensorBoard ignores outdated events.

#[cfg(feature = "text")]
mod event_log;
mod step_log;
pub mod straggler;

#[cfg(feature = "text")]
pub use event_log::EventLog;
pub use step_log::{StepLog, StepRecord};
