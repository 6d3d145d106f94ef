//! Advances the cards of a timed machine whenever the program is quiet.
//!
//! Invariants: the cards stop before the earliest time at which a released thread can make its next
//! call.

use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::TimedMode;
use super::schedule::{Blocked, NextEvent};
use crate::machine::Machine;
use crate::scheduler::conductor::Conductor;
use crate::scheduler::launch::ReadyLaunch;
use crate::scheduler::quiet::Quiet;
use crate::scheduler::ran;
use crate::scheduler::turnstile::{Stand, TurnstileThread, TurnstileView};
use crate::scheduler::wait::Wait;
use crate::state::MachineState;
use crate::strict::deadlock;

const IDLE_LOOKS: Duration = Duration::from_millis(20);

pub(crate) fn start(timed: &Arc<TimedMode>, machine: &Arc<Machine>) -> io::Result<Conductor> {
    timed.turnstile.join();
    let mut conductor = TimedConductor {
        timed: Arc::clone(timed),
        quiet: Quiet::new(Arc::clone(&timed.turnstile), machine, None),
        is_stuck_since: None,
    };
    Conductor::spawn(&timed.turnstile, move || conductor.conduct())
}

struct TimedConductor {
    timed: Arc<TimedMode>,
    quiet: Quiet,
    /// Turnstile generation and observed time since which nothing can happen.
    is_stuck_since: Option<(u64, Duration)>,
}

impl TimedConductor {
    fn conduct(&mut self) {
        while let Some(view) = self.quiet.await_quiet() {
            let Some(machine) = self.quiet.machine() else { return };
            if self.advance(&machine, &view) {
                self.is_stuck_since = None;
            } else {
                self.stuck(&machine, &view);
            }
        }
    }

    /// Ends with a thread's wait. Returns false if nothing happened.
    fn advance(&self, machine: &Machine, view: &TurnstileView) -> bool {
        let mut state = machine.lock();
        let blocked = view.hosts.iter().filter_map(|host| self.blocked(host)).collect();
        state.begin_advance(blocked);
        let mut has_moved = false;
        loop {
            state = self.launch(machine, state);
            match state.next_event() {
                NextEvent::Event(ns) => state.take_event(ns),
                NextEvent::LimitOver(ns) => state.expire_at(ns),
                NextEvent::Enough | NextEvent::None => break,
            }
            has_moved = true;
        }
        state.runtime.exceptions.tell();
        let over = state.end_advance();
        drop(state);
        for thread in &over {
            self.timed.turnstile.let_go(*thread, None);
        }
        has_moved || !over.is_empty()
    }

    fn blocked(&self, host: &TurnstileThread) -> Option<Blocked> {
        let Stand::Blocked { wait, deadline, .. } = &host.stand else { return None };
        let limit_ns = match wait {
            Wait::Time(at) => Some(self.timed.since_epoch(*at)),
            // Communicator construction has no limit while a rank may arrive.
            Wait::Rendezvous { .. } => None,
            _ => deadline.map(|deadline| self.timed.since_epoch(deadline)),
        };
        Some(Blocked::new(host.thread, wait.clone(), limit_ns))
    }

    fn launch<'a>(
        &self,
        machine: &'a Machine,
        mut state: MutexGuard<'a, MachineState>,
    ) -> MutexGuard<'a, MachineState> {
        while let Some(launch) = state.next_launch() {
            match launch {
                ReadyLaunch::Task { stream, name, task, .. } => {
                    drop(state);
                    let outcome = machine.compute(name, &task);
                    state = machine.lock();
                    state.note_outcome(stream, name, ran::take().measured, outcome);
                    state.recheck_values();
                }
                ReadyLaunch::Matching(matching) => {
                    drop(state);
                    let outcome = machine.perform(&matching);
                    state = machine.lock();
                    state.begin_exchange(matching, outcome);
                }
                // A timed machine has no communicators with other processes.
                ReadyLaunch::Share(_) => unreachable!("a share of a collective in timed mode"),
                ReadyLaunch::HostFunction { .. } => {
                    drop(state);
                    machine.hand_over(launch);
                    state = machine.lock();
                    // The function may make calls.
                    state.stop_here();
                }
            }
        }
        state
    }

    fn stuck(&mut self, machine: &Machine, view: &TurnstileView) {
        let turnstile = &self.timed.turnstile;
        let is_anyone_blocked = view.hosts.iter().any(|host| matches!(host.stand, Stand::Blocked { .. }));
        if !is_anyone_blocked && !machine.lock().is_any_under_way() {
            turnstile.await_move(view.generation, None);
            return;
        }
        let since = match self.is_stuck_since {
            Some((generation, since)) if generation == view.generation => since,
            _ => self.quiet.observed(),
        };
        self.is_stuck_since = Some((view.generation, since));
        let stuck_for = self.quiet.observed() - since;
        if self.quiet.may_anyone_come_back(view, stuck_for, is_anyone_blocked) {
            self.quiet.pause(view.generation, IDLE_LOOKS);
            return;
        }
        self.is_stuck_since = None;
        let gathers = view.hosts.iter().find_map(|host| match &host.stand {
            Stand::Blocked { wait: Wait::Rendezvous { root, .. }, deadline: Some(at), .. } => {
                Some((host.thread, *root, *at))
            }
            _ => None,
        });
        let mut state = machine.lock();
        state.begin_advance(view.hosts.iter().filter_map(|host| self.blocked(host)).collect());
        let has_expired = state.expire_first();
        let over = state.end_advance();
        if has_expired {
            drop(state);
            over.iter().for_each(|thread| turnstile.let_go(*thread, None));
            return;
        }
        match gathers {
            Some((thread, root, at)) => {
                deadlock::report_not_gathered(&mut state, view, root);
                state.release_late(thread, self.timed.since_epoch(at));
                drop(state);
                turnstile.let_go(thread, None);
            }
            None => deadlock::resolve(&mut state, view, turnstile),
        }
    }
}
