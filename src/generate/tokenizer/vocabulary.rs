//! The bytes of each token.
//!
//! - Input: an opened tokenizer.
//! - Output: a [`Vocabulary`].
//! - Invariants: the bytes of the tokens of a text add up to the text. Half of a character has its
//!   bytes, which [`super::Tokenizer::decode`] cannot return.
//! - Not here: encoding, and texts of several tokens.

use serde_json::Value;

/// Character that stands for a space in tokenizers of `SentencePiece`.
const SPACE: char = '\u{2581}';

/// The bytes of each token of a model, from
/// [`Tokenizer::vocabulary`](super::Tokenizer::vocabulary).
#[derive(Clone, Debug)]
pub struct Vocabulary {
    tokens: Vec<TokenBytes>,
}

#[derive(Clone, Debug, Default)]
struct TokenBytes {
    bytes: Vec<u8>,
    is_special: bool,
}

impl Vocabulary {
    /// Reads the tokens of a tokenizer. The model has `size` rows, and may have more rows or fewer
    /// than the tokenizer has tokens.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer, size: usize) -> Self {
        let parts = serde_json::json!([tokenizer.get_decoder(), tokenizer.get_pre_tokenizer()]);
        let bytes_of: fn(&str) -> Vec<u8> = if is_byte_level(&parts) { byte_level } else { sentence_piece };
        let added = tokenizer.get_added_tokens_decoder();
        let token_of = |id: usize| {
            let id = u32::try_from(id).ok()?;
            Some(match added.get(&id) {
                Some(token) => {
                    TokenBytes { bytes: token.content.clone().into_bytes(), is_special: token.special }
                }
                None => TokenBytes { bytes: bytes_of(&tokenizer.id_to_token(id)?), is_special: false },
            })
        };
        let tokens = (0..size).map(|id| token_of(id).unwrap_or_default()).collect();
        Self { tokens }
    }

    /// Returns the number of tokens of the model.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns whether the model has no tokens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Returns the bytes of a token. Padding rows of the model have none.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.tokens.get(id as usize).map_or(&[], |token| &token.bytes)
    }

    /// Returns whether a token is special, so that texts do not contain it.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.tokens.get(id as usize).is_some_and(|token| token.is_special)
    }

    /// Returns the text of a token. A token that is no text, such as half of a character, is
    /// written as `bytes:\xe4\xb8`, as OpenAI does, so that different tokens have different texts.
    #[must_use]
    pub fn text(&self, id: u32) -> String {
        let bytes = self.bytes(id);
        std::str::from_utf8(bytes).map_or_else(
            |_| bytes.iter().fold("bytes:".to_owned(), |text, byte| format!("{text}\\x{byte:02x}")),
            str::to_owned,
        )
    }
}

/// Returns whether a part of a tokenizer writes bytes as characters.
fn is_byte_level(part: &Value) -> bool {
    match part {
        Value::Array(parts) => parts.iter().any(is_byte_level),
        Value::Object(fields) => {
            fields.get("type").is_some_and(|kind| kind == "ByteLevel") || fields.values().any(is_byte_level)
        }
        _ => false,
    }
}

/// Returns the byte that a character of a byte-level token stands for.
///
/// Printable characters stand for themselves. Other bytes are numbered from U+0100.
fn byte_of(c: char) -> Option<u8> {
    let is_own = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    match u32::from(c) {
        code @ ..=0xFF => u8::try_from(code).ok().filter(|byte| is_own(*byte)),
        code => (0..=u8::MAX).filter(|byte| !is_own(*byte)).nth(code as usize - 0x100),
    }
}

fn byte_level(token: &str) -> Vec<u8> {
    // A token with another character is written as it is.
    let bytes: Option<Vec<u8>> = token.chars().map(byte_of).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Returns the bytes of a token of `SentencePiece`: a text, or one byte as `<0xE4>`.
fn sentence_piece(token: &str) -> Vec<u8> {
    let byte = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => token.replace(SPACE, " ").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Tokenizer;

    #[test]
    fn the_bytes_of_the_tokens_add_up_to_the_text() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2");
        let tokenizer = Tokenizer::open(&folder, 4096).unwrap();
        let vocabulary = tokenizer.vocabulary();
        let text = "In the beginning\n\t中 🦀 é \u{1F468}\u{200D}\u{1F469} ~";
        let ids = tokenizer.encode(text).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| vocabulary.bytes(*id)).copied().collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert_eq!((vocabulary.bytes(4096), vocabulary.len()), (&[][..], 4096));
        assert_eq!(vocabulary.text(tokenizer.encode("中").unwrap()[0]), "bytes:\\xe4");
        assert_eq!((vocabulary.text(0).as_str(), vocabulary.is_special(0)), ("<|endoftext|>", true));
    }

    #[test]
    fn tokens_of_sentence_piece_have_spaces_and_bytes() {
        let bytes = ["▁the", "<0xE4>", "<0xZZ>"].map(super::sentence_piece);
        assert_eq!(bytes, [b" the".to_vec(), vec![0xE4], b"<0xZZ>".to_vec()]);
    }
}
