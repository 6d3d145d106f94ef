//! The scheduling state of a machine, behind one lock. Strict mode needs this consistent view of
//! all parts.

use std::sync::Arc;
use std::time::Instant;

use crate::base::failure::Failure;
use crate::base::report::Report;
use crate::faults::delay::Delays;
use crate::faults::overlay::Faults;
use crate::hccl::state::Hccl;
use crate::runtime::objects::Runtime;
use crate::runtime::thread::MachineKey;
use crate::scheduler::ready::Scheduler;
use crate::scheduler::wait::Wait;
use crate::strict::state::StrictState;
use crate::timed::schedule::VirtualSchedule;

#[derive(Debug)]
pub(crate) struct MachineState {
    pub(crate) key: MachineKey,
    last_number: u64,
    pub(crate) runtime: Runtime,
    pub(crate) scheduler: Scheduler,
    pub(crate) hccl: Hccl,
    pub(crate) strict: Option<Box<StrictState>>,
    pub(crate) timed: Option<Box<VirtualSchedule>>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) delays: Delays,
}

impl MachineState {
    pub(crate) fn new(
        key: MachineKey,
        runtime: Runtime,
        scheduler: Scheduler,
        strict: Option<StrictState>,
        timed: Option<VirtualSchedule>,
        faults: &Arc<Faults>,
    ) -> Self {
        Self {
            key,
            last_number: 0,
            runtime,
            scheduler,
            hccl: Hccl::default(),
            strict: strict.map(Box::new),
            timed: timed.map(Box::new),
            faults: Arc::clone(faults),
            delays: Delays::default(),
        }
    }

    /// Numbers are never reused.
    pub(crate) fn fresh_number(&mut self) -> u64 {
        self.last_number += 1;
        self.note_maker(self.last_number);
        self.last_number
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict.is_some()
    }

    pub(crate) fn is_over(&self, wait: &Wait) -> bool {
        match wait {
            Wait::Stream { stream, target } => {
                self.runtime.streams.get(stream).is_none_or(|stream| stream.has_finished(*target))
            }
            Wait::Record(record) => record.at().is_some() || record.lost().is_some(),
            Wait::Rendezvous { root, .. } => self.hccl.communicators.is_gathered(*root),
            Wait::Entering { communicator } => self.hccl.communicators.is_entered(*communicator),
            Wait::Callback { thread } => self.runtime.callbacks.is_due(*thread),
            Wait::Time(at) => self.scheduler.now() >= *at,
        }
    }

    /// Returns the end of the earliest time limit in a queue.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let moving = self.hccl.communicators.moving.values().copied();
        let collective = self
            .hccl
            .matchings
            .oldest_wait()
            .into_iter()
            .chain(moving)
            .map(|since| since + self.scheduler.exec_timeout);
        collective.chain(self.delays.earliest()).chain(self.scheduler.waits.next_limit()).min()
    }

    /// Returns false if only collectives have waited too long.
    pub(crate) fn expire_waits(&mut self) -> bool {
        let now = self.scheduler.now();
        let earliest = self.delays.earliest().into_iter().chain(self.scheduler.waits.next_limit()).min();
        let is_any_over = earliest.is_some_and(|until| until <= now);
        self.release_due(now);
        self.expire_limits();
        is_any_over
    }

    pub(crate) fn report_all(&self, reports: impl IntoIterator<Item = Report>) {
        if let Some(strict) = &self.strict {
            reports.into_iter().for_each(|report| strict.shared.report(report));
        }
    }

    /// Stores a report and permanently fails `streams`. Returns the failure of the running call;
    /// `code` is for the next calls.
    pub(crate) fn condemn(&mut self, code: i32, report: Report, streams: &[u64]) -> Failure {
        let failure = Failure::new(code, report.to_string()).quiet();
        if let Some(strict) = &self.strict {
            strict.shared.report(report);
        }
        for stream in streams {
            if let Some(stream) = self.runtime.streams.get_mut(stream) {
                stream.stop(&failure);
            }
        }
        failure
    }
}
