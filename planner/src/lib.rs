//! Predicts memory, time and the best split of a model before it runs, and rehearses runs on
//! emulated cards.
//!
//! - Input: a model, cards and their topology.
//! - Output: bytes and microseconds. Every time comes from the cost model [`ascend_tp_machine`],
//!   which the emulator's clock also uses.
//! - Invariant: all modules except [`rehearse`] and [`calibrate`] are pure. [`rehearse`] opens
//!   emulated cards, [`calibrate`] the given cards.
//! - Not here: weights.
//!
//! | module | purpose |
//! |---|---|
//! | [`calibrate`] | measures cards with the benches of this project → the profile of their chip |
//! | [`decoder`] | sizes of a dense decoder → parameters and operations |
//! | [`fit_memory`] | plans → bytes on each card by kind, equal to the allocated bytes |
//! | [`serve`] | the best way to serve a model on some cards, and the reasons against other ways |
//! | [`simulate`] | plans → start and end of each step, and a breakdown of the time |
//! | [`table`] | headings and rows → text in columns |
//! | [`train`] | memory, time and the best split of training |
//! | [`validate`] | predicted against measured values for every shipped point |
//! | [`workload`] | architectures → operators of a pass on a card |
//! | [`rehearse`] | runs the plans of a session or a training step with the real executor on emulated cards with a clock |

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
