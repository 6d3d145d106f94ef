//! The outputs of one request, from the engine's thread to the application.
//!
//! Input: outputs, and an error. Output: an iterator that blocks, and a stream. Invariants: outputs
//! arrive in order. After the last one, or after an error, there are no others.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::Error;
use crate::generate::request::Sequence;
use crate::generate::sampling::LogProbabilities;

/// An output of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RequestOutput {
    /// A sample has a new token.
    Token {
        /// Number of the sample, from 0.
        sample: u32,
        /// Id in the vocabulary.
        id: u32,
        /// Text completed by this token. Incomplete characters and possible stop texts are held
        /// back. Empty without a tokenizer.
        text: String,
        /// Log-probabilities, if the request asks for them.
        log_probabilities: Option<LogProbabilities>,
    },
    /// A sample has ended.
    End {
        /// Number of the sample, from 0.
        sample: u32,
        /// Remaining text that was held back.
        text: String,
        /// The whole sequence.
        sequence: Box<Sequence>,
    },
}

/// The engine's end of a queue. Dropping it ends the request, so no reader waits for an engine that
/// is gone.
#[derive(Debug)]
pub(super) struct EventSender {
    queue: Arc<EventQueue>,
    /// Counts the requests that have not ended.
    _open: Arc<()>,
}

impl EventSender {
    pub(super) fn push(&self, output: RequestOutput) {
        self.queue.push(output);
    }

    /// Ends the request with an error, after the outputs so far.
    pub(super) fn fail(&self, error: &Arc<Error>) {
        self.queue.fail(error);
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        if !self.queue.is_over() {
            self.queue.fail(&Arc::new(super::stopped()));
        }
    }
}

/// How a handle ends its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestEnd {
    /// Without further outputs.
    Silent,
    /// With the last output of each sample.
    WithOutputs,
}

/// Creates the queue of a request with this number of samples. The sender keeps `open` until the
/// request ends.
pub(super) fn event_queue(
    samples: u32,
    open: Arc<()>,
    end: impl Fn(RequestEnd) + Send + Sync + 'static,
) -> (EventSender, RequestHandle) {
    let queue = Arc::new(EventQueue::new(samples));
    (EventSender { queue: Arc::clone(&queue), _open: open }, RequestHandle { queue, end: Box::new(end) })
}

#[derive(Debug)]
struct EventQueue {
    state: Mutex<QueueState>,
    arrived: Condvar,
}

#[derive(Debug)]
struct QueueState {
    outputs: VecDeque<RequestOutput>,
    /// Samples that have not ended.
    open: u32,
    error: Option<Arc<Error>>,
    waker: Option<Waker>,
}

impl EventQueue {
    fn new(samples: u32) -> Self {
        let state = QueueState { outputs: VecDeque::new(), open: samples, error: None, waker: None };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn push(&self, output: RequestOutput) {
        self.change(|state| {
            let ended = matches!(output, RequestOutput::End { .. });
            state.open = state.open.saturating_sub(u32::from(ended));
            state.outputs.push_back(output);
        });
    }

    fn fail(&self, error: &Arc<Error>) {
        self.change(|state| {
            state.open = 0;
            state.error = Some(Arc::clone(error));
        });
    }

    /// Returns whether there are no further outputs.
    fn is_over(&self) -> bool {
        self.lock().open == 0
    }
}

impl QueueState {
    /// Returns the next output; `Pending` if it has not arrived.
    fn next(&mut self) -> Poll<Option<Result<RequestOutput, Error>>> {
        if let Some(output) = self.outputs.pop_front() {
            return Poll::Ready(Some(Ok(output)));
        }
        if self.open > 0 {
            return Poll::Pending;
        }
        Poll::Ready(self.error.take().map(|error| Err(Error::Shared(error))))
    }
}

/// The outputs of a request. It blocks as an iterator, and does not as a [`Stream`].
///
/// Dropping the handle cancels the request.
pub struct RequestHandle {
    queue: Arc<EventQueue>,
    end: Box<dyn Fn(RequestEnd) + Send + Sync>,
}

impl std::fmt::Debug for RequestHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestHandle").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl RequestHandle {
    /// Ends the request within one step. Samples that have not ended end as cancelled, so their
    /// last outputs follow.
    pub fn end(&self) {
        if !self.queue.is_over() {
            (self.end)(RequestEnd::WithOutputs);
        }
    }

    /// Waits for the end of all samples, and returns them by number.
    ///
    /// # Errors
    /// The request failed.
    pub fn wait(self) -> Result<Vec<Sequence>, Error> {
        let mut sequences: Vec<(u32, Sequence)> = Vec::new();
        for output in self {
            if let RequestOutput::End { sample, sequence, .. } = output? {
                sequences.push((sample, *sequence));
            }
        }
        sequences.sort_by_key(|(sample, _)| *sample);
        Ok(sequences.into_iter().map(|(_, sequence)| sequence).collect())
    }
}

impl Iterator for RequestHandle {
    type Item = Result<RequestOutput, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.queue.lock();
        loop {
            match state.next() {
                Poll::Ready(output) => return output,
                Poll::Pending => {
                    state = self.queue.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Stream for RequestHandle {
    type Item = Result<RequestOutput, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.queue.lock();
        let next = state.next();
        if next.is_pending() {
            state.waker = Some(context.waker().clone());
        }
        next
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        if !self.queue.is_over() {
            (self.end)(RequestEnd::Silent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_if_the_engine_is_gone() {
        let (events, handle) = event_queue(1, Arc::new(()), |_| panic!("an ended request is cancelled"));
        drop(events);
        assert_eq!(handle.wait().unwrap_err().to_string(), "serving engine: has stopped");
    }
}
