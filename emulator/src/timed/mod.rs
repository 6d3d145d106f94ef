//! Timed mode: the machine whose cards, streams, links and threads have a time of their own.
//!
//! Input: calls of the C ABI, as ever; a [`Profile`] and a [`Topology`]. Output: a [`Timeline`](timeline::Timeline), and
//! virtual time wherever the ABI tells one. Parts: `load` says what an entry costs, `schedule` lets streams go on in the
//! order of virtual time, `conductor` does so whenever the program is quiet, `timeline` writes down what happened.
//!
//! Threads of the program run freely: a call takes its host time off the thread's own clock, and what it enqueues carries
//! the time at which it was made. Only when every thread that may still come by itself is blocked do the cards go on, event
//! by event, until some thread's wait is over; it then goes on with its clock at that time. No thread can call at an
//! earlier time than the cards have come to, so a program that is itself deterministic has one timeline.
//!
//! Invariants: an entry starts at the latest of the end of the entry before it, its issue, what it waits for, and the
//! moment its lane of the card is free; lanes serve in the order of arrival. With another mode none of this runs. Does
//! not: commit memory of cards without numbers, or change what a program computes with them.

pub(crate) mod advance;
pub(crate) mod conductor;
pub(crate) mod load;
pub(crate) mod schedule;
pub(crate) mod stream_time;
pub(crate) mod timeline;
pub(crate) mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ascend_tp_machine::launch::Access;
use ascend_tp_machine::{HostCall, Launch, Profile, Topology};

use crate::config::Config;
use crate::memory::copy::Copy;
use crate::runtime::thread;
use crate::scheduler::turnstile::Turnstile;
pub use timeline::{Lane, LaneSpan, Recording, Total};

/// Microseconds as whole nanoseconds.
pub(crate) fn nanoseconds(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// The timed part of a machine.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) profile: Profile,
    pub(crate) topology: Topology,
    /// The moment of the host's clock that stands for time 0.
    pub(crate) epoch: Instant,
    pub(crate) turnstile: Arc<Turnstile>,
    /// What a waiting thread takes to notice that the card is done.
    pub(crate) wake_ns: u64,
    /// What a node of a replayed graph takes beside its load.
    pub(crate) replay_node_ns: u64,
    /// The time to which the cards have come: a thread that others waited for comes back no earlier.
    floor_ns: AtomicU64,
}

/// What work of a stream costs.
pub(crate) enum Cost<'a> {
    Copy(&'a Copy),
    /// The copy engine touches so many bytes in these ways.
    Pass(usize, &'a [Access]),
    /// A kernel nothing is known of: the least a kernel takes.
    Kernel,
    /// A kernel that counts its cycles where it runs; until then what its arguments say, or the least.
    Counted(Option<Launch>),
    Nothing,
}

impl Timed {
    pub(crate) fn new(config: &Config, epoch: Instant) -> Self {
        let host = &config.profile.coefficients.host;
        Self {
            epoch,
            turnstile: Arc::default(),
            wake_ns: nanoseconds(host.wake_us),
            replay_node_ns: nanoseconds(host.replay_node_us),
            floor_ns: AtomicU64::new(0),
            profile: config.profile.clone(),
            topology: config.topology.clone(),
        }
    }

    /// The moment of the host's clock that stands for a virtual time.
    pub(crate) fn instant(&self, ns: u64) -> Instant {
        self.epoch + Duration::from_nanos(ns)
    }

    /// The virtual time a moment stands for.
    pub(crate) fn since_epoch(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// The calling thread begins a call.
    pub(crate) fn begin_call(&self, key: thread::MachineKey, name: &'static str) {
        let floor_ns = self.floor_ns.load(Ordering::Acquire);
        let cost = |name| nanoseconds(self.profile.host_us(HostCall::of(name), 0.0));
        if thread::begin_timed_call(key, name, floor_ns, cost) {
            self.turnstile.join();
        }
    }

    /// The cards have come to `ns`.
    fn raise_floor(&self, ns: u64) {
        self.floor_ns.fetch_max(ns, Ordering::AcqRel);
    }
}
