//! The tokenizer of a build without the feature `text`: there is none, so nothing can be asked of
//! it.

use std::path::Path;

use super::{Piece, TokenStream};
use crate::base::{Diagnostic, Diagnostics};

/// A model's tokenizer, which this build cannot open.
#[derive(Clone, Debug)]
pub enum Tokenizer {}

impl Tokenizer {
    /// Says that there is none.
    ///
    /// # Errors
    /// Always.
    pub fn open(dir: &Path, _vocab_size: usize) -> Result<Self, Diagnostics> {
        Err(Diagnostic::new(dir.display().to_string(), "this build reads no tokenizers")
            .help("build ascend-tp with its feature `text`, or give token ids")
            .into())
    }

    /// Number of ids.
    #[must_use]
    pub const fn size(&self) -> usize {
        match *self {}
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// There are none, as there is no tokenizer.
    pub const fn encode(&self, _text: &str) -> Result<Vec<u32>, Diagnostics> {
        match *self {}
    }

    /// The ids of a text that has the tokens at its start already.
    ///
    /// # Errors
    /// There are none, as there is no tokenizer.
    pub const fn encode_whole(&self, _text: &str) -> Result<Vec<u32>, Diagnostics> {
        match *self {}
    }

    /// The ids of a text, with the part of it that each stands for.
    ///
    /// # Errors
    /// There are none, as there is no tokenizer.
    pub const fn pieces(&self, _text: &str) -> Result<Vec<Piece>, Diagnostics> {
        match *self {}
    }

    /// The text of ids.
    ///
    /// # Errors
    /// There are none, as there is no tokenizer.
    pub const fn decode(&self, _ids: &[u32]) -> Result<String, Diagnostics> {
        match *self {}
    }

    /// A decoder of the ids that follow `prompt` one by one.
    #[must_use]
    pub fn stream(&self, prompt: &[u32]) -> TokenStream<'_> {
        TokenStream::new(self, prompt)
    }

    /// The id of a token written exactly so.
    #[must_use]
    pub const fn id_of(&self, _token: &str) -> Option<u32> {
        match *self {}
    }
}
