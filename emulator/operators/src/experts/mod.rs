//! Mixtures of experts: routing, dispatch and combination of tokens.

pub(crate) mod dispatch_kernels;
pub(crate) mod dispatch_rows;
pub(crate) mod gating_rows;
pub(crate) mod gradient_rows;
pub(crate) mod kernels;
pub(crate) mod map_rows;
pub(crate) mod routing_rows;
pub(crate) mod rows;
