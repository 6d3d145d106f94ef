//! HCCL's part of the scheduling state.

use crate::base::failure::Failure;
use crate::hccl::group::Groups;
use crate::hccl::meeting::Meetings;
use crate::hccl::rules::deterministic_from;

/// Communicators, and collectives that wait or move data.
#[derive(Debug)]
pub(crate) struct Hccl {
    pub(crate) groups: Groups,
    pub(crate) meetings: Meetings,
    /// `HcclSetConfig(HCCL_DETERMINISTIC)`, at first the environment variable's value, or why that is none.
    pub(crate) deterministic: Result<i32, Failure>,
}

impl Default for Hccl {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            meetings: Meetings::default(),
            deterministic: deterministic_from(std::env::var("HCCL_DETERMINISTIC").ok().as_deref()),
        }
    }
}
