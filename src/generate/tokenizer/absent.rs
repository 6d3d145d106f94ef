//! The tokenizer of a build without the feature `text`. It can never be opened.

use std::path::Path;
use std::sync::Arc;

use super::{Piece, TokenStream};
use crate::base::{Diagnostic, Diagnostics};

/// A tokenizer, which this build cannot open.
#[derive(Clone, Debug)]
pub enum Tokenizer {}

impl Tokenizer {
    /// Returns an error, because this build has no tokenizers.
    ///
    /// # Errors
    /// Always.
    pub fn open(dir: &Path, _vocab_size: usize) -> Result<Self, Diagnostics> {
        Err(Diagnostic::new(dir.display().to_string(), "this build reads no tokenizers")
            .help("build ascend-tp with its feature `text`, or give token ids")
            .into())
    }

    /// Returns the number of ids.
    #[must_use]
    pub const fn size(&self) -> usize {
        match *self {}
    }

    /// Returns the ids of a text.
    ///
    /// # Errors
    /// Never, because no tokenizer exists.
    pub const fn encode(&self, _text: &str) -> Result<Vec<u32>, Diagnostics> {
        match *self {}
    }

    /// Returns the ids of a text that already has its special tokens.
    ///
    /// # Errors
    /// Never, because no tokenizer exists.
    pub const fn encode_whole(&self, _text: &str) -> Result<Vec<u32>, Diagnostics> {
        match *self {}
    }

    /// Returns the tokens of a text with their ranges.
    ///
    /// # Errors
    /// Never, because no tokenizer exists.
    pub const fn pieces(&self, _text: &str) -> Result<Vec<Piece>, Diagnostics> {
        match *self {}
    }

    /// Returns the text of ids.
    ///
    /// # Errors
    /// Never, because no tokenizer exists.
    pub const fn decode(&self, _ids: &[u32]) -> Result<String, Diagnostics> {
        match *self {}
    }

    /// Returns a decoder of the ids that follow `prompt`.
    #[must_use]
    pub fn stream(self: &Arc<Self>, prompt: &[u32]) -> TokenStream {
        TokenStream::new(self, prompt)
    }

    /// Returns the id of a token.
    #[must_use]
    pub const fn id_of(&self, _token: &str) -> Option<u32> {
        match *self {}
    }
}
