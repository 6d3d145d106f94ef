//! Requests of the load, and the comparison of their answers.

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};
use ascend_tp_server_client::{Connection, HttpRequest};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

const TEXTS: [&str; 8] = [
    "In the beginning God created the heaven and the earth.",
    "And the king said unto his servants,",
    "Blessed are they that mourn: for they shall be comforted.",
    "The LORD is my shepherd; I shall not want.",
    "And it came to pass in those days,",
    "Vanity of vanities, saith the Preacher;",
    "中 é 🦀 and the sea",
    "Let there be light",
];

/// Number of sentences of a prompt that others share as a prefix, more than a cache block.
const PREFIX_SENTENCES: usize = 14;

/// A request with a fixed answer: at temperature 0, or with a seed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    path: &'static str,
    body: Value,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.body)
    }
}

fn sentences(random: &mut StdRng, count: usize) -> String {
    let words: Vec<&str> = (0..count).filter_map(|_| TEXTS.choose(random).copied()).collect();
    words.join(" ")
}

/// Returns a prompt. Every third one begins with the same tokens.
fn prompt(random: &mut StdRng) -> String {
    let count = random.random_range(1..4);
    let own = sentences(random, count);
    if random.random_range(0..3) > 0 {
        return own;
    }
    let shared: Vec<&str> = TEXTS.iter().cycle().take(PREFIX_SENTENCES).copied().collect();
    format!("{} {own}", shared.join(" "))
}

impl Case {
    pub(super) fn draw(random: &mut StdRng) -> Self {
        let is_chat = random.random_bool(0.4);
        let mut body = json!({"max_tokens": random.random_range(1..64), "temperature": 0});
        if is_chat {
            body["messages"] = json!([{"role": "user", "content": prompt(random)}]);
        } else {
            body["prompt"] = match random.random_range(0..4) {
                0 => json!([prompt(random), prompt(random)]),
                1 => (0..random.random_range(1..200)).map(|_| random.random_range(1..4000)).collect(),
                _ => prompt(random).into(),
            };
        }
        if random.random_bool(0.5) {
            body["temperature"] = json!(0.9);
            body["seed"] = random.random_range(0..1_000_000).into();
            body["n"] = random.random_range(1..3).into();
        }
        for (name, value, share) in [
            ("ignore_eos", json!(true), 0.3),
            ("stop", json!([" the", "\n"]), 0.2),
            ("repetition_penalty", json!(1.3), 0.2),
            ("logit_bias", json!({"5": 2.0, "9": -50.0}), 0.1),
            ("skip_special_tokens", json!(false), 0.2),
            ("priority", random.random_range(-2..3).into(), 0.2),
        ] {
            if random.random_bool(share) {
                body[name] = value;
            }
        }
        if random.random_bool(0.2) {
            let logprobs = if is_chat {
                [("logprobs", json!(true)), ("top_logprobs", json!(2))]
            } else {
                [("logprobs", json!(2)), ("echo", json!(true))]
            };
            logprobs.into_iter().for_each(|(name, value)| body[name] = value);
        }
        if random.random_bool(0.25) {
            body["ignore_eos"] = false.into();
            match random.random_range(0..3) {
                0 => body["response_format"] = json!({"type": "json_object"}),
                1 => {
                    let name = json!({"type": "string", "maxLength": 8});
                    let number = json!({"type": "integer", "minimum": 0, "maximum": 99});
                    let schema = json!({"type": "object", "properties": {"name": name, "age": number},
                        "required": ["name", "age"], "additionalProperties": false});
                    let named = json!({"name": "person", "schema": schema});
                    body["response_format"] = json!({"type": "json_schema", "json_schema": named});
                }
                _ => body["structured_outputs"] = json!({"regex": "[a-z]{3,9}( [a-z]{2,5}){0,3}"}),
            }
        }
        Self { path: if is_chat { CHAT } else { COMPLETIONS }, body }
    }

    /// Returns the answer as a whole.
    pub(super) fn whole(&self, connection: &mut Connection) -> Result<CheckedAnswer> {
        let body = self.body.to_string();
        let response = connection.request(&HttpRequest::post(self.path, body.as_bytes()))?;
        let text = String::from_utf8_lossy(&response.body);
        ensure!(response.status == 200, "status {}: {text}", response.status);
        let mut answer: Value = serde_json::from_str(&text).context("the answer is not JSON")?;
        Ok(CheckedAnswer {
            choices: answer["choices"].take(),
            tokens: answer["usage"]["completion_tokens"].take(),
        })
    }

    /// Returns the joined chunks of a stream. `echo` and `logprobs` are left out, because they are
    /// not streamed together.
    pub(super) fn streamed(&self, connection: &mut Connection) -> Result<CheckedAnswer> {
        let mut body = self.body.clone();
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        if let Some(fields) = body.as_object_mut().filter(|fields| fields.contains_key("echo")) {
            fields.remove("logprobs");
        }
        let body = body.to_string();
        connection.send(&HttpRequest::post(self.path, body.as_bytes()))?;
        let response = connection.receive()?;
        if response.status != 200 {
            let refused = response.whole()?;
            bail!("status {}: {}", refused.status, String::from_utf8_lossy(&refused.body));
        }
        let (mut joined, mut tokens, mut is_done) = (JoinedChoices::default(), Value::Null, false);
        for event in response.events() {
            let event = event?;
            ensure!(!is_done, "an event follows the end: {event}");
            if event == "[DONE]" {
                is_done = true;
                continue;
            }
            let mut chunk: Value = serde_json::from_str(&event).context("an event is not JSON")?;
            ensure!(chunk["error"].is_null(), "an event has an error: {event}");
            if chunk["usage"].is_object() {
                tokens = chunk["usage"]["completion_tokens"].take();
            }
            chunk["choices"].as_array().into_iter().flatten().try_for_each(|choice| joined.add(choice))?;
        }
        ensure!(is_done, "the stream has no end");
        Ok(CheckedAnswer { choices: joined.json(), tokens })
    }

    /// Sends the request without reading the answer to its end, perhaps with further bytes.
    pub(super) fn abandon(&self, connection: &mut Connection, random: &mut StdRng) -> Result<()> {
        let mut body = self.body.clone();
        body["stream"] = random.random_bool(0.5).into();
        if body["stream"] == true
            && let Some(fields) = body.as_object_mut()
        {
            fields.remove("logprobs");
            fields.remove("top_logprobs");
        }
        body["max_tokens"] = 300.into();
        let body = body.to_string();
        connection.send(&HttpRequest::post(self.path, body.as_bytes()))?;
        if random.random_bool(0.3) {
            connection.send(&HttpRequest::get("/health"))?;
        }
        if random.random_bool(0.5) {
            // The head of a stream comes with the first token.
            let response = connection.receive()?;
            ensure!(response.status == 200 || response.status == 400, "status {}", response.status);
        }
        Ok(())
    }
}

/// The choices of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckedAnswer {
    choices: Value,
    tokens: Value,
}

impl CheckedAnswer {
    /// Compares an answer with this one, which the request got alone.
    pub(super) fn compare(&self, other: &Self) -> Result<()> {
        ensure!(self == other, "alone {}, now {}", self.json(), other.json());
        Ok(())
    }

    /// Compares the texts, the ends, and the number of tokens.
    pub(super) fn compare_text(&self, streamed: &Self) -> Result<()> {
        let mut alone = JoinedChoices::default();
        self.choices.as_array().into_iter().flatten().try_for_each(|choice| alone.add(choice))?;
        Self { choices: alone.json(), tokens: self.tokens.clone() }.compare(streamed)
    }

    fn json(&self) -> Value {
        json!({"choices": self.choices, "tokens": self.tokens})
    }
}

/// Texts and ends of choices, from chunks or from whole choices.
#[derive(Default)]
struct JoinedChoices(Vec<Map<String, Value>>);

impl JoinedChoices {
    fn add(&mut self, choice: &Value) -> Result<()> {
        let index = choice["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let index = index.with_context(|| format!("a choice has no index: {choice}"))?;
        self.0.resize(self.0.len().max(index + 1), Map::new());
        let joined = &mut self.0[index];
        ensure!(!joined.contains_key("finish_reason"), "a chunk follows the end of its choice: {choice}");
        let texts = [&choice["text"], &choice["delta"]["content"], &choice["message"]["content"]];
        let text = texts.into_iter().find_map(Value::as_str).unwrap_or_default();
        let before = joined.get("text").and_then(Value::as_str).unwrap_or_default();
        joined.insert("text".to_owned(), format!("{before}{text}").into());
        if !choice["finish_reason"].is_null() {
            joined.insert("finish_reason".to_owned(), choice["finish_reason"].clone());
        }
        Ok(())
    }

    fn json(self) -> Value {
        self.0.into_iter().map(Value::Object).collect()
    }
}

/// A request that must be refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Malformed {
    path: &'static str,
    body: &'static str,
    status: u16,
}

const fn malformed(path: &'static str, body: &'static str, status: u16) -> Malformed {
    Malformed { path, body, status }
}

pub(super) const MALFORMED: [Malformed; 12] = [
    malformed(COMPLETIONS, "{", 400),
    malformed(COMPLETIONS, "[]", 400),
    malformed(COMPLETIONS, r#"{"prompt": {"a": 1}}"#, 400),
    malformed(COMPLETIONS, r#"{"prompt": [4096]}"#, 400),
    malformed(COMPLETIONS, r#"{"prompt": "a", "max_tokens": -1, "temperature": "x"}"#, 400),
    malformed(COMPLETIONS, r#"{"prompt": "a", "structured_outputs": {"regex": "("}}"#, 400),
    malformed(CHAT, r#"{"messages": []}"#, 400),
    malformed(CHAT, r#"{"messages": [{"role": 1}]}"#, 400),
    malformed(CHAT, r#"{"model": "none", "messages": [{"role": "user", "content": "a"}]}"#, 404),
    malformed("/v1/nowhere", "{}", 404),
    malformed("/health", "{}", 405),
    malformed("/tokenize", "\u{0}", 400),
];

impl Malformed {
    pub(super) fn check(self, connection: &mut Connection) -> Result<()> {
        let Self { path, body, status } = self;
        let response = connection.request(&HttpRequest::post(path, body.as_bytes()))?;
        ensure!(response.status == status, "{path} {body}: expected {status}, found {}", response.status);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_requests() {
        let draw = |seed| {
            let mut random = StdRng::seed_from_u64(seed);
            (0..20).map(|_| Case::draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let cases = draw(1);
        for path in [CHAT, COMPLETIONS] {
            assert!(cases.iter().any(|case| case.path == path));
        }
    }

    #[test]
    fn a_stream_adds_up_to_the_whole_answer_or_is_found() {
        let whole = json!([{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}]);
        let answer = CheckedAnswer { choices: whole, tokens: json!(2) };
        let streamed = |texts: &[&str], reason: &str| {
            let mut joined = JoinedChoices::default();
            for text in texts {
                joined.add(&json!({"index": 0, "delta": {"content": text}, "finish_reason": null})).unwrap();
            }
            joined.add(&json!({"index": 0, "delta": {}, "finish_reason": reason})).unwrap();
            assert!(joined.add(&json!({"index": 0, "delta": {}})).is_err());
            answer.compare_text(&CheckedAnswer { choices: joined.json(), tokens: json!(2) })
        };
        streamed(&["a", "b"], "stop").unwrap();
        assert!(streamed(&["a", "c"], "stop").is_err());
        assert!(streamed(&["ab"], "length").is_err());
        assert!(answer.compare(&CheckedAnswer { tokens: json!(3), ..answer.clone() }).is_err());
    }
}
