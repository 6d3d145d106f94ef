//! Checks of strict mode that look at a machine from outside its schedule: calls that are refused, red zones.
//!
//! Input: failures of calls, allocations. Output: reports. Invariant: the same finding is reported once, however often it
//! is met. Does not: decide what is refused (see the calls themselves), or order accesses (see `order`).

use std::sync::Arc;

use super::site::Site;
use super::{Report, Strict, order};
use crate::abi::raw::Allocation;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::memory::damage_report;
use crate::stream::Access;

impl Machine {
    /// The running call, which concerns no stream; None outside strict mode.
    pub(crate) fn here(&self) -> Option<Arc<Site>> {
        self.strict()?;
        self.site(&self.lock(), None)
    }

    /// The running call is about to return a failure.
    pub(crate) fn report_refusal(&self, strict: &Strict, failure: &Failure) {
        if failure.is_answer() {
            return;
        }
        if let Some((kind, mut sites)) = failure.finding() {
            sites.extend(self.here());
            strict.report_once(Report::new(kind, failure.message.clone(), sites));
        }
    }

    /// What queued work touches, which only strict mode asks.
    pub(crate) fn watched(&self, accesses: impl FnOnce() -> Vec<Access>) -> Vec<Access> {
        if self.strict().is_some() { accesses() } else { Vec::new() }
    }

    /// The calling thread itself touches memory now.
    pub(crate) fn host_touches(&self, accesses: impl FnOnce() -> Vec<Access>) {
        if self.strict().is_some() {
            let mut state = self.lock();
            let site = self.site(&state, None);
            order::host_touched(&mut state, &accesses(), site.as_ref());
        }
    }

    /// The call at `site` has freed memory.
    pub(crate) fn check_freed(&self, freed: Option<&Allocation>, site: Option<&Arc<Site>>) {
        let (Some(strict), Some(freed)) = (self.strict(), freed) else { return };
        order::freed(&mut self.lock(), freed, site);
        if let Some(report) = damage_report(freed, site) {
            strict.report(report);
        }
    }

    /// Looks for damaged red zones; None outside strict mode costs nothing.
    pub(crate) fn check_zones(&self) {
        let Some(strict) = self.strict() else { return };
        for report in self.memory().take_damage(self.here().as_ref()) {
            strict.report(report);
        }
    }
}
