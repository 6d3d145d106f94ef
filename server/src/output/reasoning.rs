//! Reasoning before an answer, between two tags.
//!
//! The opening tag counts only at the beginning of the answer, so that an answer may write about
//! tags.

use std::fmt;
use std::str::FromStr;

use super::OutputParts;
use super::cursor::{Cursor, Stop, find};

/// The format of a model's reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReasoningParserKind {
    /// `<think>…</think>`, as in Qwen3 and `DeepSeek-R1`.
    Think,
    /// `[THINK]…[/THINK]`, as in Magistral.
    Magistral,
}

impl ReasoningParserKind {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Think, Self::Magistral];

    /// Returns the tags around the reasoning.
    #[must_use]
    pub const fn tags(self) -> [&'static str; 2] {
        match self {
            Self::Think => ["<think>", "</think>"],
            Self::Magistral => ["[THINK]", "[/THINK]"],
        }
    }

    /// Returns the format that a chat template uses.
    #[must_use]
    pub fn from_template(template: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| template.contains(kind.tags()[1]))
    }

    /// Returns whether a rendered prompt ends inside the reasoning.
    #[must_use]
    pub fn starts_inside(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.tags()[0])
    }
}

impl fmt::Display for ReasoningParserKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Think => "think",
            Self::Magistral => "magistral",
        })
    }
}

/// An unknown name of a [`ReasoningParserKind`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown reasoning parser: expected think, qwen3, deepseek_r1 or magistral, found `{0}`")]
pub struct UnknownReasoningParser(String);

impl FromStr for ReasoningParserKind {
    type Err = UnknownReasoningParser;

    /// Takes the name of the format, or the name of a model that uses it.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "think" | "qwen3" | "deepseek_r1" => Ok(Self::Think),
            "magistral" => Ok(Self::Magistral),
            _ => Err(UnknownReasoningParser(name.to_owned())),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReasoningPlace {
    /// Before the opening tag. The prompt may already have it.
    Start { starts_inside: bool },
    /// In the whitespace after the opening tag.
    Opened,
    /// In the reasoning.
    Inside,
    /// In the whitespace after the closing tag.
    Closed,
    /// In the text of the answer.
    Answer,
}

/// A parser of reasoning.
#[derive(Debug)]
pub(super) struct ReasoningParser {
    kind: ReasoningParserKind,
    place: ReasoningPlace,
    held: String,
}

impl ReasoningParser {
    pub(super) fn new(kind: ReasoningParserKind, starts_inside: bool) -> Self {
        Self { kind, place: ReasoningPlace::Start { starts_inside }, held: String::new() }
    }

    /// Takes the next text. Returns the text of the answer.
    pub(super) fn push(&mut self, text: &str, parts: &mut OutputParts) -> String {
        self.held.push_str(text);
        let [open, close] = self.kind.tags();
        loop {
            match self.place {
                ReasoningPlace::Start { starts_inside } => {
                    let mut cursor = Cursor::new(&self.held);
                    match cursor.spaces().and_then(|()| cursor.literal(open)) {
                        Ok(()) => {
                            self.held.drain(..cursor.at());
                            self.place = ReasoningPlace::Opened;
                        }
                        Err(Stop::More) => return String::new(),
                        Err(Stop::Never { .. }) if starts_inside => self.place = ReasoningPlace::Opened,
                        Err(Stop::Never { .. }) => self.place = ReasoningPlace::Answer,
                    }
                }
                ReasoningPlace::Opened | ReasoningPlace::Closed => {
                    self.held.drain(..self.held.len() - self.held.trim_start().len());
                    if self.held.is_empty() {
                        return String::new();
                    }
                    let opened = self.place == ReasoningPlace::Opened;
                    self.place = if opened { ReasoningPlace::Inside } else { ReasoningPlace::Answer };
                }
                ReasoningPlace::Inside => {
                    let place = find(&self.held, &[close]);
                    parts.reasoning(&self.held[..place.start]);
                    if !self.held[place.marker..].starts_with(close) {
                        self.held.drain(..place.start);
                        return String::new();
                    }
                    self.held.drain(..place.marker + close.len());
                    self.place = ReasoningPlace::Closed;
                }
                ReasoningPlace::Answer => return std::mem::take(&mut self.held),
            }
        }
    }

    /// Returns the held back text of the answer.
    pub(super) fn finish(self, parts: &mut OutputParts) -> String {
        match self.place {
            ReasoningPlace::Start { starts_inside: false } | ReasoningPlace::Answer => self.held,
            ReasoningPlace::Start { starts_inside: true } | ReasoningPlace::Inside => {
                parts.reasoning(&self.held);
                String::new()
            }
            ReasoningPlace::Opened | ReasoningPlace::Closed => String::new(),
        }
    }
}
