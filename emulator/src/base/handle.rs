//! Handles of contexts, streams, events and other objects.
//!
//! Invariants: a handle is never an address. A machine never reuses a number, so a stale handle is
//! recognised. The value contains the kind.

use std::ffi::c_void;

use crate::base::failure::{Failure, code};

/// Stored in the top byte of the handle. No user-space address has such a top byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HandleKind {
    Context = 0xC1,
    Stream = 0xC2,
    Event = 0xC3,
    Notify = 0xC4,
    Communicator = 0xC5,
    ProfilingConfig = 0xC6,
    Physical = 0xCA,
    Graph = 0xC7,
    TaskGroup = 0xC8,
    Binary = 0xCB,
    Function = 0xCC,
    Arguments = 0xCD,
    DataBuffer = 0xCE,
}

const KIND_SHIFT: u32 = usize::BITS - 8;

impl HandleKind {
    const ALL: &[Self] = &[
        Self::Context,
        Self::Stream,
        Self::Event,
        Self::Notify,
        Self::Communicator,
        Self::ProfilingConfig,
        Self::Physical,
        Self::Graph,
        Self::TaskGroup,
        Self::Binary,
        Self::Function,
        Self::Arguments,
        Self::DataBuffer,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::Notify => "notify",
            Self::Communicator => "communicator",
            Self::ProfilingConfig => "profiling configuration",
            Self::Physical => "physical memory",
            Self::Graph => "graph (aclmdlRI)",
            Self::TaskGroup => "task group",
            Self::Binary => "kernel binary",
            Self::Function => "kernel",
            Self::Arguments => "argument list",
            Self::DataBuffer => "data buffer",
        }
    }

    pub(crate) fn encode(self, number: u64) -> *mut c_void {
        std::ptr::without_provenance_mut((self as usize) << KIND_SHIFT | number as usize)
    }

    pub(crate) fn decode(self, handle: *const c_void) -> Result<u64, Failure> {
        let value = handle.addr();
        if value == 0 {
            return Err(Failure::null(self.name()));
        }
        let found = Self::ALL.iter().copied().find(|kind| *kind as usize == value >> KIND_SHIFT);
        match found {
            Some(kind) if kind == self => Ok((value & ((1 << KIND_SHIFT) - 1)) as u64),
            Some(kind) => {
                let what =
                    format!("expected handle kind {}, found {value:#x}, kind {}", self.name(), kind.name());
                Err(Failure::new(code::PARAM_INVALID, what))
            }
            None => {
                let what = format!("{value:#x} is not a handle; expected a {}", self.name());
                Err(Failure::new(code::PARAM_INVALID, what))
            }
        }
    }

    pub(crate) fn gone(self, number: u64) -> Failure {
        let what = format!("{} {number} does not exist (destroyed, or of another machine)", self.name());
        Failure::new(code::PARAM_INVALID, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_carry_kind_and_number() {
        let stream = HandleKind::Stream.encode(42);
        assert_eq!(HandleKind::Stream.decode(stream), Ok(42));
        let failure = HandleKind::Event.decode(stream).expect_err("a stream is no event");
        assert!(failure.message.contains("kind event") && failure.message.contains("kind stream"));
        assert_eq!(HandleKind::Event.decode(std::ptr::null()).expect_err("null").code, code::INVALID_PARAM);
        let address: *const c_void = std::ptr::from_ref(&failure).cast();
        assert!(HandleKind::Event.decode(address).expect_err("address").message.contains("not a handle"));
    }
}
