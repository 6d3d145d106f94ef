//! Checks of strict mode outside its schedule: refused calls and red zones. Each finding is
//! reported once. `order` checks the order of accesses.

use std::sync::Arc;

use super::Strict;
use crate::base::failure::Failure;
use crate::base::report::{Report, ReportKind};
use crate::base::site::CallSite;
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::memory::allocation_table::damage_report;
use crate::memory::raw::Allocation;
use crate::runtime::stream::{Queued, StreamEntry, WaitReason};
use crate::state::MachineState;

impl Machine {
    /// Returns `None` outside strict mode.
    pub(crate) fn here(&self) -> Option<Arc<CallSite>> {
        self.strict()?;
        self.site(&self.lock(), None)
    }

    pub(crate) fn report_refusal(&self, strict: &Strict, failure: &Failure) -> bool {
        if failure.is_answer() {
            return false;
        }
        let Some((kind, mut sites)) = failure.finding() else { return false };
        sites.extend(self.here());
        strict.report_once(Report::new(kind, failure.message.clone(), sites));
        true
    }

    /// Evaluates `accesses` only in strict mode.
    pub(crate) fn watched(&self, accesses: impl FnOnce() -> Vec<MemoryAccess>) -> Vec<MemoryAccess> {
        if self.strict().is_some() { accesses() } else { Vec::new() }
    }

    pub(crate) fn host_touches(&self, accesses: impl FnOnce() -> Vec<MemoryAccess>) {
        if self.strict().is_some() {
            let mut state = self.lock();
            let site = self.site(&state, None);
            if let Some(strict) = &mut state.strict {
                strict.order.host_touched(&accesses(), site.as_ref());
            }
        }
    }

    pub(crate) fn check_freed(&self, freed: Option<&Allocation>, site: Option<&Arc<CallSite>>) {
        let (Some(strict), Some(freed)) = (self.strict(), freed) else { return };
        if let Some(strict) = &mut self.lock().strict {
            strict.order.freed(freed, site);
        }
        if let Some(report) = damage_report(freed, site) {
            strict.report(report);
        }
    }

    /// The event must be idle. Queued records do not count as uses: the event outlives them (page
    /// of aclrtDestroyEvent since CANN 8.0). Waits for a shared word do count.
    pub(crate) fn check_event_idle(&self, state: &MachineState, event: u64) {
        let in_queue = |queued: &Queued| matches!(queued.entry, StreamEntry::Signal { event: other, .. } if other == event);
        let waiting = |reason: &WaitReason| matches!(reason, WaitReason::Signal(other) if *other == event);
        self.check_idle(state, &format!("event {event}"), in_queue, waiting);
    }

    pub(crate) fn check_notify_idle(&self, state: &MachineState, notify: u64) {
        let in_queue = |queued: &Queued| matches!(queued.entry, StreamEntry::NotifyRecord(other) | StreamEntry::NotifyWait(other) if other == notify);
        let waiting = |reason: &WaitReason| matches!(reason, WaitReason::Notify(other) if *other == notify);
        self.check_idle(state, &format!("notify {notify}"), in_queue, waiting);
    }

    pub(crate) fn check_stream_idle(&self, state: &MachineState, id: u64) {
        let Some(stream) = state.runtime.streams.get(&id).filter(|stream| !stream.is_idle()) else { return };
        let waiting = || stream.queued().find_map(|queued| queued.site.clone());
        let first = if stream.has_next() { waiting() } else { stream.site_under_way.clone() };
        self.report_busy(state, &format!("stream {id}"), id, first);
    }

    fn check_idle(
        &self,
        state: &MachineState,
        what: &str,
        in_queue: impl Fn(&Queued) -> bool,
        waiting: impl Fn(&WaitReason) -> bool,
    ) {
        if self.strict().is_none() {
            return;
        }
        for (id, stream) in &state.runtime.streams {
            let user = if stream.waits_for.as_ref().is_some_and(&waiting) {
                Some(stream.site_under_way.clone())
            } else {
                stream.queued().find(|queued| in_queue(queued)).map(|queued| queued.site.clone())
            };
            if let Some(user) = user {
                self.report_busy(state, what, *id, user);
                return;
            }
        }
    }

    fn report_busy(&self, state: &MachineState, what: &str, stream: u64, user: Option<Arc<CallSite>>) {
        let here = self.site(state, None);
        let what = format!(
            "{what} is destroyed by [2] while [1] is not done; synchronize stream {stream} before [2]"
        );
        let sites = user.into_iter().chain(here).collect();
        state.report_all([Report::new(ReportKind::DestroyWhileBusy, what, sites)]);
    }

    /// Does nothing outside strict mode.
    pub(crate) fn check_zones(&self) {
        let Some(strict) = self.strict() else { return };
        for report in self.memory().take_damage(self.here().as_ref()) {
            strict.report(report);
        }
    }
}
