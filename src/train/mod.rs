//! Training: what a run keeps on disk.
//!
//! Input → output: the values of a run and where they lie → checkpoints that load on any other layout ([`checkpoint`]), and a
//! line for each step ([`metrics`]). Invariants: what is on disk is whole or not there; a step stands there once.

pub mod checkpoint;
pub mod metrics;
