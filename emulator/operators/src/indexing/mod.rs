//! Elements read or written at indices, positions or masks.

pub(crate) mod cache_rows;
pub(crate) mod data_dependent_rows;
pub(crate) mod distinct_kernels;
pub(crate) mod kernels;
pub(crate) mod lookup_rows;
pub(crate) mod rows;
pub(crate) mod scatter_rows;
pub(crate) mod selection_rows;
pub(crate) mod serving_rows;
