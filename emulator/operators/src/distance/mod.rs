//! Distances between points.

pub(crate) mod kernels;
pub(crate) mod rows;
