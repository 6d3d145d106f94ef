//! Cards as a process sees them, and contexts.
//!
//! Input: set, reset, create, destroy. Output: contexts with a default stream each. Invariants: a
//! card has at most one default context, which all threads share and count. Destroying a context
//! destroys its streams. If a reset destroys the last context of a card, the card's memory is
//! freed. Not here: the current context of a thread (see `thread`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::failure::Failure;
use crate::runtime::options::Parameters;
use crate::runtime::saturation::Saturation;

#[derive(Debug, Default)]
pub(crate) struct Card {
    pub(crate) default_context: Option<u64>,
    /// Number of aclrtSetDevice calls minus aclrtResetDevice calls.
    pub(crate) references: u32,
    pub(crate) peers: BTreeSet<u32>,
    pub(crate) streams: usize,
    pub(crate) streams_made: u32,
    pub(crate) events: usize,
    pub(crate) notifies: usize,
    /// The injected fault that makes the card unavailable.
    pub(crate) lost: Option<Failure>,
    /// Limits from `aclrtSetDeviceResLimit`: cube cores, vector cores.
    pub(crate) core_limits: [Option<u32>; 2],
    pub(crate) saturation: Arc<Saturation>,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) card: u32,
    pub(crate) default_stream: u64,
    /// A failure on one stream of the context stops all its streams (`aclrtSetStreamFailureMode` on
    /// any of them).
    pub(crate) stops_on_failure: bool,
    /// Parameter values from `aclrtCtxSetSysParamOpt`.
    pub(crate) parameters: Parameters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// aclrtResetDevice: releases one reference.
    OneReference,
    /// aclrtResetDeviceForce: releases all references.
    Force,
}
