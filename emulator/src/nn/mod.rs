//! State of the operator library: objects behind handles, and [`executor::Executor`]s of calls that
//! are prepared but not yet run. The operators are in `ascend_tp_emulator_operators`.

pub(crate) mod executor;
pub(crate) mod objects;
