//! Streams: FIFO queues of entries, and the rule by which the head of a queue becomes ready.
//!
//! Input: entries in the order the program enqueues them. Output: tasks handed to the pool, events recorded, ranks
//! arrived at collectives, each in queue order. Invariants: at most one entry of a stream is under way; `finished`
//! never exceeds `issued`; a failure stays on its stream and is returned by every wait for it, and what follows on the stream
//! runs all the same, unless its context stops on failure.
//! Does not: run tasks (see `scheduler::pool`), move bytes (see `memory::copy`, `hccl`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::base::site::Site;
use crate::hccl::meeting::RankPlace;
pub(crate) use crate::memory::access::{Access, AccessMode};
use crate::runtime::callback::{Callback, HostFunction};
use crate::runtime::event::EventRecord;
use crate::runtime::signal::SignalAction;
use crate::scheduler::done::Done;
use crate::scheduler::pool::Task;
use crate::scheduler::stream_wait::ValueWait;
use crate::timed::load::LoadId;
use crate::timed::stream_time::StreamTime;

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
    pub(crate) is_stopped: bool,
    /// `aclrtSetStreamFailureMode` was called for it.
    pub(crate) has_failure_mode: bool,
    /// The program's last mark on this stream (`aclprofMarkEx`), named in messages about what follows it.
    pub(crate) tag: Option<Arc<str>>,
    pub(crate) queue: VecDeque<Queued>,
    /// The mark that held when the entry under way was enqueued.
    pub(crate) tag_under_way: Option<Arc<str>>,
    /// The thread that enqueued the entry under way.
    pub(crate) thread_under_way: u32,
    /// The stream a failure of the entry under way belongs to, if not this one.
    pub(crate) blame_under_way: Option<u64>,
    /// Parts of the entry under way that are not done; 0 when none is under way.
    pub(crate) under_way: usize,
    /// The call that enqueued the entry under way, in strict mode.
    pub(crate) site_under_way: Option<Arc<Site>>,
    /// What a timed machine keeps.
    pub(crate) time: StreamTime,
    /// What the entry under way waits for; outside strict and timed mode only once it does, and apart from ranks and functions.
    pub(crate) waits_for: Option<WaitReason>,
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
    /// Work for the pool; None where it takes nothing but time. In timed mode also what it costs. Brief work takes less than to
    /// wake a thread for it: whoever makes it ready runs it.
    Task { name: &'static str, task: Option<Task>, load: Option<LoadId>, is_brief: bool },
    /// Marks a record as done.
    Record(Arc<EventRecord>),
    /// Holds the queue until a record is done.
    Wait(Arc<EventRecord>),
    /// This rank's part in one or, for a batch, several collectives.
    Meet(Vec<RankPlace>),
    /// Sets a notify.
    NotifyRecord(u64),
    /// Holds the queue until a notify is set, and clears it.
    NotifyWait(u64),
    /// What a stream does with an event that is a word (see `signal`).
    Signal { event: u64, act: SignalAction },
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
pub(crate) enum WaitReason {
    /// A record of an event.
    Record(Arc<EventRecord>),
    Notify(u64),
    /// An event that is a word.
    Signal(u64),
    Meet(Vec<RankPlace>),
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
            Self::Signal { act: SignalAction::Set(_), .. } => "event record",
            Self::Signal { act: SignalAction::Clear, .. } => "event reset",
            Self::Signal { act: SignalAction::Await(_) | SignalAction::Take, .. } => "event wait",
            Self::Limit(_) => "limit of the next wait",
            Self::ValueWait(_) => "value wait",
            Self::Callback(_) => "callback",
            Self::HostFunction(_) => "host function",
        }
    }

    pub(crate) fn wait_reason(&self) -> Option<WaitReason> {
        match self {
            Self::Wait(record) => Some(WaitReason::Record(Arc::clone(record))),
            Self::NotifyWait(notify) => Some(WaitReason::Notify(*notify)),
            Self::Signal { event, act: SignalAction::Await(_) | SignalAction::Take } => {
                Some(WaitReason::Signal(*event))
            }
            Self::Meet(rank_places) => Some(WaitReason::Meet(rank_places.clone())),
            Self::Callback(_) | Self::HostFunction(_) => Some(WaitReason::Function),
            Self::ValueWait(wait) => Some(WaitReason::Value(wait.place.address())),
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
            Self::Meet(rank_places) => write!(f, "Meet({rank_places:?})"),
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
            waits_for: None,
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

    pub(crate) fn finish_one(&mut self) {
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

    pub(crate) fn fail(&mut self, failure: &Failure) {
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

pub(crate) fn no_context() -> Failure {
    let what = "no context is current on this thread; call aclrtSetDevice or aclrtSetCurrentContext first";
    Failure::new(code::CONTEXT_NULL, what)
}

pub(crate) fn context_gone(id: u64) -> Failure {
    let what = format!("context {id}, current on this thread, has been destroyed or its device reset");
    Failure::new(code::CONTEXT_NULL, what)
}
