//! A thread of the program runs callbacks (`aclrtProcessReport`); a runtime thread per card runs
//! host functions.
//!
//! Invariants: a stream has at most one subscribed thread. A blocking function does not occupy the
//! device thread pool.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use crate::scheduler::thread::is_of_machine;

/// A captured graph calls its functions at every replay.
pub(crate) type HostFunction = Arc<dyn Fn() + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    No,
    Yes,
}

#[derive(Clone)]
pub(crate) struct Callback {
    pub(crate) body: HostFunction,
    pub(crate) blocking: Blocking,
    /// Captured stream that determines the subscription, if not the callback's own stream.
    pub(crate) subscribed: Option<u64>,
}

pub(crate) struct PostedCallback {
    pub(super) body: HostFunction,
    pub(super) stream: u64,
    pub(super) resumes: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Callbacks {
    pub(super) thread_of_stream: BTreeMap<u64, u64>,
    pub(super) posted: BTreeMap<u64, VecDeque<PostedCallback>>,
}

impl Callbacks {
    /// Returns true if a callback is pending, or none can arrive.
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

/// The thread that runs the host functions of one card. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct HostThread(Sender<PostedCallback>);

impl HostThread {
    /// `run` returns false if the machine has ended.
    pub(crate) fn start(
        card: u32,
        run: impl Fn(&PostedCallback) -> bool + Send + 'static,
    ) -> io::Result<Self> {
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

    /// The stream continues when `body` has returned.
    pub(crate) fn run(&self, stream: u64, body: HostFunction) {
        // The thread receives until this sender is dropped, so sending succeeds.
        let _ = self.0.send(PostedCallback { body, stream, resumes: Some(stream) });
    }
}
