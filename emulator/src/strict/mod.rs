//! Strict mode accepts only legal programs and runs them in an order selected by a seed.
//!
//! Invariant: strict mode never changes the results of a legal program.

mod check;
pub(crate) mod clock;
pub(crate) mod conductor;
pub(crate) mod deadlock;
mod host;
pub(crate) mod leaks;
pub(crate) mod makers;
pub(crate) mod order;
mod random;
mod shadow;
pub(crate) mod state;
pub(crate) mod trace;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use trace::{Actor, StrictTrace, TraceEvent, What};

use crate::base::report::{Report, ReportKind};
use crate::base::stderr::say;
use crate::config::StrictRules;
use crate::scheduler::turnstile::Turnstile;

/// These calls read constants or data of the calling thread. Their order does not matter, so they
/// do not stop at the turnstile.
const UNORDERED: [&str; 17] = [
    "aclDataTypeSize",
    "aclFloat16ToFloat",
    "aclFloatToFloat16",
    "aclGetCannAttribute",
    "aclGetCannAttributeList",
    "aclGetRecentErrMsg",
    "aclrtGetDeviceCount",
    "aclrtGetLastError",
    "aclrtGetRunMode",
    "aclrtGetSocName",
    "aclrtGetVersion",
    "aclrtPeekAtLastError",
    "aclsysGetCANNVersion",
    "aclsysGetVersionNum",
    "aclsysGetVersionStr",
    "HcclGetCommConfigCapability",
    "HcclGetErrorString",
];

pub(crate) fn is_unordered(call: &str) -> bool {
    UNORDERED.contains(&call)
}

#[derive(Debug)]
pub(crate) struct Strict {
    seed: u64,
    ignored: Vec<ReportKind>,
    known: BTreeSet<String>,
    noted: Mutex<BTreeSet<String>>,
    seed_told: Once,
    turnstile: Arc<Turnstile>,
    reports: Mutex<Vec<Report>>,
    trace: Mutex<StrictTrace>,
}

impl Strict {
    /// A seed always gives the same order of calls and tasks.
    pub(crate) fn new(seed: u64, rules: &StrictRules) -> Self {
        Self {
            seed,
            ignored: rules.ignored.clone(),
            known: rules.known.iter().map(|finding| without_numbers(finding)).collect(),
            noted: Mutex::default(),
            seed_told: Once::new(),
            turnstile: Arc::default(),
            reports: Mutex::default(),
            trace: Mutex::default(),
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn turnstile(&self) -> &Arc<Turnstile> {
        &self.turnstile
    }

    /// Waits for the thread's turn. Returns the thread's name for reports.
    pub(crate) fn pass(&self, call: &'static str, context: Option<u64>) -> Option<Arc<str>> {
        self.seed_told.call_once(|| say(&format!("strict, seed {}", self.seed)));
        self.turnstile.pass(call, context)
    }

    /// Accepted reports are only printed.
    pub(crate) fn report(&self, report: Report) {
        if self.ignored.contains(&report.kind) || self.known.contains(&without_numbers(&report.finding())) {
            self.tell_note(&report);
            return;
        }
        say(&report.to_string());
        locked(&self.reports).push(report);
    }

    /// Notes are not mistakes and are printed once.
    pub(crate) fn tell_note(&self, note: &Report) {
        if locked(&self.noted).insert(note.finding()) {
            say(&format!("note: {note}"));
        }
    }

    /// A finding may come from several calls.
    pub(crate) fn report_once(&self, report: Report) {
        let is_known = |other: &Report| other.kind == report.kind && other.what == report.what;
        if !locked(&self.reports).iter().any(is_known) {
            self.report(report);
        }
    }

    pub(crate) fn reports(&self) -> Vec<Report> {
        locked(&self.reports).clone()
    }

    pub(crate) fn note(&self, actor: Actor, what: What, tag: Option<Arc<str>>) {
        locked(&self.trace).push(actor, what, tag);
    }

    pub(crate) fn trace(&self) -> Vec<TraceEvent> {
        locked(&self.trace).events()
    }
}

/// Findings that differ only in addresses, counts or sizes then compare equal.
fn without_numbers(text: &str) -> String {
    text.split(|letter: char| letter.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("#")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
