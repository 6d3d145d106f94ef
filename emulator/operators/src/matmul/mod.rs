//! Matrix products: plain, grouped, transposed, and fused with collectives.

pub(crate) mod collective_rows;
pub(crate) mod einsum_rows;
pub(crate) mod feed_forward_rows;
pub(crate) mod grouped_rows;
pub(crate) mod kernels;
pub(crate) mod panel;
pub(crate) mod precision;
pub(crate) mod reduced_rows;
pub(crate) mod rows;
pub(crate) mod transposed_rows;
pub(crate) mod vector_rows;
