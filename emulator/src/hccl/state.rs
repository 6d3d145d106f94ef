//! HCCL's part of the scheduling state.

use crate::base::collective_engine::CollectiveEngine;
use crate::base::failure::Failure;
use crate::hccl::communicator::Communicators;
use crate::hccl::matching::Matchings;
use crate::hccl::rules::deterministic_from;

#[derive(Debug)]
pub(crate) struct Hccl {
    pub(crate) communicators: Communicators,
    pub(crate) matchings: Matchings,
    /// The engine determines how many streams of a card the collectives use.
    pub(crate) engine: CollectiveEngine,
    /// `HcclSetConfig(HCCL_DETERMINISTIC)`, initially the environment variable. An error if the
    /// variable is invalid.
    pub(crate) deterministic: Result<i32, Failure>,
}

impl Default for Hccl {
    fn default() -> Self {
        Self {
            communicators: Communicators::default(),
            matchings: Matchings::default(),
            engine: CollectiveEngine::default(),
            deterministic: deterministic_from(std::env::var("HCCL_DETERMINISTIC").ok().as_deref()),
        }
    }
}
