//! Why a run of training ends.
//!
//! Input → output: what was refused, failed or became NaN → a sentence with the step, the tensor
//! and the rank. Not here: errors of data and of checkpoints.

use std::fmt;

use crate::base::Diagnostics;
use crate::exec;

/// A gradient that is not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFiniteGradient {
    /// Its weight: the first in the order of the program.
    pub weight: String,
    /// A rank that has such a part of it.
    pub rank: usize,
}

impl fmt::Display for NonFiniteGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on rank {}", self.weight, self.rank)
    }
}

/// Why training does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be; nothing was run.
    #[error("{0}")]
    Refused(#[from] Diagnostics),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// A weight or an optimizer state is NaN or infinite. It never becomes a checkpoint.
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
    /// A loss or a norm is NaN or infinite.
    #[error(
        "step {step}: the {what} is {value}; {}a lower rate, a longer warm-up or a smaller clip_norm may help",
        .spoiled.as_ref().map_or_else(String::new, |first| format!("the first gradient that is not finite is that of {first}; "))
    )]
    NotFinite {
        /// Which step it is, from 0.
        step: usize,
        /// `loss` or `norm of the gradients`.
        what: &'static str,
        /// NaN or an infinity.
        value: f64,
        /// The first gradient that is not finite, if a rank of this process has it.
        spoiled: Option<NonFiniteGradient>,
    },
}
