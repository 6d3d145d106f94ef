//! Texts and conversations → token ids, and which of them are learned.
//!
//! Input → output: the folder of a tokenizer → [`Encoder`]; a text or messages → a [`Document`].
//! Invariants: a text ends with the end-of-text token, and all of it counts; of a conversation,
//! which is written as the chat template says and ends as it says, what assistants say counts, and
//! the special token that ends each answer, because a model must learn to stop.
//!
//! `generate::chat` finds the answers in the text of a conversation; a template for which it cannot
//! is refused.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use super::reader::WrittenDocument;
use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::generate::chat::{AnswerSpan, Answers, ChatTemplate, Message};
use crate::generate::tokenizer::{Piece, Tokenizer};
use crate::weights::file;

const CONFIG: &str = "tokenizer_config.json";
/// The token that ends a text.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// A tokenizer takes about 120 bytes for a byte of a text while it works on it.
const LARGEST_TEXT: Bytes = Bytes(64 << 20);

/// The token ids of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// All its token ids, in the order of the text.
    pub ids: Vec<u32>,
    /// For each id 1 if it counts nothing as a label, else 0; empty if all count.
    pub ignore: Vec<u8>,
}

/// What makes token ids of texts.
#[derive(Debug)]
pub struct Encoder {
    tokenizer: Tokenizer,
    /// Conversations need one, texts do not.
    template: Result<ChatTemplate, Diagnostics>,
    end_of_text: u32,
}

impl Encoder {
    /// The tokenizer and chat template in the folder `dir`, for a model whose embedding has
    /// `vocabulary` rows.
    ///
    /// A text ends with the `eos_token` of `tokenizer_config.json`, or else with `<|endoftext|>`.
    ///
    /// # Errors
    /// There is no tokenizer, it does not fit the model, or it has no such token.
    pub fn open(dir: &Path, vocabulary: usize) -> Result<Self, Diagnostics> {
        let tokenizer = Tokenizer::open(dir, vocabulary)?;
        let name = end_of_text(dir)?;
        let end_of_text = tokenizer.id_of(name.as_deref().unwrap_or(END_OF_TEXT));
        let end_of_text = end_of_text.filter(|id| (*id as usize) < vocabulary).ok_or_else(|| {
            let place = match &name {
                Some(_) => dir.join(CONFIG).display().to_string(),
                None => dir.display().to_string(),
            };
            Diagnostic::new(place, "the tokenizer has no token to end a text with")
                .expected(format!("eos_token in {CONFIG} to be one of its tokens, or a token {END_OF_TEXT}"))
                .found(name.map_or_else(|| "neither".to_owned(), |name| format!("eos_token {name}")))
        })?;
        Ok(Self { tokenizer, template: ChatTemplate::open(dir), end_of_text })
    }

    /// The tokenizer that the ids are of.
    #[must_use]
    pub const fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The ids of a document.
    ///
    /// # Errors
    /// Parts of it have no token, or the template cannot write the messages so that the answers can
    /// be found.
    pub(super) fn encode(&self, written: &WrittenDocument) -> Result<Document, Diagnostics> {
        match written {
            WrittenDocument::Text(text) => {
                if text.len() as u64 > LARGEST_TEXT.0 {
                    return Err(Diagnostic::new("text", "a document too large to be made into ids at once")
                        .expected(format!("at most {LARGEST_TEXT}"))
                        .found(Bytes(text.len() as u64))
                        .help("say what separates the documents of the file, or split it")
                        .into());
                }
                let mut ids = self.tokenizer.encode(text)?;
                // Some tokenizers end texts themselves.
                if ids.last() != Some(&self.end_of_text) {
                    ids.push(self.end_of_text);
                }
                Ok(Document { ids, ignore: Vec::new() })
            }
            WrittenDocument::Messages(messages) => self.conversation(messages),
        }
    }

    fn conversation(&self, messages: &[Message]) -> Result<Document, Diagnostics> {
        let template = self.template.as_ref().map_err(Clone::clone)?;
        let Answers { text, spans } = template.answers(messages)?;
        let pieces = self.tokenizer.pieces(&text)?;
        let answers: Vec<_> = spans.into_iter().map(|answer| with_its_end(answer, &text, &pieces)).collect();
        let counts = |piece: &Piece| {
            answers.iter().any(|answer| piece.bytes.start < answer.end && answer.start < piece.bytes.end)
        };
        let ignore = pieces.iter().map(|piece| u8::from(!counts(piece))).collect();
        Ok(Document { ids: pieces.iter().map(|piece| piece.id).collect(), ignore })
    }
}

/// The name of the token that ends texts, if the folder gives one.
fn end_of_text(dir: &Path) -> Result<Option<String>, Diagnostics> {
    let path = dir.join(CONFIG);
    let refused = |message, found: &dyn std::fmt::Display| {
        Diagnostic::new(path.display().to_string(), message).found(found)
    };
    let text = match file::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused("cannot be read", &error).into()),
    };
    let config: Value = serde_json::from_str(&text).map_err(|error| refused("is no JSON", &error))?;
    let token = &config["eos_token"];
    Ok(token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned))
}

/// The answer with the special token behind it, which spaces may come before.
fn with_its_end(answer: AnswerSpan, text: &str, pieces: &[Piece]) -> Range<usize> {
    let AnswerSpan { bytes: answer, has_end } = answer;
    if has_end {
        return answer;
    }
    let mut behind = pieces.iter().skip_while(|piece| piece.bytes.start < answer.end);
    let next = behind.find(|piece| piece.is_special || !text[piece.bytes.clone()].trim().is_empty());
    match next {
        Some(piece) if piece.is_special => answer.start..piece.bytes.end,
        _ => answer,
    }
}
