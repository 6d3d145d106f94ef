//! HCCL across processes: each test starts this very binary again, once per process of the world.
//!
//! A test function is both sides: the parent, which starts and judges, and, when the environment names a role, one
//! process of the world. Does not: test what ranks of one process do among themselves (`tests/collectives.rs`).
#![expect(unsafe_code, reason = "tests call C functions")]

mod failures;
mod results;
mod script;
mod world;
