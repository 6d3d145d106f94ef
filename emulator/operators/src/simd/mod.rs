//! Kernels with vector instructions, where compiled plain loops are measurably slower.
//!
//! Input and output: slices, and device memory checked by [`super::raw`]. Kernels take the
//! instruction set as an argument, so tests run all available sets. Not here: AMX, and aarch64
//! products of bf16 pairs or 8-bit integers, which stable Rust does not offer.

pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod dot;
pub mod isa;
pub(crate) mod rates;
pub mod streaming;
pub(crate) mod transpose;
