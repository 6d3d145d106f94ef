//! Tool calls within the text of an answer.
//!
//! - Input: the text after the reasoning. Output: text, and calls with streamed arguments.
//! - Invariants: a call starts when its name is known and its arguments are an object. Text before
//!   that point is returned as text if it is not a call.
//! - Not here: checks of arguments against the tool's schema.
//!
//! Each format is a file with its rules. A rule takes the text at its beginning, and returns the
//! [`ToolStep`] that follows.

mod deepseek;
mod forced;
mod hermes;
mod llama3;
mod mistral;

use std::fmt;
use std::str::FromStr;

use rand::SeedableRng;
use rand::distr::{Alphanumeric, SampleString};
use rand::rngs::StdRng;

pub(crate) use forced::literal;
pub use forced::{CallCount, ForcedTool};

use super::OutputParts;
use super::cursor::{Cursor, ObjectScanner, Scan, Stop, find};

/// A rule of a format.
type FormatRule = fn(&mut Cursor<'_>) -> Result<ToolStep, Stop>;

/// The step after the text that a rule took.
#[derive(Debug)]
enum ToolStep {
    /// The text of the answer.
    Text,
    /// Another rule.
    Next(FormatRule),
    /// The arguments of a call.
    Call(CallHead),
}

/// The beginning of a call.
#[derive(Debug)]
struct CallHead {
    name: String,
    /// The id in the text, if any.
    id: Option<String>,
    /// The arguments, if they come before the name or are quoted. Else they follow.
    arguments: Option<String>,
    /// The rule after the arguments.
    then: FormatRule,
}

/// The rules of a format.
#[derive(Debug)]
struct Format {
    /// Texts that may begin calls.
    markers: &'static [&'static str],
    /// Whether the first character of an answer may begin a call without a marker.
    is_bare: bool,
    /// The rule at a marker.
    open: FormatRule,
    /// Length of new ids, in characters, and the text before the random characters.
    id: (&'static str, usize),
}

/// The format of a model's tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolParserKind {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, as in Hermes and Qwen.
    Hermes,
    /// `{"name": …, "parameters": …}`, with or without `<|python_tag|>`, as in Llama 3.
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": …}]` and `[TOOL_CALLS]name[ARGS]{…}`.
    Mistral,
    /// `<｜tool▁calls▁begin｜>…` with arguments in a code block, as in `DeepSeek-V3` and R1.
    DeepSeekV3,
    /// `<｜tool▁calls▁begin｜>…` with plain arguments, as in `DeepSeek-V3.1`.
    DeepSeekV31,
}

impl ToolParserKind {
    /// All formats.
    pub const ALL: [Self; 5] =
        [Self::Hermes, Self::Llama3, Self::Mistral, Self::DeepSeekV3, Self::DeepSeekV31];

    /// Returns the format that a chat template uses.
    #[must_use]
    pub fn from_template(template: &str) -> Option<Self> {
        // Qwen3-Coder and GLM use the tag of Hermes around another syntax.
        let is_xml = template.contains("<function=") || template.contains("<arg_key>");
        let has = |text| template.contains(text);
        Self::ALL.into_iter().find(|kind| match kind {
            Self::Hermes => has("<tool_call>") && !is_xml,
            Self::Llama3 => {
                has(llama3::PYTHON_TAG) || (has("<|start_header_id|>") && has("\"parameters\": dictionary"))
            }
            Self::Mistral => has(mistral::CALLS),
            Self::DeepSeekV3 => has(deepseek::CALLS_BEGIN) && has(deepseek::BLOCK_BEGIN),
            Self::DeepSeekV31 => has(deepseek::CALLS_BEGIN),
        })
    }

    /// Returns the special texts of the format. In many tokenizers they are special tokens.
    #[must_use]
    pub const fn special_texts(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &[hermes::OPEN, hermes::CLOSE],
            Self::Llama3 => &[llama3::PYTHON_TAG],
            Self::Mistral => &[mistral::CALLS, mistral::CALL_ID, mistral::ARGUMENTS],
            Self::DeepSeekV3 | Self::DeepSeekV31 => &[
                deepseek::CALLS_BEGIN,
                deepseek::CALL_BEGIN,
                deepseek::SEPARATOR,
                deepseek::CALL_END,
                deepseek::CALLS_END,
            ],
        }
    }

    fn format(self) -> &'static Format {
        match self {
            Self::Hermes => &hermes::FORMAT,
            Self::Llama3 => &llama3::FORMAT,
            Self::Mistral => &mistral::FORMAT,
            // Answers of both are told apart by their text.
            Self::DeepSeekV3 | Self::DeepSeekV31 => &deepseek::FORMAT,
        }
    }
}

impl fmt::Display for ToolParserKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hermes => "hermes",
            Self::Llama3 => "llama3_json",
            Self::Mistral => "mistral",
            Self::DeepSeekV3 => "deepseek_v3",
            Self::DeepSeekV31 => "deepseek_v31",
        })
    }
}

/// An unknown name of a [`ToolParserKind`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown tool parser: expected hermes, llama3_json, mistral, deepseek_v3 or deepseek_v31, found `{0}`"
)]
pub struct UnknownToolParser(String);

impl FromStr for ToolParserKind {
    type Err = UnknownToolParser;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let kind = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        kind.ok_or_else(|| UnknownToolParser(name.to_owned()))
    }
}

/// Takes the next key of a call's object, or its end.
///
/// `then` is the rule after the arguments.
fn head(cursor: &mut Cursor<'_>, then: FormatRule) -> Result<ToolStep, Stop> {
    let (mut name, mut id, mut arguments) = (None, None, None);
    cursor.literal("{")?;
    loop {
        cursor.spaces()?;
        let mut key_cursor = *cursor;
        let key = key_cursor.string()?;
        key_cursor.spaces()?;
        key_cursor.literal(":")?;
        key_cursor.spaces()?;
        match key.as_str() {
            "name" if name.is_none() => name = Some(key_cursor.quoted_name()?),
            "id" if id.is_none() => id = Some(key_cursor.quoted_name()?),
            "type" => drop(key_cursor.quoted_name()?),
            "arguments" | "parameters" if arguments.is_none() => {
                if key_cursor.sees('"')? {
                    // Some models quote the object.
                    let text = key_cursor.string()?;
                    if serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text).is_err() {
                        return cursor.never();
                    }
                    arguments = Some(text);
                } else if !key_cursor.sees('{')? {
                    return cursor.never();
                } else if let Some(name) = name {
                    *cursor = key_cursor;
                    return Ok(ToolStep::Call(CallHead { name, id, arguments: None, then }));
                } else {
                    arguments = Some(key_cursor.object()?.to_owned());
                }
            }
            _ => return cursor.never(),
        }
        *cursor = key_cursor;
        cursor.spaces()?;
        if cursor.optional(",")? {
            continue;
        }
        if !cursor.sees('}')? {
            return cursor.never();
        }
        let Some(name) = name else { return cursor.never() };
        let arguments = Some(arguments.unwrap_or_else(|| "{}".to_owned()));
        return Ok(ToolStep::Call(CallHead { name, id, arguments, then }));
    }
}

/// Takes the rest of a call's object after its arguments.
fn end_of_object(cursor: &mut Cursor<'_>) -> Result<(), Stop> {
    loop {
        cursor.spaces()?;
        if cursor.optional("}")? {
            return Ok(());
        }
        let mut field = *cursor;
        field.literal(",")?;
        field.spaces()?;
        if !matches!(field.string()?.as_str(), "id" | "type") {
            return cursor.never();
        }
        field.spaces()?;
        field.literal(":")?;
        field.spaces()?;
        field.quoted_name()?;
        *cursor = field;
    }
}

#[derive(Debug)]
enum ToolState {
    /// In the text of the answer.
    Text,
    /// In the whitespace after a call.
    AfterCall,
    /// At a rule after arguments.
    Closing(FormatRule),
    /// At a rule that may begin the next call.
    Next(FormatRule),
    /// In the arguments of a call.
    Arguments { scanner: ObjectScanner, then: FormatRule },
}

/// A parser of tool calls.
#[derive(Debug)]
pub(super) struct ToolParser {
    format: &'static Format,
    state: ToolState,
    held: String,
    /// Whether no text and no call came before.
    is_first: bool,
    calls: usize,
    ids: StdRng,
}

impl ToolParser {
    pub(super) fn new(kind: ToolParserKind, id_seed: u64) -> Self {
        let ids = StdRng::seed_from_u64(id_seed);
        Self {
            format: kind.format(),
            state: ToolState::Text,
            held: String::new(),
            is_first: true,
            calls: 0,
            ids,
        }
    }

    /// Takes the next text.
    pub(super) fn push(&mut self, text: &str, parts: &mut OutputParts) {
        self.held.push_str(text);
        while self.advance(parts) {}
    }

    /// Returns the held back text.
    ///
    /// Text of a call that ended early is dropped if it belongs to the syntax after the arguments.
    pub(super) fn finish(self, parts: &mut OutputParts) {
        match self.state {
            ToolState::Text => parts.text(&self.held),
            ToolState::Next(_) => parts.text(self.held.trim()),
            ToolState::AfterCall | ToolState::Closing(_) | ToolState::Arguments { .. } => {}
        }
    }

    /// Takes one step. Returns whether another step may be possible.
    fn advance(&mut self, parts: &mut OutputParts) -> bool {
        match &mut self.state {
            ToolState::AfterCall => {
                self.held.drain(..self.held.len() - self.held.trim_start().len());
                let has_text = !self.held.is_empty();
                if has_text {
                    self.state = ToolState::Text;
                }
                has_text
            }
            ToolState::Text => self.advance_text(parts),
            &mut (ToolState::Closing(rule) | ToolState::Next(rule)) => {
                let mut cursor = Cursor::new(&self.held);
                match rule(&mut cursor) {
                    Ok(step) => {
                        let length = cursor.at();
                        self.take(length, step, parts);
                        true
                    }
                    Err(Stop::More) => false,
                    Err(Stop::Never { .. }) => {
                        self.state = ToolState::Text;
                        true
                    }
                }
            }
            ToolState::Arguments { scanner, then } => {
                let index = self.calls - 1;
                let (length, next) = match scanner.scan(&self.held) {
                    Scan::Inside => {
                        parts.arguments(index, &self.held);
                        self.held.clear();
                        return false;
                    }
                    Scan::End(length) => (length, ToolState::Closing(*then)),
                    Scan::Broken(length) => (length, ToolState::Text),
                };
                parts.arguments(index, &self.held[..length]);
                self.held.drain(..length);
                self.state = next;
                true
            }
        }
    }

    fn advance_text(&mut self, parts: &mut OutputParts) -> bool {
        let is_bare = self.is_first && self.format.is_bare && !self.held.trim_start().is_empty();
        let mut place = find(&self.held, self.format.markers);
        if is_bare {
            place.marker = self.held.len() - self.held.trim_start().len();
            place.start = 0;
        }
        if place.start > 0 {
            parts.text(&self.held[..place.start]);
            self.held.drain(..place.start);
            self.is_first = false;
            return true;
        }
        if place.marker == self.held.len() {
            return false;
        }
        let mut cursor = Cursor::new(&self.held[place.marker..]);
        match (self.format.open)(&mut cursor) {
            Ok(step) => {
                let length = place.marker + cursor.at();
                self.take(length, step, parts);
            }
            Err(Stop::More) => return false,
            Err(Stop::Never { at }) => {
                let first = self.held[place.marker..].chars().next().map_or(0, char::len_utf8);
                let length = place.marker + at.max(first);
                parts.text(&self.held[..length]);
                self.held.drain(..length);
            }
        }
        self.is_first = false;
        true
    }

    /// Takes the text of a rule, and continues with the rule's step.
    fn take(&mut self, length: usize, step: ToolStep, parts: &mut OutputParts) {
        self.held.drain(..length);
        self.state = match step {
            ToolStep::Text => ToolState::AfterCall,
            ToolStep::Next(rule) => ToolState::Next(rule),
            ToolStep::Call(CallHead { name, id, arguments, then }) => {
                let (prefix, length) = self.format.id;
                let id = id.unwrap_or_else(|| {
                    prefix.to_owned() + &Alphanumeric.sample_string(&mut self.ids, length)
                });
                parts.call(self.calls, id, name);
                self.calls += 1;
                match arguments {
                    Some(text) => {
                        parts.arguments(self.calls - 1, &text);
                        ToolState::Closing(then)
                    }
                    None => ToolState::Arguments { scanner: ObjectScanner::default(), then },
                }
            }
        };
    }
}
