//! The API of OpenAI, with the fields that vLLM adds.
//!
//! - Input: JSON bodies.
//! - Output: JSON answers, or streams of events.
//! - Invariants: the chunks of a stream add up to the whole answer. All problems of a request are
//!   reported at once.
//! - Not here: the work of the engine (`generation`).
//!
//! | file | content |
//! |---|---|
//! | `completions`, `chat` | the two endpoints that generate |
//! | `messages` | messages and tools of a chat, for the template |
//! | `sampling` | fields that both have in common |
//! | `logprobs`, `stream` | parts of answers |
//! | `models`, `tokenize` | small endpoints |

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod sampling;
pub(crate) mod stream;
pub(crate) mod tokenize;

use std::time::{SystemTime, UNIX_EPOCH};

use ascend_tp::generate::{Finish, Sequence};
use serde_json::{Value, json};

use crate::state::ServerState;

/// Fields that all chunks of an answer have.
#[derive(Clone, Debug)]
pub(crate) struct AnswerHead {
    id: String,
    created: u64,
    model: String,
}

impl AnswerHead {
    pub(crate) fn new(id: String, model: String) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { id, created: now.as_secs(), model }
    }

    /// Returns an answer or a chunk with these choices.
    pub(crate) fn object(&self, object: &str, choices: &Value) -> Value {
        let Self { id, created, model } = self;
        json!({"id": id, "object": object, "created": created, "model": model, "choices": choices})
    }
}

/// Numbers of tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) new_tokens: usize,
    pub(crate) cached_tokens: usize,
}

impl Usage {
    /// Adds the last token of a sequence, if the token ended it and is in no other event, and the
    /// hits of the prefix cache.
    pub(crate) fn sequence_ends(&mut self, sequence: &Sequence, sample: usize) {
        self.new_tokens += usize::from(matches!(sequence.finish, Finish::StopId(_)));
        if sample == 0 {
            self.cached_tokens += sequence.cached_tokens;
        }
    }

    pub(crate) fn json(&self) -> Value {
        let Self { prompt_tokens, new_tokens, cached_tokens } = self;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": new_tokens,
            "total_tokens": prompt_tokens + new_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        })
    }
}

/// Returns the reason of an end, in OpenAI's words.
pub(crate) const fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::StopId(_) | Finish::StopText(_) => "stop",
        Finish::Cancelled => "abort",
    }
}

/// Returns the last text of an answer without half of a character.
///
/// The library writes an incomplete character as U+FFFD. The bytes of the tokens tell it from a
/// U+FFFD that the model wrote.
pub(crate) fn last_text(state: &ServerState, sequence: &Sequence, text: &str) -> String {
    /// Number of tokens that a character of four bytes has at most.
    const MAX_TOKENS: usize = 4;
    let last = &sequence.ids[sequence.ids.len().saturating_sub(MAX_TOKENS)..];
    let bytes: Vec<u8> = last.iter().flat_map(|id| state.texts.vocabulary.bytes(*id)).copied().collect();
    // The first token may begin inside a character.
    let start = bytes.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
    let is_cut = std::str::from_utf8(&bytes[start..]).is_err_and(|error| error.error_len().is_none());
    let text = if is_cut { text.strip_suffix('\u{FFFD}').unwrap_or(text) } else { text };
    text.to_owned()
}
