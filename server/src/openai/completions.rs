//! `/v1/completions`: continues texts or token ids.
//!
//! - Input: one prompt or a list, with settings.
//! - Output: a choice for each prompt and sample, whole or streamed.
//! - Invariants: choices are numbered prompt × n. With `echo` a choice begins with its prompt,
//!   whose first token has no log-probability.

use std::sync::Arc;

use ascend_tp::base::Diagnostic;
use ascend_tp::generate::{ConstraintCompiler as _, Request, Sequence};
use axum::Json;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::logprobs::CompletionLogprobs;
use super::sampling::{AnswerGrammar, MAX_LOGPROBS, Settings, StreamOptions};
use super::stream::{self, ChunkWriter, Chunks};
use super::{AnswerHead, Usage, finish_reason, last_text};
use crate::error::ApiError;
use crate::fields::{MAX_PROBLEMS, RequestFields};
use crate::generation::{EndEvent, GenerationEvent, GenerationRequest, TokenEvent};
use crate::routes::{AuthorizedRequest, new_id, off_reactor};
use crate::state::ServerState;
use crate::visible::ShownTokens;

const OBJECT: &str = "text_completion";

/// Default of `max_tokens`.
const DEFAULT_TOKENS: usize = 16;

/// Maximum number of choices of a request.
const MAX_CHOICES: usize = 4096;

/// Maximum number of prompts of a request with a grammar. Each prompt has a copy of the grammar.
const MAX_GRAMMAR_PROMPTS: usize = 256;

/// Answers a request.
pub(crate) async fn respond(call: AuthorizedRequest) -> Result<Response, ApiError> {
    let mut record = call.record("/v1/completions");
    let state = Arc::clone(&call.state);
    let read = off_reactor(move || CompletionJob::read(&call.state, &call.body)).await;
    let CompletionJob { requests, answer, shown } = record.check(read)?;
    let samples = answer.samples;
    record.set_request(answer.usage.prompt_tokens, requests.len() * samples, answer.seed);
    let stream = answer.stream;
    let generation = GenerationRequest::new(&state, requests, samples, shown, record);
    match stream {
        Some(options) => {
            let writer = ChunkWriter { head: answer.head.clone(), object: OBJECT, options };
            stream::respond(generation, StreamedAnswer { writer, answer }).await
        }
        None => whole(generation, answer).await,
    }
}

/// A request that is ready for the engine.
struct CompletionJob {
    requests: Vec<Request>,
    answer: CompletionParts,
    /// Special tokens that are texts of the answer.
    shown: ShownTokens,
}

/// The parts of an answer that are not in the events.
struct CompletionParts {
    state: Arc<ServerState>,
    head: AnswerHead,
    samples: usize,
    seed: u64,
    stream: Option<StreamOptions>,
    /// Texts of the prompts, if choices begin with them.
    echo: Option<Vec<String>>,
    /// Whether the generated tokens are part of the answer.
    has_new: bool,
    choices: Vec<UnsentChoice>,
    usage: Usage,
}

/// The part of a choice that was not sent.
#[derive(Default)]
struct UnsentChoice {
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish: Option<&'static str>,
}

impl UnsentChoice {
    /// Returns the choice since the last call.
    fn take(&mut self, index: usize) -> Value {
        let logprobs = self.logprobs.as_mut().map(CompletionLogprobs::take);
        let text = std::mem::take(&mut self.text);
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": self.finish.take()})
    }
}

impl CompletionJob {
    fn read(state: &Arc<ServerState>, body: &Bytes) -> Result<Self, ApiError> {
        let mut fields = RequestFields::of_body(body)?;
        let mut settings = Settings::read(&mut fields, state);
        let model = state.model_name(settings.model.as_deref())?;
        let echo = fields.take("echo").unwrap_or(false);
        let logprobs = fields.take::<usize>("logprobs");
        if let Some(count) = logprobs.filter(|count| *count > MAX_LOGPROBS) {
            let problem = Diagnostic::new("logprobs", "is too large");
            fields.problems.push(problem.expected(format!("at most {MAX_LOGPROBS}")).found(count));
        }
        if echo && logprobs.is_some() && settings.stream.is_some() {
            fields.problem("stream", "an answer with echo and logprobs comes at once; leave stream out");
        }
        // The engine generates a token anyway, which the answer then leaves out.
        let has_new = settings.max_tokens != Some(0);
        if !has_new && !echo {
            fields.problem("max_tokens", "asks for no token; without echo the answer would be empty");
        }
        settings.max_tokens = settings.max_tokens.map(|most| most.max(1));
        let adds_special = fields.take("add_special_tokens").unwrap_or(true);
        if let Some(AnswerGrammar { field, grammar }) = &settings.grammar {
            let grammars = state.texts.grammars.as_ref().map_err(Clone::clone);
            let compiled = grammars.and_then(|grammars| grammars.compile(grammar));
            compiled.err().iter().for_each(|found| fields.problems_in(field, found));
        }
        let prompts = prompts(&mut fields, state, adds_special, settings.samples);
        let grammar = settings.grammar.as_ref().map(|grammar| &grammar.grammar);
        if grammar.is_some() && prompts.len() > MAX_GRAMMAR_PROMPTS {
            let problem = Diagnostic::new("prompt", "has too many prompts for a request with a grammar");
            let expected = format!("at most {MAX_GRAMMAR_PROMPTS}");
            fields.problems.push(problem.expected(expected).found(prompts.len()));
        }
        let place =
            |at: usize| if prompts.len() == 1 { "prompt".to_owned() } else { format!("prompt[{at}]") };
        for (at, ids) in prompts.iter().enumerate() {
            if fields.has_many_problems() {
                break;
            }
            settings.check_length(&mut fields, &place(at), ids.len(), state.context, DEFAULT_TOKENS);
        }
        // Each prompt gets a copy of the settings.
        fields.check()?;
        let choices = prompts.len() * settings.samples;
        let echoed = echo.then(|| prompts.iter().map(|ids| text_of(&mut fields, state, ids)).collect());
        let usage = Usage { prompt_tokens: prompts.iter().map(Vec::len).sum(), ..Usage::default() };
        let requests = prompts.into_iter().enumerate().map(|(at, ids)| {
            let default = DEFAULT_TOKENS.min(state.context - ids.len());
            let mut request = settings.request(state, ids, logprobs);
            request.max_new_tokens.get_or_insert(default);
            request.grammar = grammar.cloned();
            request.prompt_log_probabilities = logprobs.filter(|_| echo);
            // With a seed, the answer to a prompt does not depend on its position.
            request.sample = if settings.has_seed { 0 } else { (at * settings.samples) as u64 };
            request
        });
        let requests: Vec<Request> = requests.collect();
        let choice = || UnsentChoice {
            logprobs: logprobs.map(|_| CompletionLogprobs::default()),
            ..UnsentChoice::default()
        };
        let answer = CompletionParts {
            state: Arc::clone(state),
            head: AnswerHead::new(format!("cmpl-{}", new_id()), model),
            samples: settings.samples,
            seed: settings.sampling.seed,
            stream: settings.stream,
            echo: echoed,
            has_new,
            choices: (0..choices).map(|_| choice()).collect(),
            usage,
        };
        let shown = if settings.shows_special { ShownTokens::All } else { ShownTokens::These(Vec::new()) };
        fields.finish(Some(Self { requests, answer, shown }))
    }
}

/// Reads the prompts as token ids. Each has `samples` choices.
fn prompts(
    fields: &mut RequestFields,
    state: &ServerState,
    adds_special: bool,
    samples: usize,
) -> Vec<Vec<u32>> {
    let Some(value) = fields.raw("prompt") else {
        fields.problem("prompt", "is missing");
        return Vec::new();
    };
    let encode = |text: &String| {
        let tokenizer = &state.texts.tokenizer;
        if adds_special { tokenizer.encode(text) } else { tokenizer.encode_whole(text) }
    };
    let choices = Prompts::count(&value).saturating_mul(samples);
    if choices > MAX_CHOICES {
        let problem = Diagnostic::new("prompt", "has too many prompts for n");
        fields.problems.push(problem.expected(format!("at most {MAX_CHOICES} choices")).found(choices));
        return Vec::new();
    }
    let Some(prompts) = Prompts::read(&value) else {
        let problem = Diagnostic::new("prompt", "has the wrong type");
        fields.problems.push(problem.expected("a text, a list of token ids, or a list of either"));
        return Vec::new();
    };
    let vocabulary = state.texts.vocabulary.len();
    match prompts {
        Prompts::Ids(lists) => {
            if let Some(id) = lists.iter().flatten().find(|id| **id as usize >= vocabulary) {
                let problem = Diagnostic::new("prompt", "has a token id outside the vocabulary");
                fields.problems.push(problem.expected(format!("below {vocabulary}")).found(id));
            }
            lists
        }
        Prompts::Texts(texts) => {
            let encoded: Result<Vec<_>, _> = texts.iter().map(encode).collect();
            encoded.unwrap_or_else(|found| {
                let found = found
                    .items()
                    .iter()
                    .take(MAX_PROBLEMS)
                    .map(|problem| Diagnostic::new("prompt", problem.to_string()));
                found.for_each(|problem| fields.problems.push(problem));
                Vec::new()
            })
        }
    }
}

enum Prompts {
    Texts(Vec<String>),
    Ids(Vec<Vec<u32>>),
}

impl Prompts {
    /// Returns the number of prompts, without storing them. A list of ids is one prompt.
    fn count(value: &RawValue) -> usize {
        let is_ids = serde_json::from_str::<Vec<u32>>(value.get()).is_ok();
        let items = serde_json::from_str::<Vec<IgnoredAny>>(value.get());
        items.map_or(1, |items| if is_ids { 1 } else { items.len() })
    }

    fn read(value: &RawValue) -> Option<Self> {
        let json = value.get();
        if let Ok(text) = serde_json::from_str(json) {
            return Some(Self::Texts(vec![text]));
        }
        if let Ok(ids) = serde_json::from_str(json) {
            return Some(Self::Ids(vec![ids]));
        }
        let lists = serde_json::from_str(json).map(Self::Ids);
        lists.or_else(|_| serde_json::from_str(json).map(Self::Texts)).ok()
    }
}

fn text_of(fields: &mut RequestFields, state: &ServerState, ids: &[u32]) -> String {
    state.texts.tokenizer.decode(ids).unwrap_or_else(|found| {
        fields.problem("prompt", &found.to_string());
        String::new()
    })
}

impl CompletionParts {
    fn token(&mut self, TokenEvent { choice, id, text, log_probabilities }: TokenEvent) {
        if !self.has_new {
            return;
        }
        self.usage.new_tokens += 1;
        let choice = &mut self.choices[choice];
        choice.text.push_str(&text);
        if let Some(logprobs) = &mut choice.logprobs {
            logprobs.push(&self.state.texts.vocabulary, id, log_probabilities.as_ref());
        }
    }

    fn end(&mut self, EndEvent { choice, text, sequence }: &EndEvent) {
        if self.has_new {
            self.choices[*choice].text.push_str(&last_text(&self.state, sequence, text));
            self.usage.sequence_ends(sequence, choice % self.samples);
        }
        self.choices[*choice].finish = Some(finish_reason(&sequence.finish));
    }

    /// Puts the prompt and its log-probabilities before a whole choice.
    fn echo(&mut self, choice: usize, sequence: &Sequence) {
        let Some(prompts) = &self.echo else { return };
        let prompt = &prompts[choice / self.samples];
        let choice = &mut self.choices[choice];
        choice.text.insert_str(0, prompt);
        let Some(logprobs) = &mut choice.logprobs else { return };
        let vocabulary = &self.state.texts.vocabulary;
        let mut whole = CompletionLogprobs::default();
        let found = sequence.prompt_log_probabilities.iter().map(Some);
        for (id, found) in sequence.prompt_ids.iter().zip(std::iter::once(None).chain(found)) {
            whole.push(vocabulary, *id, found);
        }
        let new = sequence.ids.iter().zip(&sequence.log_probabilities);
        for (id, found) in new.filter(|_| self.has_new) {
            whole.push(vocabulary, *id, Some(found));
        }
        *logprobs = whole;
    }
}

async fn whole(mut generation: GenerationRequest, mut answer: CompletionParts) -> Result<Response, ApiError> {
    while let Some(event) = generation.next().await? {
        match event {
            GenerationEvent::Token(token) => answer.token(token),
            GenerationEvent::End(end) => {
                answer.end(&end);
                answer.echo(end.choice, &end.sequence);
            }
        }
    }
    let choices = answer.choices.iter_mut().enumerate().map(|(index, choice)| choice.take(index));
    let mut whole = answer.head.object(OBJECT, &choices.collect());
    whole["usage"] = answer.usage.json();
    Ok(Json(whole).into_response())
}

struct StreamedAnswer {
    writer: ChunkWriter,
    answer: CompletionParts,
}

impl StreamedAnswer {
    fn chunk(&self, choices: &Value) -> Bytes {
        self.writer.chunk(choices, &self.answer.usage)
    }

    fn choice(&mut self, index: usize) -> Bytes {
        let choice = self.answer.choices[index].take(index);
        self.chunk(&json!([choice]))
    }
}

impl Chunks for StreamedAnswer {
    fn on_event(&mut self, event: GenerationEvent) -> Vec<Bytes> {
        let mut events = Vec::new();
        // The prompts come first, once.
        if let Some(prompts) = self.answer.echo.take() {
            for index in 0..self.answer.choices.len() {
                self.answer.choices[index].text.clone_from(&prompts[index / self.answer.samples]);
                events.push(self.choice(index));
            }
        }
        match event {
            GenerationEvent::Token(token) => {
                let index = token.choice;
                self.answer.token(token);
                let choice = &self.answer.choices[index];
                let has_logprobs = choice.logprobs.is_some() && self.answer.has_new;
                if !choice.text.is_empty() || has_logprobs {
                    events.push(self.choice(index));
                }
            }
            GenerationEvent::End(end) => {
                let index = end.choice;
                self.answer.end(&end);
                let finish = self.answer.choices[index].finish.take();
                if !self.answer.choices[index].text.is_empty() {
                    events.push(self.choice(index));
                }
                let last = json!([{"index": index, "text": "", "logprobs": null, "finish_reason": finish}]);
                events.push(self.chunk(&last));
            }
        }
        events
    }

    fn on_end(&mut self) -> Vec<Bytes> {
        self.writer.end(&self.answer.usage)
    }

    fn on_error(&mut self, error: &ApiError) -> Vec<Bytes> {
        stream::failed(error)
    }
}
