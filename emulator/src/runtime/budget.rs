//! Limits of a card, and the streams that communicators and graphs use.
//!
//! Invariant: the limits are the constants of this file, each with its source.

use std::collections::BTreeSet;

use crate::base::collective_engine::CollectiveEngine;
use crate::base::failure::{Failure, code};
use crate::runtime::graph::CapturedGraph;
use crate::state::MachineState;

/// Limits of a device (CANN guide, Atlas A2).
pub(crate) const MAX_STREAMS: usize = 1984;
pub(crate) const MAX_EVENTS: usize = 65_536;
pub(crate) const MAX_NOTIFIES: usize = 8192;

impl CollectiveEngine {
    /// Returns the streams that a program should leave free for each communicator. No document
    /// gives a number. vLLM on Ascend chooses its graphs by these numbers, measured on cards
    /// (`update_aclgraph_sizes` in `vllm_ascend/utils.py`).
    const fn streams_of_a_communicator(self) -> usize {
        match self {
            Self::Streams => 40,
            Self::VectorCores => 0,
        }
    }

    /// Returns the streams that a graph holds for each of its communicators (same source).
    const fn streams_of_a_communicator_in_a_graph(self) -> usize {
        match self {
            Self::Streams => 2,
            Self::VectorCores => 1,
        }
    }
}

/// Number of streams that every graph holds (same source).
const STREAMS_OF_A_GRAPH: usize = 1;

impl CapturedGraph {
    /// Returns the streams that the graph holds in addition to its own lanes.
    pub(crate) fn kept_streams(&self, engine: CollectiveEngine) -> usize {
        let communicators: BTreeSet<u64> = self.communicators().collect();
        STREAMS_OF_A_GRAPH + engine.streams_of_a_communicator_in_a_graph() * communicators.len()
    }
}

impl MachineState {
    pub(crate) fn require_streams(&self, card: u32, wanted: usize, whose: &str) -> Result<(), Failure> {
        let (own, engine) = (self.runtime.cards[card as usize].streams, self.hccl.engine);
        let communicators = self.hccl.communicators.members_on(card);
        let for_communicators = communicators * engine.streams_of_a_communicator();
        let graphs = || self.runtime.graphs.ready_on(card);
        let for_graphs: usize = graphs().map(|graph| graph.kept_streams(engine)).sum();
        if wanted == 0 || own + for_communicators + for_graphs + wanted <= MAX_STREAMS {
            return Ok(());
        }
        let what = format!(
            "card {card} has all its {MAX_STREAMS} streams in use, or too few left for {whose}, which takes {wanted}: \
             {own} are created, {for_communicators} belong to {communicators} communicators, {for_graphs} to {} \
             graphs; destroy some, or capture fewer sizes",
            graphs().count()
        );
        Err(Failure::new(code::NO_STREAM, what))
    }

    pub(crate) fn require_streams_of_communicator(&self, card: u32) -> Result<(), Failure> {
        let wanted = self.hccl.engine.streams_of_a_communicator();
        // HCCL reports a refusal of the runtime with its own code.
        let refused = |failure| Failure { code: code::HCCL_RUNTIME, ..failure };
        self.require_streams(card, wanted, "a communicator").map_err(refused)
    }
}
