//! Cards as a process sees them, and contexts: who may use which card's streams.
//!
//! Input: set, reset, create, destroy. Output: contexts with a default stream each. Invariants: a card has at most one
//! default context, shared by all threads and counted; a context's streams go with it. When a reset takes the last
//! context of a card, the card's memory is returned. Does not: keep the current context of a thread (see `thread`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::failure::Failure;
use crate::runtime::options::Parameters;
use crate::runtime::saturation::Saturation;

/// What a process has on one card.
#[derive(Debug, Default)]
pub(crate) struct Card {
    pub(crate) default_context: Option<u64>,
    /// How often aclrtSetDevice was called more than aclrtResetDevice.
    pub(crate) references: u32,
    pub(crate) peers: BTreeSet<u32>,
    pub(crate) streams: usize,
    /// How many there ever were.
    pub(crate) streams_made: u32,
    pub(crate) events: usize,
    pub(crate) notifies: usize,
    /// Why it does not answer (an injected fault).
    pub(crate) lost: Option<Failure>,
    /// `aclrtSetDeviceResLimit`: cube cores, vector cores.
    pub(crate) core_limits: [Option<u32>; 2],
    /// The overflow mode, and what it has seen.
    pub(crate) saturation: Arc<Saturation>,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) card: u32,
    pub(crate) default_stream: u64,
    /// A failure on one of its streams stops them all (`aclrtSetStreamFailureMode` of any of them).
    pub(crate) stops_on_failure: bool,
    /// What `aclrtCtxSetSysParamOpt` has set.
    pub(crate) parameters: Parameters,
}

/// How a device is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// aclrtResetDevice: one reference.
    OneReference,
    /// aclrtResetDeviceForce: all of them.
    Force,
}
