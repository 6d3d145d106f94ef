//! Texts and conversations as token ids, with the labels that are learned.
//!
//! Input: the folder of a tokenizer. Output: an [`Encoder`], which turns a text or a conversation
//! into a [`Document`].
//!
//! Invariants:
//! - A text ends with the end-of-text token, and all its tokens are learned.
//! - A conversation is the text that the chat template writes. The assistant's answers are learned,
//!   and the special token that ends each answer, because the model must learn to stop.
//! - `generate::chat` finds the answers. If it cannot find an answer, the conversation is refused.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::slice;

use serde_json::Value;

use super::record::{ASSISTANT, Turn, WrittenConversation, WrittenDocument};
use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::generate::chat::{AnswerSpan, Answers, ChatTemplate, Message};
use crate::generate::tokenizer::{Piece, Tokenizer};
use crate::weights::file;

const CONFIG: &str = "tokenizer_config.json";
/// Default token that ends a text.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Maximum size of a text. The tokenizer needs about 120 bytes of memory per byte of text.
const LARGEST_TEXT: Bytes = Bytes(64 << 20);

/// The token ids of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Token ids of the document, in the order of the text.
    pub ids: Vec<u32>,
    /// Flags of the ids: 1 if the label has weight zero, else 0. Empty if all labels count.
    pub ignore: Vec<u8>,
}

/// A tokenizer with an optional chat template.
#[derive(Debug)]
pub struct Encoder {
    tokenizer: Tokenizer,
    /// Template of conversations, or the reason for its absence. Texts need no template.
    template: Result<ChatTemplate, Diagnostics>,
    end_of_text: u32,
}

impl Encoder {
    /// Opens the tokenizer and chat template in the folder `dir`, for a model whose embedding has
    /// `vocabulary` rows.
    ///
    /// A text ends with the `eos_token` of `tokenizer_config.json`, or else with `<|endoftext|>`.
    ///
    /// # Errors
    /// The folder has no tokenizer, the tokenizer is malformed, or it has no such token.
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
                .expected(format!(
                    "an eos_token in {CONFIG} that the tokenizer has, or a token {END_OF_TEXT}"
                ))
                .found(name.map_or_else(|| "neither".to_owned(), |name| format!("eos_token {name}")))
        })?;
        Ok(Self { tokenizer, template: ChatTemplate::open(dir), end_of_text })
    }

    /// Returns the encoder with another chat template for conversations, if one is given.
    #[must_use]
    pub fn with_template(self, template: Option<ChatTemplate>) -> Self {
        match template {
            Some(template) => Self { template: Ok(template), ..self },
            None => self,
        }
    }

    /// Returns the tokenizer of the encoder.
    #[must_use]
    #[doc(hidden)]
    pub const fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the ids of a document.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, the template refuses the messages, or an
    /// answer cannot be found.
    pub(super) fn encode(&self, written: &WrittenDocument) -> Result<Document, Diagnostics> {
        match written {
            WrittenDocument::Text(text) => {
                check_size(text)?;
                Ok(Document { ids: self.ended(self.tokenizer.encode(text)?), ignore: Vec::new() })
            }
            WrittenDocument::Completion { prompt, completion } => self.completion(prompt, completion),
            WrittenDocument::Messages(written) => self.conversation(written),
        }
    }

    /// Appends the end-of-text token to the ids of a text.
    fn ended(&self, mut ids: Vec<u32>) -> Vec<u32> {
        // Some tokenizers append the token themselves.
        if ids.last() != Some(&self.end_of_text) {
            ids.push(self.end_of_text);
        }
        ids
    }

    /// Returns the ids of a prompt and its completion. A token with characters of both is learned.
    fn completion(&self, prompt: &str, completion: &str) -> Result<Document, Diagnostics> {
        let text = [prompt, completion].concat();
        check_size(&text)?;
        let pieces = self.tokenizer.pieces(&text)?;
        let ids = self.ended(self.tokenizer.encode(&text)?);
        let begins = |at: &usize| ids[*at..].iter().zip(&pieces).all(|(id, piece)| *id == piece.id);
        // Number of tokens that the tokenizer adds before the text.
        let added = (0..=ids.len() - pieces.len().min(ids.len())).find(begins).unwrap_or_default();
        let mut ignore = vec![1; added];
        let learned = prompt.len()..text.len();
        ignore.extend(unlearned(&pieces, slice::from_ref(&learned)));
        ignore.resize(ids.len(), 0);
        Ok(Document { ids, ignore })
    }

    fn conversation(&self, written: &WrittenConversation) -> Result<Document, Diagnostics> {
        let WrittenConversation { turns, tools } = written;
        let mut template = Cow::Borrowed(self.template.as_ref().map_err(Clone::clone)?);
        if let Some(tools) = tools {
            template.to_mut().set_variable("tools", tools)?;
        }
        let messages: Vec<Message> = turns.iter().map(|turn| turn.message.clone()).collect();
        let Answers { text, spans } = template.answers(&messages)?;
        check_size(&text)?;
        let spoken: Vec<&Turn> = turns.iter().filter(|turn| turn.message.role == ASSISTANT).collect();
        if spans.len() != spoken.len() && spoken.iter().any(|turn| !turn.is_learned) {
            return Err(Diagnostic::new(template.file(), "the weights of the messages cannot be kept")
                .expected(format!("an answer for each of {} messages of an assistant", spoken.len()))
                .found(spans.len())
                .into());
        }
        let pieces = self.tokenizer.pieces(&text)?;
        let is_learned = |at: usize| spoken.get(at).is_none_or(|turn| turn.is_learned);
        let learned = spans.into_iter().enumerate().filter(|(at, _)| is_learned(*at));
        let learned: Vec<_> = learned.map(|(_, answer)| with_its_end(answer, &text, &pieces)).collect();
        Ok(Document {
            ids: pieces.iter().map(|piece| piece.id).collect(),
            ignore: unlearned(&pieces, &learned),
        })
    }
}

/// Refuses a text that needs too much memory in the tokenizer.
fn check_size(text: &str) -> Result<(), Diagnostics> {
    if text.len() as u64 <= LARGEST_TEXT.0 {
        return Ok(());
    }
    Err(Diagnostic::new("text", "a document too large to be made into ids at once")
        .expected(format!("at most {LARGEST_TEXT}"))
        .found(Bytes(text.len() as u64))
        .help("say what separates the documents of the file, or split it")
        .into())
}

/// Returns 0 for each token that overlaps a range, else 1. The ranges must be in ascending order.
fn unlearned(pieces: &[Piece], ranges: &[Range<usize>]) -> Vec<u8> {
    let mut rest = ranges;
    let mut flags = Vec::with_capacity(pieces.len());
    for piece in pieces {
        while let [first, after @ ..] = rest
            && first.end <= piece.bytes.start
        {
            rest = after;
        }
        flags.push(u8::from(rest.first().is_none_or(|range| piece.bytes.end <= range.start)));
    }
    flags
}

/// Returns the name of the end-of-text token, if the folder defines one.
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
    let config: Value = serde_json::from_str(&text).map_err(|error| refused("is not JSON", &error))?;
    let token = &config["eos_token"];
    Ok(token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned))
}

/// Returns the range of an answer, extended by the special token after it. White space may come
/// between.
fn with_its_end(answer: AnswerSpan, text: &str, pieces: &[Piece]) -> Range<usize> {
    let AnswerSpan { bytes: answer, has_end } = answer;
    if has_end {
        return answer;
    }
    let behind = pieces.partition_point(|piece| piece.bytes.start < answer.end);
    let next = pieces[behind..]
        .iter()
        .find(|piece| piece.is_special || !text[piece.bytes.clone()].trim().is_empty());
    match next {
        Some(piece) if piece.is_special => answer.start..piece.bytes.end,
        _ => answer,
    }
}
