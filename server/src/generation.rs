//! The engine's work for one HTTP request: prompts, each with samples.
//!
//! - Input: checked requests of the library.
//! - Output: [`GenerationEvent`]s of numbered choices, with the texts that the client sees.
//! - Invariants: choices are numbered prompt × samples. After an error there are no events.
//!   Dropping a [`GenerationRequest`] cancels everything that waits or runs.
//! - Not here: JSON.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ascend_tp::generate::{Finish, LogProbabilities, Request, RequestHandle, RequestOutput, Sequence};
use futures_core::Stream;

use crate::admission::{AdmissionError, Permit, RequestProgress};
use crate::error::ApiError;
use crate::record::RequestRecord;
use crate::state::{ServerState, ServingPhase};
use crate::visible::{FoundStop, ShownTokens, VisibleText};

/// A token or the end of a choice.
#[derive(Debug)]
pub(crate) enum GenerationEvent {
    Token(TokenEvent),
    End(EndEvent),
}

#[derive(Debug)]
pub(crate) struct TokenEvent {
    pub(crate) choice: usize,
    pub(crate) id: u32,
    /// Text completed by this token, with the texts of shown special tokens.
    pub(crate) text: String,
    pub(crate) log_probabilities: Option<LogProbabilities>,
}

#[derive(Debug)]
pub(crate) struct EndEvent {
    pub(crate) choice: usize,
    /// Remaining text that was held back.
    pub(crate) text: String,
    pub(crate) sequence: Box<Sequence>,
}

/// The work of one HTTP request.
pub(crate) struct GenerationRequest {
    state: Arc<ServerState>,
    samples: usize,
    shown: ShownTokens,
    prompts: Vec<PromptWork>,
    /// One per choice. Without shown tokens, the texts of the engine are the visible ones.
    texts: Vec<VisibleText>,
    /// Position of the prompt that is asked first, so that none is preferred.
    next: usize,
    ends: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(crate) record: RequestRecord,
}

enum PromptWork {
    Waiting(Pin<Box<dyn Future<Output = Result<Permit, AdmissionError>> + Send>>, Box<Request>),
    Running { handle: RequestHandle, _permit: Permit },
    Ended,
}

impl GenerationRequest {
    /// Queues the requests, whose answers have the texts of `shown` tokens.
    pub(crate) fn new(
        state: &Arc<ServerState>,
        mut requests: Vec<Request>,
        samples: usize,
        shown: ShownTokens,
        record: RequestRecord,
    ) -> Self {
        let mut texts = Vec::with_capacity(requests.len() * samples);
        for request in &mut requests {
            // The engine does not see the texts of special tokens.
            let stops = if shown.is_empty() { Vec::new() } else { std::mem::take(&mut request.stop_texts) };
            let text = VisibleText::new(&stops, request.sampling.min_tokens);
            texts.extend(std::iter::repeat_n(text, samples));
        }
        let mut part = RequestProgress::First;
        let prompts = requests.into_iter().map(|request| {
            let (admission, priority) = (Arc::clone(&state.admission), request.priority);
            let part = std::mem::replace(&mut part, RequestProgress::Later);
            let permit = Box::pin(async move { admission.admit(samples, priority, part).await });
            PromptWork::Waiting(permit, Box::new(request))
        });
        let prompts = prompts.collect();
        let mut phase = state.phase.subscribe();
        let ends = Box::pin(async move {
            // The sender lives as long as the server.
            let _gone = phase.wait_for(|phase| *phase == ServingPhase::Ending).await.is_err();
        });
        Self { state: Arc::clone(state), samples, shown, prompts, texts, next: 0, ends, record }
    }

    /// Returns the next event; none if all choices have ended.
    ///
    /// # Errors
    /// The queue is full, the request is refused, the engine has failed, or the server ends.
    pub(crate) async fn next(&mut self) -> Result<Option<GenerationEvent>, ApiError> {
        let next = poll_fn(|context| self.poll(context)).await;
        match &next {
            Ok(Some(GenerationEvent::Token(token))) => self.record.token(token.choice),
            Ok(Some(GenerationEvent::End(end))) => {
                self.record.sequence_ends(end.choice, &end.sequence.finish);
            }
            Ok(None) => self.record.answered(),
            Err(error) => {
                self.record.failed(error);
                self.prompts.clear();
            }
        }
        next
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<GenerationEvent>, ApiError>> {
        if self.ends.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(ApiError::shutting_down()));
        }
        let count = self.prompts.len();
        let mut is_over = true;
        let first = self.next;
        for at in (0..count).map(|offset| (first + offset) % count) {
            match self.poll_prompt(at, context)? {
                Poll::Ready(Some(event)) => {
                    self.next = (at + 1) % count;
                    return Poll::Ready(Ok(Some(event)));
                }
                Poll::Ready(None) => {}
                Poll::Pending => is_over = false,
            }
        }
        if is_over { Poll::Ready(Ok(None)) } else { Poll::Pending }
    }

    fn poll_prompt(
        &mut self,
        at: usize,
        context: &mut Context<'_>,
    ) -> Result<Poll<Option<GenerationEvent>>, ApiError> {
        let work = &mut self.prompts[at];
        if let PromptWork::Waiting(permit, _) = work {
            let Poll::Ready(permit) = permit.as_mut().poll(context) else { return Ok(Poll::Pending) };
            let permit = permit.map_err(|error| ApiError::busy(error.to_string()))?;
            self.record.set_started();
            if let PromptWork::Waiting(_, request) = std::mem::replace(work, PromptWork::Ended) {
                let samples = u32::try_from(self.samples).unwrap_or(u32::MAX);
                let handle = self.state.engine.submit_samples(*request, samples)?;
                *work = PromptWork::Running { handle, _permit: permit };
            }
        }
        let PromptWork::Running { handle, .. } = work else { return Ok(Poll::Ready(None)) };
        let first = at * self.samples;
        loop {
            let Poll::Ready(output) = Pin::new(&mut *handle).poll_next(context) else {
                return Ok(Poll::Pending);
            };
            let event = match output.transpose()? {
                Some(RequestOutput::Token { sample, id, text, log_probabilities }) => {
                    let choice = first + sample as usize;
                    if self.texts[choice].found().is_some() {
                        // The choice has ended, but not yet in the engine.
                        continue;
                    }
                    let text = self.shown.add(&self.state.texts.vocabulary, id, text);
                    let text = self.texts[choice].push(&text);
                    if self.texts[first..first + self.samples].iter().all(|text| text.found().is_some()) {
                        handle.end();
                    }
                    GenerationEvent::Token(TokenEvent { choice, id, text, log_probabilities })
                }
                Some(RequestOutput::End { sample, text, mut sequence }) => {
                    let choice = first + sample as usize;
                    let text = self.texts[choice].finish(&text);
                    if let Some(FoundStop { stop, tokens }) = self.texts[choice].found() {
                        sequence.finish = Finish::StopText(stop.clone());
                        sequence.ids.truncate(*tokens);
                        sequence.log_probabilities.truncate(*tokens);
                    }
                    GenerationEvent::End(EndEvent { choice, text, sequence })
                }
                // An output of a later release.
                Some(_) => continue,
                None => {
                    *work = PromptWork::Ended;
                    return Ok(Poll::Ready(None));
                }
            };
            return Ok(Poll::Ready(Some(event)));
        }
    }
}
