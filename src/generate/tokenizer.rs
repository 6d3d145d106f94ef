//! Conversion between text and token ids.
//!
//! Input: the tokenizer files of a checkpoint. Output: a [`Tokenizer`], which encodes and decodes
//! texts; a [`TokenStream`], which decodes ids one by one; a `Vocabulary`, the bytes of each token.
//!
//! Invariants:
//! - Every id of a text is below the model's vocabulary size.
//! - Texts are never truncated or padded, regardless of the file's settings.
//! - A stream returns whole characters only.
//!
//! Not here: chat formats ([`super::chat`]). Without the feature `text` no tokenizer can be opened.

#[cfg(not(feature = "text"))]
mod absent;
#[cfg(feature = "text")]
mod hub;
#[cfg(feature = "text")]
mod split;
mod stream;
#[cfg(feature = "text")]
mod tiktoken;
#[cfg(feature = "text")]
mod vocabulary;

use std::ops::Range;

#[cfg(not(feature = "text"))]
pub use absent::Tokenizer;
#[cfg(feature = "text")]
pub use hub::Tokenizer;
pub use stream::TokenStream;
#[cfg(feature = "text")]
pub use vocabulary::Vocabulary;

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Id of the token.
    pub id: u32,
    /// Range of the token's text, in bytes. Many tokenizers exclude leading spaces. If several
    /// tokens form one character, each range covers the whole character.
    pub bytes: Range<usize>,
    /// Whether the token is a special token, which decoding removes.
    pub is_special: bool,
}
