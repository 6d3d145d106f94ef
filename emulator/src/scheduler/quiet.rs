//! Quiescence: no thread of the program can reach the library without being released.
//!
//! Maximum waiting times, since a thread was first seen outside the library. They count observed
//! time: a gap between two looks counts at most twice the intended pause. While the host or the
//! process stood still, no thread could come back either.
//! - Running threads [`Patience::RUNS`], sleeping threads [`Patience::PAUSES`], threads in other
//!   blocking system calls [`Patience::OUTSIDE`].
//! - Threads that wait for other threads are not awaited, because only those threads can wake them.
//! - Threads that wait for a lock [`Patience::LOCKED`], or [`Patience::LOCKED_BY_RUNNERS`] while
//!   any thread of the process runs. The unknown owner may not belong to the program: all threads
//!   share the locks of the C library's allocator.
//! - Threads that have not called yet [`Patience::STRANGER`] after they were first seen, and while
//!   they run [`Patience::STRANGER_RUNS`]. In timed mode [`Patience::TIMED_STRANGER_RUNS`], because
//!   a late thread finds the cards' time advanced.
//! - Every thread [`Patience::OUTSIDE`] on systems without `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::strangers::Strangers;
use super::turnstile::{Stand, Turnstile, TurnstileThread, TurnstileView};
use super::watch::{self, Doing, Look, Tid, Watcher};
use crate::machine::Machine;
use crate::strict::Strict;
use crate::strict::trace::{Actor, What};

struct Patience;

impl Patience {
    const RUNS: Duration = Duration::from_secs(60);
    const PAUSES: Duration = Duration::from_secs(1);
    const OUTSIDE: Duration = Duration::from_millis(20);
    /// Longer than a busy host delays a thread that holds a lock briefly.
    const LOCKED: Duration = Duration::from_millis(100);
    /// A thread without a core counts as running, and so do those ahead of it in the lock's queue.
    const LOCKED_BY_RUNNERS: Duration = Duration::from_secs(1);
    const STRANGER: Duration = Duration::from_millis(100);
    /// On a busy host, a new thread can take long to reach its first call.
    const STRANGER_RUNS: Duration = Duration::from_secs(1);
    const TIMED_STRANGER_RUNS: Duration = Duration::from_secs(10);
    /// Limit for a thread that waits for other threads if nothing else can happen. The other thread
    /// may be unknown, such as another machine's thread with a lock of the C library.
    const LAST_WAITS: Duration = Duration::from_millis(100);
    /// Limit like `LAST_WAITS` for a thread that waits with a time limit.
    const LAST_A_WHILE: Duration = Duration::from_secs(5);
    /// Limit like `LAST_WAITS` for a running or sleeping thread.
    const LAST_RUNS: Duration = Duration::from_secs(60);
    /// Limit like `LAST_WAITS` for a running thread that has not called yet.
    const LAST_STRANGER_RUNS: Duration = Duration::from_secs(5);
    /// First and longest interval between two checks.
    const LOOKS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));
}

pub(crate) struct Quiet {
    turnstile: Arc<Turnstile>,
    machine: Weak<Machine>,
    strict: Option<Arc<Strict>>,
    can_see: bool,
    strangers: Strangers,
    /// Strangers that are older than the machine.
    residents: BTreeSet<Tid>,
    /// Younger threads, and when each was first seen.
    young: BTreeMap<Tid, Duration>,
    watcher: Watcher,
    /// Threads that wait for a lock, and when this state was first seen.
    locked: BTreeMap<Tid, (Look, Duration)>,
    /// Threads outside the library: when each left its last call, by the host's time and as
    /// observed.
    away: BTreeMap<u64, (Instant, Duration)>,
    /// Time observed so far.
    observed: Duration,
    observed_until: Instant,
    /// Threads that were not awaited at the last quiescence.
    asleep: BTreeMap<Tid, Look>,
}

impl Quiet {
    pub(crate) fn new(
        turnstile: Arc<Turnstile>,
        machine: &Arc<Machine>,
        strict: Option<Arc<Strict>>,
    ) -> Self {
        let mut strangers = Strangers::new();
        Self {
            turnstile,
            machine: Arc::downgrade(machine),
            strict,
            can_see: watch::is_possible(),
            residents: strangers.look().clone(),
            strangers,
            young: BTreeMap::new(),
            watcher: Watcher::default(),
            locked: BTreeMap::new(),
            away: BTreeMap::new(),
            observed: Duration::ZERO,
            observed_until: Instant::now(),
            asleep: BTreeMap::new(),
        }
    }

    pub(crate) fn machine(&self) -> Option<Arc<Machine>> {
        self.machine.upgrade()
    }

    /// Returns all threads at quiescence. Returns `None` when the machine is gone.
    pub(crate) fn await_quiet(&mut self) -> Option<TurnstileView> {
        let mut pause = Patience::LOOKS.0;
        let mut generation = None;
        loop {
            let view = self.turnstile.view()?;
            if generation.replace(view.generation) != Some(view.generation) {
                pause = Patience::LOOKS.0;
            }
            if !view.expects_functions && self.is_quiet(&view) {
                if self.turnstile.is_still(view.generation) {
                    if self.number_newcomers(&view) {
                        continue;
                    }
                    return Some(view);
                }
                continue;
            }
            self.pause(view.generation, pause);
            pause = (pause * 2).min(Patience::LOOKS.1);
        }
    }

    /// Returns after a change of the turnstile since `generation`, or after `limit`.
    pub(crate) fn pause(&mut self, generation: u64, limit: Duration) {
        self.turnstile.await_move(generation, Some(limit));
        let gap = self.observed_until.elapsed().min(2 * limit);
        self.observed += gap;
        self.observed_until = Instant::now();
    }

    /// Time in which this thread observed the other threads, without standstills of the host.
    pub(crate) const fn observed(&self) -> Duration {
        self.observed
    }

    /// Numbers are in order of thread start.
    fn number_newcomers(&self, view: &TurnstileView) -> bool {
        let newcomers = view.hosts.iter().filter(|host| host.number.is_none());
        let threads = watch::in_order_of_start(newcomers.map(|host| (host.tid, host.thread)));
        self.turnstile.number(&threads);
        !threads.is_empty()
    }

    fn list_strangers(&mut self) {
        if !self.can_see {
            return;
        }
        let now = self.observed;
        let present = self.strangers.look();
        self.young.retain(|tid, _| present.contains(tid));
        self.residents.retain(|tid| present.contains(tid));
        for tid in present {
            if !self.residents.contains(tid) {
                self.young.entry(*tid).or_insert(now);
            }
        }
    }

    fn is_quiet(&mut self, view: &TurnstileView) -> bool {
        let away = |host: &TurnstileThread| matches!(host.stand, Stand::Away { is_overtaken: false, .. });
        let away: Vec<&TurnstileThread> = view.hosts.iter().filter(|host| away(host)).collect();
        if away.iter().any(|host| host.is_waking) {
            return false;
        }
        self.away.retain(|thread, _| away.iter().any(|host| host.thread == *thread));
        for host in &away {
            self.time_away(host);
        }
        if !self.can_see {
            return away.iter().all(|host| self.time_away(host) >= Patience::OUTSIDE);
        }
        let Some(mut looks) = self.look_at_hosts(&away) else { return false };
        // Only now can no remaining thread start another one unseen.
        self.list_strangers();
        let young = self.young_strangers();
        let Some(at_young) = self.look_at_young(&young) else { return false };
        looks.extend(at_young);
        // Equal states mean that these threads have slept since the last quiescence. All other
        // threads stand, so none can wake them.
        if looks.iter().all(|(tid, look)| self.asleep.get(tid) == Some(look)) {
            return true;
        }
        // A thread that waits for this lock will run soon.
        if let Some(machine) = self.machine.upgrade() {
            drop(machine.lock());
        }
        // Equal states mean that all slept at one moment in between.
        let Some(mut again) = self.look_at_hosts(&away) else { return false };
        let Some(at_young) = self.look_at_young(&young) else { return false };
        again.extend(at_young);
        let is_quiet = again == looks;
        if is_quiet {
            self.asleep = looks;
        }
        is_quiet
    }

    fn look_at_hosts(&mut self, away: &[&TurnstileThread]) -> Option<BTreeMap<Tid, Look>> {
        let looks = away.iter().map(|host| {
            let look = self.watcher.look(host.tid);
            (!self.is_at_lock(host.tid, &look) && self.is_passed_by(host, look.doing))
                .then_some((host.tid, look))
        });
        looks.collect()
    }

    /// Returns true only for a short time.
    fn is_at_lock(&mut self, tid: Tid, look: &Look) -> bool {
        if look.doing != Doing::WaitsForLock {
            self.locked.remove(&tid);
            return false;
        }
        match self.locked.get(&tid) {
            Some((known, since)) if known == look => {
                let waits = self.observed - *since;
                waits < Patience::LOCKED || waits < Patience::LOCKED_BY_RUNNERS && watch::does_another_run()
            }
            _ => {
                self.locked.insert(tid, (look.clone(), self.observed));
                true
            }
        }
    }

    fn patience_with_strangers(&self) -> Duration {
        if self.strict.is_some() { Patience::STRANGER_RUNS } else { Patience::TIMED_STRANGER_RUNS }
    }

    /// Returns the threads that may be about to make their first call, and how long each has been
    /// known.
    fn young_strangers(&self) -> Vec<(Tid, Duration)> {
        let known = self.young.iter().map(|(tid, seen)| (*tid, self.observed - *seen));
        known.filter(|(_, known)| *known < self.patience_with_strangers()).collect()
    }

    fn look_at_young(&mut self, young: &[(Tid, Duration)]) -> Option<BTreeMap<Tid, Look>> {
        let patience = self.patience_with_strangers();
        let looks = young.iter().map(|(tid, known)| {
            let look = self.watcher.look(*tid);
            let is_passed_by = match look.doing {
                Doing::WaitsForLock => !self.is_at_lock(*tid, &look),
                Doing::Waits | Doing::WaitsAWhile | Doing::Gone => true,
                Doing::Runs => *known >= patience,
                Doing::Outside | Doing::Pauses => *known >= Patience::STRANGER,
            };
            is_passed_by.then_some((*tid, look))
        });
        looks.collect()
    }

    fn time_away(&mut self, host: &TurnstileThread) -> Duration {
        let Stand::Away { since, .. } = host.stand else { return Duration::ZERO };
        let left = self.away.entry(host.thread).or_insert((since, self.observed));
        if left.0 != since {
            *left = (since, self.observed);
        }
        self.observed - left.1
    }

    fn is_passed_by(&mut self, host: &TurnstileThread, doing: Doing) -> bool {
        let patience = match doing {
            Doing::Gone | Doing::WaitsForLock | Doing::Waits | Doing::WaitsAWhile => return true,
            Doing::Outside => return self.time_away(host) >= Patience::OUTSIDE,
            Doing::Pauses => Patience::PAUSES,
            Doing::Runs => Patience::RUNS,
        };
        if self.time_away(host) < patience {
            return false;
        }
        if self.turnstile.overtake(host.thread)
            && let Some(strict) = &self.strict
        {
            strict.note(Actor::Thread(Arc::clone(&host.label)), What::IsOvertaken, None);
        }
        true
    }

    pub(crate) fn may_anyone_come_back(
        &self,
        view: &TurnstileView,
        stuck_for: Duration,
        is_anyone_blocked: bool,
    ) -> bool {
        if !self.can_see {
            return stuck_for < Patience::LAST_A_WHILE;
        }
        let is_awaited = |doing: Doing| match doing {
            Doing::Gone => false,
            Doing::WaitsForLock | Doing::Waits => stuck_for < Patience::LAST_WAITS,
            Doing::WaitsAWhile => stuck_for < Patience::LAST_A_WHILE,
            Doing::Pauses | Doing::Runs => stuck_for < Patience::LAST_RUNS,
            Doing::Outside => true,
        };
        let away = view.hosts.iter().filter(|host| matches!(host.stand, Stand::Away { .. }));
        if away.map(|host| watch::look(host.tid).doing).any(is_awaited) {
            return true;
        }
        let mut young = self.young.keys().map(|tid| watch::look(*tid).doing);
        if stuck_for < Patience::LAST_STRANGER_RUNS && young.any(|doing| doing == Doing::Runs) {
            return true;
        }
        // Any other thread may act next if all of the program's are outside the library.
        let others = self.young.keys().chain(&self.residents);
        !is_anyone_blocked && others.map(|tid| watch::look(*tid).doing).any(|doing| doing > Doing::Waits)
    }
}
