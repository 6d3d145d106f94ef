//! Messages and tools of a chat.
//!
//! - Input: the fields of a body.
//! - Output: a [`Conversation`]: messages and variables for the chat template.
//! - Invariants: templates get what transformers gives them: texts as one text, and arguments of
//!   earlier tool calls as objects.
//! - Not here: the template itself (`chat` of the library).

use ascend_tp::base::Diagnostic;
use ascend_tp::generate::chat::{ChatTemplate, Message, MessageField};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::sampling::{refused, within};
use crate::error::ApiError;
use crate::fields::{RequestFields, short};

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// JSON schema of the arguments; null if there is none.
    pub(crate) parameters: Value,
    /// The tool as the template gets it.
    pub(crate) json: Value,
}

/// The tools that an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The answer is text.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// At least one tool.
    Required,
    /// This tool.
    Named(String),
}

/// Messages, tools and variables for the chat template.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) tool_choice: ToolChoice,
    /// Variables of the template, as JSON texts.
    pub(crate) variables: Vec<MessageField>,
}

/// The content of a message.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl ToolChoice {
    /// Returns whether the answer is a call.
    pub(crate) const fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Named(_))
    }
}

impl Conversation {
    /// Reads messages, tools and variables. Problems are added to `fields`.
    pub(crate) fn read(fields: &mut RequestFields) -> Self {
        let messages = fields.require::<Vec<Box<RawValue>>>("messages").unwrap_or_default();
        if messages.is_empty() && fields.problems.is_empty() {
            fields.problem("messages", "is empty");
        }
        let messages = messages.iter().enumerate().filter_map(|(at, value)| message(fields, at, value));
        let messages = messages.collect();
        let mut tools = tools(fields);
        let tool_choice = tool_choice(fields, &tools);
        if tool_choice == ToolChoice::None {
            tools.clear();
        }
        let mut variables = Vec::new();
        for (name, json) in fields.take::<Map<String, Value>>("chat_template_kwargs").unwrap_or_default() {
            variables.push(MessageField { name, json: json.to_string() });
        }
        for name in ["add_generation_prompt", "documents", "reasoning_effort"] {
            let json = fields.raw(name).map(|json| json.get().to_owned());
            variables.extend(json.map(|json| MessageField { name: name.to_owned(), json }));
        }
        Self { messages, tools, tool_choice, variables }
    }

    /// Returns the text that the model reads.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub(crate) fn render(&self, template: &ChatTemplate) -> Result<String, ApiError> {
        let mut template = template.clone();
        if !self.tools.is_empty() {
            let tools: Value = self.tools.iter().map(|tool| tool.json.clone()).collect();
            template
                .set_variable("tools", &tools.to_string())
                .map_err(|found| ApiError::of_fields(&found))?;
        }
        for MessageField { name, json } in &self.variables {
            template.set_variable(name, json).map_err(|found| ApiError::of_fields(&found))?;
        }
        template.render(&self.messages).map_err(|found| {
            let lines = found.lines().join("\n");
            ApiError { param: Some("messages".to_owned()), ..ApiError::invalid(format!("messages: {lines}")) }
        })
    }
}

fn message(fields: &mut RequestFields, at: usize, value: &RawValue) -> Option<Message> {
    within(fields, &format!("messages[{at}]"), value, |message| {
        let role = message.require::<String>("role").unwrap_or_default();
        // The newer name of OpenAI, which templates do not know.
        let role = if role == "developer" { "system".to_owned() } else { role };
        let content = match message.take("content") {
            None => String::new(),
            Some(MessageContent::Text(text)) => text,
            Some(MessageContent::Parts(parts)) => text_of_parts(message, parts),
        };
        message.refuse(&[refused("function_call", &[], "use tool_calls"), refused("audio", &[], "")]);
        let mut rest = Vec::new();
        let calls = message.take::<Vec<Value>>("tool_calls").filter(|calls| !calls.is_empty());
        if let Some(mut calls) = calls {
            calls.iter_mut().for_each(parse_arguments);
            rest.push(MessageField { name: "tool_calls".to_owned(), json: Value::from(calls).to_string() });
        }
        let others = message.rest().into_iter().filter(|(_, json)| json.get() != "null");
        rest.extend(others.map(|(name, json)| MessageField { name, json: json.get().to_owned() }));
        Some(Message { role, content, fields: rest })
    })
}

fn text_of_parts(message: &mut RequestFields, parts: Vec<ContentPart>) -> String {
    let mut texts = Vec::new();
    for ContentPart { kind, text } in parts {
        if message.has_many_problems() {
            break;
        }
        match (kind.as_str(), text) {
            ("text" | "input_text" | "output_text" | "refusal", Some(text)) => texts.push(text),
            (kind, _) => {
                let problem = Diagnostic::new(message.place("content"), "has a part that is not supported");
                message.problems.push(problem.expected("parts of type text").found(short(kind)));
            }
        }
    }
    texts.join("\n")
}

/// Replaces the text of the arguments of a call by their object.
fn parse_arguments(call: &mut Value) {
    if let Some(arguments) = call.pointer_mut("/function/arguments")
        && let Some(text) = arguments.as_str()
        && let Ok(object) = serde_json::from_str::<Map<String, Value>>(text)
    {
        *arguments = object.into();
    }
}

fn tools(fields: &mut RequestFields) -> Vec<Tool> {
    let values = fields.take::<Vec<Box<RawValue>>>("tools").unwrap_or_default();
    let tools = values.iter().enumerate().filter_map(|(at, value)| {
        let place = format!("tools[{at}]");
        within(fields, &place, value, |tool| {
            let kind = tool.require::<String>("type")?;
            if kind != "function" {
                let problem = Diagnostic::new(tool.place("type"), "is not supported");
                tool.problems.push(problem.expected("function").found(short(&kind)));
                return None;
            }
            let function = tool.require::<Box<RawValue>>("function")?;
            let json = serde_json::from_str::<Value>(value.get());
            let json = json.map_err(|error| {
                let problem = Diagnostic::new(place.as_str(), "is malformed");
                tool.problems.push(problem.found(short(&error.to_string())));
            });
            let json = json.ok()?;
            within(tool, "function", &function, |function| {
                let name = function.require::<String>("name")?;
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
                if name.is_empty() || !name.chars().all(is_name) {
                    let problem = Diagnostic::new(function.place("name"), "is no name of a function");
                    function
                        .problems
                        .push(problem.expected("letters, digits, _, - and .").found(short(&name)));
                }
                let parameters = function.take::<Map<String, Value>>("parameters");
                Some(Tool { name, parameters: parameters.map_or(Value::Null, Value::from), json })
            })
        })
    });
    tools.collect()
}

fn tool_choice(fields: &mut RequestFields, tools: &[Tool]) -> ToolChoice {
    let Some(value) = fields.take::<Value>("tool_choice") else { return ToolChoice::Auto };
    let named = value.pointer("/function/name").and_then(Value::as_str);
    let choice = match (value.as_str(), named) {
        (Some("none"), _) => ToolChoice::None,
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("required"), _) => ToolChoice::Required,
        (_, Some(name)) if value["type"] == "function" => ToolChoice::Named(name.to_owned()),
        _ => {
            let problem = Diagnostic::new("tool_choice", "is not supported");
            fields.problems.push(problem.expected("none, auto, required, or a function with its name"));
            return ToolChoice::Auto;
        }
    };
    match &choice {
        ToolChoice::Required if tools.is_empty() => {
            fields.problem("tool_choice", "requires a call, but there are no tools");
        }
        ToolChoice::Named(name) if tools.iter().all(|tool| tool.name != *name) => {
            let problem = Diagnostic::new("tool_choice", "names a function that is not in tools");
            fields.problems.push(problem.found(short(name)));
        }
        _ => {}
    }
    choice
}
