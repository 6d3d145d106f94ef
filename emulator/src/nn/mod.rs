//! What the operator library keeps of a program: its objects behind handles, and calls that are prepared and not yet run.
//!
//! Input: what the two phases of an operator are given. Output: handles and [`executor::Executor`]s. Does not: know an operator, or
//! compute (see `ascend_tp_emulator_operators`).

pub(crate) mod executor;
pub(crate) mod objects;
