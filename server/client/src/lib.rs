//! A small blocking HTTP client for benchmarks and tests of the server.
//!
//! - Input: an address, and requests.
//! - Output: responses, whole or as a stream of server-sent events.
//! - Invariants: a connection has one request at a time. It can be used again after the response
//!   has been read to its end. The client adds no delay: each request is sent with one write.
//! - Not here: TLS, redirects, proxies, retries.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A request.
///
/// ```
/// use ascend_tp_server_client::HttpRequest;
///
/// let request = HttpRequest { headers: &[("x-request-id", "1")], ..HttpRequest::get("/health") };
/// let head = b"GET /health HTTP/1.1\r\nhost: test\r\nx-request-id: 1\r\n";
/// assert!(request.bytes().starts_with(head));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// Method, in capital letters.
    pub method: &'a str,
    /// Path with its query.
    pub path: &'a str,
    /// Headers, in addition to `host` and `content-length`.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body.
    pub body: &'a [u8],
}

impl<'a> HttpRequest<'a> {
    /// Creates a request without a body.
    #[must_use]
    pub const fn get(path: &'a str) -> Self {
        Self { method: "GET", path, headers: &[], body: b"" }
    }

    /// Creates a request with a body of JSON.
    #[must_use]
    pub const fn post(path: &'a str, body: &'a [u8]) -> Self {
        Self { method: "POST", path, headers: &[("content-type", "application/json")], body }
    }

    /// Returns the bytes that are sent.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let Self { method, path, headers, body } = self;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
        for (name, value) in *headers {
            head.extend([*name, ": ", *value, "\r\n"]);
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        [head.as_bytes(), body].concat()
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Opens a connection, on which each read ends after `limit`.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn open(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(limit))?;
        Self::of(stream)
    }

    /// Takes an open connection, on which a request may have been sent.
    ///
    /// # Errors
    /// The options of the socket cannot be set.
    pub fn of(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub fn send(&mut self, request: &HttpRequest<'_>) -> io::Result<()> {
        self.reader.get_mut().write_all(&request.bytes())
    }

    /// Reads the head of the response.
    ///
    /// # Errors
    /// The connection ends or times out, or the response is malformed.
    pub fn receive(&mut self) -> io::Result<Response<'_>> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| malformed("the status line", &first))?;
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header", &line))?;
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let framing = match (headers.get("transfer-encoding"), headers.get("content-length")) {
            (Some(encoding), _) if encoding == "chunked" => Framing::ChunkStart,
            (_, Some(length)) => {
                let left = length.parse().map_err(|_not_a_number| malformed("content-length", length))?;
                Framing::Bytes { left }
            }
            _ => Framing::Close,
        };
        Ok(Response { status, headers, body: Body { reader: &mut self.reader, framing } })
    }

    /// Sends a request, and reads the whole response.
    ///
    /// # Errors
    /// As [`Connection::send`] and [`Connection::receive`].
    pub fn request(&mut self, request: &HttpRequest<'_>) -> io::Result<WholeResponse> {
        self.send(request)?;
        self.receive()?.whole()
    }

    fn line(&mut self) -> io::Result<String> {
        read_line(&mut self.reader)
    }
}

/// A response with its whole body.
#[derive(Clone, Debug)]
pub struct WholeResponse {
    /// Status, such as 200.
    pub status: u16,
    /// Headers with names in small letters.
    pub headers: BTreeMap<String, String>,
    /// Body, without the framing of chunks.
    pub body: Vec<u8>,
}

/// A response whose body is being received.
#[derive(Debug)]
pub struct Response<'a> {
    /// Status, such as 200.
    pub status: u16,
    /// Headers with names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The rest of the body.
    pub body: Body<'a>,
}

impl<'a> Response<'a> {
    /// Reads the rest of the body.
    ///
    /// # Errors
    /// The connection ends or times out.
    pub fn whole(mut self) -> io::Result<WholeResponse> {
        let mut body = Vec::new();
        self.body.read_to_end(&mut body)?;
        let Self { status, headers, .. } = self;
        Ok(WholeResponse { status, headers, body })
    }

    /// Returns the events of a stream.
    #[must_use]
    pub fn events(self) -> Events<'a> {
        Events { body: self.body, received: Vec::new() }
    }
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Bytes {
        left: u64,
    },
    /// Before the size of a chunk.
    ChunkStart,
    Chunk {
        left: u64,
    },
    /// The body ends with the connection.
    Close,
    Over,
}

/// The body of a response, without the framing of chunks.
#[derive(Debug)]
pub struct Body<'a> {
    reader: &'a mut BufReader<TcpStream>,
    framing: Framing,
}

impl Body<'_> {
    /// Reads the next bytes, of which `left` remain.
    fn read_some(&mut self, buffer: &mut [u8], left: u64) -> io::Result<u64> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match self.reader.read(&mut buffer[..most])? {
            0 if most > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count as u64),
        }
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = match self.framing {
                Framing::Over => return Ok(0),
                Framing::Close => return self.reader.read(buffer),
                Framing::Bytes { left: 0 } => {
                    self.framing = Framing::Over;
                    continue;
                }
                Framing::Bytes { left } => {
                    let count = self.read_some(buffer, left)?;
                    self.framing = Framing::Bytes { left: left - count };
                    count
                }
                Framing::ChunkStart => {
                    let line = read_line(self.reader)?;
                    let size = line.split(';').next().unwrap_or_default();
                    let left = u64::from_str_radix(size, 16)
                        .map_err(|_not_a_number| malformed("the size of a chunk", &line))?;
                    if left == 0 {
                        read_line(self.reader)?;
                        self.framing = Framing::Over;
                    } else {
                        self.framing = Framing::Chunk { left };
                    }
                    continue;
                }
                Framing::Chunk { left: 0 } => {
                    read_line(self.reader)?;
                    self.framing = Framing::ChunkStart;
                    continue;
                }
                Framing::Chunk { left } => {
                    let count = self.read_some(buffer, left)?;
                    self.framing = Framing::Chunk { left: left - count };
                    count
                }
            };
            return Ok(count as usize);
        }
    }
}

/// The data of server-sent events, as they arrive.
#[derive(Debug)]
pub struct Events<'a> {
    body: Body<'a>,
    /// Bytes after the last event.
    received: Vec<u8>,
}

impl Iterator for Events<'_> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(end) = self.received.windows(2).position(|bytes| bytes == b"\n\n") {
                let event: Vec<u8> = self.received.drain(..end + 2).collect();
                let event = String::from_utf8_lossy(&event[..end]).into_owned();
                // Other lines are comments and names, which the servers do not send.
                let data = event.strip_prefix("data: ").ok_or_else(|| malformed("an event", &event));
                return Some(data.map(str::to_owned));
            }
            let mut buffer = [0; 4096];
            match self.body.read(&mut buffer) {
                Ok(0) if self.received.is_empty() => return None,
                Ok(0) => return Some(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.received.extend(&buffer[..count]),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn read_line(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn malformed(what: &str, found: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is malformed: `{found}`"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// Answers one connection with `bytes`, one at a time, after any request.
    fn answering(bytes: &'static [u8]) -> (Connection, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _request = stream.read(&mut [0; 4096]).unwrap();
            stream.set_nodelay(true).unwrap();
            bytes.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        });
        let mut connection = Connection::open(address, Duration::from_secs(60)).unwrap();
        connection.send(&HttpRequest::get("/")).unwrap();
        (connection, thread)
    }

    #[test]
    fn two_responses_follow_on_one_connection() {
        let (mut connection, thread) = answering(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
              HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n1;x=y\r\nf\r\n0\r\n\r\n\
              HTTP/1.1 500 Error\r\n\r\nrest",
        );
        for (status, body) in [(200, &b"abc"[..]), (404, b"def"), (500, b"rest")] {
            let found = connection.receive().unwrap().whole().unwrap();
            if status == 500 {
                // The body ends with the connection.
                assert!(found.headers.is_empty());
            }
            assert_eq!((found.status, found.body.as_slice()), (status, body));
        }
        thread.join().unwrap();
    }

    #[test]
    fn events_come_one_by_one() {
        let (mut connection, thread) = answering(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\na\r\ndata: b\n\nd\r\n8\r\nata: c\n\n\r\n0\r\n\r\n",
        );
        let events: Vec<String> = connection.receive().unwrap().events().collect::<io::Result<_>>().unwrap();
        assert_eq!(events, ["a", "b", "c"]);
        thread.join().unwrap();
    }

    #[test]
    fn an_early_end_is_an_error() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"[..],
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            b"HTTP/1.1 200",
            b"",
        ] {
            let (mut connection, thread) = answering(bytes);
            let response = connection.receive().and_then(Response::whole);
            assert_eq!(response.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            thread.join().unwrap();
        }
    }
}
