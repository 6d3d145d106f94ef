//! What can go wrong between a checkpoint and its tokens.

use crate::base::Diagnostics;
use crate::exec;
use crate::weights;

use super::sampling::SamplingError;

/// The failure of a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A card or a rank failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// A checkpoint or reference file could not be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The logits gave no token.
    #[error("sequence {sequence}: {source}")]
    Sampling {
        /// Position in the batch.
        sequence: usize,
        /// Why.
        source: SamplingError,
    },
}
