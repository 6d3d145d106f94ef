//! The share of this process in a collective that several processes execute together.

use crate::base::failure::Failure;
use crate::hccl::CollectiveCall;
use crate::hccl::transfer::local::{WorkShare, perform};
use crate::scheduler::pool::Workers;

#[derive(Debug)]
pub(crate) struct SharedWork {
    pub(in crate::hccl) matching: u64,
    pub(crate) name: &'static str,
    pub(in crate::hccl) calls: Vec<CollectiveCall>,
    pub(in crate::hccl) share: WorkShare,
}

impl SharedWork {
    /// Executes the share.
    ///
    /// # Errors
    /// The calls do not belong to one collective.
    pub(crate) fn perform(&self, workers: &Workers) -> Result<(), Failure> {
        perform(&self.calls.iter().collect::<Vec<_>>(), self.share, workers)
    }
}
