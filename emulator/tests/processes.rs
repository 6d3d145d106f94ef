//! Tests of HCCL across processes. Each test starts this binary again, once per process.
//!
//! A test function has two roles: the parent starts the processes and checks the results, and the
//! environment selects the process role. Collectives within one process are tested in
//! `tests/collectives.rs`.
#![expect(unsafe_code, reason = "tests call C functions")]

mod failures;
mod results;
mod script;
mod world;
