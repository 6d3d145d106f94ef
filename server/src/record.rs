//! The record of one request: its times and counts, for the log and the metrics.
//!
//! - Input: events of the request.
//! - Output: one line of the log when the record is dropped, and observations of metrics.
//! - Invariants: each request is logged once, also if its client disconnects. The server drains
//!   until no record is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ascend_tp::generate::Finish;
use tracing::info;

use crate::error::ApiError;
use crate::state::ServerState;

/// Reason of the end of a cancelled sequence in the metrics.
const ABORT: &str = "abort";

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestOutcome {
    /// The client closed its connection before the answer ended.
    Disconnected,
    Answered,
    Failed(String),
}

/// Times and counts of a request.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    state: Arc<ServerState>,
    id: String,
    path: &'static str,
    seed: u64,
    arrived: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    prompt_tokens: usize,
    new_tokens: usize,
    /// One per sequence.
    sequences: Vec<SequenceTimes>,
    /// Number of sequences that have ended.
    ended: usize,
    outcome: RequestOutcome,
}

#[derive(Clone, Copy, Debug, Default)]
struct SequenceTimes {
    first: Option<Instant>,
    last: Option<Instant>,
    tokens: u32,
}

impl RequestRecord {
    pub(crate) fn new(state: &Arc<ServerState>, id: String, path: &'static str, arrived: Instant) -> Self {
        state.begin_request();
        Self {
            state: Arc::clone(state),
            id,
            path,
            seed: 0,
            arrived,
            started: None,
            first_token: None,
            prompt_tokens: 0,
            new_tokens: 0,
            sequences: Vec::new(),
            ended: 0,
            outcome: RequestOutcome::Disconnected,
        }
    }

    /// Notes the size and the seed of the request.
    pub(crate) fn set_request(&mut self, prompt_tokens: usize, sequences: usize, seed: u64) {
        self.prompt_tokens = prompt_tokens;
        self.sequences = vec![SequenceTimes::default(); sequences];
        self.seed = seed;
    }

    /// Notes that the first sequences may run.
    pub(crate) fn set_started(&mut self) {
        if self.started.is_none() {
            let now = Instant::now();
            self.started = Some(now);
            self.state.metrics.queue_time.observe(now - self.arrived);
            self.state.metrics.prompt_tokens.add(self.prompt_tokens);
        }
    }

    pub(crate) fn token(&mut self, sequence: usize) {
        let now = Instant::now();
        if self.first_token.is_none() {
            self.first_token = Some(now);
            self.state.metrics.first_token_time.observe(now - self.arrived);
        }
        self.new_tokens += 1;
        self.state.metrics.new_tokens.add(1);
        if let Some(times) = self.sequences.get_mut(sequence) {
            times.first.get_or_insert(now);
            times.last = Some(now);
            times.tokens += 1;
        }
    }

    pub(crate) fn sequence_ends(&mut self, sequence: usize, finish: &Finish) {
        self.ended += 1;
        let reason = match finish {
            Finish::Length => "length",
            Finish::StopId(_) | Finish::StopText(_) => "stop",
            Finish::Cancelled => ABORT,
        };
        self.state.metrics.sequences_finished(reason, 1);
        let times = self.sequences.get(sequence).copied().unwrap_or_default();
        if let (Some(first), Some(last), 2..) = (times.first, times.last, times.tokens) {
            self.state.metrics.token_time.observe((last - first) / (times.tokens - 1));
        }
    }

    pub(crate) fn answered(&mut self) {
        self.outcome = RequestOutcome::Answered;
    }

    /// Notes the error of a step of the request, if there is one.
    pub(crate) fn check<T>(&mut self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        result.inspect_err(|error| self.failed(error))
    }

    pub(crate) fn failed(&mut self, error: &impl ToString) {
        self.outcome = RequestOutcome::Failed(error.to_string());
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let total = self.arrived.elapsed();
        self.state.metrics.request_time.observe(total);
        let cancelled = self.sequences.len().saturating_sub(self.ended);
        if self.outcome == RequestOutcome::Disconnected && cancelled > 0 {
            self.state.metrics.sequences_finished(ABORT, cancelled);
        }
        let milliseconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        let since = |instant: Option<Instant>| milliseconds(instant.map(|instant| instant - self.arrived));
        let outcome = match &self.outcome {
            RequestOutcome::Disconnected => "the client is gone",
            RequestOutcome::Answered => "answered",
            RequestOutcome::Failed(error) => error,
        };
        info!(
            id = self.id,
            path = self.path,
            prompt_tokens = self.prompt_tokens,
            new_tokens = self.new_tokens,
            sequences = self.sequences.len(),
            seed = self.seed,
            queue_ms = since(self.started),
            first_token_ms = since(self.first_token),
            total_ms = milliseconds(Some(total)),
            outcome,
            "request"
        );
        self.state.end_request();
    }
}
