//! State of the operator library: host objects and [`executor::Executor`]s. The operators are in
//! `ascend_tp_emulator_operators`.

pub(crate) mod executor;
pub(crate) mod objects;
