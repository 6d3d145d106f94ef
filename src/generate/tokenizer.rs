//! Text to token ids and back.
//!
//! Input → output: the tokenizer files of a checkpoint → [`Tokenizer`]; text → ids; ids → text, at
//! once or as they come. Invariants: every id of a text is below the model's vocabulary size; text
//! is never cut or padded, whatever the file sets; a stream gives whole characters only. It knows
//! no chat format ([`super::chat`] does): the prompt is the text the model sees. Without the
//! feature `text` there is no tokenizer, and opening one says so.

#[cfg(not(feature = "text"))]
mod absent;
#[cfg(feature = "text")]
mod hub;
mod stream;
#[cfg(feature = "text")]
mod tiktoken;

use std::ops::Range;

#[cfg(not(feature = "text"))]
pub use absent::Tokenizer;
#[cfg(feature = "text")]
pub use hub::Tokenizer;
pub use stream::TokenStream;

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Id of the token.
    pub id: u32,
    /// What it stands for. Many tokenizers leave out the spaces it begins with; of a character that
    /// several tokens make up, each has the whole.
    pub bytes: Range<usize>,
    /// Whether it is one of the tokenizer's special tokens, which decoding leaves out.
    pub is_special: bool,
}
