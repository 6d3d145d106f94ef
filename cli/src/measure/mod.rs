//! How fast this project is on the machine at hand, each figure beside the limit that the machine
//! sets it.
//!
//! Input → output: a [`Bench`] (cards, processes, limits, how much time to take) and what to
//! measure → a [`Table`] whose rows carry their ratio to the limit. [`figures`] holds those that
//! are to be reached against it.
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
//! | [`served`] | steps of training whose gradients servers sum, beside collectives |
//! | [`exact`] | steps of training with every sum in one order, beside those without |
//! | [`train`] | steps of training, beside those of `PyTorch` |
//! | [`peers`] | others at the same tasks, beside ours |
//!
//! Invariants: results are checked before they are timed; a figure is the median of several
//! samples, each long enough for the clock, after a warm-up; limits are taken in the same run. It
//! prints nothing and starts no processes.

pub(crate) mod collectives;
pub(crate) mod compile;
mod error;
pub(crate) mod exact;
pub(crate) mod figures;
pub(crate) mod generation;
pub(crate) mod host;
mod limits;
pub(crate) mod load;
pub(crate) mod operators;
mod pattern;
pub(crate) mod peers;
pub(crate) mod plot;
pub(crate) mod random;
pub(crate) mod report;
mod sample;
pub(crate) mod scaling;
pub(crate) mod served;
pub(crate) mod train;

use std::sync::Arc;

pub(crate) use error::Error;
pub(crate) use limits::Limits;
pub(crate) use report::{BenchReport, MeasuringMachine, Table};
pub(crate) use sample::{Effort, Samples};

use ascend_tp::device::Cann;
use ascend_tp::world::ProcessGroup;

/// What is measured on, and how long.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) cann: Arc<Cann>,
    /// The processes of the world; if there are several, each has the rank of its own number.
    pub(crate) group: Arc<ProcessGroup>,
    /// What the machine can do.
    pub(crate) limits: Limits,
    /// How much time to take.
    pub(crate) effort: Effort,
}
