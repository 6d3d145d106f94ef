//! Linear solvers and determinants.

pub(crate) mod rows;
