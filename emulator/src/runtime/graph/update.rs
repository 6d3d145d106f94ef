//! Task groups: recorded operators that a program replaces between replays.
//!
//! Invariants: the number and kind of operators stay the same. The exchange takes effect when the
//! updating stream reaches it.

use std::sync::{Arc, Mutex, PoisonError};

use super::{CapturedGraph, GraphStep, captured};
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::runtime::graph::GraphUpdate;
use crate::runtime::graph::GroupSlot;
use crate::runtime::graph::Replacement;
use crate::runtime::graph::TaskGroup;
use crate::runtime::stream::{Queued, StreamEntry};
use crate::scheduler::pool::{StreamTask, Workers};
use crate::state::MachineState;

pub(crate) const OPERATOR: &str = "aclnn";

impl CapturedGraph {
    /// Adds a step to the open task group of its lane, if there is one.
    pub(super) fn grouped(&mut self, lane: usize, step: GraphStep) -> Result<GraphStep, Failure> {
        let node = self.nodes.len();
        let open = self.lanes.iter().position(|lane| lane.group.is_some());
        let Some(slots) = &mut self.lanes[lane].group else {
            return match open {
                None => Ok(step),
                Some(other) => {
                    let what = format!(
                        "stream {} enqueues while stream {} of the same capture records a task group",
                        self.lanes[lane].stream, self.lanes[other].stream
                    );
                    Err(Failure::new(code::STREAM_TASK_GROUP_INTR, what))
                }
            };
        };
        match step {
            GraphStep::Work(StreamEntry::Task { name, task, load, is_brief })
                if name.starts_with(OPERATOR) =>
            {
                let slot = GroupSlot { name, node, current: task.map(|task| Arc::new(Mutex::new(task))) };
                let task = slot.task();
                slots.push(slot);
                Ok(GraphStep::Work(StreamEntry::Task { name, task, load, is_brief }))
            }
            other => Err(no_operator(&format!("{other:?}"))),
        }
    }

    pub(super) fn check_groups(&self) -> Result<(), Failure> {
        match self.lanes.iter().find(|lane| lane.group.is_some()) {
            None => Ok(()),
            Some(lane) => {
                let what = format!(
                    "the task group of stream {} is open; call aclmdlRICaptureTaskGrpEnd first",
                    lane.stream
                );
                Err(Failure::new(code::STREAM_TASK_GROUP_STATUS, what))
            }
        }
    }
}

impl MachineState {
    /// Operators that the capturing stream enqueues from now on can be replaced later.
    pub(crate) fn begin_group(&mut self, stream: u64) -> Result<(), Failure> {
        let (graph, lane) = self.valid_capture(stream)?;
        let lane = &mut self.runtime.graphs.graph_mut(graph)?.lanes[lane];
        if lane.group.is_some() {
            let what =
                format!("stream {stream} records a task group already; call aclmdlRICaptureTaskGrpEnd first");
            return Err(Failure::new(code::STREAM_TASK_GROUP_STATUS, what));
        }
        lane.group = Some(Vec::new());
        Ok(())
    }

    pub(crate) fn end_group(&mut self, stream: u64) -> Result<u64, Failure> {
        let (graph, lane) = self.valid_capture(stream)?;
        let Some(slots) = self.runtime.graphs.graph_mut(graph)?.lanes[lane].group.take() else {
            let what =
                format!("stream {stream} records no task group; call aclmdlRICaptureTaskGrpBegin first");
            return Err(Failure::new(code::STREAM_TASK_GROUP_STATUS, what));
        };
        let id = self.fresh_number();
        self.runtime.graphs.groups.insert(id, TaskGroup { graph, slots });
        Ok(id)
    }

    /// Operators that the stream enqueues from now on replace those of the group.
    pub(crate) fn begin_update(&mut self, stream: u64, group: u64) -> Result<(), Failure> {
        if self.runtime.graphs.is_capturing(stream) {
            return Err(captured(stream, "aclmdlRICaptureTaskUpdateBegin"));
        }
        let graph =
            self.runtime.graphs.groups.get(&group).ok_or_else(|| HandleKind::TaskGroup.gone(group))?.graph;
        let of = self.runtime.graphs.graph(graph)?;
        if of.capturing().is_some() {
            let what = format!("task group {group} belongs to graph {graph}, and its capture has not ended");
            return Err(Failure::new(code::MODEL_CAPTURED, what));
        }
        if of.card != self.runtime.streams[&stream].card {
            let what = format!(
                "stream {stream} of card {} cannot update task group {group} of card {}",
                self.runtime.streams[&stream].card, of.card
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        if let Some((other, _)) = self
            .runtime
            .graphs
            .updates
            .iter()
            .find(|(other, update)| **other == stream || update.group == group)
        {
            let what =
                format!("stream {other} is in an update; call aclmdlRICaptureTaskUpdateEnd on it first");
            return Err(Failure::new(code::STREAM_TASK_GROUP_STATUS, what));
        }
        self.runtime.graphs.updates.insert(stream, GraphUpdate { group, given: Vec::new() });
        Ok(())
    }

    /// The entry replaces the group's next operator.
    pub(crate) fn take_replacement(&mut self, stream: u64, queued: Queued) -> Result<(), Failure> {
        let Some(update) = self.runtime.graphs.updates.get_mut(&stream) else {
            return Err(Failure::new(code::INTERNAL, format!("stream {stream} is in no update")));
        };
        let group = self
            .runtime
            .graphs
            .groups
            .get(&update.group)
            .ok_or_else(|| HandleKind::TaskGroup.gone(update.group))?;
        let at = update.given.len();
        let (name, task, load) = match queued.entry {
            StreamEntry::Task { name, task, load, .. } if name.starts_with(OPERATOR) => (name, task, load),
            other => return Err(no_operator(&format!("{other:?}"))),
        };
        let expected = group.slots.get(at).map(|slot| slot.name);
        if expected != Some(name) {
            let expected = expected.unwrap_or("no further one");
            let what = format!(
                "operator {at} of the update of task group {}: expected {expected}, as recorded, found {name}",
                update.group
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        update.given.push(Replacement { task, load, accesses: queued.accesses });
        Ok(())
    }

    /// Returns the task that exchanges the operators, if there are any. Later replays use the
    /// memory accesses and costs of the new operators.
    pub(crate) fn end_update(&mut self, stream: u64) -> Result<Option<StreamTask>, Failure> {
        let Some(update) = self.runtime.graphs.updates.remove(&stream) else {
            let what = format!("stream {stream} is in no update; call aclmdlRICaptureTaskUpdateBegin first");
            return Err(Failure::new(code::STREAM_TASK_GROUP_STATUS, what));
        };
        let group = self
            .runtime
            .graphs
            .groups
            .get(&update.group)
            .ok_or_else(|| HandleKind::TaskGroup.gone(update.group))?;
        if update.given.len() != group.slots.len() {
            let what = format!(
                "the update of task group {} gives {} operators, but {} were recorded; nothing is updated",
                update.group,
                update.given.len(),
                group.slots.len()
            );
            return Err(Failure::new(code::STREAM_TASK_GROUP_STATUS, what));
        }
        let slots = group.slots.clone();
        let graph = self.runtime.graphs.graph_mut(group.graph)?;
        let mut exchanges = Vec::with_capacity(slots.len());
        for (slot, replacement) in slots.into_iter().zip(update.given) {
            let node = &mut graph.nodes[slot.node];
            node.accesses = replacement.accesses;
            if let GraphStep::Work(StreamEntry::Task { load, .. }) = &mut node.step {
                *load = replacement.load;
            }
            exchanges.extend(slot.current.zip(replacement.task));
        }
        if exchanges.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(move |_: &Workers| {
            for (current, task) in &exchanges {
                *current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(task);
            }
            Ok(())
        })))
    }
}

pub(crate) fn no_operator(found: &str) -> Failure {
    let what = format!("a task group holds single operators only, found {found}");
    Failure::new(code::TASK_TYPE_NOT_SUPPORT, what)
}

impl TaskGroup {
    pub(super) fn is_of(&self, graph: u64) -> bool {
        self.graph == graph
    }
}
