//! Errors of measurements.

use ascend_tp::base::Diagnostics;
use ascend_tp::world::PeerFailure;
use ascend_tp::{device, exec, generate, train};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    #[error(transparent)]
    Device(#[from] device::Error),
    #[error(transparent)]
    Run(#[from] exec::Error),
    #[error(transparent)]
    Generate(#[from] generate::Error),
    #[error(transparent)]
    Train(#[from] train::Error),
    #[error(transparent)]
    Peer(#[from] PeerFailure),
    #[error(transparent)]
    Machine(#[from] ascend_tp::emulator::EmulatorError),
    #[error(transparent)]
    File(#[from] std::io::Error),
    #[error("{what}: wrong result on rank {rank} at element {at}: expected {expected}, found {found}")]
    Wrong { what: String, rank: usize, at: usize, expected: f64, found: f64 },
}

impl Error {
    /// Returns whether another rank's failure is the cause, which a different rank reports.
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
