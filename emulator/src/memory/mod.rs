//! Memory of cards and hosts: allocation, access and copies.
//!
//! Invariants:
//! - Device memory is in its store from allocation to free, and never moves.
//! - A span keeps its bytes mapped, so nothing reads unmapped memory.
//! - Memory that another process or a signal handler may access is accessed by copies or atomics.

pub(crate) mod access;
pub(crate) mod allocation_table;
pub(crate) mod copy;
pub(crate) mod fault;
pub(crate) mod footprint;
pub(crate) mod guard;
pub(crate) mod ipc;
pub(crate) mod keeper;
pub(crate) mod location;
pub(crate) mod pages;
pub(crate) mod peer;
pub(crate) mod place;
pub(crate) mod raw;
pub(crate) mod shared_words;
pub(crate) mod store;
pub(crate) mod tiles;
pub(crate) mod virtual_memory;
