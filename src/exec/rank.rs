//! One rank's thread: opens its card, then obeys commands.
//!
//! Input → output: [`Command`]s → [`EngineEvent`], one answer a command, whatever happens: a panic
//! is an answer too. Invariant: a rank that fails leaves its communicators before it answers, so
//! that ranks that wait for it end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::card::{Card, Launching, Marks, Watch};
use super::engine::{Clock, Observation};
use super::error::RankError;
use super::gate::Entrance;
use super::timing::Timed;
use crate::device::{Buffer, Device, KernelSource};
use crate::schedule::plan::Plan;
use crate::timeline::Span;
use crate::world::PeerFailure;

/// What a rank is told to do.
pub(super) enum Command {
    /// Make one more program ready.
    Prepare(Arc<Plan>),
    Run {
        program: usize,
        /// In the order of the plan.
        inputs: Arc<Vec<Arc<Vec<u8>>>>,
        shown: Shown,
        wanted: WantedOutputs,
    },
}

/// What a rank tells of a run besides its outputs.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    Times(Timed),
    /// Every named value, as soon as it is there.
    Values,
}

/// What a rank gives back of a run. Outputs are whole on every rank, so one of them is enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WantedOutputs {
    Nothing,
    Outputs,
}

/// What a rank says when it has done what it was told.
pub(super) enum Answer {
    /// Its card is open.
    Opened {
        /// Bytes of the operators' workspace.
        workspace_bytes: usize,
        /// The memory of the weights and of the states.
        kept: [Buffer; 2],
    },
    /// It has one more program.
    Prepared {
        /// As of [`Answer::Opened`], now.
        workspace_bytes: usize,
    },
    /// A run is over.
    Ran(RankRun),
}

/// A run as one rank saw it.
pub(super) struct RankRun {
    /// Bytes of each output, if the rank was to give them back.
    pub(super) outputs: Vec<Vec<u8>>,
    /// When what was, if the run was timed.
    pub(super) spans: Vec<Span>,
    /// When the run began and ended, if the rank has a clock or the run was timed.
    pub(super) time: Option<std::ops::Range<u64>>,
}

/// What reaches the engine from its ranks and from other processes.
pub(super) enum EngineEvent {
    /// A rank of this process has done what it was told, or failed.
    Answer(usize, Result<Answer, RankError>),
    /// A named value of a run, before the rank's answer to it.
    Value(Observation),
    /// Another process failed.
    Peer(PeerFailure),
}

/// A running rank.
pub(super) struct RankThread {
    pub(super) rank: usize,
    pub(super) card: usize,
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// What all ranks of a process start with.
#[derive(Clone)]
pub(super) struct RankStart {
    pub(super) groups: Arc<Vec<Vec<usize>>>,
    pub(super) how: (Marks, Launching),
    pub(super) kernels: KernelSource,
    pub(super) clock: Option<Clock>,
    pub(super) events: Sender<EngineEvent>,
}

impl RankThread {
    /// Starts the thread; its first answer comes when its card is open. It takes no memory for
    /// weights that are there.
    pub(super) fn start(
        device: Arc<Device>,
        plans: Vec<Arc<Plan>>,
        weights: Option<Buffer>,
        entrance: Entrance,
        shared: &RankStart,
    ) -> Self {
        let rank = plans.first().map_or(0, |plan| plan.rank);
        let card = device.ordinal();
        let (commands, inbox) = unbounded();
        let own = shared.clone();
        let body = move || serve(device, &plans, weights, entrance, &own, &inbox);
        let thread = std::thread::Builder::new().name(format!("rank {rank}")).spawn(body);
        if let Err(error) = &thread {
            let source = format!("no thread can be started: {error}").into();
            let failed = RankError { rank, card, place: None, source, at: Instant::now() };
            // The engine holds the other end.
            let _heard = shared.events.send(EngineEvent::Answer(rank, Err(failed)));
        }
        Self { rank, card, commands: Some(commands), thread: thread.ok() }
    }

    /// Tells the rank what to do. A thread that is gone has said so, or its answer will be missed.
    pub(super) fn tell(&self, command: Command) {
        let _gone = self.commands.as_ref().map(|commands| commands.send(command));
    }

    /// No more commands: the thread ends when it has done what it was told.
    pub(super) fn dismiss(&mut self) {
        self.commands = None;
    }

    /// Waits for the thread to end.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Its panics were answers.
            let _ended = thread.join();
        }
    }
}

fn serve(
    device: Arc<Device>,
    plans: &[Arc<Plan>],
    weights: Option<Buffer>,
    entrance: Entrance,
    shared: &RankStart,
    inbox: &Receiver<Command>,
) {
    let (rank, ordinal) = (plans.first().map_or(0, |plan| plan.rank), device.ordinal());
    let panicked = |panic: Box<dyn Any + Send>| {
        let source = format!("the rank's thread panicked: {}", panic_text(panic.as_ref())).into();
        RankError { rank, card: ordinal, place: None, source, at: Instant::now() }
    };
    let open = || Card::open(device, plans, weights, &shared.groups, entrance, shared.how, &shared.kernels);
    let opened = catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| Err(panicked(panic)));
    // The engine is gone if it does not hear; then there is nothing more to do.
    let say = |answer| shared.events.send(EngineEvent::Answer(rank, answer)).is_ok();
    let mut card = match opened {
        Ok(card) => card,
        Err(error) => {
            say(Err(error));
            return;
        }
    };
    if !say(Ok(Answer::Opened { workspace_bytes: card.workspace_bytes(), kept: card.kept() })) {
        return;
    }
    for command in inbox {
        let answer = catch_unwind(AssertUnwindSafe(|| obey(&mut card, command, shared)))
            .unwrap_or_else(|panic| Err(panicked(panic)));
        let failed = answer.is_err();
        if failed {
            card.abort();
        }
        if !say(answer) || failed {
            return;
        }
    }
}

fn obey(card: &mut Card, command: Command, shared: &RankStart) -> Result<Answer, RankError> {
    match command {
        Command::Prepare(plan) => {
            card.add(&plan, shared.how)?;
            Ok(Answer::Prepared { workspace_bytes: card.workspace_bytes() })
        }
        Command::Run { program, inputs, shown, wanted } => {
            let (rank, mut spans) = (card.rank(), Vec::new());
            let mut visit = |tap, bytes| {
                // Nobody listens any more: the engine has failed elsewhere.
                let _unheard = shared.events.send(EngineEvent::Value(Observation { rank, tap, bytes }));
            };
            let timed = match shown {
                Shown::Times(timed) => timed,
                Shown::Values => Timed::No,
            };
            let clock = shared.clock.clone().or_else(|| (timed != Timed::No).then(Clock::of_host));
            let watch = match (shown, &clock) {
                (Shown::Values, _) => Watch::Values(&mut visit),
                (Shown::Times(timed), Some(clock)) if timed != Timed::No => {
                    Watch::Times(timed, clock, &mut spans)
                }
                (Shown::Times(_), _) => Watch::Nothing,
            };
            let now = || clock.as_ref().map(Clock::now_ns);
            let began = now();
            card.run(program, &inputs, watch)?;
            let outputs = if wanted == WantedOutputs::Outputs { card.outputs(program)? } else { Vec::new() };
            let time = began.zip(now()).map(|(began, ended)| began..ended);
            Ok(Answer::Ran(RankRun { outputs, spans, time }))
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
