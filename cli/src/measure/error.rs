//! What can go wrong while measuring.

use ascend_tp::base::Diagnostics;
use ascend_tp::world::PeerFailure;
use ascend_tp::{device, exec, generate, train};

/// The failure of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A card refused.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A rank failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// A session failed.
    #[error(transparent)]
    Generate(#[from] generate::Error),
    /// A run of training failed.
    #[error(transparent)]
    Train(#[from] train::Error),
    /// Another process failed.
    #[error(transparent)]
    Peer(#[from] PeerFailure),
    /// A machine could not be built.
    #[error(transparent)]
    Machine(#[from] ascend_tp::emulator::EmulatorError),
    /// A file could not be written or read.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// What was to be timed gives wrong results.
    #[error("{what}: rank {rank} has {found} where {expected} is right, at element {at}")]
    Wrong {
        /// What was run.
        what: String,
        rank: usize,
        /// First wrong element.
        at: usize,
        /// What should be there.
        expected: f64,
        /// What is there.
        found: f64,
    },
}

impl Error {
    /// Whether another rank's failure is the cause, which is told by that rank or by whoever lost
    /// it.
    #[must_use]
    pub(crate) fn is_consequence(&self) -> bool {
        match self {
            Self::Device(error) => error.kind() == device::ErrorKind::PeerLost,
            Self::Peer(_)
            | Self::Run(exec::Error::Peer { .. })
            | Self::Generate(generate::Error::Run(exec::Error::Peer { .. })) => true,
            _ => false,
        }
    }
}
