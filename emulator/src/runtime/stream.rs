//! Streams: FIFO queues of entries, and the rule by which the head of a queue becomes ready.
//!
//! Input: entries in the order the program enqueues them. Output: tasks handed to the pool, events recorded, ranks
//! arrived at collectives, each in queue order. Invariants: at most one entry of a stream is under way; `finished`
//! never exceeds `issued`; a failure stays on its stream and is returned by every wait for it, and what follows on the stream
//! runs all the same, unless its context stops on failure.
//! Does not: run tasks (see `scheduler::pool`), move bytes (see `memory::copy`, `hccl`).

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::base::site::Site;
use crate::hccl::meeting::Seat;
use crate::machine::{Machine, State};
pub(crate) use crate::memory::access::{Access, AccessMode};
use crate::runtime::callback::{Callback, HostFunction};
use crate::runtime::event::Record;
use crate::runtime::exception::FailedTask;
use crate::runtime::signal::Act;
use crate::runtime::thread;
use crate::scheduler::launch::Launch;
use crate::scheduler::pool::Task;
use crate::scheduler::stream_wait::ValueWait;
use crate::scheduler::synchronize::Done;
use crate::strict::order;
use crate::timed::load::LoadId;
use crate::timed::schedule::StreamTime;

/// Streams one device can have (CANN guide, Atlas A2).
pub(crate) const MAX_STREAMS: usize = 1984;

/// One queue.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) card: u32,
    pub(crate) priority: u32,
    pub(crate) flags: u32,
    pub(crate) is_default: bool,
    /// The first failure of something on it, which every wait for it returns.
    pub(crate) failure: Option<Failure>,
    /// Nothing runs on it any more and nothing is taken: it was aborted, its card is lost, or something of its context
    /// failed and the context stops on failure (`aclrtSetStreamFailureMode`).
    is_stopped: bool,
    /// `aclrtSetStreamFailureMode` was called for it.
    pub(crate) has_failure_mode: bool,
    /// The program's last mark on this stream (`aclprofMarkEx`), named in messages about what follows it.
    pub(crate) tag: Option<Arc<str>>,
    queue: VecDeque<Queued>,
    /// The mark that held when the entry under way was enqueued.
    pub(crate) tag_under_way: Option<Arc<str>>,
    /// The thread that enqueued the entry under way.
    thread_under_way: u32,
    /// The stream a failure of the entry under way belongs to, if not this one.
    blame_under_way: Option<u64>,
    /// Parts of the entry under way that are not done; 0 when none is under way.
    under_way: usize,
    /// The call that enqueued the entry under way, in strict mode.
    pub(crate) site_under_way: Option<Arc<Site>>,
    /// What a timed machine keeps.
    pub(crate) time: StreamTime,
    /// What the entry under way waits for; outside strict and timed mode only once it does, and apart from ranks and functions.
    pub(crate) hold: Option<Hold>,
    pub(crate) issued: u64,
    pub(crate) finished: u64,
    /// How many entries have to have ended for each thread that waits.
    pub(crate) targets: Vec<u64>,
    pub(crate) done: Arc<Done>,
}

/// An entry in a queue, with what strict mode keeps about it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) entry: Entry,
    /// The call that enqueued it; None outside strict mode.
    pub(crate) site: Option<Arc<Site>>,
    /// The bytes it touches, apart from those of collectives, whose calls say.
    pub(crate) accesses: Vec<Access>,
    /// The stream's mark at that call.
    pub(crate) tag: Option<Arc<str>>,
    /// The stream a graph is replayed on, whose failure this entry's is.
    pub(crate) blame: Option<u64>,
    /// The operating system's number of the thread that enqueued it.
    pub(crate) thread: u32,
    /// When it was enqueued, in timed mode.
    pub(crate) issued_ns: u64,
}

/// One thing in a queue.
#[derive(Clone)]
pub(crate) enum Entry {
    /// Work for the pool; None where it takes nothing but time. In timed mode also what it costs.
    Task { name: &'static str, task: Option<Task>, load: Option<LoadId> },
    /// Marks a record as done.
    Record(Arc<Record>),
    /// Holds the queue until a record is done.
    Wait(Arc<Record>),
    /// This rank's part in one or, for a batch, several collectives.
    Meet(Vec<Seat>),
    /// Sets a notify.
    NotifyRecord(u64),
    /// Holds the queue until a notify is set, and clears it.
    NotifyWait(u64),
    /// What a stream does with an event that is a word (see `signal`).
    Signal { event: u64, act: Act },
    /// The next entry waits no longer than this.
    Limit(Duration),
    /// Holds the queue until a value in memory compares.
    ValueWait(ValueWait),
    /// A function the program's own thread runs.
    Callback(Callback),
    /// A function a thread of the runtime runs; the queue goes on when it has returned.
    HostFunction(HostFunction),
}

/// What an entry under way waits for.
#[derive(Debug, Clone)]
pub(crate) enum Hold {
    /// A record of an event.
    Record(Arc<Record>),
    /// A notify.
    Notify(u64),
    /// An event that is a word.
    Signal(u64),
    /// Other ranks.
    Meet(Vec<Seat>),
    /// A function of the program that has to return.
    Function,
    /// A value in memory, at this address.
    Value(usize),
}

impl Entry {
    /// What a trace calls it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Task { name, .. } => name,
            Self::Record(_) => "event record",
            Self::Wait(_) => "event wait",
            Self::Meet(_) => "arrival at a collective",
            Self::NotifyRecord(_) => "notify record",
            Self::NotifyWait(_) => "notify wait",
            Self::Signal { act: Act::Set(_), .. } => "event record",
            Self::Signal { act: Act::Clear, .. } => "event reset",
            Self::Signal { act: Act::Await(_) | Act::Take, .. } => "event wait",
            Self::Limit(_) => "limit of the next wait",
            Self::ValueWait(_) => "value wait",
            Self::Callback(_) => "callback",
            Self::HostFunction(_) => "host function",
        }
    }

    fn hold(&self) -> Option<Hold> {
        match self {
            Self::Wait(record) => Some(Hold::Record(Arc::clone(record))),
            Self::NotifyWait(notify) => Some(Hold::Notify(*notify)),
            Self::Signal { event, act: Act::Await(_) | Act::Take } => Some(Hold::Signal(*event)),
            Self::Meet(seats) => Some(Hold::Meet(seats.clone())),
            Self::Callback(_) | Self::HostFunction(_) => Some(Hold::Function),
            Self::ValueWait(wait) => Some(Hold::Value(wait.place.address())),
            Self::Task { .. } | Self::Record(_) | Self::NotifyRecord(_) | Self::Signal { .. } | Self::Limit(_) => None,
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task { name, .. } => write!(f, "Task({name})"),
            Self::Record(_) => f.write_str("Record"),
            Self::Wait(_) => f.write_str("Wait"),
            Self::Meet(seats) => write!(f, "Meet({seats:?})"),
            Self::NotifyRecord(notify) => write!(f, "NotifyRecord({notify})"),
            Self::NotifyWait(notify) => write!(f, "NotifyWait({notify})"),
            Self::Signal { event, act } => write!(f, "Signal({event}, {act:?})"),
            Self::Limit(limit) => write!(f, "Limit({limit:?})"),
            Self::ValueWait(wait) => write!(f, "{wait:?}"),
            Self::Callback(_) => f.write_str("Callback"),
            Self::HostFunction(_) => f.write_str("HostFunction"),
        }
    }
}

impl Stream {
    pub(crate) fn new(context: u64, card: u32, priority: u32, flags: u32, is_default: bool, ordinal: u32) -> Self {
        Self {
            context,
            card,
            priority,
            flags,
            is_default,
            failure: None,
            is_stopped: false,
            has_failure_mode: false,
            tag: None,
            queue: VecDeque::new(),
            tag_under_way: None,
            thread_under_way: 0,
            blame_under_way: None,
            under_way: 0,
            site_under_way: None,
            time: StreamTime::new(ordinal),
            hold: None,
            issued: 0,
            finished: 0,
            targets: Vec::new(),
            done: Arc::default(),
        }
    }

    /// Whether everything enqueued has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.finished == self.issued
    }

    /// Whether the first `target` entries have ended.
    pub(crate) fn has_finished(&self, target: u64) -> bool {
        self.finished >= target
    }

    /// Whether an entry could be started.
    pub(crate) fn has_next(&self) -> bool {
        self.under_way == 0 && !self.queue.is_empty()
    }

    /// When the entry was issued that could be started next.
    pub(crate) fn next_issue(&self) -> Option<u64> {
        if self.under_way > 0 {
            return None;
        }
        self.queue.front().map(|queued| queued.issued_ns)
    }

    /// Whether the entry under way is one of a replayed graph.
    pub(crate) fn is_replaying(&self) -> bool {
        self.blame_under_way.is_some()
    }

    /// The entries that have not been started.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &Queued> {
        self.queue.iter()
    }

    fn finish_one(&mut self) {
        self.finished += 1;
        self.done.set(self.finished);
        if self.targets.iter().any(|target| *target <= self.finished) {
            self.wake();
        }
    }

    /// Lets the threads that wait for this stream look again.
    pub(crate) fn wake(&self) {
        self.done.wake();
    }

    fn fail(&mut self, failure: &Failure) {
        self.failure.get_or_insert_with(|| failure.clone());
    }

    /// Nothing runs on it from here on.
    pub(crate) fn stop(&mut self, failure: &Failure) {
        self.fail(failure);
        self.is_stopped = true;
    }

    /// Why it takes nothing any more, if it does not.
    pub(crate) fn refusal(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|_| self.is_stopped)
    }
}

impl State {
    /// The stream behind a handle (NULL: the default stream of `current`), which must belong to the context `current`.
    pub(crate) fn resolve_stream(&self, handle: *const c_void, current: Option<u64>) -> Result<u64, Failure> {
        let current_id = current.ok_or_else(no_context)?;
        let context = self.contexts.get(&current_id).ok_or_else(|| context_gone(current_id))?;
        if handle.is_null() {
            return Ok(context.default_stream);
        }
        let id = HandleKind::Stream.decode(handle)?;
        let stream = self.streams.get(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
        if stream.context != current_id {
            let what = format!(
                "stream {id} belongs to context {} on card {}, but context {current_id} on card {} is current on this \
                 thread; call aclrtSetCurrentContext or aclrtSetDevice first",
                stream.context, stream.card, context.card
            );
            return Err(Failure::new(code::STREAM_CONTEXT, what));
        }
        Ok(id)
    }

    /// Appends an entry to a stream that has not stopped.
    pub(crate) fn enqueue(&mut self, id: u64, queued: Queued) -> Result<(), Failure> {
        if self.graphs.is_capturing(id) {
            return self.capture(id, queued);
        }
        if self.graphs.is_updating(id) {
            return self.take_replacement(id, queued);
        }
        let stream = self.streams.get_mut(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
        if let Some(failure) = stream.refusal() {
            return Err(failure.clone());
        }
        if self.order.is_some() {
            order::enqueued(self, id, &queued)?;
        }
        let stream = self.streams.get_mut(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
        stream.issued += 1;
        stream.queue.push_back(queued);
        self.ready.push(id);
        Ok(())
    }

    /// Advances every stream that may be ready.
    pub(crate) fn run_ready(&mut self) {
        self.recheck_values();
        while let Some(id) = self.ready.pop() {
            self.advance(id);
        }
    }

    /// Starts entries from the head of a queue until one is under way or the queue is empty.
    fn advance(&mut self, id: u64) {
        while self.streams.get(&id).is_some_and(Stream::has_next) && self.start_head(id) {}
    }

    /// Card, kind and mark of the entry a stream would start next.
    pub(crate) fn head_of(&self, id: u64) -> Option<(u32, &'static str, Option<Arc<str>>)> {
        let stream = self.streams.get(&id)?;
        let queued = stream.queue.front()?;
        Some((stream.card, queued.entry.name(), queued.tag.clone()))
    }

    /// Whether some stream has reached an entry that has not ended.
    pub(crate) fn holds_anything(&self) -> bool {
        self.streams.values().any(|stream| stream.under_way > 0)
    }

    /// Starts the next entry of a stream that has one; false when it is kept back.
    pub(crate) fn start_head(&mut self, id: u64) -> bool {
        let is_strict = self.is_strict();
        let now_ns = self.now_ns();
        let clock = self.clock;
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        if self.holds.keep(id, stream.card, || clock.unwrap_or_else(Instant::now)) {
            if let Some(until) = self.holds.earliest() {
                self.limit(until);
            }
            return false;
        }
        let Some(queued) = stream.queue.pop_front() else { return false };
        stream.tag_under_way = queued.tag.clone();
        stream.thread_under_way = queued.thread;
        stream.blame_under_way = queued.blame;
        if let Some(failure) = stream.refusal().cloned() {
            stream.finish_one();
            self.discard(id, queued, &failure);
            return true;
        }
        stream.under_way = 1;
        let card = stream.card;
        if let Some(now_ns) = now_ns {
            stream.time.begin(queued.issued_ns, now_ns);
            stream.hold = queued.entry.hold();
        }
        if is_strict {
            stream.site_under_way = queued.site.clone();
            stream.hold = queued.entry.hold();
            order::started(self, id, &queued);
        }
        match queued.entry {
            Entry::Task { name, task, load } if now_ns.is_some() => self.start_load(id, name, task, load),
            Entry::Task { name, task: Some(task), .. } => {
                self.launches.push(Launch::Task { stream: id, name, task });
            }
            Entry::Task { task: None, .. } => self.settle(id, Ok(())),
            Entry::Record(record) => {
                self.complete_record(&record);
                self.settle(id, Ok(()));
            }
            Entry::Wait(record) => {
                if record.hold(id) {
                    self.drop_limit(id);
                    self.settle(id, Ok(()));
                } else {
                    self.hold(id, Hold::Record(record));
                }
            }
            Entry::Meet(seats) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.under_way = seats.len();
                }
                for seat in seats {
                    self.arrive(seat, id);
                }
            }
            Entry::NotifyRecord(notify) => {
                self.set_notify(notify);
                self.settle(id, Ok(()));
            }
            Entry::NotifyWait(notify) => self.await_notify(notify, id),
            Entry::Signal { event, act } => self.reach_signal(event, act, id, Hold::Signal(event)),
            Entry::Limit(limit) => {
                self.limit_next_wait(id, limit);
                self.settle(id, Ok(()));
            }
            Entry::ValueWait(wait) => self.await_value(wait, id),
            Entry::Callback(callback) => self.post_callback(callback, id),
            Entry::HostFunction(body) => {
                self.launches.push(Launch::HostFunction { stream: id, card, body });
            }
        }
        true
    }

    /// One part of the entry under way on a stream has ended. A stream destroyed meanwhile is ignored.
    pub(crate) fn settle(&mut self, id: u64, outcome: Result<(), Failure>) {
        // Of streams that something ends together, the failure of the first may have ended this one.
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.under_way > 0) else { return };
        let mut failed = None;
        if let Err(failure) = outcome {
            let at = stream.tag_under_way.as_ref().map(|tag| format!(", at {tag:?}")).unwrap_or_default();
            let blamed = stream.blame_under_way.unwrap_or(id);
            let place = format!("stream {blamed} of card {}{at}: {}", stream.card, failure.message);
            self.exceptions.note(FailedTask {
                task: stream.finished as u32 + 1,
                stream: blamed as u32,
                thread: stream.thread_under_way,
                card: stream.card,
                code: failure.code,
            });
            failed = Some((blamed, Failure { message: place, ..failure }));
        }
        let now_ns = self.now_ns();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.under_way -= 1;
        if stream.under_way == 0 {
            stream.finish_one();
            if let (Some(now_ns), Some(schedule)) = (now_ns, &mut self.timed)
                && stream.time.end(now_ns, stream.finished)
            {
                schedule.look();
            }
            stream.hold = None;
            self.held.forget(id);
            self.ready.push(id);
            if self.order.is_some() {
                order::ended(self, id);
            }
        }
        if let Some((blamed, failure)) = failed {
            self.fail_stream(blamed, &failure);
        }
    }

    /// Something on a stream has failed. What follows is run all the same, unless its context stops on failure: then nothing
    /// runs on any stream of it any more, and none waits.
    fn fail_stream(&mut self, id: u64, failure: &Failure) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.fail(failure);
        let context = stream.context;
        if !self.contexts.get(&context).is_some_and(|context| context.stops_on_failure) {
            return;
        }
        let going = self.streams.iter_mut().filter(|(_, stream)| stream.context == context && !stream.is_stopped);
        let stopped: Vec<u64> = going
            .map(|(id, stream)| {
                stream.stop(failure);
                *id
            })
            .collect();
        for id in stopped {
            self.end_hold(id);
            self.leave_meetings(id, &left_by_peer(&failure.message));
            self.ready.push(id);
        }
    }

    /// Drops an entry that will never run; whoever waits for it is released or told.
    fn discard(&mut self, stream: u64, queued: Queued, why: &Failure) {
        if self.order.is_some() {
            order::discarded(self, stream, &queued);
        }
        match queued.entry {
            Entry::Record(record) => self.lose_record(&record, why),
            Entry::Meet(seats) => {
                for seat in seats {
                    self.abandon_meeting(seat.meeting, &left_by_peer(&why.message));
                }
            }
            Entry::NotifyRecord(notify) => self.set_notify(notify),
            Entry::Signal { event, act } => self.discard_signal(event, act),
            Entry::Task { .. }
            | Entry::Wait(_)
            | Entry::NotifyWait(_)
            | Entry::Limit(_)
            | Entry::ValueWait(_)
            | Entry::Callback(_)
            | Entry::HostFunction(_) => {}
        }
    }

    /// Removes a stream. What is queued is discarded, collectives it takes part in fail for the others.
    pub(crate) fn remove_stream(&mut self, id: u64, why: &str) {
        self.forget_captures(id);
        self.end_hold(id);
        let Some(mut stream) = self.streams.remove(&id) else { return };
        self.holds.forget(id);
        self.held.forget(id);
        let failure = Failure::new(code::STREAM_ABORT, format!("stream {id} of card {} {why}", stream.card));
        for queued in stream.queue.drain(..) {
            self.discard(id, queued, &failure);
        }
        self.leave_meetings(id, &left_by_peer(&failure.message));
        if self.order.is_some() {
            order::stream_removed(self, id);
        }
        stream.wake();
        if let Some(card) = self.cards.get_mut(stream.card as usize) {
            card.streams -= 1;
        }
    }

    /// Ends what a stream waits for, other than ranks (see [`State::leave_meetings`]) and functions of the program: whoever
    /// sets it later sets it for others.
    fn end_hold(&mut self, id: u64) {
        match self.streams.get_mut(&id).and_then(|stream| stream.hold.clone()) {
            Some(Hold::Record(record)) => record.release(id),
            Some(Hold::Notify(notify)) => self.leave_notify(notify, id),
            Some(Hold::Signal(event)) => self.leave_signal(event, id),
            Some(Hold::Value(_)) => {}
            Some(Hold::Meet(_) | Hold::Function) | None => return,
        }
        self.settle(id, Ok(()));
    }

    /// Discards what is queued on a stream and marks it as aborted; the entry under way ends if it waits, else by itself.
    pub(crate) fn abort_stream(&mut self, id: u64) {
        let Some(stream) = self.streams.get(&id) else { return };
        let failure = Failure::new(code::STREAM_ABORT, format!("stream {id} of card {} was aborted", stream.card));
        self.end_stream(id, &failure);
    }

    /// Fails a stream and discards what is queued on it.
    pub(crate) fn end_stream(&mut self, id: u64, failure: &Failure) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.stop(failure);
        self.holds.forget(id);
        let discarded: Vec<Queued> = stream.queue.drain(..).collect();
        for queued in discarded {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.finish_one();
            }
            self.discard(id, queued, failure);
        }
        self.end_hold(id);
        self.leave_meetings(id, &left_by_peer(&failure.message));
    }

    /// Fails a stream at the entry that is next, which never runs.
    pub(crate) fn fail_head(&mut self, id: u64, failure: Failure) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let place = format!("stream {id} of card {}: {}", stream.card, failure.message);
        let failure = Failure { message: place, ..failure };
        if let Some(queued) = stream.queue.pop_front() {
            stream.finish_one();
            self.discard(id, queued, &failure);
        }
        self.fail_stream(id, &failure);
    }

    /// Streams of a card.
    pub(crate) fn streams_of_card(&self, card: u32) -> Vec<u64> {
        self.streams.iter().filter(|(_, stream)| stream.card == card).map(|(id, _)| *id).collect()
    }
}

impl Machine {
    /// Appends an entry that touches `accesses` to a stream (NULL: the default stream of the current context); returns
    /// the stream's number.
    ///
    /// # Errors
    /// No such stream in the current context, or the stream has failed.
    pub(crate) fn enqueue(&self, stream: *mut c_void, entry: Entry, accesses: Vec<Access>) -> Result<u64, Failure> {
        let current = thread::context(self.key());
        self.update(|state| {
            let id = state.resolve_stream(stream, current)?;
            let queued = self.queued(state, id, entry, accesses);
            state.enqueue(id, queued)?;
            Ok(id)
        })
    }

    /// An entry with the call that enqueues it.
    pub(crate) fn queued(&self, state: &State, stream: u64, entry: Entry, accesses: Vec<Access>) -> Queued {
        let on = state.streams.get(&stream);
        if let Some(on) = on.filter(|on| !on.is_default) {
            thread::set_last_task(self.key(), on.issued as u32 + 1);
        }
        let tag = on.and_then(|stream| stream.tag.clone());
        let issued_ns = thread::clock(self.key());
        Queued {
            entry,
            site: self.site(state, Some(stream)),
            accesses,
            tag,
            blame: None,
            thread: thread::system_number(),
            issued_ns,
        }
    }

    /// The number of a stream of the current context.
    pub(crate) fn stream(&self, handle: *mut c_void) -> Result<u64, Failure> {
        self.lock().resolve_stream(handle, thread::context(self.key()))
    }

    /// Card of a stream, after the checks of [`Machine::enqueue`].
    ///
    /// # Errors
    /// No such stream in the current context.
    pub(crate) fn stream_card(&self, handle: *mut c_void) -> Result<u32, Failure> {
        let state = self.lock();
        let id = state.resolve_stream(handle, thread::context(self.key()))?;
        Ok(state.streams[&id].card)
    }
}

/// What the peers of a rank that left a collective are told.
pub(crate) fn left_by_peer(what: &str) -> Failure {
    Failure::new(code::REMOTE, format!("a peer left the collective: {what}"))
}

pub(crate) fn no_context() -> Failure {
    let what = "no context is current on this thread; call aclrtSetDevice or aclrtSetCurrentContext first";
    Failure::new(code::CONTEXT_NULL, what)
}

pub(crate) fn context_gone(id: u64) -> Failure {
    let what = format!("context {id}, current on this thread, has been destroyed or its device reset");
    Failure::new(code::CONTEXT_NULL, what)
}
