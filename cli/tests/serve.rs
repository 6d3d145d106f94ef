//! `serve`: the life of the process. `server/tests` has the API.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{command, refused, stderr, succeeds, words};

const OPTIONS: &str = "serve --device emulator --cards 2 --max-num-seqs 2 --max-model-len 64 --port 0";

/// A running server with its address. Dropping it kills the process.
struct Serving {
    child: Child,
    messages: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Serving {
    fn start(more: &str) -> Self {
        let line = format!("{OPTIONS} {more}");
        let mut child = command().args(line.split_whitespace()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while messages.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once("http://") {
                let address = rest.split(',').next().unwrap().to_owned();
                assert!(line.starts_with("ready: kjv-qwen2 on 2 of "), "{line}");
                assert!(line.trim_end().ends_with("tokens, no API key"), "{line}");
                return Self { child, messages, address };
            }
            line.clear();
        }
        panic!("the server ended with {:?}", child.wait());
    }

    fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"))
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends a signal. Returns the exit code, and what the process said since it was ready.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut said = String::new();
        self.messages.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

#[test]
fn a_server_answers_logs_and_ends_in_order() {
    let serving = Serving::start("");
    assert!(serving.get("/ready").starts_with("HTTP/1.1 200"));
    super::pages::assert_scripts_parse(&serving.get("/"));
    let body = r#"{"prompt": "In the", "max_tokens": 3, "temperature": 0}"#;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-request-id: mine";
    let answer = serving.send(&format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\" day of the\""), "{answer}");
    let post = |path: &str, id: &str, body: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-request-id: {id}");
        serving.send(&format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    };
    assert!(post("/v1/completions", "malformed", "{").starts_with("HTTP/1.1 400"));
    assert!(post("/nowhere", "unknown", "{}").starts_with("HTTP/1.1 404"));
    assert!(post("/tokenize", "untyped", "[]").starts_with("HTTP/1.1 400"));
    let (code, said) = serving.end(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    for (id, reason) in [
        ("malformed", "the body is not a JSON object"),
        ("unknown", "/nowhere: no such path"),
        ("untyped", "the body is not a JSON object"),
    ] {
        let id = format!("id=\"{id}\"");
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(&id)).collect();
        assert!(lines.len() == 1 && lines[0].contains(reason), "{id}: {said}");
    }
    let line = said.lines().find(|line| line.contains("id=\"mine\"")).unwrap_or_else(|| panic!("{said}"));
    for part in ["prompt_tokens=2", "new_tokens=3", "queue_ms=", "first_token_ms=", "total_ms=", "seed="] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(said.contains("shutting down"), "{said}");
}

#[test]
fn an_interrupt_ends_a_server_too() {
    let (code, said) = Serving::start("--verbose").end(Signal::INT);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_dry_run_prints_the_plan() {
    let report = succeeds(&words(&format!("{OPTIONS} --dry-run")));
    for line in [
        "cache blocks                     2 of 128 tokens",
        "requests at full length          2",
        "sequences at once                2",
    ] {
        assert!(report.lines().any(|found| found == line), "{line}: {report}");
    }
}

#[test]
fn problems_are_reported_before_the_start() {
    let message = refused(&words("serve --device emulator --cards 99 --max-model-len 5000 --api-key="));
    for part in
        ["--cards: not enough cards", "--api-key: is empty", "--max-model-len: is above the model's limit"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    let message = refused(&words("serve --tool-parser x"));
    assert!(message.contains("unknown tool parser"), "{message}");
    let message = refused(&words("serve --device emulator --max-model-len 300 --kv-cache-blocks 2"));
    assert!(message.contains("at least 3 blocks for 300 tokens, found 2"), "{message}");
    let output = command().args(["serve", "--device", "emulator"]).env("ASCEND_TP_API_KEY", "").output();
    let message = stderr(&output.unwrap());
    assert!(message.contains("ASCEND_TP_API_KEY: is empty"), "{message}");
    let message = refused(&words("serve --kv-cache-blocks 0"));
    assert!(message.contains("--kv-cache-blocks"), "{message}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = words(&format!(
        "serve --device emulator --cards 1 --max-num-seqs 1 --max-model-len 64 --port {port}"
    ));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--host, --port: the server cannot listen there"),
        "{}",
        stderr(&output)
    );
}
