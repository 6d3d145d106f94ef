//! What a card has few of, and what communicators and graphs take of its streams.
//!
//! Input: the streams, graphs and communicators there are. Output: a refusal that says what has them all. Invariant: limits are the
//! constants of this file, each with its source. Does not: know what may be done with any of them.

use std::collections::BTreeSet;

use crate::base::failure::{Failure, code};
use crate::runtime::graph::Graph;
use crate::state::State;

/// Streams of one device (CANN guide, Atlas A2).
pub(crate) const MAX_STREAMS: usize = 1984;
/// Events of one device (CANN guide, Atlas A2).
pub(crate) const MAX_EVENTS: usize = 65_536;
/// Notifies of one device (CANN guide, Atlas A2).
pub(crate) const MAX_NOTIFIES: usize = 8192;

/// What programs leave of a device's streams for each communicator on an Atlas A2, where HCCL works on streams of its own, as it does
/// unless `HCCL_OP_EXPANSION_MODE=AIV`. No document gives a number; this is the one by which vLLM on Ascend chooses its graphs
/// (`update_aclgraph_sizes` in `vllm_ascend/utils.py`), found by trying on cards.
pub(crate) const STREAMS_OF_A_COMMUNICATOR: usize = 40;
/// Streams that a graph keeps (same source).
pub(crate) const STREAMS_OF_A_GRAPH: usize = 1;
/// Streams that a graph keeps for each communicator that it has collectives of (same source).
pub(crate) const STREAMS_OF_A_COMMUNICATOR_IN_A_GRAPH: usize = 2;

impl Graph {
    /// Streams that the graph keeps besides those that it was given.
    fn kept_streams(&self) -> usize {
        let communicators: BTreeSet<u64> = self.groups().collect();
        STREAMS_OF_A_GRAPH + STREAMS_OF_A_COMMUNICATOR_IN_A_GRAPH * communicators.len()
    }
}

impl State {
    /// Refuses to give `wanted` further streams of a card that has no more.
    pub(crate) fn require_streams(&self, card: u32, wanted: usize, whose: &str) -> Result<(), Failure> {
        let own = self.runtime.cards[card as usize].streams;
        let communicators = self.hccl.groups.members_on(card);
        let for_communicators = communicators * STREAMS_OF_A_COMMUNICATOR;
        let graphs = || self.runtime.graphs.ready_on(card);
        let for_graphs: usize = graphs().map(Graph::kept_streams).sum();
        if own + for_communicators + for_graphs + wanted <= MAX_STREAMS {
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

    /// Refuses the graph of a capture for which its card has no streams.
    pub(crate) fn require_streams_of_graph(&self, card: u32, graph: &Graph) -> Result<(), Failure> {
        self.require_streams(card, graph.kept_streams(), "a graph")
    }
}
