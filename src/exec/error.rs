//! What can go wrong while plans run.

use std::time::Instant;

use crate::base::Diagnostics;
use crate::device;
use crate::world::PeerFailure;

/// The failure of one rank.
#[derive(Debug, thiserror::Error)]
#[error("rank {rank} (card {card}){}: {source}", place.as_ref().map(|place| format!(", {place}")).unwrap_or_default())]
pub struct RankError {
    /// The rank that failed.
    pub rank: usize,
    /// The card it runs on.
    pub card: usize,
    /// The op, with its layer, if the failure came with one.
    pub place: Option<String>,
    /// The failure that the rank met.
    pub source: Box<dyn std::error::Error + Send + Sync>,
    /// When the rank noticed.
    pub(super) at: Instant,
}

impl RankError {
    /// Whether the rank failed only because another one did.
    pub(super) fn is_consequence(&self) -> bool {
        self.source.is::<PeerFailed>()
            || self
                .source
                .downcast_ref::<device::Error>()
                .is_some_and(|error| error.kind() == device::ErrorKind::PeerLost)
    }
}

impl RankError {
    /// A line on where this rank was when another process failed.
    fn as_consequence(&self) -> String {
        let place = self.place.as_ref().map(|place| format!(", {place}")).unwrap_or_default();
        format!("\nwaited for by rank {} (card {}){place}: {}", self.rank, self.card, self.source)
    }
}

impl Error {
    /// Weights could not be had, because of this.
    pub fn fill(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Fill(source.into())
    }
}

impl From<PeerFailure> for Error {
    fn from(failure: PeerFailure) -> Self {
        Self::Peer { failure, here: Vec::new() }
    }
}

/// A rank did not start because another one could not.
#[derive(Debug, thiserror::Error)]
#[error("another rank could not start")]
pub(super) struct PeerFailed;

/// The failure of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A call outside any rank.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// At least one rank failed; the first cause comes first.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Ranks(Vec<RankError>),
    /// Another process failed, and the ranks here ended with it.
    #[error("{failure}{}", here.iter().map(RankError::as_consequence).collect::<String>())]
    Peer {
        /// Which process, and what it said or how it went.
        failure: PeerFailure,
        /// Where the ranks here were when they noticed.
        here: Vec<RankError>,
    },
    /// Weights could not be had.
    #[error("loading weights: {0}")]
    Fill(Box<dyn std::error::Error + Send + Sync>),
    /// The engine was told to stop.
    #[error("interrupted")]
    Interrupted,
    /// A run was asked for after one had failed.
    #[error("the engine stopped because a rank failed; start a new engine")]
    Stopped,
}

impl Error {
    /// The error of failed ranks: the first to fail first, and mere consequences only where no
    /// cause is known.
    pub(super) fn of_ranks(mut failed: Vec<RankError>) -> Self {
        failed.sort_by_key(|error| error.at);
        if failed.iter().any(|error| !error.is_consequence()) {
            failed.retain(|error| !error.is_consequence());
        }
        Self::Ranks(failed)
    }
}
