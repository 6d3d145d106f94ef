//! Losses and their gradients.

pub(crate) mod ctc_kernels;
pub(crate) mod ctc_rows;
pub(crate) mod elementwise_rows;
pub(crate) mod kernels;
pub(crate) mod margin_rows;
pub(crate) mod rows;
pub(crate) mod vocabulary_rows;
