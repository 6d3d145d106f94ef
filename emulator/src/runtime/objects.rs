//! Everything the program has of the runtime.
//!
//! Input: objects as the program makes them. Output: the same, by their numbers. Invariants: a number is that of one object,
//! for ever; what belongs to a context or a card goes with it. Does not: act (see the files beside this one).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::runtime::callback::{Callbacks, HostThread};
use crate::runtime::context::{Card, Context};
use crate::runtime::event::Event;
use crate::runtime::exception::Exceptions;
use crate::runtime::graph::Graphs;
use crate::runtime::kernel::Kernels;
use crate::runtime::notify::Notify;
use crate::runtime::options::Parameters;
use crate::runtime::profile::Profiling;
use crate::runtime::signal::Signal;
use crate::runtime::stream::Stream;

/// The part of the state that is the runtime's.
#[derive(Debug, Default)]
pub(crate) struct Runtime {
    /// Calls of `aclInit` that no `aclFinalize` has ended, in a CANN that counts them; 0 or 1 in an older one.
    pub(crate) initialized: u64,
    /// `aclnnInit` was called and no `aclnnFinalize` since.
    pub(crate) has_operators: bool,
    pub(crate) cards: Vec<Card>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) notifies: BTreeMap<u64, Notify>,
    /// Of events and notifies that are words, by their numbers.
    pub(crate) signals: BTreeMap<u64, Signal>,
    pub(crate) callbacks: Callbacks,
    /// Threads for host functions, by card, started when first needed.
    pub(crate) host_threads: BTreeMap<u32, HostThread>,
    pub(crate) profiling: Profiling,
    pub(crate) graphs: Graphs,
    pub(crate) kernels: Kernels,
    /// Address and size of what `aclCreateDataBuffer` describes.
    pub(crate) data_buffers: BTreeMap<u64, (usize, usize)>,
    pub(crate) exceptions: Exceptions,
    /// `aclSetCompileopt`, by the option's number.
    pub(crate) compile_options: BTreeMap<u32, String>,
    /// What `aclrtSetSysParamOpt` has set.
    pub(crate) parameters: Parameters,
    /// How long an `aclrtStreamWaitEvent` holds its stream at most (`aclrtSetOpWaitTimeout`).
    pub(crate) wait_limit: Option<Duration>,
}

impl Runtime {
    pub(crate) fn new(cards: usize) -> Self {
        Self { cards: (0..cards).map(|_| Card::default()).collect(), ..Self::default() }
    }

    /// Whether an object that counts as the program's has this number.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.contexts.contains_key(&number)
            || self.streams.contains_key(&number)
            || self.events.contains_key(&number)
            || self.notifies.contains_key(&number)
    }
}
