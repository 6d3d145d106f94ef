//! The serving loop: one prefill, then one decode run per token.
//!
//! - Input: [`Request`]s, at most the session's batch size.
//! - Output: [`RequestEvent`]s while tokens are made, then the whole sequences.
//! - Invariants: a sequence does not depend on the rest of the batch. A NaN or +∞ logit ends the
//!   batch with an error that names its source.
//!
//! The next decode run starts before the events of the last token are sent.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Bytes, Diagnostic, Diagnostics, Id};
use crate::exec::{NamedTensors, ProgramId, Timed};
use crate::program::models::{Head, RunShape};
use crate::program::{HostTensor, OpId};
use crate::schedule::plan::StreamKind;
use crate::timeline::Span;

use super::error::Error;
use super::inputs::{SequenceInput, inputs};
use super::request::{CancelToken, Finish, Prompt, Request, RequestEvent, Sequence, Token};
use super::sampling::{LogProbabilities, Sampler, SamplingError};
use super::session::{DECODE, Session};
use super::text::Text;
use super::tokenizer::Tokenizer;

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
    /// Time of the prefill, in seconds.
    pub prefill_seconds: f64,
    /// Tokens made by decode steps.
    pub decode_tokens: usize,
    /// Time of all decode steps, in seconds.
    pub decode_seconds: f64,
    /// Share of one decode step that the first rank of this process spent in collectives, including
    /// waits. None without a second decode step.
    pub collectives_share: Option<f64>,
    /// Bytes on each card, by kind.
    pub memory: Vec<Vec<(&'static str, Bytes)>>,
}

struct RunningSequence<'a> {
    request: &'a Request,
    stop_ids: &'a [u32],
    sampler: Sampler,
    /// The growing text; none without a tokenizer.
    stream: Option<Text<'a>>,
    max_new_tokens: usize,
    finish: Option<Finish>,
    is_told: bool,
    sequence: Sequence,
}

struct ServedStep {
    /// One entry per request; none for ended requests.
    tokens: Vec<Option<u32>>,
    /// Logits of all rows, if the cards return them.
    logits: Option<HostTensor>,
}

impl Session {
    /// Continues prompts, one token per sequence and step. The number of requests is at most the
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
        let tokenizer = self.tokenizer.as_ref().ok().map(Arc::clone);
        let stop_ids = self.stop_ids.clone();
        let context = self.deployment.context;
        let running = requests.iter().zip(&prompts);
        let mut running = running
            .map(|(request, ids)| {
                RunningSequence::new(request, ids, tokenizer.as_deref(), &stop_ids, context)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut summary = BatchSummary {
            load_seconds: self.load_seconds,
            prefill_tokens: prompts.iter().map(Vec::len).sum(),
            ..BatchSummary::default()
        };

        let started = Instant::now();
        let (program, room) = self.prompt_program(prompts.iter().map(Vec::len).max().unwrap_or(0))?;
        summary.memory = (0..self.deployment.cards).map(|rank| self.engine.memory(rank)).collect();
        let rows = prompts.iter().map(|ids| SequenceInput { ids, start: 0, prompt_length: ids.len() });
        let inputs = self.inputs(self.deployment.prompts(room), rows);
        let outputs = self.engine.run(program, &inputs)?;
        summary.prefill_seconds = started.elapsed().as_secs_f64();
        let mut step = self.choose(&mut running, &outputs, program, &inputs)?;

        for number in 0.. {
            for (running, token) in running.iter_mut().zip(&step.tokens) {
                token.iter().for_each(|token| running.take(*token));
            }
            if running.iter().all(|running| running.finish.is_some()) {
                tell(&mut running, &step, self.config.vocab_size, on_event)?;
                break;
            }
            // An ended sequence repeats its last token in place. The result is ignored.
            let rows: Vec<(u32, usize, usize)> = running.iter().map(RunningSequence::last).collect();
            let rows = rows.iter().map(|(token, start, prompt_length)| SequenceInput {
                ids: std::slice::from_ref(token),
                start: *start,
                prompt_length: *prompt_length,
            });
            let inputs = self.inputs(self.deployment.step(), rows);
            // The second step is timed, because the first may still warm caches.
            let timed = if number == 1 { Timed::Streams } else { Timed::No };
            let started = Instant::now();
            let run = self.engine.begin(DECODE, &inputs, timed)?;
            // The callback runs while the cards compute. If it ends the last sequence, this step is
            // discarded.
            tell(&mut running, &step, self.config.vocab_size, on_event)?;
            let outputs = run.finish()?;
            self.cancel(&mut running)?;
            if running.iter().all(|running| running.finish.is_some()) {
                tell(&mut running, &ServedStep::nothing(requests.len()), self.config.vocab_size, on_event)?;
                break;
            }
            let seconds = started.elapsed().as_secs_f64();
            if timed == Timed::Streams {
                summary.collectives_share = Some(collectives_seconds(self.engine.spans()) / seconds);
            }
            summary.decode_seconds += seconds;
            summary.decode_tokens += running.iter().filter(|running| running.finish.is_none()).count();
            step = self.choose(&mut running, &outputs, DECODE, &inputs)?;
        }
        let sequences = running.into_iter().map(|running| running.sequence).collect();
        Ok(Generation { sequences, summary })
    }

    /// Returns the inputs of a run, padded to the batch size with rows of one token.
    fn inputs<'a>(&self, run: RunShape, rows: impl Iterator<Item = SequenceInput<'a>>) -> NamedTensors {
        let idle = SequenceInput { ids: &[0], start: 0, prompt_length: 1 };
        let rows: Vec<SequenceInput<'_>> = rows.chain(std::iter::repeat(idle)).take(run.batch).collect();
        inputs(&self.config, run, self.deployment.precision.activations, self.deployment.head, &rows)
    }

    fn check(&self, requests: &[Request]) -> Result<Vec<Vec<u32>>, Diagnostics> {
        let mut problems = Diagnostics::new();
        let batch = self.deployment.batch;
        if requests.is_empty() || requests.len() > batch {
            let problem = Diagnostic::new("requests", "no requests, or more than the session supports");
            problems.push(problem.expected(format!("1 to {batch}")).found(requests.len()));
        }
        let ids: Vec<Vec<u32>> = requests
            .iter()
            .enumerate()
            .map(|(at, request)| self.check_request(&format!("request {at}"), request, &mut problems))
            .collect();
        problems.into_result(ids)
    }

    fn check_request(&self, place: &str, request: &Request, problems: &mut Diagnostics) -> Vec<u32> {
        let within = |found: Diagnostics, problems: &mut Diagnostics| {
            for problem in found.items() {
                problems.push(Diagnostic { place: format!("{place}: {}", problem.place), ..problem.clone() });
            }
        };
        for checked in [request.sampling.check(), request.sampling.check_ids(self.config.vocab_size)] {
            checked.unwrap_or_else(|found| within(found, problems));
        }
        if let Some(most) = request.max_new_tokens.filter(|most| *most < request.sampling.min_tokens) {
            let problem = Diagnostic::new(place, "min_tokens is above the maximum number of new tokens");
            problems.push(problem.expected(format!("at most {most}")).found(request.sampling.min_tokens));
        }
        if self.deployment.head == Head::LastToken && !request.is_likeliest() {
            let problem =
                Diagnostic::new(place, "needs logits, but the session returns only the likeliest token");
            problems.push(problem.help("make the session with head(Head::LastLogits)"));
        }
        if request.stop_texts.iter().any(String::is_empty) {
            problems
                .push(Diagnostic::new(place, "an empty stop text ends every sequence").expected("a text"));
        }
        let needs_text = !request.stop_texts.is_empty() || matches!(request.prompt, Prompt::Text(_));
        if let (true, Err(missing)) = (needs_text, &self.tokenizer) {
            within(missing.clone(), problems);
        }
        let ids = match &request.prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => match self.tokenizer.as_ref().map(|tokenizer| tokenizer.encode(text)) {
                Ok(Ok(ids)) => ids,
                Ok(Err(found)) => {
                    within(found, problems);
                    return Vec::new();
                }
                Err(_) => return Vec::new(),
            },
        };
        let options = &self.deployment;
        if ids.is_empty() {
            problems.push(Diagnostic::new(place, "has no token").help("give at least one word"));
        }
        if ids.len() > options.longest_prompt {
            let problem = Diagnostic::new(place, "is longer than the session supports");
            problems.push(
                problem.expected(format!("at most {} tokens", options.longest_prompt)).found(ids.len()),
            );
        }
        let new = request.max_new_tokens.unwrap_or(1);
        if new == 0 || ids.len().saturating_add(new) > options.context.max(ids.len() + 1) {
            let problem = Diagnostic::new(place, "asks for no tokens, or for more than the session supports");
            let room = options.context.saturating_sub(ids.len());
            problems.push(problem.expected(format!("1 to {room} new tokens")).found(new));
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= self.config.vocab_size) {
            let problem = Diagnostic::new(place, "has a token id outside the vocabulary");
            problems.push(problem.expected(format!("below {}", self.config.vocab_size)).found(id));
        }
        ids
    }

    /// Ends cancelled sequences in all processes.
    fn cancel(&self, running: &mut [RunningSequence<'_>]) -> Result<(), Error> {
        let tokens: Vec<Option<&CancelToken>> =
            running.iter().map(|running| running.request.cancel.as_ref()).collect();
        if tokens.iter().all(Option::is_none) {
            return Ok(());
        }
        let here =
            tokens.iter().map(|token| u8::from(token.is_some_and(CancelToken::is_cancelled))).collect();
        let everywhere = self.group.exchange("what is cancelled", here).map_err(crate::exec::Error::from)?;
        for (at, running) in running.iter_mut().enumerate() {
            if everywhere.iter().any(|process| process.get(at) == Some(&1)) {
                running.finish.get_or_insert(Finish::Cancelled);
            }
        }
        Ok(())
    }

    /// Chooses the next tokens. `program` ran with `inputs`.
    fn choose(
        &mut self,
        running: &mut [RunningSequence<'_>],
        outputs: &NamedTensors,
        program: ProgramId,
        inputs: &NamedTensors,
    ) -> Result<ServedStep, Error> {
        let vocabulary = self.config.vocab_size;
        let output = outputs.only()?;
        let mut chosen: Vec<Option<Result<u32, SamplingError>>> = Vec::with_capacity(running.len());
        let logits = if self.deployment.head == Head::LastToken {
            for (running, id) in running.iter().zip(output.ints()) {
                // If no card has a finite largest logit, no token is found.
                let token = u32::try_from(*id).ok().filter(|token| (*token as usize) < vocabulary);
                let found = token.ok_or(SamplingError::NoLargest);
                chosen.push(running.finish.is_none().then_some(found));
            }
            None
        } else {
            for (running, row) in running.iter_mut().zip(output.floats().chunks(vocabulary)) {
                let position = running.position();
                chosen.push(running.finish.is_none().then(|| running.sampler.sample(row, position, None)));
            }
            Some(output)
        };
        let mut tokens = Vec::with_capacity(chosen.len());
        for (request, (chosen, running)) in chosen.into_iter().zip(running.iter()).enumerate() {
            match chosen.transpose() {
                Ok(token) => tokens.push(token),
                Err(source) => {
                    let position = running.position();
                    let place = match source {
                        SamplingError::NotFinite { .. } | SamplingError::NoLargest => {
                            self.first_not_finite(program, inputs)?
                        }
                        _ => None,
                    };
                    return Err(Error::Sampling { request, position, source, place });
                }
            }
        }
        Ok(ServedStep { tokens, logits })
    }

    /// Returns the first op, in program order, with a NaN or infinite result.
    fn first_not_finite(
        &mut self,
        program: ProgramId,
        inputs: &NamedTensors,
    ) -> Result<Option<String>, Error> {
        let plans = self.engine.plans(program).to_vec();
        // Ops are in program order within a stage and across stages.
        let mut first: Option<((OpId, usize), String)> = None;
        self.engine.run_observed(program, inputs, |observation| {
            let plan = &plans[observation.rank];
            let tap = &plan.taps[observation.tap];
            let dtype = tap.view.dtype;
            let step = tap.after_steps.checked_sub(1).and_then(|step| plan.steps.get(step));
            let place = (step.map_or(OpId::from_index(0), |step| step.op), observation.tap);
            if !dtype.is_float() || first.as_ref().is_some_and(|(at, _)| *at <= place) {
                return;
            }
            let elems = observation.bytes.len() / dtype.size_bytes();
            let values = HostTensor::from_bytes([elems], dtype, &observation.bytes);
            if let Some(value) = values.floats().iter().find(|value| !value.is_finite()) {
                let note = step.and_then(|step| plan.notes.get(step.op)).map(ToString::to_string);
                let name = note.unwrap_or_else(|| "an input".to_owned());
                first = Some((place, format!("{name} (rank {}: {value})", observation.rank)));
            }
        })?;
        Ok(first.map(|(_, text)| text))
    }
}

impl ServedStep {
    fn nothing(requests: usize) -> Self {
        Self { tokens: vec![None; requests], logits: None }
    }
}

impl<'a> RunningSequence<'a> {
    fn new(
        request: &'a Request,
        ids: &[u32],
        tokenizer: Option<&'a Tokenizer>,
        stop_ids: &'a [u32],
        context: usize,
    ) -> Result<Self, Diagnostics> {
        let own = request.stop_ids.as_deref();
        let forbidden: Vec<u32> = own.unwrap_or_default().iter().chain(stop_ids).copied().collect();
        let mut sampler = Sampler::new(&request.sampling, request.sample, &forbidden)?;
        sampler.add_prompt(ids);
        let room = context - ids.len();
        Ok(Self {
            request,
            stop_ids: own.unwrap_or(if request.ignore_eos { &[] } else { stop_ids }),
            sampler,
            stream: tokenizer.map(|tokenizer| Text::new(tokenizer, ids, &request.stop_texts)),
            max_new_tokens: request.max_new_tokens.unwrap_or(room).min(room),
            finish: None,
            is_told: false,
            sequence: Sequence {
                prompt_ids: ids.to_vec(),
                ids: Vec::new(),
                text: String::new(),
                log_probabilities: Vec::new(),
                finish: Finish::Length,
            },
        })
    }

    fn take(&mut self, token: u32) {
        if self.stop_ids.contains(&token) {
            self.finish = Some(Finish::StopId(token));
            return;
        }
        self.sampler.add_generated(token);
        self.sequence.ids.push(token);
        if self.sequence.ids.len() >= self.max_new_tokens {
            self.finish = Some(Finish::Length);
        }
    }

    fn position(&self) -> usize {
        self.sequence.prompt_ids.len() + self.sequence.ids.len()
    }

    /// Returns the last token, its position, and the length of the prompt.
    fn last(&self) -> (u32, usize, usize) {
        let Sequence { prompt_ids, ids, .. } = &self.sequence;
        let token = ids.last().or(prompt_ids.last()).copied().unwrap_or(0);
        (token, self.position().saturating_sub(1), prompt_ids.len())
    }

    fn tell(
        &mut self,
        request: usize,
        token: Option<u32>,
        logits: Option<&[f32]>,
        on_event: &mut dyn FnMut(RequestEvent<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        // A stop id is not part of the sequence.
        if let Some(id) = token.filter(|_| !matches!(self.finish, Some(Finish::StopId(_)))) {
            let may_stop = self.sequence.ids.len() > self.request.sampling.min_tokens;
            let text = match &mut self.stream {
                Some(stream) if may_stop => {
                    let (text, stop) = stream.push(id)?;
                    if let Some(stop) = stop {
                        self.finish = Some(Finish::StopText(stop.to_owned()));
                    }
                    text
                }
                Some(stream) => stream.push_without_stop(id)?,
                None => String::new(),
            };
            self.sequence.text.push_str(&text);
            let count = self.request.log_probabilities;
            let probabilities =
                logits.zip(count).map(|(logits, count)| LogProbabilities::of(logits, id, count));
            let probabilities = probabilities.transpose().map_err(|source| {
                let position = self.position() - 1;
                Error::Sampling { request, position, source, place: None }
            })?;
            let (log_probabilities, logits) =
                (probabilities.as_ref(), logits.filter(|_| self.request.logits));
            let token = Token { request, id, text: &text, log_probabilities, logits };
            if on_event(RequestEvent::Token(token)).is_break() {
                self.finish.get_or_insert(Finish::Cancelled);
            }
            self.sequence.log_probabilities.extend(probabilities);
        }
        let Some(finish) = self.finish.clone() else { return Ok(()) };
        self.is_told = true;
        let mut text = String::new();
        if let Some(stream) = self.stream.take()
            && !matches!(finish, Finish::StopText(_))
        {
            let (rest, stop) = stream.finish()?;
            text = rest;
            self.finish = Some(stop.map_or(finish, |stop| Finish::StopText(stop.to_owned())));
        }
        self.sequence.text.push_str(&text);
        self.sequence.finish = self.finish.clone().unwrap_or(Finish::Length);
        let _ended = on_event(RequestEvent::End { request, text: &text, finish: &self.sequence.finish });
        Ok(())
    }
}

/// Returns the seconds that the first rank of this process spent in collectives, including waits.
fn collectives_seconds(spans: &[Span]) -> f64 {
    let first = spans.first().map_or(0, |span| span.rank);
    let own = spans.iter().filter(|span| span.rank == first && span.stream != StreamKind::Compute);
    own.map(|span| (span.end_ns - span.arrived_ns) as f64 / 1e9).sum()
}

/// Reports the last step, and every end not reported yet.
fn tell(
    running: &mut [RunningSequence<'_>],
    step: &ServedStep,
    vocabulary: usize,
    on_event: &mut dyn FnMut(RequestEvent<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    for (request, running) in running.iter_mut().enumerate() {
        if running.is_told {
            continue;
        }
        let logits =
            step.logits.as_ref().map(|logits| &logits.floats()[request * vocabulary..][..vocabulary]);
        running.tell(request, step.tokens[request], logits, on_event)?;
    }
    Ok(())
}
