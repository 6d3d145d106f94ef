//! Strict mode: the machine that only lets legal programs pass, in an order its seed picks.
//!
//! Input: the seed of [`Mode::Strict`](crate::Mode), every call with its [`Site`], every queued entry with the bytes it
//! touches. Output: [`Report`]s. Parts: `site` says who made a call, `report` what was found,
//! `order` what happened before what.
//! Invariant: with another mode none of this runs. Does not: change what a legal program computes.

pub(crate) mod order;
pub(crate) mod report;
pub(crate) mod site;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use report::{Report, ReportKind};

/// The strict part of a machine.
#[derive(Debug)]
pub(crate) struct Strict {
    seed: u64,
    reports: Mutex<Vec<Report>>,
}

impl Strict {
    /// A machine's strict part; the same seed gives the same order of calls and tasks.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, reports: Mutex::default() }
    }

    /// What orders the calls.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Keeps a report.
    pub(crate) fn report(&self, report: Report) {
        self.lock().push(report);
    }

    /// Everything found so far, in the order found.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Report>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
