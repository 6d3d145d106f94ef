//! Predictions before anything runs: what fits, how fast it is, which split is best, and why.
//!
//! Input → output: a model, cards and how they are joined → bytes and microseconds. Invariants: pure; every time comes from
//! [`ascend_tp_machine`], the one cost model, which the emulator's clock asks too. Does not: open weights or cards.
//!
//! | module | what |
//! |---|---|
//! | [`compile`] | a serving setting → the plans of all ranks, those that a session runs |
//! | [`launch`] | a call of a plan → what the cost model asks of it |
//! | [`fit_memory`] | plans → bytes on each card by kind, equal to what the card hands out |
//! | [`serve`] | the best way to serve a model on some cards, and what beat the others |
//! | [`simulate`] | plans → when each step runs, and what the time goes to |
//! | [`train`] | bytes, time and the best split of training |
//! | [`validate`] | predicted against measured, for every point that ships |
//! | [`workload`] | architectures → what a card is asked to do in a pass |

pub mod compile;
pub mod fit_memory;
pub mod launch;
pub mod serve;
pub mod simulate;
pub mod train;
pub mod validate;
pub mod workload;
