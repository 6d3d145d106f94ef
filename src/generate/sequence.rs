//! One running sequence: its settings, its tokens so far, and their text.
//!
//! - Input: the candidates or logits of the sequence's new positions.
//! - Output: the chosen tokens, and their texts and log-probabilities.
//! - Invariants: a token depends on the request and its own logits alone. A draft is kept if and
//!   only if the request chooses the same token at its position.
//! - Not here: when a sequence runs, and next to which ones.

use std::sync::Arc;

use rayon::prelude::*;
use smallvec::SmallVec;

use crate::base::{Diagnostic, Diagnostics};

use super::candidates::CandidateRows;
use super::drafts::{LookupOptions, PromptLookup};
use super::error::Error;
use super::grammar::{self, Constraint, ConstraintCompiler};
use super::request::{Finish, Request, Sequence};
use super::sampling::{LogProbabilities, Sampler, SamplingError, TokenMask};
use super::text::Text;
use super::tokenizer::Tokenizer;

/// Outputs of the new positions of one sequence.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowOutput<'a> {
    /// `[positions, vocabulary]`.
    Logits(&'a [f32]),
    /// The most likely tokens of each position.
    Candidates(CandidateRows<'a>),
    /// The token with the largest logit, or an id outside of the vocabulary if none is finite.
    Token(i64),
}

/// Tokens that a sequence chose in one step.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// The accepted drafts and one more token. The last one may be a stop id.
    pub(super) tokens: SmallVec<[u32; 4]>,
    /// Why the sequence ends with the last token, if it does.
    pub(super) finish: Option<Finish>,
}

/// A new token, as the caller receives it.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Id in the vocabulary.
    pub id: u32,
    /// Text completed by this token.
    pub text: String,
    /// Log-probabilities, if the request asks for them.
    pub log_probabilities: Option<LogProbabilities>,
}

/// The new tokens of one step, as the caller receives them.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) tokens: SmallVec<[NewToken; 1]>,
    /// The rest of the text, if the sequence ended.
    pub(super) rest: String,
}

#[derive(Debug)]
pub(super) struct RunningSequence {
    pub(super) request: Arc<Request>,
    stop_ids: Vec<u32>,
    sampler: Sampler,
    /// The growing text; none without a tokenizer.
    text: Option<Text>,
    lookup: Option<PromptLookup>,
    /// Number of tokens in `lookup`.
    looked_up: usize,
    max_new_tokens: usize,
    vocabulary: usize,
    /// The reason why the prompt has no log-probabilities.
    failure: Option<ScoringFailure>,
    constraint: Option<Box<dyn Constraint>>,
    pub(super) finish: Option<Finish>,
    pub(super) sequence: Sequence,
}

#[derive(Clone, Debug)]
struct ScoringFailure {
    /// Position of the prompt token without log-probabilities.
    position: usize,
    source: SamplingError,
}

/// Settings of all sequences of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceSetup<'a> {
    pub(super) tokenizer: Option<&'a Arc<Tokenizer>>,
    /// Stop ids of the model.
    pub(super) stop_ids: &'a [u32],
    pub(super) context: usize,
    pub(super) vocabulary: usize,
    pub(super) drafts: Option<&'a LookupOptions>,
    pub(super) constraints: Option<&'a dyn ConstraintCompiler>,
}

impl RunningSequence {
    /// Starts a sequence with the ids of a prompt. `sample` is added to the request's number.
    pub(super) fn new(
        request: &Arc<Request>,
        ids: &[u32],
        sample: u32,
        setup: SequenceSetup<'_>,
    ) -> Result<Self, Diagnostics> {
        let own = request.stop_ids.as_deref();
        let forbidden: Vec<u32> = own.unwrap_or_default().iter().chain(setup.stop_ids).copied().collect();
        let mut sampler = Sampler::new(&request.sampling, request.sample + u64::from(sample), &forbidden)?;
        sampler.add_prompt(ids);
        let mut stop_ids = own.unwrap_or(if request.ignore_eos { &[] } else { setup.stop_ids }).to_vec();
        if request.grammar.is_some() {
            // The end of a grammar's text.
            stop_ids.extend(setup.stop_ids);
        }
        let sequence = Sequence {
            prompt_ids: ids.to_vec(),
            cached_tokens: 0,
            prompt_log_probabilities: Vec::new(),
            ids: Vec::new(),
            text: String::new(),
            log_probabilities: Vec::new(),
            finish: Finish::Length,
        };
        let constraint = match (&request.grammar, setup.constraints) {
            (None, _) => None,
            (Some(grammar), Some(compiler)) => Some(compiler.compile(grammar)?),
            (Some(_), None) => {
                return Err(Diagnostic::new("session", "compiles no grammars, unlike that of rank 0").into());
            }
        };
        let mut sequence = Self {
            request: Arc::clone(request),
            stop_ids,
            sampler,
            text: setup.tokenizer.map(|tokenizer| Text::new(tokenizer, ids, &request.stop_texts)),
            lookup: setup.drafts.map(PromptLookup::new).transpose()?,
            looked_up: 0,
            max_new_tokens: max_new_tokens(request, ids.len(), setup.context),
            vocabulary: setup.vocabulary,
            failure: None,
            constraint,
            finish: None,
            sequence,
        };
        sequence.prepare_mask();
        Ok(sequence)
    }

    /// Computes the grammar's mask for the next token, while the cards run. Its error is reported
    /// when the token is chosen.
    fn prepare_mask(&mut self) {
        if let Some(constraint) = &mut self.constraint {
            drop(grammar::mask(constraint.as_mut()));
        }
    }

    /// Adds the log-probabilities of the prompt tokens after a chunk's tokens. `logits` are
    /// `[tokens, vocabulary]`, padding included. A chunk may repeat after a preemption.
    pub(super) fn score_prompt(&mut self, start: usize, tokens: usize, logits: &[f32]) {
        let Some(count) = self.request.prompt_log_probabilities else { return };
        let Sequence { prompt_ids, prompt_log_probabilities: scores, .. } = &mut self.sequence;
        let end = (start + tokens).min(prompt_ids.len() - 1);
        let first = scores.len().clamp(start, end);
        let new = (first..end).into_par_iter().map(|position| {
            let row = &logits[(position - start) * self.vocabulary..][..self.vocabulary];
            let scored = LogProbabilities::of(row, prompt_ids[position + 1], count);
            scored.map_err(|source| ScoringFailure { position: position + 1, source })
        });
        match new.collect::<Result<Vec<_>, _>>() {
            Ok(new) => scores.extend(new),
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Fails if the prompt has no log-probabilities.
    pub(super) fn check(&self) -> Result<(), SamplingError> {
        self.failure.clone().map_or(Ok(()), |failure| Err(failure.source))
    }

    /// Returns the position of the token that failed or comes next, counted from 0 with the prompt.
    pub(super) fn position(&self) -> usize {
        if let Some(failure) = &self.failure {
            return failure.position;
        }
        self.sequence.prompt_ids.len() + self.sequence.ids.len()
    }

    /// Returns whether the request needs all logits of its positions.
    fn needs_logits(&self) -> bool {
        self.request.logits || self.request.log_probabilities.is_some()
    }

    /// Returns the token of the output's position `at`, or nothing if this needs all logits.
    fn sampled(&mut self, output: RowOutput<'_>, at: usize) -> Result<Option<u32>, SamplingError> {
        let position = self.position();
        match output {
            RowOutput::Token(id) => {
                let token = u32::try_from(id).ok().filter(|token| (*token as usize) < self.vocabulary);
                token.map(Some).ok_or(SamplingError::NoLargest)
            }
            RowOutput::Candidates(_) if self.needs_logits() => Ok(None),
            RowOutput::Candidates(rows) => {
                let (merged, allowed) = (rows.merged(at), mask(&mut self.constraint)?);
                let found = self.sampler.sample_candidates(&merged.candidates(), position, allowed);
                // A whole row tells more about an error.
                Ok(found.ok().flatten())
            }
            RowOutput::Logits(logits) => {
                let row = &logits[at * self.vocabulary..][..self.vocabulary];
                self.sampler.sample(row, position, mask(&mut self.constraint)?).map(Some)
            }
        }
    }

    /// Chooses the tokens at the positions of the drafts and at the position after them, up to the
    /// first one that is not the draft. `choice` has the first tokens.
    ///
    /// Returns false if a position needs all logits. Then, the logits of all positions must follow.
    pub(super) fn choose(
        &mut self,
        choice: &mut Choice,
        output: RowOutput<'_>,
        drafts: &[u32],
    ) -> Result<bool, SamplingError> {
        self.check()?;
        for at in choice.tokens.len()..=drafts.len() {
            let Some(token) = self.sampled(output, at)? else { return Ok(false) };
            choice.tokens.push(token);
            if self.stop_ids.contains(&token) {
                self.finish = Some(Finish::StopId(token));
                break;
            }
            if let Some(constraint) = &mut self.constraint {
                grammar::accept(constraint.as_mut(), token)?;
            }
            self.sampler.add_generated(token);
            self.sequence.ids.push(token);
            if self.sequence.ids.len() >= self.max_new_tokens {
                self.finish = Some(Finish::Length);
                break;
            }
            if drafts.get(at) != Some(&token) {
                break;
            }
        }
        choice.finish.clone_from(&self.finish);
        Ok(true)
    }

    /// Decodes the text of chosen tokens. If they complete a stop text, later tokens are removed
    /// from the choice.
    pub(super) fn tell(&mut self, choice: &mut Choice, output: RowOutput<'_>) -> Result<Told, Error> {
        let mut told = Told::default();
        let stop_id = matches!(choice.finish, Some(Finish::StopId(_)));
        // A stop id is not part of the sequence.
        let count = choice.tokens.len() - usize::from(stop_id);
        let before = self.sequence.ids.len() - count;
        for at in 0..count {
            let (id, number) = (choice.tokens[at], before + at + 1);
            let may_stop = number > self.request.sampling.min_tokens;
            let (text, stop) = match &mut self.text {
                Some(text) if may_stop => text.push(id)?,
                Some(text) => (text.push_without_stop(id)?, None),
                None => (String::new(), None),
            };
            let log_probabilities = match (output, self.request.log_probabilities) {
                (RowOutput::Logits(logits), Some(count)) => {
                    let row = &logits[at * self.vocabulary..][..self.vocabulary];
                    let found = LogProbabilities::of(row, id, count);
                    Some(found.map_err(|source| {
                        let position = self.sequence.prompt_ids.len() + number - 1;
                        Error::Sampling { request: 0, position, source, place: None }
                    })?)
                }
                _ => None,
            };
            self.sequence.text.push_str(&text);
            self.sequence.log_probabilities.extend(log_probabilities.clone());
            told.tokens.push(NewToken { id, text, log_probabilities });
            if let Some(stop) = stop {
                self.finish = Some(Finish::StopText(stop));
                self.sequence.ids.truncate(number);
                choice.tokens.truncate(at + 1);
                break;
            }
        }
        if self.finish.is_some() {
            told.rest = self.end()?;
        } else {
            self.prepare_mask();
        }
        choice.finish.clone_from(&self.finish);
        Ok(told)
    }

    /// Ends the sequence, and returns the text that was held back.
    pub(super) fn end(&mut self) -> Result<String, Error> {
        let finish = self.finish.get_or_insert(Finish::Cancelled);
        let mut rest = String::new();
        if let Some(text) = self.text.take()
            && !matches!(finish, Finish::StopText(_))
        {
            let (text, stop) = text.finish()?;
            rest = text;
            if let Some(stop) = stop {
                *finish = Finish::StopText(stop);
            }
        }
        self.sequence.text.push_str(&rest);
        self.sequence.finish = finish.clone();
        Ok(rest)
    }

    /// Proposes drafts for the tokens after `known`, which are the sequence's tokens.
    pub(super) fn propose(&mut self, known: &[u32], drafts: &mut Vec<u32>) {
        let Some(lookup) = &mut self.lookup else { return };
        lookup.append(&known[self.looked_up..]);
        self.looked_up = known.len();
        lookup.propose(drafts);
    }
}

/// Returns the tokens that the grammar allows next, if there is one.
fn mask(constraint: &mut Option<Box<dyn Constraint>>) -> Result<Option<TokenMask<'_>>, SamplingError> {
    let allowed = constraint.as_mut().map(|it| grammar::mask(it.as_mut())).transpose()?;
    Ok(allowed.map(TokenMask::from))
}

/// Returns the maximum number of new tokens after a prompt.
pub(super) fn max_new_tokens(request: &Request, prompt: usize, context: usize) -> usize {
    let room = context.saturating_sub(prompt);
    request.max_new_tokens.unwrap_or(room).min(room)
}
