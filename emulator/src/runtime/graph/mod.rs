//! Graphs: work that streams record once and a program replays many times (`aclmdlRI…`).
//!
//! Invariants:
//! - A replay uses the addresses of the capture and matches its collectives again.
//! - Replays of one graph never overlap.
//! - A misuse that invalidates a capture is reported again when the capture ends.

mod build;
pub(crate) mod capture;
mod json;
mod replay;
pub(crate) mod update;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::base::site::CallSite;
use crate::hccl::CollectiveCall;
use crate::memory::access::MemoryAccess;
use crate::runtime::event::EventRecord;
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread::CaptureMode;
use crate::scheduler::pool::{StreamTask, Workers};
use crate::timed::load::LoadId;

#[derive(Debug, Default)]
pub(crate) struct Graphs {
    all: BTreeMap<u64, CapturedGraph>,
    /// Recording streams, with their graph and lane.
    capturing: BTreeMap<u64, (u64, usize)>,
    groups: BTreeMap<u64, TaskGroup>,
    /// Streams that replace recorded operators.
    updates: BTreeMap<u64, GraphUpdate>,
}

#[derive(Debug)]
pub(crate) struct CapturedGraph {
    context: u64,
    card: u32,
    phase: GraphPhase,
    /// The capture began on the first lane.
    lanes: Vec<GraphLane>,
    /// Recorded entries, in the order of the program's calls.
    nodes: Vec<CapturedNode>,
    /// Event of each record within the graph.
    records: Vec<u64>,
    /// Number of each recorded event's last record.
    events: BTreeMap<u64, usize>,
    last_end: Option<Arc<EventRecord>>,
    /// The program bound streams instead of capturing.
    is_built: bool,
    /// The bound stream that ends the graph.
    ended_on: Option<u64>,
}

#[derive(Debug)]
pub(crate) enum GraphPhase {
    Capturing(Capturing),
    Ready,
}

#[derive(Debug)]
pub(crate) struct Capturing {
    mode: CaptureMode,
    thread: ThreadId,
    thread_name: Arc<str>,
    invalid: Option<String>,
}

#[derive(Debug)]
pub(crate) struct GraphLane {
    stream: u64,
    /// Stream for replays. `None` for the first lane, which replays on the launching stream.
    plays_on: Option<u64>,
    group: Option<Vec<GroupSlot>>,
}

#[derive(Debug)]
pub(crate) struct CapturedNode {
    lane: usize,
    step: GraphStep,
    site: Option<Arc<CallSite>>,
    accesses: Vec<MemoryAccess>,
    tag: Option<Arc<str>>,
}

#[derive(Debug)]
pub(crate) enum GraphStep {
    /// Work that is equal at every replay.
    Work(StreamEntry),
    /// Completes a record of this graph.
    Record(usize),
    /// Blocks the lane until a record of this graph is complete.
    Wait(usize),
    /// An action at every replay.
    Outside { event: u64, act: Outside },
    /// This rank's part in grouped collectives.
    Collective { group: u64, rank: u32, calls: Vec<CollectiveCall> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    /// `ACL_EVENT_RECORD_EXTERNAL`: a record visible outside the graph.
    Record,
    /// `ACL_EVENT_WAIT_EXTERNAL`: a wait for the last record made outside the graph.
    Wait,
}

impl CapturedGraph {
    fn capturing(&self) -> Option<&Capturing> {
        match &self.phase {
            GraphPhase::Capturing(capturing) => Some(capturing),
            GraphPhase::Ready => None,
        }
    }

    fn invalidate(&mut self, why: &str) {
        if let GraphPhase::Capturing(capturing) = &mut self.phase {
            capturing.invalid.get_or_insert_with(|| why.to_owned());
        }
    }

    /// The result may contain duplicates.
    pub(crate) fn communicators(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().filter_map(|node| match node.step {
            GraphStep::Collective { group, .. } => Some(group),
            _ => None,
        })
    }

    fn is_running(&self) -> bool {
        self.last_end.as_ref().is_some_and(|end| end.at().is_none())
    }
}

impl Graphs {
    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        self.capturing.contains_key(&stream)
    }

    pub(crate) fn is_any_capturing(&self) -> bool {
        !self.capturing.is_empty()
    }

    pub(crate) fn is_updating(&self, stream: u64) -> bool {
        self.updates.contains_key(&stream)
    }

    fn of_stream(&self, stream: u64) -> Option<(u64, usize)> {
        self.capturing.get(&stream).copied()
    }

    /// Returns the capture and the number of the record.
    fn of_event(&self, event: u64) -> Option<(u64, usize)> {
        let captures = self.all.iter().filter(|(_, graph)| graph.capturing().is_some());
        captures.filter_map(|(id, graph)| graph.events.get(&event).map(|record| (*id, *record))).next()
    }

    fn building(&mut self, id: u64) -> Result<&mut CapturedGraph, Failure> {
        let graph = self.graph_mut(id)?;
        if graph.is_built && graph.capturing().is_some() {
            return Ok(graph);
        }
        let what = format!("graph {id} is not being built; begin with aclmdlRIBuildBegin");
        Err(Failure::new(code::PARAM_INVALID, what))
    }

    /// Returns the result of `aclmdlRIGetId`.
    pub(crate) fn number(&self, id: u64) -> Result<u32, Failure> {
        self.graph(id)?;
        // No program creates enough objects for two graphs to share 32 bits.
        Ok(id as u32)
    }

    fn graph(&self, id: u64) -> Result<&CapturedGraph, Failure> {
        self.all.get(&id).ok_or_else(|| HandleKind::Graph.gone(id))
    }

    fn graph_mut(&mut self, id: u64) -> Result<&mut CapturedGraph, Failure> {
        self.all.get_mut(&id).ok_or_else(|| HandleKind::Graph.gone(id))
    }

    pub(crate) fn ready_on(&self, card: u32) -> impl Iterator<Item = &CapturedGraph> {
        self.all.values().filter(move |graph| graph.card == card && matches!(graph.phase, GraphPhase::Ready))
    }

    fn capturing_on(&self, card: u32) -> Option<u64> {
        self.capturing
            .iter()
            .find(|(_, (graph, _))| self.all[graph].card == card && !self.all[graph].is_built)
            .map(|(stream, _)| *stream)
    }

    /// The capture's streams execute entries again.
    fn drop_capture(&mut self, id: u64) {
        self.capturing.retain(|_, (graph, _)| *graph != id);
        self.all.remove(&id);
    }
}

pub(crate) fn bound(stream: u64, graph: u64) -> Failure {
    let what = format!(
        "stream {stream} is bound to graph {graph}, which is complete; call aclmdlRIUnbindStream first"
    );
    Failure::new(code::STREAM_MODEL, what)
}

pub(crate) fn captured(stream: u64, call: &str) -> Failure {
    let what = format!(
        "{call} on stream {stream}, which is being captured; call aclmdlRICaptureEnd first, or aclmdlRIUnbindStream for a bound one"
    );
    Failure::new(code::STREAM_CAPTURED, what)
}

#[derive(Clone)]
pub(super) struct GroupSlot {
    name: &'static str,
    node: usize,
    /// `None` on a machine without numbers, which runs no operators.
    current: Option<Arc<Mutex<StreamTask>>>,
}

#[derive(Debug)]
pub(crate) struct TaskGroup {
    graph: u64,
    slots: Vec<GroupSlot>,
}

#[derive(Debug)]
pub(crate) struct GraphUpdate {
    group: u64,
    given: Vec<Replacement>,
}

pub(crate) struct Replacement {
    task: Option<StreamTask>,
    load: Option<LoadId>,
    accesses: Vec<MemoryAccess>,
}

impl std::fmt::Debug for Replacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Replacement")
    }
}

impl std::fmt::Debug for GroupSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({}, node {})", self.name, self.node)
    }
}

impl GroupSlot {
    fn task(&self) -> Option<StreamTask> {
        let current = Arc::clone(self.current.as_ref()?);
        Some(Arc::new(move |workers: &Workers| {
            let task = Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner));
            task(workers)
        }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureStatus {
    None,
    Active(u64),
    /// A misuse has invalidated the graph.
    Invalidated(u64),
}
