//! What training a decoder takes: bytes of a card, seconds of a step, days of a run, and the best way to split it.
//!
//! Input → output: sizes of a model, a batch, cards and how they are joined → a prediction with its terms, or the best
//! settings and what beat the others. Invariants: pure; nothing runs and nothing is measured. Does not: train.
//!
//! | module | what |
//! |---|---|
//! | [`forms`] | published closed forms and the figures they give |
//! | [`pipeline`] | a step of a pipeline, simulated |

pub mod forms;
pub mod pipeline;
