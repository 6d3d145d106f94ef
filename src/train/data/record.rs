//! Documents of JSON lines.
//!
//! Input: a line. Output: a [`WrittenDocument`], or the problem of the line. Invariants: a key that
//! changes the tokens or the labels is read or refused, never dropped. A line with two kinds of
//! document is refused.
//!
//! | keys of a line | format | learned |
//! |---|---|---|
//! | `text` | plain text | all |
//! | `messages`, optional `tools` | OpenAI's chat format | messages of assistants whose `weight` is not 0 |
//! | `conversations`, optional `system`, `tools` | ShareGPT | as for `messages` |
//! | `instruction`, `output`, optional `input`, `system`, `history` | Alpaca | `output` and the answers of `history` |
//! | `prompt`, `completion` | two texts, or two lists of messages | `completion` |
//!
//! Null is the same as an absent key. Other keys of a line are not read.
//!
//! # Source
//! OpenAI's fine-tuning reference for `messages` and `weight`; LLaMA-Factory for ShareGPT and
//! Alpaca; TRL for prompt and completion. Text parts of a content are joined by newlines, as in
//! vLLM.

use super::json::{Json, Member};
use crate::generate::chat::{Message, MessageField};

/// Kinds of lines, for messages.
pub(super) const LINE: &str = r#"{"text": "…"}, {"messages": [{"role": "…", "content": "…"}, …]}, {"conversations": [{"from": "…", "value": "…"}, …]}, {"instruction": "…", "output": "…"} or {"prompt": "…", "completion": "…"}"#;

const SYSTEM: &str = "system";
const USER: &str = "user";
/// Role of the messages that are learned.
pub(super) const ASSISTANT: &str = "assistant";
const TOOL: &str = "tool";

/// Speakers of ShareGPT, and the roles that templates know.
const SPEAKERS: [(&str, &str); 12] = [
    ("human", USER),
    ("user", USER),
    ("gpt", ASSISTANT),
    ("chatgpt", ASSISTANT),
    ("assistant", ASSISTANT),
    ("model", ASSISTANT),
    ("function_call", ASSISTANT),
    ("system", SYSTEM),
    ("tool", TOOL),
    ("observation", TOOL),
    ("function_response", TOOL),
    ("function", TOOL),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WrittenDocument {
    /// A text that is learned as a whole.
    Text(String),
    /// A text with a prompt that is not learned.
    Completion {
        /// First part of the text.
        prompt: String,
        /// Rest of the text, which is learned.
        completion: String,
    },
    /// A conversation with messages of an assistant, which are learned.
    Messages(WrittenConversation),
}

/// The messages of a conversation, and the tools that the assistant may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenConversation {
    pub(super) turns: Vec<Turn>,
    /// JSON list of tools for the template, if the line has tools.
    pub(super) tools: Option<String>,
}

impl WrittenConversation {
    pub(super) const fn new(turns: Vec<Turn>) -> Self {
        Self { turns, tools: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Message for the chat template.
    pub(super) message: Message,
    /// Whether the message is learned if its role is the assistant.
    pub(super) is_learned: bool,
}

impl Turn {
    /// Returns a message without further keys. It is learned if its role is the assistant.
    pub(super) fn new(role: &str, content: impl Into<String>) -> Self {
        Self { message: Message::new(role, content), is_learned: true }
    }
}

/// Returns the document of a line without the surrounding white space; `None` for an empty line.
pub(super) fn parse(line: &[u8]) -> Result<Option<WrittenDocument>, String> {
    if line.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("bytes that are not UTF-8 at column {}", error.valid_up_to() + 1))?;
    if !text.starts_with('{') {
        return Err("no JSON object".to_owned());
    }
    let parsed: Json = serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        // The message ends with a line number, which is always 1 here.
        let what = text.rsplit_once(" at line").map_or(text.as_str(), |(what, _)| what);
        format!("{what} at column {}", error.column())
    })?;
    let mut record = Record::of("", parsed)?;
    let has =
        |key: &&str| record.members.iter().any(|member| member.name == *key && member.value != Json::Null);
    let kinds: Vec<&str> = ["text", "messages", "conversations"].into_iter().filter(has).collect();
    let pairs: Vec<&str> = ["instruction", "prompt"].into_iter().filter(has).collect();
    let document = match (kinds.as_slice(), pairs.as_slice()) {
        (["text"], _) => WrittenDocument::Text(record.text("text")?),
        (["messages"], _) => {
            let turns = turns("messages", record.take("messages")?)?;
            WrittenDocument::Messages(WrittenConversation { turns, tools: tools(&mut record)? })
        }
        (["conversations"], _) => {
            let turns = conversations(&mut record)?;
            WrittenDocument::Messages(WrittenConversation { turns, tools: tools(&mut record)? })
        }
        ([first, second, ..], _) | ([], [first, second]) => {
            return Err(format!("both `{first}` and `{second}`"));
        }
        (_, ["instruction"]) => alpaca(&mut record)?,
        (_, ["prompt"]) => completion(&mut record)?,
        _ => return Err("neither `text` nor `messages`, nor another of these".to_owned()),
    };
    Ok(Some(document))
}

/// An object for a reader that takes the keys one by one.
struct Record {
    /// Place of the object in the line, for messages; empty for the line itself.
    place: String,
    members: Vec<Member>,
}

impl Record {
    fn of(place: impl Into<String>, json: Json) -> Result<Self, String> {
        let place = place.into();
        match json {
            Json::Object(members) => Ok(Self { place, members }),
            other => Err(format!("{place}: expected an object, found {}", other.shown())),
        }
    }

    fn refused(&self, what: &str) -> String {
        if self.place.is_empty() { what.to_owned() } else { format!("{}: {what}", self.place) }
    }

    /// Removes a key from the object and returns its value; null if the key is absent.
    fn take(&mut self, key: &str) -> Result<Json, String> {
        let found = self.members.extract_if(.., |member| member.name == key).map(|member| member.value);
        let mut found: Vec<Json> = found.collect();
        match found.len() {
            0 | 1 => Ok(found.pop().unwrap_or(Json::Null)),
            _ => Err(self.refused(&format!("duplicate key `{key}`"))),
        }
    }

    /// Takes a text that may be absent.
    fn optional_text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.take(key)? {
            Json::Null => Ok(None),
            Json::Text(text) => Ok(Some(text)),
            other => Err(self.refused(&format!("`{key}`: expected a string, found {}", other.shown()))),
        }
    }

    /// Takes a text, which must exist.
    fn text(&mut self, key: &str) -> Result<String, String> {
        self.optional_text(key)?.ok_or_else(|| self.refused(&format!("missing key `{key}`")))
    }

    /// Takes `weight`, which is 0 for a message that is not learned.
    fn is_learned(&mut self) -> Result<bool, String> {
        match self.take("weight")? {
            Json::Null => Ok(true),
            Json::Plain(number) if ["1", "1.0"].contains(&number.as_str()) => Ok(true),
            Json::Plain(number) if ["0", "0.0"].contains(&number.as_str()) => Ok(false),
            other => Err(self.refused(&format!("`weight`: expected 0 or 1, found {}", other.shown()))),
        }
    }
}

fn list(place: &str, json: Json) -> Result<Vec<Json>, String> {
    match json {
        Json::List(items) => Ok(items),
        other => Err(format!("`{place}`: expected a list, found {}", other.shown())),
    }
}

fn turns(place: &str, json: Json) -> Result<Vec<Turn>, String> {
    list(place, json)?
        .into_iter()
        .enumerate()
        .map(|(at, json)| turn(Record::of(format!("{place}: message {}", at + 1), json)?))
        .collect()
}

fn turn(mut record: Record) -> Result<Turn, String> {
    let role = record.text("role")?;
    let is_learned = record.is_learned()?;
    let content = match record.take("content")? {
        Json::Null => None,
        Json::Text(text) => Some(text),
        Json::List(parts) => Some(joined_parts(&record, parts)?),
        other => {
            let expected = "expected a string, a list of parts or null";
            return Err(record.refused(&format!("`content`: {expected}, found {}", other.shown())));
        }
    };
    let given = |member: &Member| !matches!(&member.value, Json::Null);
    let calls =
        |member: &Member| ["tool_calls", "function_call"].contains(&member.name.as_str()) && given(member);
    if content.is_none() && !record.members.iter().any(calls) {
        return Err(record.refused("missing key `content`, and no `tool_calls` instead"));
    }
    let null =
        content.is_none().then(|| MessageField { name: "content".to_owned(), json: "null".to_owned() });
    let fields = record.members.into_iter().filter(given);
    let fields = fields.map(|member| MessageField { json: member.value.to_string(), name: member.name });
    let message = Message {
        role,
        content: content.unwrap_or_default(),
        fields: null.into_iter().chain(fields).collect(),
    };
    Ok(Turn { message, is_learned })
}

/// Returns the texts of a content's parts, joined by newlines.
fn joined_parts(record: &Record, parts: Vec<Json>) -> Result<String, String> {
    let mut texts = Vec::with_capacity(parts.len());
    for (at, part) in parts.into_iter().enumerate() {
        let place = record.refused(&format!("part {}", at + 1));
        let mut part = Record::of(place.as_str(), part)?;
        match part.text("type")?.as_str() {
            "text" => texts.push(part.text("text")?),
            other => return Err(format!("{place}: expected a part of type `text`, found `{other}`")),
        }
    }
    Ok(texts.join("\n"))
}

/// Takes the `tools` of a line: a list, or the JSON text of a list, as in ShareGPT files.
fn tools(record: &mut Record) -> Result<Option<String>, String> {
    let tools = match record.take("tools")? {
        Json::Text(text) if text.trim().is_empty() => Json::Null,
        Json::Text(text) => {
            serde_json::from_str(&text).map_err(|error| format!("`tools`: not JSON: {error}"))?
        }
        tools => tools,
    };
    match tools {
        Json::Null => Ok(None),
        Json::List(items) if items.is_empty() => Ok(None),
        Json::List(_) => Ok(Some(tools.to_string())),
        other => Err(format!("`tools`: expected a list, found {}", other.shown())),
    }
}

/// Returns the turns of a ShareGPT line.
fn conversations(record: &mut Record) -> Result<Vec<Turn>, String> {
    const KEY: &str = "conversations";
    let mut turns: Vec<Turn> = system(record)?.into_iter().collect();
    for (at, json) in list(KEY, record.take(KEY)?)?.into_iter().enumerate() {
        let mut record = Record::of(format!("{KEY}: message {}", at + 1), json)?;
        let Some(from) = record.optional_text("from")? else {
            turns.push(turn(record)?);
            continue;
        };
        let Some((_, role)) = SPEAKERS.iter().find(|(speaker, _)| *speaker == from) else {
            let known: Vec<&str> = SPEAKERS.iter().map(|(speaker, _)| *speaker).collect();
            return Err(
                record.refused(&format!("`from`: expected one of {}, found `{from}`", known.join(", ")))
            );
        };
        let is_learned = record.is_learned()?;
        turns.push(Turn { is_learned, ..Turn::new(role, record.text("value")?) });
    }
    Ok(turns)
}

fn system(record: &mut Record) -> Result<Option<Turn>, String> {
    let text = record.optional_text(SYSTEM)?.filter(|text| !text.is_empty());
    Ok(text.map(|text| Turn::new(SYSTEM, text)))
}

/// Returns the document of an Alpaca line. The input follows the instruction on the next line.
fn alpaca(record: &mut Record) -> Result<WrittenDocument, String> {
    let mut turns: Vec<Turn> = system(record)?.into_iter().collect();
    let history = match record.take("history")? {
        Json::Null => Vec::new(),
        json => list("history", json)?,
    };
    for (at, pair) in history.into_iter().enumerate() {
        let place = format!("`history`: item {}", at + 1);
        let Ok([Json::Text(question), Json::Text(answer)]) = <[Json; 2]>::try_from(list(&place, pair)?)
        else {
            return Err(format!("{place}: expected two strings, an instruction and its output"));
        };
        turns.extend([Turn::new(USER, question), Turn::new(ASSISTANT, answer)]);
    }
    let instruction = record.text("instruction")?;
    let input = record.optional_text("input")?.filter(|input| !input.is_empty());
    let question = match input {
        Some(input) if instruction.is_empty() => input,
        Some(input) => format!("{instruction}\n{input}"),
        None => instruction,
    };
    turns.extend([Turn::new(USER, question), Turn::new(ASSISTANT, record.text("output")?)]);
    Ok(WrittenDocument::Messages(WrittenConversation::new(turns)))
}

fn completion(record: &mut Record) -> Result<WrittenDocument, String> {
    match (record.take("prompt")?, record.take("completion")?) {
        (_, Json::Null) => Err("missing key `completion`".to_owned()),
        (Json::Text(_), Json::Text(completion)) if completion.is_empty() => {
            Err("an empty `completion`".to_owned())
        }
        (Json::Text(prompt), Json::Text(completion)) => {
            Ok(WrittenDocument::Completion { prompt, completion })
        }
        (prompt @ Json::List(_), completion @ Json::List(_)) => {
            let mut found = turns("prompt", prompt)?;
            found.iter_mut().for_each(|turn| turn.is_learned = false);
            found.extend(turns("completion", completion)?);
            Ok(WrittenDocument::Messages(WrittenConversation { turns: found, tools: tools(record)? }))
        }
        (prompt, completion) => Err(format!(
            "`prompt` and `completion`: expected two strings or two lists of messages, found {} and {}",
            prompt.shown(),
            completion.shown()
        )),
    }
}

#[cfg(test)]
mod tests;
