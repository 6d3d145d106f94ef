//! Messages in the format a model was trained with.
//!
//! Input → output: the chat template of a checkpoint folder, a Jinja text → [`ChatTemplate`]; messages → the text the model sees.
//! Invariants: what the template calls is what transformers gives it (`raise_exception`, Python's methods of strings, lists and
//! dicts, blocks without the white space around them), but for the clock: templates that ask for the date have one of their own
//! for those who have none, and the same messages give the same text. Nothing is added to what it says.
//!
//! The text has the special tokens in it, so it is encoded without further ones ([`super::tokenizer::Tokenizer::encode_whole`]).
//! Without the feature `text` no template can be opened.

#[cfg(not(feature = "text"))]
mod absent;
#[cfg(feature = "text")]
mod jinja;

#[cfg(not(feature = "text"))]
pub use absent::ChatTemplate;
#[cfg(feature = "text")]
pub use jinja::ChatTemplate;

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// What `role` says.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}
