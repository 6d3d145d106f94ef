//! The conductor thread executes a strict machine one step at a time, in an order selected by the
//! seed.
//!
//! Invariants: a step is taken only while the program is quiet. The choice depends only on the seed
//! and the machine's state, never on time. A time limit expires only when nothing else can happen.

use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::Strict;
use super::deadlock;
use super::random::StrictRandom;
use super::trace::{Actor, What};
use crate::machine::Machine;
use crate::scheduler::conductor::Conductor;
use crate::scheduler::launch::ReadyLaunch;
use crate::scheduler::quiet::Quiet;
use crate::scheduler::turnstile::{Stand, TurnstileThread, TurnstileView};
use crate::scheduler::wait::Wait;
use crate::state::MachineState;

/// Time between checks while nothing can happen.
const IDLE_LOOKS: Duration = Duration::from_millis(20);

pub(crate) fn start(strict: Arc<Strict>, machine: &Arc<Machine>) -> io::Result<Conductor> {
    strict.turnstile().join();
    let conductor = StrictConductor {
        random: StrictRandom::new(strict.seed()),
        quiet: Quiet::new(Arc::clone(strict.turnstile()), machine, Some(Arc::clone(&strict))),
        is_stuck_since: None,
        strict,
    };
    let turnstile = Arc::clone(conductor.strict.turnstile());
    Conductor::spawn(&turnstile, move || conductor.conduct())
}

struct StrictConductor {
    strict: Arc<Strict>,
    random: StrictRandom,
    quiet: Quiet,
    is_stuck_since: Option<StuckSince>,
}

/// The time at which the machine became stuck.
#[derive(Clone, Copy)]
struct StuckSince {
    /// Generation of the turnstile.
    generation: u64,
    at: Instant,
    /// In the time that `quiet` has observed.
    observed: Duration,
}

enum ConductorStep {
    /// A parked thread calls.
    Call { thread: u64, label: Arc<str>, call: &'static str },
    /// A blocked thread continues.
    Resume { thread: u64, label: Arc<str>, call: &'static str },
    /// A stream reaches an entry.
    Head(u64),
    /// Index of ready work.
    Launch(usize),
}

impl StrictConductor {
    fn conduct(mut self) {
        let mut last: Option<TurnstileView> = None;
        // After a step that releases no thread, the program is still quiet.
        while let Some(view) = match last.take() {
            Some(view) if self.strict.turnstile().is_still(view.generation) => Some(view),
            _ => self.quiet.await_quiet(),
        } {
            let Some(machine) = self.quiet.machine() else { return };
            let mut state = machine.lock();
            let mut steps = candidates(&view, &mut state);
            if steps.is_empty() {
                drop(state);
                self.stuck(&machine, &view);
                continue;
            }
            self.is_stuck_since = None;
            let step = steps.swap_remove(self.random.below(steps.len()));
            self.take(&machine, state, step);
            last = Some(view);
        }
    }

    fn take(&self, machine: &Machine, mut state: MutexGuard<'_, MachineState>, step: ConductorStep) {
        state.scheduler.tick();
        match step {
            ConductorStep::Call { thread, label, call } => {
                drop(state);
                self.strict.note(Actor::Thread(label), What::Calls(call), None);
                self.strict.turnstile().let_go(thread, None);
            }
            ConductorStep::Resume { thread, label, call } => {
                drop(state);
                self.strict.note(Actor::Thread(label), What::Resumes(call), None);
                self.strict.turnstile().let_go(thread, None);
            }
            ConductorStep::Head(stream) => {
                if let Some((card, entry, tag)) = state.head_of(stream) {
                    self.strict.note(Actor::Stream { stream, card }, What::Runs(entry), tag);
                }
                let before = state.scheduler.launches.len();
                state.start_head(stream);
                state.scheduler.ready.clear();
                // An entry launches at most itself; collectives wait for their own turn.
                let last =
                    state.scheduler.launches.pop_if(|launch| !matches!(launch, ReadyLaunch::Matching(_)));
                debug_assert!(last.is_none() || before == state.scheduler.launches.len());
                drop(state);
                if let Some(launch) = last {
                    self.launch(machine, launch);
                }
            }
            ConductorStep::Launch(place) => {
                let launch = state.scheduler.launches.remove(place);
                drop(state);
                if let ReadyLaunch::Matching(matching) = &launch {
                    let actor = Actor::Communicator(matching.communicator_name());
                    self.strict.note(actor, What::Meets(matching.name()), None);
                }
                self.launch(machine, launch);
            }
        }
    }

    fn launch(&self, machine: &Machine, launch: ReadyLaunch) {
        let runs_elsewhere = match &launch {
            ReadyLaunch::HostFunction { .. } => true,
            // The collective waits for other processes and must not block this thread.
            ReadyLaunch::Matching(matching) => matching.is_with_others(),
            ReadyLaunch::Task { .. } | ReadyLaunch::Share(_) => false,
        };
        if runs_elsewhere {
            machine.hand_over(launch);
        } else {
            machine.run_here(launch);
        }
    }

    fn stuck(&mut self, machine: &Machine, view: &TurnstileView) {
        let turnstile = Arc::clone(self.strict.turnstile());
        let is_blocked = |host: &TurnstileThread| matches!(host.stand, Stand::Blocked { .. });
        let is_anyone_blocked = view.hosts.iter().any(is_blocked);
        let (is_anything_held, patience, timeout) = {
            let state = machine.lock();
            (state.is_any_under_way(), machine.patience_for_others(&state), earliest_timeout(view, &state))
        };
        if !is_anyone_blocked && !is_anything_held {
            turnstile.await_move(view.generation, None);
            return;
        }
        let since = match self.is_stuck_since {
            Some(since) if since.generation == view.generation => since,
            _ => StuckSince {
                generation: view.generation,
                at: Instant::now(),
                observed: self.quiet.observed(),
            },
        };
        self.is_stuck_since = Some(since);
        let is_due = timeout.as_ref().is_some_and(|(left, _)| since.at.elapsed() >= *left);
        if !is_due && patience.is_some_and(|patience| since.at.elapsed() < patience) {
            let looked = Instant::now();
            turnstile.await_move(view.generation, Some(IDLE_LOOKS));
            // Time limits count real time here: another process may wait for work that follows a
            // limit.
            machine.lock().scheduler.wind_clock(looked.elapsed());
            return;
        }
        // Without the machine's lock, which the inspected threads may be waiting for.
        let stuck_for = self.quiet.observed() - since.observed;
        if !is_due && self.quiet.may_anyone_come_back(view, stuck_for, is_anyone_blocked) {
            self.quiet.pause(view.generation, IDLE_LOOKS);
            return;
        }
        self.is_stuck_since = None;
        self.decide(machine, view);
    }

    /// Other processes may have changed the state since the last check.
    fn decide(&self, machine: &Machine, view: &TurnstileView) {
        let turnstile = self.strict.turnstile();
        let mut state = machine.lock();
        if !candidates(view, &mut state).is_empty() || !turnstile.is_still(view.generation) {
            return;
        }
        match earliest_timeout(view, &state) {
            Some((_, Timeout::Call { thread, label, call, at, gathers })) => {
                state.scheduler.advance_clock(at);
                if let Some(root) = gathers {
                    deadlock::report_not_gathered(&mut state, view, root);
                }
                drop(state);
                self.strict.note(Actor::Thread(label), What::TimesOut(call), None);
                turnstile.let_go(thread, None);
            }
            Some((_, Timeout::Machine { at })) => {
                state.scheduler.advance_clock(at);
                if !state.expire_waits() && !state.expire_moving() {
                    deadlock::resolve(&mut state, view, turnstile);
                }
            }
            None => deadlock::resolve(&mut state, view, turnstile),
        }
    }
}

/// The order of the steps depends only on the machine's state.
fn candidates(view: &TurnstileView, state: &mut MachineState) -> Vec<ConductorStep> {
    // A stream may wait for a value that a call has written.
    state.recheck_values();
    let calls = view.hosts.iter().filter_map(|host| {
        let (thread, label) = (host.thread, Arc::clone(&host.label));
        match &host.stand {
            Stand::Parked { call } => Some(ConductorStep::Call { thread, label, call }),
            Stand::Blocked { wait, .. } if state.is_over(wait) => {
                Some(ConductorStep::Resume { thread, label, call: host.last_call.unwrap_or("a call") })
            }
            _ => None,
        }
    });
    let heads = state
        .runtime
        .streams
        .iter()
        .filter(|(id, stream)| stream.has_next() && !state.delays.is_kept(**id))
        .map(|(id, _)| ConductorStep::Head(*id));
    calls.chain(heads).chain((0..state.scheduler.launches.len()).map(ConductorStep::Launch)).collect()
}

enum Timeout {
    Call {
        thread: u64,
        label: Arc<str>,
        call: &'static str,
        at: Instant,
        /// The communicator that the call helps to create.
        gathers: Option<u64>,
    },
    /// Time limit of a queued entry.
    Machine { at: Instant },
}

fn earliest_timeout(view: &TurnstileView, state: &MachineState) -> Option<(Duration, Timeout)> {
    let calls = view.hosts.iter().filter_map(|host| match &host.stand {
        Stand::Blocked { deadline: Some(at), wait, .. } => {
            let gathers = match wait {
                Wait::Rendezvous { root, .. } => Some(*root),
                _ => None,
            };
            let (label, call) = (Arc::clone(&host.label), host.last_call.unwrap_or("a call"));
            Some((*at, Timeout::Call { thread: host.thread, label, call, at: *at, gathers }))
        }
        _ => None,
    });
    let queued = state.next_expiry().map(|at| (at, Timeout::Machine { at }));
    let earliest = calls.chain(queued).min_by_key(|(at, _)| *at);
    earliest.map(|(at, timeout)| (at.saturating_duration_since(state.scheduler.now()), timeout))
}
