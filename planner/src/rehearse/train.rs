//! A step of training on cards that nobody has yet.
//!
//! Input → output: a [`TrainingSetting`] (model, recipe, layout, chip, topology) → the programs
//! that `train` compiles, run part by part in the order of a step by the executor that runs them on
//! cards → a [`TrainingReport`]. Invariants: as of its parent; nothing is counted that was not run,
//! so a step of many micro-batches runs all of them. Does not: read weights or data, or compute a
//! loss; what the host does between two programs (the inputs of the next micro-batch) takes no time
//! here.

use std::io;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::decoder::Decoder;
use crate::train::job::peak_flops_per_s;
use crate::validate::{Class, ErrorBar};
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
use super::stage::Stage;

/// Greatest number of micro-batches of a step. A rehearsal runs all of them.
const MOST_MICRO_BATCHES: usize = 1 << 12;

/// A model, what a step of it does, and the cards it is on.
#[derive(Clone, Debug)]
pub struct TrainingSetting {
    /// What to call the model.
    pub name: String,
    /// The sizes of the model.
    pub model: ModelConfig,
    /// What a step does.
    pub recipe: Recipe,
    /// How it lies on cards.
    pub layout: Layout,
    /// The cards and how they are joined.
    pub site: Site,
}

/// A program of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PartTime {
    part: StepPart,
    /// How often a step has it.
    times: usize,
    /// All of them, in nanoseconds.
    total_ns: u64,
}

/// A setting, and what its rehearsal saw.
#[derive(Debug)]
pub struct TrainingRehearsal {
    setting: TrainingSetting,
    /// By program: every span of the first of each.
    pub(super) phases: Vec<Phase>,
    ran: Vec<PartTime>,
    step_ns: u64,
    /// The plans, by program and rank.
    pub(super) programs: Vec<Vec<Arc<Plan>>>,
    memory: RehearsalMemory,
    mesh: String,
}

/// What a rehearsal of a step found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingReport {
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
    /// The chip's name.
    pub card: String,
    /// How the cards are joined.
    pub topology: String,
    /// How they are used.
    pub mesh: String,
    /// What products are.
    pub dtype: String,
    /// The residual stream: `replicate` or `seq`.
    pub residual: &'static str,
    /// Sequences of a step.
    pub global_batch: usize,
    /// Tokens of each.
    pub seq: usize,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// Bytes of the fullest card.
    #[serde(serialize_with = "as_states")]
    pub memory: RehearsalMemory,
    /// A step, in microseconds.
    pub step_us: f64,
    /// Tokens a second of all sequences together.
    pub tokens_per_s: f64,
    /// Part of what the cube units can do that the model's own operations are: (6·P + 12·L·h·s)·T,
    /// as `train` has it.
    pub mfu: f64,
    /// How far such times are usually off.
    pub error_bar: ErrorBar,
    /// What bounds the card.
    pub limits: StepLimits,
    /// The programs of a step, each once.
    pub phases: Vec<StepPhase>,
}

/// One program of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepPhase {
    /// How often a step has it.
    pub times: usize,
    /// All of them, in microseconds.
    pub total_us: f64,
    /// The first of them.
    #[serde(flatten)]
    pub first: PhaseReport,
}

/// What is kept between runs is no cache of keys and values here.
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
    /// What is wrong with the cards, all of it.
    ///
    /// # Errors
    /// Something is.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        self.site.check(&mut problems);
        let micro_batches = self.layout.micro_batches(&self.recipe);
        if micro_batches > MOST_MICRO_BATCHES {
            let problem =
                Diagnostic::new("--micro-batch", "a step of more micro-batches than a rehearsal runs");
            let problem = problem.expected(format!("at most {MOST_MICRO_BATCHES}")).found(micro_batches);
            problems.push(problem.help("take a larger --micro-batch or a smaller --global-batch"));
        }
        problems.into_result(())
    }
}

/// What a program is called.
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
    /// Rehearses a step.
    ///
    /// # Errors
    /// A recipe or a layout that cannot be; a run that does not fit, with the options by which it
    /// would; or what the emulated cards refuse.
    pub fn run(setting: &TrainingSetting) -> Result<Self, Error> {
        setting.check()?;
        let TrainingSetting { model, recipe, layout, site, .. } = setting;
        let compiled = compile(model, recipe, layout, Target::of(site.profile.soc, site.kernels.kernels()))?;
        let mesh = layout.mesh(model)?.to_string();
        let programs: Vec<&[Plan]> = compiled.plans.iter().map(|(_, plans)| plans.as_slice()).collect();
        let fullest = RehearsalMemory::fullest(&programs, &site.profile);
        // What operators want on top leaves less for the rest.
        let wanted: Bytes = memory::wanted(&compiled).iter().map(|(_, bytes)| *bytes).sum();
        let on_top = fullest.used.saturating_sub(wanted.0);
        let free = Bytes(fullest.offered.saturating_sub(on_top));
        if let Some(problem) = memory::problem(model, recipe, layout, &compiled, free) {
            return Err(Error::Refused(problem.into()));
        }
        let Compiled { plans, .. } = compiled;
        let (kinds, programs): (Vec<StepPart>, Vec<Vec<Plan>>) = plans.into_iter().unzip();
        let mut stage = Stage::open(site, programs, Launching::Eager)?;
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

    /// What a page or a text shows of it.
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
            error_bar: ErrorBar::of(Class::Training, soc),
            limits: StepLimits::of(soc),
            phases: self.phases.iter().map(phase).collect(),
        }
    }

    /// Every span of the first of each program of a step.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The plans of the programs, by program and rank: what [`TrainingRehearsal::phases`] are of.
    #[must_use]
    pub fn programs(&self) -> &[Vec<Arc<Plan>>] {
        &self.programs
    }

    /// Writes what was seen as a trace that Perfetto opens: the first of each program of a step.
    ///
    /// # Errors
    /// Those of `out`.
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
