//! Pooling over the last dims.

pub(crate) mod kernels;
pub(crate) mod rows;
pub(crate) mod unpool_rows;
pub(crate) mod windows;
