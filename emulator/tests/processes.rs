//! HCCL across processes. Each test starts this binary again, once per process.
//!
//! The environment selects the role: the parent checks the results of the processes.
#![expect(unsafe_code, reason = "tests call C functions")]

mod failures;
mod results;
mod script;
mod world;
