//! Requests to a session, and their results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::grammar::Grammar;
use super::sampling::{LogProbabilities, SamplingOptions};

/// The text or token ids to continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prompt {
    /// A text that the model's tokenizer encodes.
    Text(String),
    /// Token ids of the model's vocabulary.
    Ids(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(ids: Vec<u32>) -> Self {
        Self::Ids(ids)
    }
}

impl From<&[u32]> for Prompt {
    fn from(ids: &[u32]) -> Self {
        Self::Ids(ids.to_vec())
    }
}

/// A prompt and its generation settings. Requests of one batch are independent.
///
/// ```
/// use ascend_tp::generate::{Request, SamplingOptions};
///
/// let request = Request {
///     max_new_tokens: Some(32),
///     stop_texts: vec!["\n".to_owned()],
///     sampling: SamplingOptions { temperature: 0.7, seed: 7, ..Default::default() },
///     ..Request::new("In the beginning")
/// };
/// # drop(request);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The prompt to continue.
    pub prompt: Prompt,
    /// Maximum number of new tokens. Default: the rest of the session's context.
    pub max_new_tokens: Option<usize>,
    /// Ids that end the sequence and are excluded from it. Default: the model's.
    pub stop_ids: Option<Vec<u32>>,
    /// If true, the model's stop ids do not end the sequence. `stop_ids` still do.
    pub ignore_eos: bool,
    /// Texts that end the sequence. Its text ends before the first stop text; its ids include the
    /// token that completes it.
    pub stop_texts: Vec<String>,
    /// Settings for the choice of tokens.
    pub sampling: SamplingOptions,
    /// Sample number for this prompt and seed, from 0. Samples have independent random numbers.
    pub sample: u64,
    /// Number of most likely tokens to return log-probabilities for, in addition to the chosen
    /// token.
    pub log_probabilities: Option<usize>,
    /// Number of most likely tokens to return log-probabilities for at each token of the prompt, in
    /// addition to the token. The session must be made with the method of this name of
    /// [`SessionBuilder`](super::SessionBuilder).
    pub prompt_log_probabilities: Option<usize>,
    /// The language of the generated text. The session must be made with
    /// [`SessionBuilder::constraints`](super::SessionBuilder::constraints).
    pub grammar: Option<Grammar>,
    /// The adapter of all tokens, by its name in
    /// [`Model::with_adapters`](super::Model::with_adapters). Default: the weights alone.
    pub adapter: Option<String>,
    /// If true, events contain the logits of each token.
    pub logits: bool,
    /// Cancels the sequence from any thread.
    #[serde(skip)]
    pub cancel: Option<CancelToken>,
    /// Requests with a higher priority are served earlier.
    pub priority: i32,
}

impl Request {
    /// Creates a greedy request up to the model's stop ids or the session's context.
    #[must_use]
    pub fn new(prompt: impl Into<Prompt>) -> Self {
        Self {
            prompt: prompt.into(),
            max_new_tokens: None,
            stop_ids: None,
            ignore_eos: false,
            stop_texts: Vec::new(),
            sampling: SamplingOptions::default(),
            sample: 0,
            log_probabilities: None,
            prompt_log_probabilities: None,
            grammar: None,
            adapter: None,
            logits: false,
            cancel: None,
            priority: 0,
        }
    }

    /// Returns whether the id of the largest logit suffices.
    #[must_use]
    #[doc(hidden)]
    pub fn is_likeliest(&self) -> bool {
        let needs_logits = self.logits
            || self.log_probabilities.is_some()
            || self.prompt_log_probabilities.is_some()
            || self.grammar.is_some();
        self.sampling.is_likeliest() && !needs_logits
    }
}

/// A handle that cancels requests. Clones share one state.
///
/// ```
/// use ascend_tp::generate::{CancelToken, Request};
///
/// let stop = CancelToken::new();
/// let request = Request { cancel: Some(stop.clone()), ..Request::new("The words of") };
/// stop.cancel(); // From any thread, while a session answers the request.
/// # drop(request);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Creates a token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the requests of this handle during the current decode step. Callable from any thread.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`cancel`](Self::cancel) was called.
    #[must_use]
    #[doc(hidden)]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An event of one sequence.
#[derive(Clone, Copy, Debug)]
pub enum RequestEvent<'a> {
    /// The sequence has a new token.
    Token(Token<'a>),
    /// The sequence has ended.
    End {
        /// Position of the request in the batch.
        request: usize,
        /// Remaining text that was held back.
        text: &'a str,
        /// The reason of the end.
        finish: &'a Finish,
    },
}

/// A new token of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// Position of the request in the batch.
    pub request: usize,
    /// Id in the vocabulary.
    pub id: u32,
    /// Text completed by this token. Incomplete characters and possible stop texts are held back.
    /// Empty without a tokenizer.
    pub text: &'a str,
    /// Log-probabilities, if the request asks for them.
    pub log_probabilities: Option<&'a LogProbabilities>,
    /// Logits at this position, if the request asks for them.
    pub logits: Option<&'a [f32]>,
}

/// The reason why a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The sequence reached its maximum length.
    Length,
    /// The model chose this stop id.
    StopId(u32),
    /// The text contains this stop text.
    StopText(String),
    /// The event callback returned `Break`, or the [`CancelToken`] was cancelled.
    Cancelled,
}

/// A continued prompt: its new tokens and their text.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Token ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Number of tokens of the prompt whose keys and values were in the prefix cache when the
    /// sequence started. Later samples find there what the first one computed.
    pub cached_tokens: usize,
    /// Log-probabilities of each token of the prompt but the first one, if requested.
    pub prompt_log_probabilities: Vec<LogProbabilities>,
    /// Ids of the new tokens.
    pub ids: Vec<u32>,
    /// Text of the new tokens; empty without a tokenizer.
    pub text: String,
    /// Log-probabilities of each new token, if requested.
    pub log_probabilities: Vec<LogProbabilities>,
    /// The reason why the sequence ended.
    pub finish: Finish,
}
