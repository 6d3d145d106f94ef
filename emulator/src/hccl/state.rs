//! HCCL's part of the scheduling state.

use crate::base::collective_engine::CollectiveEngine;
use crate::base::failure::Failure;
use crate::hccl::group::Groups;
use crate::hccl::meeting::Meetings;
use crate::hccl::rules::deterministic_from;

#[derive(Debug)]
pub(crate) struct Hccl {
    pub(crate) groups: Groups,
    pub(crate) meetings: Meetings,
    /// Engine of the collectives. It determines how many streams of a card they use.
    pub(crate) engine: CollectiveEngine,
    /// Value of `HcclSetConfig(HCCL_DETERMINISTIC)`, initially from the environment variable. An
    /// error if that variable is invalid.
    pub(crate) deterministic: Result<i32, Failure>,
}

impl Default for Hccl {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            meetings: Meetings::default(),
            engine: CollectiveEngine::default(),
            deterministic: deterministic_from(std::env::var("HCCL_DETERMINISTIC").ok().as_deref()),
        }
    }
}
