//! The report of a rehearsal. All of it is data; `cli` prints it.

use std::sync::Arc;

use ascend_tp_machine::Soc;
use serde::Serialize;

use ascend_tp::exec::ProgramId;
use ascend_tp::generate::{DECODE, PREFILL};
use ascend_tp::program::models::COPY;
use ascend_tp::schedule::Plan;
use ascend_tp::timeline::{Phase, Shares};

use crate::validate::{Class, ErrorBar};

use super::memory::RehearsalMemory;
use super::run::Recorded;
use super::setting::Setting;
use super::table::{CollectiveRow, OperatorRow, tables};

/// What a rehearsal found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RehearsalReport {
    /// The model's name.
    pub model: String,
    /// Elements of all weights.
    pub parameters: u64,
    /// Number of decoder layers.
    pub layers: usize,
    /// Number of cards.
    pub cards: usize,
    /// Servers the cards were spread over, if that was asked.
    pub servers: Option<usize>,
    /// Stages of a pipeline, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<usize>,
    /// The chip's name.
    pub card: String,
    /// How the cards are joined.
    pub topology: String,
    /// What weights and activations are.
    pub dtype: String,
    /// Sequences at once.
    pub batch: usize,
    /// Tokens of each prompt.
    pub input: usize,
    /// Number of decode steps.
    pub output: usize,
    /// The residual stream during prefill: `replicate` or `seq`.
    pub residual: &'static str,
    /// `eager` or `captured`.
    pub launching: &'static str,
    /// Bytes of the fullest card.
    pub memory: RehearsalMemory,
    /// From the prompts to the first token, in microseconds.
    pub first_token_us: f64,
    /// A decode step.
    pub token_us: TokenTimes,
    /// Tokens a second of all sequences together, while they decode.
    pub tokens_per_s: f64,
    /// Tokens a second of all sequences together, prefill included.
    pub tokens_per_s_with_prefill: f64,
    /// How far such times are usually off.
    pub error_bar: ErrorBar,
    /// What bounds the card.
    pub limits: StepLimits,
    /// The prefill and one decode step.
    pub phases: Vec<PhaseReport>,
}

/// How long decode steps took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TokenTimes {
    /// All of them.
    pub mean: f64,
    /// The first of the steps.
    pub first: f64,
    /// The last of the steps.
    pub last: f64,
}

/// What a card can do at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepLimits {
    /// Floating-point operations in a second at 16 bits.
    pub flops_per_s: f64,
    /// Bytes of HBM in a second.
    pub bytes_per_s: f64,
}

/// A prefill, a decode step or a part of a training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseReport {
    /// `prefill` or `decode`.
    pub name: String,
    /// How long it took, in microseconds.
    pub duration_us: f64,
    /// Tokens it read.
    pub tokens: usize,
    /// How its time divides.
    pub shares: Shares,
    /// Time in collectives, hidden or not, as a part of the whole.
    pub communication: f64,
    /// Calls a rank makes for it when it is eager.
    pub calls: usize,
    /// Operators, the longest first.
    pub operators: Vec<OperatorRow>,
    /// Collectives, the longest first.
    pub collectives: Vec<CollectiveRow>,
}

impl StepLimits {
    /// Those of a chip.
    pub(super) const fn of(soc: Soc) -> Self {
        Self { flops_per_s: soc.cube_flops_per_us() * 1e6, bytes_per_s: soc.hbm_bytes_per_us() * 1e6 }
    }
}

/// Elements of all weights of a program; what is a copy of another is none.
pub(super) fn parameters(plans: &[Arc<Plan>]) -> u64 {
    let params = plans.first().into_iter().flat_map(|plan| &plan.params);
    params.filter(|param| !param.name.starts_with(COPY)).map(|param| param.shape.elems() as u64).sum()
}

impl RehearsalReport {
    /// The report of what was seen.
    #[must_use]
    pub fn new(setting: &Setting, recorded: &Recorded) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let of = |program: ProgramId, at: usize| {
            recorded.phases.iter().filter(|phase| phase.program == program.0).nth(at)
        };
        // The first decode step follows the prefill's wake-ups; the second is like all others.
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
            first_token_us,
            token_us,
            tokens_per_s: per_second(decode_us),
            tokens_per_s_with_prefill: per_second(decode_us + first_token_us),
            error_bar: ErrorBar::of(Class::Steps, soc),
            limits: StepLimits::of(soc),
            phases,
        }
    }
}

/// What a phase of some plans was, by rank.
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
