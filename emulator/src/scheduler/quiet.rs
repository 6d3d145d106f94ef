//! Quiet: the moment at which no thread of the program can still come by itself.
//!
//! Input: the turnstile, what the operating system says of threads. Output: everybody's place once it is quiet. Invariant:
//! a thread that may still come has come or has been overtaken. Does not: decide what happens then (see the conductors of
//! strict and timed mode).
//!
//! A thread that runs is waited for up to [`Patience::RUNS`], one that sleeps up to [`Patience::PAUSES`], one that
//! waits for the world up to [`Patience::OUTSIDE`] since it left its last call; one that waits for other threads is not
//! waited for: only they can wake it. Who has a lock is out of sight, and may be none of the program's threads (all of a process
//! share the locks of the C library's memory): one that waits for a lock is waited for up to [`Patience::LOCKED`], and while any thread of
//! the process runs, which may be the one that has it, up to [`Patience::LOCKED_BY_RUNNERS`]. A thread that
//! has not called yet is given [`Patience::STRANGER`] after it was first seen, and while it runs [`Patience::STRANGER_RUNS`]; in
//! timed mode, where whoever comes late finds the cards ahead, [`Patience::TIMED_STRANGER_RUNS`]. Where threads cannot be seen (no
//! `/proc`), each is waited for up to [`Patience::OUTSIDE`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::strangers::Strangers;
use super::turnstile::{Host, Stand, Turnstile, TurnstileView};
use super::watch::{self, Doing, Look, Tid, Watcher};
use crate::machine::Machine;
use crate::strict::Strict;
use crate::strict::trace::{Actor, What};

/// How long threads are waited for.
struct Patience;

impl Patience {
    const RUNS: Duration = Duration::from_secs(60);
    const PAUSES: Duration = Duration::from_secs(1);
    const OUTSIDE: Duration = Duration::from_millis(20);
    /// Longer than a busy host keeps a thread from its core that has a lock for a moment.
    const LOCKED: Duration = Duration::from_millis(100);
    /// One without a core for long runs all the same, and so do those that are ahead in the queue for the lock.
    const LOCKED_BY_RUNNERS: Duration = Duration::from_secs(1);
    const STRANGER: Duration = Duration::from_millis(100);
    /// On a busy host a new thread may take long to come to its first call.
    const STRANGER_RUNS: Duration = Duration::from_secs(1);
    const TIMED_STRANGER_RUNS: Duration = Duration::from_secs(10);
    /// With nothing else to do: how long a thread that waits for other threads may still come back. Who holds what it waits
    /// for may be out of sight: a thread of another machine with a lock of the C library, say.
    const LAST_WAITS: Duration = Duration::from_millis(100);
    /// The same for one that waits with a limit.
    const LAST_A_WHILE: Duration = Duration::from_secs(5);
    /// The same for one that runs or sleeps.
    const LAST_RUNS: Duration = Duration::from_secs(60);
    /// The same for one that runs and has not called yet.
    const LAST_STRANGER_RUNS: Duration = Duration::from_secs(5);
    /// First and longest time between two looks.
    const LOOKS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));
}

/// Who watches for it.
pub(crate) struct Quiet {
    turnstile: Arc<Turnstile>,
    machine: Weak<Machine>,
    /// Whose trace tells who was overtaken.
    strict: Option<Arc<Strict>>,
    can_see: bool,
    /// Threads that have not called.
    strangers: Strangers,
    /// Those of them that are older than the machine.
    residents: BTreeSet<Tid>,
    /// The younger ones, and when each was first seen.
    young: BTreeMap<Tid, Instant>,
    watcher: Watcher,
    /// Threads that wait for a lock: how they looked, and when that was first seen.
    locked: BTreeMap<Tid, (Look, Instant)>,
    /// Threads that were passed by when it was last quiet, and how they looked.
    asleep: BTreeMap<Tid, Look>,
}

impl Quiet {
    /// For a machine that is new.
    pub(crate) fn new(turnstile: Arc<Turnstile>, machine: &Arc<Machine>, strict: Option<Arc<Strict>>) -> Self {
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
            asleep: BTreeMap::new(),
        }
    }

    /// The machine, while it lives.
    pub(crate) fn machine(&self) -> Option<Arc<Machine>> {
        self.machine.upgrade()
    }

    /// Everybody, once nobody is left who may still come by himself; None when the machine is gone.
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
            self.turnstile.await_move(view.generation, Some(pause));
            pause = (pause * 2).min(Patience::LOOKS.1);
        }
    }

    /// Gives threads that came since the last step their places, in the order they were started.
    fn number_newcomers(&self, view: &TurnstileView) -> bool {
        let newcomers = view.hosts.iter().filter(|host| host.number.is_none());
        let threads = watch::in_order_of_start(newcomers.map(|host| (host.tid, host.thread)));
        self.turnstile.number(&threads);
        !threads.is_empty()
    }

    /// Notes threads that have been started and have not called yet.
    fn list_strangers(&mut self) {
        if !self.can_see {
            return;
        }
        let now = Instant::now();
        let present = self.strangers.look();
        self.young.retain(|tid, _| present.contains(tid));
        self.residents.retain(|tid| present.contains(tid));
        for tid in present {
            if !self.residents.contains(tid) {
                self.young.entry(*tid).or_insert(now);
            }
        }
    }

    /// Whether everybody who may still come has come or is overtaken.
    fn is_quiet(&mut self, view: &TurnstileView) -> bool {
        let away = |host: &Host| matches!(host.stand, Stand::Away { is_overtaken: false, .. });
        let away: Vec<&Host> = view.hosts.iter().filter(|host| away(host)).collect();
        if away.iter().any(|host| host.is_waking) {
            return false;
        }
        if !self.can_see {
            return away.iter().all(|host| stretch(host) >= Patience::OUTSIDE);
        }
        let Some(mut looks) = self.look_at_hosts(&away) else { return false };
        // Only now, when nobody is left who could start another thread unseen.
        self.list_strangers();
        let young = self.young_strangers();
        let Some(at_young) = self.look_at_young(&young) else { return false };
        looks.extend(at_young);
        // Who looks as when it was last quiet has slept since: all others stand, so nobody is left to wake him.
        if looks.iter().all(|(tid, look)| self.asleep.get(tid) == Some(look)) {
            return true;
        }
        // Whoever waits for the machine's lock is not asleep for long.
        if let Some(machine) = self.machine.upgrade() {
            drop(machine.lock());
        }
        // Equal looks mean that all were asleep at one moment between them.
        let Some(mut again) = self.look_at_hosts(&away) else { return false };
        let Some(at_young) = self.look_at_young(&young) else { return false };
        again.extend(at_young);
        let is_quiet = again == looks;
        if is_quiet {
            self.asleep = looks;
        }
        is_quiet
    }

    /// What threads that are away do; None when one of them has to be waited for.
    fn look_at_hosts(&mut self, away: &[&Host]) -> Option<BTreeMap<Tid, Look>> {
        let looks = away.iter().map(|host| {
            let look = self.watcher.look(host.tid);
            (!self.is_at_lock(host.tid, &look) && self.is_passed_by(host, look.doing)).then_some((host.tid, look))
        });
        looks.collect()
    }

    /// Whether a thread waits for a lock, and has not for long.
    fn is_at_lock(&mut self, tid: Tid, look: &Look) -> bool {
        if look.doing != Doing::WaitsForLock {
            self.locked.remove(&tid);
            return false;
        }
        match self.locked.get(&tid) {
            Some((known, since)) if known == look => {
                let waits = since.elapsed();
                waits < Patience::LOCKED || waits < Patience::LOCKED_BY_RUNNERS && watch::does_another_run()
            }
            _ => {
                self.locked.insert(tid, (look.clone(), Instant::now()));
                true
            }
        }
    }

    /// How long a thread that has not called is waited for while it runs.
    fn patience_with_strangers(&self) -> Duration {
        if self.strict.is_some() { Patience::STRANGER_RUNS } else { Patience::TIMED_STRANGER_RUNS }
    }

    /// Threads that may be on their way to their first call, and since when they are known.
    fn young_strangers(&self) -> Vec<(Tid, Duration)> {
        let known = self.young.iter().map(|(tid, seen)| (*tid, seen.elapsed()));
        known.filter(|(_, known)| *known < self.patience_with_strangers()).collect()
    }

    /// What threads that have not called do; None when one of them may be on its way to its first call.
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

    /// Whether the others need not wait for a thread that is away.
    fn is_passed_by(&self, host: &Host, doing: Doing) -> bool {
        let patience = match doing {
            Doing::Gone | Doing::WaitsForLock | Doing::Waits | Doing::WaitsAWhile => return true,
            Doing::Outside => return stretch(host) >= Patience::OUTSIDE,
            Doing::Pauses => Patience::PAUSES,
            Doing::Runs => Patience::RUNS,
        };
        if stretch(host) < patience {
            return false;
        }
        if self.turnstile.overtake(host.thread)
            && let Some(strict) = &self.strict
        {
            strict.note(Actor::Thread(Arc::clone(&host.label)), What::IsOvertaken, None);
        }
        true
    }

    /// Whether some thread may still do something that changes what can happen.
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
        // With every thread of the program outside the library, any other thread may be the one that goes on.
        let others = self.young.keys().chain(&self.residents);
        !is_anyone_blocked && others.map(|tid| watch::look(*tid).doing).any(|doing| doing > Doing::Waits)
    }
}

/// How long a thread has been away.
fn stretch(host: &Host) -> Duration {
    match host.stand {
        Stand::Away { since, .. } => since.elapsed(),
        _ => Duration::ZERO,
    }
}
