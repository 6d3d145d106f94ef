//! The thread of one rank: opens its device, then answers each [`Command`] with an [`EngineEvent`],
//! even after a panic.
//!
//! Invariant: a failed rank aborts its communicators before it answers, so that waiting ranks end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::card::{Card, LaunchMode, Watch};
use super::engine::Observation;
use super::error::RankError;
use super::gate::Entrance;
use super::timing::{Clock, Timed};
use crate::device::{Buffer, Device, KernelSource};
use crate::schedule::plan::Plan;
use crate::timeline::Span;
use crate::world::{PeerFailure, ProcessGroup};

pub(super) enum RankCommand {
    Prepare(Arc<Plan>),
    Run {
        program: usize,
        /// Whole tensors, in plan order.
        inputs: Arc<Vec<Arc<Vec<u8>>>>,
        shown: Shown,
        wanted: WantedOutputs,
    },
}

#[derive(Clone, Copy)]
pub(super) enum Shown {
    Times(Timed),
    Values,
}

/// One rank returns outputs, because all have them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WantedOutputs {
    Nothing,
    Outputs,
}

pub(super) enum RankAnswer {
    Opened {
        workspace_bytes: usize,
        /// Memory of weights and states.
        kept: [Buffer; 2],
    },
    Prepared {
        /// Workspace of all programs.
        workspace_bytes: usize,
    },
    Ran(RankRun),
}

pub(super) struct RankRun {
    pub(super) outputs: Vec<Vec<u8>>,
    pub(super) spans: Vec<Span>,
    /// Present if the rank has a clock or the run was timed.
    pub(super) time: Option<std::ops::Range<u64>>,
}

pub(super) enum EngineEvent {
    Answer(usize, Result<RankAnswer, RankError>),
    Value(Observation),
    Peer(PeerFailure),
}

pub(super) struct RankThread {
    pub(super) rank: usize,
    pub(super) card: usize,
    commands: Option<Sender<RankCommand>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
pub(super) struct RankStart {
    pub(super) groups: Arc<Vec<Vec<usize>>>,
    pub(super) mode: LaunchMode,
    pub(super) kernels: KernelSource,
    pub(super) clock: Option<Clock>,
    pub(super) events: Sender<EngineEvent>,
}

impl RankThread {
    /// The first answer arrives when the device is open. Given `weights` need no memory.
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
            let _heard = shared.events.send(EngineEvent::Answer(rank, Err(failed)));
        }
        Self { rank, card, commands: Some(commands), thread: thread.ok() }
    }

    /// If the thread has ended, its answer or the lack of one shows this.
    pub(super) fn tell(&self, command: RankCommand) {
        let _gone = self.commands.as_ref().map(|commands| commands.send(command));
    }

    pub(super) fn dismiss(&mut self) {
        self.commands = None;
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Panics were already reported as answers.
            let _ended = thread.join();
        }
    }
}

/// Time between two looks at a thread that ends.
const LOOKS: Duration = Duration::from_millis(1);

/// Time for a rank to notice the failure of another process.
pub(super) const GRACE: Duration = Duration::from_millis(800);

/// Waits for the ends of threads, except those of the ranks in `lost`.
///
/// A thread may wait without end for a process that failed or is stopped. It then remains.
pub(super) fn join_all(threads: &mut [RankThread], lost: &[usize], group: &ProcessGroup) {
    let mut limit: Option<Instant> = None;
    for thread in threads.iter_mut().filter(|thread| !lost.contains(&thread.rank)) {
        while group.size() > 1 && !thread.is_finished() {
            if limit.is_none() && group.failure_within(Duration::ZERO).is_some() {
                limit = Some(Instant::now() + GRACE);
            }
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                break;
            }
            std::thread::sleep(LOOKS);
        }
        if limit.is_none() || thread.is_finished() {
            thread.join();
        }
    }
}

fn serve(
    device: Arc<Device>,
    plans: &[Arc<Plan>],
    weights: Option<Buffer>,
    entrance: Entrance,
    shared: &RankStart,
    inbox: &Receiver<RankCommand>,
) {
    let (rank, ordinal) = (plans.first().map_or(0, |plan| plan.rank), device.ordinal());
    let panicked = |panic: Box<dyn Any + Send>| {
        let source = format!("the rank's thread panicked: {}", panic_text(panic.as_ref())).into();
        RankError { rank, card: ordinal, place: None, source, at: Instant::now() }
    };
    let open = || Card::open(device, plans, weights, &shared.groups, entrance, shared.mode, &shared.kernels);
    let opened = catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| Err(panicked(panic)));
    // A failed send means that the engine is gone.
    let say = |answer| shared.events.send(EngineEvent::Answer(rank, answer)).is_ok();
    let mut card = match opened {
        Ok(card) => card,
        Err(error) => {
            say(Err(error));
            return;
        }
    };
    if !say(Ok(RankAnswer::Opened { workspace_bytes: card.workspace_bytes(), kept: card.kept() })) {
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

fn obey(card: &mut Card, command: RankCommand, shared: &RankStart) -> Result<RankAnswer, RankError> {
    match command {
        RankCommand::Prepare(plan) => {
            card.add(&plan, shared.mode)?;
            Ok(RankAnswer::Prepared { workspace_bytes: card.workspace_bytes() })
        }
        RankCommand::Run { program, inputs, shown, wanted } => {
            let (rank, mut spans) = (card.rank(), Vec::new());
            let mut visit = |tap, bytes| {
                // The send fails if the engine has already failed.
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
            Ok(RankAnswer::Ran(RankRun { outputs, spans, time }))
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
