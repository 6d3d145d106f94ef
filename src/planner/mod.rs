//! Predictions before anything runs: what fits, how fast it is, which split is best, and why.
//!
//! Input → output: a model, cards and how they are joined → bytes and microseconds. Invariants: pure. Does not: open
//! weights or cards.

pub mod train;
pub mod validate;
pub mod workload;
