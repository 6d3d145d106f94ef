//! The conductor: the thread that lets a strict machine take one step at a time, in the order the seed picks.
//!
//! Input: the seed, who stands at the turnstile, what streams have to do. Output: steps, each noted in the trace.
//! Invariants: a step is taken only while the program is quiet, which means that every thread that may still come to
//! the turnstile by itself has come or has been overtaken; the choice depends on the seed and on the machine's state,
//! never on time. What was chosen runs to its end before the next choice. A time limit counts as over when nothing else
//! can happen. Does not: know what a step does (see `machine`, `stream`).
//!
//! A thread that runs is waited for up to [`Patience::RUNS`], one that sleeps up to [`Patience::PAUSES`], one that
//! waits for the world up to [`Patience::OUTSIDE`] since it left its last call; one that waits for other threads is not
//! waited for: only they can wake it. A thread that has not called yet is given [`Patience::STRANGER`] after it was
//! first seen. Where threads cannot be seen (no `/proc`), each is waited for up to [`Patience::OUTSIDE`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Strict;
use super::deadlock;
use super::random::Random;
use super::trace::{Actor, What};
use super::turnstile::{Host, Stand, View};
use super::wait::Wait;
use super::watch::{self, Doing, Look, Tid};
use crate::machine::{Launch, Machine, State};
use crate::thread;

/// How long threads are waited for.
struct Patience;

impl Patience {
    const RUNS: Duration = Duration::from_secs(60);
    const PAUSES: Duration = Duration::from_secs(1);
    const OUTSIDE: Duration = Duration::from_millis(20);
    const STRANGER: Duration = Duration::from_millis(100);
    /// With nothing else to do: how long a thread that waits with a limit may still come back.
    const LAST_A_WHILE: Duration = Duration::from_secs(5);
    /// The same for one that runs or sleeps.
    const LAST_RUNS: Duration = Duration::from_secs(60);
    /// First and longest time between two looks.
    const LOOKS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));
    /// Time between looks while nothing can happen.
    const IDLE_LOOKS: Duration = Duration::from_millis(20);
}

/// The running thread; dropping it closes the turnstile and joins the thread.
#[derive(Debug)]
pub(crate) struct Conductor {
    strict: Arc<Strict>,
    handle: Option<JoinHandle<()>>,
}

impl Conductor {
    /// Starts the thread for a machine.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn start(strict: Arc<Strict>, machine: &Arc<Machine>) -> io::Result<Self> {
        strict.turnstile().join();
        let baton = Baton {
            random: Random::new(strict.seed()),
            strict: Arc::clone(&strict),
            machine: Arc::downgrade(machine),
            can_see: watch::is_possible(),
            residents: watch::strangers().into_iter().collect(),
            strangers: BTreeMap::new(),
            has_someone_ended: false,
            threads: 0,
            is_stuck_since: None,
        };
        let conduct = move || {
            thread::is_of_machine();
            baton.conduct();
        };
        let handle = std::thread::Builder::new().name("ascend-conductor".into()).spawn(conduct)?;
        Ok(Self { strict, handle: Some(handle) })
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        self.strict.turnstile().close();
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != std::thread::current().id()
        {
            let _ = handle.join();
        }
    }
}

/// What the conductor knows.
struct Baton {
    strict: Arc<Strict>,
    machine: Weak<Machine>,
    random: Random,
    can_see: bool,
    /// Threads older than the machine that had not called then.
    residents: BTreeSet<Tid>,
    /// Younger threads that have not called yet, and when each was first seen.
    strangers: BTreeMap<Tid, Instant>,
    /// A participant has ended since the last look at the list of threads.
    has_someone_ended: bool,
    /// Threads of the process at the last look.
    threads: u64,
    /// Since when nothing can happen, and after which move.
    is_stuck_since: Option<(u64, Instant)>,
}

/// One thing that may happen next.
enum Step {
    /// A parked thread makes its call.
    Call { thread: u64, label: Arc<str>, call: &'static str },
    /// A blocked thread goes on.
    Resume { thread: u64, label: Arc<str>, call: &'static str },
    /// A stream reaches its next entry.
    Head(u64),
    /// Work that waits for nothing more, by its place in the list.
    Launch(usize),
}

impl Baton {
    fn conduct(mut self) {
        while let Some(view) = self.await_quiet() {
            let Some(machine) = self.machine.upgrade() else { return };
            let steps = {
                let mut state = machine.lock();
                // A call may have written what a stream waits to see.
                state.recheck_values();
                candidates(&view, &state)
            };
            if steps.is_empty() {
                self.stuck(&machine, &view);
                continue;
            }
            self.is_stuck_since = None;
            let chosen = self.random.below(steps.len());
            if let Some(step) = steps.into_iter().nth(chosen) {
                self.take(&machine, step);
            }
        }
    }

    /// Everybody, once nobody is left who may still come by himself; None when the machine is gone.
    fn await_quiet(&mut self) -> Option<View> {
        let mut pause = Patience::LOOKS.0;
        let mut generation = None;
        loop {
            let view = self.strict.turnstile().view()?;
            if generation.replace(view.generation) != Some(view.generation) {
                pause = Patience::LOOKS.0;
            }
            self.has_someone_ended |= view.someone_ended;
            if !view.expects_functions && self.is_quiet(&view) {
                if self.strict.turnstile().is_still(view.generation) {
                    if self.number_newcomers(&view) {
                        continue;
                    }
                    return Some(view);
                }
                continue;
            }
            self.strict.turnstile().await_move(view.generation, Some(pause));
            pause = (pause * 2).min(Patience::LOOKS.1);
        }
    }

    /// Gives threads that came since the last step their places, in the order they were started.
    fn number_newcomers(&self, view: &View) -> bool {
        let newcomers = view.hosts.iter().filter(|host| host.number.is_none());
        let mut newcomers: Vec<((u64, Tid), u64)> =
            newcomers.map(|host| (watch::started(host.tid), host.thread)).collect();
        newcomers.sort_unstable();
        let threads: Vec<u64> = newcomers.into_iter().map(|(_, thread)| thread).collect();
        self.strict.turnstile().number(&threads);
        !threads.is_empty()
    }

    /// Notes threads that have been started and have not called yet.
    fn list_strangers(&mut self) {
        if !self.can_see {
            return;
        }
        let threads = watch::count_threads();
        if threads == self.threads && !self.has_someone_ended && self.young_strangers().is_empty() {
            return;
        }
        self.has_someone_ended = false;
        self.threads = threads;
        let now = Instant::now();
        let present: BTreeSet<Tid> = watch::strangers().into_iter().collect();
        self.strangers.retain(|tid, _| present.contains(tid));
        self.residents.retain(|tid| present.contains(tid));
        for tid in present {
            if !self.residents.contains(&tid) {
                self.strangers.entry(tid).or_insert(now);
            }
        }
    }

    /// Whether everybody who may still come has come or is overtaken.
    fn is_quiet(&mut self, view: &View) -> bool {
        let away = |host: &Host| matches!(host.stand, Stand::Away { is_overtaken: false, .. });
        let away: Vec<&Host> = view.hosts.iter().filter(|host| away(host)).collect();
        if away.iter().any(|host| host.is_waking) {
            return false;
        }
        if !self.can_see {
            return away.iter().all(|host| stretch(host) >= Patience::OUTSIDE);
        }
        let Some(first) = self.look_at_hosts(&away) else { return false };
        // Only now, when nobody is left who could start another thread unseen.
        self.list_strangers();
        let young: Vec<Tid> = self.young_strangers();
        let Some(first_at_young) = look_at_young(&young) else { return false };
        if away.is_empty() && young.is_empty() {
            return true;
        }
        // Whoever waits for the machine's lock is not asleep for long.
        if let Some(machine) = self.machine.upgrade() {
            drop(machine.lock());
        }
        // Equal looks mean that all were asleep at one moment between them.
        self.look_at_hosts(&away).is_some_and(|second| second == first)
            && look_at_young(&young).is_some_and(|second| second == first_at_young)
    }

    /// What threads that are away do; None when one of them has to be waited for.
    fn look_at_hosts(&self, away: &[&Host]) -> Option<Vec<Look>> {
        let looks = away.iter().map(|host| {
            let look = watch::look(host.tid);
            self.is_passed_by(host, look.doing).then_some(look)
        });
        looks.collect()
    }

    fn young_strangers(&self) -> Vec<Tid> {
        let young = self.strangers.iter().filter(|(_, seen)| seen.elapsed() < Patience::STRANGER);
        young.map(|(tid, _)| *tid).collect()
    }

    /// Whether the others need not wait for a thread that is away.
    fn is_passed_by(&self, host: &Host, doing: Doing) -> bool {
        let patience = match doing {
            Doing::Gone | Doing::Waits | Doing::WaitsAWhile => return true,
            Doing::Outside => return stretch(host) >= Patience::OUTSIDE,
            Doing::Pauses => Patience::PAUSES,
            Doing::Runs => Patience::RUNS,
        };
        if stretch(host) < patience {
            return false;
        }
        if self.strict.turnstile().overtake(host.thread) {
            self.strict.note(Actor::Thread(Arc::clone(&host.label)), What::IsOvertaken, None);
        }
        true
    }

    /// Lets one thing happen.
    fn take(&self, machine: &Machine, step: Step) {
        match step {
            Step::Call { thread, label, call } => {
                self.strict.note(Actor::Thread(label), What::Calls(call), None);
                machine.lock().tick();
                self.strict.turnstile().let_go(thread, None);
            }
            Step::Resume { thread, label, call } => {
                self.strict.note(Actor::Thread(label), What::Resumes(call), None);
                machine.lock().tick();
                self.strict.turnstile().let_go(thread, None);
            }
            Step::Head(stream) => {
                let mut state = machine.lock();
                state.tick();
                if let Some((card, entry, tag)) = state.head_of(stream) {
                    self.strict.note(Actor::Stream { stream, card }, What::Runs(entry), tag);
                }
                let before = state.launches.len();
                state.start_head(stream);
                state.ready.clear();
                let last = state.launches.pop_if(|launch| !matches!(launch, Launch::Meeting(_)));
                drop(state);
                // One entry launches itself at most; collectives that became complete by it wait for their own turn.
                debug_assert!(last.is_none() || before == machine.lock().launches.len());
                if let Some(launch) = last {
                    self.launch(machine, launch);
                }
            }
            Step::Launch(place) => {
                let launch = {
                    let mut state = machine.lock();
                    state.tick();
                    (place < state.launches.len()).then(|| state.launches.remove(place))
                };
                if let Some(launch) = launch {
                    if let Launch::Meeting(meeting) = &launch {
                        let actor = Actor::Communicator(meeting.group_name());
                        self.strict.note(actor, What::Meets(meeting.name()), None);
                    }
                    self.launch(machine, launch);
                }
            }
        }
    }

    fn launch(&self, machine: &Machine, launch: Launch) {
        let runs_elsewhere = match &launch {
            Launch::HostFunction { .. } => true,
            // It waits for other processes, and must not keep the others waiting.
            Launch::Meeting(meeting) => meeting.elsewhere().is_some(),
            Launch::Task { .. } => false,
        };
        if runs_elsewhere {
            machine.hand_over(launch);
        } else {
            machine.run_here(launch);
        }
    }

    /// Nothing can happen: somebody may come back, or a time is over, or something waits for ever.
    fn stuck(&mut self, machine: &Machine, view: &View) {
        let turnstile = self.strict.turnstile();
        let is_blocked = |host: &Host| matches!(host.stand, Stand::Blocked { .. });
        let is_anyone_blocked = view.hosts.iter().any(is_blocked);
        let is_anything_held = machine.lock().holds_anything();
        if !is_anyone_blocked && !is_anything_held {
            // The program rests.
            turnstile.await_move(view.generation, None);
            return;
        }
        let since = match self.is_stuck_since {
            Some((generation, since)) if generation == view.generation => since,
            _ => Instant::now(),
        };
        self.is_stuck_since = Some((view.generation, since));
        if machine.patience_for_others().is_some_and(|patience| since.elapsed() < patience) {
            turnstile.await_move(view.generation, Some(Patience::IDLE_LOOKS));
            return;
        }
        let timeout = earliest_timeout(view, &machine.lock());
        let is_due = timeout.as_ref().is_some_and(|(left, _)| since.elapsed() >= *left);
        if !is_due && self.may_anyone_come_back(view, since.elapsed(), is_anyone_blocked) {
            turnstile.await_move(view.generation, Some(Patience::IDLE_LOOKS));
            return;
        }
        self.is_stuck_since = None;
        match timeout {
            Some((_, Timeout::Call { thread, label, call, at, gathers })) => {
                let mut state = machine.lock();
                state.advance_clock(at);
                if let Some(root) = gathers {
                    deadlock::report_not_gathered(&mut state, view, root);
                }
                drop(state);
                self.strict.note(Actor::Thread(label), What::TimesOut(call), None);
                turnstile.let_go(thread, None);
            }
            Some((_, Timeout::Machine { at })) => {
                let mut state = machine.lock();
                state.advance_clock(at);
                if !state.expire_waits() {
                    deadlock::resolve(&mut state, view, turnstile);
                }
            }
            None => deadlock::resolve(&mut machine.lock(), view, turnstile),
        }
    }

    /// Whether some thread may still do something that changes what can happen.
    fn may_anyone_come_back(&self, view: &View, stuck_for: Duration, is_anyone_blocked: bool) -> bool {
        if !self.can_see {
            return stuck_for < Patience::LAST_A_WHILE;
        }
        let is_awaited = |doing: Doing| match doing {
            Doing::Gone | Doing::Waits => false,
            Doing::WaitsAWhile => stuck_for < Patience::LAST_A_WHILE,
            Doing::Pauses | Doing::Runs => stuck_for < Patience::LAST_RUNS,
            Doing::Outside => true,
        };
        let away = view.hosts.iter().filter(|host| matches!(host.stand, Stand::Away { .. }));
        if away.map(|host| watch::look(host.tid).doing).any(is_awaited) {
            return true;
        }
        // With every thread of the program outside the library, any other thread may be the one that goes on.
        let others = self.strangers.keys().chain(&self.residents);
        !is_anyone_blocked && others.map(|tid| watch::look(*tid).doing).any(|doing| doing > Doing::Waits)
    }
}

/// What threads that have not called do; None when one of them may be on its way to its first call.
fn look_at_young(young: &[Tid]) -> Option<Vec<Look>> {
    let looks = young.iter().map(|tid| {
        let look = watch::look(*tid);
        matches!(look.doing, Doing::Waits | Doing::WaitsAWhile | Doing::Gone).then_some(look)
    });
    looks.collect()
}

/// How long a thread has been away.
fn stretch(host: &Host) -> Duration {
    match host.stand {
        Stand::Away { since, .. } => since.elapsed(),
        _ => Duration::ZERO,
    }
}

/// All that may happen next, in an order that depends on the machine's state alone.
fn candidates(view: &View, state: &State) -> Vec<Step> {
    let calls = view.hosts.iter().filter_map(|host| {
        let (thread, label) = (host.thread, Arc::clone(&host.label));
        match &host.stand {
            Stand::Parked { call } => Some(Step::Call { thread, label, call }),
            Stand::Blocked { wait, .. } if wait.is_over(state) => {
                Some(Step::Resume { thread, label, call: host.last_call.unwrap_or("a call") })
            }
            _ => None,
        }
    });
    let heads = state
        .streams
        .iter()
        .filter(|(id, stream)| stream.has_next() && !state.holds.is_kept(**id))
        .map(|(id, _)| Step::Head(*id));
    calls.chain(heads).chain((0..state.launches.len()).map(Step::Launch)).collect()
}

/// A time limit.
enum Timeout {
    /// Of a call.
    Call {
        thread: u64,
        label: Arc<str>,
        call: &'static str,
        at: Instant,
        /// The communicator the call helps to build.
        gathers: Option<u64>,
    },
    /// Of something in a queue.
    Machine { at: Instant },
}

/// The time limit that is over first, and the time left until then.
fn earliest_timeout(view: &View, state: &State) -> Option<(Duration, Timeout)> {
    let calls = view.hosts.iter().filter_map(|host| match &host.stand {
        Stand::Blocked { deadline: Some(at), wait, .. } => {
            let gathers = match wait {
                Wait::Gathering { root, .. } => Some(*root),
                _ => None,
            };
            let (label, call) = (Arc::clone(&host.label), host.last_call.unwrap_or("a call"));
            Some((*at, Timeout::Call { thread: host.thread, label, call, at: *at, gathers }))
        }
        _ => None,
    });
    let queued = state.next_expiry().map(|at| (at, Timeout::Machine { at }));
    let earliest = calls.chain(queued).min_by_key(|(at, _)| *at);
    earliest.map(|(at, timeout)| (at.saturating_duration_since(state.now()), timeout))
}
