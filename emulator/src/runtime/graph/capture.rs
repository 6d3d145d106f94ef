//! Capture: streams record their entries instead of running them.
//!
//! Invariants: a stream joins a capture only by waiting for a captured event, and must join the
//! first stream again before the end. Calls that would run immediately are refused.

use std::sync::Arc;

use super::{CapturedGraph, CapturedNode, Capturing, GraphLane, GraphPhase, GraphStep, Outside, captured};
use crate::base::failure::{Failure, code};
use crate::hccl::CollectiveCall;
use crate::hccl::communicator::CommunicatorMember;
use crate::machine::Machine;
use crate::runtime::event::{EventKind, SYNC};
use crate::runtime::graph::CaptureStatus;
use crate::runtime::stream::{Queued, StreamEntry};
use crate::runtime::thread;
use crate::runtime::thread::CaptureMode;
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn begin_capture(
        &mut self,
        stream: u64,
        mode: CaptureMode,
        thread_name: Arc<str>,
    ) -> Result<u64, Failure> {
        if self.runtime.graphs.is_capturing(stream) {
            return Err(captured(stream, "aclmdlRICaptureBegin"));
        }
        let on = &self.runtime.streams[&stream];
        if on.is_default {
            let what = format!("stream {stream} is a default stream, which cannot be captured; create one");
            return Err(Failure::new(code::STREAM_CAPTURE_IMPLICIT, what));
        }
        if self.runtime.graphs.updates.contains_key(&stream) {
            let what =
                format!("stream {stream} is updating a task group; call aclmdlRICaptureTaskUpdateEnd first");
            return Err(Failure::new(code::STREAM_TASK_GROUP_STATUS, what));
        }
        if let Some(failure) = on.refusal() {
            return Err(failure.clone());
        }
        let (context, card) = (on.context, on.card);
        let capturing = Capturing { mode, thread: std::thread::current().id(), thread_name, invalid: None };
        let graph = CapturedGraph {
            context,
            card,
            phase: GraphPhase::Capturing(capturing),
            lanes: vec![GraphLane { stream, plays_on: None, group: None }],
            nodes: Vec::new(),
            records: Vec::new(),
            events: Default::default(),
            last_end: None,
            is_built: false,
            ended_on: None,
        };
        let id = self.fresh_number();
        self.runtime.graphs.all.insert(id, graph);
        self.runtime.graphs.capturing.insert(stream, (id, 0));
        Ok(id)
    }

    pub(crate) fn end_capture(&mut self, stream: u64) -> Result<u64, Failure> {
        let of_capture =
            self.runtime.graphs.of_stream(stream).filter(|(id, _)| !self.runtime.graphs.all[id].is_built);
        let Some((id, lane)) = of_capture else {
            let what = format!("stream {stream} is not being captured; call aclmdlRICaptureBegin first");
            return Err(Failure::new(code::STREAM_NOT_CAPTURED, what));
        };
        let graph = self.runtime.graphs.graph_mut(id)?;
        if lane != 0 {
            let what = format!(
                "stream {stream} joined the capture of stream {}; end it there",
                graph.lanes[0].stream
            );
            return Err(Failure::new(code::STREAM_CAPTURE_UNMATCHED, what));
        }
        let GraphPhase::Capturing(capturing) = &graph.phase else {
            return Err(Failure::new(
                code::INTERNAL,
                format!("graph {id} is ready, but stream {stream} records into it"),
            ));
        };
        if capturing.mode != CaptureMode::Relaxed && capturing.thread != std::thread::current().id() {
            let what = format!(
                "the capture of stream {stream} was begun by thread {}; only a RELAXED one may end on another",
                capturing.thread_name
            );
            return Err(Failure::new(code::STREAM_CAPTURE_WRONG_THREAD, what));
        }
        let sound = match &capturing.invalid {
            Some(why) => Err(invalidated(stream, why)),
            None => graph.check_groups().and_then(|()| graph.check_joined()),
        };
        let events: Vec<u64> = graph.events.keys().copied().collect();
        for event in events {
            if let Some(event) = self.runtime.events.get_mut(&event) {
                event.latest = None;
            }
        }
        if let Err(failure) = sound {
            self.runtime.graphs.drop_capture(id);
            return Err(failure);
        }
        let plays_on = match self.streams_of_lanes(id) {
            Ok(own) => own,
            Err(failure) => {
                self.runtime.graphs.drop_capture(id);
                return Err(failure);
            }
        };
        self.runtime.graphs.capturing.retain(|_, (of, _)| *of != id);
        let graph = self.runtime.graphs.graph_mut(id)?;
        for (lane, own) in graph.lanes.iter_mut().zip(plays_on) {
            lane.plays_on = own;
        }
        graph.phase = GraphPhase::Ready;
        Ok(id)
    }

    pub(crate) fn capture_status(&self, stream: u64) -> CaptureStatus {
        match self.runtime.graphs.of_stream(stream) {
            None => CaptureStatus::None,
            Some((id, _)) if self.runtime.graphs.all[&id].is_built => CaptureStatus::None,
            Some((id, _)) => match self.runtime.graphs.all[&id].capturing() {
                Some(Capturing { invalid: Some(_), .. }) => CaptureStatus::Invalidated(id),
                _ => CaptureStatus::Active(id),
            },
        }
    }

    pub(crate) fn capture(&mut self, stream: u64, queued: Queued) -> Result<(), Failure> {
        let Queued { entry, site, accesses, tag, .. } = queued;
        let step = match entry {
            StreamEntry::Callback(mut callback) => {
                callback.subscribed = Some(stream);
                GraphStep::Work(StreamEntry::Callback(callback))
            }
            StreamEntry::Record(_) | StreamEntry::Wait(_) | StreamEntry::Meet(_) => {
                let what = format!("{entry:?} of stream {stream} reached the capture without its call");
                return Err(Failure::new(code::INTERNAL, what));
            }
            other => GraphStep::Work(other),
        };
        self.push_node(stream, step, |lane, step| CapturedNode { lane, step, site, accesses, tag })
    }

    pub(crate) fn capture_collective(
        &mut self,
        stream: u64,
        member: CommunicatorMember,
        calls: Vec<CollectiveCall>,
        queued: Queued,
    ) -> Result<(), Failure> {
        let Queued { site, accesses, tag, .. } = queued;
        let step = GraphStep::Collective { group: member.communicator, rank: member.rank, calls };
        self.push_node(stream, step, |lane, step| CapturedNode { lane, step, site, accesses, tag })
    }

    fn push_node(
        &mut self,
        stream: u64,
        step: GraphStep,
        node: impl FnOnce(usize, GraphStep) -> CapturedNode,
    ) -> Result<(), Failure> {
        let (id, lane) = self.valid_capture(stream)?;
        let graph = self.runtime.graphs.graph_mut(id)?;
        let step = graph.grouped(lane, step)?;
        graph.nodes.push(node(lane, step));
        Ok(())
    }

    pub(super) fn valid_capture(&self, stream: u64) -> Result<(u64, usize), Failure> {
        let (id, lane) = self.runtime.graphs.of_stream(stream).ok_or_else(|| {
            Failure::new(code::STREAM_NOT_CAPTURED, format!("stream {stream} is not being captured"))
        })?;
        let graph = self.runtime.graphs.graph(id)?;
        let Some(capturing) = graph.capturing() else { return Err(super::bound(stream, id)) };
        if let Some(why) = &capturing.invalid {
            return Err(invalidated(stream, why));
        }
        if graph.ended_on == Some(stream) {
            let what = format!(
                "stream {stream} has ended graph {id} by aclmdlRIEndTask and takes no more work for it"
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        Ok((id, lane))
    }

    /// Returns false if neither the stream nor the event belongs to a capture.
    pub(crate) fn capture_record(
        &mut self,
        stream: u64,
        event: u64,
        queued: Queued,
    ) -> Result<bool, Failure> {
        let recorded_in = self.runtime.graphs.of_event(event);
        let Some((id, _)) = self.runtime.graphs.of_stream(stream) else {
            let Some((other, _)) = recorded_in else { return Ok(false) };
            let what = format!(
                "event {event} was recorded by the capture of stream {}, but stream {stream} is not part of that \
                 capture",
                self.runtime.graphs.graph(other)?.lanes[0].stream
            );
            return Err(Failure::new(code::EVENT_CAPTURED, what));
        };
        self.valid_capture(stream)?;
        let of = self.event(event)?;
        if of.kind != EventKind::ExWithFlag || of.flags & SYNC == 0 {
            let what = format!(
                "event {event} cannot be captured: create it by aclrtCreateEventExWithFlag with ACL_EVENT_SYNC"
            );
            self.runtime.graphs.graph_mut(id)?.invalidate(&what);
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
        }
        if recorded_in.is_some_and(|(other, _)| other != id) {
            let what =
                format!("event {event} was recorded by another capture than the one of stream {stream}");
            self.runtime.graphs.graph_mut(id)?.invalidate(&what);
            return Err(Failure::new(code::STREAM_CAPTURE_CONFLICT, what));
        }
        let number = self.runtime.graphs.graph(id)?.records.len();
        let Queued { site, tag, .. } = queued;
        let node = |lane, step| CapturedNode { lane, step, site, accesses: Vec::new(), tag };
        self.push_node(stream, GraphStep::Record(number), node)?;
        let graph = self.runtime.graphs.graph_mut(id)?;
        graph.records.push(event);
        graph.events.insert(event, number);
        Ok(true)
    }

    /// Returns false if neither the stream nor the event belongs to a capture. A stream outside
    /// joins the capture.
    pub(crate) fn capture_wait(&mut self, stream: u64, event: u64, queued: Queued) -> Result<bool, Failure> {
        let (on, recorded) = match (
            self.runtime.graphs.of_stream(stream),
            self.runtime.graphs.of_event(event),
        ) {
            (None, None) => return Ok(false),
            (Some((id, _)), None) => {
                let what = format!(
                    "stream {stream} is being captured and waits for event {event}, which its capture has not recorded"
                );
                self.runtime.graphs.graph_mut(id)?.invalidate(&what);
                return Err(Failure::new(code::CAPTURE_DEPENDENCY, what));
            }
            (on, Some(recorded)) => (on, recorded),
        };
        let (id, number) = recorded;
        match on {
            Some((own, _)) if own != id => {
                let what = format!(
                    "stream {stream} is captured with stream {}, but event {event} was recorded with stream {}; two \
                     captures cannot wait for each other",
                    self.runtime.graphs.graph(own)?.lanes[0].stream,
                    self.runtime.graphs.graph(id)?.lanes[0].stream,
                );
                self.runtime.graphs.graph_mut(own)?.invalidate(&what);
                self.runtime.graphs.graph_mut(id)?.invalidate(&what);
                return Err(Failure::new(code::STREAM_CAPTURE_CONFLICT, what));
            }
            Some(_) => {}
            None => self.join_capture(stream, id)?,
        }
        let Queued { site, tag, .. } = queued;
        let node = |lane, step| CapturedNode { lane, step, site, accesses: Vec::new(), tag };
        self.push_node(stream, GraphStep::Wait(number), node)?;
        Ok(true)
    }

    pub(crate) fn capture_outside(
        &mut self,
        stream: u64,
        event: u64,
        act: Outside,
        queued: Queued,
    ) -> Result<(), Failure> {
        let (id, _) = self.valid_capture(stream)?;
        let of = self.event(event)?;
        if of.kind != EventKind::ExWithFlag || of.flags != SYNC {
            let what = format!(
                "event {event} cannot be external: create it by aclrtCreateEventExWithFlag with \
                 ACL_EVENT_SYNC alone"
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        if self.runtime.graphs.of_event(event).is_some() {
            let what =
                format!("event {event} was recorded by a capture as one within it; take another event");
            return Err(Failure::new(code::EVENT_CAPTURED, what));
        }
        let is_other = |node: &CapturedNode| matches!(&node.step, GraphStep::Outside { event: of, act: other } if *of == event && *other != act);
        if self.runtime.graphs.graph(id)?.nodes.iter().any(is_other) {
            let what = format!(
                "event {event} is both recorded and awaited by the capture of stream {stream}; take two events"
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let Queued { site, tag, .. } = queued;
        let node = |lane, step| CapturedNode { lane, step, site, accesses: Vec::new(), tag };
        self.push_node(stream, GraphStep::Outside { event, act }, node)
    }

    fn join_capture(&mut self, stream: u64, id: u64) -> Result<(), Failure> {
        let joining = &self.runtime.streams[&stream];
        let (context, is_default) = (joining.context, joining.is_default);
        let graph = self.runtime.graphs.graph_mut(id)?;
        let refused = if is_default {
            Some((code::STREAM_CAPTURE_IMPLICIT, "is a default stream, which cannot be captured".to_owned()))
        } else if context != graph.context {
            let what = format!("is of context {context}, the capture of context {}", graph.context);
            Some((code::STREAM_CONTEXT, what))
        } else {
            None
        };
        if let Some((code, why)) = refused {
            let what = format!(
                "stream {stream} cannot join the capture of stream {}: it {why}",
                graph.lanes[0].stream
            );
            graph.invalidate(&what);
            return Err(Failure::new(code, what));
        }
        graph.lanes.push(GraphLane { stream, plays_on: None, group: None });
        let lane = graph.lanes.len() - 1;
        self.runtime.graphs.capturing.insert(stream, (id, lane));
        Ok(())
    }

    pub(crate) fn invalidate_capture(&mut self, stream: u64, why: &str) -> Result<(), Failure> {
        let (id, _) = self.valid_capture(stream)?;
        self.runtime.graphs.graph_mut(id)?.invalidate(why);
        Ok(())
    }

    /// A refused call invalidates the capture.
    pub(crate) fn refuse_captured(&mut self, stream: u64, call: &str) -> Result<(), Failure> {
        let Some((id, _)) = self.runtime.graphs.of_stream(stream) else { return Ok(()) };
        let failure = captured(stream, call);
        self.runtime.graphs.graph_mut(id)?.invalidate(&failure.message);
        Err(failure)
    }

    pub(crate) fn refuse_captured_card(&self, card: u32, call: &str) -> Result<(), Failure> {
        self.runtime.graphs.capturing_on(card).map_or(Ok(()), |stream| Err(captured(stream, call)))
    }

    /// A refused access to a recorded event invalidates the capture.
    pub(crate) fn refuse_captured_event(&mut self, event: u64, call: &str) -> Result<(), Failure> {
        let Some((id, _)) = self.runtime.graphs.of_event(event) else { return Ok(()) };
        let what =
            format!("{call} on event {event}, which was recorded by a capture and has no state outside it");
        self.runtime.graphs.graph_mut(id)?.invalidate(&what);
        Err(Failure::new(code::EVENT_CAPTURED, what))
    }

    /// `thread_mode` is the mode of the calling thread.
    fn refuse_unsafe(
        &mut self,
        call: &str,
        refused_with: i32,
        thread_mode: CaptureMode,
    ) -> Result<(), Failure> {
        let me = std::thread::current().id();
        let mut refused = None;
        for graph in self.runtime.graphs.all.values_mut() {
            let GraphPhase::Capturing(capturing) = &graph.phase else { continue };
            let own = capturing.thread == me;
            let (forbidden, by) = match capturing.mode {
                CaptureMode::Relaxed => (false, "RELAXED"),
                CaptureMode::ThreadLocal => (own && thread_mode != CaptureMode::Relaxed, "THREAD_LOCAL"),
                CaptureMode::Global if own => (thread_mode != CaptureMode::Relaxed, "GLOBAL"),
                CaptureMode::Global => (thread_mode == CaptureMode::Global, "GLOBAL"),
            };
            if !forbidden {
                continue;
            }
            let what = format!(
                "{call} is an unsafe call while thread {} captures stream {} in {by} mode; call it outside, or switch \
                 this thread's mode by aclmdlRICaptureThreadExchangeMode",
                capturing.thread_name, graph.lanes[0].stream
            );
            graph.invalidate(&what);
            refused.get_or_insert(what);
        }
        refused.map_or(Ok(()), |what| Err(Failure::new(refused_with, what)))
    }

    pub(crate) fn forget_captures(&mut self, stream: u64) {
        if let Some((id, _)) = self.runtime.graphs.of_stream(stream) {
            self.runtime.graphs.drop_capture(id);
        }
        self.runtime.graphs.updates.remove(&stream);
    }
}

impl CapturedGraph {
    /// Checks that every joined stream ends in a record for which another stream of the capture
    /// waits.
    fn check_joined(&self) -> Result<(), Failure> {
        for (lane, joined) in self.lanes.iter().enumerate().skip(1) {
            let last = self.nodes.iter().rfind(|node| node.lane == lane);
            let returns = match last.map(|node| &node.step) {
                Some(GraphStep::Record(number)) => {
                    let awaits = |node: &CapturedNode| {
                        node.lane != lane
                            && matches!(node.step, GraphStep::Wait(awaited) if awaited == *number)
                    };
                    self.nodes.iter().any(awaits)
                }
                _ => false,
            };
            if !returns {
                let what = format!(
                    "stream {} joined the capture of stream {} and does not lead back: its last work must be an \
                     aclrtRecordEvent that a stream of the capture waits for",
                    joined.stream, self.lanes[0].stream
                );
                return Err(Failure::new(code::STREAM_UNJOINED, what));
            }
        }
        Ok(())
    }
}

impl Machine {
    /// Unsafe calls are synchronous copies and fills.
    pub(crate) fn refuse_unsafe_in_capture(&self) -> Result<(), Failure> {
        self.refuse_in_capture(code::CAPTURE_MODE_NOT_SUPPORT)
    }

    /// Applies to strict mode. A card may have to ask the driver for memory, which invalidates the
    /// capture.
    pub(crate) fn refuse_allocation_in_capture(&self) -> Result<(), Failure> {
        if self.lock().is_strict() { self.refuse_unsafe_in_capture() } else { Ok(()) }
    }

    /// Copies from or to pageable host memory block.
    pub(crate) fn refuse_blocking_copy(&self, stream: u64) -> Result<(), Failure> {
        self.refuse_in_capture(code::CAPTURE_MODE_BLOCK_ASYNC)?;
        self.update(|state| {
            state.refuse_captured(stream, "a copy of pageable host memory, which waits for its end,")
        })
    }

    fn refuse_in_capture(&self, refused_with: i32) -> Result<(), Failure> {
        let mode = thread::capture_mode(self.key());
        let call: &str = thread::calling(self.key()).map_or("this call", |calling| calling.name);
        self.update(|state| {
            if state.runtime.graphs.capturing.is_empty() {
                Ok(())
            } else {
                state.refuse_unsafe(call, refused_with, mode)
            }
        })
    }
}

pub(crate) fn invalidated(stream: u64, why: &str) -> Failure {
    Failure::new(
        code::STREAM_CAPTURE_INVALIDATED,
        format!("the capture of stream {stream} is invalid since: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(lane: usize, step: GraphStep) -> CapturedNode {
        CapturedNode { lane, step, site: None, accesses: Vec::new(), tag: None }
    }

    fn graph(lanes: usize, nodes: Vec<CapturedNode>) -> CapturedGraph {
        let capturing = Capturing {
            mode: CaptureMode::Global,
            thread: std::thread::current().id(),
            thread_name: Arc::from("t"),
            invalid: None,
        };
        let lanes =
            (0..lanes).map(|at| GraphLane { stream: at as u64 + 10, plays_on: None, group: None }).collect();
        CapturedGraph {
            context: 1,
            card: 0,
            phase: GraphPhase::Capturing(capturing),
            lanes,
            nodes,
            records: vec![0; 9],
            events: Default::default(),
            last_end: None,
            is_built: false,
            ended_on: None,
        }
    }

    #[test]
    fn streams_lead_back_directly_or_over_another() {
        let direct =
            vec![node(1, GraphStep::Wait(0)), node(1, GraphStep::Record(1)), node(0, GraphStep::Wait(1))];
        graph(2, direct).check_joined().expect("leads back");
        let over = vec![
            node(2, GraphStep::Record(2)),
            node(1, GraphStep::Wait(2)),
            node(1, GraphStep::Record(1)),
            node(0, GraphStep::Wait(1)),
        ];
        graph(3, over).check_joined().expect("leads back over lane 1");
        let work_after =
            vec![node(1, GraphStep::Record(1)), node(0, GraphStep::Wait(1)), node(1, GraphStep::Wait(0))];
        assert_eq!(graph(2, work_after).check_joined().expect_err("work after").code, code::STREAM_UNJOINED);
        let never_awaited = vec![node(1, GraphStep::Record(1))];
        assert!(
            graph(2, never_awaited).check_joined().expect_err("not awaited").message.contains("stream 11")
        );
    }
}
