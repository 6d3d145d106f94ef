//! The program's runtime objects.
//!
//! Invariants: a number refers to one object for ever. The objects of a context or card are removed
//! with it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::runtime::callback::{Callbacks, HostThread};
use crate::runtime::context::{CardContext, CardState};
use crate::runtime::event::EventState;
use crate::runtime::exception::Exceptions;
use crate::runtime::graph::Graphs;
use crate::runtime::kernel::KernelRegistry;
use crate::runtime::notify::Notify;
use crate::runtime::options::ContextParameters;
use crate::runtime::profile::Profiling;
use crate::runtime::signal::Signal;
use crate::runtime::stream::StreamQueue;

#[derive(Debug, Default)]
pub(crate) struct Runtime {
    /// Number of `aclInit` calls without `aclFinalize`; at most 1 in versions of CANN that do not
    /// count.
    pub(crate) initialized: u64,
    /// Set between `aclnnInit` and `aclnnFinalize`.
    pub(crate) has_operators: bool,
    pub(crate) cards: Vec<CardState>,
    pub(crate) contexts: BTreeMap<u64, CardContext>,
    pub(crate) streams: BTreeMap<u64, StreamQueue>,
    pub(crate) events: BTreeMap<u64, EventState>,
    pub(crate) notifies: BTreeMap<u64, Notify>,
    /// Words of events and notifies, by number.
    pub(crate) signals: BTreeMap<u64, Signal>,
    pub(crate) callbacks: Callbacks,
    /// Threads by card; each starts on first use.
    pub(crate) host_threads: BTreeMap<u32, HostThread>,
    pub(crate) profiling: Profiling,
    pub(crate) graphs: Graphs,
    pub(crate) kernels: KernelRegistry,
    /// Address and size from `aclCreateDataBuffer`.
    pub(crate) data_buffers: BTreeMap<u64, (usize, usize)>,
    pub(crate) exceptions: Exceptions,
    /// Values of `aclSetCompileopt`, by option number.
    pub(crate) compile_options: BTreeMap<u32, String>,
    /// Parameter values set by `aclrtSetSysParamOpt`.
    pub(crate) parameters: ContextParameters,
    /// Limit of `aclrtStreamWaitEvent` (`aclrtSetOpWaitTimeout`).
    pub(crate) wait_limit: Option<Duration>,
}

impl Runtime {
    pub(crate) fn new(cards: usize) -> Self {
        Self { cards: (0..cards).map(|_| CardState::default()).collect(), ..Self::default() }
    }

    /// Covers contexts, streams, events and notifies.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.contexts.contains_key(&number)
            || self.streams.contains_key(&number)
            || self.events.contains_key(&number)
            || self.notifies.contains_key(&number)
    }
}
