//! What processes say to each other, and how it lies on a connection.
//!
//! Input: messages and, for data, their bytes. Output: frames: length of the header, length of the payload (both u32,
//! little-endian), header (postcard), payload. Invariants: a length above the limit or a header that does not parse is
//! an error, never an allocation; text from elsewhere becomes a C function's name only if it is one.
//! Does not: know sockets beyond `Read`, or what messages do.

use std::io::{self, Read};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::base::failure::{Failure, code};
use crate::hccl::key::Key;
use crate::hccl::{CollectiveCall, CollectiveKind, DataType, Places};
use crate::memory::peer::StoreAddress;
use crate::memory::place::{PeerBuffer, Place};
use crate::memory::raw::RawSpan;

/// Changes with every change of what follows; processes of different versions refuse each other by name.
pub(crate) const VERSION: u32 = 5;

/// First bytes of every connection.
pub(crate) const MAGIC: [u8; 8] = *b"ascendtp";

/// A roster of the largest world fits.
pub(crate) const HEADER_LIMIT_BYTES: usize = 4 << 20;

/// Bytes of data in one frame at most.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Names one communicator in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Token(pub(crate) u128);

impl Token {
    /// The name of a communicator cut from this one: the same in all processes that cut the same.
    pub(crate) fn of_child(self, id: u64, ranks: &[u32], generation: u64) -> Self {
        // FNV-1a over what makes the child.
        const PRIME: u128 = (1 << 88) + 0x13b;
        let words = [id, generation].into_iter().chain(ranks.iter().map(|rank| u64::from(*rank)));
        Self(words.flat_map(u64::to_le_bytes).fold(self.0, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
    }
}

/// One process of a communicator: who it is and where it listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Random; no two processes share it.
    pub(crate) id: u128,
    /// Number in its own operating system, for messages.
    pub(crate) pid: u32,
    /// Name of its host, for messages.
    pub(crate) host: String,
    /// What two processes have in common when they can share memory.
    pub(crate) host_id: String,
    /// Where it listens.
    pub(crate) addresses: Vec<IpAddr>,
    /// The port there.
    pub(crate) port: u16,
    /// What a connection must know to be heard.
    pub(crate) secret: u64,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on host {}", self.pid, self.host)
    }
}

/// One rank that comes to a gathering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) card: u32,
    pub(crate) process: Process,
    /// The communicator's name its configuration asks for.
    pub(crate) name: Option<String>,
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} ({})", self.rank, self.process)
    }
}

/// All ranks of a new communicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(crate) token: Token,
    pub(crate) name: String,
    pub(crate) callers: Vec<Caller>,
}

/// The first words on a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) secret: u64,
}

/// What a connection is for: its second words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ConnectionPurpose {
    /// Come to a gathering of the process that listens; the answer is an [`Answer`].
    Join { root: u64, caller: Caller, patience_ms: u64 },
    /// Be the link between two processes; the answer is a [`Welcome`].
    Link { process: Process, lane: Option<StoreAddress> },
}

/// How a gathering ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    Complete(Roster),
    Refused(Reason),
}

/// The listener's part in making a link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Linked { lane: Option<StoreAddress> },
    Refused(Reason),
}

/// A failure on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reason {
    code: i32,
    message: String,
}

impl From<&Failure> for Reason {
    fn from(failure: &Failure) -> Self {
        Self { code: failure.code, message: failure.message.clone() }
    }
}

impl Reason {
    /// The failure that was sent.
    pub(crate) fn into_failure(self) -> Failure {
        Failure::new(self.code, self.message)
    }
}

/// Names one transfer between two ranks in one step of one meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) group: Token,
    pub(crate) key: Key,
    pub(crate) step: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// What a rank asks for, with its buffers where others reach them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallRequest {
    wanted: WantedCall,
    places: Option<Places>,
}

/// What a rank asks for, wherever its buffers are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedCall {
    name: String,
    kind: CollectiveKind,
    dtype: DataType,
}

/// A request's bytes; one that begins with the first `wanted_bytes` of another asks for the same.
#[derive(Debug)]
pub(crate) struct WrittenRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) wanted_bytes: usize,
}

impl CallRequest {
    /// What of a call other processes need.
    pub(crate) fn of(call: &CollectiveCall) -> Self {
        let wanted = WantedCall { name: call.name.into(), kind: call.kind.clone(), dtype: call.dtype };
        Self { wanted, places: call.places }
    }

    /// The same without buffers.
    pub(crate) fn without_places(self) -> Self {
        Self { places: None, ..self }
    }

    /// As bytes on the wire.
    pub(crate) fn write(&self) -> WrittenRequest {
        let wanted = written(&self.wanted, Vec::with_capacity(128));
        let wanted_bytes = wanted.len();
        WrittenRequest { bytes: written(&self.places, wanted), wanted_bytes }
    }

    /// The request with these bytes.
    ///
    /// # Errors
    /// They are none of this version.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let malformed = |error| Failure::new(code::HCCL_INTERNAL, format!("a peer's call: {error}"));
        postcard::from_bytes(bytes).map_err(malformed)
    }

    /// The call; `reach` gives the bytes of its process at a place.
    ///
    /// # Errors
    /// It names no C function of HCCL, or its buffers are out of reach.
    pub(crate) fn into_call(
        self,
        reach: impl Fn(PeerBuffer) -> Result<RawSpan, Failure>,
    ) -> Result<CollectiveCall, Failure> {
        let WantedCall { name, kind, dtype } = self.wanted;
        let known = crate::hccl::FUNCTIONS.iter().find(|known| **known == name);
        let name = known.ok_or_else(|| {
            Failure::new(code::HCCL_INTERNAL, format!("a peer called {name:?}, which is no collective"))
        })?;
        let (send, recv) = self.places.map(|places| (places.send, places.recv)).unwrap_or_default();
        let (send, recv) = (send.map(&reach).transpose()?, recv.map(&reach).transpose()?);
        Ok(CollectiveCall { name, kind, dtype, send, recv, places: self.places, product_ns: 0 })
    }
}

/// `bytes` and, behind them, those of a value.
pub(crate) fn written<T: Serialize>(value: &T, bytes: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, bytes).unwrap_or_else(|error| unreachable!("into memory: {error}"))
}

/// What linked processes tell each other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A rank has made its call of a meeting.
    Called { group: Token, rank: u32, key: Key, request: CallRequest },
    /// A rank's stream has reached its call.
    Reached { group: Token, rank: u32, key: Key },
    /// The communicator has failed; so has the meeting `key`, even if all ranks have called.
    Broken { group: Token, key: Option<Key>, reason: Reason },
    /// A rank has given up its communicator.
    Left { group: Token, rank: u32, why: String },
    /// A rank has made its handle of a communicator cut from `group`.
    Cut { group: Token, rank: u32, id: u64, ranks: Vec<u32> },
    /// The process ends in good order; its ranks leave all communicators.
    Farewell,
    /// The sender has entered a new communicator; whether it reaches the memory of all others in place (see [`StoreAddress`]) and lets
    /// data travel there.
    Ready { group: Token, shares_memory: bool },
    /// The sender knows that all processes have entered a new communicator.
    Decided { group: Token },
    /// The communicator's table is in the sender's memory.
    Table { group: Token, place: Place },
    /// The receiver of a transfer between two ranks has moved its data.
    Moved { group: Token, key: Key },
    /// The receiver of `Address` has a place for it.
    Want(Address),
    /// Part of a transfer; the payload is the bytes at `offset` of `total`, `checksum` their CRC-32.
    Data { address: Address, offset: u64, total: u64, checksum: u32 },
}

/// A frame: lengths, header and the payload's place for the caller to add.
///
/// # Panics
/// Never: these types serialise without fail into memory.
pub(crate) fn frame<T: Serialize>(header: &T, payload_bytes: usize) -> Vec<u8> {
    let mut bytes = written(header, vec![0; 8]);
    let header_bytes = (bytes.len() - 8) as u32;
    bytes[..4].copy_from_slice(&header_bytes.to_le_bytes());
    bytes[4..8].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    bytes
}

pub(crate) fn malformed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads one frame; the payload replaces what is in `payload`.
///
/// # Errors
/// The connection fails or ended, or what came is not a frame of this version.
pub(crate) fn read<T: for<'a> Deserialize<'a>>(from: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<T> {
    let mut lengths = [0_u8; 8];
    from.read_exact(&mut lengths)?;
    let length = |at: usize| u32::from_le_bytes([lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]]);
    let (header_bytes, payload_bytes) = (length(0) as usize, length(4) as usize);
    if header_bytes > HEADER_LIMIT_BYTES || payload_bytes > CHUNK_BYTES {
        return Err(malformed(format!("a frame of {header_bytes} and {payload_bytes} bytes is none of this protocol")));
    }
    let mut header = vec![0; header_bytes];
    from.read_exact(&mut header)?;
    payload.resize(payload_bytes, 0);
    from.read_exact(payload)?;
    postcard::from_bytes(&header).map_err(|error| malformed(format!("a frame's header: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hccl::CombineOp;

    fn nowhere(place: PeerBuffer) -> Result<RawSpan, Failure> {
        Err(Failure::new(code::HCCL_INTERNAL, format!("{place:?}")))
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let call = CollectiveCall {
            name: "HcclAllReduce",
            kind: CollectiveKind::AllReduce { count: 5, op: CombineOp::Max },
            dtype: DataType::Bf16,
            send: None,
            recv: None,
            places: None,
            product_ns: 0,
        };
        let message =
            Message::Called { group: Token(7), rank: 3, key: Key::Collective(2), request: CallRequest::of(&call) };
        let mut bytes = frame(&message, 3);
        bytes.extend([1, 2, 3]);
        let mut payload = vec![9; 10];
        let Message::Called { group, rank, key: Key::Collective(2), request } =
            read(&mut bytes.as_slice(), &mut payload).expect("a frame")
        else {
            panic!("another message came out");
        };
        assert_eq!((group, rank, payload), (Token(7), 3, vec![1, 2, 3]));
        assert_eq!(request.into_call(nowhere).expect("a call").to_string(), "HcclAllReduce(count 5, bfp16, max)");
    }

    #[test]
    fn what_is_no_frame_is_refused_without_allocating() {
        let mut payload = Vec::new();
        let text = b"GET / HTTP/1.1\r\nHost: card\r\n\r\n";
        let error = read::<Hello>(&mut text.as_slice(), &mut payload).expect_err("no frame");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let wanted = WantedCall { name: "rm -rf".into(), kind: CollectiveKind::Barrier, dtype: DataType::Int8 };
        let foreign = CallRequest { wanted, places: None };
        assert!(foreign.into_call(nowhere).expect_err("no function").message.contains("which is no collective"));
    }
}
