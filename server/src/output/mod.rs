//! Streaming parsers of answers: reasoning, text and tool calls.
//!
//! - Input: the text of an answer, in pieces of any size.
//! - Output: [`AnswerPart`]s. Tool calls follow as soon as their name is known, and their arguments
//!   follow in fragments.
//! - Invariants: the parts do not depend on how the text is split into pieces. Text that is not a
//!   complete marker or call is returned as text. Whitespace next to a marker belongs to the
//!   marker.
//! - Not here: decoding of ids, and the grammar that forces a call ([`crate::grammar`]).

mod cursor;
mod reasoning;
mod tools;

use reasoning::ReasoningParser;
pub use reasoning::{ReasoningParserKind, UnknownReasoningParser};
use tools::ToolParser;
pub(crate) use tools::literal;
pub use tools::{CallCount, ForcedTool, ToolParserKind, UnknownToolParser};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// Text of the answer.
    Text(String),
    /// Text of the model's reasoning.
    Reasoning(String),
    /// The beginning of a tool call.
    ToolCallStart {
        /// Position of the call in the answer, from 0.
        index: usize,
        /// Id of the call.
        id: String,
        /// Name of the called function.
        name: String,
    },
    /// The next fragment of a call's arguments.
    ToolCallArguments {
        /// Position of the call in the answer, from 0.
        index: usize,
        /// Fragment of the JSON text. All fragments of a call form the text of one object.
        fragment: String,
    },
}

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerFormat {
    /// Format of the reasoning. Without it, reasoning is text.
    pub reasoning: Option<ReasoningParserKind>,
    /// Whether the prompt ends with the tag that opens the reasoning.
    pub starts_inside: bool,
    /// Format of tool calls. Without it, calls are text.
    pub tools: Option<ToolParserKind>,
    /// Seed of the ids of tool calls.
    pub id_seed: u64,
}

/// A parser of one answer.
///
/// ```
/// use ascend_tp_server::output::{AnswerFormat, AnswerParser, AnswerPart, ReasoningParserKind};
///
/// let reasoning = Some(ReasoningParserKind::Think);
/// let mut parser = AnswerParser::new(AnswerFormat { reasoning, ..AnswerFormat::default() });
/// let mut parts = parser.push("<think>short</thi");
/// parts.extend(parser.push("nk>\nYes."));
/// parts.extend(parser.finish());
/// let expected = [AnswerPart::Reasoning("short".to_owned()), AnswerPart::Text("Yes.".to_owned())];
/// assert_eq!(parts, expected);
/// ```
#[derive(Debug)]
pub struct AnswerParser {
    reasoning: Option<ReasoningParser>,
    tools: Option<ToolParser>,
}

impl AnswerParser {
    /// Creates the parser of one answer.
    #[must_use]
    pub fn new(format: AnswerFormat) -> Self {
        Self {
            reasoning: format.reasoning.map(|kind| ReasoningParser::new(kind, format.starts_inside)),
            tools: format.tools.map(|kind| ToolParser::new(kind, format.id_seed)),
        }
    }

    /// Takes the next text of the answer. Returns the parts that it completes.
    pub fn push(&mut self, text: &str) -> Vec<AnswerPart> {
        let mut parts = OutputParts::default();
        let text = match &mut self.reasoning {
            Some(parser) => parser.push(text, &mut parts),
            None => text.to_owned(),
        };
        match &mut self.tools {
            Some(parser) => parser.push(&text, &mut parts),
            None => parts.text(&text),
        }
        parts.0
    }

    /// Returns the parts that were held back.
    #[must_use]
    pub fn finish(self) -> Vec<AnswerPart> {
        let mut parts = OutputParts::default();
        let text = self.reasoning.map(|parser| parser.finish(&mut parts)).unwrap_or_default();
        match self.tools {
            Some(mut parser) => {
                parser.push(&text, &mut parts);
                parser.finish(&mut parts);
            }
            None => parts.text(&text),
        }
        parts.0
    }
}

/// The parts of a piece. Adjacent parts of the same kind are one part.
#[derive(Debug, Default)]
struct OutputParts(Vec<AnswerPart>);

impl OutputParts {
    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(AnswerPart::Text(last)) => last.push_str(text),
            _ => self.0.push(AnswerPart::Text(text.to_owned())),
        }
    }

    fn reasoning(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push(AnswerPart::Reasoning(text.to_owned()));
        }
    }

    fn call(&mut self, index: usize, id: String, name: String) {
        self.0.push(AnswerPart::ToolCallStart { index, id, name });
    }

    fn arguments(&mut self, index: usize, fragment: &str) {
        if !fragment.is_empty() {
            self.0.push(AnswerPart::ToolCallArguments { index, fragment: fragment.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests;
