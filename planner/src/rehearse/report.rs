//! The report of a rehearsal as data. `cli` prints it.

use std::sync::Arc;

use ascend_tp_machine::Soc;
use serde::Serialize;

use ascend_tp::exec::ProgramId;
use ascend_tp::generate::{DECODE, PREFILL};
use ascend_tp::program::models::COPY;
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::plan::Tensor;
use ascend_tp::timeline::{Phase, Shares};

use crate::error_bar::{ErrorBar, PredictedTime};

use super::formats::{self, FormatBytes};
use super::memory::RehearsalMemory;
use super::run::Recorded;
use super::setting::Setting;
use super::table::{CollectiveRow, OperatorRow, tables};

/// Report of a rehearsed session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RehearsalReport {
    /// Name of the model.
    pub model: String,
    /// Elements of all weights.
    pub parameters: u64,
    /// Number of decoder layers.
    pub layers: usize,
    /// Number of cards in use.
    pub cards: usize,
    /// Number of servers, if the setting specifies it.
    pub servers: Option<usize>,
    /// Pipeline stages, if several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<usize>,
    /// Name of the chip.
    pub card: String,
    /// Name of the topology.
    pub topology: String,
    /// Element types of weights and activations.
    pub dtype: String,
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens of each prompt.
    pub input: usize,
    /// Number of decode steps.
    pub output: usize,
    /// Residual stream during prefill: `replicate` or `seq`.
    pub residual: &'static str,
    /// Launch mode: `eager` or `captured`.
    pub launching: &'static str,
    /// Memory of the fullest card.
    pub memory: RehearsalMemory,
    /// Bytes of the weights by format, if some are not floats in the files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub formats: Vec<FormatBytes>,
    /// Time to the first token.
    pub first_token_us: f64,
    /// Times of decode steps.
    pub token_us: TokenTimes,
    /// Decode throughput of the batch.
    pub tokens_per_s: f64,
    /// Throughput with the prefill.
    pub tokens_per_s_with_prefill: f64,
    /// Usual error of such predictions.
    pub error_bar: ErrorBar,
    /// Peak rates of the card.
    pub limits: StepLimits,
    /// The prefill and one decode step.
    pub phases: Vec<PhaseReport>,
}

/// Times of decode steps, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TokenTimes {
    /// Mean over all decode steps.
    pub mean: f64,
    /// Time of the first decode step.
    pub first: f64,
    /// Time of the last decode step.
    pub last: f64,
}

/// Peak rates of a card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepLimits {
    /// FLOP/s at 16 bits.
    pub flops_per_s: f64,
    /// HBM bandwidth, in bytes per second.
    pub bytes_per_s: f64,
}

/// A prefill, decode step or training program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseReport {
    /// Such as `prefill` or `decode`.
    pub name: String,
    /// Duration of the phase.
    pub duration_us: f64,
    /// Number of tokens read by the phase.
    pub tokens: usize,
    /// Division of the time.
    pub shares: Shares,
    /// Share of time in collectives, hidden or exposed.
    pub communication: f64,
    /// Eager calls per rank.
    pub calls: usize,
    /// Sorted by total time.
    pub operators: Vec<OperatorRow>,
    /// Sorted by total time.
    pub collectives: Vec<CollectiveRow>,
}

impl StepLimits {
    pub(super) const fn of(soc: Soc) -> Self {
        Self { flops_per_s: soc.cube_flops_per_us() * 1e6, bytes_per_s: soc.hbm_bytes_per_us() * 1e6 }
    }
}

pub(super) fn parameters(plans: &[Arc<Plan>]) -> u64 {
    let params = plans.first().into_iter().flat_map(|plan| &plan.params);
    let elems = |param: &Tensor| match &param.source {
        Some(source) => source.form.parameters(&param.shape, param.dtype),
        None => param.shape.elems(),
    };
    params.filter(|param| !param.name.starts_with(COPY)).map(|param| elems(param) as u64).sum()
}

impl RehearsalReport {
    /// Builds the report of a recorded run.
    #[must_use]
    pub fn new(setting: &Setting, recorded: &Recorded) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let of = |program: ProgramId, at: usize| {
            recorded.phases.iter().filter(|phase| phase.program == program.0).nth(at)
        };
        // The first decode step still includes wake-ups after the prefill.
        let shown = [of(PREFILL, 0), of(DECODE, 1).or_else(|| of(DECODE, 0))];
        let phase = |phase: &Phase| {
            let is_prefill = phase.program == PREFILL.0;
            let tokens = setting.batch * if is_prefill { setting.input } else { 1 };
            let name = if is_prefill { "prefill" } else { "decode" };
            phase_report(name, tokens, &recorded.programs[phase.program], phase)
        };
        let phases: Vec<PhaseReport> = shown.into_iter().flatten().map(phase).collect();
        let first_token_us = of(PREFILL, 0).map_or(0.0, Phase::duration_us);
        let decode_us = us(recorded.decode_ns.iter().sum());
        let token_us = TokenTimes {
            mean: decode_us / recorded.decode_ns.len().max(1) as f64,
            first: recorded.decode_ns.first().copied().map_or(0.0, us),
            last: recorded.decode_ns.last().copied().map_or(0.0, us),
        };
        let tokens = (setting.batch * setting.output) as f64;
        let per_second = |us: f64| if us > 0.0 { tokens / us * 1e6 } else { 0.0 };
        let soc = setting.site.profile.soc;
        Self {
            model: setting.name.clone(),
            parameters: parameters(&recorded.programs[PREFILL.0]),
            layers: setting.model.layers,
            cards: setting.site.cards,
            servers: setting.site.servers,
            stages: Some(setting.stages).filter(|stages| *stages > 1),
            card: soc.name().to_owned(),
            topology: setting.site.topology.name.clone(),
            dtype: setting.precision.to_string(),
            batch: setting.batch,
            input: setting.input,
            output: setting.output,
            residual: setting.residual.name(),
            launching: setting.launching.name(),
            memory: recorded.memory,
            formats: formats::of_plans(&recorded.programs),
            first_token_us,
            token_us,
            tokens_per_s: per_second(decode_us),
            tokens_per_s_with_prefill: per_second(decode_us + first_token_us),
            error_bar: ErrorBar::of(PredictedTime::Steps, soc),
            limits: StepLimits::of(soc),
            phases,
        }
    }
}

pub(super) fn phase_report(name: &str, tokens: usize, plans: &[Arc<Plan>], phase: &Phase) -> PhaseReport {
    let plans: Vec<&Plan> = plans.iter().map(AsRef::as_ref).collect();
    let shares = Shares::of(&phase.spans, 0..plans.len(), phase.start_ns, phase.end_ns);
    let (operators, collectives) = tables(&plans, &phase.spans, phase.duration_us());
    PhaseReport {
        name: name.to_owned(),
        duration_us: phase.duration_us(),
        tokens,
        communication: shares.communication(),
        shares,
        calls: plans.first().map_or(0, |plan| plan.steps.len()),
        operators,
        collectives,
    }
}
