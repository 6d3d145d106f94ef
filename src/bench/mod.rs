//! How fast this project is on the machine at hand, each figure beside the limit that the machine sets it.
//!
//! Input → output: a [`Bench`] (cards, processes, limits, how much time to take) and what to measure → a [`Table`] whose rows
//! carry their ratio to the limit. [`figures`] holds those that are to be reached against it.
//!
//! | part | measures |
//! |---|---|
//! | [`Limits`] | what the machine can do: bandwidths over all cores, peak rates of its instruction set |
//! | [`collectives`] | exchanges between ranks, in one process or across processes |
//! | [`operators`] | each operator of a model's plans at its shapes, and matrix products |
//! | [`generation`] | prompts read and tokens made, of a model's shape with random weights |
//! | [`host`] | what the runtime costs by itself |
//! | [`load`] | a checkpoint's way from the page cache to the cards |
//! | [`compile`] | from a configuration to the plans of all ranks |
//! | [`scaling`] | how cost grows with cards, sizes and messages |
//! | [`train`] | steps of training, beside those of `PyTorch` |
//! | [`peers`] | others at the same tasks, beside ours |
//!
//! Invariants: results are checked before they are timed; a figure is the median of several samples, each long enough for the
//! clock, after a warm-up; limits are taken in the same run. It prints nothing and starts no processes.

pub mod collectives;
pub mod compile;
mod error;
pub mod figures;
pub mod generation;
pub mod host;
mod limits;
pub mod load;
pub mod operators;
mod pattern;
pub mod peers;
pub mod plot;
pub mod random;
pub mod report;
mod sample;
pub mod scaling;
pub mod train;

use std::sync::Arc;

pub use error::Error;
pub use limits::Limits;
pub use report::{Machine, Report, Table};
pub use sample::{Effort, Samples};

use crate::device::Cann;
use crate::world::ProcessGroup;

/// What is measured on, and how long.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The cards.
    pub cann: Arc<Cann>,
    /// The processes of the world; if there are several, each has the rank of its own number.
    pub group: Arc<ProcessGroup>,
    /// What the machine can do.
    pub limits: Limits,
    /// How much time to take.
    pub effort: Effort,
}
