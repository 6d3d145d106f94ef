//! `/v1/chat/completions`: answers messages.
//!
//! - Input: messages, tools and settings.
//! - Output: a choice for each sample, whole or streamed.
//! - Invariants: the reason of the end is in a chunk of its own. A required call ends with
//!   `tool_calls`, a named one with `stop`.

use std::sync::Arc;

use ascend_tp::base::Diagnostic;
use ascend_tp::generate::Request;
use axum::Json;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::messages::Conversation;
use super::sampling::{MAX_LOGPROBS, Settings, StreamOptions, refused};
use super::stream::{self, ChunkWriter, Chunks};
use super::{AnswerHead, finish_reason, logprobs};
use crate::chat::{ChatAnswer, ChatDelta, ChatEnd, ChatPlan};
use crate::error::ApiError;
use crate::fields::{RefusedField, RequestFields};
use crate::generation::{GenerationEvent, GenerationRequest};
use crate::output::{AnswerPart, CallCount};
use crate::routes::{AuthorizedRequest, new_id, off_reactor};
use crate::state::ServerState;

/// Fields of a chat that would change the answer.
const REFUSED: &[RefusedField] = &[
    refused("functions", &["[]"], "use tools"),
    refused("function_call", &["\"none\""], "use tool_choice"),
    refused("modalities", &["[\"text\"]"], ""),
    refused("audio", &[], ""),
    refused("prediction", &[], ""),
    refused("web_search_options", &[], ""),
    refused("continue_final_message", &["false"], ""),
    refused("chat_template", &[], "start the server with --chat-template FILE"),
    refused("echo", &["false"], "use /v1/completions"),
    refused("mm_processor_kwargs", &["{}"], ""),
];

/// Answers a request.
pub(crate) async fn respond(call: AuthorizedRequest) -> Result<Response, ApiError> {
    let mut record = call.record("/v1/chat/completions");
    let state = Arc::clone(&call.state);
    let read = off_reactor(move || read(&call.state, &call.body)).await;
    let ChatJob { request, answer, head, stream } = record.check(read)?;
    let samples = answer.len();
    record.set_request(answer.usage.prompt_tokens, samples, answer.seed);
    let generation = GenerationRequest::new(&state, vec![request], samples, answer.shown.clone(), record);
    match stream {
        Some(options) => {
            let began = vec![false; samples];
            let writer = ChunkWriter { head, object: "chat.completion.chunk", options };
            stream::respond(generation, StreamedChat { writer, answer, began }).await
        }
        None => whole(generation, answer, &head).await,
    }
}

struct ChatJob {
    request: Request,
    answer: ChatAnswer,
    head: AnswerHead,
    stream: Option<StreamOptions>,
}

fn read(state: &Arc<ServerState>, body: &[u8]) -> Result<ChatJob, ApiError> {
    let mut fields = RequestFields::of_body(body)?;
    let settings = Settings::read(&mut fields, state);
    let model = state.model_name(settings.model.as_deref())?;
    let asks_logprobs = fields.take("logprobs").unwrap_or(false);
    let top = fields.take::<usize>("top_logprobs");
    if let Some(count) = top.filter(|count| *count > MAX_LOGPROBS) {
        let problem = Diagnostic::new("top_logprobs", "is too large");
        fields.problems.push(problem.expected(format!("at most {MAX_LOGPROBS}")).found(count));
    }
    if top.is_some_and(|count| count > 0) && !asks_logprobs {
        fields.problem("top_logprobs", "needs logprobs: true");
    }
    let is_parallel = fields.take("parallel_tool_calls").unwrap_or(true);
    let stream = settings.stream;
    let plan = ChatPlan {
        settings,
        conversation: Conversation::read(&mut fields),
        log_probabilities: asks_logprobs.then(|| top.unwrap_or(0)),
        calls: if is_parallel { CallCount::Many } else { CallCount::One },
        adds_special: fields.take("add_special_tokens").unwrap_or(false),
    };
    fields.refuse(REFUSED);
    let (request, answer) = plan.prepare(state, fields)?;
    Ok(ChatJob { request, answer, head: AnswerHead::new(format!("chatcmpl-{}", new_id()), model), stream })
}

fn reason(end: &ChatEnd) -> &'static str {
    match finish_reason(&end.finish) {
        "stop" if end.has_calls && !end.is_named => "tool_calls",
        reason => reason,
    }
}

/// The message of a whole choice.
#[derive(Default)]
struct WholeChoice {
    content: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    tokens: Vec<Value>,
    finish: &'static str,
}

struct ToolCall {
    id: String,
    name: String,
    arguments: String,
}

impl WholeChoice {
    fn add(&mut self, part: AnswerPart) {
        match part {
            AnswerPart::Text(text) => self.content.push_str(&text),
            AnswerPart::Reasoning(text) => self.reasoning.push_str(&text),
            AnswerPart::ToolCallStart { id, name, .. } => {
                self.calls.push(ToolCall { id, name, arguments: String::new() });
            }
            AnswerPart::ToolCallArguments { index, fragment } => {
                self.calls[index].arguments.push_str(&fragment);
            }
        }
    }

    fn json(self, index: usize, has_logprobs: bool) -> Value {
        let Self { content, reasoning, calls, tokens, finish } = self;
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let content = if content.is_empty() && !calls.is_empty() { Value::Null } else { content.into() };
        message.insert("content".to_owned(), content);
        if !reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), reasoning.into());
        }
        if !calls.is_empty() {
            let calls = calls.into_iter().map(|ToolCall { id, name, arguments }| {
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
            });
            message.insert("tool_calls".to_owned(), calls.collect());
        }
        let logprobs = has_logprobs.then(|| json!({"content": tokens}));
        json!({"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish})
    }
}

async fn whole(
    mut generation: GenerationRequest,
    mut answer: ChatAnswer,
    head: &AnswerHead,
) -> Result<Response, ApiError> {
    let mut choices: Vec<WholeChoice> = (0..answer.len()).map(|_| WholeChoice::default()).collect();
    let mut has_logprobs = false;
    while let Some(event) = generation.next().await? {
        let ChatDelta { choice, parts, token, end } = match event {
            GenerationEvent::Token(token) => answer.token(token),
            GenerationEvent::End(end) => answer.end(end),
        };
        let choice = &mut choices[choice];
        parts.into_iter().for_each(|part| choice.add(part));
        if let Some((id, found)) = token {
            has_logprobs = true;
            choice.tokens.push(logprobs::chat_token(&answer.state().texts.vocabulary, id, &found));
        }
        if let Some(end) = end {
            choice.finish = reason(&end);
        }
    }
    let choices = choices.into_iter().enumerate().map(|(index, choice)| choice.json(index, has_logprobs));
    let mut whole = head.object("chat.completion", &choices.collect());
    whole["usage"] = answer.usage.json();
    Ok(Json(whole).into_response())
}

struct StreamedChat {
    writer: ChunkWriter,
    answer: ChatAnswer,
    /// Whether a choice has sent its role.
    began: Vec<bool>,
}

impl StreamedChat {
    fn chunk(&self, choices: &Value) -> Bytes {
        self.writer.chunk(choices, &self.answer.usage)
    }

    fn delta(&self, index: usize, delta: &Value, logprobs: &Value, finish: Option<&str>) -> Bytes {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        self.chunk(&json!([choice]))
    }
}

/// Returns the delta of a part.
fn delta(part: &AnswerPart) -> Value {
    match part {
        AnswerPart::Text(text) => json!({"content": text}),
        AnswerPart::Reasoning(text) => json!({"reasoning_content": text}),
        AnswerPart::ToolCallStart { index, id, name } => {
            let function = json!({"name": name, "arguments": ""});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        }
        AnswerPart::ToolCallArguments { index, fragment } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})
        }
    }
}

impl Chunks for StreamedChat {
    fn on_event(&mut self, event: GenerationEvent) -> Vec<Bytes> {
        let ChatDelta { choice, parts, token, end } = match event {
            GenerationEvent::Token(token) => self.answer.token(token),
            GenerationEvent::End(end) => self.answer.end(end),
        };
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.began[choice], true) {
            let role = json!({"role": "assistant", "content": ""});
            events.push(self.delta(choice, &role, &Value::Null, None));
        }
        let mut logprobs = token.map_or(Value::Null, |(id, found)| {
            json!({"content": [logprobs::chat_token(&self.answer.state().texts.vocabulary, id, &found)]})
        });
        for part in &parts {
            events.push(self.delta(choice, &delta(part), &logprobs.take(), None));
        }
        if !logprobs.is_null() {
            events.push(self.delta(choice, &json!({"content": ""}), &logprobs, None));
        }
        if let Some(end) = end {
            events.push(self.delta(choice, &json!({}), &Value::Null, Some(reason(&end))));
        }
        events
    }

    fn on_end(&mut self) -> Vec<Bytes> {
        self.writer.end(&self.answer.usage)
    }

    fn on_error(&mut self, error: &ApiError) -> Vec<Bytes> {
        stream::failed(error)
    }
}
