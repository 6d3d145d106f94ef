//! The ranks of one process: a thread each, told what to do through channels.
//!
//! Input → output: the plans of all ranks of the world → the ranks of this process, started
//! together with those of the others. Invariants: a call returns when every rank here has answered,
//! or when another process has failed; a rank that does not answer then is left behind, because
//! what it waits for will never come.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, after, never, select_biased, unbounded};

use crate::base::{Bytes, Diagnostic, Diagnostics, Kernels};
use crate::device::{Buffer, Cann, Device, KernelSource, RootInfo};
use crate::schedule::plan::{Plan, Region, Tensor};
use crate::timeline::Span;
use crate::world::ProcessGroup;

use super::card::{Launching, Marks};
use super::checks::{
    capture_problem, groups, kernel_problems, memory_problem, operator_problems, regions_wanted,
    shared_problems, weights_problems,
};
use super::error::{Error, RankError};
use super::gate::{Gate, GroupRoot};
use super::rank::{Answer, Command, EngineEvent, RankRun, RankStart, RankThread, Shown, WantedOutputs};
use super::shards::{Shard, Shards, StopSignal};
use super::tensors::NamedTensors;
use super::timing::Timed;

/// A named value on one rank, as it was while a plan ran.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The rank that was observed.
    pub rank: usize,
    /// Which of the plan's taps.
    pub tap: usize,
    /// The rank's part, row-major.
    pub bytes: Vec<u8>,
}

/// What time it is for the calling thread, in nanoseconds: that of the machine, if it keeps one of
/// its own.
#[derive(Clone)]
pub struct Clock(pub Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// That of this host, which all its processes have in common: since 1970.
    #[must_use]
    pub fn of_host() -> Self {
        let since = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Arc::new(move || u64::try_from(since().as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time now.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// A program of an engine, by its place: those that the engine was started with in their order,
/// then each that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramId(pub usize);

/// How an engine runs, besides its plans.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The processes of the world. If there are several, each runs the rank of its own number.
    pub group: Arc<ProcessGroup>,
    /// Whether streams are marked with what runs on them.
    pub marks: Marks,
    /// How steps reach the cards.
    pub launching: Launching,
    /// Where cards have kernels from; plans are compiled for those there are.
    pub kernels: KernelSource,
    /// The card of each rank, if this process runs all of them; those that are not named here have
    /// the cards of their own numbers.
    pub cards: Vec<usize>,
    /// What each rank reads before and after a run, for [`Engine::run_times`].
    pub clock: Option<Clock>,
    /// Set to true from any thread, ends loading and refuses further runs; a run that has begun
    /// comes to its end.
    pub stop: Arc<AtomicBool>,
    /// The weights of another engine on the same cards, which stay where they are: [`Engine::load`]
    /// is shown the states alone, and either engine may go first.
    pub weights: Option<SharedWeights>,
}

/// Weights that an engine has on its cards, from [`Engine::weights`].
#[derive(Clone)]
pub struct SharedWeights {
    /// Of a program that has them, by rank of the world.
    plans: Vec<Arc<Plan>>,
    /// By rank of a process: its card, and the memory there.
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

/// How long a rank may take to notice by itself that another process is gone, before it is left
/// behind.
const GRACE: Duration = Duration::from_millis(800);

/// The ranks of one process with their cards, weights and states.
pub struct Engine {
    stop_signal: StopSignal,
    ranks: Vec<RankThread>,
    /// By rank of this process.
    shards: Vec<Shard>,
    events: Receiver<EngineEvent>,
    programs: Vec<Vec<Arc<Plan>>>,
    /// By rank of the world.
    workspace_bytes: Vec<Bytes>,
    /// Of the last run, by rank of this process.
    run_times: Vec<std::ops::Range<u64>>,
    /// Of the last run, of all ranks here.
    spans: Vec<Span>,
    stopped: bool,
    /// Ranks that will never answer.
    lost: Vec<usize>,
    launches: LaunchSetup,
    /// Whether its weights are not those of another engine.
    has_own_weights: bool,
}

/// What the cards can launch, and how they are told to.
struct LaunchSetup {
    cann: Arc<Cann>,
    kernels: Kernels,
    launching: Launching,
}

impl LaunchSetup {
    /// What some plan asks for and cannot be launched.
    fn problems(&self, programs: &[Vec<Arc<Plan>>]) -> Diagnostics {
        let mut problems = Diagnostics::new();
        let found = kernel_problems(self.kernels, programs)
            .into_iter()
            .chain(operator_problems(&self.cann, programs));
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

/// The ranks of this process, each with its card.
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

/// The memory of given weights for each rank here that has some, once there is memory for the rest.
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
    /// Starts one thread a rank and makes all plans ready. `programs` has, for each program, the
    /// plans of all ranks; the programs share weights and states. In a world of several processes
    /// all start with the same plans, at the same time, each for its own rank.
    ///
    /// # Errors
    /// Before any card is opened: fewer cards than ranks, plans that share nothing or lay given
    /// weights out otherwise, an operator or a capture that the library does not offer, or too
    /// little memory on a card, all at once. Then whatever a rank's card refuses, other plans in
    /// another process, or the failure of one.
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
            how: (options.marks, options.launching),
            kernels: options.kernels.clone(),
            clock: options.clock.clone(),
            events: sender,
        };
        let ranks = local.iter().zip(&devices).zip(weights).map(|(((rank, _), device), weights)| {
            let plans = programs.iter().map(|plans| Arc::clone(&plans[*rank])).collect();
            RankThread::start(Arc::clone(device), plans, weights, gate.entrance(), &shared)
        });
        let mut engine = Self {
            stop_signal: StopSignal { stop: Arc::clone(&options.stop), group: Arc::clone(&options.group) },
            ranks: ranks.collect(),
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

    /// Lets the ranks here meet those of the other processes, and learns what memory they have
    /// taken.
    fn open(&mut self, gate: Gate, shared: RankStart, devices: Vec<Arc<Device>>) -> Result<(), Error> {
        let listening = shared.events.clone();
        self.stop_signal.group.on_failure(move |failure| {
            // An engine that is gone need not know.
            let _unheard = listening.send(EngineEvent::Peer(failure.clone()));
        });
        let met = if gate.wait() {
            self.meet(&shared.groups, &devices).map(|meetings| gate.open(meetings))
        } else {
            drop(gate);
            Ok(())
        };
        drop((shared, devices));
        // Behind a gate that stays closed the ranks here end; the cause is this error, or among
        // their answers.
        let opened = self.collect(drop);
        met?;
        let opened = opened?;
        let workspaces = workspace_bytes(&opened);
        let memories = opened.into_iter().filter_map(|answer| match answer {
            Answer::Opened { kept, .. } => Some(kept),
            Answer::Prepared { .. } | Answer::Ran(_) => None,
        });
        let shard = |(thread, [weights, states]): (&RankThread, [Buffer; 2])| Shard {
            plan: Arc::clone(&self.programs[0][thread.rank]),
            card: thread.card,
            weights,
            states,
        };
        self.shards = self.ranks.iter().zip(memories).map(shard).collect();
        self.share_workspaces(workspaces)
    }

    /// Makes one more program ready on all ranks, on the memory of the others; gives its id. All
    /// processes do so at the same time.
    ///
    /// # Errors
    /// Plans that lay weights or states out otherwise, launch what the cards have not, want more
    /// memory than the others were given or meet in other groups; other plans in another process;
    /// or the failure of a rank, after which the engine is stopped.
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
        self.tell(|at| Command::Prepare(Arc::clone(&added[0][ranks[at]])))?;
        let workspaces = workspace_bytes(&self.collect(drop)?);
        self.share_workspaces(workspaces)?;
        self.programs.extend(added);
        Ok(ProgramId(self.programs.len() - 1))
    }

    /// Whether the memory that was taken at the start does for further plans.
    #[must_use]
    pub fn has_room(&self, plans: &[Plan]) -> bool {
        plans.iter().enumerate().all(|(rank, plan)| self.too_small(rank, plan).next().is_none())
    }

    /// Regions of a rank that are too small for a further plan, with what it wants and what there
    /// is.
    fn too_small(&self, rank: usize, plan: &Plan) -> impl Iterator<Item = (Region, Bytes, Bytes)> {
        let there = Region::ALL.into_iter().zip(regions_wanted(&self.programs, rank));
        there
            .map(|(region, has)| (region, plan.region_bytes(region), has))
            .filter(|(_, wanted, has)| wanted > has)
    }

    /// Whether the memory and the groups that there are do for further plans.
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

    /// Tells the other processes of the workspaces here, and learns theirs.
    fn share_workspaces(&mut self, own: Vec<u8>) -> Result<(), Error> {
        let all = self.stop_signal.group.exchange("the workspaces", own)?.concat();
        let bytes = |bytes: &[u8]| Bytes(bytes.try_into().map_or(0, u64::from_le_bytes));
        self.workspace_bytes = all.chunks(8).map(bytes).collect();
        Ok(())
    }

    /// Agrees with the other processes on the plans, and gathers the tokens of all meetings.
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

    /// The weights here, which another engine on the same cards may run on.
    #[must_use]
    pub fn weights(&self) -> SharedWeights {
        let memories = self.shards.iter().map(|shard| (shard.card, shard.weights.clone()));
        SharedWeights { plans: self.programs[0].clone(), memories: memories.collect() }
    }

    /// The plans of a program, by rank; none of a program that there is not.
    #[must_use]
    pub fn plans(&self, program: ProgramId) -> &[Arc<Plan>] {
        self.programs.get(program.0).map_or(&[], Vec::as_slice)
    }

    /// Bytes on a rank's card: each region, and the operators' workspace; none of a rank that there
    /// is not.
    #[must_use]
    pub fn memory(&self, rank: usize) -> Vec<(&'static str, Bytes)> {
        if self.programs[0].len() <= rank {
            return Vec::new();
        }
        let regions = Region::ALL.map(Region::name).into_iter().zip(regions_wanted(&self.programs, rank));
        regions.chain([("workspace", self.workspace_bytes.get(rank).copied().unwrap_or_default())]).collect()
    }

    /// Lets `fill` write the weights and states of all ranks here, or read them. Weights of another
    /// engine are not among them.
    ///
    /// # Errors
    /// What `fill` or a card refuses; after it the engine is stopped.
    pub fn load(&mut self, fill: impl FnOnce(&Shards<'_>) -> Result<(), Error>) -> Result<(), Error> {
        self.check_open()?;
        let all = Shards::new(&self.shards, &self.stop_signal);
        let own = if self.has_own_weights { all } else { all.only(|_| false) };
        fill(&own).inspect_err(|error| {
            self.stopped = true;
            tell_peers(&self.stop_signal.group, error);
        })
    }

    /// Fills the weights of all ranks here with whole tensors, and those states that are named. All
    /// weights must be named.
    ///
    /// # Errors
    /// Weights that are missing, of another shape or type, or unknown, all at once, before any is
    /// written; or a card refuses. After an error the engine is stopped.
    pub fn fill(&mut self, tensors: &NamedTensors) -> Result<(), Error> {
        self.load(|shards| shards.fill(tensors))
    }

    /// Runs a program on all ranks and waits for it.
    ///
    /// # Errors
    /// No such program, or inputs that are not those of its plan, all of them, before anything
    /// runs. Else the failure of any rank; after it the engine is stopped.
    pub fn run(&mut self, program: ProgramId, inputs: &NamedTensors) -> Result<NamedTensors, Error> {
        self.begin(program, inputs, Timed::No)?.finish()
    }

    /// Lets all ranks begin a program, so that the caller can do something else until they are
    /// done.
    ///
    /// # Errors
    /// No such program, or inputs that are not those of its plan, all of them; or the engine is
    /// stopped.
    pub fn begin(
        &mut self,
        program: ProgramId,
        inputs: &NamedTensors,
        timed: Timed,
    ) -> Result<Run<'_>, Error> {
        self.start_run(program, inputs, Shown::Times(timed))?;
        Ok(Run { engine: self, program, is_open: true })
    }

    /// When each rank of this process began the last run and when it had its outputs, by the
    /// engine's clock; without one, by the host's if the run was timed, and empty if it was not.
    #[must_use]
    pub fn run_times(&self) -> &[std::ops::Range<u64>] {
        &self.run_times
    }

    /// What each stream of each rank of this process did in the last run, by the events of its
    /// card; nothing of a run that was not timed.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// As [`Engine::run`], showing every value of every rank of this process. Ranks stop at each
    /// value, so this is slow.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_observed(
        &mut self,
        program: ProgramId,
        inputs: &NamedTensors,
        observe: impl FnMut(Observation),
    ) -> Result<NamedTensors, Error> {
        self.start_run(program, inputs, Shown::Values)?;
        self.finish_run(program, observe)
    }

    /// Waits for the run that was started.
    fn finish_run(
        &mut self,
        program: ProgramId,
        observe: impl FnMut(Observation),
    ) -> Result<NamedTensors, Error> {
        let runs = self.collect(observe)?.into_iter().filter_map(|answer| match answer {
            Answer::Ran(run) => Some(run),
            Answer::Opened { .. } | Answer::Prepared { .. } => None,
        });
        let mut runs: Vec<RankRun> = runs.collect();
        self.run_times = runs.iter().filter_map(|run| run.time.clone()).collect();
        self.spans = runs.iter_mut().flat_map(|run| std::mem::take(&mut run.spans)).collect();
        // Outputs are whole on every rank, and the first one here gives them.
        let outputs = runs.into_iter().next().map_or_else(Vec::new, |run| run.outputs);
        Ok(NamedTensors::of_outputs(self.programs[program.0][0].outputs.iter().zip(outputs)))
    }

    fn start_run(&mut self, program: ProgramId, inputs: &NamedTensors, shown: Shown) -> Result<(), Error> {
        self.check_open()?;
        let plans = self.programs.get(program.0).ok_or_else(|| {
            let problem = Diagnostic::new("program", "does not exist");
            Diagnostics::from(problem.expected(format!("below {}", self.programs.len())).found(program.0))
        })?;
        // Wrong inputs are refused here, before any rank has begun.
        let wanted: Vec<&Tensor> = plans[0].inputs.iter().collect();
        let inputs =
            Arc::new(inputs.in_order("input", &wanted, &[])?.into_iter().flatten().collect::<Vec<_>>());
        self.tell(move |at| {
            let wanted = if at == 0 { WantedOutputs::Outputs } else { WantedOutputs::Nothing };
            Command::Run { program: program.0, inputs: Arc::clone(&inputs), shown, wanted }
        })
    }

    /// Tells each rank here what to do, by its place among them.
    fn tell(&mut self, command: impl Fn(usize) -> Command) -> Result<(), Error> {
        self.check_open()?;
        self.ranks.iter().enumerate().for_each(|(at, thread)| thread.tell(command(at)));
        Ok(())
    }

    /// Fails if nothing is to be done any more.
    fn check_open(&mut self) -> Result<(), Error> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        self.stop_signal.check().inspect_err(|error| self.stopped |= matches!(error, Error::Peer { .. }))
    }

    /// The answers of all ranks here, by rank, and until then the values that they show.
    fn collect(&mut self, mut observe: impl FnMut(Observation)) -> Result<Vec<Answer>, Error> {
        let mut answers: Vec<Option<Result<Answer, RankError>>> = self.ranks.iter().map(|_| None).collect();
        let (mut peer, mut grace) = (None, never());
        while answers.iter().any(Option::is_none) {
            let event = select_biased! {
                recv(self.events) -> event => event,
                recv(grace) -> _over => break,
            };
            match event {
                Ok(EngineEvent::Value(observation)) => observe(observation),
                Ok(EngineEvent::Answer(rank, answer)) => {
                    if let Some(at) = self.ranks.iter().position(|thread| thread.rank == rank) {
                        answers[at] = Some(answer);
                    }
                }
                Ok(EngineEvent::Peer(failure)) => {
                    (peer, grace) = (Some(failure), after(GRACE));
                }
                Err(_) => break,
            }
        }
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
            // The cause is elsewhere, and its process is about to say so.
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

/// A program that all ranks are running. Dropping it waits for them.
#[must_use = "the outputs come from `finish`"]
#[derive(Debug)]
pub struct Run<'a> {
    engine: &'a mut Engine,
    program: ProgramId,
    /// The ranks' answers are still to come.
    is_open: bool,
}

impl Run<'_> {
    /// Waits for the ranks.
    ///
    /// # Errors
    /// The failure of any rank; after it the engine is stopped.
    pub fn finish(mut self) -> Result<NamedTensors, Error> {
        self.is_open = false;
        self.engine.finish_run(self.program, drop)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // A failure stops the engine, whose next call says so.
            let _unheard = self.engine.collect(drop);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for thread in &mut self.ranks {
            thread.dismiss();
        }
        for thread in &mut self.ranks {
            // What a lost rank waits for comes never, or much later.
            if !self.lost.contains(&thread.rank) {
                thread.join();
            }
        }
    }
}

/// Tells the other processes why this one fails, unless it fails because of them.
fn tell_peers(group: &ProcessGroup, error: &Error) {
    if !matches!(error, Error::Peer { .. } | Error::Stopped | Error::Interrupted) {
        group.fail(&error.to_string());
    }
}

/// Whether what each process gave begins with the same digest of its plans.
fn same_plans(all: &[Vec<u8>]) -> Result<(), Diagnostics> {
    let digest = |bytes: &[u8]| bytes.first_chunk::<8>().copied();
    let Some(rank) = all.iter().position(|bytes| digest(bytes) != digest(&all[0])) else { return Ok(()) };
    Err(Diagnostic::new(format!("rank {rank}"), "compiled different plans than rank 0")
        .help("start all processes with the same version, model and options")
        .into())
}

/// The workspaces of the ranks that answered, for other processes.
fn workspace_bytes(answers: &[Answer]) -> Vec<u8> {
    let bytes = answers.iter().filter_map(|answer| match answer {
        Answer::Opened { workspace_bytes, .. } | Answer::Prepared { workspace_bytes } => {
            Some(*workspace_bytes as u64)
        }
        Answer::Ran(_) => None,
    });
    bytes.flat_map(u64::to_le_bytes).collect()
}

/// A number that processes with the same plans have in common, and others do not.
fn digest(programs: &[Vec<Arc<Plan>>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for plan in programs.iter().filter_map(|plans| plans.first()) {
        hasher.write(plan.to_string().as_bytes());
        hasher.write_usize(plan.world);
    }
    hasher.finish()
}
