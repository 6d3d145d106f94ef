//! A static batch: all requests at once, until the last one has ended.
//!
//! - Input: [`Request`]s.
//! - Output: [`RequestEvent`]s while tokens are made, then the whole sequences.
//! - Invariants: a sequence does not depend on the rest of the batch. A NaN or +∞ logit ends the
//!   batch with an error that names its source.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::schedule::plan::StreamKind;
use crate::timeline::Span;

use super::error::Error;
use super::request::{CancelToken, Request, RequestEvent, Sequence, Token};
use super::sequence::NewToken;
use super::session::Session;
use super::steps::{RequestKey, SequenceEvent, SequenceKey};

/// Result of [`Session::generate`]: sequences and figures.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    /// Generated sequences, in the order of the requests.
    pub sequences: Vec<Sequence>,
    /// Times and rates of the whole call.
    pub summary: BatchSummary,
}

/// Times, token counts and memory of a generation.
#[derive(Clone, Debug, Default)]
pub struct BatchSummary {
    /// Time to split, open cards and load weights, in seconds.
    pub load_seconds: f64,
    /// Total tokens of all prompts.
    pub prefill_tokens: usize,
    /// Time of the steps that computed a part of a prompt, in seconds.
    pub prefill_seconds: f64,
    /// Tokens made by other steps.
    pub decode_tokens: usize,
    /// Time of the other steps, in seconds.
    pub decode_seconds: f64,
    /// Share of one decode step that the first rank of this process spent in collectives, including
    /// waits. None without a second decode step.
    pub collectives_share: Option<f64>,
    /// Bytes on each card, by kind.
    pub memory: Vec<Vec<(&'static str, Bytes)>>,
}

impl Session {
    /// Continues prompts. All requests are submitted at once, and wait if there are more than the
    /// session's batch size.
    ///
    /// `on_event` receives each token while the cards compute the next one, and each end. `Break`
    /// ends that sequence.
    ///
    /// In a world of several processes, each process gets the same requests and returns the same
    /// sequences. A sequence that one process cancels ends everywhere.
    ///
    /// # Errors
    /// Returns all requests that do not fit the session, a NaN or +∞ logit, or the failure of a
    /// card.
    pub fn generate(
        &mut self,
        requests: &[Request],
        on_event: &mut dyn FnMut(RequestEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        let prompts = self.check(requests)?;
        let mut batch =
            RequestBatch { keys: Vec::with_capacity(requests.len()), ends: Vec::new(), failed: None };
        for (request, ids) in requests.iter().zip(&prompts) {
            batch.keys.push(self.submit(&Arc::new(request.clone()), ids, 1)?);
            batch.ends.push(None);
        }
        let mut summary = BatchSummary {
            load_seconds: self.load_seconds,
            prefill_tokens: prompts.iter().map(Vec::len).sum(),
            memory: (0..self.deployment.cards).map(|rank| self.runner.engine.memory(rank)).collect(),
            ..BatchSummary::default()
        };
        // The second decode step is timed, because the first may still warm caches.
        self.until_timed = Some(1);
        while batch.failed.is_none()
            && let Some(step) = self.step(&mut |key, event| batch.receive(key, event, on_event))?
        {
            let seconds = step.duration.as_secs_f64();
            if step.has_chunk {
                summary.prefill_seconds += seconds;
            } else {
                summary.decode_seconds += seconds;
                summary.decode_tokens += step.new_tokens;
            }
            if step.timed {
                summary.collectives_share = Some(collectives_seconds(self.runner.engine.spans()) / seconds);
            }
            self.cancel_everywhere(requests, &mut batch, on_event)?;
        }
        if let Some(error) = batch.failed {
            batch.keys.iter().for_each(|key| self.cancel(*key));
            while self.step(&mut |_, _| ControlFlow::Break(()))?.is_some() {}
            return Err(error);
        }
        Ok(Generation { sequences: batch.ends.into_iter().flatten().collect(), summary })
    }

    fn check(&self, requests: &[Request]) -> Result<Vec<Vec<u32>>, Diagnostics> {
        let mut problems = Diagnostics::new();
        if requests.is_empty() {
            problems.push(Diagnostic::new("requests", "there are none").expected("at least 1").found(0));
        }
        let ids: Vec<Vec<u32>> = requests
            .iter()
            .enumerate()
            .map(|(at, request)| self.limits.check(&format!("request {at}"), request, &mut problems))
            .collect();
        problems.into_result(ids)
    }

    /// Ends cancelled sequences in all processes.
    fn cancel_everywhere(
        &mut self,
        requests: &[Request],
        batch: &mut RequestBatch,
        on_event: &mut dyn FnMut(RequestEvent<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let tokens: Vec<Option<&CancelToken>> =
            requests.iter().map(|request| request.cancel.as_ref()).collect();
        if tokens.iter().all(Option::is_none) || batch.ends.iter().all(Option::is_some) {
            return Ok(());
        }
        let here =
            tokens.iter().map(|token| u8::from(token.is_some_and(CancelToken::is_cancelled))).collect();
        let everywhere = self.group.exchange("what is cancelled", here).map_err(crate::exec::Error::from)?;
        for at in 0..requests.len() {
            if everywhere.iter().any(|process| process.get(at) == Some(&1)) {
                let key = batch.keys[at];
                self.end_request(key, &mut |key, event| batch.receive(key, event, on_event));
            }
        }
        Ok(())
    }
}

/// The requests of one call.
struct RequestBatch {
    keys: Vec<RequestKey>,
    /// The sequences that ended.
    ends: Vec<Option<Sequence>>,
    failed: Option<Error>,
}

impl RequestBatch {
    fn receive(
        &mut self,
        key: SequenceKey,
        event: SequenceEvent<'_>,
        on_event: &mut dyn FnMut(RequestEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(request) = self.keys.iter().position(|own| *own == key.request) else {
            return ControlFlow::Break(());
        };
        match event {
            SequenceEvent::Token(NewToken { id, text, log_probabilities }, logits) => {
                let log_probabilities = log_probabilities.as_ref();
                on_event(RequestEvent::Token(Token { request, id: *id, text, log_probabilities, logits }))
            }
            SequenceEvent::End(text, sequence) => {
                self.ends[request] = Some(sequence.clone());
                on_event(RequestEvent::End { request, text, finish: &sequence.finish })
            }
            SequenceEvent::Failed(error) => {
                let error = match error {
                    Error::Sampling { position, source, place, .. } => {
                        Error::Sampling { request, position, source, place }
                    }
                    error => error,
                };
                self.failed.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// Returns the seconds that the first rank of this process spent in collectives, including waits.
fn collectives_seconds(spans: &[Span]) -> f64 {
    let first = spans.first().map_or(0, |span| span.rank);
    let own = spans.iter().filter(|span| span.rank == first && span.stream != StreamKind::Compute);
    own.map(|span| (span.end_ns - span.arrived_ns) as f64 / 1e9).sum()
}
