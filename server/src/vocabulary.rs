//! The bytes of each token.
//!
//! - Input: the tokenizer files of a checkpoint folder.
//! - Output: a [`Vocabulary`].
//! - Invariants: the bytes of the tokens of a text add up to the text. Half of a character has its
//!   bytes, which a decoder of texts cannot return.
//! - Not here: encoding, and texts of several tokens
//!   ([`Tokenizer`](ascend_tp::generate::Tokenizer)).

use std::collections::HashMap;
use std::path::Path;

use ascend_tp::Diagnostics;
use ascend_tp::base::Diagnostic;
use serde::Deserialize;

const TOKENIZER_JSON: &str = "tokenizer.json";

/// Character that stands for a space in tokenizers of `SentencePiece`.
const SPACE: char = '\u{2581}';

/// The bytes of each token of a model.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    tokens: Vec<TokenBytes>,
}

#[derive(Clone, Debug, Default)]
struct TokenBytes {
    bytes: Vec<u8>,
    is_special: bool,
}

/// The part of `tokenizer.json` that says what tokens mean.
#[derive(Debug, Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    decoder: Option<Decoder>,
    pre_tokenizer: Option<Decoder>,
    model: TokenizerModel,
}

#[derive(Debug, Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    special: bool,
}

/// A decoder or a pre-tokenizer, perhaps of several parts.
#[derive(Debug, Deserialize)]
struct Decoder {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    decoders: Vec<Self>,
    #[serde(default)]
    pretokenizers: Vec<Self>,
}

#[derive(Debug, Deserialize)]
struct TokenizerModel {
    vocab: TokenList,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TokenList {
    /// Tokens with their ids.
    Ids(HashMap<String, u32>),
    /// Tokens in the order of their ids, with scores.
    Scores(Vec<(String, f64)>),
}

impl Decoder {
    fn is_byte_level(&self) -> bool {
        self.kind == "ByteLevel" || self.decoders.iter().chain(&self.pretokenizers).any(Self::is_byte_level)
    }
}

impl Vocabulary {
    /// Reads `tokenizer.json` in the folder `dir`. The model has `size` tokens.
    ///
    /// # Errors
    /// The file cannot be read, or is no tokenizer.
    pub fn open(dir: &Path, size: usize) -> Result<Self, Diagnostics> {
        let path = dir.join(TOKENIZER_JSON);
        let problem = |message: &str| Diagnostic::new(path.display().to_string(), message);
        let text = std::fs::read(&path).map_err(|error| problem("cannot be read").found(error))?;
        let file: TokenizerFile = serde_json::from_slice(&text)
            .map_err(|error| problem("is no tokenizer with a list of tokens").found(error))?;
        Ok(Self::of(file, size))
    }

    fn of(file: TokenizerFile, size: usize) -> Self {
        let is_byte_level = [&file.decoder, &file.pre_tokenizer].into_iter().flatten();
        let is_byte_level = is_byte_level.into_iter().any(Decoder::is_byte_level);
        let bytes_of: fn(&str) -> Vec<u8> = if is_byte_level { byte_level } else { sentence_piece };
        let mut tokens = vec![TokenBytes::default(); size];
        let mut set = |id: usize, bytes: Vec<u8>, is_special| {
            // The tokenizer may have tokens beyond the rows of the model.
            if let Some(token) = tokens.get_mut(id) {
                *token = TokenBytes { bytes, is_special };
            }
        };
        match file.model.vocab {
            TokenList::Ids(ids) => {
                ids.into_iter().for_each(|(token, id)| set(id as usize, bytes_of(&token), false));
            }
            TokenList::Scores(scores) => {
                let scores = scores.into_iter().enumerate();
                scores.for_each(|(id, (token, _))| set(id, bytes_of(&token), false));
            }
        }
        for AddedToken { id, content, special } in file.added_tokens {
            set(id as usize, content.into_bytes(), special);
        }
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
    use ascend_tp::generate::Tokenizer;

    use super::*;

    #[test]
    fn the_bytes_of_the_tokens_add_up_to_the_text() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/kjv-qwen2");
        let tokenizer = Tokenizer::open(&dir, 4096).unwrap();
        let vocabulary = Vocabulary::open(&dir, 4096).unwrap();
        let text = "In the beginning\n\t中 🦀 é \u{1F468}\u{200D}\u{1F469} ~";
        let ids = tokenizer.encode(text).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| vocabulary.bytes(*id)).copied().collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        let half = tokenizer.encode("中").unwrap()[0];
        assert_eq!(vocabulary.text(half), "bytes:\\xe4");
        assert_eq!((vocabulary.text(0).as_str(), vocabulary.is_special(0)), ("<|endoftext|>", true));
        assert_eq!((vocabulary.bytes(4096), vocabulary.len()), (&[][..], 4096));
    }

    #[test]
    fn tokens_of_sentence_piece_have_spaces_and_bytes() {
        let json = r#"{"added_tokens": [{"id": 3, "content": "<s>", "special": true}], "decoder": {"type": "Sequence",
            "decoders": [{"type": "ByteFallback"}]}, "model": {"vocab": [["▁the", -1.0], ["<0xE4>", -2.0], ["<0xZZ>", 0]]}}"#;
        let vocabulary = Vocabulary::of(serde_json::from_str(json).unwrap(), 4);
        let bytes: Vec<&[u8]> = (0..4).map(|id| vocabulary.bytes(id)).collect();
        assert_eq!(bytes, [&b" the"[..], &[0xE4], b"<0xZZ>", b"<s>"]);
    }
}
