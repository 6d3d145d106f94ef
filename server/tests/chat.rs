//! `/v1/chat/completions`.

use serde_json::{Value, json};

use crate::{Running, Setup, shared, with};

const PATH: &str = "/v1/chat/completions";

fn body(more: &Value) -> Value {
    let base = json!({"model": "kjv", "messages": [{"role": "user", "content": "In the beginning"}],
        "max_completion_tokens": 12, "seed": 3});
    with(base, more)
}

/// Joins the deltas of a stream into whole choices.
fn joined(events: &[Value]) -> Vec<Value> {
    let mut choices: Vec<Value> = Vec::new();
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        while choices.len() <= index {
            choices.push(json!({"index": choices.len(), "message": {"role": null, "content": ""},
                "logprobs": null, "finish_reason": null}));
        }
        let whole = &mut choices[index];
        assert!(whole["finish_reason"].is_null(), "a chunk after the end: {choice}");
        let delta = choice["delta"].as_object().unwrap();
        if let Some(role) = delta.get("role") {
            assert!(whole["message"]["role"].is_null(), "a second role");
            whole["message"]["role"] = role.clone();
        }
        if let Some(content) = delta.get("content") {
            let text = whole["message"]["content"].as_str().unwrap().to_owned();
            whole["message"]["content"] = (text + content.as_str().unwrap()).into();
        }
        if let Some(tokens) = choice["logprobs"]["content"].as_array() {
            let mut all = whole["logprobs"]["content"].as_array().cloned().unwrap_or_default();
            all.extend(tokens.clone());
            whole["logprobs"] = json!({"content": all});
        }
        if !choice["finish_reason"].is_null() {
            assert!(delta.is_empty(), "the reason of the end has a chunk of its own");
            whole["finish_reason"] = choice["finish_reason"].clone();
        }
    }
    choices
}

#[test]
fn a_chat_has_the_fields_of_openai() {
    let answer = shared().post(PATH, &body(&json!({"temperature": 0}))).answer();
    assert_eq!(answer["object"], "chat.completion");
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["content"].as_str().unwrap().starts_with(" of the Lord"), "{answer}");
    assert!(choice["message"].get("tool_calls").is_none() && choice["logprobs"].is_null(), "{answer}");
    assert_eq!((&choice["finish_reason"], &answer["usage"]["prompt_tokens"]), (&json!("length"), &json!(3)));
    // Without a limit, the answer may fill the context.
    let without = json!({"temperature": 0, "max_completion_tokens": null, "ignore_eos": true});
    let answer = shared().post(PATH, &body(&without)).answer();
    assert_eq!(answer["usage"]["total_tokens"], 256);
}

#[test]
fn a_stream_adds_up_to_the_whole_answer() {
    for more in [
        json!({}),
        json!({"n": 2, "logprobs": true}),
        json!({"logprobs": true, "top_logprobs": 3, "temperature": 1.8, "stop": ["the", ","]}),
        json!({"messages": [{"role": "developer", "content": "Be"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "x", "type": "function",
                "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "x", "content": "中"}], "max_tokens": 40}),
    ] {
        let whole = shared().post(PATH, &body(&more)).answer();
        let mut streamed = body(&more);
        streamed["stream"] = true.into();
        streamed["stream_options"] = json!({"include_usage": true});
        let mut events = shared().post(PATH, &streamed).events();
        assert_eq!(events[0]["object"], "chat.completion.chunk");
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(events.pop().unwrap()["usage"], whole["usage"]);
        assert_eq!(joined(&events), *whole["choices"].as_array().unwrap(), "{more}");
    }
}

#[test]
fn a_token_has_its_bytes() {
    let half = shared().post("/tokenize", &json!({"prompt": "中"})).answer()["tokens"][0].clone();
    let more = json!({"logit_bias": {half.to_string(): 100}, "temperature": 0, "max_completion_tokens": 1,
        "logprobs": true, "top_logprobs": 1});
    let answer = shared().post(PATH, &body(&more)).answer();
    let token = &answer["choices"][0]["logprobs"]["content"][0];
    assert_eq!((&token["bytes"], &token["token"]), (&json!([0xE4]), &json!("bytes:\\xe4")));
    assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 1);
}

#[test]
fn problems_of_messages_and_tools_are_named() {
    for (more, expected) in [
        (json!({"messages": []}), "messages: is empty"),
        (json!({"messages": [{"content": "a"}]}), "messages[0].role: is missing"),
        (json!({"messages": [1]}), "messages[0]: is not an object"),
        (json!({"messages": "a"}), "messages: has the wrong type"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
            "messages[0].content: has a part that is not supported: expected parts of type text, found image_url",
        ),
        (json!({"tools": [{"type": "x"}]}), "tools[0].type: is not supported"),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
            "tools: the chat template shows no known format of tool calls; start the server with --tool-parser",
        ),
        (json!({"tool_choice": "required"}), "tool_choice: requires a call, but there are no tools"),
        (json!({"functions": [{}]}), "functions: is not supported; use tools"),
        (json!({"response_format": {"type": "x"}}), "response_format.type: is not supported"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema: is missing"),
        (json!({"top_logprobs": 2}), "top_logprobs: needs logprobs: true"),
        (json!({"max_tokens": 1, "max_completion_tokens": 256}), "max_tokens: does not fit"),
    ] {
        let error = shared().post(PATH, &body(&more)).error(400);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn a_model_without_a_template_names_the_option() {
    let model = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(crate::shipped()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "chat_template.jinja" {
            std::os::unix::fs::symlink(entry.path(), model.path().join(entry.file_name())).unwrap();
        }
    }
    let server = Running::start(Setup { model: model.path().to_owned(), context: 64, ..Setup::default() });
    let error = server.client().post(PATH, &body(&json!({}))).error(400);
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("messages: needs a chat template") && message.contains("--chat-template FILE"),
        "{message}"
    );
    server.client().post("/v1/completions", &json!({"prompt": "The", "max_tokens": 2})).answer();
    server.end().unwrap();
}
