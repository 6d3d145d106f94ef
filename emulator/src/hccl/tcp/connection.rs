//! A link: the TCP connection between two processes, and access to the peer's shared memory. The
//! connection carries control messages, and data that shared memory does not reach.
//!
//! Invariants:
//! - Sending a message never blocks. The writer thread sends bytes that the socket does not accept.
//! - Sending data blocks.
//! - When the connection ends, queued messages are dropped and nothing blocks any more.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, sockopt};

use super::host;
use super::wire::{self, ProcessAddress, WireMessage};
use crate::base::failure::{Failure, code};
use crate::memory::peer::PeerMemory;
use crate::memory::place::PeerBuffer;
use crate::memory::raw::RawSpan;
use crate::scheduler::bell::Bell;

/// Time without an answer after which another host is considered lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Keepalive probes within `SILENCE`.
const PROBES: u32 = 4;

#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) peer: ProcessAddress,
    socket: TcpStream,
    outgoing: Mutex<Outgoing>,
    changed: Condvar,
    /// Set if this process can map the peer's memory.
    memory: Option<(PeerMemory, Bell)>,
    said_farewell: AtomicBool,
}

#[derive(Debug, Default)]
struct Outgoing {
    queue: VecDeque<Vec<u8>>,
    writing: bool,
    closed: bool,
}

impl PeerLink {
    /// The two sides have agreed on the connection. `memory` is the peer's memory with its
    /// notification word.
    pub(crate) fn start(
        peer: ProcessAddress,
        socket: TcpStream,
        memory: Option<(PeerMemory, Bell)>,
        stall_limit: Duration,
    ) -> io::Result<Arc<Self>> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(Some(stall_limit))?;
        if peer.host_id != host::id() {
            let pause = SILENCE / (PROBES + 1);
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, pause)?;
            sockopt::set_tcp_keepintvl(&socket, pause)?;
            sockopt::set_tcp_keepcnt(&socket, PROBES)?;
            #[cfg(target_os = "linux")]
            sockopt::set_tcp_user_timeout(&socket, SILENCE.as_millis() as u32)?;
        }
        let link = Arc::new(Self {
            peer,
            socket,
            outgoing: Mutex::default(),
            changed: Condvar::new(),
            memory,
            said_farewell: AtomicBool::new(false),
        });
        let writer = Arc::clone(&link);
        std::thread::Builder::new().name("ascend-link-write".into()).spawn(move || writer.write_queued())?;
        Ok(link)
    }

    pub(crate) fn reader(&self) -> io::Result<TcpStream> {
        self.socket.try_clone()
    }

    pub(crate) fn post(&self, message: &WireMessage) {
        let frame = wire::frame(message, 0);
        let mut outgoing = self.lock();
        if outgoing.closed {
            return;
        }
        let mut sent = 0;
        if !outgoing.writing && outgoing.queue.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // The writer thread sends the rest, or sees the error again.
            sent = rustix::net::send(&self.socket, &frame, flags).unwrap_or(0);
        }
        if sent < frame.len() {
            outgoing.queue.push_back(frame[sent..].to_vec());
            self.changed.notify_all();
        }
    }

    /// Returns when `payload` may be reused.
    pub(crate) fn send(&self, message: &WireMessage, payload: &[u8]) -> io::Result<()> {
        let header = wire::frame(message, payload.len());
        let mut outgoing = self.lock();
        while (outgoing.writing || !outgoing.queue.is_empty()) && !outgoing.closed {
            outgoing = self.changed.wait(outgoing).unwrap_or_else(PoisonError::into_inner);
        }
        if outgoing.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        outgoing.writing = true;
        drop(outgoing);
        let outcome = write_both(&self.socket, &header, payload);
        self.end_writing(&outcome);
        outcome
    }

    pub(crate) fn reaches(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn reach(&self, buffer: PeerBuffer) -> Result<RawSpan, Failure> {
        let unreached = || io::Error::from(io::ErrorKind::PermissionDenied);
        let span = self.memory.as_ref().ok_or_else(unreached).and_then(|(memory, _)| memory.buffer(buffer));
        span.map_err(|error| {
            Failure::new(code::HCCL_INTERNAL, format!("cannot reach the memory of {}: {error}", self.peer))
        })
    }

    pub(crate) fn ring(&self) {
        if let Some((_, bell)) = &self.memory {
            bell.ring();
        }
    }

    pub(crate) fn note_farewell(&self) {
        self.said_farewell.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_farewell(&self) -> bool {
        self.said_farewell.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns when the socket has accepted all messages, the connection has ended, or `deadline`
    /// has passed.
    pub(crate) fn flush(&self, deadline: Instant) {
        let mut outgoing = self.lock();
        while (outgoing.writing || !outgoing.queue.is_empty()) && !outgoing.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            outgoing = self.changed.wait_timeout(outgoing, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes all waiting threads. Messages already accepted by the socket still arrive.
    pub(crate) fn close(&self) {
        let mut outgoing = self.lock();
        outgoing.closed = true;
        outgoing.queue.clear();
        drop(outgoing);
        let _ = self.socket.shutdown(Shutdown::Both);
        self.changed.notify_all();
    }

    fn write_queued(&self) {
        crate::scheduler::thread::is_of_machine();
        loop {
            let mut outgoing = self.lock();
            while (outgoing.writing || outgoing.queue.is_empty()) && !outgoing.closed {
                outgoing = self.changed.wait(outgoing).unwrap_or_else(PoisonError::into_inner);
            }
            if outgoing.closed {
                return;
            }
            let Some(frame) = outgoing.queue.pop_front() else { continue };
            outgoing.writing = true;
            drop(outgoing);
            let outcome = (&self.socket).write_all(&frame);
            self.end_writing(&outcome);
        }
    }

    fn end_writing(&self, outcome: &io::Result<()>) {
        self.lock().writing = false;
        if outcome.is_err() {
            self.close();
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_both(mut socket: &TcpStream, header: &[u8], payload: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < header.len() {
        match socket.write_vectored(&[IoSlice::new(&header[sent..]), IoSlice::new(payload)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.write_all(&payload[sent - header.len()..])
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::hccl::tcp::wire::CHUNK_BYTES;

    #[test]
    fn last_words_leave_behind_data_that_is_still_on_its_way() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let here = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut there, _) = listener.accept().expect("a connection");
        let peer = ProcessAddress {
            id: 1,
            pid: 1,
            host: "there".into(),
            host_id: host::id(),
            addresses: Vec::new(),
            port: 0,
            secret: 0,
        };
        let link = PeerLink::start(peer, here, None, Duration::from_secs(60)).expect("a link");
        // More data than both socket buffers hold.
        const CHUNKS: usize = 256;
        let sender = Arc::clone(&link);
        let data = thread::spawn(move || {
            let chunk = vec![7; CHUNK_BYTES];
            (0..CHUNKS).try_for_each(|_| sender.send(&WireMessage::Farewell, &chunk))
        });
        let mut count = 0;
        while link.lock().queue.is_empty() {
            link.post(&WireMessage::Farewell);
            count += 1;
            thread::yield_now();
        }
        let posted = Arc::clone(&link);
        let end = thread::spawn(move || {
            posted.flush(Instant::now() + Duration::from_secs(60));
            posted.close();
        });
        let (mut payload, mut words) = (Vec::new(), 0);
        while wire::read::<WireMessage>(&mut there, &mut payload).is_ok() {
            words += usize::from(payload.is_empty());
        }
        end.join().expect("it ends");
        // The connection may lose unsent data, but no posted message.
        let _sent_or_closed = data.join().expect("it ends");
        assert_eq!(words, count, "messages that were posted and have arrived");
    }
}
