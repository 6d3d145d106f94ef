//! Resampling of grids, and its gradients.

pub(crate) mod grid_kernels;
pub(crate) mod grid_rows;
pub(crate) mod kernels;
pub(crate) mod rows;
