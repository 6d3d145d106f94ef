//! Errors that end a training run. Errors of data and checkpoints are defined elsewhere.

use std::fmt;

use crate::base::Diagnostics;
use crate::exec;

/// Gradient with NaN or infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFiniteGradient {
    /// Name of the first affected weight, in program order.
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
    /// Invalid configuration or input.
    #[error("{0}")]
    Refused(#[from] Diagnostics),
    /// A run of a program failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// A weight or an optimizer state is NaN or infinite and cannot be saved.
    #[error(
        "step {step}: `{tensor}` on rank {rank}: cannot be saved: expected finite values, found NaN or infinity; \
         continue from an earlier checkpoint with a lower rate"
    )]
    SpoiledState {
        /// Number of the next step.
        step: usize,
        /// Name of the weight or the optimizer state.
        tensor: String,
        /// First rank of this process with such a value.
        rank: usize,
    },
    /// The loss or the gradient norm is NaN or infinite.
    #[error(
        "step {step}: the {what} is {value}; {}a lower rate, a longer warm-up or a smaller clip_norm may help",
        .spoiled.as_ref().map_or_else(String::new, |first| format!("the first gradient that is not finite is of {first}; "))
    )]
    NotFinite {
        /// Number of the step, from 0.
        step: usize,
        /// Name of the value: `loss` or `norm of the gradients`.
        what: &'static str,
        /// NaN or an infinity.
        value: f64,
        /// First gradient that is not finite, if a rank of this process has it.
        spoiled: Option<NonFiniteGradient>,
    },
}
