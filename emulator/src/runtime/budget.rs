//! What a card has few of, and what communicators and graphs take of its streams.
//!
//! Input: the streams, graphs and communicators there are. Output: a refusal that says what has them all. Invariant: limits are the
//! constants of this file, each with its source. Does not: know what may be done with any of them.

use std::collections::BTreeSet;

use crate::base::collective_engine::CollectiveEngine;
use crate::base::failure::{Failure, code};
use crate::runtime::graph::Graph;
use crate::state::State;

/// Streams of one device (CANN guide, Atlas A2).
pub(crate) const MAX_STREAMS: usize = 1984;
/// Events of one device (CANN guide, Atlas A2).
pub(crate) const MAX_EVENTS: usize = 65_536;
/// Notifies of one device (CANN guide, Atlas A2).
pub(crate) const MAX_NOTIFIES: usize = 8192;

impl CollectiveEngine {
    /// What programs leave of a device's streams for each communicator. No document gives a number; these and the next are
    /// those by which vLLM on Ascend chooses its graphs (`update_aclgraph_sizes` in `vllm_ascend/utils.py`), found by trying on
    /// cards.
    const fn streams_of_a_communicator(self) -> usize {
        match self {
            Self::Streams => 40,
            Self::VectorCores => 0,
        }
    }

    /// Streams that a graph keeps for each communicator that it has collectives of (same source).
    const fn streams_of_a_communicator_in_a_graph(self) -> usize {
        match self {
            Self::Streams => 2,
            Self::VectorCores => 1,
        }
    }
}

/// Streams that a graph keeps (same source).
const STREAMS_OF_A_GRAPH: usize = 1;

impl Graph {
    /// Streams that the graph keeps besides those that it was given.
    pub(crate) fn kept_streams(&self, engine: CollectiveEngine) -> usize {
        let communicators: BTreeSet<u64> = self.groups().collect();
        STREAMS_OF_A_GRAPH + engine.streams_of_a_communicator_in_a_graph() * communicators.len()
    }
}

impl State {
    /// Refuses to give `wanted` further streams of a card that has no more.
    pub(crate) fn require_streams(&self, card: u32, wanted: usize, whose: &str) -> Result<(), Failure> {
        let (own, engine) = (self.runtime.cards[card as usize].streams, self.hccl.engine);
        let communicators = self.hccl.groups.members_on(card);
        let for_communicators = communicators * engine.streams_of_a_communicator();
        let graphs = || self.runtime.graphs.ready_on(card);
        let for_graphs: usize = graphs().map(|graph| graph.kept_streams(engine)).sum();
        if wanted == 0 || own + for_communicators + for_graphs + wanted <= MAX_STREAMS {
            return Ok(());
        }
        let what = format!(
            "card {card} has all its {MAX_STREAMS} streams in use, or too few left for {whose}, which takes {wanted}: {own} are \
             created, {for_communicators} are those of {communicators} communicators, {for_graphs} those of {} graphs; destroy \
             some, or capture fewer sizes",
            graphs().count()
        );
        Err(Failure::new(code::NO_STREAM, what))
    }

    /// Refuses a communicator for which a card has no streams.
    pub(crate) fn require_streams_of_communicator(&self, card: u32) -> Result<(), Failure> {
        let wanted = self.hccl.engine.streams_of_a_communicator();
        // HCCL tells its caller that the runtime refused it something.
        let refused = |failure| Failure { code: code::HCCL_RUNTIME, ..failure };
        self.require_streams(card, wanted, "a communicator").map_err(refused)
    }
}
