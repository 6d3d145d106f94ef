//! Training: a checkpoint or nothing, and data → a trained model.
//!
//! Input → output: files → [`data`], the batches of every step. Invariants: what a step is given depends on the data, the seed
//! and the step alone, never on how the model lies on cards.

pub mod data;
