//! What can go wrong in a rehearsal.

use ascend_tp::emulator::EmulatorError;

use ascend_tp::base::Diagnostics;
use ascend_tp::{device, exec, generate};

/// The failure of a rehearsal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// The plans could not be made.
    #[error(transparent)]
    Compile(#[from] generate::Error),
    /// The machine could not be made.
    #[error(transparent)]
    Machine(#[from] EmulatorError),
    /// A call outside any rank failed.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A rank failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// The machine's account of a run is not that of its plan.
    #[error("{phase}, rank {rank}: the clock has {found} kernels on a stream where the plan has {expected}")]
    Account {
        /// The run that failed.
        phase: String,
        /// The rank that failed.
        rank: usize,
        /// Steps of the plan on that stream.
        expected: usize,
        /// Spans of the clock.
        found: usize,
    },
}
