//! Requests over HTTP: throughput of many streams, and the time that HTTP adds to the first token.
//!
//! - Input: the address of a running server with an API compatible with OpenAI's.
//! - Output: [`Throughput`], and [`FirstTokens`].
//! - Invariants: all streams start together, on connections that are already open. A server that
//!   answers with another number of tokens is an error.
//! - Not here: starting of servers.

use std::io;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ascend_tp_server_client::{Connection, HttpRequest};
use serde_json::{Value, json};

use super::error::Error;
use super::report::{CellForm, Column, MeasuredTable, column};
use super::serve::{LENGTHS, Throughput};
use super::{Effort, Samples};
use ascend_tp::base::{Diagnostic, Diagnostics};

const PATH: &str = "/v1/completions";

/// Time without a byte after which a server has failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Tokens of the prompts whose first token is timed, and of their answers.
const FIRST_TOKEN_LENGTHS: [usize; 2] = [16, 2];

/// Number of requests before the first one that counts.
const WARM_UP: usize = 5;

/// Returns whether a server accepts requests.
#[must_use]
pub(crate) fn is_ready(address: SocketAddr) -> bool {
    let asked = Connection::open(address, LIMIT)
        .and_then(|mut connection| connection.request(&HttpRequest::get("/health")));
    asked.is_ok_and(|response| response.status == 200)
}

/// Returns the body of a request for the tokens of a stream. Fields that only one server has are
/// ignored by the other one.
fn body(stream: usize, vocabulary: usize, lengths: [usize; 2]) -> Vec<u8> {
    let [prompt, tokens] = lengths;
    let ids: Vec<usize> = (0..prompt).map(|at| (at + 31 * stream) * 7919 % vocabulary).collect();
    let body = json!({
        "prompt": ids,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": true,
        "stream": true,
        "stream_options": {"include_usage": true},
        "cache_prompt": false,
    });
    body.to_string().into_bytes()
}

/// Reads a stream. Returns the arrival of each token.
fn arrivals(connection: &mut Connection, tokens: usize) -> io::Result<Vec<Instant>> {
    let response = connection.receive()?;
    if response.status != 200 {
        let refused = response.whole()?;
        let text = String::from_utf8_lossy(&refused.body);
        return Err(io::Error::other(format!("status {}: {text}", refused.status)));
    }
    let (mut arrivals, mut counted) = (Vec::with_capacity(tokens), None);
    for event in response.events() {
        let (event, now) = (event?, Instant::now());
        // The processor also runs the server, so only the chunk with the usage is parsed.
        if event.contains("\"finish_reason\":null") {
            arrivals.push(now);
        }
        if event.contains("\"usage\":{") {
            let chunk: Value = serde_json::from_str(&event)?;
            counted = chunk["usage"]["completion_tokens"].as_u64();
        }
    }
    if counted != Some(tokens as u64) || arrivals.is_empty() {
        let found = counted.map_or_else(|| "no usage".to_owned(), |counted| counted.to_string());
        return Err(io::Error::other(format!("expected {tokens} tokens, found {found}")));
    }
    Ok(arrivals)
}

fn refused(address: SocketAddr, error: &io::Error) -> Error {
    Diagnostics::from(Diagnostic::new(format!("http://{address}{PATH}"), "the request failed").found(error))
        .into()
}

/// Measures streams that start together. The prompts have ids below `vocabulary`.
pub(crate) fn streams(address: SocketAddr, streams: usize, vocabulary: usize) -> Result<Throughput, Error> {
    let ready = Barrier::new(streams + 1);
    let run = |stream: usize| {
        let body = body(stream, vocabulary, LENGTHS);
        let connection = Connection::open(address, LIMIT);
        ready.wait();
        let mut connection = connection?;
        connection.send(&HttpRequest::post(PATH, &body))?;
        arrivals(&mut connection, LENGTHS[1])
    };
    let (started, measured) = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..streams).map(|stream| scope.spawn(move || run(stream))).collect();
        ready.wait();
        let started = Instant::now();
        let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<Vec<Instant>>>| {
            thread.join().unwrap_or_else(|_panic| Err(io::Error::other("the client panicked")))
        };
        (started, threads.into_iter().map(join).collect::<io::Result<Vec<_>>>())
    });
    let measured = measured.map_err(|error| refused(address, &error))?;
    throughput(started, &measured).ok_or_else(|| refused(address, &io::Error::other("no token")))
}

/// Returns the rates of streams by the arrivals of their tokens. Tokens count as decoded if they
/// arrive after each stream has its first one.
fn throughput(started: Instant, arrivals: &[Vec<Instant>]) -> Option<Throughput> {
    let [prompt, tokens] = LENGTHS;
    let all_begun = arrivals.iter().filter_map(|stream| stream.first()).max().copied()?;
    let end = arrivals.iter().flatten().max().copied()?;
    let decoded = arrivals.iter().flatten().filter(|arrival| **arrival > all_begun).count();
    Some(Throughput {
        streams: arrivals.len(),
        decode: decoded as f64 / (end - all_begun).as_secs_f64(),
        total: (arrivals.len() * (prompt + tokens)) as f64 / (end - started).as_secs_f64(),
    })
}

/// Whether requests share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionReuse {
    Kept,
    New,
}

/// Times to the first token, one request at a time.
#[derive(Clone, Debug)]
pub(crate) struct FirstTokens {
    reuse: ConnectionReuse,
    /// From the client's request, with the connection if it is new.
    client: Samples,
    /// From the arrival of the request at the server.
    server: Samples,
    /// Client's time minus the server's, of the same request.
    added: Samples,
}

/// Measures the time to the first token as the client and as the server see it.
pub(crate) fn first_tokens(
    address: SocketAddr,
    vocabulary: usize,
    effort: Effort,
) -> Result<Vec<FirstTokens>, Error> {
    let requests = match effort {
        Effort::Quick => 200,
        Effort::Full => 1000,
    };
    let all = [ConnectionReuse::Kept, ConnectionReuse::New].into_iter();
    all.map(|reuse| first_tokens_of(address, vocabulary, reuse, requests))
        .collect::<io::Result<_>>()
        .map_err(|error| refused(address, &error))
}

fn first_tokens_of(
    address: SocketAddr,
    vocabulary: usize,
    reuse: ConnectionReuse,
    requests: usize,
) -> io::Result<FirstTokens> {
    let mut metrics = Connection::open(address, LIMIT)?;
    let mut kept = Connection::open(address, LIMIT)?;
    let (mut client, mut server, mut added) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = server_seconds(&mut metrics)?;
    for number in 0..WARM_UP + requests {
        let body = body(number, vocabulary, FIRST_TOKEN_LENGTHS);
        let started = Instant::now();
        let mut new = match reuse {
            ConnectionReuse::Kept => None,
            ConnectionReuse::New => Some(Connection::open(address, LIMIT)?),
        };
        let connection = new.as_mut().unwrap_or(&mut kept);
        connection.send(&HttpRequest::post(PATH, &body))?;
        let first = arrivals(connection, FIRST_TOKEN_LENGTHS[1])?[0];
        let after = server_seconds(&mut metrics)?;
        let (seen, own) = ((first - started).as_secs_f64(), after - before);
        before = after;
        if number >= WARM_UP {
            client.push(seen);
            server.push(own);
            added.push(seen - own);
        }
    }
    let [client, server, added] = [client, server, added].map(Samples::new);
    Ok(FirstTokens { reuse, client, server, added })
}

/// Returns the sum of the server's times to first tokens, in seconds.
fn server_seconds(connection: &mut Connection) -> io::Result<f64> {
    const SERIES: &str = "ascend_tp_time_to_first_token_seconds_sum{";
    let response = connection.request(&HttpRequest::get("/metrics"))?;
    let text = String::from_utf8_lossy(&response.body).into_owned();
    let line = text.lines().find(|line| line.starts_with(SERIES));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("/metrics has no {SERIES}…}}")))
}

const COLUMNS: [Column; 6] = [
    column("connection", "connection", CellForm::Text),
    column("requests", "requests", CellForm::Whole),
    column("client_ms", "client ms", CellForm::Decimal),
    column("server_ms", "server ms", CellForm::Decimal),
    column("added_ms", "added ms", CellForm::Decimal),
    column("added_p99_ms", "p99 ms", CellForm::Decimal),
];

/// Returns the medians, and the 99th percentile of the time that HTTP adds.
#[must_use]
pub(crate) fn first_token_table(measured: &[FirstTokens]) -> MeasuredTable {
    let title = "Time to the first token over HTTP, one request at a time";
    let mut table = MeasuredTable::new("serve_first_token", title, &COLUMNS);
    for FirstTokens { reuse, client, server, added } in measured {
        table.row([
            match reuse {
                ConnectionReuse::Kept => "kept",
                ConnectionReuse::New => "new",
            }
            .into(),
            added.len().into(),
            (client.median() * 1e3).into(),
            (server.median() * 1e3).into(),
            (added.median() * 1e3).into(),
            (added.at(0.99) * 1e3).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn tokens_count_as_decoded_after_the_last_stream_has_begun() {
        let started = Instant::now();
        let at = |seconds: &[u64]| -> Vec<Instant> {
            seconds.iter().map(|seconds| started + Duration::from_secs(*seconds)).collect()
        };
        let found = throughput(started, &[at(&[1, 2, 3, 4]), at(&[2, 3, 4])]).unwrap();
        let total = (2 * (LENGTHS[0] + LENGTHS[1])) as f64 / 4.0;
        assert_eq!(found, Throughput { streams: 2, decode: 4.0 / 2.0, total });
        assert_eq!(throughput(started, &[vec![]]), None);
    }

    /// Answers one request with these chunks.
    fn answered(chunks: &[&str]) -> io::Result<Vec<Instant>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _request = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{body}").as_bytes()).unwrap();
        });
        let mut connection = Connection::open(address, LIMIT)?;
        connection.send(&HttpRequest::post(PATH, &body_of_test()))?;
        let arrivals = arrivals(&mut connection, 2);
        thread.join().unwrap();
        arrivals
    }

    fn body_of_test() -> Vec<u8> {
        body(1, 100, [2, 2])
    }

    #[test]
    fn a_stream_has_as_many_tokens_as_requested() {
        let token = r#"{"choices":[{"text":"a","finish_reason":null}],"usage":null}"#;
        let end = r#"{"choices":[{"text":"","finish_reason":"length"}],"usage":null}"#;
        let usage = |tokens: u32| format!(r#"{{"choices":[],"usage":{{"completion_tokens":{tokens}}}}}"#);
        assert_eq!(answered(&[token, token, end, &usage(2), "[DONE]"]).unwrap().len(), 2);
        let problem = |chunks: &[&str]| answered(chunks).unwrap_err().to_string();
        assert_eq!(problem(&[token, token, &usage(3)]), "expected 2 tokens, found 3");
        assert_eq!(problem(&[token, "[DONE]"]), "expected 2 tokens, found no usage");
        let request: Value = serde_json::from_slice(&body_of_test()).unwrap();
        assert_eq!(request["prompt"], json!([31 * 7919 % 100, 32 * 7919 % 100]));
    }
}
