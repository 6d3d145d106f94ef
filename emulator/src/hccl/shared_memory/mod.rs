//! Matching of calls through a table in the shared memory of one host.
//!
//! `table` is the layout, `matching` the protocol, and `work` the share of this process.

pub(crate) mod matching;
pub(in crate::hccl) mod table;
pub(crate) mod work;
