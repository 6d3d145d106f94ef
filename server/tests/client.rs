//! A small HTTP client: one connection per request.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ascend_tp_server_client::{Connection, HttpRequest, WholeResponse};
use serde_json::Value;

/// A limit that only a hanging server reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Returns the body of an answer with status 200.
    #[track_caller]
    pub(crate) fn answer(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// Returns the error object of an answer with another status.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let error = self.json()["error"].clone();
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        error
    }

    /// Returns the JSON of each event of a stream, without the last one.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let text = self.text();
        let mut events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
        let json = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        events.into_iter().map(json).collect()
    }
}

impl Client {
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    pub(crate) fn connect(self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    pub(crate) fn get(self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    /// Opens a connection and sends a request. The answer is not read.
    pub(crate) fn open(self, path: &str, body: &Value) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(&bytes("POST", path, &[], body.to_string().as_bytes())).unwrap();
        stream
    }

    pub(crate) fn send(self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut stream = self.connect();
        stream.write_all(&bytes(method, path, headers, body)).unwrap();
        read(stream)
    }

    /// Returns the value of a series of `/metrics`.
    #[track_caller]
    pub(crate) fn metric(self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until a gauge of `/metrics` has a value.
    #[track_caller]
    pub(crate) fn wait_for(self, gauge: &str, is_there: impl Fn(f64) -> bool) {
        let started = Instant::now();
        loop {
            let value = self.metric(gauge);
            if is_there(value) {
                return;
            }
            assert!(started.elapsed() < LIMIT, "{gauge} is still {value}");
            std::thread::yield_now();
        }
    }
}

/// Returns the bytes of a request that closes its connection.
fn bytes(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let headers: Vec<(&str, &str)> = [("connection", "close")].iter().chain(headers).copied().collect();
    HttpRequest { method, path, headers: &headers, body }.bytes()
}

/// Reads a whole response.
pub(crate) fn read(stream: TcpStream) -> Response {
    let WholeResponse { status, headers, body } =
        Connection::of(stream).unwrap().receive().and_then(|response| response.whole()).unwrap();
    Response { status, headers, body }
}
