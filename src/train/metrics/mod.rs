//! Metrics of each training step, as JSON lines and as TensorBoard event files.
//!
//! - Input: the numbers of a step.
//! - Output: a line ([`StepLog`]) and an event ([`EventLog`]).
//! - Invariants: both are written in each step. After a resume, the log has each step once, and
//!   TensorBoard ignores outdated events. Existing logs are read only to find their steps.
//!
//! [`straggler`] reports slow ranks.

mod event_log;
mod step_log;
pub mod straggler;

pub use event_log::EventLog;
pub use step_log::{StepLog, StepRecord};
