//! Runs the plans of one rank on its device.

use std::sync::Arc;
use std::time::Instant;

use tracing::{debug_span, info_span, trace_span};

use crate::base::{Bytes, Id};
use crate::call::{Call, View};
use crate::device::{
    Buffer, BufferSlice, Communicator, Device, Error, ErrorKind, Event, Graph, KernelSource, LoadedKernels,
    Prepared, PreparedKernel, Result, Stream, Tensor,
};
use crate::schedule::plan::{ALIGNMENT_BYTES, Action, Collective, Plan, Region, StreamKind, Tensor as Slot};
use crate::timeline::Span;

use super::error::{PeerFailed, RankError};
use super::exchange::RankExchange;
use super::gate::Entrance;
use super::lengths::LengthLaunches;
use super::locate::{RankProgress, mark_texts, stopped_at};
use super::prepare::{prepare, prepare_joined, prepare_kernel};
use super::timing::{Clock, StepTimer, Timed};

const STAGING_BYTES: usize = 1 << 20;

enum ReadyProgram {
    Launch(Box<Prepared>),
    Kernel(&'static str, Box<PreparedKernel>),
    Exchange(Box<RankExchange>),
    Record(usize),
    Wait(usize),
}

impl ReadyProgram {
    const fn workspace_bytes(&self) -> usize {
        match self {
            Self::Launch(prepared) => prepared.workspace_bytes(),
            Self::Kernel(..) | Self::Exchange(_) | Self::Record(_) | Self::Wait(_) => 0,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Launch(prepared) => prepared.name(),
            Self::Kernel(name, _) => name,
            Self::Exchange(exchange) => exchange.name(),
            Self::Record(_) | Self::Wait(_) => "",
        }
    }
}

struct CardProgram {
    plan: Arc<Plan>,
    steps: Vec<ReadyProgram>,
    /// Profiler mark before each step, if it changes. Empty if streams are not marked.
    marks: Vec<Option<Box<str>>>,
    events: Vec<Event>,
    inputs: Vec<u8>,
    lengths: Vec<LengthLaunches>,
    recording: GraphRecording,
    workspaces: Workspaces,
}

/// By stream: operators of different streams can run concurrently.
type Workspaces = [Option<BufferSlice>; StreamKind::ALL.len()];

impl CardProgram {
    fn exchange_recorded(&mut self, index: usize) -> Result<()> {
        let GraphRecording::Done { graph, exchanged: Some(RecordedExchanges { steps, stream }), .. } =
            &self.recording
        else {
            return Ok(());
        };
        let recorded = steps.iter().position(|step| *step == index);
        let (Some(group), ReadyProgram::Launch(prepared)) = (recorded, &mut self.steps[index]) else {
            return Ok(());
        };
        let workspace = self.workspaces[self.plan.steps[index].stream as usize].as_ref();
        graph.exchange(group, stream, || prepared.enqueue(stream, workspace))
    }
}

enum GraphRecording {
    Never,
    /// The first run is eager: it creates resources that a capture cannot record, such as links
    /// between devices.
    AfterFirstRun,
    Due,
    /// Graph, with the events that join the streams at its start and end.
    Done {
        graph: Graph,
        exchanged: Option<RecordedExchanges>,
        _ends: Vec<Event>,
    },
}

struct RecordedExchanges {
    steps: Vec<usize>,
    stream: Stream,
}

/// Fields are dropped before the values they depend on.
pub(super) struct Card {
    rank: usize,
    ordinal: usize,
    device: Arc<Device>,
    programs: Vec<CardProgram>,
    communicators: Vec<(Vec<usize>, Communicator)>,
    timer: StepTimer,
    streams: Vec<Stream>,
    workspaces: Workspaces,
    workspace_bytes: usize,
    regions: Vec<Buffer>,
    kernels: LoadedKernels,
}

struct LaunchContext<'a> {
    streams: &'a [Stream],
    communicators: &'a [(Vec<usize>, Communicator)],
}

impl LaunchContext<'_> {
    fn enqueue(&self, ready: &mut CardProgram, index: usize) -> Result<()> {
        let kind = ready.plan.steps[index].stream as usize;
        let stream = &self.streams[kind];
        if let Some(Some(text)) = ready.marks.get(index) {
            stream.mark(text)?;
        }
        match &mut ready.steps[index] {
            ReadyProgram::Launch(prepared) => prepared.enqueue(stream, ready.workspaces[kind].as_ref()),
            ReadyProgram::Kernel(_, kernel) => kernel.enqueue(stream),
            ReadyProgram::Exchange(exchange) => {
                exchange.enqueue(&self.communicators[exchange.communicator].1, stream)
            }
            ReadyProgram::Record(event) => stream.enqueue_record(&ready.events[*event]),
            ReadyProgram::Wait(event) => stream.enqueue_wait(&ready.events[*event]),
        }
    }
}

/// Profiler marks on streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// Streams carry no marks.
    #[default]
    None,
    /// Layer and name of each op (`aclprofMarkEx`), for profilers and emulator reports.
    EachOp,
}

/// Launch mode of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Launching {
    /// One call per step.
    #[default]
    Eager,
    /// One graph (`aclmdlRI…`). The first run of a plan is eager, the second records the graph, and
    /// later runs replay it. Timed and observed runs are always eager.
    Captured,
}

#[doc(hidden)]
impl Launching {
    /// Returns the table name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Captured => "captured",
        }
    }
}

/// How plans are launched on the streams of a card.
#[derive(Clone, Copy)]
pub(super) struct LaunchMode {
    pub(super) marks: Marks,
    pub(super) launching: Launching,
}

pub(super) enum Watch<'a> {
    Nothing,
    /// Spans from device events, on the time of the given clock.
    Times(Timed, &'a Clock, &'a mut Vec<Span>),
    Values(&'a mut dyn FnMut(usize, Vec<u8>)),
}

impl Card {
    /// Allocates memory for all plans, joins the communicators of `groups` and prepares every step.
    pub(super) fn open(
        device: Arc<Device>,
        plans: &[Arc<Plan>],
        weights: Option<Buffer>,
        groups: &[Vec<usize>],
        entrance: Entrance,
        mode: LaunchMode,
        kernels: &KernelSource,
    ) -> std::result::Result<Self, RankError> {
        let (rank, ordinal) = (plans.first().map_or(0, |plan| plan.rank), device.ordinal());
        let fail = |place: &str, source| error(rank, ordinal, Some(place.to_owned()), source);
        let taken = (|| {
            let wanted = plans.iter().map(|plan| plan.streams().len()).max().unwrap_or_default();
            let streams = (0..wanted).map(|_| Stream::new(&device)).collect::<Result<Vec<_>>>()?;
            let taken = (Self::allocate(&device, plans, weights)?, streams);
            require_room_to_meet(&device, groups.iter().filter(|ranks| ranks.contains(&rank)).count())?;
            Ok(taken)
        })();
        let (regions, streams) = taken.map_err(|source| fail("taking memory and streams", source))?;
        let kernels = kernels.load(&device).map_err(|source| fail("loading kernels", source))?;
        let Some(meetings) = entrance.pass() else {
            return Err(error(rank, ordinal, None, PeerFailed));
        };
        let mut card = Self {
            rank,
            ordinal,
            regions,
            kernels,
            streams,
            device,
            workspaces: Workspaces::default(),
            workspace_bytes: 0,
            communicators: Vec::new(),
            timer: StepTimer::default(),
            programs: Vec::new(),
        };
        let span = info_span!("join_communicators", rank).entered();
        for (ranks, root) in meetings.iter().filter(|(ranks, _)| ranks.contains(&rank)) {
            let at = ranks.iter().position(|other| *other == rank).unwrap_or(0);
            let end = Communicator::join(root, ranks.len(), at, &card.device)
                .map_err(|source| fail(&format!("meeting ranks {ranks:?}"), source))?;
            card.communicators.push((ranks.clone(), end));
        }
        span.exit();
        let programs =
            plans.iter().map(|plan| card.prepare(plan, mode)).collect::<std::result::Result<Vec<_>, _>>()?;
        card.take_workspaces(programs)?;
        Ok(card)
    }

    pub(super) fn add(&mut self, plan: &Arc<Plan>, mode: LaunchMode) -> std::result::Result<(), RankError> {
        while self.streams.len() < plan.streams().len() {
            self.streams
                .push(Stream::new(&self.device).map_err(|source| self.error("taking streams", source))?);
        }
        let program = self.prepare(plan, mode)?;
        self.take_workspaces(vec![program])
    }

    fn allocate(
        device: &Arc<Device>,
        plans: &[Arc<Plan>],
        mut weights: Option<Buffer>,
    ) -> Result<Vec<Buffer>> {
        let bytes = |region| plans.iter().map(|plan| plan.region_bytes(region)).max().unwrap_or(Bytes(0));
        let mut buffer = |region| match weights.take_if(|_| region == Region::Weights) {
            Some(weights) => Ok(weights),
            None => Buffer::new(device, to_usize(bytes(region).0.max(ALIGNMENT_BYTES))),
        };
        let regions = Region::ALL.into_iter().map(&mut buffer).collect::<Result<Vec<Buffer>>>()?;
        clear(&regions[Region::States as usize])?;
        Ok(regions)
    }

    fn prepare(&self, plan: &Arc<Plan>, mode: LaunchMode) -> std::result::Result<CardProgram, RankError> {
        let _span = debug_span!("prepare", rank = self.rank, program = plan.name).entered();
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let ready = match &step.action {
                Action::Launch(call) => self.launch(plan, call),
                Action::Exchange(exchange) => self.exchange(plan, exchange),
                Action::Record(event) => Ok(ReadyProgram::Record(event.index())),
                Action::Wait(event) => Ok(ReadyProgram::Wait(event.index())),
            };
            let place = plan.notes.get(step.op).map(ToString::to_string);
            steps.push(ready.map_err(|source| error(self.rank, self.ordinal, place, source))?);
        }
        let events = (0..plan.events).map(|_| Event::new(&self.device)).collect::<Result<Vec<Event>>>();
        let events =
            events.map_err(|source| error(self.rank, self.ordinal, Some("making events".into()), source))?;
        let inputs = vec![0; to_usize(plan.region_bytes(Region::Inputs).0)];
        let marks = match mode.marks {
            Marks::None => Vec::new(),
            Marks::EachOp => mark_texts(plan),
        };
        let recording = match mode.launching {
            Launching::Eager => GraphRecording::Never,
            Launching::Captured => GraphRecording::AfterFirstRun,
        };
        let (lengths, plan) = (LengthLaunches::of(plan), Arc::clone(plan));
        Ok(CardProgram {
            plan,
            steps,
            marks,
            events,
            inputs,
            lengths,
            recording,
            workspaces: Workspaces::default(),
        })
    }

    fn launch(&self, plan: &Plan, call: &Call) -> Result<ReadyProgram> {
        let Some(entry) = call.kernel_entry() else {
            let tensor = |view: &View| self.tensor(plan, view);
            return Ok(ReadyProgram::Launch(Box::new(prepare(call, &tensor, None)?)));
        };
        let memory = |view: &View| self.memory(plan, view);
        let prepared = prepare_kernel(call, &entry, &self.kernels, &memory)?;
        Ok(ReadyProgram::Kernel(call.name(), Box::new(prepared)))
    }

    fn memory(&self, plan: &Plan, view: &View) -> Result<BufferSlice> {
        let (region, bytes) = plan.span(view);
        self.regions[region as usize].slice(range(bytes))
    }

    fn tensor(&self, plan: &Plan, view: &View) -> Result<Tensor> {
        let slot = &plan.buffers[view.buffer];
        let slice = self.regions[slot.region as usize].slice(range(slot.range()))?;
        Tensor::with_strides(&slice, view.dtype, view.shape.clone(), &view.strides, view.offset)
    }

    fn exchange(&self, plan: &Plan, exchange: &Collective) -> Result<ReadyProgram> {
        let ranks = &plan.groups[exchange.group];
        let found = self.communicators.iter().position(|(group, _)| group == ranks);
        let missing =
            || crate::base::Diagnostic::new(format!("group {ranks:?}"), "the rank is not in this group");
        let communicator = found.ok_or_else(missing)?;
        if let Some(call) = &exchange.product {
            let tensor = |view: &View| self.tensor(plan, view);
            let prepared = prepare_joined(call, &tensor, &self.communicators[communicator].1)?;
            return Ok(ReadyProgram::Launch(Box::new(prepared)));
        }
        let (send, recv) = (self.memory(plan, &exchange.send)?, self.memory(plan, &exchange.recv)?);
        Ok(ReadyProgram::Exchange(Box::new(RankExchange::new(exchange, communicator, send, recv))))
    }

    /// Each stream gets one workspace of the largest size. Existing programs keep theirs, because
    /// graphs may contain the addresses.
    fn take_workspaces(&mut self, programs: Vec<CardProgram>) -> std::result::Result<(), RankError> {
        let mut wanted = [0; StreamKind::ALL.len()];
        for program in &programs {
            for (step, ready) in program.plan.steps.iter().zip(&program.steps) {
                let largest = &mut wanted[step.stream as usize];
                *largest = ready.workspace_bytes().max(*largest);
            }
        }
        for (at, bytes) in wanted.into_iter().enumerate() {
            if bytes > self.workspaces[at].as_ref().map_or(0, BufferSlice::len_bytes) {
                let larger = Buffer::new(&self.device, bytes);
                let larger = larger.map_err(|source| self.error("taking the workspace", source))?;
                self.workspaces[at] = Some(larger.whole());
                self.workspace_bytes += bytes;
            }
        }
        for mut program in programs {
            program.workspaces.clone_from(&self.workspaces);
            self.programs.push(program);
        }
        Ok(())
    }

    pub(super) const fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    pub(super) fn kept(&self) -> [Buffer; 2] {
        [Region::Weights, Region::States].map(|region| self.regions[region as usize].clone())
    }

    /// `inputs` are whole tensors of the right lengths, in the order of the plan.
    pub(super) fn run(
        &mut self,
        program: usize,
        inputs: &[Arc<Vec<u8>>],
        mut watch: Watch<'_>,
    ) -> std::result::Result<(), RankError> {
        let (rank, ordinal) = (self.rank, self.ordinal);
        let _span = trace_span!("run", rank, program = self.programs[program].plan.name).entered();
        let fail = |place: Option<String>| move |source| error(rank, ordinal, place, source);
        self.upload(program, inputs).map_err(fail(Some("uploading inputs".to_owned())))?;
        self.read_lengths(program)?;
        let is_plain = matches!(watch, Watch::Nothing);
        if is_plain && matches!(self.programs[program].recording, GraphRecording::Due) {
            self.record(program)?;
        }
        let replayed = match &self.programs[program].recording {
            GraphRecording::Done { graph, .. } if is_plain => {
                Some(graph.enqueue(&self.streams[StreamKind::Compute as usize]))
            }
            _ => None,
        };
        match replayed {
            Some(enqueued) => {
                if let Err(source) = enqueued.and_then(|()| self.finish()) {
                    let (place, source) = self.stopped_in_replay(program, source);
                    return Err(error(rank, ordinal, place, source));
                }
            }
            None => self.walk(program, &mut watch)?,
        }
        let recording = &mut self.programs[program].recording;
        if matches!(recording, GraphRecording::AfterFirstRun) {
            *recording = GraphRecording::Due;
        }
        Ok(())
    }

    /// Prepares launches with changed lengths again, also in the recorded graph.
    fn read_lengths(&mut self, program: usize) -> std::result::Result<(), RankError> {
        let (rank, ordinal) = (self.rank, self.ordinal);
        let CardProgram { plan, lengths, inputs, .. } = &self.programs[program];
        let plan = Arc::clone(plan);
        let wanted: Vec<_> = lengths.iter().map(|list| list.wanted(inputs)).collect();
        for (list, lengths) in
            wanted.into_iter().enumerate().filter_map(|(list, lengths)| Some((list, lengths?)))
        {
            let steps = self.programs[program].lengths[list].steps.clone();
            // The old steps are dropped after the graph no longer uses them.
            let mut before = Vec::with_capacity(steps.len());
            for &index in &steps {
                let step = &plan.steps[index];
                let fail =
                    |source| error(rank, ordinal, plan.notes.get(step.op).map(ToString::to_string), source);
                let Action::Launch(call) = &step.action else { continue };
                let tensor = |view: &View| self.tensor(&plan, view);
                let prepared = prepare(call, &tensor, Some(&lengths)).map_err(fail)?;
                let program = &mut self.programs[program];
                before.push(std::mem::replace(
                    &mut program.steps[index],
                    ReadyProgram::Launch(Box::new(prepared)),
                ));
                program.exchange_recorded(index).map_err(fail)?;
            }
            if let GraphRecording::Done { exchanged: Some(RecordedExchanges { stream, .. }), .. } =
                &self.programs[program].recording
            {
                stream
                    .synchronize()
                    .map_err(|source| self.error("exchanging operators of a graph", source))?;
            }
            self.programs[program].lengths[list].prepared = Some(lengths);
        }
        Ok(())
    }

    pub(super) fn outputs(&self, program: usize) -> std::result::Result<Vec<Vec<u8>>, RankError> {
        let download = self.download(&self.programs[program].plan);
        download.map_err(|source| self.error("downloading outputs", source))
    }

    fn walk(&mut self, program: usize, watch: &mut Watch<'_>) -> std::result::Result<(), RankError> {
        let plan = Arc::clone(&self.programs[program].plan);
        let (rank, ordinal) = (self.rank, self.ordinal);
        let device = Arc::clone(&self.device);
        let timing = |source| error(rank, ordinal, Some("timing the run".to_owned()), source);
        if let Watch::Times(wanted, clock, _) = watch {
            self.timer.begin(*wanted, &device, &self.streams, clock).map_err(timing)?;
        }
        let is_timed = matches!(watch, Watch::Times(..));
        let mut taps = plan.taps.iter().enumerate().peekable();
        for (index, step) in plan.steps.iter().enumerate() {
            let place = || plan.notes.get(step.op).map(ToString::to_string);
            let fail = |source| error(rank, ordinal, place(), source);
            if let Watch::Values(visit) = watch {
                self.show(&plan, &mut taps, index, *visit).map_err(fail)?;
            }
            if is_timed {
                self.timer.before(&device, &self.streams, index, step).map_err(timing)?;
            }
            let (ready, context) = self.parts(program);
            if let Err(source) = context.enqueue(ready, index) {
                let (place, source) = self.stopped(program, index, source, place());
                return Err(error(rank, ordinal, place, source));
            }
            if is_timed {
                self.timer.after(&device, &self.streams, step).map_err(timing)?;
            }
        }
        if is_timed {
            self.timer.end(&device, &self.streams).map_err(timing)?;
        }
        if let Err(source) = self.finish() {
            let (place, source) = self.stopped(program, plan.steps.len(), source, None);
            return Err(error(rank, ordinal, place, source));
        }
        match watch {
            Watch::Values(visit) => self
                .show(&plan, &mut taps, plan.steps.len(), *visit)
                .map_err(|source| error(rank, ordinal, None, source))?,
            Watch::Times(_, _, spans) => {
                let steps = &self.programs[program].steps;
                **spans = self.timer.spans(&plan, &|step| steps[step].name()).map_err(timing)?;
            }
            Watch::Nothing => {}
        }
        Ok(())
    }

    fn parts(&mut self, program: usize) -> (&mut CardProgram, LaunchContext<'_>) {
        let Self { programs, streams, communicators, .. } = self;
        (&mut programs[program], LaunchContext { streams, communicators })
    }

    /// Records a graph without running it. The other streams fork from the compute stream and join
    /// it at the end.
    fn record(&mut self, program: usize) -> std::result::Result<(), RankError> {
        let (rank, ordinal, device) = (self.rank, self.ordinal, Arc::clone(&self.device));
        let (ready, context) = self.parts(program);
        let plan = Arc::clone(&ready.plan);
        let _span = debug_span!("capture", rank, program = plan.name).entered();
        let whole =
            |source| error(rank, ordinal, Some(format!("capturing the program \"{}\"", plan.name)), source);
        let compute = &context.streams[StreamKind::Compute as usize];
        let is_joined = |kind: &StreamKind| {
            *kind != StreamKind::Compute && plan.steps.iter().any(|step| step.stream == *kind)
        };
        let joined =
            StreamKind::ALL.into_iter().filter(is_joined).map(|kind| &context.streams[kind as usize]);
        let events = |stream| Ok((stream, [Event::new(&device)?, Event::new(&device)?]));
        let joined = joined.map(events).collect::<Result<Vec<(&Stream, [Event; 2])>>>().map_err(whole)?;
        let exchanged = |stream| RecordedExchanges { steps: Vec::new(), stream };
        let mut exchanged = match ready.lengths.is_empty() {
            true => None,
            false => Some(Stream::new(&device).map(exchanged).map_err(whole)?),
        };
        let lead = |from: &Stream, to: &Stream, event| {
            from.enqueue_record(event)?;
            to.enqueue_wait(event)
        };
        let mut capture = compute.capture().map_err(whole)?;
        for (stream, [begin, _]) in &joined {
            lead(compute, stream, begin).map_err(whole)?;
        }
        for (index, step) in plan.steps.iter().enumerate() {
            let place = || plan.notes.get(step.op).map(ToString::to_string);
            let depends = ready.lengths.iter().any(|list| list.steps.contains(&index));
            let enqueued = match exchanged.as_mut().filter(|_| depends) {
                Some(exchanged) => {
                    exchanged.steps.push(index);
                    capture.group(|| context.enqueue(ready, index)).map(drop)
                }
                None => context.enqueue(ready, index),
            };
            enqueued.map_err(|source| error(rank, ordinal, place(), source))?;
        }
        for (stream, [_, end]) in &joined {
            lead(stream, compute, end).map_err(whole)?;
        }
        let graph = capture.end().map_err(whole)?;
        let ends = joined.into_iter().flat_map(|(_, events)| events).collect();
        ready.recording = GraphRecording::Done { graph, exchanged, _ends: ends };
        Ok(())
    }

    /// Finds the op at which a stream stopped, and the cause. `source` was reported after `issued`
    /// steps; the next step is at `place`. Errors are asynchronous, so only the completed events of
    /// the plan identify the op.
    fn stopped(
        &self,
        program: usize,
        issued: usize,
        source: Error,
        place: Option<String>,
    ) -> (Option<String>, Error) {
        let CardProgram { plan, events, steps, .. } = &self.programs[program];
        // A waiting stream has not failed.
        let kinds = StreamKind::ALL.into_iter().zip(&self.streams);
        let mut failed: Vec<_> =
            kinds.filter_map(|(kind, stream)| Some((kind, stream.is_idle().err()?))).collect();
        // A lost peer is not the cause if another stream failed otherwise.
        if failed.iter().any(|(_, failure)| failure.kind() != ErrorKind::PeerLost) {
            failed.retain(|(_, failure)| failure.kind() != ErrorKind::PeerLost);
        }
        let is_done = |event: usize| events[event].is_done().unwrap_or(false);
        let name = |step: usize| match &steps[step] {
            ReadyProgram::Exchange(_) => "",
            ready => ready.name(),
        };
        // Both streams report the same error. Errors about other ranks belong to a collective.
        let is_of_ranks =
            |failure: &Error| matches!(failure.kind(), ErrorKind::PeerLost | ErrorKind::Timeout);
        let cause = failed
            .into_iter()
            .min_by_key(|(kind, failure)| is_of_ranks(failure) != (*kind != StreamKind::Compute));
        let Some((kind, failure)) = cause else { return (place, source) };
        let progress = RankProgress { plan, issued, stream: Some(kind), is_done: &is_done, operator: &name };
        let place = stopped_at(&progress, &failure.to_string()).or(place);
        (place, if failure.kind() == source.kind() { source } else { failure })
    }

    /// All errors of a graph appear on its launch stream, and its events cannot be queried. Only
    /// the operator name in the message is available.
    fn stopped_in_replay(&self, program: usize, source: Error) -> (Option<String>, Error) {
        let CardProgram { plan, steps, .. } = &self.programs[program];
        let name = |step: usize| steps[step].name();
        let progress = RankProgress {
            plan,
            issued: plan.steps.len(),
            stream: None,
            is_done: &|_| false,
            operator: &name,
        };
        let place = stopped_at(&progress, &source.to_string());
        let place = place.map_or_else(String::new, |place| format!(", {place}"));
        (Some(format!("replay of the program \"{}\"{place}", plan.name)), source)
    }

    fn finish(&self) -> Result<()> {
        self.streams.iter().try_for_each(Stream::synchronize)
    }

    fn upload(&mut self, program: usize, inputs: &[Arc<Vec<u8>>]) -> Result<()> {
        let CardProgram { plan, inputs: image, .. } = &mut self.programs[program];
        for (tensor, whole) in plan.inputs.iter().zip(inputs) {
            let bytes = tensor.cut(whole);
            let start = to_usize(plan.slot(tensor).offset.0);
            image[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        if image.is_empty() { Ok(()) } else { self.regions[Region::Inputs as usize].write(0, image) }
    }

    fn download(&self, plan: &Plan) -> Result<Vec<Vec<u8>>> {
        let read = |tensor: &Slot| {
            let slot = plan.slot(tensor);
            let mut bytes = vec![0; to_usize(slot.bytes.0)];
            self.regions[Region::Outputs as usize].read(to_usize(slot.offset.0), &mut bytes)?;
            Ok(bytes)
        };
        plan.outputs.iter().map(read).collect()
    }

    fn show<'a>(
        &self,
        plan: &Plan,
        taps: &mut std::iter::Peekable<impl Iterator<Item = (usize, &'a crate::schedule::plan::Tap)>>,
        index: usize,
        visit: &mut dyn FnMut(usize, Vec<u8>),
    ) -> Result<()> {
        let mut waited = false;
        while let Some((at, tap)) = taps.next_if(|(_, tap)| tap.after_steps <= index) {
            if !waited {
                self.finish()?;
                waited = true;
            }
            let (region, bytes) = plan.span(&tap.view);
            let mut span = vec![0; to_usize(bytes.end - bytes.start)];
            if !span.is_empty() {
                self.regions[region as usize].read(to_usize(bytes.start), &mut span)?;
            }
            visit(at, tap.view.gather(&span));
        }
        Ok(())
    }

    pub(super) fn abort(&mut self) {
        for (_, communicator) in self.communicators.drain(..) {
            // A second error would hide the first.
            let _ignored = communicator.abort();
        }
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn error(
        &self,
        place: &str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> RankError {
        error(self.rank, self.ordinal, Some(place.to_owned()), source)
    }
}

/// Writes zeros to the states. Hidden rows of the KV cache enter a product with weight 0, so they
/// must not be NaN.
pub(super) fn clear(states: &Buffer) -> Result<()> {
    let zeros = vec![0; STAGING_BYTES.min(states.len_bytes())];
    let mut starts = (0..states.len_bytes()).step_by(STAGING_BYTES);
    let write = |start: usize| states.write(start, &zeros[..zeros.len().min(states.len_bytes() - start)]);
    starts.try_for_each(write)
}

/// Checks the memory for the communicator buffers: a rank that failed only while joining would
/// block the other ranks.
fn require_room_to_meet(device: &Device, communicators: usize) -> Result<()> {
    let wanted = Bytes(communicators as u64 * Communicator::buffer_bytes().0);
    let free = device.memory()?.free;
    if wanted <= free {
        return Ok(());
    }
    Err(crate::base::Diagnostic::new(
        "card",
        format!("no memory for the buffers of {communicators} communicators"),
    )
    .expected(format!("{wanted} free (2 × HCCL_BUFFSIZE each)"))
    .found(free)
    .into())
}

fn error(
    rank: usize,
    card: usize,
    place: Option<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> RankError {
    RankError { rank, card, place, source: source.into(), at: Instant::now() }
}

/// Offsets of an allocated plan fit in `usize`.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn range(bytes: std::ops::Range<u64>) -> std::ops::Range<usize> {
    to_usize(bytes.start)..to_usize(bytes.end)
}
