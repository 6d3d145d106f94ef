//! Replay of a graph.
//!
//! Invariants: the first lane runs on the given stream. The other lanes start when that stream
//! reaches the replay, and end before the replay ends. Replays of one graph run one after another,
//! and a failure of any lane is a failure of the given stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CapturedGraph, GraphStep, Outside};
use crate::base::failure::{Failure, code};
use crate::hccl::matching::RankPlace;
use crate::runtime::event::EventRecord;
use crate::runtime::stream::{Queued, StreamEntry};
use crate::runtime::thread;
use crate::state::MachineState;

/// Entries with their streams; last records of external events.
type Replayed = (Vec<(u64, Queued)>, BTreeMap<u64, Arc<EventRecord>>);

impl MachineState {
    /// `own` creates the entries that order the replay.
    pub(crate) fn replay(
        &mut self,
        id: u64,
        stream: u64,
        own: impl Fn(&Self, u64, StreamEntry) -> Queued,
    ) -> Result<(), Failure> {
        self.check_replay(id, stream)?;
        let rank_places = self.join_collectives(id)?;
        let graph = self.runtime.graphs.graph(id)?;
        // In strict mode, the order of replays must not depend on timing.
        let previous = graph.last_end.clone().filter(|end| self.is_strict() || end.at().is_none());
        let streams: Vec<u64> = graph.lanes.iter().map(|lane| lane.plays_on.unwrap_or(stream)).collect();
        let (entries, recorded_outside) = self.replayed(graph, stream, &streams, rank_places)?;
        for (event, record) in recorded_outside {
            if let Some(event) = self.runtime.events.get_mut(&event) {
                event.latest = Some(record);
            }
        }
        if let Some(previous) = previous {
            let wait = own(self, stream, StreamEntry::Wait(previous));
            self.enqueue(stream, wait)?;
        }
        if streams.len() > 1 {
            let begin = Arc::new(EventRecord::new(id, stream, None));
            let record = own(self, stream, StreamEntry::Record(Arc::clone(&begin)));
            self.enqueue(stream, record)?;
            for lane in &streams[1..] {
                let wait = own(self, *lane, StreamEntry::Wait(Arc::clone(&begin)));
                self.enqueue(*lane, wait)?;
            }
        }
        for (on, queued) in entries {
            self.enqueue(on, queued)?;
        }
        let end = Arc::new(EventRecord::new(id, stream, None));
        let record = own(self, stream, StreamEntry::Record(Arc::clone(&end)));
        self.enqueue(stream, record)?;
        self.runtime.graphs.graph_mut(id)?.last_end = Some(end);
        Ok(())
    }

    fn replayed(
        &self,
        graph: &CapturedGraph,
        stream: u64,
        streams: &[u64],
        rank_places: Vec<Vec<RankPlace>>,
    ) -> Result<Replayed, Failure> {
        let mut records: Vec<Option<Arc<EventRecord>>> = vec![None; graph.records.len()];
        for node in &graph.nodes {
            if let GraphStep::Record(number) = node.step {
                let record = EventRecord::new(graph.records[number], streams[node.lane], node.site.clone());
                records[number] = Some(Arc::new(record));
            }
        }
        let record = |number: usize| {
            let missing = || {
                Failure::new(
                    code::INTERNAL,
                    format!("record {number} of a graph, which waits for it, is missing"),
                )
            };
            records[number].clone().ok_or_else(missing)
        };
        let (thread, issued_ns) = (crate::scheduler::thread::system_number(), thread::clock(self.key));
        let mut rank_places = rank_places.into_iter();
        let mut recorded_outside = BTreeMap::new();
        let mut entries = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let entry = match &node.step {
                GraphStep::Work(entry) => entry.clone(),
                GraphStep::Record(number) => StreamEntry::Record(record(*number)?),
                GraphStep::Wait(number) => StreamEntry::Wait(record(*number)?),
                GraphStep::Outside { event, act: Outside::Record } => {
                    let record = Arc::new(EventRecord::new(*event, streams[node.lane], node.site.clone()));
                    recorded_outside.insert(*event, Arc::clone(&record));
                    StreamEntry::Record(record)
                }
                GraphStep::Outside { event, act: Outside::Wait } => {
                    match self.runtime.events.get(event).and_then(|event| event.latest.clone()) {
                        Some(latest) => StreamEntry::Wait(latest),
                        None => continue,
                    }
                }
                GraphStep::Collective { .. } => StreamEntry::Meet(rank_places.next().unwrap_or_default()),
            };
            let (site, accesses, tag) = (node.site.clone(), node.accesses.clone(), node.tag.clone());
            let queued = Queued { entry, site, accesses, tag, blame: Some(stream), thread, issued_ns };
            entries.push((streams[node.lane], queued));
        }
        Ok((entries, recorded_outside))
    }

    fn check_replay(&self, id: u64, stream: u64) -> Result<(), Failure> {
        let graph = self.runtime.graphs.graph(id)?;
        if graph.capturing().is_some() {
            let what = format!("graph {id} is being captured; call aclmdlRICaptureEnd before it is replayed");
            return Err(Failure::new(code::MODEL_CAPTURED, what));
        }
        if self.runtime.graphs.is_capturing(stream) {
            return Err(super::captured(stream, "aclmdlRIExecuteAsync"));
        }
        let on = &self.runtime.streams[&stream];
        if on.context != graph.context {
            let what = format!(
                "graph {id} belongs to context {} on card {}, stream {stream} to context {} on card {}",
                graph.context, graph.card, on.context, on.card
            );
            return Err(Failure::new(code::MODEL_CONTEXT, what));
        }
        on.refusal().cloned().map_or(Ok(()), Err)
    }

    fn join_collectives(&mut self, id: u64) -> Result<Vec<Vec<RankPlace>>, Failure> {
        let wanted: Vec<_> = self.runtime.graphs.graph(id)?.nodes.iter().filter_map(collective).collect();
        let mut joined: Vec<Vec<RankPlace>> = Vec::with_capacity(wanted.len());
        for (group, rank, calls) in wanted {
            let mut rank_places = Vec::with_capacity(calls.len());
            for call in calls {
                match self.join(group, rank, call) {
                    Ok(rank_place) => rank_places.push(rank_place),
                    Err(failure) => {
                        for rank_place in joined.into_iter().flatten().chain(rank_places) {
                            self.abandon_matching(rank_place.matching, &failure);
                        }
                        return Err(failure);
                    }
                }
            }
            joined.push(rank_places);
        }
        Ok(joined)
    }

    pub(crate) fn destroy_graph(&mut self, id: u64) -> Result<(), Failure> {
        let graph = self.runtime.graphs.graph(id)?;
        if graph.capturing().is_some() {
            let what =
                format!("graph {id} is being captured; call aclmdlRICaptureEnd before it is destroyed");
            return Err(Failure::new(code::MODEL_CAPTURED, what));
        }
        if graph.is_running() {
            let what = format!(
                "a replay of graph {id} has not ended; synchronize its stream before it is destroyed"
            );
            return Err(Failure::new(code::MODEL_RUNNING, what));
        }
        self.remove_graph(id, "was destroyed with its graph");
        Ok(())
    }

    fn remove_graph(&mut self, id: u64, why: &str) {
        let Some(graph) = self.runtime.graphs.all.remove(&id) else { return };
        self.runtime.graphs.capturing.retain(|_, (of, _)| *of != id);
        for own in graph.own_streams() {
            self.remove_stream(own, why);
        }
        self.runtime.graphs.groups.retain(|_, group| !group.is_of(id));
    }

    pub(crate) fn remove_graphs_of(&mut self, context: u64, why: &str) {
        let of_context: Vec<u64> = self
            .runtime
            .graphs
            .all
            .iter()
            .filter(|(_, graph)| graph.context == context)
            .map(|(id, _)| *id)
            .collect();
        for id in of_context {
            self.runtime.graphs.capturing.retain(|_, (graph, _)| *graph != id);
            self.remove_graph(id, why);
        }
    }
}

impl CapturedGraph {
    fn own_streams(&self) -> Vec<u64> {
        self.lanes.iter().filter_map(|lane| lane.plays_on).collect()
    }
}

fn collective(node: &super::CapturedNode) -> Option<(u64, u32, Vec<crate::hccl::CollectiveCall>)> {
    match &node.step {
        GraphStep::Collective { group, rank, calls } => Some((*group, *rank, calls.clone())),
        _ => None,
    }
}
