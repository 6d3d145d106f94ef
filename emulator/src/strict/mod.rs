//! Strict mode: the machine that only lets legal programs pass, in an order its seed picks.
//!
//! Input: the seed of [`Mode::Strict`](crate::Mode), every call with its [`Site`](crate::base::site::Site), every queued
//! entry with the bytes it touches. Output: [`Report`]s and a trace. Parts: `conductor` picks what happens next once the
//! turnstile of `scheduler` is quiet, `deadlock` names what waits for ever, `order` says what happened before what, `check`
//! looks at calls that fail, at red zones and at what is destroyed under work, `leaks` at what is left at the end; `state` is
//! what of this is kept under the machine's lock.
//! Invariant: with another mode none of this runs. Does not: change what a legal program computes.

mod check;
pub(crate) mod clock;
pub(crate) mod conductor;
pub(crate) mod deadlock;
pub(crate) mod leaks;
pub(crate) mod makers;
pub(crate) mod order;
mod random;
mod shadow;
pub(crate) mod state;
pub(crate) mod trace;

use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use trace::{Actor, Trace, TraceEvent, What};

use crate::base::report::Report;
use crate::base::stderr::say;
use crate::scheduler::turnstile::Turnstile;

/// The strict part of a machine.
#[derive(Debug)]
pub(crate) struct Strict {
    seed: u64,
    seed_told: Once,
    turnstile: Arc<Turnstile>,
    reports: Mutex<Vec<Report>>,
    trace: Mutex<Trace>,
}

impl Strict {
    /// A machine's strict part; the same seed gives the same order of calls and tasks.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            seed_told: Once::new(),
            turnstile: Arc::default(),
            reports: Mutex::default(),
            trace: Mutex::default(),
        }
    }

    /// What orders the calls.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Where every call stops.
    pub(crate) fn turnstile(&self) -> &Arc<Turnstile> {
        &self.turnstile
    }

    /// Stops the calling thread before a call until it is its turn; gives the name reports use for the thread.
    pub(crate) fn pass(&self, call: &'static str, context: Option<u64>) -> Option<Arc<str>> {
        self.seed_told.call_once(|| say(&format!("strict, seed {}", self.seed)));
        self.turnstile.pass(call, context)
    }

    /// Keeps a report, and tells it on stderr.
    pub(crate) fn report(&self, report: Report) {
        say(&report.to_string());
        locked(&self.reports).push(report);
    }

    /// Keeps a report unless the same was found before, perhaps by another call.
    pub(crate) fn report_once(&self, report: Report) {
        let is_known = |other: &Report| other.kind == report.kind && other.what == report.what;
        if !locked(&self.reports).iter().any(is_known) {
            self.report(report);
        }
    }

    /// Everything found so far, in the order found.
    pub(crate) fn reports(&self) -> Vec<Report> {
        locked(&self.reports).clone()
    }

    /// Notes a step.
    pub(crate) fn note(&self, actor: Actor, what: What, tag: Option<Arc<str>>) {
        locked(&self.trace).push(actor, what, tag);
    }

    /// The steps taken so far, oldest first.
    pub(crate) fn trace(&self) -> Vec<TraceEvent> {
        locked(&self.trace).events()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
