//! Graphs: work that streams record once and a program replays many times (`aclmdlRI…`).
//!
//! Input: entries enqueued on streams that are being captured. Output: the same entries, enqueued again at every replay.
//! Parts: `capture` records, `replay` enqueues, `update` replaces recorded operators, `json` writes a graph down.
//! Invariants: addresses are those of the capture; a replay matches its collectives anew; replays of one graph never
//! overlap; a misuse that invalidates a capture is named again when the capture ends. Does not: know C signatures
//! (see `abi::acl_graph`) or optimise what was recorded.

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
use crate::base::site::Site;
use crate::hccl::CollectiveCall;
use crate::runtime::event::EventRecord;
use crate::runtime::stream::{Access, Entry};
use crate::runtime::thread::CaptureMode;
use crate::scheduler::pool::{Task, Workers};
use crate::timed::load::LoadId;

/// All graphs of a machine.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    all: BTreeMap<u64, Graph>,
    /// Streams that record instead of run: their graph and lane.
    capturing: BTreeMap<u64, (u64, usize)>,
    groups: BTreeMap<u64, TaskGroup>,
    /// Streams whose operators replace recorded ones.
    updates: BTreeMap<u64, Update>,
}

#[derive(Debug)]
pub(crate) struct Graph {
    context: u64,
    card: u32,
    phase: Phase,
    /// Streams that recorded, the first being the one the capture began on.
    lanes: Vec<GraphLane>,
    /// In the order of the program's calls.
    nodes: Vec<Node>,
    /// The event of each record within the graph.
    records: Vec<u64>,
    /// Events recorded by the capture: the number of their last record in it.
    events: BTreeMap<u64, usize>,
    /// The end of the last replay.
    last_end: Option<Arc<EventRecord>>,
    /// Made by binding streams, not by a capture.
    is_built: bool,
    /// The bound stream that ends the graph.
    ended_on: Option<u64>,
}

/// What may be done with a graph.
#[derive(Debug)]
pub(crate) enum Phase {
    Capturing(Capturing),
    /// It may be replayed.
    Ready,
}

#[derive(Debug)]
pub(crate) struct Capturing {
    mode: CaptureMode,
    thread: ThreadId,
    thread_name: Arc<str>,
    /// What made the capture worthless.
    invalid: Option<String>,
}

/// One recording stream.
#[derive(Debug)]
pub(crate) struct GraphLane {
    /// The program's stream.
    stream: u64,
    /// The graph's own stream that replays it; None for the first lane, which replays on the stream it is launched on.
    plays_on: Option<u64>,
    /// The operators of the task group under way.
    group: Option<Vec<GroupSlot>>,
}

/// One recorded entry.
#[derive(Debug)]
pub(crate) struct Node {
    lane: usize,
    step: GraphStep,
    site: Option<Arc<Site>>,
    accesses: Vec<Access>,
    tag: Option<Arc<str>>,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum GraphStep {
    /// The same at every replay.
    Work(Entry),
    /// Marks a record of this graph as done.
    Record(usize),
    /// Holds the lane until a record of this graph is done.
    Wait(usize),
    /// A record of an event that others see, or a wait for what others recorded last, at every replay anew.
    Outside { event: u64, act: Outside },
    /// This rank's part in collectives that begin and end together.
    Collective { group: u64, rank: u32, calls: Vec<CollectiveCall> },
}

/// What a captured stream does with an event of the world outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    /// `ACL_EVENT_RECORD_EXTERNAL`: a record that others see.
    Record,
    /// `ACL_EVENT_WAIT_EXTERNAL`: a wait for what others recorded last.
    Wait,
}

impl Graph {
    fn capturing(&self) -> Option<&Capturing> {
        match &self.phase {
            Phase::Capturing(capturing) => Some(capturing),
            Phase::Ready => None,
        }
    }

    /// Makes a running capture worthless; the first reason stays.
    fn invalidate(&mut self, why: &str) {
        if let Phase::Capturing(capturing) = &mut self.phase {
            capturing.invalid.get_or_insert_with(|| why.to_owned());
        }
    }

    /// The communicators whose collectives it has, once for each of them.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().filter_map(|node| match node.step {
            GraphStep::Collective { group, .. } => Some(group),
            _ => None,
        })
    }

    /// Whether a replay has not ended.
    fn is_running(&self) -> bool {
        self.last_end.as_ref().is_some_and(|end| end.at().is_none())
    }
}

impl Graphs {
    /// Whether a stream records.
    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        self.capturing.contains_key(&stream)
    }

    /// Whether any stream records.
    pub(crate) fn is_any_capturing(&self) -> bool {
        !self.capturing.is_empty()
    }

    /// Whether what a stream enqueues replaces recorded operators.
    pub(crate) fn is_updating(&self, stream: u64) -> bool {
        self.updates.contains_key(&stream)
    }

    /// The graph a stream records into.
    fn of_stream(&self, stream: u64) -> Option<(u64, usize)> {
        self.capturing.get(&stream).copied()
    }

    /// The capture that recorded an event, and the number of the record.
    fn of_event(&self, event: u64) -> Option<(u64, usize)> {
        let captures = self.all.iter().filter(|(_, graph)| graph.capturing().is_some());
        captures.filter_map(|(id, graph)| graph.events.get(&event).map(|record| (*id, *record))).next()
    }

    /// A graph that streams are bound to and that is not complete.
    fn building(&mut self, id: u64) -> Result<&mut Graph, Failure> {
        let graph = self.graph_mut(id)?;
        if graph.is_built && graph.capturing().is_some() {
            return Ok(graph);
        }
        let what = format!("graph {id} is not being built; begin with aclmdlRIBuildBegin");
        Err(Failure::new(code::PARAM_INVALID, what))
    }

    /// The number that `aclmdlRIGetId` gives for a graph.
    pub(crate) fn number(&self, id: u64) -> Result<u32, Failure> {
        self.graph(id)?;
        // Numbers count what a machine makes, and no program makes as many objects as would let two graphs share one.
        Ok(id as u32)
    }

    fn graph(&self, id: u64) -> Result<&Graph, Failure> {
        self.all.get(&id).ok_or_else(|| HandleKind::Graph.gone(id))
    }

    fn graph_mut(&mut self, id: u64) -> Result<&mut Graph, Failure> {
        self.all.get_mut(&id).ok_or_else(|| HandleKind::Graph.gone(id))
    }

    /// The graphs of a card that may be replayed.
    pub(crate) fn ready_on(&self, card: u32) -> impl Iterator<Item = &Graph> {
        self.all.values().filter(move |graph| graph.card == card && matches!(graph.phase, Phase::Ready))
    }

    /// Streams that record, with the card they are on.
    fn capturing_on(&self, card: u32) -> Option<u64> {
        self.capturing
            .iter()
            .find(|(_, (graph, _))| self.all[graph].card == card && !self.all[graph].is_built)
            .map(|(stream, _)| *stream)
    }

    /// Ends a capture without a graph: its streams run again.
    fn drop_capture(&mut self, id: u64) {
        self.capturing.retain(|_, (graph, _)| *graph != id);
        self.all.remove(&id);
    }
}

/// The failure of a call on a stream that is bound to a complete graph.
pub(crate) fn bound(stream: u64, graph: u64) -> Failure {
    let what = format!("stream {stream} is bound to graph {graph}, which is complete; call aclmdlRIUnbindStream first");
    Failure::new(code::STREAM_MODEL, what)
}

/// The failure of a call that needs a stream outside any capture.
pub(crate) fn captured(stream: u64, call: &str) -> Failure {
    let what = format!(
        "{call} on stream {stream}, which is being captured; call aclmdlRICaptureEnd first, or aclmdlRIUnbindStream for a bound one"
    );
    Failure::new(code::STREAM_CAPTURED, what)
}

/// An operator that can be replaced.
#[derive(Clone)]
pub(super) struct GroupSlot {
    name: &'static str,
    node: usize,
    /// What it does now; None on a machine without numbers, where no operator does anything.
    current: Option<Arc<Mutex<Task>>>,
}

/// Operators of a graph under one handle.
#[derive(Debug)]
pub(crate) struct TaskGroup {
    graph: u64,
    slots: Vec<GroupSlot>,
}

/// An update under way.
#[derive(Debug)]
pub(crate) struct Update {
    group: u64,
    given: Vec<Replacement>,
}

/// What replaces an operator.
pub(crate) struct Replacement {
    task: Option<Task>,
    load: Option<LoadId>,
    accesses: Vec<Access>,
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
    /// Runs whatever the slot holds when the stream gets there.
    fn task(&self) -> Option<Task> {
        let current = Arc::clone(self.current.as_ref()?);
        Some(Arc::new(move |workers: &Workers| {
            let task = Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner));
            task(workers)
        }))
    }
}

/// What a capturing stream tells about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureStatus {
    /// The stream does not record.
    None,
    /// It records into this graph.
    Active(u64),
    /// It records into this graph, which a misuse has made worthless.
    Invalidated(u64),
}
