//! The bytes of cards and hosts: where they are, who may reach them, and how they are copied.
//!
//! Input: sizes, addresses, names of memory in other processes. Output: allocations and [spans](raw::RawSpan) of them, which
//! keep them mapped. Invariants: device memory lies in its store from birth, and a place is for ever; whoever holds a span
//! holds its bytes, so nothing is read after it is unmapped; what another process or a signal handler may touch is touched
//! by copying bytes or by atomics. Does not: order accesses (see `strict`), or know streams and collectives.

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
