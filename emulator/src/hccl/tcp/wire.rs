//! The protocol between processes: messages and their encoding on a connection.
//!
//! A frame is the length of the header and of the payload (both u32, little-endian), the header
//! (postcard), and the payload.
//!
//! Invariants:
//! - An excessive length or a malformed header is an error, never an allocation.
//! - A received function name is accepted only if it is a known C function.

use std::io::{self, Read};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::base::failure::{Failure, code};
use crate::hccl::key::Key;
use crate::hccl::{CollectiveCall, CollectiveOperation, DataType, Places};
use crate::memory::peer::StoreAddress;
use crate::memory::place::{MemoryPlace, PeerBuffer};
use crate::memory::raw::RawSpan;

/// Any change to this module increments the version; processes with different versions refuse each
/// other.
pub(crate) const VERSION: u32 = 5;

pub(crate) const MAGIC: [u8; 8] = *b"ascendtp";

/// A roster of the largest world fits.
pub(crate) const HEADER_LIMIT_BYTES: usize = 4 << 20;

pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Equal in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CommunicatorToken(pub(crate) u128);

impl CommunicatorToken {
    /// Returns the token of a sub-communicator. It is equal in all processes that create the same
    /// sub-communicator.
    pub(crate) fn of_child(self, id: u64, ranks: &[u32], generation: u64) -> Self {
        const PRIME: u128 = (1 << 88) + 0x13b;
        let words = [id, generation].into_iter().chain(ranks.iter().map(|rank| u64::from(*rank)));
        Self(
            words
                .flat_map(u64::to_le_bytes)
                .fold(self.0, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)),
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessAddress {
    /// Random number, unique to the process.
    pub(crate) id: u128,
    pub(crate) pid: u32,
    pub(crate) host: String,
    /// Processes with equal ids can share memory.
    pub(crate) host_id: String,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    /// Every connection must present this number.
    pub(crate) secret: u64,
}

impl std::fmt::Display for ProcessAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on host {}", self.pid, self.host)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) card: u32,
    pub(crate) process: ProcessAddress,
    /// Name of the communicator from the rank's configuration.
    pub(crate) name: Option<String>,
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} ({})", self.rank, self.process)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(crate) token: CommunicatorToken,
    pub(crate) name: String,
    pub(crate) callers: Vec<Caller>,
}

/// The first message on a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) secret: u64,
}

/// The second message on a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ConnectionPurpose {
    /// Joins a rendezvous. The reply is an [`Answer`].
    Join { root: u64, caller: Caller, patience_ms: u64 },
    /// Creates a link. The reply is a [`Welcome`].
    Link { process: ProcessAddress, lane: Option<StoreAddress> },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FormationAnswer {
    Complete(Roster),
    Refused(Reason),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Linked { lane: Option<StoreAddress> },
    Refused(Reason),
}

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
    pub(crate) fn into_failure(self) -> Failure {
        Failure::new(self.code, self.message)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) communicator: CommunicatorToken,
    pub(crate) key: Key,
    pub(crate) step: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// Contains the locations of the buffers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallRequest {
    wanted: WantedCall,
    places: Option<Places>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedCall {
    name: String,
    kind: CollectiveOperation,
    dtype: DataType,
}

/// Two requests with equal first `wanted_bytes` are equal calls.
#[derive(Debug)]
pub(crate) struct WrittenRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) wanted_bytes: usize,
}

impl CallRequest {
    pub(crate) fn of(call: &CollectiveCall) -> Self {
        let wanted = WantedCall { name: call.name.into(), kind: call.kind.clone(), dtype: call.dtype };
        Self { wanted, places: call.places }
    }

    pub(crate) fn without_places(self) -> Self {
        Self { places: None, ..self }
    }

    pub(crate) fn write(&self) -> WrittenRequest {
        let wanted = written(&self.wanted, Vec::with_capacity(128));
        let wanted_bytes = wanted.len();
        WrittenRequest { bytes: written(&self.places, wanted), wanted_bytes }
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let malformed = |error| Failure::new(code::HCCL_INTERNAL, format!("a peer's call: {error}"));
        postcard::from_bytes(bytes).map_err(malformed)
    }

    /// `reach` maps a buffer of the sending process.
    pub(crate) fn into_call(
        self,
        reach: impl Fn(PeerBuffer) -> Result<RawSpan, Failure>,
    ) -> Result<CollectiveCall, Failure> {
        let WantedCall { name, kind, dtype } = self.wanted;
        let known = crate::hccl::FUNCTIONS.iter().find(|known| **known == name);
        let name = known.ok_or_else(|| {
            Failure::new(code::HCCL_INTERNAL, format!("a peer called {name:?}, which is not a collective"))
        })?;
        let (send, recv) = self.places.map(|places| (places.send, places.recv)).unwrap_or_default();
        let (send, recv) = (send.map(&reach).transpose()?, recv.map(&reach).transpose()?);
        Ok(CollectiveCall { name, kind, dtype, send, recv, places: self.places, product_ns: 0 })
    }
}

pub(crate) fn written<T: Serialize>(value: &T, bytes: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, bytes).unwrap_or_else(|error| unreachable!("into memory: {error}"))
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum WireMessage {
    /// A rank has made its call.
    Called { communicator: CommunicatorToken, rank: u32, key: Key, request: CallRequest },
    /// A rank's stream has reached its call.
    Reached { communicator: CommunicatorToken, rank: u32, key: Key },
    /// The communicator has failed. The matching `key` fails too, even if all ranks have called.
    Broken { communicator: CommunicatorToken, key: Option<Key>, reason: Reason },
    /// A rank has left its communicator.
    Left { communicator: CommunicatorToken, rank: u32, why: String },
    /// A rank has created its handle of a sub-communicator of `communicator`.
    Cut { communicator: CommunicatorToken, rank: u32, id: u64, ranks: Vec<u32> },
    /// The process exits normally. Its ranks leave all communicators.
    Farewell,
    /// The sender has entered a new communicator. `shares_memory` says whether it can access the
    /// memory of all peers (see [`StoreAddress`]) and may use it for data.
    Ready { communicator: CommunicatorToken, shares_memory: bool },
    /// The sender knows that all processes have entered a new communicator.
    Decided { communicator: CommunicatorToken },
    /// The communicator's table is in the sender's memory.
    Table { communicator: CommunicatorToken, place: MemoryPlace },
    /// The receiver of a transfer between two ranks has copied its data.
    Moved { communicator: CommunicatorToken, key: Key },
    /// The receiver of `Address` has a buffer for it.
    Want(Address),
    /// Part of a transfer. The payload is the bytes at `offset` of `total`; `checksum` is their
    /// CRC-32.
    Data { address: Address, offset: u64, total: u64, checksum: u32 },
}

/// The caller appends the payload.
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

/// Replaces the contents of `payload`.
pub(crate) fn read<T: for<'a> Deserialize<'a>>(from: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<T> {
    let mut lengths = [0_u8; 8];
    from.read_exact(&mut lengths)?;
    let length =
        |at: usize| u32::from_le_bytes([lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]]);
    let (header_bytes, payload_bytes) = (length(0) as usize, length(4) as usize);
    if header_bytes > HEADER_LIMIT_BYTES || payload_bytes > CHUNK_BYTES {
        return Err(malformed(format!(
            "a frame of {header_bytes} and {payload_bytes} bytes is not part of this protocol"
        )));
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
            kind: CollectiveOperation::AllReduce { count: 5, op: CombineOp::Max },
            dtype: DataType::Bf16,
            send: None,
            recv: None,
            places: None,
            product_ns: 0,
        };
        let message = WireMessage::Called {
            communicator: CommunicatorToken(7),
            rank: 3,
            key: Key::Collective(2),
            request: CallRequest::of(&call),
        };
        let mut bytes = frame(&message, 3);
        bytes.extend([1, 2, 3]);
        let mut payload = vec![9; 10];
        let WireMessage::Called { communicator, rank, key: Key::Collective(2), request } =
            read(&mut bytes.as_slice(), &mut payload).expect("a frame")
        else {
            panic!("another message came out");
        };
        assert_eq!((communicator, rank, payload), (CommunicatorToken(7), 3, vec![1, 2, 3]));
        assert_eq!(
            request.into_call(nowhere).expect("a call").to_string(),
            "HcclAllReduce(count 5, bfp16, max)"
        );
    }

    #[test]
    fn what_is_no_frame_is_refused_without_allocating() {
        let mut payload = Vec::new();
        let text = b"GET / HTTP/1.1\r\nHost: card\r\n\r\n";
        let error = read::<Hello>(&mut text.as_slice(), &mut payload).expect_err("no frame");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let wanted =
            WantedCall { name: "rm -rf".into(), kind: CollectiveOperation::Barrier, dtype: DataType::Int8 };
        let foreign = CallRequest { wanted, places: None };
        assert!(
            foreign
                .into_call(nowhere)
                .expect_err("no function")
                .message
                .contains("which is not a collective")
        );
    }
}
