//! Predicts memory, step time and duration of training a decoder, and finds the best split. Pure
//! functions.
//!
//! | module | purpose |
//! |---|---|
//! | [`forms`] | published closed forms |
//! | [`job`] | model, batch, cards and software |
//! | [`setting`] | one way to split a job |
//! | [`coefficients`] | fitted coefficients |
//! | [`memory`] | bytes of a card |
//! | [`layer`] | time of a layer |
//! | [`pipeline`] | simulated pipeline step |
//! | [`step`] | time of a step, by cause |
//! | [`layer_on`] | simulated layer |
//! | [`grid`] | one or two tensor axes |
//! | [`ring`] | gathered keys and values, or a ring |
//! | [`compress`] | compressed gradient sums |
//! | [`search`] | best settings, why others are slower |
//! | [`simulated`] | simulated steps of the programs of `train` |
//! | [`sample`] | steps from programs with few layers |

pub mod coefficients;
pub mod compress;
pub mod forms;
pub mod grid;
pub mod job;
pub mod layer;
pub mod layer_on;
pub mod memory;
pub mod pipeline;
pub mod ring;
pub mod sample;
pub mod search;
pub mod setting;
pub mod simulated;
pub mod step;
