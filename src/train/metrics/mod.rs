//! What a run says of each step, for programs: lines of JSON, and the event files of TensorBoard.
//!
//! Input → output: a step's numbers → a line ([`StepLog`]), an event ([`EventLog`]). Invariants:
//! both are flushed each step; after a resume the lines have each step once, and TensorBoard is
//! told which events no longer count. Nothing is read back but which steps there are. [`straggler`]
//! says who is slow.

mod event_log;
mod step_log;
pub mod straggler;

pub use event_log::EventLog;
pub use step_log::{StepLog, StepRecord};
