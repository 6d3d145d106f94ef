//! The protocol between the processes and rank 0's store.
//!
//! A [`StoreMessage`] is a frame: its length in four bytes, then kind and fields, in little endian.
//! Bytes from an unknown program give an error and no large allocation, because the first frame is
//! limited to [`HELLO_BYTES`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Mark of a hello, between its kind and the version.
const MAGIC: [u8; 7] = *b"ascendt";

pub(super) const VERSION: u8 = 3;

/// Maximum length of a hello frame in bytes.
pub(super) const HELLO_BYTES: usize = 4096;

const PIECE_BYTES: usize = 64 << 10;

/// Maximum length of any other frame in bytes.
pub(super) const FRAME_BYTES: usize = 1 << 30;

/// Identity of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Rank in the world.
    pub rank: usize,
    /// World size, as this process knows it.
    pub size: usize,
    /// Process id on its host.
    pub process_id: u32,
    /// Name of the host.
    pub host: String,
    /// Identifier of the host, unique even if two hosts have the same name.
    pub host_id: String,
    /// Index of the process on its host, if the launcher gives it.
    pub local_rank: Option<usize>,
    /// Card index. `None` before the rendezvous if the launcher gives none.
    pub card: Option<usize>,
    /// Physical card, if known.
    pub physical_card: Option<usize>,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(card) = self.card {
            write!(f, " (card {card}, process {} on {})", self.process_id, self.host)
        } else {
            write!(f, " (process {} on {})", self.process_id, self.host)
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreMessage {
    /// Process → store: a process joins the rendezvous.
    Hello(Peer),
    /// Process → store: a hello of another protocol version.
    OtherVersion(u8),
    /// Store → process: all have arrived, by rank.
    Roster(Vec<Peer>),
    /// Store → process: the rendezvous failed.
    Refused(String),
    /// Process → store: this rank's data for an exchange.
    Give { round: u64, what: String, bytes: Vec<u8> },
    /// Store → process: the data of all ranks.
    Given { round: u64, parts: Vec<Vec<u8>> },
    /// In both directions: a rank failed.
    Failed { rank: usize, text: String },
    /// In both directions: a rank has finished.
    Left { rank: usize },
    /// Sign of life, both ways.
    Pulse,
}

impl StoreMessage {
    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Hello(peer) => {
                to.push(1);
                to.extend(MAGIC);
                to.push(VERSION);
                put_peer(&mut to, peer);
            }
            Self::OtherVersion(version) => {
                to.push(1);
                to.extend(MAGIC);
                to.push(*version);
            }
            Self::Roster(peers) => {
                to.push(2);
                put_number(&mut to, peers.len());
                peers.iter().for_each(|peer| put_peer(&mut to, peer));
            }
            Self::Refused(text) => {
                to.push(3);
                put_bytes(&mut to, text.as_bytes());
            }
            Self::Give { round, what, bytes } => {
                to.push(4);
                to.extend(round.to_le_bytes());
                put_bytes(&mut to, what.as_bytes());
                put_bytes(&mut to, bytes);
            }
            Self::Given { round, parts } => {
                to.push(5);
                to.extend(round.to_le_bytes());
                put_number(&mut to, parts.len());
                parts.iter().for_each(|part| put_bytes(&mut to, part));
            }
            Self::Failed { rank, text } => {
                to.push(6);
                put_number(&mut to, *rank);
                put_bytes(&mut to, text.as_bytes());
            }
            Self::Left { rank } => {
                to.push(7);
                put_number(&mut to, *rank);
            }
            Self::Pulse => to.push(8),
        }
        to
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = bytes;
        let message = match take(&mut from, 1)?[0] {
            1 => {
                if take(&mut from, MAGIC.len())? != MAGIC {
                    return None;
                }
                match take(&mut from, 1)?[0] {
                    VERSION => Self::Hello(take_peer(&mut from)?),
                    // The rest has that version's form.
                    other => return Some(Self::OtherVersion(other)),
                }
            }
            2 => {
                let count = take_number(&mut from)?;
                Self::Roster((0..count).map(|_| take_peer(&mut from)).collect::<Option<_>>()?)
            }
            3 => Self::Refused(take_text(&mut from)?),
            4 => Self::Give {
                round: take_u64(&mut from)?,
                what: take_text(&mut from)?,
                bytes: take_bytes(&mut from)?.to_vec(),
            },
            5 => {
                let (round, count) = (take_u64(&mut from)?, take_number(&mut from)?);
                let parts = (0..count).map(|_| take_bytes(&mut from).map(<[u8]>::to_vec));
                Self::Given { round, parts: parts.collect::<Option<_>>()? }
            }
            6 => Self::Failed { rank: take_number(&mut from)?, text: take_text(&mut from)? },
            7 => Self::Left { rank: take_number(&mut from)? },
            8 => Self::Pulse,
            _ => return None,
        };
        from.is_empty().then_some(message)
    }
}

fn put_number(to: &mut Vec<u8>, number: usize) {
    to.extend((number as u64).to_le_bytes());
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_number(to, bytes.len());
    to.extend(bytes);
}

fn put_peer(to: &mut Vec<u8>, peer: &Peer) {
    put_number(to, peer.rank);
    put_number(to, peer.size);
    put_number(to, peer.process_id as usize);
    put_bytes(to, peer.host.as_bytes());
    put_bytes(to, peer.host_id.as_bytes());
    for number in [peer.local_rank, peer.card, peer.physical_card] {
        to.extend(number.map_or(u64::MAX, |number| number as u64).to_le_bytes());
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

fn take_u64(from: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(from, 8)?.try_into().ok()?))
}

fn take_number(from: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_u64(from)?).ok()
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = take_number(from)?;
    take(from, count)
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(from)?.to_vec()).ok()
}

fn take_peer(from: &mut &[u8]) -> Option<Peer> {
    let (rank, size, process_id) = (take_number(from)?, take_number(from)?, take_number(from)?);
    let (host, host_id) = (take_text(from)?, take_text(from)?);
    let mut optional =
        || take_u64(from).map(|number| usize::try_from(number).ok().filter(|_| number != u64::MAX));
    let (local_rank, card, physical_card) = (optional()?, optional()?, optional()?);
    let process_id = u32::try_from(process_id).ok()?;
    Some(Peer { rank, size, process_id, host, host_id, local_rank, card, physical_card })
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Prepares the socket: sends short messages at once, and ends each write to a stopped peer
    /// after `write_limit`.
    pub(super) fn prepare(self, write_limit: Duration) -> io::Result<Self> {
        match &self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(write_limit))?;
            }
            Self::Unix(stream) => stream.set_write_timeout(Some(write_limit))?,
        }
        Ok(self)
    }

    pub(super) fn limit_reads(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(limit),
            Self::Unix(stream) => stream.set_read_timeout(limit),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    pub(super) fn close(&self) {
        let _closed = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    pub(super) fn send(&mut self, message: &StoreMessage) -> io::Result<()> {
        let body = message.encode();
        let length = u32::try_from(body.len()).ok().filter(|length| *length as usize <= FRAME_BYTES);
        let length = length
            .ok_or_else(|| io::Error::other(format!("a message of {} bytes is too long", body.len())))?;
        let mut frame = Vec::with_capacity(body.len() + 4);
        frame.extend(length.to_le_bytes());
        frame.extend(body);
        match self {
            Self::Tcp(stream) => stream.write_all(&frame),
            Self::Unix(stream) => stream.write_all(&frame),
        }
    }

    pub(super) fn receive(&mut self, limit: usize) -> io::Result<StoreMessage> {
        self.receive_hearing(limit, &|| ())
    }

    /// Calls `heard` after each piece, so that a peer that sends a long message counts as alive.
    pub(super) fn receive_hearing(&mut self, limit: usize, heard: &dyn Fn()) -> io::Result<StoreMessage> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        let foreign = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the received bytes are not a message of this protocol",
            )
        };
        if length > limit {
            return Err(foreign());
        }
        let mut body = vec![0; length];
        for piece in body.chunks_mut(PIECE_BYTES) {
            self.read(piece)?;
            heard();
        }
        StoreMessage::decode(&body).ok_or_else(foreign)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.read_exact(into),
            Self::Unix(stream) => stream.read_exact(into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        let (host, host_id) = ("node".to_owned(), "id".to_owned());
        Peer {
            rank: 3,
            size: 8,
            process_id: 77,
            host,
            host_id,
            local_rank: Some(1),
            card: None,
            physical_card: Some(5),
        }
    }

    #[test]
    fn messages_come_back() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Socket::Unix(a), Socket::Unix(b));
        for message in [
            StoreMessage::Hello(peer()),
            StoreMessage::OtherVersion(VERSION + 1),
            StoreMessage::Roster(vec![peer(), peer()]),
            StoreMessage::Refused("no".to_owned()),
            StoreMessage::Give { round: 9, what: "plans".to_owned(), bytes: vec![0, 255] },
            StoreMessage::Given { round: 9, parts: vec![Vec::new(), vec![1; 70_000]] },
            StoreMessage::Failed { rank: 2, text: "lost".to_owned() },
            StoreMessage::Left { rank: 0 },
            StoreMessage::Pulse,
        ] {
            let writer = std::thread::scope(|scope| {
                let sent = scope.spawn(|| a.send(&message));
                assert_eq!(b.receive(FRAME_BYTES).unwrap(), message);
                sent.join()
            });
            writer.unwrap().unwrap();
        }
    }

    #[test]
    fn strangers_are_refused() {
        let mut hello = StoreMessage::Hello(peer()).encode();
        assert!(StoreMessage::decode(&hello[..hello.len() - 1]).is_none(), "cut short");
        hello.push(0);
        assert!(StoreMessage::decode(&hello).is_none(), "bytes left over");
        hello.pop();
        hello[8] ^= 1;
        assert_eq!(StoreMessage::decode(&hello), Some(StoreMessage::OtherVersion(VERSION ^ 1)));
        let huge = [2, 255, 255, 255, 255, 255, 255, 255, 127];
        assert!(StoreMessage::decode(&huge).is_none(), "no such roster");
        let (a, b) = UnixStream::pair().unwrap();
        (&a).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let error = Socket::Unix(b).receive(HELLO_BYTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
