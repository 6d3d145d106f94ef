//! Runs the ranks of one process, one thread per rank.
//!
//! Invariant: a call returns when every local rank has answered or another process has failed.
//! After such a failure, ranks that do not answer are abandoned, because their peers will never
//! arrive.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crossbeam_channel::{Receiver, after, never, select_biased, unbounded};

use crate::base::{Bytes, Diagnostic, Diagnostics, Kernels};
use crate::device::{Buffer, Cann, Device, KernelSource, RootInfo};
use crate::schedule::plan::{Plan, Region, Tensor};
use crate::timeline::Span;
use crate::world::ProcessGroup;

use super::card::{LaunchMode, Launching, Marks, clear};
use super::checks::{
    capture_problem, groups, kernel_problems, length_problems, memory_problem, operator_problems,
    regions_wanted, shared_problems, weights_problems,
};
use super::error::{Error, RankError};
use super::gate::{Gate, GroupRoot};
use super::rank::{
    EngineEvent, GRACE, RankAnswer, RankCommand, RankRun, RankStart, RankThread, Shown, WantedOutputs,
    join_all,
};
use super::shards::{LoadStop, LoadedShard, Shards};
use super::tensors::NamedTensors;
use super::timing::{Clock, Timed};

/// A value observed during a run.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The rank that was observed.
    pub rank: usize,
    /// Tap index in the plan.
    pub tap: usize,
    /// The rank's shard, row-major.
    pub bytes: Vec<u8>,
}

/// Index of a program: first the programs of [`Engine::start`], then the added programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramId(pub usize);

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Processes of the world. If there are several, process `n` runs rank `n`.
    pub group: Arc<ProcessGroup>,
    /// Profiler marks on the streams.
    pub marks: Marks,
    /// Launch mode of the steps.
    pub launching: Launching,
    /// Kernels that the plans were compiled for.
    pub kernels: KernelSource,
    /// Device of each rank, if this process runs all ranks. By default, rank `n` uses device `n`.
    pub cards: Vec<usize>,
    /// Clock for the start and end of a run, see [`Engine::run_times`].
    pub clock: Option<Clock>,
    /// Set by any thread: loading stops and new runs are refused, but the current run completes.
    pub stop: Arc<AtomicBool>,
    /// Weights of another engine on the same devices, used without a copy. [`Engine::load`] then
    /// receives only states. Either engine may be dropped first.
    pub weights: Option<SharedWeights>,
}

/// Weights that engines can share, from [`Engine::weights`].
#[derive(Clone)]
pub struct SharedWeights {
    plans: Vec<Arc<Plan>>,
    memories: Vec<(usize, Buffer)>,
}

impl std::fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedWeights")
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            group: Arc::new(ProcessGroup::alone()),
            marks: Marks::default(),
            launching: Launching::default(),
            kernels: KernelSource::default(),
            cards: Vec::new(),
            clock: None,
            stop: Arc::default(),
            weights: None,
        }
    }
}

/// The local ranks with devices, weights and states.
///
/// ```
/// # use ascend_tp::{DType, Mesh, Pins, Target};
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// # let mut build = ascend_tp::compiler::Builder::new("linear");
/// # let x = build.input("x", [1, 2], DType::F32);
/// # let w = build.param("w", [2, 2], DType::F32);
/// # let y = build.matmul("bi,oi->bo", x, w);
/// # build.output("y", y);
/// # let (mesh, pins) = (Mesh::new(&[("tp", 2)])?, Pins::default());
/// # let plans = ascend_tp::compile(&build.finish()?, &mesh, &pins, Target::ANY)?.plans;
///
/// use ascend_tp::{Engine, EngineOptions, NamedTensors, ProgramId};
///
/// // `plans` are those of `y = x · wᵀ`, one for each rank.
/// let mut engine = Engine::start(&cann, vec![plans], &EngineOptions::default())?;
/// engine.fill(&NamedTensors::new().with("w", vec![1.0_f32, 0.0, 0.0, 2.0]))?;
/// let inputs = NamedTensors::new().with("x", vec![3.0_f32, 4.0]);
/// let y = engine.run(ProgramId(0), &inputs)?.get("y")?;
/// assert_eq!(y.floats(), [3.0, 8.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    stop_signal: LoadStop,
    ranks: Vec<RankThread>,
    /// Commands that not all local ranks have answered, the oldest first.
    commands: VecDeque<PendingCommand>,
    shards: Vec<LoadedShard>,
    events: Receiver<EngineEvent>,
    programs: Vec<Vec<Arc<Plan>>>,
    workspace_bytes: Vec<Bytes>,
    run_times: Vec<std::ops::Range<u64>>,
    spans: Vec<Span>,
    stopped: bool,
    lost: Vec<usize>,
    launches: LaunchSetup,
    /// False if another engine owns the weights.
    has_own_weights: bool,
}

/// A command to the local ranks. Each rank answers its commands in order.
struct PendingCommand {
    /// The program that runs, if the command is a run.
    program: Option<ProgramId>,
    /// One entry per local rank.
    answers: Vec<Option<Result<RankAnswer, RankError>>>,
}

struct LaunchSetup {
    cann: Arc<Cann>,
    kernels: Kernels,
    launching: Launching,
}

impl LaunchSetup {
    fn problems(&self, programs: &[Vec<Arc<Plan>>]) -> Diagnostics {
        let mut problems = Diagnostics::new();
        let found = kernel_problems(self.kernels, programs)
            .into_iter()
            .chain(operator_problems(&self.cann, programs))
            .chain(length_problems(programs));
        let is_captured = self.launching == Launching::Captured;
        let captured = if is_captured { capture_problem(&self.cann, programs) } else { None };
        found.chain(captured).for_each(|problem| problems.push(problem));
        problems
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("ranks", &self.ranks.len())
            .field("programs", &self.programs.len())
            .finish()
    }
}

fn local_ranks(
    world: usize,
    cards: usize,
    options: &EngineOptions,
    problems: &mut Diagnostics,
) -> Vec<(usize, usize)> {
    let group = &options.group;
    if group.size() > 1 {
        if group.size() != world {
            let problem = Diagnostic::new("ranks", "the plans are compiled for another number of processes");
            problems.push(problem.expected(group.size()).found(world).help("each process runs one rank"));
        }
        return vec![(group.rank(), group.card().unwrap_or(0))];
    }
    let card = |rank| options.cards.get(rank).copied().unwrap_or(rank);
    let local: Vec<(usize, usize)> = (0..world).map(|rank| (rank, card(rank))).collect();
    let wanted = local.iter().map(|(_, card)| card + 1).max().unwrap_or(0);
    if wanted == 0 || wanted > cards {
        let problem =
            Diagnostic::new("cards", "there are not enough").expected(format!("1 to {cards}")).found(wanted);
        problems.push(problem.help("use fewer cards, or give the emulator more"));
    }
    local
}

/// Checks that given weights are on the same device and that the other regions fit the free memory.
fn shared_weights(
    programs: &[Vec<Arc<Plan>>],
    local: &[(usize, usize)],
    devices: &[Arc<Device>],
    given: Option<&SharedWeights>,
) -> Result<Vec<Option<Buffer>>, Error> {
    let mut problems = Diagnostics::new();
    let mut memories = Vec::with_capacity(devices.len());
    for (at, ((rank, card), device)) in local.iter().zip(devices).enumerate() {
        let shared = given.and_then(|weights| weights.memories.get(at));
        if let Some((other, _)) = shared.filter(|(other, _)| other != card) {
            let problem = Diagnostic::new(format!("rank {rank}"), "its weights are on another card");
            problems.push(problem.expected(format!("card {other}")).found(card));
            continue;
        }
        memories.push(shared.map(|(_, memory)| memory.shared_with(device)).transpose()?);
        let short = memory_problem(programs, *rank, device, given.is_some())?;
        short.into_iter().for_each(|problem| problems.push(problem));
    }
    problems.into_result(memories).map_err(Error::from)
}

impl Engine {
    /// Starts one thread per local rank and prepares all plans. `programs` contains the plans of
    /// all ranks for each program. Programs share weights and states. All processes of the world
    /// must call this function with the same plans.
    ///
    /// # Errors
    /// Before any device is opened, all of: too few devices, differently placed weights or states,
    /// missing operators, unsupported capture, too little memory. Afterwards: an error of a device
    /// or of another process.
    pub fn start(cann: &Arc<Cann>, programs: Vec<Vec<Plan>>, options: &EngineOptions) -> Result<Self, Error> {
        Self::start_here(cann, programs, options).inspect_err(|error| tell_peers(&options.group, error))
    }

    fn start_here(
        cann: &Arc<Cann>,
        programs: Vec<Vec<Plan>>,
        options: &EngineOptions,
    ) -> Result<Self, Error> {
        let programs: Vec<Vec<Arc<Plan>>> =
            programs.into_iter().map(|plans| plans.into_iter().map(Arc::new).collect()).collect();
        let mut problems = shared_problems(&programs);
        let launches = LaunchSetup {
            cann: Arc::clone(cann),
            kernels: options.kernels.kernels(),
            launching: options.launching,
        };
        problems.append(launches.problems(&programs));
        if let Some((weights, first)) = options.weights.as_ref().zip(programs.first()) {
            weights_problems(&weights.plans, first).into_iter().for_each(|problem| problems.push(problem));
        }
        let local =
            local_ranks(programs.first().map_or(0, Vec::len), cann.device_count()?, options, &mut problems);
        problems.into_result(())?;
        let devices =
            local.iter().map(|(_, card)| Device::open(cann, *card)).collect::<Result<Vec<_>, _>>()?;
        let weights = shared_weights(&programs, &local, &devices, options.weights.as_ref())?;
        let (sender, events) = unbounded();
        let mut gate = Gate::default();
        let shared = RankStart {
            groups: Arc::new(groups(&programs).into_iter().cloned().collect()),
            mode: LaunchMode { marks: options.marks, launching: options.launching },
            kernels: options.kernels.clone(),
            clock: options.clock.clone(),
            events: sender,
        };
        let ranks = local.iter().zip(&devices).zip(weights).map(|(((rank, _), device), weights)| {
            let plans = programs.iter().map(|plans| Arc::clone(&plans[*rank])).collect();
            RankThread::start(Arc::clone(device), plans, weights, gate.entrance(), &shared)
        });
        let mut engine = Self {
            stop_signal: LoadStop { stop: Arc::clone(&options.stop), group: Arc::clone(&options.group) },
            ranks: ranks.collect(),
            commands: VecDeque::new(),
            shards: Vec::new(),
            events,
            programs,
            workspace_bytes: Vec::new(),
            run_times: Vec::new(),
            spans: Vec::new(),
            stopped: false,
            lost: Vec::new(),
            launches,
            has_own_weights: options.weights.is_none(),
        };
        engine.open(gate, shared, devices)?;
        Ok(engine)
    }

    fn open(&mut self, gate: Gate, shared: RankStart, devices: Vec<Arc<Device>>) -> Result<(), Error> {
        self.expect_answers(None);
        let listening = shared.events.clone();
        self.stop_signal.group.on_failure(move |failure| {
            let _unheard = listening.send(EngineEvent::Peer(failure.clone()));
        });
        let met = if gate.wait() {
            self.meet(&shared.groups, &devices).map(|meetings| gate.open(meetings))
        } else {
            drop(gate);
            Ok(())
        };
        drop((shared, devices));
        // If the gate stays closed, the cause is this error, or an answer of a rank.
        let opened = self.collect(drop);
        met?;
        let opened = opened?;
        let workspaces = workspace_bytes(&opened);
        let memories = opened.into_iter().filter_map(|answer| match answer {
            RankAnswer::Opened { kept, .. } => Some(kept),
            RankAnswer::Prepared { .. } | RankAnswer::Ran(_) => None,
        });
        let shard = |(thread, [weights, states]): (&RankThread, [Buffer; 2])| LoadedShard {
            plan: Arc::clone(&self.programs[0][thread.rank]),
            card: thread.card,
            weights,
            states,
        };
        self.shards = self.ranks.iter().zip(memories).map(shard).collect();
        self.share_workspaces(workspaces)
    }

    /// Prepares another program on all ranks, in the existing memory. All processes must call this
    /// function at the same time.
    ///
    /// # Errors
    /// - The plans place weights or states differently, need unsupported launches, more memory or
    ///   other groups, or differ between processes.
    /// - A rank failed, which stops the engine.
    #[doc(hidden)]
    pub fn add_program(&mut self, plans: Vec<Plan>) -> Result<ProgramId, Error> {
        self.check_open()?;
        let added = [plans.into_iter().map(Arc::new).collect::<Vec<Arc<Plan>>>()];
        let mut problems = shared_problems(&[self.programs[0].clone(), added[0].clone()]);
        if problems.is_empty() {
            self.memory_problems(&added[0], &mut problems);
        }
        problems.append(self.launches.problems(&added));
        problems.into_result(())?;
        let all = self.stop_signal.group.exchange("the plans", digest(&added).to_le_bytes().to_vec())?;
        same_plans(&all)?;
        let ranks: Vec<usize> = self.ranks.iter().map(|thread| thread.rank).collect();
        self.tell(None, |at| RankCommand::Prepare(Arc::clone(&added[0][ranks[at]])))?;
        let workspaces = workspace_bytes(&self.collect(drop)?);
        self.share_workspaces(workspaces)?;
        self.programs.extend(added);
        Ok(ProgramId(self.programs.len() - 1))
    }

    /// Returns whether the allocated memory fits more plans.
    #[must_use]
    #[doc(hidden)]
    pub fn has_room(&self, plans: &[Plan]) -> bool {
        plans.iter().enumerate().all(|(rank, plan)| self.too_small(rank, plan).next().is_none())
    }

    fn too_small(&self, rank: usize, plan: &Plan) -> impl Iterator<Item = (Region, Bytes, Bytes)> {
        let there = Region::ALL.into_iter().zip(regions_wanted(&self.programs, rank));
        there
            .map(|(region, has)| (region, plan.region_bytes(region), has))
            .filter(|(_, wanted, has)| wanted > has)
    }

    fn memory_problems(&self, plans: &[Arc<Plan>], problems: &mut Diagnostics) {
        let known = groups(&self.programs);
        for (rank, plan) in plans.iter().enumerate() {
            for (region, wanted, has) in self.too_small(rank, plan) {
                let what =
                    format!("program \"{}\" has too little memory for its {}", plan.name, region.name());
                let problem = Diagnostic::new(format!("rank {rank}"), what);
                problems.push(problem.expected(format!("at most {has}, taken at the start")).found(wanted));
            }
            if let Some(ranks) = plan.groups.values().iter().find(|ranks| !known.contains(ranks)) {
                problems
                    .push(Diagnostic::new(format!("rank {rank}"), format!("ranks {ranks:?} have not met")));
            }
        }
    }

    fn share_workspaces(&mut self, own: Vec<u8>) -> Result<(), Error> {
        let all = self.stop_signal.group.exchange("the workspaces", own)?.concat();
        let bytes = |bytes: &[u8]| Bytes(bytes.try_into().map_or(0, u64::from_le_bytes));
        self.workspace_bytes = all.chunks(8).map(bytes).collect();
        Ok(())
    }

    fn meet(&self, groups: &[Vec<usize>], devices: &[Arc<Device>]) -> Result<Vec<GroupRoot>, Error> {
        let mut mine = digest(&self.programs).to_le_bytes().to_vec();
        for (index, ranks) in groups.iter().enumerate() {
            if let Some(at) = self.ranks.iter().position(|thread| thread.rank == ranks[0]) {
                mine.extend((index as u64).to_le_bytes());
                mine.extend(RootInfo::create(&devices[at])?.to_bytes());
            }
        }
        let all = self.stop_signal.group.exchange("the plans", mine)?;
        same_plans(&all)?;
        let mut roots: Vec<Option<RootInfo>> = vec![None; groups.len()];
        for bytes in &all {
            let mut rest = bytes.get(8..).unwrap_or_default();
            while let Some((head, tail)) = rest.split_at_checked(8 + RootInfo::LEN_BYTES) {
                let (index, root) = head.split_at(8);
                let index = index.try_into().map_or(u64::MAX, u64::from_le_bytes);
                if let Some(place) = usize::try_from(index).ok().and_then(|index| roots.get_mut(index)) {
                    *place = Some(RootInfo::from_bytes(root)?);
                }
                rest = tail;
            }
        }
        let meeting = |(ranks, root): (&Vec<usize>, Option<RootInfo>)| {
            let missing =
                || Diagnostic::new(format!("group {ranks:?}"), "no process created a token for the group");
            Ok((ranks.clone(), root.ok_or_else(|| Diagnostics::from(missing()))?))
        };
        groups.iter().zip(roots).map(meeting).collect()
    }

    /// Returns the weights for another engine on the same devices.
    #[must_use]
    #[doc(hidden)]
    pub fn weights(&self) -> SharedWeights {
        let memories = self.shards.iter().map(|shard| (shard.card, shard.weights.clone()));
        SharedWeights { plans: self.programs[0].clone(), memories: memories.collect() }
    }

    /// Returns the plans of a program by rank; empty for an unknown program.
    #[must_use]
    #[doc(hidden)]
    pub fn plans(&self, program: ProgramId) -> &[Arc<Plan>] {
        self.programs.get(program.0).map_or(&[], Vec::as_slice)
    }

    /// Returns the device memory of a rank: each region, and the operator workspace. Empty for an
    /// unknown rank.
    #[must_use]
    #[doc(hidden)]
    pub fn memory(&self, rank: usize) -> Vec<(&'static str, Bytes)> {
        if self.programs[0].len() <= rank {
            return Vec::new();
        }
        let regions = Region::ALL.map(Region::name).into_iter().zip(regions_wanted(&self.programs, rank));
        regions.chain([("workspace", self.workspace_bytes.get(rank).copied().unwrap_or_default())]).collect()
    }

    /// Lets `fill` write or read the weights and states of all local ranks, except weights of
    /// another engine.
    ///
    /// # Errors
    /// `fill` or a device failed, which stops the engine.
    #[doc(hidden)]
    pub fn load(&mut self, fill: impl FnOnce(&Shards<'_>) -> Result<(), Error>) -> Result<(), Error> {
        self.check_open()?;
        let all = Shards::new(&self.shards, &self.stop_signal);
        let own = if self.has_own_weights { all } else { all.only(|_| false) };
        fill(&own).inspect_err(|error| {
            self.stopped = true;
            tell_peers(&self.stop_signal.group, error);
        })
    }

    /// Writes zeros to the states of all local ranks. No run may be queued.
    ///
    /// # Errors
    /// A device failed.
    #[doc(hidden)]
    pub fn clear_states(&mut self) -> Result<(), Error> {
        self.check_open()?;
        self.shards.iter().try_for_each(|shard| clear(&shard.states)).map_err(Error::from)
    }

    /// Writes whole tensors to the weights and states of all local ranks. States are optional.
    ///
    /// # Errors
    /// - Weights are missing, unknown, or have another shape or type; all are reported before any
    ///   write.
    /// - A device failed. Every error stops the engine.
    pub fn fill(&mut self, tensors: &NamedTensors) -> Result<(), Error> {
        self.load(|shards| shards.fill(tensors))
    }

    /// Runs a program on all ranks and waits.
    ///
    /// # Errors
    /// - The program does not exist, or the inputs do not match; all problems are reported before
    ///   anything runs.
    /// - A rank failed, which stops the engine.
    pub fn run(&mut self, program: ProgramId, inputs: &NamedTensors) -> Result<NamedTensors, Error> {
        self.begin(program, inputs, Timed::No)?.finish()
    }

    /// Starts a program on all ranks without waiting.
    ///
    /// # Errors
    /// The program does not exist, the inputs do not match, or the engine is stopped.
    #[doc(hidden)]
    pub fn begin(
        &mut self,
        program: ProgramId,
        inputs: &NamedTensors,
        timed: Timed,
    ) -> Result<Run<'_>, Error> {
        self.enqueue(program, inputs, timed)?;
        Ok(Run { engine: self, is_open: true })
    }

    /// Queues a run of a program on all ranks without waiting. Ranks run their queues in order.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    #[doc(hidden)]
    pub fn enqueue(&mut self, program: ProgramId, inputs: &NamedTensors, timed: Timed) -> Result<(), Error> {
        self.start_run(program, inputs, Shown::Times(timed))
    }

    /// Waits for the oldest queued run and returns its outputs.
    ///
    /// # Errors
    /// A rank failed, which stops the engine.
    #[doc(hidden)]
    pub fn wait(&mut self) -> Result<NamedTensors, Error> {
        self.finish_run(drop)
    }

    /// Returns the start and end of the last run on each local rank. Without a clock, timed runs
    /// use the host clock and other runs return nothing.
    #[must_use]
    #[doc(hidden)]
    pub fn run_times(&self) -> &[std::ops::Range<u64>] {
        &self.run_times
    }

    /// Returns the spans of the last run on local ranks; empty if it was not timed.
    #[must_use]
    #[doc(hidden)]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Runs a program and passes every named value of the local ranks to `observe`. Ranks stop at
    /// each value, so this is slow.
    ///
    /// # Errors
    /// As [`Engine::run`].
    #[doc(hidden)]
    pub fn run_observed(
        &mut self,
        program: ProgramId,
        inputs: &NamedTensors,
        observe: impl FnMut(Observation),
    ) -> Result<NamedTensors, Error> {
        self.start_run(program, inputs, Shown::Values)?;
        self.finish_run(observe)
    }

    fn finish_run(&mut self, observe: impl FnMut(Observation)) -> Result<NamedTensors, Error> {
        let program = self.commands.front().and_then(|command| command.program);
        let runs = self.collect(observe)?.into_iter().filter_map(|answer| match answer {
            RankAnswer::Ran(run) => Some(run),
            RankAnswer::Opened { .. } | RankAnswer::Prepared { .. } => None,
        });
        let mut runs: Vec<RankRun> = runs.collect();
        self.run_times = runs.iter().filter_map(|run| run.time.clone()).collect();
        self.spans = runs.iter_mut().flat_map(|run| std::mem::take(&mut run.spans)).collect();
        let outputs = runs.into_iter().next().map_or_else(Vec::new, |run| run.outputs);
        let plan = program.and_then(|program| self.programs[program.0].first());
        Ok(NamedTensors::of_outputs(plan.into_iter().flat_map(|plan| &plan.outputs).zip(outputs)))
    }

    fn start_run(&mut self, program: ProgramId, inputs: &NamedTensors, shown: Shown) -> Result<(), Error> {
        self.check_open()?;
        let plans = self.programs.get(program.0).ok_or_else(|| {
            let problem = Diagnostic::new("program", "does not exist");
            Diagnostics::from(problem.expected(format!("below {}", self.programs.len())).found(program.0))
        })?;
        let wanted: Vec<&Tensor> = plans[0].inputs.iter().collect();
        let inputs =
            Arc::new(inputs.in_order("input", &wanted, &[])?.into_iter().flatten().collect::<Vec<_>>());
        self.tell(Some(program), move |at| {
            let wanted = if at == 0 { WantedOutputs::Outputs } else { WantedOutputs::Nothing };
            RankCommand::Run { program: program.0, inputs: Arc::clone(&inputs), shown, wanted }
        })
    }

    fn expect_answers(&mut self, program: Option<ProgramId>) {
        let answers = self.ranks.iter().map(|_| None).collect();
        self.commands.push_back(PendingCommand { program, answers });
    }

    fn tell(
        &mut self,
        program: Option<ProgramId>,
        command: impl Fn(usize) -> RankCommand,
    ) -> Result<(), Error> {
        self.check_open()?;
        self.expect_answers(program);
        self.ranks.iter().enumerate().for_each(|(at, thread)| thread.tell(command(at)));
        Ok(())
    }

    fn check_open(&mut self) -> Result<(), Error> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        self.stop_signal.check().inspect_err(|error| self.stopped |= matches!(error, Error::Peer { .. }))
    }

    /// Waits for the answers of all local ranks to the oldest command, sorted by rank. Passes the
    /// observed values to `observe`.
    fn collect(&mut self, mut observe: impl FnMut(Observation)) -> Result<Vec<RankAnswer>, Error> {
        let (mut peer, mut grace) = (None, never());
        while self.commands.front().is_some_and(|command| command.answers.iter().any(Option::is_none)) {
            let event = select_biased! {
                recv(self.events) -> event => event,
                recv(grace) -> _over => break,
            };
            match event {
                Ok(EngineEvent::Value(observation)) => observe(observation),
                Ok(EngineEvent::Answer(rank, answer)) => {
                    let at = self.ranks.iter().position(|thread| thread.rank == rank);
                    let mut unanswered = self.commands.iter_mut().filter_map(|it| it.answers.get_mut(at?));
                    if let Some(place) = unanswered.find(|answer| answer.is_none()) {
                        *place = Some(answer);
                    }
                }
                Ok(EngineEvent::Peer(failure)) => {
                    (peer, grace) = (Some(failure), after(GRACE));
                }
                Err(_) => break,
            }
        }
        let answers = self.commands.pop_front().map_or_else(Vec::new, |command| command.answers);
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (thread, answer) in self.ranks.iter().zip(answers) {
            match answer {
                Some(Ok(answer)) => done.push(answer),
                Some(Err(error)) => failed.push(error),
                None => self.lost.push(thread.rank),
            }
        }
        if failed.is_empty() && self.lost.is_empty() {
            return Ok(done);
        }
        self.stopped = true;
        let is_caused_here = failed.iter().any(|error| !error.is_consequence());
        if !is_caused_here && self.stop_signal.group.size() > 1 {
            // The other process is about to report the cause.
            let known = peer.or_else(|| self.stop_signal.group.failure_within(GRACE));
            if let Some(failure) = known {
                return Err(Error::Peer { failure, here: failed });
            }
        }
        failed.extend(self.lost.iter().map(|rank| RankError {
            rank: *rank,
            card: self.ranks.iter().find(|thread| thread.rank == *rank).map_or(0, |thread| thread.card),
            place: None,
            source: "the rank's thread ended without an answer".into(),
            at: Instant::now(),
        }));
        let error = Error::of_ranks(failed);
        tell_peers(&self.stop_signal.group, &error);
        Err(error)
    }
}

/// A running program. Dropping it waits for the ranks.
#[must_use = "the outputs come from `finish`"]
#[derive(Debug)]
pub struct Run<'a> {
    engine: &'a mut Engine,
    is_open: bool,
}

impl Run<'_> {
    /// Waits and returns the outputs.
    ///
    /// # Errors
    /// A rank failed, which stops the engine.
    pub fn finish(mut self) -> Result<NamedTensors, Error> {
        self.is_open = false;
        self.engine.wait()
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // The next call reports a failure.
            let _unheard = self.engine.collect(drop);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for thread in &mut self.ranks {
            thread.dismiss();
        }
        join_all(&mut self.ranks, &self.lost, &self.stop_signal.group);
    }
}

fn tell_peers(group: &ProcessGroup, error: &Error) {
    if !matches!(error, Error::Peer { .. } | Error::Stopped | Error::Interrupted) {
        group.fail(&error.to_string());
    }
}

fn same_plans(all: &[Vec<u8>]) -> Result<(), Diagnostics> {
    let digest = |bytes: &[u8]| bytes.first_chunk::<8>().copied();
    let Some(rank) = all.iter().position(|bytes| digest(bytes) != digest(&all[0])) else { return Ok(()) };
    Err(Diagnostic::new(format!("rank {rank}"), "compiled different plans than rank 0")
        .help("start all processes with the same version, model and options")
        .into())
}

fn workspace_bytes(answers: &[RankAnswer]) -> Vec<u8> {
    let bytes = answers.iter().filter_map(|answer| match answer {
        RankAnswer::Opened { workspace_bytes, .. } | RankAnswer::Prepared { workspace_bytes } => {
            Some(*workspace_bytes as u64)
        }
        RankAnswer::Ran(_) => None,
    });
    bytes.flat_map(u64::to_le_bytes).collect()
}

fn digest(programs: &[Vec<Arc<Plan>>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for plan in programs.iter().filter_map(|plans| plans.first()) {
        hasher.write(plan.to_string().as_bytes());
        hasher.write_usize(plan.world);
    }
    hasher.finish()
}
