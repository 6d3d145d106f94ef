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
    #[error(
        "request {request}, position {position}: {source}{}",
        place.as_ref().map(|place| format!("; the first value that is not finite: {place}")).unwrap_or_default()
    )]
    Sampling {
        /// Position of the request in the batch.
        request: usize,
        /// Position of the token that was to be chosen, prompt included, from 0.
        position: usize,
        /// Why no token could be chosen.
        source: SamplingError,
        /// Where the numbers went wrong: the op, with its layer, and the rank.
        place: Option<String>,
    },
}
