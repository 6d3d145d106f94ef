//! Clients that disconnect, full queues, shutdown, failures.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use ascend_tp::emulator::{Calls, Fault};
use ascend_tp_server::{RESERVED_CONNECTIONS, ServeError, ServeLimits};
use ascend_tp_server_client::{Connection, HttpRequest};
use serde_json::{Value, json};

use crate::client::{Client, LIMIT, read};
use crate::{Running, Setup, shared};

const PATH: &str = "/v1/completions";
const RUNNING: &str = "ascend_tp_requests_running";
const WAITING: &str = "ascend_tp_requests_waiting";
const USAGE: &str = "ascend_tp_cache_usage_ratio";
const NEW_TOKENS: &str = "ascend_tp_new_tokens_total";

/// Number of new tokens of an endless request.
const ENDLESS_TOKENS: usize = 1000;

/// A request that ends only with its context.
fn endless(streams: bool) -> Value {
    json!({"prompt": "The", "max_tokens": ENDLESS_TOKENS, "ignore_eos": true, "stream": streams})
}

/// Checks that cancelled requests have generated less than half of `requests` whole answers.
#[track_caller]
fn assert_cancelled(client: Client, requests: usize) {
    let (generated, whole) = (client.metric(NEW_TOKENS), (requests * ENDLESS_TOKENS) as f64);
    assert!(generated < whole / 2.0, "{generated} of {whole} tokens");
}

fn server(batch: usize, limits: ServeLimits) -> Running {
    Running::start(Setup { batch, context: 1024, limits, ..Setup::default() })
}

#[test]
fn a_disconnected_client_frees_its_blocks() {
    let server = server(4, ServeLimits::default());
    let client = server.client();
    for streams in [true, false] {
        let streams: Vec<_> = (0..3).map(|_| client.open(PATH, &endless(streams))).collect();
        client.wait_for(RUNNING, |running| running == 3.0);
        drop(streams);
        client.wait_for(RUNNING, |running| running == 0.0);
        client.wait_for(USAGE, |usage| usage == 0.0);
    }
    // A client that closes its half only is gone, too.
    let half = client.open(PATH, &endless(true));
    client.wait_for(RUNNING, |running| running == 1.0);
    half.shutdown(Shutdown::Write).unwrap();
    client.wait_for(RUNNING, |running| running == 0.0);
    assert_cancelled(client, 7);
    server.end().unwrap();
}

#[test]
fn a_full_queue_refuses_requests() {
    let server = server(1, ServeLimits { waiting: 1, ..ServeLimits::default() });
    let client = server.client();
    let first = client.open(PATH, &endless(true));
    client.wait_for(RUNNING, |running| running == 1.0);
    let second = client.open(PATH, &json!({"prompt": "The", "max_tokens": 2}));
    client.wait_for(WAITING, |waiting| waiting == 1.0);
    let refused = client.post(PATH, &endless(false));
    assert_eq!(refused.error(429)["message"], "the queue is full: 1 requests wait");
    assert_eq!(refused.headers["retry-after"], "1");
    // The waiting request runs when the first client is gone.
    drop(first);
    read(second).answer();
    assert_cancelled(client, 1);
    server.end().unwrap();
}

#[test]
fn a_request_does_not_wait_for_ever() {
    let wait = Duration::from_millis(20);
    let server = server(1, ServeLimits { wait, ..ServeLimits::default() });
    let client = server.client();
    let first = client.open(PATH, &endless(true));
    client.wait_for(RUNNING, |running| running == 1.0);
    for streams in [true, false] {
        let refused = client.post(PATH, &endless(streams));
        assert_eq!(refused.error(429)["message"], "the request waited longer than 0.02 s");
    }
    drop(first);
    server.end().unwrap();
}

#[test]
fn a_stopped_server_finishes_what_runs() {
    let server = server(2, ServeLimits::default());
    let client = server.client();
    client.get("/ready").answer();
    // The connection of a probe that came before the stop signal.
    let running = client.open(PATH, &json!({"prompt": "The", "max_tokens": 400, "ignore_eos": true}));
    client.wait_for(RUNNING, |running| running == 1.0);
    server.stop.stop();
    let refused = loop {
        let ready = client.get("/ready");
        if ready.status != 200 {
            break ready;
        }
    };
    assert_eq!(refused.error(503)["message"], "the server is shutting down");
    client.get("/health").answer();
    let refused = client.post(PATH, &endless(true));
    refused.error(503);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(read(running).answer()["usage"]["completion_tokens"], 400);
    server.end().unwrap();
}

#[test]
fn a_stopped_server_ends_what_runs_too_long() {
    let shutdown = Duration::ZERO;
    let server = server(3, ServeLimits { shutdown, ..ServeLimits::default() });
    let client = server.client();
    let whole = client.open(PATH, &endless(false));
    let mut streamed = client.open(PATH, &endless(true));
    client.wait_for(RUNNING, |running| running == 2.0);
    // The stream has begun.
    let mut first = [0; 200];
    let length = streamed.read(&mut first).unwrap();
    assert!(first[..length].starts_with(b"HTTP/1.1 200"));
    server.end().unwrap();
    assert_eq!(read(whole).error(503)["message"], "the server is shutting down");
    let mut rest = String::new();
    streamed.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"message\":\"the server is shutting down\""), "{rest}");
    assert!(rest.contains("data: [DONE]"), "{rest}");
}

#[test]
fn a_slow_head_or_body_is_ended() {
    let read_limit = Duration::from_millis(50);
    let server = server(1, ServeLimits { read: read_limit, ..ServeLimits::default() });
    let mut head = server.client().connect();
    head.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n").unwrap();
    let mut answer = Vec::new();
    head.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
    let mut body = server.client().connect();
    body.write_all(
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{",
    )
    .unwrap();
    let message = read(body).error(408)["message"].clone();
    assert_eq!(message, "the body did not arrive within 0.05 s");
    server.end().unwrap();
}

/// A client may send bytes that nobody reads while the server answers, such as a next request.
#[test]
fn a_client_with_further_bytes_frees_its_blocks() {
    let server = server(4, ServeLimits::default());
    let client = server.client();
    for streams in [true, false] {
        for ends in [Shutdown::Write, Shutdown::Both] {
            let mut stream = client.open(PATH, &endless(streams));
            stream.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\nGET").unwrap();
            client.wait_for(RUNNING, |running| running == 1.0);
            stream.shutdown(ends).unwrap();
            client.wait_for(RUNNING, |running| running == 0.0);
            client.wait_for(USAGE, |usage| usage == 0.0);
        }
    }
    assert_cancelled(client, 4);
    server.end().unwrap();
}

#[test]
fn requests_on_one_connection_are_answered_in_turn() {
    let mut stream = shared().connect();
    let body = json!({"prompt": "The", "max_tokens": 2, "temperature": 0}).to_string();
    let request = HttpRequest::post(PATH, body.as_bytes()).bytes();
    stream.write_all(&[request.as_slice(), &request, &HttpRequest::get("/health").bytes()].concat()).unwrap();
    let mut connection = Connection::of(stream).unwrap();
    let mut next = || connection.receive().and_then(|response| response.whole()).unwrap();
    let text = |body: &[u8]| -> Value {
        serde_json::from_slice::<Value>(body).unwrap()["choices"][0]["text"].clone()
    };
    let [first, second] = [(); 2].map(|()| text(&next().body));
    assert!(first.is_string() && first == second, "{first} {second}");
    assert_eq!(next().body, br#"{"status":"ok"}"#);
}

#[test]
fn probes_are_answered_although_all_connections_are_used() {
    let server = server(1, ServeLimits { connections: 1, ..ServeLimits::default() });
    let client = server.client();
    let first = client.connect();
    // More idle connections than are reserved for probes.
    let idle: Vec<_> = (0..RESERVED_CONNECTIONS + 2).map(|_| client.connect()).collect();
    for path in ["/health", "/ready", "/metrics", "/version"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    let body = json!({"prompt": "The", "max_tokens": 2});
    let refused = client.post(PATH, &body);
    let message = refused.error(503)["message"].clone();
    assert_eq!(message, "all 1 connections are in use; raise --max-connections");
    assert_eq!(refused.headers["retry-after"], "1");
    drop((first, idle));
    let started = Instant::now();
    while client.post(PATH, &body).status != 200 {
        assert!(started.elapsed() < LIMIT, "the place of a closed connection is not free");
    }
    server.end().unwrap();
}

#[test]
fn a_failed_engine_ends_requests_and_the_server() {
    let server = server(1, ServeLimits::default());
    let client = server.client();
    // A request to its end makes more calls on a card.
    let calls = Calls::nth(5_000).on(1);
    let _injected = server.emulator.inject(Fault::Error { calls, code: 507_015 }).unwrap();
    let [running, queued] = [(); 2].map(|()| client.open(PATH, &endless(false)));
    let names_card = |message: &str| message.contains("card 1") || message.contains("rank 1");
    for response in [read(running), read(queued)] {
        let message = response.error(500)["message"].clone();
        assert!(names_card(message.as_str().unwrap()), "{message}");
    }
    let ended = server.thread.join().unwrap().unwrap_err();
    assert!(matches!(&ended, ServeError::Engine(_)) && names_card(&ended.to_string()), "{ended}");
}
