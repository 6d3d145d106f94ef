//! Resampling of grids, and its gradients.

pub(crate) mod kernels;
pub(crate) mod rows;
