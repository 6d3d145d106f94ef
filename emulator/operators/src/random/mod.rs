//! Random fills and dropout.

pub(crate) mod kernels;
pub(crate) mod rows;
