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

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use trace::{Actor, Trace, TraceEvent, What};

use crate::base::report::{Report, ReportKind};
use crate::base::stderr::say;
use crate::config::StrictRules;
use crate::scheduler::turnstile::Turnstile;

/// Calls that read what never changes, or what the calling thread alone has: no order of calls changes their answers, so they do
/// not stop at the turnstile.
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

/// Whether a call has its answer whenever it is made.
pub(crate) fn is_unordered(call: &str) -> bool {
    UNORDERED.contains(&call)
}

/// The strict part of a machine.
#[derive(Debug)]
pub(crate) struct Strict {
    seed: u64,
    ignored: Vec<ReportKind>,
    /// Findings that are no reports, without their numbers.
    known: BTreeSet<String>,
    /// Notes told, so that none is told twice.
    noted: Mutex<BTreeSet<String>>,
    seed_told: Once,
    turnstile: Arc<Turnstile>,
    reports: Mutex<Vec<Report>>,
    trace: Mutex<Trace>,
}

impl Strict {
    /// A machine's strict part; the same seed gives the same order of calls and tasks.
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

    /// Keeps a report, and tells it on stderr; one that the rules know is only told.
    pub(crate) fn report(&self, report: Report) {
        if self.ignored.contains(&report.kind) || self.known.contains(&without_numbers(&report.finding())) {
            self.tell_note(&report);
            return;
        }
        say(&report.to_string());
        locked(&self.reports).push(report);
    }

    /// Tells once of what is worth knowing and no mistake.
    pub(crate) fn tell_note(&self, note: &Report) {
        if locked(&self.noted).insert(note.finding()) {
            say(&format!("note: {note}"));
        }
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

/// The same text for what differs in addresses, counts and bytes only.
fn without_numbers(text: &str) -> String {
    text.split(|letter: char| letter.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
