//! The share of this process in a collective.

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
    pub(crate) fn perform(&self, workers: &Workers) -> Result<(), Failure> {
        perform(&self.calls.iter().collect::<Vec<_>>(), self.share, workers)
    }
}
