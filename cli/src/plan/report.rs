//! Data of the `plan --serve` report: splits, figures and reasons.

use std::collections::BTreeMap;

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp_planner::error_bar::{ErrorBar, PredictedTime};
use ascend_tp_planner::serve::{Candidate, Found, ServingRequest, difference, terms_us};
use ascend_tp_planner::simulate::Breakdown;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct SplitEntry {
    pub(super) split: String,
    pub(super) properties: BTreeMap<&'static str, String>,
    /// Sequences of each replica.
    pub(super) sequences: usize,
    pub(super) first_token_ms: f64,
    pub(super) token_ms: f64,
    pub(super) tokens_per_s: f64,
    pub(super) memory_bytes: u64,
    pub(super) memory_share: f64,
    pub(super) idle_cards: usize,
    /// Reason for the rank, or the broken constraint.
    pub(super) reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct PlanReport {
    pub(super) error_bar: ErrorBar,
    pub(super) best: Vec<SplitEntry>,
    /// Best split of every other replica size.
    pub(super) beaten: Vec<SplitEntry>,
    /// Runnable splits in neither list.
    pub(super) others: usize,
    /// One infeasible split of each replica size.
    pub(super) refused: Vec<SplitEntry>,
    /// Best runnable split with weights on two axes.
    pub(super) grid: Option<SplitEntry>,
}

#[derive(Debug, Serialize)]
pub(super) struct Explanation {
    pub(super) error_bar: ErrorBar,
    pub(super) entry: SplitEntry,
    pub(super) can_run: bool,
    /// Rank among feasible splits, from 1.
    pub(super) place: Option<usize>,
    /// Further splits with the requested properties.
    pub(super) alike: usize,
    pub(super) memory: Vec<(&'static str, Bytes)>,
    pub(super) usable: Bytes,
    pub(super) levels: Vec<String>,
    pub(super) phases: [PlanPhase; 2],
}

#[derive(Debug, Serialize)]
pub(super) struct PlanPhase {
    pub(super) name: &'static str,
    pub(super) breakdown: Breakdown,
    /// Terms of the duration, longest first.
    pub(super) terms: Vec<(&'static str, f64)>,
}

impl SplitEntry {
    fn new(request: &ServingRequest<'_>, candidate: &Candidate, reason: String) -> Self {
        let memory_bytes = candidate.memory.total().0;
        let usable = request.profile.hbm_usable_bytes();
        Self {
            split: candidate.split.to_string(),
            properties: candidate.split.properties().into_iter().collect(),
            sequences: candidate.batch,
            first_token_ms: candidate.first_token_us() / 1e3,
            token_ms: candidate.token_us() / 1e3,
            tokens_per_s: candidate.tokens_per_s(),
            memory_bytes,
            memory_share: memory_bytes as f64 / usable as f64,
            idle_cards: candidate.idle_cards(request.cards),
            reason,
        }
    }
}

fn goes_to(candidate: &Candidate) -> String {
    let whole = candidate.token_us();
    let parts: Vec<String> = terms_us(&candidate.decode)
        .into_iter()
        .take(3)
        .filter(|(_, us)| us / whole >= 0.01)
        .map(|(name, us)| format!("{name} {:.0} %", us / whole * 100.0))
        .collect();
    format!("token time: {}", parts.join(", "))
}

fn reason(winner: Option<&Candidate>, candidate: &Candidate) -> String {
    match (&candidate.constraint, winner) {
        (Some(constraint), _) => {
            let text = constraint.to_string();
            text.strip_prefix(&format!("{}: ", candidate.split)).unwrap_or(&text).to_owned()
        }
        (None, Some(winner)) if winner.split != candidate.split => difference(winner, candidate),
        (None, _) => goes_to(candidate),
    }
}

impl PlanReport {
    pub(super) fn new(request: &ServingRequest<'_>, survey: &Found, top: usize) -> Self {
        let winner = survey.feasible.first();
        let entry = |candidate: &Candidate| SplitEntry::new(request, candidate, reason(winner, candidate));
        let (best, rest) = survey.feasible.split_at(top.min(survey.feasible.len()));
        let size = |candidate: &Candidate| candidate.split.tensor_parallel;
        let mut sizes: Vec<usize> = best.iter().map(size).collect();
        let mut first_of_its_size = |candidate: &&Candidate| {
            let is_first = !sizes.contains(&size(candidate));
            sizes.push(size(candidate));
            is_first
        };
        let beaten: Vec<SplitEntry> = rest.iter().filter(&mut first_of_its_size).map(entry).collect();
        let refused = survey.refused.iter().filter(first_of_its_size).map(entry).collect();
        Self {
            error_bar: ErrorBar::of(PredictedTime::Steps, request.profile.soc),
            others: rest.len() - beaten.len(),
            best: best.iter().map(entry).collect(),
            beaten,
            refused,
            grid: survey.best_grid().map(entry),
        }
    }
}

impl Explanation {
    /// Explains the best split with the requested properties.
    pub(super) fn new(
        request: &ServingRequest<'_>,
        survey: &Found,
        wanted: &str,
    ) -> Result<Self, Diagnostics> {
        let mut matching = Vec::new();
        for (position, candidate) in
            survey.feasible.iter().chain(&survey.grids).chain(&survey.refused).enumerate()
        {
            if candidate.split.matches(wanted)? {
                matching.push((position, candidate));
            }
        }
        let Some((at, candidate)) = matching.first() else {
            let tried: Vec<String> = survey
                .feasible
                .iter()
                .chain(&survey.refused)
                .take(6)
                .map(|known| known.split.to_string())
                .collect();
            return Err(Diagnostic::new("--why", "no matching split")
                .expected(format!("properties of one of {} …", tried.join("; ")))
                .found(wanted)
                .into());
        };
        let phase = |name, breakdown: &Breakdown| PlanPhase {
            name,
            breakdown: *breakdown,
            terms: terms_us(breakdown),
        };
        Ok(Self {
            error_bar: ErrorBar::of(PredictedTime::Steps, request.profile.soc),
            entry: SplitEntry::new(request, candidate, reason(survey.feasible.first(), candidate)),
            can_run: candidate.constraint.is_none(),
            place: (*at < survey.feasible.len()).then_some(at + 1),
            alike: matching.len() - 1,
            memory: candidate.memory.kinds().map(|(kind, bytes)| (kind.name(), bytes)).collect(),
            usable: Bytes(request.profile.hbm_usable_bytes()),
            levels: candidate.levels.clone(),
            phases: [phase("prefill", &candidate.prefill), phase("a decode step", &candidate.decode)],
        })
    }
}
