//! Norms over rows and channels, softmax, and rotary position embedding.

pub(crate) mod channel_kernels;
pub(crate) mod channel_rows;
pub(crate) mod fused_rows;
pub(crate) mod group_rows;
pub(crate) mod kernels;
pub(crate) mod masked_rows;
pub(crate) mod rotary;
pub(crate) mod rows;
pub(crate) mod synchronized_rows;
