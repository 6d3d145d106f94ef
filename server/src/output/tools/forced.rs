//! Grammars of answers that are tool calls.
//!
//! The text of a forced answer is what the model's chat template writes for earlier calls, so that
//! the model sees its usual format.

use std::fmt::Write;

use serde_json::Value;

use super::{ToolParserKind, deepseek, hermes, mistral};

/// A tool that an answer may call.
#[derive(Clone, Copy, Debug)]
pub struct ForcedTool<'a> {
    /// Name of the function: letters, digits, `_` and `-`.
    pub name: &'a str,
    /// JSON schema of the arguments.
    pub parameters: &'a Value,
}

/// The number of calls in a forced answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallCount {
    /// One call.
    One,
    /// One or more calls. Llama 3 always makes one.
    Many,
}

/// The texts around the names and arguments of calls.
struct Outer {
    begin: String,
    before_name: String,
    /// Whether the name is a JSON string.
    is_quoted: bool,
    before_arguments: String,
    after_arguments: String,
    /// Text between calls. Without it, an answer has one call.
    between: Option<String>,
    end: String,
}

impl ToolParserKind {
    /// Returns the Lark grammar of an answer of calls. `schemas` are the schemas of the arguments,
    /// in the order of `names`.
    ///
    /// `special` returns the id of a text that is a special token. Other texts are spelled.
    pub(crate) fn forced_grammar(
        self,
        names: &[&str],
        schemas: &[Value],
        count: CallCount,
        special: &dyn Fn(&str) -> Option<u32>,
    ) -> String {
        let outer = self.outer(special);
        let literal = |text: &str| literal(self.special_texts(), special, text);
        let mut call = String::new();
        let mut rules = String::new();
        for (index, (name, schema)) in names.iter().zip(schemas).enumerate() {
            let separator = if index == 0 { "" } else { " | " };
            let quoted = Value::from(*name).to_string();
            let name = if outer.is_quoted { &quoted } else { *name };
            let head = [&outer.before_name, name, &outer.before_arguments].concat();
            let _ = write!(
                call,
                "{separator}{} arguments{index} {}",
                literal(&head),
                literal(&outer.after_arguments)
            );
            let _ = writeln!(rules, "arguments{index}: %json {schema}");
        }
        let (begin, end) = (literal(&outer.begin), literal(&outer.end));
        let more = match (count, &outer.between) {
            (CallCount::Many, Some(between)) => format!("({} call)*", literal(between)),
            _ => String::new(),
        };
        format!("start: {begin} call {more} {end}\ncall: {call}\n{rules}")
    }

    fn outer(self, special: &dyn Fn(&str) -> Option<u32>) -> Outer {
        let json = |arguments: &str| Outer {
            begin: String::new(),
            before_name: "{\"name\": ".to_owned(),
            is_quoted: true,
            before_arguments: format!(", \"{arguments}\": "),
            after_arguments: "}".to_owned(),
            between: None,
            end: String::new(),
        };
        let deepseek = |before: &str, between: &str, after: &str| Outer {
            begin: deepseek::CALLS_BEGIN.to_owned(),
            before_name: [deepseek::CALL_BEGIN, before].concat(),
            is_quoted: false,
            before_arguments: between.to_owned(),
            after_arguments: [after, deepseek::CALL_END].concat(),
            between: Some(String::new()),
            end: deepseek::CALLS_END.to_owned(),
        };
        match self {
            Self::Hermes => Outer {
                begin: format!("{}\n", hermes::OPEN),
                between: Some(format!("\n{}\n{}\n", hermes::CLOSE, hermes::OPEN)),
                end: format!("\n{}", hermes::CLOSE),
                ..json("arguments")
            },
            Self::Llama3 => json("parameters"),
            // Only tokenizers of the newer format have the token.
            Self::Mistral if special(mistral::ARGUMENTS).is_some() => Outer {
                before_name: mistral::CALLS.to_owned(),
                is_quoted: false,
                before_arguments: mistral::ARGUMENTS.to_owned(),
                after_arguments: String::new(),
                between: Some(String::new()),
                ..json("arguments")
            },
            Self::Mistral => Outer {
                begin: format!("{}[", mistral::CALLS),
                between: Some(", ".to_owned()),
                end: "]".to_owned(),
                ..json("arguments")
            },
            Self::DeepSeekV3 => {
                let function = ["function", deepseek::SEPARATOR].concat();
                let begin = format!("\n{}\n", deepseek::BLOCK_BEGIN);
                let end = format!("\n{}", deepseek::BLOCK_END);
                Outer { between: Some("\n".to_owned()), ..deepseek(&function, &begin, &end) }
            }
            Self::DeepSeekV31 => deepseek("", deepseek::SEPARATOR, ""),
        }
    }
}

/// Returns a text in Lark, with special tokens by their ids.
pub(crate) fn literal(texts: &[&str], special: &dyn Fn(&str) -> Option<u32>, text: &str) -> String {
    let found = texts.iter().filter_map(|&token| Some((text.find(token)?, token, special(token)?)));
    match found.min_by_key(|(at, ..)| *at) {
        Some((at, token, id)) => {
            let rest = literal(texts, special, &text[at + token.len()..]);
            format!("{} <[{id}]> {rest}", literal(&[], special, &text[..at]))
        }
        None if text.is_empty() => String::new(),
        None => Value::from(text).to_string(),
    }
}
