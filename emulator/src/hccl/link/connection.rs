//! A link: the one connection between two processes, which carries control messages and the data that neither reaches in
//! the other's memory, and that memory.
//!
//! Input: messages, from any thread. Output: the same on the other side, in order. Invariants: sending a message never
//! blocks (what the socket does not take at once waits for the link's writer), sending data does; when the connection
//! ends, all that is queued is dropped and nothing blocks any more. Does not: read (see `Network`).

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, sockopt};

use super::host;
use super::wire::{self, Message, Process};
use crate::base::failure::{Failure, code};
use crate::memory::peer::PeerMemory;
use crate::memory::place::PeerBuffer;
use crate::memory::raw::RawSpan;
use crate::scheduler::bell::Bell;

/// Another host that does not answer this long is gone, whether there is data on its way to it or not. Processes that die are
/// noticed at once by the end of the connection, which is all there is to notice of one on this host.
const SILENCE: Duration = Duration::from_secs(5);
/// Within it, so many times another host is asked whether it is there.
const PROBES: u32 = 4;

#[derive(Debug)]
pub(crate) struct Link {
    /// The process at the other end.
    pub(crate) peer: Process,
    socket: TcpStream,
    outgoing: Mutex<Outgoing>,
    changed: Condvar,
    /// The peer's memory, where this process reaches it in place, and its bell there.
    memory: Option<(PeerMemory, Bell)>,
    said_farewell: AtomicBool,
}

#[derive(Debug, Default)]
struct Outgoing {
    queue: VecDeque<Vec<u8>>,
    /// Someone writes to the socket, without the lock.
    writing: bool,
    closed: bool,
}

impl Link {
    /// A link over a connection both sides have agreed on; `memory` is the peer's, with its bell, if it can be reached.
    ///
    /// # Errors
    /// The system refuses an option or a thread.
    pub(crate) fn start(
        peer: Process,
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

    /// The socket, for the thread that reads from it.
    ///
    /// # Errors
    /// The system has no file descriptor left.
    pub(crate) fn reader(&self) -> io::Result<TcpStream> {
        self.socket.try_clone()
    }

    /// Sends a message; returns at once.
    pub(crate) fn post(&self, message: &Message) {
        let frame = wire::frame(message, 0);
        let mut outgoing = self.lock();
        if outgoing.closed {
            return;
        }
        let mut sent = 0;
        if !outgoing.writing && outgoing.queue.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // What does not go at once, also for an error, is the writer's; it finds the error again.
            sent = rustix::net::send(&self.socket, &frame, flags).unwrap_or(0);
        }
        if sent < frame.len() {
            outgoing.queue.push_back(frame[sent..].to_vec());
            self.changed.notify_all();
        }
    }

    /// Sends a message with its payload; returns when the bytes have been taken from `payload`.
    ///
    /// # Errors
    /// The connection has ended, or takes nothing for longer than the limit.
    pub(crate) fn send(&self, message: &Message, payload: &[u8]) -> io::Result<()> {
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

    /// Whether this process reaches the peer's memory.
    pub(crate) fn reaches(&self) -> bool {
        self.memory.is_some()
    }

    /// The peer's bytes of a buffer.
    ///
    /// # Errors
    /// The peer's memory cannot be reached, or has no such place.
    pub(crate) fn reach(&self, buffer: PeerBuffer) -> Result<RawSpan, Failure> {
        let unreached = || io::Error::from(io::ErrorKind::PermissionDenied);
        let span = self.memory.as_ref().ok_or_else(unreached).and_then(|(memory, _)| memory.buffer(buffer));
        span.map_err(|error| {
            Failure::new(code::HCCL_INTERNAL, format!("cannot reach the memory of {}: {error}", self.peer))
        })
    }

    /// Lets the peer look at the memory both share.
    pub(crate) fn ring(&self) {
        if let Some((_, bell)) = &self.memory {
            bell.ring();
        }
    }

    /// The peer says its end is orderly.
    pub(crate) fn note_farewell(&self) {
        self.said_farewell.store(true, Ordering::Relaxed);
    }

    /// Whether the peer has said so.
    pub(crate) fn has_farewell(&self) -> bool {
        self.said_farewell.load(Ordering::Relaxed)
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until all that was posted is the socket's, or the connection has ended; until `deadline` at most.
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

    /// Ends the connection; whoever waits on it goes on. Messages that the socket has taken still arrive.
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
            // The reader notices and says what follows from it.
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
    use crate::hccl::link::wire::CHUNK_BYTES;

    #[test]
    fn last_words_leave_behind_data_that_is_still_on_its_way() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let here = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut there, _) = listener.accept().expect("a connection");
        let peer = Process {
            id: 1,
            pid: 1,
            host: "there".into(),
            host_id: host::id(),
            addresses: Vec::new(),
            port: 0,
            secret: 0,
        };
        let link = Link::start(peer, here, None, Duration::from_secs(60)).expect("a link");
        // More than both sockets take while nobody reads.
        const CHUNKS: usize = 256;
        let sender = Arc::clone(&link);
        let data = thread::spawn(move || {
            let chunk = vec![7; CHUNK_BYTES];
            (0..CHUNKS).try_for_each(|_| sender.send(&Message::Farewell, &chunk))
        });
        let mut count = 0;
        while link.lock().queue.is_empty() {
            link.post(&Message::Farewell);
            count += 1;
            thread::yield_now();
        }
        let posted = Arc::clone(&link);
        let end = thread::spawn(move || {
            posted.flush(Instant::now() + Duration::from_secs(60));
            posted.close();
        });
        let (mut payload, mut words) = (Vec::new(), 0);
        while wire::read::<Message>(&mut there, &mut payload).is_ok() {
            words += usize::from(payload.is_empty());
        }
        end.join().expect("it ends");
        // Data that was not begun yet may be lost with the connection; what was posted is not.
        let _sent_or_closed = data.join().expect("it ends");
        assert_eq!(words, count, "messages that were posted and have arrived");
    }
}
