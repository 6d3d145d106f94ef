//! All ranks of one process: a thread each, told what to do through channels.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::device::{Cann, Communicator, Device, RootInfo};
use crate::schedule::plan::{Plan, Region, Tensor};

use super::card::{Card, Gate, Meeting, Watch};
use super::error::{Error, RankError};

/// Whole input tensors by name, as bytes of their element type.
pub type Inputs = Vec<(String, Arc<Vec<u8>>)>;

/// Whole output tensors by name, as bytes of their element type.
pub type Outputs = Vec<(String, Vec<u8>)>;

/// Gives a weight to a rank: called on the rank's thread with the weight and a function that writes bytes at an offset
/// of the rank's part.
pub type Fill = dyn Fn(&Tensor, &mut Write<'_>) -> Result<(), FillError> + Send + Sync;

/// Writes bytes at an offset of a rank's part of a weight.
pub type Write<'a> = dyn FnMut(usize, &[u8]) -> Result<(), FillError> + 'a;

/// Why a weight could not be given.
pub type FillError = Box<dyn std::error::Error + Send + Sync>;

/// A named value on one rank, as it was while a plan ran.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The rank.
    pub rank: usize,
    /// Which of the plan's taps.
    pub tap: usize,
    /// The rank's part, row-major.
    pub bytes: Vec<u8>,
}

enum Command {
    Load(Arc<Fill>),
    Run { program: usize, inputs: Arc<Inputs>, timed: Timed, observer: Option<Sender<Observation>> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Timed {
    No,
    Collectives,
}

/// What a rank says when it has done what it was told.
#[derive(Default)]
struct Answer {
    /// Bytes of each output of a run.
    outputs: Vec<Vec<u8>>,
    /// Time in collectives, if the run was timed.
    collectives_us: f64,
    /// Bytes of the operators' workspace, once the card is open.
    workspace_bytes: usize,
}

struct RankThread {
    commands: Option<Sender<Command>>,
    answers: Receiver<Result<Answer, RankError>>,
    thread: Option<JoinHandle<()>>,
}

/// The ranks of one process with their cards, weights and states.
pub struct Engine {
    ranks: Vec<RankThread>,
    programs: Vec<Vec<Arc<Plan>>>,
    workspace_bytes: Vec<Bytes>,
    stopped: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("ranks", &self.ranks.len()).field("programs", &self.programs.len()).finish()
    }
}

impl Engine {
    /// Starts one thread a rank on cards `0..world` and makes all plans ready. `programs` has, for each program, the
    /// plans of all ranks; the programs share weights and states.
    ///
    /// # Errors
    /// Before any card is opened: fewer cards than ranks, plans that share nothing, or too little memory on a card, all
    /// at once. Then whatever a rank's card refuses.
    pub fn start(cann: &Arc<Cann>, programs: Vec<Vec<Plan>>) -> Result<Self, Error> {
        let programs: Vec<Vec<Arc<Plan>>> =
            programs.into_iter().map(|plans| plans.into_iter().map(Arc::new).collect()).collect();
        let world = programs.first().map_or(0, Vec::len);
        let cards = cann.device_count()?;
        let mut problems = shared_problems(&programs);
        if world == 0 || world > cards {
            let help = "use fewer cards, or give the emulator more";
            let problem = Diagnostic::new("cards", "there are not enough");
            problems.push(problem.expected(format!("1 to {cards}")).found(world).help(help));
        }
        if !problems.is_empty() {
            return Err(problems.into());
        }
        let devices = (0..world).map(|card| Device::open(cann, card)).collect::<Result<Vec<_>, _>>()?;
        for (rank, device) in devices.iter().enumerate() {
            memory_problem(&programs, rank, device)?.into_iter().for_each(|problem| problems.push(problem));
        }
        if !problems.is_empty() {
            return Err(problems.into());
        }
        let meetings = Arc::new(meetings(&programs, &devices)?);
        let gate = Arc::new(Gate::new(world));
        let ranks = devices.into_iter().enumerate().map(|(rank, device)| {
            let plans: Vec<Arc<Plan>> = programs.iter().map(|plans| Arc::clone(&plans[rank])).collect();
            RankThread::start(rank, device, plans, Arc::clone(&meetings), Arc::clone(&gate))
        });
        let mut engine = Self { ranks: ranks.collect(), programs, workspace_bytes: Vec::new(), stopped: false };
        let opened = engine.collect()?;
        engine.workspace_bytes = opened.iter().map(|answer| Bytes(answer.workspace_bytes as u64)).collect();
        Ok(engine)
    }

    /// The plans of a program, by rank.
    #[must_use]
    pub fn plans(&self, program: usize) -> &[Arc<Plan>] {
        &self.programs[program]
    }

    /// Bytes on a rank's card: each region, and the operators' workspace.
    #[must_use]
    pub fn memory(&self, rank: usize) -> Vec<(&'static str, Bytes)> {
        let bytes = |region| self.programs.iter().map(|plans| plans[rank].region_bytes(region)).max();
        let regions = Region::ALL.into_iter().map(|region| (region.name(), bytes(region).unwrap_or_default()));
        regions.chain([("workspace", self.workspace_bytes.get(rank).copied().unwrap_or_default())]).collect()
    }

    /// Fills every rank's weights, all ranks at once.
    ///
    /// # Errors
    /// What `fill` or a card refuses.
    pub fn load(&mut self, fill: Arc<Fill>) -> Result<(), Error> {
        self.tell(move |_| Command::Load(Arc::clone(&fill)))?;
        self.collect().map(drop)
    }

    /// Runs a program on all ranks and waits for it.
    ///
    /// # Errors
    /// The failure of any rank; after it the engine is stopped.
    pub fn run(&mut self, program: usize, inputs: Inputs) -> Result<Outputs, Error> {
        self.start_run(program, inputs, Timed::No, None)?;
        let answers = self.collect()?;
        Ok(self.outputs(program, answers))
    }

    /// As [`Engine::run`]; also the microseconds that rank 0 spent in collectives, waiting for the others included.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_timed(&mut self, program: usize, inputs: Inputs) -> Result<(Outputs, f64), Error> {
        self.start_run(program, inputs, Timed::Collectives, None)?;
        let answers = self.collect()?;
        let collectives_us = answers.first().map_or(0.0, |answer| answer.collectives_us);
        Ok((self.outputs(program, answers), collectives_us))
    }

    /// As [`Engine::run`], showing every value of every rank. Ranks stop at each value, so this is slow.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_observed(
        &mut self,
        program: usize,
        inputs: Inputs,
        mut observe: impl FnMut(Observation),
    ) -> Result<Outputs, Error> {
        let (sender, observations) = channel();
        self.start_run(program, inputs, Timed::No, Some(sender))?;
        // Ends when the last rank has dropped its sender.
        observations.iter().for_each(&mut observe);
        let answers = self.collect()?;
        Ok(self.outputs(program, answers))
    }

    fn start_run(
        &mut self,
        program: usize,
        inputs: Inputs,
        timed: Timed,
        observer: Option<Sender<Observation>>,
    ) -> Result<(), Error> {
        let inputs = Arc::new(inputs);
        self.tell(move |_| Command::Run { program, inputs: Arc::clone(&inputs), timed, observer: observer.clone() })
    }

    /// Outputs are whole on every rank; those of rank 0 are given.
    fn outputs(&self, program: usize, answers: Vec<Answer>) -> Outputs {
        let names = self.programs[program][0].outputs.iter().map(|tensor| tensor.name.clone());
        names.zip(answers.into_iter().next().unwrap_or_default().outputs).collect()
    }

    fn tell(&mut self, command: impl Fn(usize) -> Command) -> Result<(), Error> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        for (rank, thread) in self.ranks.iter().enumerate() {
            // A thread that is gone shows when its answer is collected.
            let _gone = thread.commands.as_ref().map(|commands| commands.send(command(rank)));
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<Vec<Answer>, Error> {
        let (mut answers, mut failed) = (Vec::new(), Vec::new());
        for (rank, thread) in self.ranks.iter().enumerate() {
            match thread.answers.recv() {
                Ok(Ok(answer)) => answers.push(answer),
                Ok(Err(error)) => failed.push(error),
                Err(_) => failed.push(RankError {
                    rank,
                    card: rank,
                    place: None,
                    source: "the rank's thread ended without an answer".into(),
                    at: Instant::now(),
                }),
            }
        }
        if failed.is_empty() {
            return Ok(answers);
        }
        self.stopped = true;
        Err(Error::of_ranks(failed))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for thread in &mut self.ranks {
            thread.commands = None;
        }
        for thread in &mut self.ranks {
            if let Some(thread) = thread.thread.take() {
                // A panic of the thread was reported when its answer was collected.
                let _panicked = thread.join();
            }
        }
    }
}

impl RankThread {
    fn start(
        rank: usize,
        device: Arc<Device>,
        plans: Vec<Arc<Plan>>,
        meetings: Arc<Vec<Meeting>>,
        gate: Arc<Gate>,
    ) -> Self {
        let (commands, inbox) = channel();
        let (outbox, answers) = channel();
        let at_the_gate = Arc::clone(&gate);
        let body = move || {
            let (answer, card) = match Card::open(device, rank, &plans, &meetings, &gate) {
                Ok(card) => (Ok(Answer { workspace_bytes: card.workspace_bytes(), ..Answer::default() }), Some(card)),
                Err(error) => (Err(error), None),
            };
            if outbox.send(answer).is_ok()
                && let Some(card) = card
            {
                serve(card, &inbox, &outbox);
            }
        };
        let thread = std::thread::Builder::new().name(format!("rank {rank}")).spawn(body).ok();
        if thread.is_none() {
            // The others must not wait for a rank that has no thread; its missing answer is reported.
            at_the_gate.fail();
        }
        Self { commands: Some(commands), answers, thread }
    }
}

/// Obeys commands until the engine goes or the rank fails.
fn serve(mut card: Card, inbox: &Receiver<Command>, outbox: &Sender<Result<Answer, RankError>>) {
    for command in inbox {
        let answer = match command {
            Command::Load(fill) => load(&card, &*fill).map(|()| Answer::default()),
            Command::Run { program, inputs, timed, observer } => {
                let (rank, mut collectives_us) = (card.rank(), 0.0);
                let mut visit = |tap, bytes| {
                    if let Some(observer) = &observer {
                        // Nobody listens any more: the engine has failed elsewhere.
                        let _unheard = observer.send(Observation { rank, tap, bytes });
                    }
                };
                let watch = match (timed, &observer) {
                    (Timed::Collectives, _) => Watch::Collectives(&mut collectives_us),
                    (Timed::No, Some(_)) => Watch::Values(&mut visit),
                    (Timed::No, None) => Watch::Nothing,
                };
                let outputs = card.run(program, &inputs, watch);
                outputs.map(|outputs| Answer { outputs, collectives_us, ..Answer::default() })
            }
        };
        let failed = answer.is_err();
        if failed {
            card.abort();
        }
        if outbox.send(answer).is_err() || failed {
            return;
        }
    }
}

fn load(card: &Card, fill: &Fill) -> Result<(), RankError> {
    for param in &card.params() {
        let mut write = |offset: usize, bytes: &[u8]| Ok(card.write_param(param, offset, bytes)?);
        fill(param, &mut write).map_err(|source| card.error(&format!("loading {}", param.name), source))?;
    }
    Ok(())
}

/// Every group that some plan exchanges in, with a token. All ranks meet in the order of this list.
fn meetings(programs: &[Vec<Arc<Plan>>], devices: &[Arc<Device>]) -> Result<Vec<Meeting>, Error> {
    groups(programs).into_iter().map(|ranks| Ok((ranks.clone(), RootInfo::create(&devices[ranks[0]])?))).collect()
}

/// Every group that some plan exchanges in, once.
fn groups(programs: &[Vec<Arc<Plan>>]) -> Vec<&Vec<usize>> {
    let mut groups: Vec<&Vec<usize>> = Vec::new();
    for plans in programs {
        for ranks in plans.first().map(|plan| plan.groups.values()).unwrap_or_default() {
            if !groups.contains(&ranks) {
                groups.push(ranks);
            }
        }
    }
    groups
}

/// Programs of one engine have the same weights and states, in the same places.
fn shared_problems(programs: &[Vec<Arc<Plan>>]) -> Diagnostics {
    let mut problems = Diagnostics::new();
    let Some((first, others)) = programs.split_first() else { return problems };
    for plans in others {
        if plans.len() != first.len() {
            problems
                .push(Diagnostic::new(format!("program \"{}\"", plans[0].name), "is made for another number of ranks"));
            continue;
        }
        for (a, b) in first.iter().zip(plans) {
            let same = |a: &[Tensor], b: &[Tensor], of: (&Plan, &Plan)| {
                a.len() == b.len()
                    && a.iter().zip(b).all(|(x, y)| {
                        (&x.name, &x.ranges, x.dtype) == (&y.name, &y.ranges, y.dtype)
                            && of.0.buffers[x.buffer] == of.1.buffers[y.buffer]
                    })
            };
            if !same(&a.params, &b.params, (a, b)) || !same(&a.states, &b.states, (a, b)) {
                problems.push(Diagnostic::new(
                    format!("rank {}", a.rank),
                    format!("programs \"{}\" and \"{}\" lay weights or states out differently", a.name, b.name),
                ));
            }
        }
    }
    problems
}

/// Whether a rank's regions fit its card, before anything is loaded.
fn memory_problem(programs: &[Vec<Arc<Plan>>], rank: usize, device: &Device) -> Result<Option<Diagnostic>, Error> {
    let bytes = |region| programs.iter().map(|plans| plans[rank].region_bytes(region)).max().unwrap_or_default();
    let regions: Bytes = Region::ALL.into_iter().map(bytes).sum();
    let groups = groups(programs).into_iter().filter(|ranks| ranks.contains(&rank)).count();
    let buffers = Bytes(groups as u64 * Communicator::buffer_bytes().0);
    let wanted = [regions, buffers].into_iter().sum::<Bytes>();
    let memory = device.memory()?;
    let free = memory.free;
    if wanted <= free {
        return Ok(None);
    }
    let mut parts: Vec<String> =
        Region::ALL.iter().map(|region| format!("{} {}", region.name(), bytes(*region))).collect();
    if groups > 0 {
        parts.push(format!("buffers of {groups} communicators {buffers} (HCCL_BUFFSIZE)"));
    }
    Ok(Some(
        Diagnostic::new(format!("rank {rank} (card {rank})"), "the program does not fit the card's memory")
            .expected(format!("at most {free} ({} in all)", memory.total))
            .found(format!("{wanted}: {}", parts.join(", ")))
            .help("use more cards, a shorter context, a smaller batch or a 16-bit element type"),
    ))
}
