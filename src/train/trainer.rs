//! Training steps on cards.
//!
//! Weights are loaded once and stay on the cards. A loss or gradient norm of NaN or infinity is an
//! error that invalidates the cards' state, unless the loss scale skips the step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::config::ModelConfig;
use crate::device::{Cann, Device};
use crate::exec::{self, Engine, EngineOptions, NamedTensors, ProgramId, Shards, Timed, memory_wanted};
use crate::program::models::COPY;
use crate::program::tree::SumOrder;
use crate::schedule::{Plan, micro_batch, unnumbered};
use crate::timeline::{Phase, Shares};

use super::checkpoint::{Checkpoint, PartBytes, Sharding};
use super::choices::{BatchChoices, Routing};
use super::compile::{Compiled, Layout};
use super::data::Batch;
use super::error::{Error, NonFiniteGradient};
use super::inputs::{MicroBatch, StepInputs, number_input};
use super::layouts::SCALED;
use super::loss_scale::LossScale;
use super::memory;
use super::program::{StepPart, name};
use super::recipe::{Recipe, TrainingPrecision};
use super::routers::{RouterFactors, RouterOutcome, move_biases};

/// Result of a training step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// Number of the step, from 0.
    pub step: usize,
    /// Mean loss over counted labels, before the update.
    pub loss: f64,
    /// Losses and loads of the routers, for models with experts.
    pub routers: Option<RouterOutcome>,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate of the update.
    pub rate: f64,
    /// Number of counted labels.
    pub labels: usize,
    /// Loss scale, 1 except for f16.
    pub loss_scale: f64,
    /// True if non-finite gradients skipped the update.
    pub is_skipped: bool,
    /// First non-finite gradient of a skipped step, if a rank of this process has it.
    pub spoiled: Option<NonFiniteGradient>,
}

/// Times of a step in seconds. Stream times are means over the ranks of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Duration of the step, in card time if the cards have a clock, otherwise host time.
    pub seconds: f64,
    /// Time with operators running or being issued.
    pub compute: f64,
    /// Share of `compute` with a concurrent collective.
    pub hidden: f64,
    /// Time in collectives, including waiting, without operators.
    pub exposed: f64,
}

impl Times {
    /// Returns the time without operators and collectives, while the host handles inputs and
    /// outputs.
    #[must_use]
    pub fn idle(&self) -> f64 {
        (self.seconds - self.compute - self.exposed).max(0.0)
    }

    fn add(&mut self, seconds: f64, shares: &Shares, ranks: usize) {
        let seconds = seconds / ranks as f64;
        self.compute += seconds * (shares.compute + shares.hidden_communication);
        self.hidden += seconds * shares.hidden_communication;
        self.exposed += seconds * (shares.exposed_communication + shares.waiting_for_peers);
    }
}

/// Returns the nanoseconds from the first start of a rank to the last outputs.
fn run_window(engine: &Engine) -> Range<u64> {
    let start = engine.run_times().iter().map(|time| time.start).min().unwrap_or(0);
    start..engine.run_times().iter().map(|time| time.end).max().unwrap_or(start)
}

/// Progress of a run, part of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Number of the next step.
    pub next: usize,
    /// Number of updates, without skipped steps.
    pub updates: usize,
    /// Loss scale of f16 runs.
    pub loss_scale: Option<LossScale>,
    /// Number of updates before second moments were frozen; `None` before compression.
    #[serde(default)]
    pub frozen_at: Option<usize>,
    /// Mean clipping factor of about ten updates with a known norm. Compressed steps use it,
    /// because no card knows their norm and the frozen second moments were clipped by it.
    #[serde(default = "Progress::uncut")]
    pub factor: f64,
}

impl Progress {
    const fn uncut() -> f64 {
        1.0
    }
}

fn factor(clip_norm: f64, norm: f64) -> f64 {
    if clip_norm > 0.0 { (clip_norm / (norm + 1e-6)).min(1.0) } else { 1.0 }
}

/// A running training job on cards.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # use ascend_tp::{Cann, ModelConfig};
/// use ascend_tp::train::{Batch, Layout, Recipe, Trainer};
///
/// # let cann = Cann::new(Emulator::new(Config::with_cards(2))?.table())?;
/// # let config = std::fs::read_to_string("models/tiny-qwen2/config.json")?;
/// # let config = ModelConfig::from_json(&config)?;
/// # let recipe = Recipe { steps: 2, global_batch: 2, seq: 8, ..Recipe::default() };
/// let layout = Layout { tensor: 2, ..Layout::ONE };
/// let mut trainer = Trainer::of_seed(&cann, &config, 7).recipe(recipe).layout(layout).start()?;
/// let outcome = trainer.step(&Batch::scattered(0, 2, 8, 512))?;
/// println!("loss {:.3}, gradient norm {:.3}", outcome.loss, outcome.grad_norm);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Trainer {
    engine: Engine,
    config: ModelConfig,
    recipe: Recipe,
    layout: Layout,
    sharding: Sharding,
    /// Parts of a step with their programs.
    parts: Vec<(StepPart, ProgramId)>,
    /// Warm-up of compression: updates and parts.
    warmup: Option<(usize, Vec<(StepPart, ProgramId)>)>,
    progress: Progress,
    times: Times,
    /// Operator seconds of the last step by rank.
    compute: BTreeMap<usize, f64>,
    has_clock: bool,
    /// Choices of the routers in the last step, if the recipe shows them.
    shown: Option<BatchChoices>,
    /// Choices that the next steps use, if the recipe gives them.
    pub(super) given: Option<BatchChoices>,
}

impl Trainer {
    /// Starts training with weights from `fill` and moments of zero. `compiled` must come from the
    /// same model, recipe and layout.
    ///
    /// # Errors
    /// The run does not fit into memory, or a device call or `fill` fails.
    #[doc(hidden)]
    pub fn start(
        cann: &Arc<Cann>,
        config: &ModelConfig,
        recipe: &Recipe,
        layout: Layout,
        compiled: Compiled,
        options: &EngineOptions,
        fill: impl FnOnce(&Shards<'_>) -> Result<(), exec::Error>,
    ) -> Result<Self, Error> {
        let group = &options.group;
        let card = if group.size() == 1 { options.cards.first().copied() } else { group.card() };
        let free = Device::open(cann, card.unwrap_or(0))
            .and_then(|device| device.memory())
            .map_err(exec::Error::from)?
            .free;
        if let Some(problem) = memory::problem(config, recipe, &layout, &compiled, free) {
            return Err(Diagnostics::from(problem).into());
        }
        let Compiled { plans, sharding, .. } = compiled;
        let kinds: Vec<StepPart> = plans.iter().map(|(part, _)| *part).collect();
        let mut engine = Engine::start(cann, plans.into_iter().map(|(_, plans)| plans).collect(), options)?;
        engine.load(fill)?;
        let number = |part: StepPart| {
            let missing = || Diagnostics::from(Diagnostic::new(format!("{part:?}"), "was not compiled"));
            kinds
                .iter()
                .position(|kind| *kind == part)
                .map(|number| (part, ProgramId(number)))
                .ok_or_else(missing)
        };
        let loss_scale =
            (recipe.precision == TrainingPrecision::F16).then(|| LossScale::new(&recipe.loss_scale));
        let parts = layout.programs(recipe).into_iter().map(number).collect::<Result<_, _>>()?;
        let warmup = match recipe.compress {
            Some(compress) => {
                let parts =
                    layout.warmup_programs(recipe).into_iter().map(number).collect::<Result<_, _>>()?;
                Some((compress.warmup(recipe.steps), parts))
            }
            None => None,
        };
        let progress = Progress { next: 0, updates: 0, loss_scale, frozen_at: None, factor: 1.0 };
        Ok(Self {
            engine,
            config: config.clone(),
            recipe: recipe.clone(),
            layout,
            sharding,
            parts,
            warmup,
            progress,
            times: Times::default(),
            compute: BTreeMap::new(),
            has_clock: options.clock.is_some(),
            shown: (recipe.routing != Routing::Routers).then(|| BatchChoices::new(config, recipe)),
            given: None,
        })
    }

    /// Runs one training step.
    ///
    /// # Errors
    /// The batch is invalid, a rank fails, or the loss or the norm is NaN or infinite.
    pub fn step(&mut self, batch: &Batch) -> Result<StepOutcome, Error> {
        Ok(self.timed_step(batch, Timed::No)?.0)
    }

    /// Runs one step with timing, for [`Trainer::times`]. [`Timed::Steps`] and cards with a clock
    /// also give the phases of each rank. Timing slows the step down.
    ///
    /// # Errors
    /// The errors of [`Trainer::step`].
    #[doc(hidden)]
    pub fn timed_step(&mut self, batch: &Batch, timed: Timed) -> Result<(StepOutcome, Vec<Phase>), Error> {
        let _span = tracing::debug_span!("train_step", step = self.progress.next).entered();
        let mut phases = Vec::new();
        let began = Instant::now();
        let mut window: Option<Range<u64>> = None;
        let mut losses: Vec<(usize, f64)> = Vec::new();
        self.times = Times::default();
        self.compute.clear();
        self.check(batch)?;
        let Recipe { steps, clip_norm, .. } = self.recipe;
        let Progress { next: step, updates, loss_scale, .. } = self.progress;
        let labels = usize::try_from(batch.counted_labels()).unwrap_or(usize::MAX);
        let rate = self.recipe.schedule.rate(updates, steps);
        let loss_scale = loss_scale.map_or(1.0, |scale| scale.scale);
        let mut outcome = StepOutcome {
            step,
            loss: 0.0,
            routers: RouterOutcome::new(&self.config, &self.recipe),
            grad_norm: 0.0,
            rate,
            labels,
            loss_scale,
            is_skipped: false,
            spoiled: None,
        };
        let given = self.optimizer_inputs(updates, rate);
        let of_update = || given.iter().map(|(name, number)| number_input(name, *number));
        let is_scaled = self.progress.loss_scale.is_some();
        for part_index in 0..self.parts_now().len() {
            let (part, program) = self.parts_now()[part_index];
            let mut inputs = match part {
                StepPart::Update => NamedTensors::new(),
                _ if self.layout.stages > 1 => {
                    self.inputs(batch, labels, loss_scale).of_stages(of_update().filter(|_| !is_scaled))
                }
                _ => self.inputs(batch, labels, loss_scale).of_micro_batch(part_index),
            };
            match part {
                StepPart::Update => {
                    outcome.loss = total(self.recipe.order(), std::mem::take(&mut losses));
                    if !self.may_move(&mut outcome)? {
                        break;
                    }
                    let factor = factor(clip_norm, outcome.grad_norm) / loss_scale;
                    inputs.extend(of_update().chain([number_input(name::FACTOR, factor)]));
                }
                part if part.ends_step() && !is_scaled && self.layout.stages == 1 => {
                    inputs.extend(of_update());
                }
                _ => {}
            }
            let outputs = self.engine.begin(program, &inputs, timed)?.finish()?;
            let run = run_window(&self.engine);
            self.time(timed, &run);
            if timed == Timed::Steps || self.has_clock && timed != Timed::No {
                phases.push(self.phase(part, part_index, program, &run));
            }
            window = Some(window.map_or(run.start, |window| window.start)..run.end);
            losses.extend(self.read(&outputs, part_index, &mut outcome));
        }
        // Losses that no update part has summed.
        outcome.loss += total(self.recipe.order(), losses);
        for (what, value) in [("loss", outcome.loss), ("norm of the gradients", outcome.grad_norm)] {
            if !value.is_finite() && !outcome.is_skipped {
                return Err(Error::NotFinite { step, what, value, spoiled: self.spoiled()? });
            }
        }
        let rate = self.recipe.router_bias_rate as f32;
        if let Some(routers) = outcome.routers.as_ref().filter(|_| rate > 0.0 && !outcome.is_skipped) {
            self.engine.load(|shards| move_biases(shards, &self.config, routers, rate))?;
        }
        self.advance(&outcome);
        self.times.seconds = match window.filter(|_| self.has_clock) {
            Some(window) => (window.end - window.start) as f64 / 1e9,
            None => began.elapsed().as_secs_f64(),
        };
        Ok((outcome, phases))
    }

    /// Adds the outputs of a program to the outcome of the step. Returns the losses of its
    /// micro-batches, each with its number.
    fn read(
        &mut self,
        outputs: &NamedTensors,
        part_index: usize,
        outcome: &mut StepOutcome,
    ) -> Vec<(usize, f64)> {
        let mut losses = Vec::new();
        for (name, tensor) in outputs.iter() {
            let at = micro_batch(name).unwrap_or(part_index);
            if let Some(shown) = &mut self.shown {
                let of = MicroBatch::new(&self.recipe, &self.layout, at);
                if shown.keep(unnumbered(name), &of, &tensor) {
                    continue;
                }
            }
            let values = tensor.floats();
            let number = values.first().copied().map_or(0.0, f64::from);
            match (unnumbered(name), &mut outcome.routers) {
                (name::LOSS, _) => losses.push((at, number)),
                (name::NORM, _) => outcome.grad_norm = number / outcome.loss_scale,
                (name, Some(routers)) => {
                    let factors = RouterFactors::of(&self.config, &self.recipe, &self.layout, at);
                    routers.add(name, values, factors);
                }
                (_, None) => {}
            }
        }
        losses
    }

    fn inputs<'a>(&'a self, batch: &'a Batch, labels: usize, loss_scale: f64) -> StepInputs<'a> {
        let Self { config, recipe, layout, given, .. } = self;
        StepInputs { config, recipe, layout, batch, labels, loss_scale, choices: given.as_ref() }
    }

    /// Returns the choices of the routers in the last step, if the recipe shows them.
    pub(super) fn take_choices(&mut self) -> Option<BatchChoices> {
        self.shown.take()
    }

    /// Returns the phase of the run that has just ended.
    fn phase(&self, part: StepPart, at: usize, program: ProgramId, run: &Range<u64>) -> Phase {
        // The lead of an early rank counts in the run before.
        let start_ns = self.engine.run_times().iter().map(|time| time.start).max().unwrap_or(run.start);
        Phase {
            name: self.phase_name(part, at),
            program: program.0,
            start_ns,
            end_ns: run.end,
            spans: self.engine.spans().to_vec(),
            calls: Vec::new(),
        }
    }

    fn phase_name(&self, part: StepPart, at: usize) -> String {
        match part {
            StepPart::Update => "update".to_owned(),
            _ if self.layout.stages > 1 => "all micro-batches".to_owned(),
            _ => format!("micro-batch {}", at + 1),
        }
    }

    fn advance(&mut self, step: &StepOutcome) {
        if !step.is_skipped && !self.is_compressed() {
            let updates = (self.progress.updates + 1).min(10) as f64;
            self.progress.factor +=
                (factor(self.recipe.clip_norm, step.grad_norm) - self.progress.factor) / updates;
        }
        self.progress.frozen_at =
            self.warmup.as_ref().filter(|_| self.is_compressed()).map(|(updates, _)| *updates);
        self.progress.next += 1;
        self.progress.updates += usize::from(!step.is_skipped);
    }

    fn optimizer_inputs(&self, updates: usize, rate: f64) -> Vec<(&'static str, f64)> {
        let optimizer = self.recipe.optimizer;
        let mut inputs = optimizer.numbers(updates, rate);
        if self.is_compressed() {
            inputs.extend(optimizer.corrected_input(updates, rate));
            inputs.push((name::FACTOR, self.progress.factor));
        }
        inputs
    }

    /// Returns whether the next step compresses gradients.
    fn is_compressed(&self) -> bool {
        self.warmup.as_ref().is_some_and(|(updates, _)| self.progress.updates >= *updates)
    }

    fn parts_now(&self) -> &[(StepPart, ProgramId)] {
        let warmup = self.warmup.as_ref().filter(|_| !self.is_compressed());
        warmup.map_or(&self.parts, |(_, parts)| parts)
    }

    fn time(&mut self, timed: Timed, run: &Range<u64>) {
        if timed == Timed::No {
            return;
        }
        let seconds = (run.end - run.start) as f64 / 1e9;
        let ranks: BTreeSet<usize> = self.engine.spans().iter().map(|span| span.rank).collect();
        for rank in &ranks {
            let shares = Shares::of(self.engine.spans(), std::iter::once(*rank), run.start, run.end);
            self.times.add(seconds, &shares, ranks.len());
            *self.compute.entry(*rank).or_default() +=
                seconds * (shares.compute + shares.hidden_communication);
        }
    }

    /// Decides whether a scaled step may update the weights, and adjusts the scale. All processes
    /// have the same loss and norm, so they decide alike. A loss that is not finite is an error,
    /// because the scale multiplies it only afterwards.
    fn may_move(&mut self, outcome: &mut StepOutcome) -> Result<bool, Error> {
        self.check_loss(outcome)?;
        let is_finite = outcome.grad_norm.is_finite();
        let scaling = self.recipe.loss_scale;
        let can_go_on = self.progress.loss_scale.as_mut().is_none_or(|scale| scale.next(is_finite, &scaling));
        if !is_finite {
            (outcome.is_skipped, outcome.spoiled) = (true, self.spoiled()?);
        }
        match can_go_on {
            true => Ok(is_finite),
            false => Err(Error::NotFinite {
                step: outcome.step,
                what: "norm of the gradients at the least loss scale",
                value: outcome.grad_norm,
                spoiled: outcome.spoiled.take(),
            }),
        }
    }

    fn check_loss(&mut self, found: &StepOutcome) -> Result<(), Error> {
        let StepOutcome { step, loss, .. } = *found;
        if loss.is_finite() {
            return Ok(());
        }
        Err(Error::NotFinite { step, what: "loss", value: loss, spoiled: self.spoiled()? })
    }

    /// Finds the first gradient that was not finite, in stored gradients, otherwise in moments,
    /// otherwise in weights. Only its own gradient can spoil a moment.
    fn spoiled(&mut self) -> Result<Option<NonFiniteGradient>, Error> {
        let kept = [SCALED].into_iter().chain(self.recipe.optimizer.states().iter().copied());
        let mut non_finite = None;
        self.engine.load(|shards| {
            let is_of = |prefix: &str| {
                let tensors = shards.states().iter().flatten();
                tensors.filter(|part| part.tensor().name.starts_with(prefix)).collect::<Vec<_>>()
            };
            let states = kept.map(|prefix| (prefix, is_of(prefix))).find(|(_, parts)| !parts.is_empty());
            let (prefix, parts) = states.unwrap_or_else(|| ("", shards.weights().iter().flatten().collect()));
            for part in parts {
                let is_finite = |number: &[u8; 4]| f32::from_le_bytes(*number).is_finite();
                if !part.read()?.as_chunks().0.iter().all(is_finite) {
                    let weight = part.tensor().name.strip_prefix(prefix).unwrap_or_default().to_owned();
                    non_finite = Some(NonFiniteGradient { weight, rank: part.rank() });
                    break;
                }
            }
            Ok(())
        })?;
        Ok(non_finite)
    }

    /// Returns the number of the next step.
    #[must_use]
    #[doc(hidden)]
    pub const fn next_step(&self) -> usize {
        self.progress.next
    }

    /// Returns the progress of the run.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// Returns the times of the last step. Untimed steps have only a duration.
    #[must_use]
    #[doc(hidden)]
    pub const fn times(&self) -> Times {
        self.times
    }

    /// Returns the operator seconds of the last step, by rank of this process. Untimed steps have
    /// none.
    #[must_use]
    #[doc(hidden)]
    pub const fn compute_seconds(&self) -> &BTreeMap<usize, f64> {
        &self.compute
    }

    /// Returns the plans by program and rank, for the phases of [`Trainer::timed_step`].
    #[must_use]
    #[doc(hidden)]
    pub fn programs(&self) -> Vec<Vec<Arc<Plan>>> {
        let all = self.parts.iter().chain(self.warmup.iter().flat_map(|(_, parts)| parts));
        let count = all.map(|(_, program)| program.0 + 1).max().unwrap_or(0);
        (0..count).map(|program| self.engine.plans(ProgramId(program)).to_vec()).collect()
    }

    /// Returns the memory of the fullest card. All memory is allocated before the first step.
    #[must_use]
    #[doc(hidden)]
    pub fn memory_peak(&self) -> Bytes {
        let programs = self.programs();
        let buffers = |rank| memory_wanted(&programs, rank).iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
        let workspace = |rank| {
            self.memory(rank).iter().filter(|(use_, _)| *use_ == "workspace").map(|(_, bytes)| *bytes).sum()
        };
        let bytes = |rank| [buffers(rank), workspace(rank)].into_iter().sum::<Bytes>();
        (0..self.layout.cards()).map(bytes).max().unwrap_or_default()
    }

    /// Returns the bytes on a rank's card by use. An unknown rank has none.
    #[must_use]
    #[doc(hidden)]
    pub fn memory(&self, rank: usize) -> Vec<(&'static str, Bytes)> {
        self.engine.memory(rank)
    }

    /// Returns whether the cards have their own clock.
    #[must_use]
    #[doc(hidden)]
    pub const fn has_clock(&self) -> bool {
        self.has_clock
    }

    /// Returns the checkpoint tensors and the ranks that write them.
    #[must_use]
    #[doc(hidden)]
    pub const fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// Returns the weights and optimizer states that the ranks of this process write.
    ///
    /// # Errors
    /// A device call fails.
    #[doc(hidden)]
    pub fn parts(&mut self) -> Result<Vec<PartBytes>, Error> {
        let mut all_parts = Vec::new();
        let sharding = &self.sharding;
        self.engine.load(|shards| {
            for part in shards.weights().iter().chain(shards.states()).flatten() {
                let (rank, tensor) = (part.rank(), part.tensor().name.clone());
                if sharding.written_by(rank).any(|(written, _)| written.name == tensor) {
                    all_parts.push(PartBytes { rank, tensor, bytes: part.read()? });
                }
            }
            Ok(())
        })?;
        Ok(all_parts)
    }

    /// Returns [`Trainer::parts`] after checking that all values are finite.
    ///
    /// # Errors
    /// The errors of [`Trainer::parts`], or a tensor with NaN or infinity.
    #[doc(hidden)]
    pub fn checkpoint_parts(&mut self) -> Result<Vec<PartBytes>, Error> {
        let parts = self.parts()?;
        let is_finite = |number: &[u8; 4]| f32::from_le_bytes(*number).is_finite();
        // Stored tensors are always f32.
        match parts.iter().find(|part| !part.bytes.as_chunks().0.iter().all(is_finite)) {
            Some(PartBytes { rank, tensor, .. }) => {
                Err(Error::SpoiledState { step: self.progress.next, tensor: tensor.clone(), rank: *rank })
            }
            None => Ok(parts),
        }
    }

    /// Restores a checkpoint of any layout. The loss scale is restored if both runs have one.
    ///
    /// # Errors
    /// Second moments frozen after another number of updates; a missing, different or damaged
    /// tensor; or a failed device call.
    #[doc(hidden)]
    pub fn restore(&mut self, checkpoint: &Checkpoint, progress: Progress) -> Result<(), Error> {
        self.check_frozen(&progress)?;
        let sharding = &self.sharding;
        self.engine.load(|shards| {
            for part in shards.weights().iter().chain(shards.states()).flatten() {
                let tensor = part.tensor();
                let name = tensor.name.strip_prefix(COPY).unwrap_or(&tensor.name);
                if sharding.has(name) {
                    let summand = sharding.summand(name, part.rank());
                    let (shape, dtype, ranges) = (&tensor.shape, tensor.dtype, &tensor.ranges);
                    part.write(0, &checkpoint.read_summand(name, shape, dtype, ranges, summand)?)?;
                }
            }
            Ok(())
        })?;
        let loss_scale = self.progress.loss_scale.map(|own| progress.loss_scale.unwrap_or(own));
        self.progress = Progress { loss_scale, ..progress };
        Ok(())
    }

    /// Checks that frozen second moments match the bias correction of this run.
    fn check_frozen(&self, kept: &Progress) -> Result<(), Diagnostics> {
        let Some(own) = self.warmup.as_ref().map(|(updates, _)| *updates) else { return Ok(()) };
        let found = match kept.frozen_at {
            Some(at) if at != own => format!("{at}"),
            None if kept.updates > own => {
                format!(
                    "moments of {} uncompressed updates, or of a version without this field",
                    kept.updates
                )
            }
            _ => return Ok(()),
        };
        let problem =
            Diagnostic::new("--compress-after", "second moments were frozen after another number of updates");
        Err(problem.expected(own).found(found).help("use the number of updates in the checkpoint").into())
    }

    fn check(&self, batch: &Batch) -> Result<(), Diagnostics> {
        let Recipe { seq, global_batch, .. } = self.recipe;
        let mut problems = Diagnostics::new();
        let place = |what: &str| format!("step {}: {what}", self.progress.next);
        let labels = global_batch * seq;
        let sizes = [
            ("tokens", batch.tokens.len(), labels + global_batch),
            ("ignored labels", batch.ignore.len(), labels),
            ("positions", batch.positions.len(), labels),
            ("documents", batch.documents.len(), labels),
        ];
        for (what, found, expected) in sizes.into_iter().filter(|(_, found, expected)| found != expected) {
            problems.push(
                Diagnostic::new(place(what), "are too few or too many").expected(expected).found(found),
            );
        }
        let vocabulary = 0..i64::try_from(self.config.vocab_size).unwrap_or(i64::MAX);
        if let Some(at) = batch.tokens.iter().position(|token| !vocabulary.contains(&i64::from(*token))) {
            let place = place(&format!("sequence {}, token {}", at / (seq + 1), at % (seq + 1)));
            let problem = Diagnostic::new(place, "is not in the vocabulary");
            problems.push(problem.expected(format!("0 to {}", vocabulary.end - 1)).found(batch.tokens[at]));
        }
        if batch.counted_labels() == 0 {
            problems.push(Diagnostic::new(place("labels"), "no label of the global batch counts"));
        }
        problems.into_result(())
    }
}

/// Returns the sum of the losses, each with its micro-batch.
fn total(order: SumOrder, mut losses: Vec<(usize, f64)>) -> f64 {
    if order == SumOrder::AsTheyCome {
        return losses.into_iter().map(|(_, loss)| loss).sum();
    }
    losses.sort_unstable_by_key(|(number, _)| *number);
    let mut sums: Vec<f32> = losses.into_iter().map(|(_, loss)| loss as f32).collect();
    while sums.len() > 1 {
        sums = sums
            .chunks(2)
            .map(|pair| pair.iter().copied().reduce(|a, b| a + b).unwrap_or_default())
            .collect();
    }
    sums.first().copied().map_or(0.0, f64::from)
}
