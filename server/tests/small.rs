//! Small endpoints, ids, keys.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use ascend_tp_server_client::HttpRequest;
use serde_json::json;

use crate::{Running, Setup, shared};

#[test]
fn models_have_the_fields_of_openai_and_vllm() {
    let models = shared().get("/v1/models").answer();
    assert_eq!(models["object"], "list");
    let model = &models["data"][0];
    assert_eq!(
        (&model["id"], &model["object"], &model["max_model_len"]),
        (&json!("kjv"), &json!("model"), &json!(256))
    );
    assert!(model["root"].as_str().unwrap().ends_with("kjv-qwen2") && model["created"].is_u64(), "{model}");
    assert_eq!(models["data"][1]["id"], "other");
    assert_eq!(shared().get("/v1/models/kjv").answer()["id"], "kjv");
    shared().get("/v1/models/a/b").error(404);
    shared().get("/v1/models/%FF").error(400);
}

#[test]
fn tokens_of_a_text_and_back() {
    let client = shared();
    let text = "In the beginning 中";
    let tokens = client
        .post("/tokenize", &json!({"model": "kjv", "prompt": text, "return_token_strs": true}))
        .answer();
    assert_eq!(tokens["count"], tokens["tokens"].as_array().unwrap().len());
    assert_eq!((&tokens["max_model_len"], &tokens["token_strs"][1]), (&json!(256), &json!(" the")));
    let back = client.post("/detokenize", &json!({"model": "kjv", "tokens": tokens["tokens"]})).answer();
    assert_eq!(back["prompt"], text);
    let chat = json!({"messages": [{"role": "user", "content": text}]});
    assert_eq!(client.post("/tokenize", &chat).answer()["tokens"], tokens["tokens"]);
    client.post("/tokenize", &json!({"model": "x", "prompt": text})).error(404);
    client.post("/detokenize", &json!({"tokens": "x"})).error(400);
}

#[test]
fn health_needs_no_key_and_generation_does() {
    let server = Running::start(Setup { keys: vec!["secret".to_owned()], context: 64, ..Setup::default() });
    let client = server.client();
    for path in ["/health", "/ready", "/version", "/metrics", "/"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    assert!(client.get("/").text().starts_with("<!doctype html>"));
    let body = json!({"prompt": "The", "max_tokens": 1}).to_string();
    let send = |headers: &[(&str, &str)]| client.send("POST", "/v1/completions", headers, body.as_bytes());
    assert_eq!(send(&[]).error(401)["code"], "invalid_api_key");
    send(&[("authorization", "Bearer secre")]).error(401);
    send(&[("authorization", "Bearer secret")]).answer();
    send(&[("x-api-key", "secret")]).answer();
    client.get("/v1/models").error(401);
    client.get("/v1/models/%FF").error(401);
    // Errors before the body is read have Anthropic's form, too.
    let refused = client.send("POST", "/v1/messages", &[], b"{}");
    assert_eq!(refused.error(401)["type"], "authentication_error");
    assert_eq!(refused.json()["type"], "error");
    server.end().unwrap();
}

/// A client that closes its sending half counts as disconnected: it gets the whole answer or
/// nothing, and the server still answers others.
#[test]
fn a_probe_that_closes_its_half_gets_the_answer_or_nothing() {
    for _ in 0..20 {
        let mut stream = shared().connect();
        stream.write_all(&HttpRequest::get("/health").bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
        assert_eq!(shared().get("/health").answer()["status"], "ok");
    }
}

#[test]
fn a_response_has_the_id_of_its_request() {
    let given = shared().send("GET", "/health", &[("x-request-id", "mine-7")], b"");
    assert_eq!(given.headers["x-request-id"], "mine-7");
    assert_eq!(shared().get("/nowhere").headers["x-request-id"].len(), 32);
    assert_eq!(shared().get("/nowhere").error(404)["type"], "not_found_error");
    shared().get("/v1/completions").error(405);
}

#[test]
fn metrics_count_tokens_under_both_names() {
    let count = |name: &str| -> f64 {
        let text = shared().get("/metrics").text();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let before = count("vllm:generation_tokens_total");
    shared().post("/v1/completions", &json!({"prompt": "The", "max_tokens": 5, "ignore_eos": true})).answer();
    assert!(count("ascend_tp_new_tokens_total") >= before + 5.0);
    assert!(count("vllm:time_to_first_token_seconds_count") > 0.0);
}
