//! The emulator's tests in one program: linking one per file takes longer than running them.
//!
//! `slots` uses every machine slot of a process, and `timed` measures the memory of its process.

mod accounting;
mod batch;
mod capture;
mod capture_limits;
mod collective_failures;
mod collectives;
mod common;
mod compiled;
mod device_facts;
mod dispatch;
mod document;
mod events;
mod faults;
mod ipc;
mod joined_products;
mod kernels;
mod limits;
mod matrix;
mod misuse;
mod processes;
mod profile;
mod rules;
mod runtime;
mod stream_ends;
mod strict;
mod strict_host;
mod strict_memory;
mod strict_order;
mod strict_races;
mod virtual_memory;
mod waits;
