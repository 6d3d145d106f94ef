//! Errors of running plans.

use std::time::Instant;

use crate::base::Diagnostics;
use crate::device;
use crate::world::PeerFailure;

/// Failure of one rank.
#[derive(Debug, thiserror::Error)]
#[error("rank {rank} (card {card}){}: {source}", place.as_ref().map(|place| format!(", {place}")).unwrap_or_default())]
pub struct RankError {
    /// The rank that failed.
    pub rank: usize,
    /// Device of the rank.
    pub card: usize,
    /// Op and layer, if known.
    pub place: Option<String>,
    /// The original error of the rank.
    pub source: Box<dyn std::error::Error + Send + Sync>,
    pub(super) at: Instant,
}

impl RankError {
    pub(super) fn is_consequence(&self) -> bool {
        self.source.is::<PeerFailed>()
            || self
                .source
                .downcast_ref::<device::Error>()
                .is_some_and(|error| error.kind() == device::ErrorKind::PeerLost)
    }
}

impl RankError {
    fn as_consequence(&self) -> String {
        let place = self.place.as_ref().map(|place| format!(", {place}")).unwrap_or_default();
        format!("\nwaited for by rank {} (card {}){place}: {}", self.rank, self.card, self.source)
    }
}

#[doc(hidden)]
impl Error {
    /// Wraps an error of loading weights.
    pub fn fill(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Fill(source.into())
    }
}

impl From<PeerFailure> for Error {
    fn from(failure: PeerFailure) -> Self {
        Self::Peer { failure, here: Vec::new() }
    }
}

/// Another rank could not start.
#[derive(Debug, thiserror::Error)]
#[error("another rank could not start")]
pub(super) struct PeerFailed;

/// An error of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A device error outside any rank.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// Failed ranks, first cause first.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Ranks(Vec<RankError>),
    /// Another process failed, so the local ranks ended.
    #[error("{failure}{}", here.iter().map(RankError::as_consequence).collect::<String>())]
    Peer {
        /// The process, and its message or end.
        failure: PeerFailure,
        /// Positions of the local ranks.
        here: Vec<RankError>,
    },
    /// Weights could not be loaded.
    #[error("loading weights: {0}")]
    Fill(Box<dyn std::error::Error + Send + Sync>),
    /// The caller requested a stop.
    #[error("interrupted")]
    Interrupted,
    /// An earlier failure stopped the engine.
    #[error("the engine stopped because a rank failed; start a new engine")]
    Stopped,
}

impl Error {
    /// Sorts by time. Drops failures caused by other ranks, unless no other cause is known.
    pub(super) fn of_ranks(mut failed: Vec<RankError>) -> Self {
        failed.sort_by_key(|error| error.at);
        if failed.iter().any(|error| !error.is_consequence()) {
            failed.retain(|error| !error.is_consequence());
        }
        Self::Ranks(failed)
    }
}
