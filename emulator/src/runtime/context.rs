//! Cards as a process sees them, and contexts.
//!
//! Invariants: a card has at most one default context, which all threads share and count.
//! Destroying a context destroys its streams. If a reset destroys the last context of a card, the
//! card's memory is freed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::failure::Failure;
use crate::runtime::options::ContextParameters;
use crate::runtime::saturation::Saturation;

#[derive(Debug, Default)]
pub(crate) struct CardState {
    pub(crate) default_context: Option<u64>,
    /// Number of aclrtSetDevice calls minus aclrtResetDevice calls.
    pub(crate) references: u32,
    pub(crate) peers: BTreeSet<u32>,
    pub(crate) streams: usize,
    pub(crate) streams_made: u32,
    pub(crate) events: usize,
    pub(crate) notifies: usize,
    /// Injected fault that makes the card unavailable.
    pub(crate) lost: Option<Failure>,
    /// Cube cores and vector cores (`aclrtSetDeviceResLimit`).
    pub(crate) core_limits: [Option<u32>; 2],
    pub(crate) saturation: Arc<Saturation>,
}

#[derive(Debug)]
pub(crate) struct CardContext {
    pub(crate) card: u32,
    pub(crate) default_stream: u64,
    /// A failed stream stops the whole context (`aclrtSetStreamFailureMode`).
    pub(crate) stops_on_failure: bool,
    /// Parameter values set by `aclrtCtxSetSysParamOpt`.
    pub(crate) parameters: ContextParameters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    OneReference,
    Force,
}
