//! What is written for particular instructions because plain loops, compiled for them, are measurably short of the machine.
//!
//! Input and output: slices and raw parts of device memory that [`super::raw`] has checked. Each kernel takes the
//! instruction set as an argument, so that tests run every one that the processor has.
//! Does not: use AMX, or the products of bf16 pairs and of 8-bit integers that some aarch64 processors have, for all of which
//! stable Rust has no functions.

pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod dot;
pub mod isa;
pub(crate) mod rates;
pub mod streaming;
pub(crate) mod transpose;
