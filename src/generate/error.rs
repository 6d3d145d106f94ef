//! Errors between opening a checkpoint and its tokens.

use std::sync::Arc;

use crate::base::Diagnostics;
use crate::exec;
use crate::weights;

use super::sampling::SamplingError;

/// An error of a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A problem found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A card or a rank failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// A checkpoint or reference file could not be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// An error that ended several requests.
    #[error(transparent)]
    Shared(Arc<Self>),
    /// No token could be chosen from the logits.
    #[error(
        "request {request}, position {position}: {source}{}",
        place.as_ref().map(|place| format!("; the first value that is not finite: {place}")).unwrap_or_default()
    )]
    Sampling {
        /// Position of the request in the batch.
        request: usize,
        /// Position of the missing token in the sequence, counted from 0 with the prompt.
        position: usize,
        /// The reason why no token could be chosen.
        source: SamplingError,
        /// The first op with a non-finite value, with its layer and rank.
        place: Option<String>,
    },
}
