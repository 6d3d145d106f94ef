//! Reductions, running sums, sorts and extreme values.

pub(crate) mod extremum_rows;
pub(crate) mod further_rows;
pub(crate) mod kernels;
pub(crate) mod order;
pub(crate) mod rows;
pub(crate) mod statistics_rows;
