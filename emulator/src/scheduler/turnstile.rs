//! The turnstile: every call of a strict machine stops here until it is its turn.
//!
//! Input: threads that call, block, run functions of streams, and end. Output: for the conductor, who stands where; for
//! a thread, its turn. Invariants: a parked or blocked thread goes on only when the conductor lets it, or when the
//! machine is closed; a thread is a participant from its first call until it ends; the thread that built the machine is
//! one from the start. Does not: choose (see `conductor`) or look at what threads do outside calls (see `watch`).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wait::Wait;
use super::watch::{self, Doing, Look, Tid};
use crate::base::failure::{Failure, code};
use crate::base::site::Site;
use crate::scheduler::thread;

/// Threads that have ended and are remembered for reports.
const ENDED_KEPT: usize = 256;

/// The label of a thread that has no name, until it has its place.
const UNNAMED: &str = "without a number";

/// Where the threads of the program stand.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    inner: Mutex<Inner>,
    /// Tells the conductor that somebody has moved.
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the number of the thread.
    participants: BTreeMap<u64, Participant>,
    ended: Arc<Vec<EndedThread>>,
    numbered: u32,
    /// Grows with every move.
    generation: u64,
    /// Functions of streams that have been handed over and not begun.
    expected: usize,
    /// Whether the conductor runs.
    conducting: Conducting,
    closed: bool,
}

/// Whether there is a conductor to wait for: it does not begin while the program loads a library (see `watch::BEGIN_LIMIT`), and what
/// that library's constructors call is not ordered, as nobody could.
#[derive(Debug, PartialEq, Eq)]
enum Conducting {
    /// It has been started: one of these threads is it, which did this when they were last looked at. Where threads cannot be
    /// seen, there are none.
    Awaited { threads: Vec<(Tid, Option<Look>)>, looked: Instant },
    /// It does not begin.
    Held,
    /// It has begun.
    Begun,
}

impl Default for Conducting {
    fn default() -> Self {
        Self::among(Vec::new())
    }
}

impl Conducting {
    fn among(threads: Vec<Tid>) -> Self {
        Self::Awaited { threads: threads.into_iter().map(|tid| (tid, None)).collect(), looked: Instant::now() }
    }

    /// Looks again, a while after the last time: a conductor that has waited for another thread all that while cannot begin; one
    /// that the system gave no time to looks as if it ran.
    fn look(&mut self) {
        let Self::Awaited { threads, looked } = self else { return };
        if looked.elapsed() < watch::BEGIN_LIMIT {
            return;
        }
        *looked = Instant::now();
        let mut is_held = true;
        for (tid, last) in threads {
            let now = watch::look(*tid);
            // A thread of somebody else's that began at the same time may have ended since.
            let waits = matches!(now.doing, Doing::Waits | Doing::WaitsForLock);
            is_held &= now.doing == Doing::Gone || waits && last.as_ref() == Some(&now);
            *last = Some(now);
        }
        if is_held {
            *self = Self::Held;
        }
    }
}

/// One thread of the program.
#[derive(Debug)]
struct Participant {
    tid: Tid,
    /// The name of the thread, or its place among the participants.
    label: Arc<str>,
    /// Place among the participants; given by the conductor, in the order the threads were started.
    number: Option<u32>,
    stand: Stand,
    /// Why the blocked call must fail.
    verdict: Option<Failure>,
    /// It was let go and has not run since: to the operating system it may still look asleep.
    is_waking: bool,
    last_call: Option<&'static str>,
    /// The context that was current when it last stopped.
    context: Option<u64>,
    /// The stream whose function it runs.
    function_of: Option<u64>,
    turn: Arc<Condvar>,
}

/// Where a thread stands.
#[derive(Debug, Clone)]
pub(crate) enum Stand {
    /// In its own code, or inside a call whose turn it is.
    Away { since: Instant, is_overtaken: bool },
    /// Before a call.
    Parked { call: &'static str },
    /// Inside a call that waits.
    Blocked { wait: Wait, deadline: Option<Instant>, site: Option<Arc<Site>> },
    /// A thread of the machine without work.
    Idle,
}

/// A thread that has ended.
#[derive(Debug, Clone)]
pub(crate) struct EndedThread {
    pub(crate) label: Arc<str>,
    pub(crate) last_call: Option<&'static str>,
    pub(crate) context: Option<u64>,
}

/// A participant as the conductor sees it.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// The thread's number in this process.
    pub(crate) thread: u64,
    pub(crate) tid: Tid,
    pub(crate) number: Option<u32>,
    pub(crate) label: Arc<str>,
    pub(crate) stand: Stand,
    /// It was let go and has not run since.
    pub(crate) is_waking: bool,
    pub(crate) last_call: Option<&'static str>,
    pub(crate) context: Option<u64>,
    pub(crate) function_of: Option<u64>,
}

/// All participants at one moment.
#[derive(Debug)]
pub(crate) struct TurnstileView {
    pub(crate) generation: u64,
    pub(crate) hosts: Vec<Host>,
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
    /// Makes the calling thread a participant that is away, if it is none.
    pub(crate) fn join(self: &Arc<Self>) {
        self.enter(Stand::away());
    }

    fn enter(self: &Arc<Self>, stand: Stand) {
        let me = thread::number();
        let mut inner = self.lock();
        if inner.participants.contains_key(&me) {
            return;
        }
        // Only a thread that will tell of its end may be waited for.
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

    /// Stops the calling thread before a call until it is its turn; gives the name reports use for the thread.
    pub(crate) fn pass(self: &Arc<Self>, call: &'static str, context: Option<u64>) -> Option<Arc<str>> {
        self.join();
        let mut inner = self.lock();
        let me = inner.participants.get_mut(&thread::number())?;
        me.last_call = Some(call);
        me.context = context;
        let (inner, _) = self.stop(inner, Stand::Parked { call });
        inner.participants.get(&thread::number()).map(|me| Arc::clone(&me.label))
    }

    /// Stops the calling thread inside a call until what it waits for has come about or its time is over.
    ///
    /// # Errors
    /// It never will, or the machine is gone.
    pub(crate) fn block(&self, wait: Wait, deadline: Option<Instant>, site: Option<Arc<Site>>) -> Result<(), Failure> {
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
        // The lock stays until this thread sleeps. Were it given back and taken again, the thread would hold it after the conductor has
        // seen it stand, and who only waits for the lock would look asleep.
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
                    let waited = turn.wait_timeout(inner, watch::BEGIN_LIMIT).unwrap_or_else(PoisonError::into_inner);
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

    /// The calling thread goes on although nobody conducts.
    fn pass_unordered(mut inner: MutexGuard<'_, Inner>) -> (MutexGuard<'_, Inner>, Result<(), Failure>) {
        let stand =
            inner.participants.get_mut(&thread::number()).map(|me| std::mem::replace(&mut me.stand, Stand::away()));
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

    /// The conductor has been started, and is one of `threads`.
    pub(crate) fn is_begun_by(&self, threads: Vec<Tid>) {
        let mut inner = self.lock();
        if inner.conducting != Conducting::Begun {
            inner.conducting = Conducting::among(threads);
        }
    }

    /// The conductor's thread runs.
    pub(crate) fn begin(&self) {
        let mut inner = self.lock();
        inner.conducting = Conducting::Begun;
        for participant in inner.participants.values() {
            participant.turn.notify_all();
        }
    }

    /// The calling thread has ended.
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

    /// A function of a stream is about to be handed to a thread, which will say when it begins.
    pub(crate) fn expect_function(&self) {
        let mut inner = self.lock();
        inner.expected += 1;
        inner.generation += 1;
    }

    /// The calling thread of the machine begins a function of `stream`.
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

    /// The calling thread of the machine has no work any more.
    pub(crate) fn end_function(&self) {
        let mut inner = self.lock();
        if let Some(me) = inner.participants.get_mut(&thread::number()) {
            me.stand = Stand::Idle;
            me.function_of = None;
        }
        inner.generation += 1;
        self.moved.notify_one();
    }

    /// Lets everybody go; no call stops any more.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        for participant in inner.participants.values() {
            participant.turn.notify_all();
        }
        self.moved.notify_all();
    }

    /// Something outside the program's calls has changed what can happen.
    pub(crate) fn nudge(&self) {
        self.lock().generation += 1;
        self.moved.notify_one();
    }

    /// For the conductor: everybody now; None once closed.
    pub(crate) fn view(&self) -> Option<TurnstileView> {
        let inner = self.lock();
        if inner.closed {
            return None;
        }
        let hosts = inner.participants.iter().map(|(thread, participant)| Host {
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
        let mut hosts: Vec<Host> = hosts.collect();
        hosts.sort_by_key(|host| (host.number.is_none(), host.number, host.thread));
        Some(TurnstileView {
            generation: inner.generation,
            hosts,
            ended: Arc::clone(&inner.ended),
            expects_functions: inner.expected > 0,
        })
    }

    /// For the conductor: waits until somebody moves after `generation`, or for `limit`.
    pub(crate) fn await_move(&self, generation: u64, limit: Option<Duration>) {
        let inner = self.lock();
        let is_still = |inner: &mut Inner| inner.generation == generation && !inner.closed;
        match limit {
            None => drop(self.moved.wait_while(inner, is_still)),
            Some(limit) => drop(self.moved.wait_timeout_while(inner, limit, is_still)),
        }
    }

    /// For the conductor: whether nobody has moved after `generation`, and there is still something to conduct.
    pub(crate) fn is_still(&self, generation: u64) -> bool {
        let inner = self.lock();
        inner.generation == generation && !inner.closed
    }

    /// For the conductor: gives these threads the next places, in this order.
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

    /// For the conductor: it is this thread's turn; a blocked call fails with `verdict`, if there is one.
    pub(crate) fn let_go(&self, thread: u64, verdict: Option<Failure>) {
        let mut inner = self.lock();
        inner.generation += 1;
        if let Some(participant) = inner.participants.get_mut(&thread) {
            participant.stand = Stand::away();
            participant.is_waking = true;
            participant.verdict = verdict;
            let turn = Arc::clone(&participant.turn);
            // Told without the lock, which it would wake up to wait for.
            drop(inner);
            turn.notify_all();
        }
    }

    /// For the conductor: the others go on without this thread. False when they did so before.
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
