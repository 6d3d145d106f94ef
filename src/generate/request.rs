//! What a session is asked for and what it gives back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::sampling::SamplingOptions;

/// The text or the token ids that are continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A text; the model's tokenizer makes ids of it.
    Text(String),
    /// Token ids, as the model takes them.
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

/// A prompt and how it is to be continued. Requests of one batch know nothing of each other.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is continued.
    pub prompt: Prompt,
    /// Tokens to generate at most; none: as many as the session was made for.
    pub max_new_tokens: Option<usize>,
    /// Ids that end the sequence, and are not part of it; none: those of the model.
    pub stop_ids: Option<Vec<u32>>,
    /// Texts that end the sequence. Its text ends before the first of them, its ids with the one
    /// that completes it.
    pub stop_texts: Vec<String>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Number of this sample among those of the same prompt and seed, from 0. Each has independent
    /// random numbers.
    pub sample: u64,
    /// Log-probabilities of each token and of this many of the likeliest ones; none: of no token.
    pub log_probabilities: Option<usize>,
    /// Whether events bring the logits of each token.
    pub logits: bool,
    /// Ends the sequence from any thread.
    pub cancel: Option<CancelToken>,
}

impl Request {
    /// A greedy continuation up to the model's stop ids or the session's length.
    #[must_use]
    pub fn new(prompt: impl Into<Prompt>) -> Self {
        Self {
            prompt: prompt.into(),
            max_new_tokens: None,
            stop_ids: None,
            stop_texts: Vec::new(),
            sampling: SamplingOptions::default(),
            sample: 0,
            log_probabilities: None,
            logits: false,
            cancel: None,
        }
    }

    /// Whether the id of the largest logit is all that it takes.
    #[must_use]
    pub fn is_likeliest(&self) -> bool {
        self.sampling.is_likeliest() && self.log_probabilities.is_none() && !self.logits
    }
}

/// Ends requests from any thread. Clones are the same token.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The sequences of this token end with the token that is being made.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has called [`cancel`](Self::cancel).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happens to a sequence.
#[derive(Clone, Copy, Debug)]
pub enum RequestEvent<'a> {
    /// It has one more token.
    Token(Token<'a>),
    /// It has ended.
    End {
        /// Position of the request in the batch.
        request: usize,
        /// The text that was still held back.
        text: &'a str,
        /// Why nothing follows.
        finish: &'a Finish,
    },
}

/// A new token of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// Position of the request in the batch.
    pub request: usize,
    /// The token's id.
    pub id: u32,
    /// The text that is whole with it: bytes are held back until a character is complete, and
    /// characters while they may be the beginning of a stop text. Empty without a tokenizer.
    pub text: &'a str,
    /// If the request asks for them.
    pub log_probabilities: Option<&'a LogProbabilities>,
    /// The logits of all tokens at its position, if the request asks for them.
    pub logits: Option<&'a [f32]>,
}

/// Natural logarithms of probabilities: of the model's own distribution, before temperature and
/// penalties.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbabilities {
    /// Of the token that was chosen.
    pub chosen: f32,
    /// Of the likeliest tokens, in falling order; of equal ones the lower id first.
    pub likeliest: Vec<(u32, f32)>,
}

/// Why a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It has as many tokens as it may have.
    Length,
    /// The model chose this id, which ends sequences.
    StopId(u32),
    /// Its text came to this stop text.
    StopText(String),
    /// Whoever hears of its tokens, or its [`CancelToken`], ended it.
    Cancelled,
}

/// A continued prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// The prompt's ids.
    pub prompt_ids: Vec<u32>,
    /// The new tokens.
    pub ids: Vec<u32>,
    /// Their text; empty without a tokenizer.
    pub text: String,
    /// By new token, if the request asks for them.
    pub log_probabilities: Vec<LogProbabilities>,
    /// Why it ended.
    pub finish: Finish,
}

impl LogProbabilities {
    /// Those of `chosen` and of the `count` likeliest tokens.
    pub(super) fn of(logits: &[f32], chosen: u32, count: usize) -> Self {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
        let normaliser = f64::from(largest) + sum.ln();
        let of = |token: u32| (f64::from(logits[token as usize]) - normaliser) as f32;
        let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
        let likelier = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if count < tokens.len() {
            tokens.select_nth_unstable_by(count, likelier);
            tokens.truncate(count);
        }
        tokens.sort_unstable_by(likelier);
        Self { chosen: of(chosen), likeliest: tokens.into_iter().map(|token| (token, of(token))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_those_of_the_distribution() {
        let logits = [1f32.ln(), 4f32.ln(), 3f32.ln(), f32::NEG_INFINITY, 4f32.ln()];
        let found = LogProbabilities::of(&logits, 2, 3);
        assert!((found.chosen - (3.0f32 / 12.0).ln()).abs() < 1e-6);
        assert_eq!(found.likeliest.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 4, 2]);
        assert!((found.likeliest[0].1 - (4.0f32 / 12.0).ln()).abs() < 1e-6);
        assert_eq!(LogProbabilities::of(&logits, 1, 0).likeliest, []);
        let all = LogProbabilities::of(&logits, 1, 99).likeliest;
        assert_eq!(all.last(), Some(&(3, f32::NEG_INFINITY)));
        let sum: f32 = all.iter().map(|(_, log)| log.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }
}
