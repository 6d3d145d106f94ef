//! `/v1/messages`, the API of Anthropic.
//!
//! - Input: messages, a system text, tools and settings in Anthropic's form.
//! - Output: a message of content blocks, whole or as named events.
//! - Invariants: a request becomes the same chat as in OpenAI's form. Content blocks come one after
//!   another; a block ends before the next one begins.
//! - Not here: the chat (`chat`).

use std::sync::Arc;

use ascend_tp::base::Diagnostic;
use ascend_tp::generate::chat::{Message, MessageField};
use ascend_tp::generate::{Finish, Request};
use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::chat::{ChatAnswer, ChatDelta, ChatEnd, ChatPlan};
use crate::error::ApiError;
use crate::fields::{RefusedField, RequestFields, short};
use crate::generation::{GenerationEvent, GenerationRequest};
use crate::openai::messages::{Conversation, Tool, ToolChoice};
use crate::openai::sampling::{Settings, check_stops, refused, within};
use crate::openai::stream::{self, Chunks};
use crate::output::{AnswerPart, CallCount};
use crate::routes::{AuthorizedRequest, new_id, off_reactor};
use crate::state::ServerState;

/// Fields that would change the answer.
const REFUSED: &[RefusedField] = &[
    refused("mcp_servers", &["[]"], ""),
    refused("container", &[], ""),
    refused("output_config", &["{}"], "use response_format of /v1/chat/completions"),
];

/// Beginning of the text of a tool's result with `is_error: true`.
const ERROR_PREFIX: &str = "Error: ";

/// Answers a request. Errors before the body was read have Anthropic's form too.
pub(crate) async fn respond(call: Result<AuthorizedRequest, ApiError>) -> Response {
    let answered = match call {
        Ok(call) => answer(call).await,
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(|error| error.respond(body(&error)))
}

/// Returns an error in Anthropic's form.
fn body(error: &ApiError) -> Value {
    json!({"type": "error", "error": {"type": kind(error.status), "message": error.message}})
}

/// Returns Anthropic's name of a kind of errors.
const fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::REQUEST_TIMEOUT => "timeout_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::INTERNAL_SERVER_ERROR => "api_error",
        _ => "invalid_request_error",
    }
}

async fn answer(call: AuthorizedRequest) -> Result<Response, ApiError> {
    let mut record = call.record("/v1/messages");
    let state = Arc::clone(&call.state);
    let read = off_reactor(move || read(&call.state, &call.body)).await;
    let MessageJob { request, answer, model, streams } = record.check(read)?;
    record.set_request(answer.usage.prompt_tokens, 1, answer.seed);
    let generation = GenerationRequest::new(&state, vec![request], 1, answer.shown.clone(), record);
    let head = MessageHead { id: format!("msg_{}", new_id()), model };
    if streams {
        stream::respond(generation, StreamedMessage { head, answer, block: None, blocks: 0 }).await
    } else {
        whole(generation, answer, &head).await
    }
}

struct MessageJob {
    request: Request,
    answer: ChatAnswer,
    model: String,
    streams: bool,
}

struct MessageHead {
    id: String,
    model: String,
}

impl MessageHead {
    fn message(&self, content: &Value, end: Option<&ChatEnd>, answer: &ChatAnswer) -> Value {
        let Self { id, model } = self;
        let (reason, stop) = end.map_or((Value::Null, Value::Null), stop_reason);
        json!({
            "id": id, "type": "message", "role": "assistant", "model": model, "content": content,
            "stop_reason": reason, "stop_sequence": stop, "usage": usage(answer),
        })
    }
}

fn usage(answer: &ChatAnswer) -> Value {
    let usage = answer.usage;
    json!({
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.new_tokens,
    })
}

/// Returns the reason of an end, and the stop text that ended the answer.
fn stop_reason(end: &ChatEnd) -> (Value, Value) {
    match &end.finish {
        Finish::Length => ("max_tokens".into(), Value::Null),
        _ if end.has_calls => ("tool_use".into(), Value::Null),
        Finish::StopText(text) => ("stop_sequence".into(), text.as_str().into()),
        Finish::StopId(_) | Finish::Cancelled => ("end_turn".into(), Value::Null),
    }
}

fn read(state: &Arc<ServerState>, body: &[u8]) -> Result<MessageJob, ApiError> {
    let mut fields = RequestFields::of_body(body)?;
    let stops = fields.take::<Vec<String>>("stop_sequences").unwrap_or_default();
    let mut settings = Settings::read(&mut fields, state);
    if settings.max_tokens.is_none() && fields.problems.is_empty() {
        fields.problem("max_tokens", "is missing");
    }
    if !stops.is_empty() {
        settings.stop_texts.extend(stops);
        check_stops(&mut fields, "stop_sequences", &settings.stop_texts);
    }
    let model = state.model_name(settings.model.as_deref())?;
    let streams = settings.stream.is_some();
    let (conversation, calls) = conversation(&mut fields);
    fields.refuse(REFUSED);
    let plan = ChatPlan { settings, conversation, log_probabilities: None, calls, adds_special: false };
    let (request, answer) = plan.prepare(state, fields)?;
    Ok(MessageJob { request, answer, model, streams })
}

/// A content: a text or blocks.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum AnthropicContent {
    Text(String),
    Blocks(Vec<Value>),
}

impl AnthropicContent {
    fn blocks(self) -> Vec<Value> {
        match self {
            Self::Text(text) => vec![json!({"type": "text", "text": text})],
            Self::Blocks(blocks) => blocks,
        }
    }
}

fn conversation(fields: &mut RequestFields) -> (Conversation, CallCount) {
    let mut messages = Vec::new();
    if let Some(system) = fields.take::<AnthropicContent>("system") {
        let text = text_of(fields, "system", &system.blocks());
        messages.push(Message::new("system", text));
    }
    let given = fields.require::<Vec<Box<RawValue>>>("messages").unwrap_or_default();
    if given.is_empty() && fields.problems.is_empty() {
        fields.problem("messages", "is empty");
    }
    for (at, value) in given.iter().enumerate() {
        let place = format!("messages[{at}]");
        let read = within(fields, &place, value, |message| {
            let role = message.require::<String>("role")?;
            let content = message.require::<AnthropicContent>("content")?;
            Some(turn(message, &role, content.blocks()))
        });
        messages.extend(read.unwrap_or_default());
    }
    let mut tools = tools(fields);
    let mut calls = CallCount::Many;
    let mut tool_choice = ToolChoice::Auto;
    if let Some(choice) = fields.take::<Map<String, Value>>("tool_choice") {
        if choice.get("disable_parallel_tool_use") == Some(&Value::Bool(true)) {
            calls = CallCount::One;
        }
        let name = choice.get("name").and_then(Value::as_str);
        tool_choice = match (choice.get("type").and_then(Value::as_str), name) {
            (Some("auto"), _) => ToolChoice::Auto,
            (Some("none"), _) => ToolChoice::None,
            (Some("any"), _) if !tools.is_empty() => ToolChoice::Required,
            (Some("tool"), Some(name)) if tools.iter().any(|tool| tool.name == name) => {
                ToolChoice::Named(name.to_owned())
            }
            _ => {
                let problem = Diagnostic::new("tool_choice", "is not supported");
                fields.problems.push(problem.expected("auto, none, any, or tool with the name of a tool"));
                ToolChoice::Auto
            }
        };
    }
    if tool_choice == ToolChoice::None {
        tools.clear();
    }
    let variables = thinking(fields).into_iter().collect();
    (Conversation { messages, tools, tool_choice, variables }, calls)
}

/// Returns the variable of templates that turns reasoning on or off.
fn thinking(fields: &mut RequestFields) -> Option<MessageField> {
    let thinking = fields.take::<Map<String, Value>>("thinking")?;
    let is_on = thinking.get("type").and_then(Value::as_str) != Some("disabled");
    Some(MessageField { name: "enable_thinking".to_owned(), json: is_on.to_string() })
}

/// Returns the messages of a turn: results of tools come as messages of their own.
fn turn(fields: &mut RequestFields, role: &str, blocks: Vec<Value>) -> Vec<Message> {
    let mut messages = Vec::new();
    let (mut texts, mut calls, mut reasoning) = (Vec::new(), Vec::new(), Vec::new());
    for mut block in blocks {
        if fields.has_many_problems() {
            break;
        }
        match block["type"].as_str() {
            Some("tool_use") => calls.push(json!({"id": block["id"], "type": "function",
                "function": {"name": block["name"], "arguments": block["input"]}})),
            Some("tool_result") => {
                let content = match block["content"].take() {
                    Value::Null => Vec::new(),
                    content => serde_json::from_value::<AnthropicContent>(content).map_or_else(
                        |_malformed| {
                            fields.problem("content", "has a tool_result whose content is malformed");
                            Vec::new()
                        },
                        AnthropicContent::blocks,
                    ),
                };
                let mut text = text_of(fields, "content", &content);
                if block["is_error"] == true {
                    text.insert_str(0, ERROR_PREFIX);
                }
                let id =
                    MessageField { name: "tool_call_id".to_owned(), json: block["tool_use_id"].to_string() };
                messages.push(Message { fields: vec![id], ..Message::new("tool", text) });
            }
            Some("thinking") => reasoning.extend(block["thinking"].as_str().map(str::to_owned)),
            Some("redacted_thinking") => {}
            _ => texts.push(block),
        }
    }
    let is_results_only = texts.is_empty() && calls.is_empty() && !messages.is_empty();
    if !is_results_only {
        let text = text_of(fields, "content", &texts);
        let mut message = Message::new(role, text);
        if !calls.is_empty() {
            let json = Value::from(calls).to_string();
            message.fields.push(MessageField { name: "tool_calls".to_owned(), json });
        }
        if !reasoning.is_empty() {
            let json = Value::from(reasoning.concat()).to_string();
            message.fields.push(MessageField { name: "reasoning_content".to_owned(), json });
        }
        messages.push(message);
    }
    messages
}

fn text_of(fields: &mut RequestFields, name: &str, blocks: &[Value]) -> String {
    let mut texts = Vec::new();
    for block in blocks {
        if fields.has_many_problems() {
            break;
        }
        match (block["type"].as_str(), block["text"].as_str()) {
            (Some("text"), Some(text)) => texts.push(text),
            (kind, _) => {
                let problem = Diagnostic::new(fields.place(name), "has a block that is not supported");
                fields
                    .problems
                    .push(problem.expected("blocks of type text").found(short(kind.unwrap_or("no type"))));
            }
        }
    }
    texts.join("\n")
}

fn tools(fields: &mut RequestFields) -> Vec<Tool> {
    let values = fields.take::<Vec<Box<RawValue>>>("tools").unwrap_or_default();
    let tools = values.iter().enumerate().filter_map(|(at, value)| {
        within(fields, &format!("tools[{at}]"), value, |tool| {
            tool.refuse(&[refused("type", &["\"custom\""], "only tools of the client are supported")]);
            let name = tool.require::<String>("name")?;
            let parameters = tool.require::<Map<String, Value>>("input_schema").map(Value::from)?;
            let description = tool.take::<String>("description");
            let function = json!({"name": name, "description": description, "parameters": parameters});
            Some(Tool { name, parameters, json: json!({"type": "function", "function": function}) })
        })
    });
    tools.collect()
}

async fn whole(
    mut generation: GenerationRequest,
    mut answer: ChatAnswer,
    head: &MessageHead,
) -> Result<Response, ApiError> {
    let mut blocks: Vec<AnswerBlock> = Vec::new();
    let mut ended = None;
    while let Some(event) = generation.next().await? {
        let ChatDelta { parts, end, .. } = delta(&mut answer, event);
        for part in parts {
            match blocks.last_mut().filter(|last| last.takes(&part)) {
                Some(last) => last.add(part),
                None => blocks.push(AnswerBlock::of(part)),
            }
        }
        ended = end.or(ended);
    }
    let content: Value = blocks.into_iter().map(AnswerBlock::json).collect();
    Ok(Json(head.message(&content, ended.as_ref(), &answer)).into_response())
}

fn delta(answer: &mut ChatAnswer, event: GenerationEvent) -> ChatDelta {
    match event {
        GenerationEvent::Token(token) => answer.token(token),
        GenerationEvent::End(end) => answer.end(end),
    }
}

/// A content block of an answer.
#[derive(Debug)]
enum AnswerBlock {
    Text(String),
    Thinking(String),
    ToolUse { id: String, name: String, arguments: String },
}

impl AnswerBlock {
    fn of(part: AnswerPart) -> Self {
        match part {
            AnswerPart::Text(text) => Self::Text(text),
            AnswerPart::Reasoning(text) => Self::Thinking(text),
            AnswerPart::ToolCallStart { id, name, .. } => {
                Self::ToolUse { id, name, arguments: String::new() }
            }
            // Arguments follow the start of their call.
            AnswerPart::ToolCallArguments { fragment, .. } => Self::Text(fragment),
        }
    }

    /// Returns whether a part continues this block.
    const fn takes(&self, part: &AnswerPart) -> bool {
        matches!(
            (self, part),
            (Self::Text(_), AnswerPart::Text(_))
                | (Self::Thinking(_), AnswerPart::Reasoning(_))
                | (Self::ToolUse { .. }, AnswerPart::ToolCallArguments { .. })
        )
    }

    fn add(&mut self, part: AnswerPart) {
        let (Self::Text(text) | Self::Thinking(text) | Self::ToolUse { arguments: text, .. }) = self;
        match part {
            AnswerPart::Text(more) | AnswerPart::Reasoning(more) => text.push_str(&more),
            AnswerPart::ToolCallArguments { fragment, .. } => text.push_str(&fragment),
            AnswerPart::ToolCallStart { .. } => {}
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Thinking(text) => json!({"type": "thinking", "thinking": text, "signature": ""}),
            Self::ToolUse { id, name, arguments } => {
                // An answer that ends by its length has a part of the object.
                let input = serde_json::from_str(&arguments).unwrap_or_else(|_cut| json!({}));
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        }
    }

    /// Returns the block as it begins.
    fn start(&self) -> Value {
        match self {
            Self::Text(_) => json!({"type": "text", "text": ""}),
            Self::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Self::ToolUse { id, name, .. } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        }
    }
}

struct StreamedMessage {
    head: MessageHead,
    answer: ChatAnswer,
    /// The block that is open.
    block: Option<AnswerBlock>,
    /// Number of blocks that have begun.
    blocks: usize,
}

/// Returns an event with its name, which is also in its data.
fn named(value: &Value) -> Bytes {
    let name = value["type"].as_str().unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

impl StreamedMessage {
    fn start(&self) -> Bytes {
        let message = self.head.message(&json!([]), None, &self.answer);
        named(&json!({"type": "message_start", "message": message}))
    }

    fn part(&mut self, part: AnswerPart, events: &mut Vec<Bytes>) {
        let delta = match &part {
            AnswerPart::Text(text) => Some(json!({"type": "text_delta", "text": text})),
            AnswerPart::Reasoning(text) => Some(json!({"type": "thinking_delta", "thinking": text})),
            AnswerPart::ToolCallArguments { fragment, .. } => {
                Some(json!({"type": "input_json_delta", "partial_json": fragment}))
            }
            AnswerPart::ToolCallStart { .. } => None,
        };
        if !self.block.as_ref().is_some_and(|block| block.takes(&part)) {
            self.close(events);
            let block = AnswerBlock::of(part);
            events.push(named(&json!({"type": "content_block_start", "index": self.blocks,
                "content_block": block.start()})));
            self.block = Some(block);
            self.blocks += 1;
        }
        if let Some(delta) = delta {
            let index = self.blocks - 1;
            events.push(named(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        }
    }

    fn close(&mut self, events: &mut Vec<Bytes>) {
        if self.block.take().is_some() {
            events.push(named(&json!({"type": "content_block_stop", "index": self.blocks - 1})));
        }
    }
}

impl Chunks for StreamedMessage {
    fn on_event(&mut self, event: GenerationEvent) -> Vec<Bytes> {
        let mut events = Vec::new();
        let is_first = self.answer.usage.new_tokens == 0;
        if is_first {
            events.push(self.start());
        }
        let ChatDelta { parts, end, .. } = delta(&mut self.answer, event);
        for part in parts {
            self.part(part, &mut events);
        }
        if let Some(end) = end {
            self.close(&mut events);
            let (reason, stop) = stop_reason(&end);
            events.push(named(&json!({"type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": stop}, "usage": usage(&self.answer)})));
        }
        events
    }

    fn on_end(&mut self) -> Vec<Bytes> {
        vec![named(&json!({"type": "message_stop"}))]
    }

    fn on_error(&mut self, error: &ApiError) -> Vec<Bytes> {
        vec![named(&body(error))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_tool_tells_errors_apart() {
        for (is_error, expected) in [(true, "Error: no such file"), (false, "no such file")] {
            let mut fields = RequestFields::of_body(b"{}").unwrap();
            let result = json!({"type": "tool_result", "tool_use_id": "a", "is_error": is_error,
                "content": "no such file"});
            let messages = turn(&mut fields, "user", vec![result]);
            assert!(fields.problems.is_empty());
            assert_eq!((messages[0].role.as_str(), messages[0].content.as_str()), ("tool", expected));
        }
    }
}
