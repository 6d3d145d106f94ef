//! Steps of training on cards.
//!
//! Input → output: a model's configuration, a recipe and a layout → an engine whose weights move
//! with each batch. Invariants: weights are loaded once and stay on the cards; a step whose loss or
//! gradients are no finite number is an error, and what the cards hold after it is worth nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::base::{Bytes, DType, Diagnostic, Diagnostics};
use crate::config::ModelConfig;
use crate::device::{Cann, Device};
use crate::exec::{
    self, Elements, Engine, EngineOptions, NamedTensors, ProgramId, Shards, Timed, memory_wanted,
};
use crate::program::HostTensor;
use crate::program::models::{COPY, input};
use crate::program::tree::SumOrder;
use crate::schedule::{Plan, micro_batch, numbered, unnumbered};
use crate::timeline::{Phase, Shares};

use super::checkpoint::{Checkpoint, PartBytes, Sharding};
use super::compile::{Compiled, Layout};
use super::context;
use super::data::Batch;
use super::error::{Error, NonFiniteGradient};
use super::layouts::SCALED;
use super::loss_scale::LossScale;
use super::memory;
use super::program::{StepPart, name};
use super::recipe::{Recipe, TrainingPrecision};

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// Its number, from 0.
    pub step: usize,
    /// The mean over the counted labels of the global batch, before the weights moved.
    pub loss: f64,
    /// The norm of all gradients, before clipping.
    pub grad_norm: f64,
    /// The rate of the update.
    pub rate: f64,
    /// Labels that counted.
    pub labels: usize,
    /// What the loss was multiplied by: 1 but for f16.
    pub loss_scale: f64,
    /// Whether gradients were not finite at that scale, so that no weight moved.
    pub is_skipped: bool,
    /// Then: the first gradient that was not, if a rank of this process has it.
    pub spoiled: Option<NonFiniteGradient>,
}

/// How a step's time divides, in seconds. What streams did is by the events of their cards, a mean
/// over the ranks of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// The whole step, from the batch on the host to its numbers on the host: of this host's time,
    /// or of that of cards which keep a clock of their own.
    pub seconds: f64,
    /// Operators run, or the next of them is to be issued.
    pub compute: f64,
    /// Of that, while a collective is under way.
    pub hidden: f64,
    /// A collective is under way, or waits for other ranks, and no operator runs.
    pub exposed: f64,
}

impl Times {
    /// Neither: before the first operator and after the last of each program, while the host makes
    /// inputs and reads outputs.
    #[must_use]
    pub fn idle(&self) -> f64 {
        (self.seconds - self.compute - self.exposed).max(0.0)
    }

    /// Adds what the streams of one of `ranks` ranks did in a run of so many seconds.
    fn add(&mut self, seconds: f64, shares: &Shares, ranks: usize) {
        let seconds = seconds / ranks as f64;
        self.compute += seconds * (shares.compute + shares.hidden_communication);
        self.hidden += seconds * shares.hidden_communication;
        self.exposed += seconds * (shares.exposed_communication + shares.waiting_for_peers);
    }
}

/// From when the first rank here began the last run until all had their outputs, in nanoseconds.
fn run_window(engine: &Engine) -> Range<u64> {
    let start = engine.run_times().iter().map(|time| time.start).min().unwrap_or(0);
    start..engine.run_times().iter().map(|time| time.end).max().unwrap_or(start)
}

/// How far a run is, besides weights and moments; part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The number of the next step.
    pub next: usize,
    /// How often weights moved: as often as steps, but for those that were skipped.
    pub updates: usize,
    /// Of a run in f16; none in other precisions.
    pub loss_scale: Option<LossScale>,
    /// After how many updates second moments stay as they are; none before a compressed step.
    #[serde(default)]
    pub frozen_at: Option<usize>,
    /// The share of gradients that clipping left, the mean of about the last ten updates in which
    /// it was known: of what is compressed no card knows the norm, and second moments that stay are
    /// of gradients cut by this.
    #[serde(default = "Progress::uncut")]
    pub factor: f64,
}

impl Progress {
    const fn uncut() -> f64 {
        1.0
    }
}

/// What gradients of this norm are multiplied by.
fn factor(clip_norm: f64, norm: f64) -> f64 {
    if clip_norm > 0.0 { (clip_norm / (norm + 1e-6)).min(1.0) } else { 1.0 }
}

/// A run of training.
#[derive(Debug)]
pub struct Trainer {
    engine: Engine,
    config: ModelConfig,
    recipe: Recipe,
    layout: Layout,
    sharding: Sharding,
    /// The parts of a step with the engine's program, in order.
    parts: Vec<(StepPart, ProgramId)>,
    /// Where gradients are compressed: behind how many updates, and the parts of a step before.
    warmup: Option<(usize, Vec<(StepPart, ProgramId)>)>,
    progress: Progress,
    times: Times,
    /// Seconds of the last step in which operators ran, by rank of this process.
    compute: BTreeMap<usize, f64>,
    /// Whether the cards keep a time of their own.
    has_clock: bool,
}

impl Trainer {
    /// Starts on cards, with weights that `fill` gives; moments are zeros. `compiled` is what
    /// [`compile`](super::compile::compile) made of the same model, recipe and layout.
    ///
    /// # Errors
    /// What a card refuses, or `fill`.
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
            let missing =
                || Diagnostics::from(Diagnostic::new(format!("{part:?}"), "is no part of what was compiled"));
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
        })
    }

    /// One step.
    ///
    /// # Errors
    /// A batch of another size, or a token beyond the vocabulary; the failure of a rank; a loss or
    /// a norm that is no finite number.
    pub fn step(&mut self, batch: &Batch) -> Result<StepOutcome, Error> {
        Ok(self.timed_step(batch, Timed::No)?.0)
    }

    /// As [`Trainer::step`], timed, for [`Trainer::times`]; with [`Timed::Steps`], and of cards
    /// with a clock, also what each rank of this process did, program by program. Timing takes time
    /// itself, more than a little where the card waits for the host.
    ///
    /// # Errors
    /// As for [`Trainer::step`].
    pub fn timed_step(&mut self, batch: &Batch, timed: Timed) -> Result<(StepOutcome, Vec<Phase>), Error> {
        let mut phases = Vec::new();
        let began = Instant::now();
        let mut window: Option<Range<u64>> = None;
        let mut losses: Vec<(usize, f64)> = Vec::new();
        self.times = Times::default();
        self.compute.clear();
        self.check(batch)?;
        let Recipe { seq, steps, clip_norm, .. } = self.recipe;
        let Progress { next: step, updates, loss_scale, .. } = self.progress;
        let labels = usize::try_from(batch.counted_labels()).unwrap_or(usize::MAX);
        let rate = self.recipe.schedule.rate(updates, steps);
        let loss_scale = loss_scale.map_or(1.0, |scale| scale.scale);
        let mut found = StepOutcome {
            step,
            loss: 0.0,
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
        for at in 0..self.parts_now().len() {
            let (part, program) = self.parts_now()[at];
            let mut inputs = match part {
                StepPart::Update => NamedTensors::new(),
                _ if self.layout.stages > 1 => self.staged_inputs(batch, labels, loss_scale, of_update()),
                _ => self.inputs(batch, at * self.layout.batch(), seq, labels, loss_scale),
            };
            match part {
                StepPart::Update => {
                    found.loss = total(self.recipe.order(), std::mem::take(&mut losses));
                    if !self.may_move(&mut found)? {
                        break;
                    }
                    let factor = factor(clip_norm, found.grad_norm) / loss_scale;
                    inputs.extend(of_update().chain([number_input(name::FACTOR, factor)]));
                }
                part if part.ends_step() && !is_scaled && self.layout.stages == 1 => {
                    inputs.extend(of_update())
                }
                _ => {}
            }
            let outputs = self.engine.begin(program, &inputs, timed)?.finish()?;
            let run = run_window(&self.engine);
            self.time(timed, &run);
            if timed == Timed::Steps || self.has_clock && timed != Timed::No {
                let name = self.phase_name(part, at);
                // Ranks are not in step: what one is ahead of the others counts in the run before.
                let start_ns =
                    self.engine.run_times().iter().map(|time| time.start).max().unwrap_or(run.start);
                let spans = self.engine.spans().to_vec();
                phases.push(Phase {
                    name,
                    program: program.0,
                    start_ns,
                    end_ns: run.end,
                    spans,
                    calls: Vec::new(),
                });
            }
            window = Some(window.map_or(run.start, |window| window.start)..run.end);
            for (name, value) in numbers(&outputs) {
                match unnumbered(&name) {
                    name::LOSS => losses.push((micro_batch(&name).unwrap_or(at), value)),
                    _ => found.grad_norm = value / loss_scale,
                }
            }
        }
        // Those that no update has summed.
        found.loss += total(self.recipe.order(), losses);
        for (what, value) in [("loss", found.loss), ("norm of the gradients", found.grad_norm)] {
            if !value.is_finite() && !found.is_skipped {
                return Err(Error::NotFinite { step, what, value, spoiled: self.spoiled()? });
            }
        }
        self.advance(&found);
        self.times.seconds = match window.filter(|_| self.has_clock) {
            Some(window) => (window.end - window.start) as f64 / 1e9,
            None => began.elapsed().as_secs_f64(),
        };
        Ok((found, phases))
    }

    /// What a run of a step's program is called, the `at`-th of the step.
    fn phase_name(&self, part: StepPart, at: usize) -> String {
        match part {
            StepPart::Update => "update".to_owned(),
            _ if self.layout.stages > 1 => "all micro-batches".to_owned(),
            _ => format!("micro-batch {}", at + 1),
        }
    }

    /// Counts a step, and whether weights moved in it.
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

    /// What the optimizer reads in the next step.
    fn optimizer_inputs(&self, updates: usize, rate: f64) -> Vec<(&'static str, f64)> {
        let optimizer = self.recipe.optimizer;
        let mut inputs = optimizer.numbers(updates, rate);
        if self.is_compressed() {
            inputs.extend(optimizer.corrected_input(updates, rate));
            inputs.push((name::FACTOR, self.progress.factor));
        }
        inputs
    }

    /// Whether the next step sums compressed gradients.
    fn is_compressed(&self) -> bool {
        self.warmup.as_ref().is_some_and(|(updates, _)| self.progress.updates >= *updates)
    }

    /// The parts of the next step.
    fn parts_now(&self) -> &[(StepPart, ProgramId)] {
        let warmup = self.warmup.as_ref().filter(|_| !self.is_compressed());
        warmup.map_or(&self.parts, |(_, parts)| parts)
    }

    /// Adds what streams did in the last run of the engine.
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

    /// Whether weights may move by gradients of a scaled loss; says in `found` why not, and moves
    /// the scale. All processes have the same loss and norm, so they decide alike.
    ///
    /// # Errors
    /// The loss is not finite: the scale multiplies it afterwards, so no scale repairs it. Or the
    /// gradients are not finite at the least scale.
    fn may_move(&mut self, found: &mut StepOutcome) -> Result<bool, Error> {
        self.check_loss(found)?;
        let is_finite = found.grad_norm.is_finite();
        let scaling = self.recipe.loss_scale;
        let can_go_on = self.progress.loss_scale.as_mut().is_none_or(|scale| scale.next(is_finite, &scaling));
        if !is_finite {
            (found.is_skipped, found.spoiled) = (true, self.spoiled()?);
        }
        match can_go_on {
            true => Ok(is_finite),
            false => Err(Error::NotFinite {
                step: found.step,
                what: "norm of the gradients at the least loss scale",
                value: found.grad_norm,
                spoiled: found.spoiled.take(),
            }),
        }
    }

    /// # Errors
    /// The loss is NaN or infinite.
    fn check_loss(&mut self, found: &StepOutcome) -> Result<(), Error> {
        let StepOutcome { step, loss, .. } = *found;
        if loss.is_finite() {
            return Ok(());
        }
        Err(Error::NotFinite { step, what: "loss", value: loss, spoiled: self.spoiled()? })
    }

    /// The first gradient that was not finite: by the gradients that are kept, else by a moment,
    /// which only its own gradient can spoil, else by the weight.
    fn spoiled(&mut self) -> Result<Option<NonFiniteGradient>, Error> {
        let kept = [SCALED].into_iter().chain(self.recipe.optimizer.states().iter().copied());
        let mut found = None;
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
                    found = Some(NonFiniteGradient { weight, rank: part.rank() });
                    break;
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The number of the next step.
    #[must_use]
    pub const fn next_step(&self) -> usize {
        self.progress.next
    }

    /// How far the run is.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// How the time of the last step divides; of one that was not timed, the seconds alone.
    #[must_use]
    pub const fn times(&self) -> Times {
        self.times
    }

    /// Seconds of the last step in which operators ran, by rank of this process; of one that was
    /// not timed, none.
    #[must_use]
    pub const fn compute_seconds(&self) -> &BTreeMap<usize, f64> {
        &self.compute
    }

    /// The plans of the programs, by program and rank: what the phases of [`Trainer::timed_step`]
    /// are of.
    #[must_use]
    pub fn programs(&self) -> Vec<Vec<Arc<Plan>>> {
        let all = self.parts.iter().chain(self.warmup.iter().flat_map(|(_, parts)| parts));
        let count = all.map(|(_, program)| program.0 + 1).max().unwrap_or(0);
        (0..count).map(|program| self.engine.plans(ProgramId(program)).to_vec()).collect()
    }

    /// What the fullest card holds throughout the run: everything is taken before the first step.
    #[must_use]
    pub fn memory_peak(&self) -> Bytes {
        let programs = self.programs();
        let buffers = |rank| memory_wanted(&programs, rank).iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
        let workspace = |rank| {
            self.memory(rank).iter().filter(|(use_, _)| *use_ == "workspace").map(|(_, bytes)| *bytes).sum()
        };
        let bytes = |rank| [buffers(rank), workspace(rank)].into_iter().sum::<Bytes>();
        (0..self.layout.cards()).map(bytes).max().unwrap_or_default()
    }

    /// Bytes on a rank's card by use, operators' workspace too; none of a rank that there is not.
    #[must_use]
    pub fn memory(&self, rank: usize) -> Vec<(&'static str, Bytes)> {
        self.engine.memory(rank)
    }

    /// Whether the cards keep a time of their own.
    #[must_use]
    pub const fn has_clock(&self) -> bool {
        self.has_clock
    }

    /// What a checkpoint has of this run, and which rank writes it.
    #[must_use]
    pub const fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// Weights and optimizer states as the cards here hold them: those that the ranks of this
    /// process write.
    ///
    /// # Errors
    /// A card refuses.
    pub fn parts(&mut self) -> Result<Vec<PartBytes>, Error> {
        let mut found = Vec::new();
        let sharding = &self.sharding;
        self.engine.load(|shards| {
            for part in shards.weights().iter().chain(shards.states()).flatten() {
                let (rank, tensor) = (part.rank(), part.tensor().name.clone());
                if sharding.written_by(rank).any(|(written, _)| written.name == tensor) {
                    found.push(PartBytes { rank, tensor, bytes: part.read()? });
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// As [`Trainer::parts`], for a checkpoint: every value is finite.
    ///
    /// # Errors
    /// As for [`Trainer::parts`], or the first tensor with NaN or infinity.
    pub fn checkpoint_parts(&mut self) -> Result<Vec<PartBytes>, Error> {
        let parts = self.parts()?;
        let is_finite = |number: &[u8; 4]| f32::from_le_bytes(*number).is_finite();
        // Weights, moments and sums are f32 in every precision.
        match parts.iter().find(|part| !part.bytes.as_chunks().0.iter().all(is_finite)) {
            Some(PartBytes { rank, tensor, .. }) => {
                Err(Error::SpoiledState { step: self.progress.next, tensor: tensor.clone(), rank: *rank })
            }
            None => Ok(parts),
        }
    }

    /// Takes weights and optimizer states from a checkpoint of any layout, and goes on where that
    /// run was. A scale of the loss comes along if both runs have one.
    ///
    /// # Errors
    /// Second moments that another run froze elsewhere; the checkpoint lacks a tensor, has it
    /// otherwise, or was altered; a card refuses.
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

    /// Whether second moments that stay as they are were left by as many updates as this run
    /// corrects them for.
    fn check_frozen(&self, kept: &Progress) -> Result<(), Diagnostics> {
        let Some(own) = self.warmup.as_ref().map(|(updates, _)| *updates) else { return Ok(()) };
        let found = match kept.frozen_at {
            Some(at) if at != own => format!("{at}"),
            None if kept.updates > own => {
                format!(
                    "moments of {} updates that were not compressed, or of a version that did not say",
                    kept.updates
                )
            }
            _ => return Ok(()),
        };
        let problem =
            Diagnostic::new("--compress-after", "second moments are not those of that many updates");
        Err(problem
            .expected(own)
            .found(found)
            .help("give the number of updates that the checkpoint has")
            .into())
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
            let problem = Diagnostic::new(place, "is not of the vocabulary");
            problems.push(problem.expected(format!("0 to {}", vocabulary.end - 1)).found(batch.tokens[at]));
        }
        if batch.counted_labels() == 0 {
            problems.push(Diagnostic::new(place("labels"), "none of the global batch counts"));
        }
        problems.into_result(())
    }

    /// What all micro-batches of a pipeline are given; `of_update`: what moves the weights, behind
    /// the last one.
    fn staged_inputs(
        &self,
        batch: &Batch,
        labels: usize,
        loss_scale: f64,
        of_update: impl Iterator<Item = (String, Elements)>,
    ) -> NamedTensors {
        let count = self.layout.micro_batches(&self.recipe);
        let own =
            |at: usize| self.inputs(batch, at * self.layout.batch(), self.recipe.seq, labels, loss_scale);
        let of = |at: usize| move |(name, tensor): (String, Elements)| (numbered(at, &name), tensor);
        let mut all: NamedTensors = (0..count).flat_map(|at| own(at).into_iter().map(of(at))).collect();
        if self.progress.loss_scale.is_none() {
            all.extend(of_update.map(of(count - 1)));
        }
        all
    }

    /// What a micro-batch that begins with sequence `first` is given. Sequences that the global
    /// batch does not have are zeros whose labels count nothing.
    fn inputs(&self, batch: &Batch, first: usize, s: usize, labels: usize, loss_scale: f64) -> NamedTensors {
        let (config, b) = (&self.config, self.layout.batch());
        let row = |at: usize| (first + at < self.recipe.global_batch).then_some(first + at);
        // Of a sequence, in the order in which cards have its tokens: in one order of sums in that
        // of the text on every layout, as products add a sequence's tokens in the order in which
        // they are given.
        let order = context::order(s, if self.recipe.exact { 1 } else { self.layout.context });
        let tokens = |at: usize, shift: usize| match row(at) {
            Some(row) => {
                order.iter().map(|token| i64::from(batch.tokens[row * (s + 1) + shift + token])).collect()
            }
            None => vec![0; s],
        };
        let share = (labels as f64).recip() as f32;
        let weight = |ignored: u8| if ignored == 0 { share } else { 0.0 };
        let weights = |at: usize| match row(at) {
            Some(row) => order.iter().map(|token| weight(batch.ignore[row * s + token])).collect(),
            None => vec![0.0; s],
        };
        let position = |at: i32| usize::try_from(at).unwrap_or_default();
        let positions_of = |at: usize| match row(at) {
            Some(row) => order.iter().map(|token| position(batch.positions[row * s + token])).collect(),
            None => order.clone(),
        };
        let positions: Vec<usize> = (0..b).flat_map(positions_of).collect();
        let (cos, sin) = config.rope.cos_sin(config.head_dim, &positions, s);
        // A token sees itself and those before it of the same document.
        let document = |at: usize, token: usize| row(at).map(|row| batch.documents[row * s + token]);
        let is_hidden =
            |at: usize, token: usize, key: usize| key > token || document(at, token) != document(at, key);
        let order = order.as_slice();
        let keys = move |at, token: usize| order.iter().map(move |key| (at, token, *key));
        let cells = (0..b).flat_map(|at| order.iter().flat_map(move |token| keys(at, *token)));
        let hidden: Vec<bool> = cells.map(|(at, token, key)| is_hidden(at, token, key)).collect();
        let dtype = self.recipe.precision.dtype();
        let rotary = [b, s, config.head_dim];
        let ids = |shift: usize| {
            HostTensor::int([b, s], DType::I64, (0..b).flat_map(|at| tokens(at, shift)).collect())
        };
        let mut tensors = vec![
            (input::IDS, ids(0)),
            (input::LABELS, ids(1)),
            (input::LABEL_WEIGHTS, HostTensor::float([b, s], DType::F32, (0..b).flat_map(weights).collect())),
            (input::COS, HostTensor::float(rotary, dtype, cos)),
            (input::SIN, HostTensor::float(rotary, dtype, sin)),
        ];
        if let Some(logn) = &config.logn {
            tensors.push((input::LOGN, HostTensor::float([b, s, 1, 1, 1], dtype, logn.scale(&positions))));
        }
        let all: NamedTensors = tensors.into_iter().collect();
        all.with(input::MASK, hidden).with(name::LOSS_SCALE, loss_scale as f32)
    }
}

fn number_input(name: &str, number: f64) -> (String, Elements) {
    (name.to_owned(), (number as f32).into())
}

/// The sum of the losses of micro-batches, each with its number.
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

/// The numbers among a run's outputs.
fn numbers(outputs: &NamedTensors) -> Vec<(String, f64)> {
    let number = |tensor: &HostTensor| tensor.floats().first().copied().map(f64::from);
    outputs.iter().filter_map(|(name, tensor)| Some((name.to_owned(), number(&tensor)?))).collect()
}
