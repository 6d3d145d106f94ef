//! Texts and conversations → token ids, and which of them are learned.
//!
//! Input → output: the folder of a tokenizer → [`Encoder`]; a text or messages → a [`Document`]. Invariants: a text ends with the
//! end-of-text token, and all of it counts; of a conversation, which is written as the chat template says and ends as it says,
//! what assistants say counts, and the special token that ends each answer, because a model must learn to stop.
//!
//! Where an answer begins is where the template's prompt for one ends; where it ends is found by a mark behind its words. Both are
//! checked against the conversation as a whole, and a template for which this does not hold is refused, never guessed at.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use super::reader::WrittenDocument;
use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::generate::chat::{ChatTemplate, Message};
use crate::generate::tokenizer::{Piece, Tokenizer};
use crate::weights::file;

const CONFIG: &str = "tokenizer_config.json";
/// The token that ends a text.
pub const END_OF_TEXT: &str = "<|endoftext|>";

const ASSISTANT: &str = "assistant";

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
    /// The tokenizer and chat template in the folder `dir`, for a model whose embedding has `vocabulary` rows.
    ///
    /// A text ends with the `eos_token` of `tokenizer_config.json`, or else with `<|endoftext|>`.
    ///
    /// # Errors
    /// There is no tokenizer, it does not fit the model, or it has no such token.
    pub fn open(dir: &Path, vocabulary: usize) -> Result<Self, Diagnostics> {
        let tokenizer = Tokenizer::open(dir, vocabulary)?;
        let name = end_of_text(dir)?;
        let end_of_text = tokenizer.id_of(name.as_deref().unwrap_or(END_OF_TEXT)).ok_or_else(|| {
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
    /// Parts of it have no token, or the template cannot write the messages so that the answers can be found.
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
        let text = template.transcript(messages)?;
        let answers = answers(template, messages, &text)?;
        let pieces = self.tokenizer.pieces(&text)?;
        let answers: Vec<_> = answers.into_iter().map(|answer| with_its_end(answer, &text, &pieces)).collect();
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
    let refused =
        |message, found: &dyn std::fmt::Display| Diagnostic::new(path.display().to_string(), message).found(found);
    let text = match file::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused("cannot be read", &error).into()),
    };
    let config: Value = serde_json::from_str(&text).map_err(|error| refused("is no JSON", &error))?;
    let token = &config["eos_token"];
    Ok(token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned))
}

/// Where each answer's words are in `text`, which is all messages as the template writes them.
fn answers(template: &ChatTemplate, messages: &[Message], text: &str) -> Result<Vec<Range<usize>>, Diagnostics> {
    let refused = |message: &str| Diagnostic::new(template.file(), message);
    let spoken: Vec<usize> = (0..messages.len()).filter(|at| messages[*at].role == ASSISTANT).collect();
    if spoken.is_empty() {
        return Err(refused("there is nothing to learn from messages without one of an assistant").into());
    }
    // A mark is a character that Unicode leaves to programs, and no message has.
    let is_free =
        |mark: &char| !text.contains(*mark) && messages.iter().all(|message| !message.content.contains(*mark));
    let Some(mark) = ('\u{E000}'..='\u{F8FF}').find(is_free) else {
        return Err(refused("the messages have every character of Unicode's private use").into());
    };
    let mut marked = messages.to_vec();
    for at in &spoken {
        // Many templates cut the white space off.
        let words = marked[*at].content.trim_end().len();
        marked[*at].content.insert(words, mark);
    }
    let marked = template.transcript(&marked)?;
    let parts: Vec<&str> = marked.split(mark).collect();
    if parts.len() != spoken.len() + 1 || parts.concat() != text {
        return Err(refused(
            "the template writes an answer otherwise where a character follows it, so its end cannot be told",
        )
        .found(format!("{text:?}, and with the mark {mark:?} {marked:?}"))
        .into());
    }
    let mut answers = Vec::with_capacity(spoken.len());
    let mut end = 0;
    for (at, part) in spoken.into_iter().zip(parts) {
        end += part.len();
        let prompt = template.render(&messages[..at])?;
        if !text.starts_with(&prompt) || prompt.len() > end {
            return Err(refused(
                "the template begins an answer otherwise than it asks for one, so its start cannot be told",
            )
            .expected(format!("a conversation that begins with {prompt:?}"))
            .found(format!("{text:?}"))
            .into());
        }
        answers.push(prompt.len()..end);
    }
    Ok(answers)
}

/// The answer with the special token behind it, which spaces may come before.
fn with_its_end(answer: Range<usize>, text: &str, pieces: &[Piece]) -> Range<usize> {
    let mut behind = pieces.iter().skip_while(|piece| piece.bytes.start < answer.end);
    let next = behind.find(|piece| piece.is_special || !text[piece.bytes.clone()].trim().is_empty());
    match next {
        Some(piece) if piece.is_special => answer.start..piece.bytes.end,
        _ => answer,
    }
}
