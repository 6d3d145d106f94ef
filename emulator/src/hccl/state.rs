//! HCCL's part of the scheduling state.

use crate::base::collective_engine::CollectiveEngine;
use crate::base::failure::Failure;
use crate::hccl::group::Groups;
use crate::hccl::meeting::Meetings;
use crate::hccl::rules::deterministic_from;

/// Communicators, and collectives that wait or move data.
#[derive(Debug)]
pub(crate) struct Hccl {
    pub(crate) groups: Groups,
    pub(crate) meetings: Meetings,
    /// What communicators and their collectives in graphs take of a card's streams.
    pub(crate) engine: CollectiveEngine,
    /// `HcclSetConfig(HCCL_DETERMINISTIC)`, at first the environment variable's value, or why that is none.
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
