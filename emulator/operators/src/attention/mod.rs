//! Attention: inference, training and ring updates.

pub(crate) mod cache_rows;
pub(crate) mod kernels;
pub(crate) mod merge_rows;
pub(crate) mod packed_rows;
pub(crate) mod recurrent_rows;
pub(crate) mod ring_rows;
pub(crate) mod rows;
pub(crate) mod sparse_rows;
pub(crate) mod training_rows;
