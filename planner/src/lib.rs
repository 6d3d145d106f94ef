//! Predicts memory, time and the best split of a model before it runs, and rehearses runs on
//! emulated cards.
//!
//! - Every time comes from the cost model [`ascend_tp_machine`], which the emulator's clock also
//!   uses.
//! - Invariant: all modules except [`rehearse`] (emulated cards) and [`calibrate`] (given cards)
//!   are pure.
//!
//! | module | purpose |
//! |---|---|
//! | [`calibrate`] | measured cards → chip profile |
//! | [`decoder`] | sizes of a dense decoder → parameters and operations |
//! | [`error_bar`] | typical errors of predicted times |
//! | [`fit_memory`] | plans → bytes on each card by kind |
//! | [`serve`] | best way to serve a model, and the reasons against other ways |
//! | [`simulate`] | plans → start and end of each step, time by cause |
//! | [`table`] | text in columns |
//! | [`train`] | memory, time and the best split of training |
//! | [`rehearse`] | runs plans with the real executor on emulated cards |

pub mod calibrate;
pub mod decoder;
pub mod error_bar;
pub mod fit_memory;
pub mod rehearse;
pub mod serve;
pub mod simulate;
pub mod table;
pub mod train;
