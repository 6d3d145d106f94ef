//! Signs as bits, and lossless compression of floats.

pub(crate) mod exponent_rows;
pub(crate) mod sign_kernels;
pub(crate) mod sign_rows;
