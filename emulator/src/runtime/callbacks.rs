//! Execution of callbacks and host functions that streams reach.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::runtime::callback::{Blocking, Callback, PostedCallback};
use crate::runtime::thread;
use crate::scheduler::wait::Wait;
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn subscribe(&mut self, thread: u64, stream: u64) -> Result<(), Failure> {
        if let Some(other) = self.runtime.callbacks.thread_of_stream.get(&stream) {
            let what =
                format!("thread {other} already runs the callbacks of stream {stream}; unsubscribe it first");
            return Err(Failure::new(code::STREAM_SUBSCRIBE, what));
        }
        self.runtime.callbacks.thread_of_stream.insert(stream, thread);
        Ok(())
    }

    pub(crate) fn unsubscribe(&mut self, thread: u64, stream: u64) -> Result<(), Failure> {
        if self.runtime.callbacks.thread_of_stream.get(&stream) != Some(&thread) {
            let what = format!("thread {thread} does not run the callbacks of stream {stream}");
            return Err(Failure::new(code::THREAD_SUBSCRIBE, what));
        }
        self.runtime.callbacks.thread_of_stream.remove(&stream);
        Ok(())
    }

    pub(crate) fn is_subscribed(&self, stream: u64) -> bool {
        self.runtime.callbacks.thread_of_stream.contains_key(&stream)
    }

    pub(crate) fn post_callback(&mut self, callback: Callback, stream: u64) {
        let Some(thread) =
            self.runtime.callbacks.thread_of_stream.get(&callback.subscribed.unwrap_or(stream)).copied()
        else {
            let what = format!("stream {stream} has no thread that would run its callback");
            self.settle(stream, Err(Failure::new(code::STREAM_NO_CALLBACK, what)));
            return;
        };
        let resumes = (callback.blocking == Blocking::Yes).then_some(stream);
        self.runtime.callbacks.posted.entry(thread).or_default().push_back(PostedCallback {
            body: callback.body,
            stream,
            resumes,
        });
        self.scheduler.has_progressed = true;
        if resumes.is_none() {
            self.settle(stream, Ok(()));
        }
    }
}

impl Machine {
    pub(crate) fn run_host_function(&self, posted: &PostedCallback) {
        let turnstile = self.turnstile();
        if let Some(turnstile) = turnstile {
            turnstile.begin_function(posted.stream);
        }
        if let Some(now_ns) = self.lock().now_ns() {
            thread::raise_clock(self.key(), now_ns);
        }
        self.run_function(posted);
        if let Some(turnstile) = turnstile {
            turnstile.end_function();
        }
    }

    /// Runs on the calling thread and releases the waiting stream.
    pub(crate) fn run_function(&self, report: &PostedCallback) {
        if self.strict().is_some()
            && let Some(strict) = &mut self.lock().strict
        {
            strict.order.function_began(report.stream);
        }
        (report.body)();
        self.update(|state| {
            if let Some(strict) = &mut state.strict {
                strict.order.function_ended(report.stream);
            }
            if let Some(stream) = report.resumes {
                if let Some(stream) = state.runtime.streams.get_mut(&stream) {
                    stream.time.raise(thread::clock(self.key()));
                }
                state.settle(stream, Ok(()));
            }
        });
    }

    pub(crate) fn next_report(
        &self,
        thread: u64,
        timeout: Option<Duration>,
    ) -> Result<PostedCallback, Failure> {
        let deadline = timeout.map(|timeout| self.thread_now() + timeout);
        let mut state = self.lock();
        loop {
            let is_late = thread::take_late(self.key());
            if let Some(report) =
                state.runtime.callbacks.posted.get_mut(&thread).and_then(VecDeque::pop_front)
            {
                return Ok(report);
            }
            if !state.runtime.callbacks.thread_of_stream.values().any(|subscribed| *subscribed == thread) {
                let what = format!(
                    "thread {thread} runs the callbacks of no stream; call aclrtSubscribeReport first"
                );
                return Err(Failure::new(code::THREAD_SUBSCRIBE, what));
            }
            if is_late || deadline.is_some_and(|deadline| state.scheduler.now() >= deadline) {
                let what = format!("no callback came for thread {thread} in time");
                return Err(Failure::new(code::WAIT_TIMEOUT, what));
            }
            state = self.watch(state, deadline, Wait::Callback { thread })?;
        }
    }
}
