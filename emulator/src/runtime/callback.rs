//! Functions of the program that streams call: callbacks for a thread of the program (`aclrtProcessReport` runs them),
//! and host functions for a thread of the runtime, one per card that uses them.
//!
//! Input: subscriptions of (thread, stream), functions reached by streams. Output: functions run in the order reached.
//! Invariants: a stream has at most one subscribed thread; a function that blocks takes no core from the cards' pool.
//! Does not: know C signatures (see `abi`).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::machine::{Machine, State};
use crate::runtime::thread;
use crate::scheduler::wait::Wait;
use crate::strict::order;

/// A function of the program with its argument; a captured graph calls it at every replay.
pub(crate) type HostFunction = Arc<dyn Fn() + Send + Sync>;

/// What a callback does to its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// The stream goes on at once.
    No,
    /// The stream goes on when the callback has returned.
    Yes,
}

/// A callback in a stream.
#[derive(Clone)]
pub(crate) struct Callback {
    /// The program's function with its argument.
    pub(crate) body: HostFunction,
    /// Whether the stream waits for it.
    pub(crate) blocking: Blocking,
    /// The captured stream whose subscription counts; None for the stream it is on.
    pub(crate) subscribed: Option<u64>,
}

/// A callback that its stream has reached.
pub(crate) struct Report {
    /// The callback.
    body: HostFunction,
    /// The stream that reached it.
    stream: u64,
    /// The stream that waits for its end.
    resumes: Option<u64>,
}

/// Which thread runs the callbacks of which stream, and what is posted.
#[derive(Default)]
pub(crate) struct Reports {
    thread_of_stream: BTreeMap<u64, u64>,
    posted: BTreeMap<u64, VecDeque<Report>>,
}

impl Reports {
    /// Whether a thread that waits for callbacks would find one, or find that none can come.
    pub(crate) fn has_news(&self, thread: u64) -> bool {
        self.posted.get(&thread).is_some_and(|posted| !posted.is_empty())
            || !self.thread_of_stream.values().any(|subscribed| *subscribed == thread)
    }
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports").field("thread_of_stream", &self.thread_of_stream).finish_non_exhaustive()
    }
}

/// The thread that runs the host functions of one card; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HostThread(Sender<Report>);

impl HostThread {
    /// Starts the thread.
    pub(crate) fn start(card: u32, machine: &Weak<Machine>) -> io::Result<Self> {
        let (send, receive) = mpsc::channel::<Report>();
        let machine = Weak::clone(machine);
        let body = move || {
            thread::is_of_machine();
            for report in receive {
                let Some(machine) = machine.upgrade() else { return };
                let turnstile = machine.turnstile();
                if let Some(turnstile) = turnstile {
                    turnstile.begin_function(report.stream);
                }
                if let Some(now_ns) = machine.lock().now_ns() {
                    thread::raise_clock(machine.key(), now_ns);
                }
                machine.run_function(&report);
                if let Some(turnstile) = turnstile {
                    turnstile.end_function();
                }
            }
        };
        std::thread::Builder::new().name(format!("ascend-host-functions-{card}")).spawn(body)?;
        Ok(Self(send))
    }

    /// Runs `body` after what was handed over before; the stream goes on when it has returned.
    pub(crate) fn run(&self, stream: u64, body: HostFunction) {
        // The thread receives until this sender is dropped, so there is someone to take it.
        let _ = self.0.send(Report { body, stream, resumes: Some(stream) });
    }
}

impl State {
    /// From now on `thread` runs the callbacks of `stream`.
    pub(crate) fn subscribe(&mut self, thread: u64, stream: u64) -> Result<(), Failure> {
        if let Some(other) = self.reports.thread_of_stream.get(&stream) {
            let what = format!("thread {other} already runs the callbacks of stream {stream}; unsubscribe it first");
            return Err(Failure::new(code::STREAM_SUBSCRIBE, what));
        }
        self.reports.thread_of_stream.insert(stream, thread);
        Ok(())
    }

    /// Ends a subscription.
    pub(crate) fn unsubscribe(&mut self, thread: u64, stream: u64) -> Result<(), Failure> {
        if self.reports.thread_of_stream.get(&stream) != Some(&thread) {
            let what = format!("thread {thread} does not run the callbacks of stream {stream}");
            return Err(Failure::new(code::THREAD_SUBSCRIBE, what));
        }
        self.reports.thread_of_stream.remove(&stream);
        Ok(())
    }

    /// Whether some thread runs the callbacks of a stream.
    pub(crate) fn is_subscribed(&self, stream: u64) -> bool {
        self.reports.thread_of_stream.contains_key(&stream)
    }

    /// A stream has reached a callback.
    pub(crate) fn post_callback(&mut self, callback: Callback, stream: u64) {
        let Some(thread) = self.reports.thread_of_stream.get(&callback.subscribed.unwrap_or(stream)).copied() else {
            let what = format!("stream {stream} has no thread that would run its callback");
            self.settle(stream, Err(Failure::new(code::STREAM_NO_CALLBACK, what)));
            return;
        };
        let resumes = (callback.blocking == Blocking::Yes).then_some(stream);
        self.reports.posted.entry(thread).or_default().push_back(Report { body: callback.body, stream, resumes });
        self.signal = true;
        if resumes.is_none() {
            self.settle(stream, Ok(()));
        }
    }
}

impl Machine {
    /// Runs a function of the program on the calling thread and lets the stream that waits for it go on.
    pub(crate) fn run_function(&self, report: &Report) {
        let is_ordered = self.strict().is_some();
        if is_ordered {
            order::function_began(&mut self.lock(), report.stream);
        }
        (report.body)();
        self.update(|state| {
            if is_ordered {
                order::function_ended(state, report.stream);
            }
            if let Some(stream) = report.resumes {
                if let Some(stream) = state.streams.get_mut(&stream) {
                    stream.time.raise(thread::clock(self.key()));
                }
                state.settle(stream, Ok(()));
            }
        });
    }

    /// The next callback for `thread`, waited for up to `timeout`.
    pub(crate) fn next_report(&self, thread: u64, timeout: Option<Duration>) -> Result<Report, Failure> {
        let deadline = timeout.map(|timeout| self.thread_now() + timeout);
        let mut state = self.lock();
        loop {
            let is_late = thread::take_late(self.key());
            if let Some(report) = state.reports.posted.get_mut(&thread).and_then(VecDeque::pop_front) {
                return Ok(report);
            }
            if !state.reports.thread_of_stream.values().any(|subscribed| *subscribed == thread) {
                let what = format!("thread {thread} runs the callbacks of no stream; call aclrtSubscribeReport first");
                return Err(Failure::new(code::THREAD_SUBSCRIBE, what));
            }
            if is_late || deadline.is_some_and(|deadline| state.now() >= deadline) {
                let what = format!("no callback came for thread {thread} in time");
                return Err(Failure::new(code::WAIT_TIMEOUT, what));
            }
            state = self.watch(state, deadline, Wait::Callback { thread })?;
        }
    }
}
