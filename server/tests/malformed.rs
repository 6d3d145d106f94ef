//! Malformed requests: the answer is a 4xx or a closed connection, and the server goes on.

use std::io::{Read, Write};
use std::net::Shutdown;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng};
use serde_json::{Value, json};

use crate::shared;

const PATHS: [&str; 5] =
    ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/messages"];

const FIELDS: [&str; 24] = [
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "n",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "tools",
    "tool_choice",
    "response_format",
    "structured_outputs",
    "min_tokens",
    "stop_token_ids",
    "tokens",
    "echo",
    "priority",
];

/// Returns a value that is wrong for every field above.
fn wrong(random: &mut StdRng, depth: usize) -> Value {
    match random.random_range(0..9) {
        0 => json!(1e300),
        1 => json!(-1.5e-300),
        2 => json!(u64::MAX),
        3 => json!(i64::MIN),
        4 => json!({"type": "\u{0}\u{FFFD}"}),
        5 => json!([[[]]]),
        6 => json!([{"role": 1, "content": [{}]}]),
        7 if depth < 3 => Value::Array((0..3).map(|_| wrong(random, depth + 1)).collect()),
        _ => json!({"": wrong_text(random)}),
    }
}

fn wrong_text(random: &mut StdRng) -> String {
    (0..random.random_range(0..20))
        .filter_map(|_| char::from_u32(random.random_range(0..0x11_0000)))
        .collect()
}

/// Returns the bytes of a body that no endpoint takes.
fn body(random: &mut StdRng) -> Vec<u8> {
    let fields = FIELDS.choose_iter_multiple(random);
    let mut object = json!({});
    for field in fields {
        object[field] = wrong(random, 0);
    }
    let text = object.to_string().into_bytes();
    match random.random_range(0..6) {
        // Broken JSON.
        0 => text[..random.random_range(0..text.len())].to_vec(),
        1 => {
            let mut text = text;
            let at = random.random_range(0..text.len());
            text[at] = random.random();
            text.insert(0, b'[');
            text
        }
        2 => "[".repeat(random.random_range(1..100_000)).into_bytes(),
        3 => format!("{{\"prompt\": {}1", "[".repeat(random.random_range(1..10_000))).into_bytes(),
        4 => (0..random.random_range(0..300)).map(|_| random.random()).collect(),
        _ => text,
    }
}

trait ChooseMany {
    fn choose_iter_multiple(&self, random: &mut StdRng) -> Vec<&'static str>;
}

impl ChooseMany for [&'static str] {
    fn choose_iter_multiple(&self, random: &mut StdRng) -> Vec<&'static str> {
        let mut chosen: Vec<&'static str> =
            (0..random.random_range(1..6)).filter_map(|_| self.choose(random).copied()).collect();
        // At least one field of each endpoint is wrong.
        chosen.extend(["prompt", "messages", "tokens"]);
        chosen
    }
}

#[test]
fn malformed_bodies_get_a_4xx() {
    let mut random = StdRng::seed_from_u64(48);
    for case in 0..200 {
        let path = PATHS[case % PATHS.len()];
        let body = body(&mut random);
        let response = shared().send("POST", path, &[], &body);
        let about =
            || format!("case {case}, {path}: {}", String::from_utf8_lossy(&body[..body.len().min(2000)]));
        assert!((400..500).contains(&response.status), "{}: {}", about(), response.text());
        assert!(response.json()["error"]["message"].is_string(), "{}", about());
    }
    shared().post("/v1/completions", &json!({"prompt": "The", "max_tokens": 1})).answer();
}

#[test]
fn a_body_has_a_limit() {
    let client = shared();
    let large = vec![b' '; 33 << 20];
    client.send("POST", "/v1/completions", &[], &large[..10 << 20]).error(400);
    // The head alone is refused.
    let mut stream = client.connect();
    stream
        .write_all(
            b"POST /tokenize HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n",
        )
        .unwrap();
    crate::client::read(stream).error(413);
    // A body without a length is refused when it is too long.
    let mut stream = client.connect();
    stream
        .write_all(
            b"POST /tokenize HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .unwrap();
    let chunk = format!("{:x}\r\n", large.len());
    // The server may close the connection before it has read all.
    let _closed = stream.write_all(&[chunk.as_bytes(), &large, b"\r\n0\r\n\r\n"].concat());
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn malformed_heads_get_a_4xx_or_nothing() {
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5000));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    for head in [
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "GET /\0 HTTP/1.1\r\n\r\n",
        "\u{1}\u{2}\u{3}",
        &many,
        &long,
    ] {
        let mut stream = shared().connect();
        let _closed = stream.write_all(head.as_bytes());
        let _closed = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || text.starts_with("HTTP/1.1 4"),
            "{:?}: {text}",
            &head[..head.len().min(90)]
        );
    }
    shared().get("/health").answer();
}
