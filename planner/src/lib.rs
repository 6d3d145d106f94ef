//! Predicts memory, time and the best split, before anything runs.
//!
//! - Input: a model, cards and a topology.
//! - Output: bytes and microseconds.
//! - Invariants: every time comes from [`ascend_tp_machine`], like the emulator's clock. All
//!   modules except [`rehearse`] and [`calibrate`] are pure.
//! - Not here: reading weights.
//!
//! | module | purpose |
//! |---|---|
//! | [`calibrate`] | measures the profile of a chip on its cards |
//! | [`decoder`] | parameters and operations of a dense decoder |
//! | [`fit_memory`] | bytes on each card by kind, equal to what the runtime allocates |
//! | [`serve`] | the best way to serve a model, and why |
//! | [`simulate`] | plans → when each step runs, and a breakdown of the time |
//! | [`train`] | memory, time and the best split of training |
//! | [`validate`] | predicted against measured values of every shipped point |
//! | [`workload`] | architectures → operators that a card runs in a pass |
//! | [`rehearse`] | the real executor on emulated cards with a clock |

pub mod calibrate;
pub mod decoder;
pub mod fit_memory;
mod points;
pub mod rehearse;
pub mod serve;
pub mod simulate;
pub mod train;
pub mod validate;
pub mod workload;
