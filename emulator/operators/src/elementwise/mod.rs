//! Elementwise functions, activations and lists of tensors.

pub(crate) mod activation;
pub(crate) mod arithmetic;
pub(crate) mod comparison;
pub(crate) mod complex;
pub(crate) mod custom;
pub(crate) mod foreach;
pub(crate) mod further_rows;
pub(crate) mod kernels;
pub(crate) mod leaky_rows;
pub(crate) mod pointwise;
pub(crate) mod special_rows;
