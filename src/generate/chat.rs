//! Conversations in the format that a model was trained with.
//!
//! Input: the chat template of a checkpoint folder, a Jinja text, and messages. Output: a
//! [`ChatTemplate`], and the text that the model reads.
//!
//! Invariants:
//! - A template renders as in transformers, or fails with its own error. Nothing is added to its
//!   text.
//! - A template that asks for the date gets the current date, as in transformers. The caller may
//!   fix the date.
//! - The text already contains the special tokens, so it is encoded by
//!   [`super::tokenizer::Tokenizer::encode_whole`].
//!
//! Without the feature `text` no template can be opened.

#[cfg(not(feature = "text"))]
mod absent;
#[cfg(feature = "text")]
mod answers;
#[cfg(feature = "text")]
mod blocks;
#[cfg(feature = "text")]
mod environment;
#[cfg(feature = "text")]
mod jinja;
#[cfg(feature = "text")]
mod json;

use std::ops::Range;

#[cfg(not(feature = "text"))]
pub use absent::ChatTemplate;
#[cfg(feature = "text")]
pub use jinja::ChatTemplate;

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Role of the author: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text of the message.
    pub content: String,
    /// Further keys for the template, such as `tool_calls`, in their order. A key `content` or
    /// `role` replaces the value above.
    pub fields: Vec<MessageField>,
}

/// A further key of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageField {
    /// Name of the key.
    pub name: String,
    /// JSON text of the value.
    pub json: String,
}

impl Message {
    /// Returns a message with a role and a text, without further keys.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), fields: Vec::new() }
    }
}

/// The text of a conversation, and the position of each answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Text of the whole conversation.
    pub(crate) text: String,
    /// One span per answer, in the order of the text.
    pub(crate) spans: Vec<AnswerSpan>,
}

/// The position of an answer within the text of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerSpan {
    /// Range in the text, in bytes.
    pub(crate) bytes: Range<usize>,
    /// Whether the range already contains the token that ends the answer.
    pub(crate) has_end: bool,
}
