//! Messages in the format a model was trained with.
//!
//! Input → output: the chat template of a checkpoint folder, a Jinja text → [`ChatTemplate`];
//! messages → the text the model sees. Invariants: a template renders as transformers renders it,
//! or fails with its own error; nothing is added to its text. Templates that ask for the date get
//! today's, as in transformers; a caller may fix it.
//!
//! The text has the special tokens in it, so it is encoded without further ones
//! ([`super::tokenizer::Tokenizer::encode_whole`]). Without the feature `text` no template can be
//! opened.

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

/// One turn of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text of the message.
    pub content: String,
    /// Further keys that templates see, such as `tool_calls`, in their order. A key `content` or
    /// `role` replaces the text.
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
    /// Returns a message of a role and a text, without further keys.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), fields: Vec::new() }
    }
}

/// A conversation as the template writes it, and where the assistant's answers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Text of the whole conversation.
    pub(crate) text: String,
    /// One answer a span, in the order of the text.
    pub(crate) spans: Vec<AnswerSpan>,
}

/// An answer within the text of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerSpan {
    /// Range in the text, in bytes.
    pub(crate) bytes: Range<usize>,
    /// Whether what ends the answer is inside the range already.
    pub(crate) has_end: bool,
}
