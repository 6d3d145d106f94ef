//! Errors of a rehearsal.

use ascend_tp::emulator::EmulatorError;

use ascend_tp::base::Diagnostics;
use ascend_tp::{device, exec, generate};

/// Error of a rehearsal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The setting was refused before it ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// The plans could not be compiled.
    #[error(transparent)]
    Compile(#[from] generate::Error),
    /// The emulated machine could not be created.
    #[error(transparent)]
    Machine(#[from] EmulatorError),
    /// A call outside any rank failed.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A rank failed during the run.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// The recorded kernels do not match the plan.
    #[error(
        "{phase}, rank {rank}: the clock recorded {found} kernels on a stream, but the plan has {expected}"
    )]
    Account {
        /// Name of the failed phase.
        phase: String,
        /// Rank with the mismatch.
        rank: usize,
        /// Number of kernels of the plan on the stream.
        expected: usize,
        /// Number of recorded kernels on the stream.
        found: usize,
    },
}
