//! Streams: FIFO queues of entries, and the state of the current entry.
//!
//! Invariants: at most one entry of a stream is in progress. A failure stays on its stream, and
//! every wait returns it. Later entries still run, unless the context stops on failure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::base::site::CallSite;
use crate::hccl::matching::RankPlace;
use crate::memory::access::MemoryAccess;
use crate::runtime::callback::{Callback, HostFunction};
use crate::runtime::event::EventRecord;
use crate::runtime::signal::SignalAction;
use crate::scheduler::done::Done;
use crate::scheduler::pool::StreamTask;
use crate::scheduler::stream_wait::ValueWait;
use crate::timed::load::LoadId;
use crate::timed::stream_time::StreamTime;

#[derive(Debug)]
pub(crate) struct StreamQueue {
    pub(crate) context: u64,
    pub(crate) card: u32,
    pub(crate) priority: u32,
    pub(crate) flags: u32,
    pub(crate) is_default: bool,
    /// First failure; every wait returns it.
    pub(crate) failure: Option<Failure>,
    /// The stream accepts no new entries: it was aborted, its card is lost, or its context stopped
    /// on a failure.
    pub(crate) is_stopped: bool,
    pub(crate) has_failure_mode: bool,
    pub(crate) attributes: StreamAttributes,
    /// The program's last mark (`aclprofMarkEx`), for messages about later entries.
    pub(crate) tag: Option<Arc<str>>,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) tag_under_way: Option<Arc<str>>,
    pub(crate) thread_under_way: u32,
    /// Stream that receives the entry's failure, if not this one.
    pub(crate) blame_under_way: Option<u64>,
    pub(crate) under_way: usize,
    pub(crate) site_under_way: Option<Arc<CallSite>>,
    pub(crate) time: StreamTime,
    /// Reason why the current entry waits. Outside strict and timed mode, not set for ranks and
    /// functions.
    pub(crate) waits_for: Option<WaitReason>,
    pub(crate) issued: u64,
    pub(crate) finished: u64,
    /// Required value of `finished`, for each waiting thread.
    pub(crate) targets: Vec<u64>,
    pub(crate) done: Arc<Done>,
}

/// Attributes of `aclrtSetStreamAttribute` and limits of `aclrtSetStreamResLimit`, which change no
/// result.
#[derive(Debug, Default)]
pub(crate) struct StreamAttributes {
    /// Overflows of all streams are counted anyway.
    pub(crate) is_overflow_check_off: bool,
    pub(crate) overflow_tag: u32,
    pub(crate) caches_op_info: bool,
    /// Cube cores and vector cores.
    pub(crate) core_limits: [Option<u32>; 2],
}

#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) entry: StreamEntry,
    /// `None` outside strict mode.
    pub(crate) site: Option<Arc<CallSite>>,
    /// Empty for collectives, which describe their bytes in their calls.
    pub(crate) accesses: Vec<MemoryAccess>,
    pub(crate) tag: Option<Arc<str>>,
    /// Stream of the graph's replay, which receives the entry's failure.
    pub(crate) blame: Option<u64>,
    /// Operating system id of the enqueuing thread.
    pub(crate) thread: u32,
    /// Time of the call, in timed mode.
    pub(crate) issued_ns: u64,
}

#[derive(Clone)]
pub(crate) enum StreamEntry {
    /// Work for the pool. Without a `task`, the work only takes time. `load` is its cost in timed
    /// mode. Brief work takes less time than waking a thread, so the thread that makes it ready
    /// runs it.
    Task { name: &'static str, task: Option<StreamTask>, load: Option<LoadId>, is_brief: bool },
    /// Completes an event's record.
    Record(Arc<EventRecord>),
    /// Blocks the stream until a record is complete.
    Wait(Arc<EventRecord>),
    /// This rank's arrival at one collective or, for a batch, several.
    Meet(Vec<RankPlace>),
    /// Sets a notify's flag.
    NotifyRecord(u64),
    /// Blocks the stream until a notify is set, and clears it.
    NotifyWait(u64),
    /// Acts on an event's word (see `signal`).
    Signal { event: u64, act: SignalAction },
    /// Limits the wait of the next entry.
    Limit(Duration),
    /// Blocks the stream until a value in memory satisfies a comparison.
    ValueWait(ValueWait),
    /// A thread of the program runs this function.
    Callback(Callback),
    /// A runtime thread runs this function. The stream continues after its return.
    HostFunction(HostFunction),
}

#[derive(Debug, Clone)]
pub(crate) enum WaitReason {
    Record(Arc<EventRecord>),
    Notify(u64),
    Signal(u64),
    Meet(Vec<RankPlace>),
    Function,
    /// Address of the value.
    Value(usize),
}

impl StreamEntry {
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
            Self::Task { .. }
            | Self::Record(_)
            | Self::NotifyRecord(_)
            | Self::Signal { .. }
            | Self::Limit(_) => None,
        }
    }
}

impl std::fmt::Debug for StreamEntry {
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

impl StreamQueue {
    pub(crate) fn new(
        context: u64,
        card: u32,
        priority: u32,
        flags: u32,
        is_default: bool,
        ordinal: u32,
    ) -> Self {
        Self {
            context,
            card,
            priority,
            flags,
            is_default,
            failure: None,
            is_stopped: false,
            has_failure_mode: false,
            attributes: StreamAttributes::default(),
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

    pub(crate) fn is_idle(&self) -> bool {
        self.finished == self.issued
    }

    pub(crate) fn has_finished(&self, target: u64) -> bool {
        self.finished >= target
    }

    pub(crate) fn has_next(&self) -> bool {
        self.under_way == 0 && !self.queue.is_empty()
    }

    /// Returns when the next entry that could start was issued.
    pub(crate) fn next_issue(&self) -> Option<u64> {
        if self.under_way > 0 {
            return None;
        }
        self.queue.front().map(|queued| queued.issued_ns)
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.blame_under_way.is_some()
    }

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

    pub(crate) fn wake(&self) {
        self.done.wake();
    }

    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.failure.get_or_insert_with(|| failure.clone());
    }

    pub(crate) fn stop(&mut self, failure: &Failure) {
        self.fail(failure);
        self.is_stopped = true;
    }

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
