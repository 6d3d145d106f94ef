//! Predictions before anything runs: what fits, how fast it is, which split is best, and why; and
//! rehearsals of it.
//!
//! Input → output: a model, cards and how they are joined → bytes and microseconds. Every time
//! comes from [`ascend_tp_machine`], the one cost model, which the emulator's clock asks too.
//! Invariant: all but [`rehearse`] and [`calibrate`] is pure. Does not: open weights; [`rehearse`]
//! opens emulated cards, [`calibrate`] those it is given.
//!
//! | module | what |
//! |---|---|
//! | [`calibrate`] | cards → the profile of their chip, by benches of this project |
//! | [`decoder`] | sizes of a dense decoder → its parameters and operations |
//! | [`fit_memory`] | plans → bytes on each card by kind, equal to what the card hands out |
//! | [`serve`] | the best way to serve a model on some cards, and what beat the others |
//! | [`simulate`] | plans → when each step runs, and what the time goes to |
//! | [`table`] | headings and rows → text in columns |
//! | [`train`] | bytes, time and the best split of training |
//! | [`validate`] | predicted against measured, for every point that ships |
//! | [`workload`] | architectures → what a card is asked to do in a pass |
//! | [`rehearse`] | a session's plans, or a step's of training, run by the real executor on emulated cards with a clock |

pub mod calibrate;
pub mod decoder;
pub mod fit_memory;
mod points;
pub mod rehearse;
pub mod serve;
pub mod simulate;
pub mod table;
pub mod train;
pub mod validate;
pub mod workload;
