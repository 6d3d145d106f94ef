//! The turnstile: every call of a strict machine stops here until its turn.
//!
//! Invariants:
//! - A parked or blocked thread continues only if the conductor releases it or the machine is
//!   closed.
//! - A thread is a participant from its first call until it ends. The thread that built the machine
//!   is one from the start.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wait::Wait;
use super::watch::{self, Doing, Look, Tid};
use crate::base::failure::{Failure, code};
use crate::base::site::CallSite;
use crate::scheduler::thread;

const ENDED_KEPT: usize = 256;

const UNNAMED: &str = "without a number";

#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    inner: Mutex<Inner>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    participants: BTreeMap<u64, Participant>,
    ended: Arc<Vec<EndedThread>>,
    numbered: u32,
    /// Incremented for every change.
    generation: u64,
    /// Stream functions handed over but not started.
    expected: usize,
    conducting: Conducting,
    closed: bool,
}

/// The conductor thread does not start while the program loads a library (see
/// `watch::BEGIN_LIMIT`). Calls from the library's constructors are then not ordered.
#[derive(Debug, PartialEq, Eq)]
enum Conducting {
    /// One of `threads` is the conductor, with the state last seen of each. Empty if threads are
    /// not visible.
    Awaited { threads: Vec<(Tid, Option<Look>)>, looked: Instant },
    /// The thread cannot start now.
    Held,
    /// The conductor thread is running.
    Begun,
}

impl Default for Conducting {
    fn default() -> Self {
        Self::among(Vec::new())
    }
}

impl Conducting {
    fn among(threads: Vec<Tid>) -> Self {
        Self::Awaited {
            threads: threads.into_iter().map(|tid| (tid, None)).collect(),
            looked: Instant::now(),
        }
    }

    /// A conductor that has waited for another thread for `BEGIN_LIMIT` cannot start. A conductor
    /// without CPU time appears as running.
    fn look(&mut self) {
        let Self::Awaited { threads, looked } = self else { return };
        if looked.elapsed() < watch::BEGIN_LIMIT {
            return;
        }
        *looked = Instant::now();
        let mut is_held = true;
        for (tid, last) in threads {
            let now = watch::look(*tid);
            // An unrelated new thread may have ended.
            let waits = matches!(now.doing, Doing::Waits | Doing::WaitsForLock);
            is_held &= now.doing == Doing::Gone || waits && last.as_ref() == Some(&now);
            *last = Some(now);
        }
        if is_held {
            *self = Self::Held;
        }
    }
}

#[derive(Debug)]
struct Participant {
    tid: Tid,
    label: Arc<str>,
    /// Assigned by the conductor in order of thread start.
    number: Option<u32>,
    stand: Stand,
    /// The blocked call must return this failure.
    verdict: Option<Failure>,
    /// Released and has not run since. The operating system may still report it as asleep.
    is_waking: bool,
    last_call: Option<&'static str>,
    context: Option<u64>,
    /// The thread runs a function of this stream.
    function_of: Option<u64>,
    turn: Arc<Condvar>,
}

#[derive(Debug, Clone)]
pub(crate) enum Stand {
    /// In its own code, or in a call that has its turn.
    Away { since: Instant, is_overtaken: bool },
    /// Before a call, waiting for its turn.
    Parked { call: &'static str },
    /// Inside a call that waits.
    Blocked { wait: Wait, deadline: Option<Instant>, site: Option<Arc<CallSite>> },
    /// A thread of the machine without work.
    Idle,
}

#[derive(Debug, Clone)]
pub(crate) struct EndedThread {
    pub(crate) label: Arc<str>,
    pub(crate) last_call: Option<&'static str>,
    pub(crate) context: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct TurnstileThread {
    /// The thread's number in this process.
    pub(crate) thread: u64,
    pub(crate) tid: Tid,
    pub(crate) number: Option<u32>,
    pub(crate) label: Arc<str>,
    pub(crate) stand: Stand,
    pub(crate) is_waking: bool,
    pub(crate) last_call: Option<&'static str>,
    pub(crate) context: Option<u64>,
    pub(crate) function_of: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct TurnstileView {
    pub(crate) generation: u64,
    pub(crate) hosts: Vec<TurnstileThread>,
    pub(crate) ended: Arc<Vec<EndedThread>>,
    pub(crate) expects_functions: bool,
}

impl Participant {
    fn new(stand: Stand) -> Self {
        Self {
            tid: watch::this_thread(),
            label: std::thread::current().name().unwrap_or(UNNAMED).into(),
            number: None,
            stand,
            verdict: None,
            is_waking: false,
            last_call: None,
            context: None,
            function_of: None,
            turn: Arc::new(Condvar::new()),
        }
    }
}

impl Stand {
    fn away() -> Self {
        Self::Away { since: Instant::now(), is_overtaken: false }
    }
}

impl Turnstile {
    /// Makes the calling thread a participant that is away, unless it already is one.
    pub(crate) fn join(self: &Arc<Self>) {
        self.enter(Stand::away());
    }

    fn enter(self: &Arc<Self>, stand: Stand) {
        let me = thread::number();
        let mut inner = self.lock();
        if inner.participants.contains_key(&me) {
            return;
        }
        // Await only a thread that can announce its end.
        let turnstile = Arc::downgrade(self);
        let leave = move || {
            if let Some(turnstile) = turnstile.upgrade() {
                turnstile.leave(thread::number());
            }
        };
        if thread::at_end(leave) {
            inner.participants.insert(me, Participant::new(stand));
            inner.generation += 1;
            self.moved.notify_one();
        }
    }

    /// Stops before a call until the thread's turn. Returns the label for reports.
    pub(crate) fn pass(self: &Arc<Self>, call: &'static str, context: Option<u64>) -> Option<Arc<str>> {
        self.join();
        let mut inner = self.lock();
        let me = inner.participants.get_mut(&thread::number())?;
        me.last_call = Some(call);
        me.context = context;
        let (inner, _) = self.stop(inner, Stand::Parked { call });
        inner.participants.get(&thread::number()).map(|me| Arc::clone(&me.label))
    }

    /// Stops inside a call until `wait` is over or `deadline` has passed.
    ///
    /// Fails if the condition will never be satisfied, or the machine is gone.
    pub(crate) fn block(
        &self,
        wait: Wait,
        deadline: Option<Instant>,
        site: Option<Arc<CallSite>>,
    ) -> Result<(), Failure> {
        let inner = self.lock();
        self.stop(inner, Stand::Blocked { wait, deadline, site }).1
    }

    fn stop<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        stand: Stand,
    ) -> (MutexGuard<'a, Inner>, Result<(), Failure>) {
        let number = thread::number();
        let Some(me) = inner.participants.get_mut(&number) else {
            let what = "a thread that is ending cannot wait for a strict machine";
            return (inner, Err(Failure::new(code::INTERNAL, what)));
        };
        me.stand = stand;
        let turn = Arc::clone(&me.turn);
        inner.generation += 1;
        // Keep the lock until this thread sleeps. Otherwise the conductor could see it stopped with
        // the lock held, and a thread that waits for the lock would look asleep.
        self.moved.notify_one();
        loop {
            let closed = inner.closed;
            if let Some(me) = inner.participants.get_mut(&number) {
                if closed && !matches!(me.stand, Stand::Away { .. }) {
                    me.stand = Stand::away();
                    me.is_waking = false;
                    let what = "the strict machine was dropped while this thread was in a call";
                    return (inner, Err(Failure::new(code::INTERNAL, what)));
                }
                if matches!(me.stand, Stand::Away { .. }) {
                    me.is_waking = false;
                    let verdict = me.verdict.take();
                    return (inner, verdict.map_or(Ok(()), Err));
                }
            }
            inner = match inner.conducting {
                Conducting::Begun => turn.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Conducting::Awaited { .. } => {
                    let waited =
                        turn.wait_timeout(inner, watch::BEGIN_LIMIT).unwrap_or_else(PoisonError::into_inner);
                    let (mut inner, limit) = waited;
                    if limit.timed_out() {
                        inner.conducting.look();
                    }
                    inner
                }
                Conducting::Held => return Self::pass_unordered(inner),
            };
        }
    }

    /// Releases the calling thread without a conductor.
    fn pass_unordered(mut inner: MutexGuard<'_, Inner>) -> (MutexGuard<'_, Inner>, Result<(), Failure>) {
        let stand = inner
            .participants
            .get_mut(&thread::number())
            .map(|me| std::mem::replace(&mut me.stand, Stand::away()));
        inner.generation += 1;
        let outcome = match stand {
            Some(Stand::Blocked { .. }) => {
                let what = "this call waits for a card while a library is being loaded, when no thread of the emulator can run: \
                            make it after the library's constructors";
                Err(Failure::new(code::INTERNAL, what))
            }
            _ => Ok(()),
        };
        (inner, outcome)
    }

    /// One of `threads` is the conductor.
    pub(crate) fn is_begun_by(&self, threads: Vec<Tid>) {
        let mut inner = self.lock();
        if inner.conducting != Conducting::Begun {
            inner.conducting = Conducting::among(threads);
        }
    }

    pub(crate) fn begin(&self) {
        let mut inner = self.lock();
        inner.conducting = Conducting::Begun;
        for participant in inner.participants.values() {
            participant.turn.notify_all();
        }
    }

    pub(crate) fn leave(&self, number: u64) {
        let mut inner = self.lock();
        inner.generation += 1;
        if let Some(gone) = inner.participants.remove(&number) {
            let ended = Arc::make_mut(&mut inner.ended);
            if ended.len() == ENDED_KEPT {
                ended.remove(0);
            }
            ended.push(EndedThread { label: gone.label, last_call: gone.last_call, context: gone.context });
        }
        self.moved.notify_one();
    }

    pub(crate) fn expect_function(&self) {
        let mut inner = self.lock();
        inner.expected += 1;
        inner.generation += 1;
    }

    pub(crate) fn begin_function(self: &Arc<Self>, stream: u64) {
        self.enter(Stand::Idle);
        let mut inner = self.lock();
        inner.expected = inner.expected.saturating_sub(1);
        if let Some(me) = inner.participants.get_mut(&thread::number()) {
            me.stand = Stand::away();
            me.function_of = Some(stream);
        }
        inner.generation += 1;
        self.moved.notify_one();
    }

    pub(crate) fn end_function(&self) {
        let mut inner = self.lock();
        if let Some(me) = inner.participants.get_mut(&thread::number()) {
            me.stand = Stand::Idle;
            me.function_of = None;
        }
        inner.generation += 1;
        self.moved.notify_one();
    }

    /// No later call stops at a closed turnstile.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        for participant in inner.participants.values() {
            participant.turn.notify_all();
        }
        self.moved.notify_all();
    }

    /// Announces a change that no call of the program made.
    pub(crate) fn nudge(&self) {
        self.lock().generation += 1;
        self.moved.notify_one();
    }

    /// Returns `None` once the turnstile is closed.
    pub(crate) fn view(&self) -> Option<TurnstileView> {
        let inner = self.lock();
        if inner.closed {
            return None;
        }
        let hosts = inner.participants.iter().map(|(thread, participant)| TurnstileThread {
            thread: *thread,
            tid: participant.tid,
            number: participant.number,
            label: Arc::clone(&participant.label),
            stand: participant.stand.clone(),
            is_waking: participant.is_waking,
            last_call: participant.last_call,
            context: participant.context,
            function_of: participant.function_of,
        });
        let mut hosts: Vec<TurnstileThread> = hosts.collect();
        hosts.sort_by_key(|host| (host.number.is_none(), host.number, host.thread));
        Some(TurnstileView {
            generation: inner.generation,
            hosts,
            ended: Arc::clone(&inner.ended),
            expects_functions: inner.expected > 0,
        })
    }

    /// Returns after a change since `generation`, or after `limit`.
    pub(crate) fn await_move(&self, generation: u64, limit: Option<Duration>) {
        let inner = self.lock();
        let is_still = |inner: &mut Inner| inner.generation == generation && !inner.closed;
        match limit {
            None => drop(self.moved.wait_while(inner, is_still)),
            Some(limit) => drop(self.moved.wait_timeout_while(inner, limit, is_still)),
        }
    }

    /// Returns false once the turnstile is closed.
    pub(crate) fn is_still(&self, generation: u64) -> bool {
        let inner = self.lock();
        inner.generation == generation && !inner.closed
    }

    pub(crate) fn number(&self, threads: &[u64]) {
        let mut inner = self.lock();
        for thread in threads {
            let next = inner.numbered;
            if let Some(participant) = inner.participants.get_mut(thread) {
                participant.number = Some(next);
                if &*participant.label == UNNAMED {
                    participant.label = format!("number {next}").into();
                }
                inner.numbered += 1;
            }
        }
    }

    /// If `verdict` is given, the blocked call fails with it.
    pub(crate) fn let_go(&self, thread: u64, verdict: Option<Failure>) {
        let mut inner = self.lock();
        inner.generation += 1;
        if let Some(participant) = inner.participants.get_mut(&thread) {
            participant.stand = Stand::away();
            participant.is_waking = true;
            participant.verdict = verdict;
            let turn = Arc::clone(&participant.turn);
            // With the lock held, the thread would wake only to wait for it.
            drop(inner);
            turn.notify_all();
        }
    }

    pub(crate) fn overtake(&self, thread: u64) -> bool {
        match self.lock().participants.get_mut(&thread).map(|participant| &mut participant.stand) {
            Some(Stand::Away { is_overtaken, .. }) => !std::mem::replace(is_overtaken, true),
            _ => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
