//! Convolutions over one to three dims.

pub(crate) mod deformable;
pub(crate) mod kernels;
pub(crate) mod rows;
