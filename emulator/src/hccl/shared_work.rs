//! This process's share of a collective that several processes move together.

use crate::base::failure::Failure;
use crate::hccl::CollectiveCall;
use crate::hccl::perform::{WorkShare, perform};
use crate::scheduler::pool::Workers;

/// A process's share of a collective that several move together.
#[derive(Debug)]
pub(crate) struct SharedWork {
    pub(super) meeting: u64,
    pub(crate) name: &'static str,
    pub(super) calls: Vec<CollectiveCall>,
    pub(super) share: WorkShare,
}

impl SharedWork {
    /// Moves it.
    ///
    /// # Errors
    /// The calls are not parts of one collective.
    pub(crate) fn perform(&self, workers: &Workers) -> Result<(), Failure> {
        perform(&self.calls.iter().collect::<Vec<_>>(), self.share, workers)
    }
}
