//! What is written for particular instructions because plain loops, compiled for them, are measurably short of the machine.
//!
//! Input and output: slices and raw parts of device memory that [`super::raw`] has checked. Each kernel takes the
//! instruction set as an argument, so that tests run every one that the processor has.
//! Does not: use AMX, for which stable Rust has no functions; aarch64 runs the portable bodies, compiled to NEON.

pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod dot;
pub(crate) mod rates;
pub(crate) mod transpose;
