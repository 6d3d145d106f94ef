//! A rehearsal as one HTML page.
//!
//! - Invariants: the page loads nothing from elsewhere. Names in the data cannot end the data
//!   element.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use ascend_tp::schedule::Plan;
use ascend_tp::schedule::plan::StreamKind;
use ascend_tp::timeline::{Phase, Span, step_name};

use super::run::Recorded;
use super::{Rehearsal, train};

const PAGE: &str = include_str!("page.html");
const DATA: &str = "/*DATA*/";

/// More ranks do not fit on a screen and look alike.
const RANKS_SHOWN: usize = 8;

#[derive(Serialize)]
struct Data<R> {
    report: R,
    bounds: Vec<String>,
    /// Names of steps, by index, each with the index of its bound.
    labels: Vec<(String, usize)>,
    phases: Vec<PhaseData>,
}

#[derive(Serialize)]
struct PhaseData {
    name: String,
    duration: u64,
    ranks: Vec<[Vec<u64>; 2]>,
}

/// Renders a rehearsed session.
#[must_use]
pub fn page(rehearsal: &Rehearsal) -> String {
    let Recorded { programs, phases, .. } = &rehearsal.recorded;
    filled(&data(rehearsal.report(), programs, phases))
}

/// Renders a rehearsed training step.
#[must_use]
pub fn page_of_step(rehearsal: &train::TrainingRehearsal, report: &train::TrainingReport) -> String {
    filled(&data(report, &rehearsal.programs, &rehearsal.phases))
}

fn filled<R: Serialize>(data: &Data<R>) -> String {
    let json = serde_json::to_string(data).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    // Escape `<` so that no name in the data opens a tag.
    PAGE.replacen(DATA, &json.replace('<', "\\u003c"), 1)
}

fn data<R>(report: R, programs: &[Vec<Arc<Plan>>], kept: &[Phase]) -> Data<R> {
    let (mut bounds, mut labels) = (PageNumbers::default(), PageNumbers::default());
    let mut phases = Vec::new();
    for phase in kept {
        let plans = &programs[phase.program];
        let shown = plans.len().min(RANKS_SHOWN);
        let mut ranks: Vec<[Vec<u64>; 2]> = vec![Default::default(); shown];
        let mut ends = vec![[phase.start_ns; 2]; shown];
        let mut spans: Vec<&Span> = phase.spans.iter().filter(|span| span.rank < shown).collect();
        // Merged streams are stored one by one.
        spans.sort_by_key(|span| (span.rank, span.stream != StreamKind::Compute, span.start_ns));
        for span in spans {
            let plan = &plans[span.rank];
            let step = &plan.steps[span.step];
            let bound = bounds.of(span.work.as_ref().map(|work| work.bound.clone()).unwrap_or_default());
            let label = labels.of((step_name(plan, step), bound));
            let stream = usize::from(span.stream != StreamKind::Compute);
            let end = &mut ends[span.rank][stream];
            // Label, time since the previous span, duration.
            let numbers = [label as u64, span.start_ns.saturating_sub(*end), span.end_ns - span.start_ns];
            ranks[span.rank][stream].extend(numbers);
            *end = span.end_ns;
        }
        phases.push(PhaseData { name: phase.name.clone(), duration: phase.end_ns - phase.start_ns, ranks });
    }
    Data { report, bounds: bounds.all, labels: labels.all, phases }
}

struct PageNumbers<T> {
    all: Vec<T>,
    known: BTreeMap<T, usize>,
}

impl<T> Default for PageNumbers<T> {
    fn default() -> Self {
        Self { all: Vec::new(), known: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> PageNumbers<T> {
    fn of(&mut self, thing: T) -> usize {
        let next = self.all.len();
        let number = *self.known.entry(thing.clone()).or_insert(next);
        if number == next {
            self.all.push(thing);
        }
        number
    }
}
