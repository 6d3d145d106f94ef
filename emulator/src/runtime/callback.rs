//! Functions of the program that streams call: callbacks for a thread of the program (`aclrtProcessReport` runs them),
//! and host functions for a thread of the runtime, one per card that uses them.
//!
//! Input: subscriptions of (thread, stream), functions reached by streams. Output: functions run in the order reached.
//! Invariants: a stream has at most one subscribed thread; a function that blocks takes no core from the cards' pool.
//! Does not: know C signatures (see `abi`).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use crate::scheduler::thread::is_of_machine;

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
pub(crate) struct PostedCallback {
    pub(super) body: HostFunction,
    /// The stream that reached it.
    pub(super) stream: u64,
    /// The stream that waits for its end.
    pub(super) resumes: Option<u64>,
}

/// Which thread runs the callbacks of which stream, and what is posted.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub(super) thread_of_stream: BTreeMap<u64, u64>,
    pub(super) posted: BTreeMap<u64, VecDeque<PostedCallback>>,
}

impl Callbacks {
    /// Whether a thread that waits for callbacks would find one, or find that none can come.
    pub(crate) fn is_due(&self, thread: u64) -> bool {
        self.posted.get(&thread).is_some_and(|posted| !posted.is_empty())
            || !self.thread_of_stream.values().any(|subscribed| *subscribed == thread)
    }
}

impl std::fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callbacks").field("thread_of_stream", &self.thread_of_stream).finish_non_exhaustive()
    }
}

/// The thread that runs the host functions of one card; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HostThread(Sender<PostedCallback>);

impl HostThread {
    /// Starts the thread; `run` runs one function and is false when the machine has ended.
    pub(crate) fn start(card: u32, run: impl Fn(&PostedCallback) -> bool + Send + 'static) -> io::Result<Self> {
        let (send, receive) = mpsc::channel::<PostedCallback>();
        let body = move || {
            is_of_machine();
            for posted in receive {
                if !run(&posted) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(format!("ascend-host-functions-{card}")).spawn(body)?;
        Ok(Self(send))
    }

    /// Runs `body` after what was handed over before; the stream goes on when it has returned.
    pub(crate) fn run(&self, stream: u64, body: HostFunction) {
        // The thread receives until this sender is dropped, so there is someone to take it.
        let _ = self.0.send(PostedCallback { body, stream, resumes: Some(stream) });
    }
}
