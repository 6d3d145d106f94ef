//! Optimizer steps and their building blocks.

pub(crate) mod kernels;
pub(crate) mod rows;
