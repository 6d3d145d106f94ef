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

pub(crate) mod conductor;
pub(crate) mod load;
pub(crate) mod schedule;
pub(crate) mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ascend_tp_machine::launch::Access;
use ascend_tp_machine::{HostCall, Launch, Profile, Topology};

use crate::config::Config;
use crate::machine::{Alarm, Machine};
use crate::memory::copy::Copy;
use crate::runtime::stream::Entry;
use crate::runtime::thread;
use crate::scheduler::pool::Task;
use crate::scheduler::turnstile::Turnstile;
use crate::scheduler::wait::Wait;
use load::LoadId;
use schedule::Schedule;
pub use timeline::{Lane, Recording, Span, Total};

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

/// What work of a stream does when there are no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Without {
    /// Nothing.
    Nothing,
    /// The same: other work depends on it.
    Same,
}

/// What work of a stream costs.
pub(crate) enum Cost<'a> {
    Copy(&'a Copy),
    /// The copy engine touches so many bytes in these ways.
    Pass(usize, &'a [Access]),
    /// A kernel nothing is known of: the least a kernel takes.
    Kernel,
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

impl Machine {
    /// What stops threads, where anything does.
    pub(crate) fn turnstile(&self) -> Option<&Arc<Turnstile>> {
        let strict = self.strict().map(|strict| strict.turnstile());
        strict.or_else(|| self.timed().map(|timed| &timed.turnstile))
    }

    /// Whether bytes of cards are what the program computes.
    pub(crate) fn has_numbers(&self) -> bool {
        self.config().mode.has_numbers()
    }

    /// Now, as the calling thread has it.
    pub(crate) fn thread_now(&self) -> Instant {
        match self.timed() {
            Some(timed) => timed.instant(thread::clock(self.key())),
            None => self.lock().now(),
        }
    }

    /// Work of a stream: `task`, and in timed mode its load.
    pub(crate) fn work(&self, name: &'static str, cost: &Cost<'_>, without: Without, task: Task) -> Entry {
        let load = self.load_of(name, cost);
        let task = (self.has_numbers() || without == Without::Same).then_some(task);
        Entry::Task { name, task, load }
    }

    fn load_of(&self, name: &'static str, cost: &Cost<'_>) -> Option<LoadId> {
        let timed = self.timed()?;
        let mut state = self.lock();
        let Schedule { timeline, loads, .. } = &mut **state.timed.as_mut()?;
        let load = match cost {
            Cost::Copy(copy) => timed.copy(name, copy, timeline),
            Cost::Pass(bytes, accesses) => timed.pass(name, *bytes, accesses, timeline),
            Cost::Kernel => timed.operator(&Launch { operator: name, operands: Vec::new() }, timeline),
            Cost::Nothing => return None,
        };
        Some(loads.intern(load))
    }

    /// The load of an operator, in timed mode.
    pub(crate) fn operator_load(&self, launch: impl FnOnce() -> Launch) -> Option<LoadId> {
        let timed = self.timed()?;
        let launch = launch();
        let mut state = self.lock();
        let Schedule { timeline, loads, .. } = &mut **state.timed.as_mut()?;
        Some(loads.intern(timed.operator(&launch, timeline)))
    }

    /// The calling thread waits while a copy engine does this, beside all streams.
    pub(crate) fn spend_on(&self, name: &'static str, cost: &Cost<'_>) {
        if let Some(load) = self.load_of(name, cost) {
            let duration_ns = self.lock().timed.as_ref().map(|schedule| schedule.loads.of(load).duration_ns);
            thread::advance_clock(self.key(), duration_ns.unwrap_or_default());
        }
    }

    /// The calling thread has waited for the end of work at `ended`, and notices it.
    pub(crate) fn wake_at(&self, ended: Option<Instant>) {
        if let Some(timed) = self.timed() {
            if let Some(ended) = ended {
                thread::raise_clock(self.key(), timed.since_epoch(ended));
            }
            thread::advance_clock(self.key(), timed.wake_ns);
        }
    }

    /// In timed mode: lets the cards come to the calling thread's time, so that it sees what they have done by then.
    ///
    /// # Errors
    /// The machine is gone.
    pub(crate) fn catch_up(&self) -> Result<(), crate::base::failure::Failure> {
        let Some(timed) = self.timed() else { return Ok(()) };
        let now_ns = thread::clock(self.key());
        let state = self.lock();
        if state.timed.as_ref().is_none_or(|schedule| schedule.now_ns() >= now_ns) {
            return Ok(());
        }
        let until = Wait::Time(timed.instant(now_ns));
        self.sleep(state, Alarm::Signal(&self.progress), None, until).map(|_| ())
    }
}
