//! Kernels with vector instructions, where plain loops are measurably slower.
//!
//! The instruction set is an argument, so tests run all available sets. Stable Rust offers no AMX,
//! and no aarch64 products of bf16 pairs or 8-bit integers.

pub(crate) mod ahead;
pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod dot;
pub mod isa;
pub(crate) mod pack;
pub(crate) mod rates;
pub mod streaming;
pub(crate) mod transpose;
