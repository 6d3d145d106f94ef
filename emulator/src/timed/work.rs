//! Cost of a call on its thread, and of its entries on their stream.

use std::sync::Arc;
use std::time::Instant;

use ascend_tp_machine::{Launch, Work};

use super::load::{LoadId, TimedLoad};
use super::schedule::VirtualSchedule;
use crate::machine::{Machine, WakeSource};
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread;
use crate::scheduler::pool::StreamTask;
use crate::scheduler::pool::Without;
use crate::scheduler::turnstile::Turnstile;
use crate::scheduler::wait::Wait;
use crate::timed::VirtualCost;

impl Machine {
    /// Returns `None` outside strict and timed mode.
    pub(crate) fn turnstile(&self) -> Option<&Arc<Turnstile>> {
        let strict = self.strict().map(|strict| strict.turnstile());
        strict.or_else(|| self.timed().map(|timed| &timed.turnstile))
    }

    /// Returns true if the machine computes the real contents of memory.
    pub(crate) fn has_numbers(&self) -> bool {
        self.config().mode.has_numbers()
    }

    pub(crate) fn thread_now(&self) -> Instant {
        match self.timed() {
            Some(timed) => timed.instant(thread::clock(self.key())),
            None => self.lock().scheduler.now(),
        }
    }

    pub(crate) fn work(
        &self,
        name: &'static str,
        cost: &VirtualCost<'_>,
        without: Without,
        task: StreamTask,
    ) -> StreamEntry {
        let load = self.load_of(name, cost);
        let task = (self.has_numbers() || without == Without::Same).then_some(task);
        let is_brief = matches!(cost, VirtualCost::Copy(copy) if copy.is_brief());
        StreamEntry::Task { name, task, load, is_brief }
    }

    fn load_of(&self, name: &'static str, cost: &VirtualCost<'_>) -> Option<LoadId> {
        let timed = self.timed()?;
        let mut state = self.lock();
        let VirtualSchedule { timeline, loads, .. } = &mut **state.timed.as_mut()?;
        let least = || Launch { operator: name, operands: Vec::new() };
        let load = match cost {
            VirtualCost::Copy(copy) => timed.copy(name, copy, timeline),
            VirtualCost::Pass(bytes, accesses) => timed.pass(name, *bytes, accesses, timeline),
            VirtualCost::Kernel => timed.operator(name, &Work::of(&least()), timeline),
            VirtualCost::Counted(known) => {
                let launch = known.clone().unwrap_or_else(least);
                TimedLoad {
                    is_counted: true,
                    ..timed.operator(launch.operator, &Work::of(&launch), timeline)
                }
            }
            VirtualCost::Nothing => return None,
        };
        Some(loads.intern(load))
    }

    pub(crate) fn operator_load(&self, name: &'static str, work: impl FnOnce() -> Work) -> Option<LoadId> {
        let timed = self.timed()?;
        let work = work();
        let mut state = self.lock();
        let VirtualSchedule { timeline, loads, .. } = &mut **state.timed.as_mut()?;
        Some(loads.intern(timed.operator(name, &work, timeline)))
    }

    /// Returns the duration in nanoseconds; 0 outside timed mode.
    pub(crate) fn load_ns(&self, load: Option<LoadId>) -> u64 {
        let state = self.lock();
        let loads = state.timed.as_ref().map(|schedule| &schedule.loads);
        loads.zip(load).map_or(0, |(loads, load)| loads.of(load).duration_ns)
    }

    /// The pass runs in parallel with all streams.
    pub(crate) fn spend_on(&self, name: &'static str, cost: &VirtualCost<'_>) {
        if let Some(load) = self.load_of(name, cost) {
            let duration_ns = self.lock().timed.as_ref().map(|schedule| schedule.loads.of(load).duration_ns);
            thread::advance_clock(self.key(), duration_ns.unwrap_or_default());
        }
    }

    /// The wait was for work that ended at `ended`.
    pub(crate) fn wake_at(&self, ended: Option<Instant>) {
        if let Some(timed) = self.timed() {
            if let Some(ended) = ended {
                thread::raise_clock(self.key(), timed.since_epoch(ended));
            }
            thread::advance_clock(self.key(), timed.wake_ns);
        }
    }

    /// The calling thread then observes the cards' work up to its time.
    pub(crate) fn catch_up(&self) -> Result<(), crate::base::failure::Failure> {
        let Some(timed) = self.timed() else { return Ok(()) };
        let now_ns = thread::clock(self.key());
        let state = self.lock();
        if state.timed.as_ref().is_none_or(|schedule| schedule.now_ns() >= now_ns) {
            return Ok(());
        }
        let until = Wait::Time(timed.instant(now_ns));
        self.sleep(state, WakeSource::Signal(&self.progress), None, until).map(|_| ())
    }
}
