//! Quantisation of rows and weights, and quantised products.

pub(crate) mod dynamic_rows;
pub(crate) mod fake_rows;
pub(crate) mod kernels;
pub(crate) mod rows;
pub(crate) mod weight_kernels;
pub(crate) mod weight_rows;
