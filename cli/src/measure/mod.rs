//! Measurements of this project on this machine, each compared with a limit of the machine.
//!
//! - Input: a [`Bench`] (cards, processes, limits, effort) and a setting of one part.
//! - Output: a [`MeasuredTable`] with ratios to the limits. [`figures`] compares results with
//!   targets.
//! - Invariants: results are checked before timing. A figure is the median of several samples after
//!   a warm-up, each long enough for the clock. Limits come from the same run.
//! - Not here: printing, starting processes.
//!
//! | part | measures |
//! |---|---|
//! | [`Limits`] | memory bandwidth of all cores, peak rates of the instruction set |
//! | [`collectives`] | collectives, in one process or across processes |
//! | [`operators`] | each operator of a model's plans at its shapes, and matrix products |
//! | [`generation`] | prefill and decode of a model with random weights |
//! | [`host`] | overhead of the runtime |
//! | [`load`] | loading a checkpoint from the page cache to the cards |
//! | [`compile`] | compilation from a configuration to the plans of all ranks |
//! | [`scaling`] | cost by number of cards, model size and message size |
//! | [`parameter_server`] | training steps with a parameter server and with collectives |
//! | [`exact`] | training steps with and without a fixed order of sums |
//! | [`train`] | training steps, compared with `PyTorch` |
//! | [`peers`] | other programs at the same tasks |
//! | [`serve`] | many requests at once, compared with llama.cpp |
//! | [`http`] | many requests at once over HTTP, and the time that HTTP adds to the first token |

pub(crate) mod collectives;
pub(crate) mod compile;
mod error;
pub(crate) mod exact;
pub(crate) mod figures;
pub(crate) mod generation;
pub(crate) mod host;
pub(crate) mod http;
mod limits;
pub(crate) mod load;
pub(crate) mod operators;
pub(crate) mod parameter_server;
mod pattern;
pub(crate) mod peers;
pub(crate) mod plot;
pub(crate) mod random;
pub(crate) mod report;
mod sample;
pub(crate) mod scaling;
pub(crate) mod serve;
pub(crate) mod train;

use std::sync::Arc;

pub(crate) use error::Error;
pub(crate) use limits::Limits;
pub(crate) use report::{BenchReport, MeasuredTable, MeasuringMachine};
pub(crate) use sample::{Effort, Samples};

use ascend_tp::device::Cann;
use ascend_tp::world::ProcessGroup;

/// Resources and effort of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) cann: Arc<Cann>,
    /// Processes of the world. Process `i` of several has only rank `i`.
    pub(crate) group: Arc<ProcessGroup>,
    pub(crate) limits: Limits,
    pub(crate) effort: Effort,
}

impl Bench {
    /// Measures the limits of this host again. Chips have constant limits, and several processes
    /// would disturb each other.
    fn limits_now(&self) -> Limits {
        if self.group.size() > 1 || Limits::of_chip(&self.limits.of).is_some() {
            return self.limits.clone();
        }
        Limits::of_host(self.effort.budget() / 5)
    }
}
