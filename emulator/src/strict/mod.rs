//! Strict mode: a machine that accepts only legal programs, and runs them in an order selected by a
//! seed.
//!
//! - Input: the seed of [`Mode::Strict`](crate::Mode), every call with its
//!   [`Site`](crate::base::site::Site), and every queued entry with its accesses.
//! - Output: [`Report`]s and a trace.
//! - Modules: `conductor` selects the next step once the turnstile of `scheduler` is quiet.
//!   `deadlock` reports endless waits. `order` tracks which work happened before which. `check`
//!   inspects failed calls, red zones and destroyed objects. `leaks` reports remaining objects.
//!   `state` is the part under the machine's lock.
//! - Invariant: none of this runs in other modes, and it never changes the results of a legal
//!   program.

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

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use trace::{Actor, Trace, TraceEvent, What};

use crate::base::report::{Report, ReportKind};
use crate::base::stderr::say;
use crate::config::StrictRules;
use crate::scheduler::turnstile::Turnstile;

/// Calls that read constants or data of the calling thread. Their result does not depend on the
/// order of calls, so they do not stop at the turnstile.
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
    /// Accepted findings, without their numbers.
    known: BTreeSet<String>,
    noted: Mutex<BTreeSet<String>>,
    seed_told: Once,
    turnstile: Arc<Turnstile>,
    reports: Mutex<Vec<Report>>,
    trace: Mutex<Trace>,
}

impl Strict {
    /// Creates the strict part of a machine. The same seed gives the same order of calls and tasks.
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

    /// Blocks the calling thread until it is its turn to make a call. Returns the name of the
    /// thread for reports.
    pub(crate) fn pass(&self, call: &'static str, context: Option<u64>) -> Option<Arc<str>> {
        self.seed_told.call_once(|| say(&format!("strict, seed {}", self.seed)));
        self.turnstile.pass(call, context)
    }

    /// Stores a report and prints it on stderr. Reports that the rules accept are only printed.
    pub(crate) fn report(&self, report: Report) {
        if self.ignored.contains(&report.kind) || self.known.contains(&without_numbers(&report.finding())) {
            self.tell_note(&report);
            return;
        }
        say(&report.to_string());
        locked(&self.reports).push(report);
    }

    /// Prints a note once. A note is not a mistake.
    pub(crate) fn tell_note(&self, note: &Report) {
        if locked(&self.noted).insert(note.finding()) {
            say(&format!("note: {note}"));
        }
    }

    /// Stores a report unless the same finding was reported before, even by another call.
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

/// Replaces numbers, so that findings that differ only in addresses, counts or sizes compare equal.
fn without_numbers(text: &str) -> String {
    text.split(|letter: char| letter.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("#")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
