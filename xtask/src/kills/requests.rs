//! Requests that run while a process of `serve` is killed.
//!
//! Clients keep [`CLIENTS`] streams running, and leave some streams early. After the signal, every
//! running request must end within the limit. If the process that answers was not hit, a request
//! must be complete or end with an error that names the hit rank.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ascend_tp_server_client::{Connection, HttpRequest};

use super::{LIMIT, LOOK, PATIENCE, names};

const CLIENTS: usize = 16;

const READY: Duration = Duration::from_secs(60);

/// One in this number of streams is left after its first event.
const LEFT: usize = 5;

/// The streams of all clients. Dropping the value ends the clients.
pub(super) struct RunningRequests {
    clients: Vec<JoinHandle<()>>,
    ends: Arc<Mutex<Vec<RequestEnd>>>,
    is_over: Arc<AtomicBool>,
}

/// The end of a request that was not left.
#[derive(Clone, Debug)]
struct RequestEnd {
    started: Instant,
    ended: Instant,
    /// The error of the stream or of the connection, or `[DONE]`.
    last: String,
}

impl RunningRequests {
    /// Waits until the server is ready, and starts the clients.
    pub(super) fn start(address: SocketAddr) -> Result<Self> {
        let started = Instant::now();
        while !is_ready(address) {
            if started.elapsed() > READY {
                bail!("the server at {address} was not ready after {} s", READY.as_secs());
            }
            std::thread::sleep(LOOK);
        }
        let (ends, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let client = |number: usize| {
            let (ends, is_over) = (Arc::clone(&ends), Arc::clone(&is_over));
            std::thread::spawn(move || run_client(address, number, &ends, &is_over))
        };
        Ok(Self { clients: (0..CLIENTS).map(client).collect(), ends, is_over })
    }

    /// Ends the clients. Returns the faults of the requests that ran at `hit`, if the process of
    /// `rank` with number `process` was hit then. `answers`: the process that answers goes on.
    pub(super) fn findings(mut self, hit: Instant, answers: bool, rank: usize, process: u32) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        let started = Instant::now();
        while self.clients.iter().any(|client| !client.is_finished()) && started.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        let hanging = self.clients.iter().filter(|client| !client.is_finished()).count();
        // The threads that hang end with the server.
        self.clients.clear();
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let running: Vec<_> = ends.iter().filter(|end| end.started < hit && end.ended > hit).collect();
        let mut findings = Vec::new();
        if hanging > 0 {
            findings.push(format!("{hanging} requests had not ended after {} s", PATIENCE.as_secs()));
        } else if running.is_empty() {
            findings.push("no request ran at the signal".to_owned());
        }
        for end in running {
            let after = end.ended - hit;
            if after > LIMIT {
                findings.push(format!("a request ended after {:.2} s: {}", after.as_secs_f64(), end.last));
            }
            if answers && end.last != DONE && !names(&end.last, rank, process) {
                findings
                    .push(format!("a request does not name rank {rank}, process {process}: {}", end.last));
            }
        }
        findings
    }
}

impl Drop for RunningRequests {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The last event of a complete stream.
const DONE: &str = "[DONE]";

fn is_ready(address: SocketAddr) -> bool {
    let ready = Connection::open(address, LIMIT)
        .and_then(|mut connection| connection.request(&HttpRequest::get("/ready")));
    ready.is_ok_and(|response| response.status == 200)
}

fn run_client(address: SocketAddr, number: usize, ends: &Mutex<Vec<RequestEnd>>, is_over: &AtomicBool) {
    let mut sent = number;
    while !is_over.load(Ordering::Relaxed) {
        let is_left = sent.is_multiple_of(LEFT);
        sent += 1;
        let started = Instant::now();
        let last = stream(address, sent, is_left);
        if is_left && last.is_ok() {
            continue;
        }
        let is_refused = last.is_err();
        let last = last.unwrap_or_else(|error| error.to_string());
        let end = RequestEnd { started, ended: Instant::now(), last };
        ends.lock().unwrap_or_else(PoisonError::into_inner).push(end);
        if is_refused {
            std::thread::sleep(LOOK);
        }
    }
}

/// Returns the error of a stream, `[DONE]` if there is none, or the first event of a stream that is
/// left.
fn stream(address: SocketAddr, seed: usize, is_left: bool) -> std::io::Result<String> {
    let mut connection = Connection::open(address, PATIENCE)?;
    let body = format!(
        "{{\"prompt\": \"In the beginning\", \"max_tokens\": 300, \"ignore_eos\": true, \"stream\": true, \
         \"temperature\": 1, \"seed\": {seed}}}"
    );
    connection.send(&HttpRequest::post("/v1/completions", body.as_bytes()))?;
    let response = connection.receive()?;
    if response.status != 200 {
        return Ok(String::from_utf8_lossy(&response.whole()?.body).into_owned());
    }
    let mut said = None;
    for event in response.events() {
        let event = event?;
        if event.contains("\"error\"") {
            said = Some(event);
        } else if event == DONE {
            return Ok(said.unwrap_or(event));
        } else if is_left {
            return Ok(event);
        }
    }
    Ok("the stream ended without [DONE]".to_owned())
}
