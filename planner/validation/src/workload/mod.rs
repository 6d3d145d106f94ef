//! Operators and collectives of a forward pass on one card, as common serving and training stacks
//! run them.
//!
//! - Invariant: uneven sizes use the largest shard, which determines the time.
//! - Not here: times (see `ascend_tp_machine`) and this project's own programs
//!   ([`ascend_tp::program`], [`ascend_tp::schedule`]).

pub(crate) mod dense;
mod experts;
mod hybrid;
mod latent;
mod launches;
mod published;
mod vision;

pub use experts::{Experts, MixtureDecoder};
pub(crate) use hybrid::{DELTA_CHUNKS, DELTA_TOKEN};
pub use hybrid::{FeedForwardBlock, Hybrid};
pub use latent::LatentDecoder;
pub use published::Published;
pub use vision::Vision;

use ascend_tp::placement::Residual;
use ascend_tp_machine::{Exchange, Launch};

/// Axis of a collective. Its cards differ only on this axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParallelAxis {
    /// Cards that share each weight.
    Tensor,
    /// Shards of the sequence (ring attention).
    Context,
    /// Experts of a mixture.
    Expert,
    /// Copies of the model.
    Data,
}

/// One task of a card.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadTask {
    /// Operator on this card.
    Launch(Launch),
    /// Collective of an axis.
    Exchange {
        /// Kind of the collective.
        exchange: Exchange,
        /// Bytes as `exchange` counts.
        bytes: f64,
        /// Axis of the cards.
        axis: ParallelAxis,
    },
}

/// A task and its repetitions.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadStep {
    /// Task of the step.
    pub task: WorkloadTask,
    /// Number of repetitions, at least 1.
    pub times: usize,
}

impl WorkloadStep {
    /// Creates a single operator.
    #[must_use]
    pub const fn launch(launch: Launch) -> Self {
        Self { task: WorkloadTask::Launch(launch), times: 1 }
    }

    /// Creates a single collective.
    #[must_use]
    pub const fn exchange(exchange: Exchange, bytes: f64, axis: ParallelAxis) -> Self {
        Self { task: WorkloadTask::Exchange { exchange, bytes, axis }, times: 1 }
    }
}

/// Repeated steps, such as layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Name used in tables.
    pub name: &'static str,
    /// Number of consecutive repetitions.
    pub repeats: usize,
    /// Steps of one repetition.
    pub steps: Vec<WorkloadStep>,
}

/// One pass of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tokens {
    /// Sequences in the pass.
    pub batch: usize,
    /// New tokens per sequence.
    pub query: usize,
    /// Cached tokens per sequence.
    pub context: usize,
}

impl Tokens {
    /// Counts the new tokens of all sequences.
    #[must_use]
    pub const fn new_tokens(&self) -> usize {
        self.batch * self.query
    }

    /// Positions that each sequence attends to.
    #[must_use]
    pub const fn positions(&self) -> usize {
        self.context + self.query
    }
}

/// Split of a model over cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParallelSplit {
    /// Cards that share each weight.
    pub tensor: usize,
    /// Cards that share each sequence.
    pub context: usize,
    /// Cards that share the experts.
    pub expert: usize,
    /// Placement of the residual stream.
    pub residual: Residual,
}

impl ParallelSplit {
    /// Creates a tensor-parallel split.
    #[must_use]
    pub const fn tensor(tensor: usize) -> Self {
        Self { tensor, context: 1, expert: 1, residual: Residual::Replicate }
    }
}

/// Weights and activations in products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProductPrecision {
    /// 16-bit weights and activations.
    Bits16,
    /// 8-bit weights and activations, quantised per token.
    W8A8,
    /// 8-bit weights and activations, with fixed scales of the activations.
    W8A8Static,
    /// 4-bit expert weights, the rest 8-bit.
    W4A8,
}
