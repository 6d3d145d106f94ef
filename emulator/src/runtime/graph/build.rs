//! Explicit graph construction: a program binds persistent streams to a graph and enqueues work,
//! without a capture.
//!
//! Invariants: every bound stream runs from the start of a replay, and the replay ends when all
//! have ended. A stream stays bound until it is unbound.

use std::sync::Arc;

use super::{CapturedGraph, CapturedNode, Capturing, GraphLane, GraphPhase, GraphStep};
use crate::base::failure::{Failure, code};
use crate::runtime::thread::CaptureMode;
use crate::state::MachineState;

/// `ACL_STREAM_PERSISTENT`: the stream can be bound to a graph.
const PERSISTENT: u32 = 4;

impl MachineState {
    pub(crate) fn begin_build(&mut self, context: u64, card: u32, thread_name: Arc<str>) -> u64 {
        let thread = std::thread::current().id();
        let capturing = Capturing { mode: CaptureMode::Relaxed, thread, thread_name, invalid: None };
        let graph = CapturedGraph {
            context,
            card,
            phase: GraphPhase::Capturing(capturing),
            lanes: Vec::new(),
            nodes: Vec::new(),
            records: Vec::new(),
            events: Default::default(),
            last_end: None,
            is_built: true,
            ended_on: None,
        };
        let id = self.fresh_number();
        self.runtime.graphs.all.insert(id, graph);
        id
    }

    /// Entries enqueued from now on are recorded.
    pub(crate) fn bind_stream(&mut self, id: u64, stream: u64) -> Result<(), Failure> {
        let on = &self.runtime.streams[&stream];
        let (context, flags) = (on.context, on.flags);
        if let Some((other, _)) = self.runtime.graphs.of_stream(stream) {
            let what = format!(
                "stream {stream} already records into graph {other}; a stream is bound to one at a time"
            );
            return Err(Failure::new(code::STREAM_MODEL, what));
        }
        let graph = self.runtime.graphs.building(id)?;
        if flags & PERSISTENT == 0 {
            let what = format!(
                "stream {stream} has flags {flags:#x}: create it by aclrtCreateStreamWithConfig with \
                 ACL_STREAM_PERSISTENT {PERSISTENT:#x} to bind it"
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        if context != graph.context {
            let what =
                format!("stream {stream} is of context {context}, graph {id} of context {}", graph.context);
            return Err(Failure::new(code::MODEL_CONTEXT, what));
        }
        graph.lanes.push(GraphLane { stream, plays_on: None, group: None });
        let lane = graph.lanes.len() - 1;
        self.runtime.graphs.capturing.insert(stream, (id, lane));
        Ok(())
    }

    pub(crate) fn end_tasks(&mut self, id: u64, stream: u64) -> Result<(), Failure> {
        self.bound_to(id, stream)?;
        let graph = self.runtime.graphs.building(id)?;
        if let Some(before) = graph.ended_on {
            let what = format!("graph {id} has its end on stream {before} already");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        graph.ended_on = Some(stream);
        Ok(())
    }

    pub(crate) fn end_build(&mut self, id: u64) -> Result<(), Failure> {
        let graph = self.runtime.graphs.building(id)?;
        if graph.ended_on.is_none() {
            let what = format!("graph {id} has no end; call aclmdlRIEndTask on a stream of the graph first");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        if let Some(why) = graph.capturing().and_then(|capturing| capturing.invalid.clone()) {
            let what = format!("graph {id} is invalid since: {why}");
            return Err(Failure::new(code::STREAM_CAPTURE_INVALIDATED, what));
        }
        let own = self.streams_of_lanes(id)?;
        let graph = self.runtime.graphs.graph_mut(id)?;
        // The first lane replays on the launching stream, so it must end last.
        for lane in 1..graph.lanes.len() {
            let number = graph.records.len();
            graph.records.push(id);
            graph.nodes.push(unmarked(lane, GraphStep::Record(number)));
            graph.nodes.push(unmarked(0, GraphStep::Wait(number)));
        }
        let events: Vec<u64> = graph.events.keys().copied().collect();
        for event in events {
            if let Some(event) = self.runtime.events.get_mut(&event) {
                event.latest = None;
            }
        }
        let graph = self.runtime.graphs.graph_mut(id)?;
        for (lane, plays_on) in graph.lanes.iter_mut().zip(own) {
            lane.plays_on = plays_on;
        }
        graph.phase = GraphPhase::Ready;
        Ok(())
    }

    /// Fails if the streams exceed the card's limit. The first lane needs none.
    pub(super) fn streams_of_lanes(&mut self, id: u64) -> Result<Vec<Option<u64>>, Failure> {
        let graph = self.runtime.graphs.graph(id)?;
        let (context, card, further) = (graph.context, graph.card, graph.lanes.len() - 1);
        self.require_streams(card, graph.kept_streams(self.hccl.engine) + further, "a graph")?;
        let own = (0..further).map(|_| self.create_stream(context, card, 0, 0, false).map(Some));
        std::iter::once(Ok(None)).chain(own).collect()
    }

    pub(crate) fn unbind_stream(&mut self, id: u64, stream: u64) -> Result<(), Failure> {
        self.bound_to(id, stream)?;
        if self.runtime.graphs.graph(id)?.capturing().is_some() {
            let what =
                format!("graph {id} is being built; call aclmdlRIBuildEnd before its streams are unbound");
            return Err(Failure::new(code::MODEL_CAPTURED, what));
        }
        self.runtime.graphs.capturing.remove(&stream);
        Ok(())
    }

    fn bound_to(&self, id: u64, stream: u64) -> Result<(), Failure> {
        self.runtime.graphs.graph(id)?;
        if self.runtime.graphs.of_stream(stream).is_some_and(|(graph, _)| graph == id) {
            return Ok(());
        }
        Err(Failure::new(code::STREAM_MODEL, format!("stream {stream} is not bound to graph {id}")))
    }
}

fn unmarked(lane: usize, step: GraphStep) -> CapturedNode {
    CapturedNode { lane, step, site: None, accesses: Vec::new(), tag: None }
}
