//! Errors that end a training run.
//!
//! - Input: a refused configuration, a failed run, or a value that became NaN or infinite.
//! - Output: a message with the step, the tensor and the rank.
//! - Not here: errors of data and of checkpoints.

use std::fmt;

use crate::base::Diagnostics;
use crate::exec;

/// Gradient with NaN or infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFiniteGradient {
    /// Name of the weight. The first affected weight in program order.
    pub weight: String,
    /// Rank that holds a shard with such a value.
    pub rank: usize,
}

impl fmt::Display for NonFiniteGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on rank {}", self.weight, self.rank)
    }
}

/// Reasons why training cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration or an input is invalid.
    #[error("{0}")]
    Refused(#[from] Diagnostics),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// A weight or an optimizer state is NaN or infinite, and is not written to a checkpoint.
    #[error(
        "step {step}: `{tensor}` on rank {rank}: cannot be saved: expected finite values, found NaN or infinity; \
         continue from an earlier checkpoint with a lower rate"
    )]
    SpoiledState {
        /// Number of the next step.
        step: usize,
        /// Name of the weight or the optimizer state.
        tensor: String,
        /// The first rank of this process that holds such a value.
        rank: usize,
    },
    /// The loss or the gradient norm is NaN or infinite.
    #[error(
        "step {step}: the {what} is {value}; {}a lower rate, a longer warm-up or a smaller clip_norm may help",
        .spoiled.as_ref().map_or_else(String::new, |first| format!("the first gradient that is not finite is that of {first}; "))
    )]
    NotFinite {
        /// Number of the step, counted from 0.
        step: usize,
        /// `loss` or `norm of the gradients`.
        what: &'static str,
        /// NaN or an infinity.
        value: f64,
        /// The first gradient that is not finite, if a rank of this process has it.
        spoiled: Option<NonFiniteGradient>,
    },
}
