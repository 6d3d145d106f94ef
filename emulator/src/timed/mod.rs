//! Timed mode: a machine with virtual time for cards, streams, links and threads.
//!
//! A call advances the clock of its thread by its host time, and enqueued entries carry their issue
//! time. The cards advance only when every thread that could still make a call is blocked. They
//! stop when a thread's wait ends, and the thread continues at that time. No thread can call at a
//! time before the cards' time, so a deterministic program has one timeline.
//!
//! Invariants: an entry starts at the latest of four times: the end of the previous entry, its
//! issue, the end of its waits, and the time when its lane of the card is free. Lanes serve entries
//! in order of arrival.

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

pub(crate) fn nanoseconds(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

#[derive(Debug)]
pub(crate) struct TimedMode {
    pub(crate) profile: Profile,
    pub(crate) topology: Topology,
    /// Host time of virtual time 0.
    pub(crate) epoch: Instant,
    pub(crate) turnstile: Arc<Turnstile>,
    /// Delay of a waiting thread after the end of work.
    pub(crate) wake_ns: u64,
    /// Cost of a replayed graph's node in addition to its load.
    pub(crate) replay_node_ns: u64,
    /// Time that the cards have reached; released threads continue no earlier.
    floor_ns: AtomicU64,
}

pub(crate) enum VirtualCost<'a> {
    Copy(&'a Copy),
    /// Accesses of the copy engine to each byte.
    Pass(usize, &'a [Access]),
    /// Costs the minimum of a kernel.
    Kernel,
    /// Counts its cycles when it runs. Without execution, the cost follows from its arguments or is
    /// the minimum.
    Counted(Option<Launch>),
    Nothing,
}

impl TimedMode {
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

    pub(crate) fn instant(&self, ns: u64) -> Instant {
        self.epoch + Duration::from_nanos(ns)
    }

    pub(crate) fn since_epoch(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    pub(crate) fn begin_call(&self, key: thread::MachineKey, name: &'static str) {
        let floor_ns = self.floor_ns.load(Ordering::Acquire);
        let cost = |name| nanoseconds(self.profile.host_us(HostCall::of(name), 0.0));
        if thread::begin_timed_call(key, name, floor_ns, cost) {
            self.turnstile.join();
        }
    }

    fn raise_floor(&self, ns: u64) {
        self.floor_ns.fetch_max(ns, Ordering::AcqRel);
    }
}
