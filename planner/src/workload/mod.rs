//! What one card is asked to do in a forward pass, as serving and training stacks for these cards do it: operators and
//! exchanges in order, with fused projections, fused norms and fused attention.
//!
//! Input → output: the sizes of an architecture, how it is split over cards, tokens and context → [`Section`]s of
//! [`WorkloadStep`]s. Invariants: pure arithmetic; sizes that do not divide give the largest part, which is the card that is
//! waited for. It knows no times (see `ascend_tp_machine`), and no programs: what this library itself runs is compiled by
//! [`ascend_tp::program`] and [`ascend_tp::schedule`]; these lists stand for programs of others, and for searches too wide to
//! compile every candidate.

mod dense;
mod experts;
mod hybrid;
mod latent;
mod launches;
mod published;
mod vision;

pub use experts::{Experts, Mixture};
pub(crate) use hybrid::{DELTA_CHUNKS, DELTA_TOKEN};
pub use hybrid::{FeedForwardBlock, Hybrid};
pub use latent::LatentDecoder;
pub use published::Published;
pub use vision::Vision;

use ascend_tp::placement::Residual;
use ascend_tp_machine::{Exchange, Launch};

/// Which cards take part in an exchange: those that differ only in their place on this axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParallelAxis {
    /// Those that share each weight.
    Tensor,
    /// Parts of the sequence (ring attention).
    Context,
    /// Experts of a mixture.
    Expert,
    /// Copies of the model.
    Data,
}

/// What a card does next.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadTask {
    /// One operator on this card.
    Launch(Launch),
    /// One exchange with the other cards of an axis; bytes as [`Exchange`] counts them.
    Exchange {
        /// What is exchanged.
        exchange: Exchange,
        /// Bytes, as `exchange` counts them.
        bytes: f64,
        /// The axis its cards differ on.
        axis: ParallelAxis,
    },
}

/// A task, some times in a row.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadStep {
    /// What is done.
    pub task: WorkloadTask,
    /// How often; at least 1.
    pub times: usize,
}

impl WorkloadStep {
    /// An operator, once.
    #[must_use]
    pub const fn launch(launch: Launch) -> Self {
        Self { task: WorkloadTask::Launch(launch), times: 1 }
    }

    /// An exchange, once.
    #[must_use]
    pub const fn exchange(exchange: Exchange, bytes: f64, axis: ParallelAxis) -> Self {
        Self { task: WorkloadTask::Exchange { exchange, bytes, axis }, times: 1 }
    }
}

/// Steps that repeat as a whole: all layers of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its name in tables.
    pub name: &'static str,
    /// How often they come in a row.
    pub repeats: usize,
    /// What one repetition does.
    pub steps: Vec<WorkloadStep>,
}

/// Tokens of one pass on the cards that share a copy of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tokens {
    /// Number of sequences.
    pub batch: usize,
    /// New tokens of each.
    pub query: usize,
    /// Tokens of each that the KV cache already holds.
    pub context: usize,
}

impl Tokens {
    /// New tokens of all sequences.
    #[must_use]
    pub const fn new_tokens(&self) -> usize {
        self.batch * self.query
    }

    /// Positions each sequence attends to.
    #[must_use]
    pub const fn positions(&self) -> usize {
        self.context + self.query
    }
}

/// How a model is split over cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParallelSplit {
    /// Cards that share each weight.
    pub tensor: usize,
    /// Cards that share each sequence.
    pub context: usize,
    /// Cards that share the experts.
    pub expert: usize,
    /// The residual stream.
    pub residual: Residual,
}

impl ParallelSplit {
    /// Tensor parallelism alone.
    #[must_use]
    pub const fn tensor(tensor: usize) -> Self {
        Self { tensor, context: 1, expert: 1, residual: Residual::Replicate }
    }
}

/// Element types of weights and of the activations they meet in products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProductPrecision {
    /// Both 16-bit floats.
    Bits16,
    /// Both 8-bit integers; activations quantised for each token before the product.
    W8A8,
    /// Experts' weights in 4-bit, the others in 8-bit integers; activations in 8-bit.
    W4A8,
}
