//! Rehearsal of a training step without the cards.
//!
//! The executor runs the compiled programs in the order of a step.
//!
//! - Invariant: every micro-batch of the step runs.
//! - Not here: weights, data, the loss. Host work between two programs takes no time.

use std::io;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::decoder::Decoder;
use crate::error_bar::{ErrorBar, PredictedTime};
use crate::train::job::peak_flops_per_s;
use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::{Launching, ProgramId};
use ascend_tp::schedule::{Plan, Target};
use ascend_tp::timeline::Phase;
use ascend_tp::timeline::trace::Trace;
use ascend_tp::train::memory;
use ascend_tp::train::program::StepPart;
use ascend_tp::train::{Compiled, Layout, Recipe, compile};

use super::error::Error;
use super::memory::RehearsalMemory;
use super::report::{PhaseReport, StepLimits, parameters, phase_report};
use super::setting::Site;
use super::stage::EmulatedStage;

/// A rehearsal runs all micro-batches.
const MOST_MICRO_BATCHES: usize = 1 << 12;

/// Model, recipe, layout and cards of a training step.
#[derive(Clone, Debug)]
pub struct TrainingSetting {
    /// Display name of the model.
    pub name: String,
    /// Configuration of the model.
    pub model: ModelConfig,
    /// Training recipe of the step.
    pub recipe: Recipe,
    /// Parallel layout on the cards.
    pub layout: Layout,
    /// Cards and their topology.
    pub site: Site,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct PartTime {
    part: StepPart,
    times: usize,
    total_ns: u64,
}

/// A setting and its recorded step.
#[derive(Debug)]
pub struct TrainingRehearsal {
    setting: TrainingSetting,
    pub(super) phases: Vec<Phase>,
    ran: Vec<PartTime>,
    step_ns: u64,
    pub(super) programs: Vec<Vec<Arc<Plan>>>,
    memory: RehearsalMemory,
    mesh: String,
}

/// Report of a rehearsed training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingReport {
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
    /// Name of the chip.
    pub card: String,
    /// Name of the topology.
    pub topology: String,
    /// Mesh axes with sizes.
    pub mesh: String,
    /// Element type of products.
    pub dtype: String,
    /// Residual stream: `replicate` or `seq`.
    pub residual: &'static str,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens of each sequence.
    pub seq: usize,
    /// Micro-batches in a step.
    pub micro_batches: usize,
    /// Memory of the fullest card.
    #[serde(serialize_with = "as_states")]
    pub memory: RehearsalMemory,
    /// Step time, in microseconds.
    pub step_us: f64,
    /// Throughput of all cards, in tokens per second.
    pub tokens_per_s: f64,
    /// Model FLOPs utilisation, from 0 to 1. A step counts (6·P + 12·L·h·s)·T operations.
    pub mfu: f64,
    /// Usual error of such predictions.
    pub error_bar: ErrorBar,
    /// Peak rates of the card.
    pub limits: StepLimits,
    /// Programs of a step, each listed once.
    pub phases: Vec<StepPhase>,
}

/// One program of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepPhase {
    /// Runs in a step.
    pub times: usize,
    /// Total of all runs.
    pub total_us: f64,
    /// Report of the first run.
    #[serde(flatten)]
    pub first: PhaseReport,
}

/// Writes `states` instead of `kv_cache`: training keeps no KV cache.
fn as_states<S: Serializer>(memory: &RehearsalMemory, to: S) -> Result<S::Ok, S::Error> {
    let mut value = serde_json::to_value(memory).map_err(serde::ser::Error::custom)?;
    if let Some(fields) = value.as_object_mut()
        && let Some(bytes) = fields.remove("kv_cache")
    {
        fields.insert("states".to_owned(), bytes);
    }
    value.serialize(to)
}

impl TrainingSetting {
    /// Checks the cards and the number of micro-batches.
    ///
    /// # Errors
    /// All problems of the setting.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        self.site.check(&mut problems);
        let micro_batches = self.layout.micro_batches(&self.recipe);
        if micro_batches > MOST_MICRO_BATCHES {
            let problem =
                Diagnostic::new("--micro-batch", "more micro-batches in a step than a rehearsal supports");
            let problem = problem.expected(format!("at most {MOST_MICRO_BATCHES}")).found(micro_batches);
            problems.push(problem.help("use a larger --micro-batch or a smaller --global-batch"));
        }
        problems.into_result(())
    }
}

const fn name(part: StepPart, layout: &Layout) -> &'static str {
    match part {
        StepPart::Only if layout.stages > 1 => "all micro-batches",
        StepPart::Only => "only micro-batch",
        StepPart::First => "first micro-batch",
        StepPart::Middle => "micro-batch between",
        StepPart::Join { .. } => "micro-batch that ends a subtree",
        StepPart::Last => "last micro-batch",
        StepPart::Compressed => "last micro-batch, compressed",
        StepPart::Update => "update",
    }
}

impl TrainingRehearsal {
    /// Rehearses a training step.
    ///
    /// # Errors
    /// The recipe or the layout is invalid, the run does not fit (the error lists options with
    /// which it fits), or the emulated cards refuse a call.
    pub fn run(setting: &TrainingSetting) -> Result<Self, Error> {
        setting.check()?;
        let TrainingSetting { model, recipe, layout, site, .. } = setting;
        let compiled = compile(model, recipe, layout, Target::of(site.profile.soc, site.kernels.kernels()))?;
        let mesh = layout.mesh(model)?.to_string();
        let programs: Vec<&[Plan]> = compiled.plans.iter().map(|(_, plans)| plans.as_slice()).collect();
        let fullest = RehearsalMemory::fullest(&programs, &site.profile);
        // `memory::problem` compares only `memory::wanted`; other bytes reduce the free memory.
        let wanted: Bytes = memory::wanted(&compiled).iter().map(|(_, bytes)| *bytes).sum();
        let on_top = fullest.used.saturating_sub(wanted.0);
        let free = Bytes(fullest.offered.saturating_sub(on_top));
        if let Some(problem) = memory::problem(model, recipe, layout, &compiled, free) {
            return Err(Error::Refused(problem.into()));
        }
        let Compiled { plans, .. } = compiled;
        let (kinds, programs): (Vec<StepPart>, Vec<Vec<Plan>>) = plans.into_iter().unzip();
        let mut stage = EmulatedStage::open(site, programs, Launching::Eager)?;
        let memory = RehearsalMemory { used: stage.used_bytes(), ..fullest };
        let mut ran: Vec<PartTime> =
            kinds.iter().map(|part| PartTime { part: *part, times: 0, total_ns: 0 }).collect();
        let mut step: Option<std::ops::Range<u64>> = None;
        for part in layout.programs(recipe) {
            let Some(program) = kinds.iter().position(|kind| *kind == part) else { continue };
            let inputs = stage.inputs(ProgramId(program));
            let ns = match ran[program].times {
                0 => stage.keep(name(part, layout).to_owned(), ProgramId(program), &inputs, false)?,
                _ => stage.run(ProgramId(program), &inputs)?,
            };
            ran[program].times += 1;
            ran[program].total_ns += ns.end - ns.start;
            step = Some(step.map_or(ns.start, |step| step.start)..ns.end);
        }
        let step_ns = step.map_or(0, |step| step.end - step.start);
        let programs = stage.programs(kinds.len());
        Ok(Self { setting: setting.clone(), phases: stage.phases, ran, step_ns, programs, memory, mesh })
    }

    /// Returns the report for a page or a text.
    #[must_use]
    pub fn report(&self) -> TrainingReport {
        let TrainingSetting { name, model, recipe, layout, site } = &self.setting;
        let soc = site.profile.soc;
        let seconds = self.step_ns as f64 / 1e9;
        let tokens = (recipe.global_batch * recipe.seq) as f64;
        let flops = 3.0 * Decoder::of(model).forward_flops_per_token(recipe.seq) * tokens;
        let peak = peak_flops_per_s(soc, recipe.precision.dtype()) * site.cards as f64;
        let phase = |phase: &Phase| {
            let ran = self.ran[phase.program];
            let tokens = match ran.part {
                StepPart::Update => 0,
                _ if layout.stages > 1 => recipe.global_batch * recipe.seq,
                _ => layout.batch() * recipe.seq,
            };
            let first = phase_report(&phase.name, tokens, &self.programs[phase.program], phase);
            StepPhase { times: ran.times, total_us: ran.total_ns as f64 / 1e3, first }
        };
        TrainingReport {
            model: name.clone(),
            parameters: self.programs.first().map_or(0, |plans| parameters(plans)),
            layers: model.layers,
            cards: site.cards,
            servers: site.servers,
            card: soc.name().to_owned(),
            topology: site.topology.name.clone(),
            mesh: self.mesh.clone(),
            dtype: recipe.precision.dtype().name().to_owned(),
            residual: layout.residual.name(),
            global_batch: recipe.global_batch,
            seq: recipe.seq,
            micro_batches: layout.micro_batches(recipe),
            memory: self.memory,
            step_us: seconds * 1e6,
            tokens_per_s: tokens / seconds,
            mfu: flops / seconds / peak,
            error_bar: ErrorBar::of(PredictedTime::Training, soc),
            limits: StepLimits::of(soc),
            phases: self.phases.iter().map(phase).collect(),
        }
    }

    /// Returns the first run of each program, with every span.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// Returns the plans by program and rank; [`TrainingRehearsal::phases`] refers to their steps.
    #[must_use]
    pub fn programs(&self) -> &[Vec<Arc<Plan>>] {
        &self.programs
    }

    /// Writes a trace for Perfetto.
    ///
    /// # Errors
    /// Writing to `out` fails.
    pub fn write_trace(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let TrainingSetting { name, site, recipe, .. } = &self.setting;
        let about = json!({
            "model": name, "cards": site.cards, "card": site.profile.soc.name(), "topology": site.topology.name,
            "mesh": self.mesh, "global_batch": recipe.global_batch, "seq": recipe.seq,
        });
        let links = |ranks: &[usize]| site.link_name(ranks);
        let (programs, phases) = (&self.programs, &self.phases);
        Trace { about, ranks: site.rank_names(), programs, phases, links: Some(&links) }.write(out)
    }
}
