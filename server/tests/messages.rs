//! `/v1/messages`, the API of Anthropic.

use serde_json::{Value, json};

use crate::shared;

const PATH: &str = "/v1/messages";

fn body(more: &Value) -> Value {
    let mut body = json!({"model": "kjv", "max_tokens": 12, "temperature": 0,
        "messages": [{"role": "user", "content": "In the beginning"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn a_message_is_the_answer_of_the_same_chat() {
    let chat = json!({"messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "a\nb"}],
        "max_tokens": 12, "temperature": 0});
    let chat = shared().post("/v1/chat/completions", &chat).answer();
    let more = json!({"system": [{"type": "text", "text": "Be"}], "messages": [{"role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]});
    let message = shared().post(PATH, &body(&more)).answer();
    let text = &chat["choices"][0]["message"]["content"];
    assert_eq!(message["content"], json!([{"type": "text", "text": text}]));
    assert_eq!(
        (&message["type"], &message["role"], &message["stop_reason"]),
        (&json!("message"), &json!("assistant"), &json!("max_tokens"))
    );
    assert_eq!(message["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(message["usage"]["output_tokens"], 12);
}

#[test]
fn a_streamed_message_adds_up() {
    let more = json!({"stop_sequences": ["Christ"]});
    let whole = shared().post(PATH, &body(&more)).answer();
    assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!("stop_sequence"), &json!("Christ")));
    let mut streamed = body(&more);
    streamed["stream"] = true.into();
    let response = shared().post(PATH, &streamed);
    assert_eq!(response.status, 200);
    let text = response.text();
    let events: Vec<Value> = text
        .split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
            data
        })
        .collect();
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let joined: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(whole["content"][0]["text"], joined);
    assert_eq!(events[events.len() - 2]["usage"], whole["usage"]);
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "stop_sequence");
}

#[test]
fn errors_have_the_form_of_anthropic() {
    for (more, expected) in [
        (json!({"max_tokens": null}), "max_tokens: is missing"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            "messages[0].content: has a block that is not supported: expected blocks of type text, found image",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema: is missing"),
        (json!({"tool_choice": {"type": "any"}}), "tool_choice: is not supported"),
        (json!({"stop_sequences": vec!["a"; 65]}), "stop_sequences: has too many texts: expected at most 64"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": 5}]}]}),
            "messages[0].content: has a tool_result whose content is malformed",
        ),
    ] {
        let response = shared().post(PATH, &body(&more));
        let error = response.error(400);
        assert_eq!(response.json()["type"], "error");
        assert!(error["message"].as_str().unwrap().contains(expected), "{expected}: {error}");
    }
}
