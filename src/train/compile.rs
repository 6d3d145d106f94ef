//! Compilation of a recipe and a layout into the plans of a run.
//!
//! [`lower`] places the programs of a step on their mesh, and [`compile`] also schedules them. All
//! programs of a run have the same weights and states. Invalid settings are reported before any
//! device call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::base::{Diagnostic, Diagnostics};
use crate::collective::{parallelize, parallelize_apart};
use crate::compile::check_order;
use crate::config::{ModelConfig, WeightFormat};
use crate::placement::{DEPTH, EXPERTS, ExpertShards, Grid, Mesh, Placed, Residual};
use crate::program::models::adapters;
use crate::program::tree::SumOrder;
use crate::program::{Program, Role, Value, ValueId};
use crate::schedule::parts::{Cut, cut};
use crate::schedule::{
    Joining, OpPlace, Plan, Ranks, Scheduling, Staged, StagedStep, StepOrder, Target, schedule,
    schedule_stages,
};

use super::checkpoint::{Checkpoint, ShardedTensor, Sharding};
use super::compress;
use super::context::CONTEXT;
use super::exact;
use super::init::{Init, inits};
use super::layouts::{DATA, KEPT_BACK, REPLICAS, SAME_EXPERTS, SHARDS, Zero, is_of_one_step, pins};
use super::program::{Marked, Parts, Recompute, StepPart, is_copy};
use super::recipe::{Recipe, TrainingPrecision};
use super::routers;
use super::stages::PIPELINE;

/// Distribution of a run over cards. A layout affects results only through the order of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of data-parallel cards.
    pub data: usize,
    /// Number of data-parallel cards that share the experts of mixtures. It divides `data`. The
    /// other weights are not sharded over these cards.
    pub expert: usize,
    /// Number of groups of data-parallel cards (hybrid sharding). [`Layout::zero`] shards only
    /// within a group.
    pub replicas: usize,
    /// Number of context-parallel cards; see [`super::context`].
    pub context: usize,
    /// True if context-parallel cards use ring attention. Otherwise each card gathers all keys and
    /// values.
    pub ring: bool,
    /// Number of tensor-parallel cards, rows times columns.
    pub tensor: usize,
    /// Rows and depth of the tensor-parallel grid. Cards along the depth split a micro-batch.
    pub grid: Grid,
    /// Number of pipeline stages.
    pub stages: usize,
    /// Layout of the residual stream.
    pub residual: Residual,
    /// How tensor-parallel cards share the experts of mixtures.
    pub experts: ExpertShards,
    /// `ZeRO` stage over the data-parallel cards.
    pub zero: Zero,
    /// Sequences of a micro-batch per data-parallel card.
    pub micro_batch: usize,
    /// Activations that the backward pass recomputes.
    pub recompute: Recompute,
}

impl Layout {
    /// Layout of one card with one sequence per micro-batch.
    pub const ONE: Self = Self {
        data: 1,
        expert: 1,
        replicas: 1,
        context: 1,
        ring: false,
        tensor: 1,
        grid: Grid::LINE,
        stages: 1,
        residual: Residual::Replicate,
        experts: ExpertShards::Whole,
        zero: Zero::None,
        micro_batch: 1,
        recompute: Recompute::None,
    };

    /// Returns the total number of cards.
    #[must_use]
    #[doc(hidden)]
    pub const fn cards(&self) -> usize {
        self.stages * self.data * self.context * self.tensor * self.grid.depth
    }

    /// Returns the sequences of a micro-batch, over all cards.
    #[must_use]
    #[doc(hidden)]
    pub const fn batch(&self) -> usize {
        self.data * self.micro_batch
    }

    /// Returns the micro-batches of a step. The last may have fewer sequences.
    #[must_use]
    #[doc(hidden)]
    pub const fn micro_batches(&self, recipe: &Recipe) -> usize {
        recipe.global_batch.div_ceil(self.batch())
    }

    /// Returns the programs of a step, in order. With compressed gradients,
    /// [`Layout::warmup_programs`] apply first.
    #[must_use]
    #[doc(hidden)]
    pub fn programs(&self, recipe: &Recipe) -> Vec<StepPart> {
        let parts = self.warmup_programs(recipe);
        if recipe.compress.is_some() { StepPart::compressed(parts) } else { parts }
    }

    /// Returns the programs of a step without compressed gradients.
    #[must_use]
    #[doc(hidden)]
    pub fn warmup_programs(&self, recipe: &Recipe) -> Vec<StepPart> {
        let count = if self.stages > 1 { 1 } else { self.micro_batches(recipe) };
        StepPart::of_step(count, recipe.precision == TrainingPrecision::F16, recipe.order())
    }

    /// Returns the mesh of all cards. The axes are stages, sequences, then tokens.
    ///
    /// # Errors
    /// The mesh is invalid, for example without cards.
    #[doc(hidden)]
    pub fn mesh(&self, config: &ModelConfig) -> Result<Mesh, Diagnostics> {
        let mesh = self.stage_mesh(config)?;
        if self.stages == 1 {
            return Ok(mesh);
        }
        let mesh = mesh.under(&[(PIPELINE, self.stages)]);
        Ok(mesh.map_err(|error| Diagnostic::new("mesh", error.to_string()))?)
    }

    fn stage_mesh(&self, config: &ModelConfig) -> Result<Mesh, Diagnostics> {
        let problem = |error: &dyn fmt::Display| Diagnostic::new("mesh", error.to_string());
        let columns = self.tensor / self.grid.rows.max(1);
        let tensor = Mesh::of_grid(columns, self.grid, config.kv_heads, config.heads_per_kv_head());
        let dealt = [(DATA, self.data), (CONTEXT, self.context)];
        let dealt = if self.context > 1 { &dealt[..] } else { &dealt[..1] };
        let mesh = tensor.map_err(|error| problem(&error))?.under(dealt);
        let (replicas, experts) = (self.replicas.max(1), self.expert.max(1));
        let shards = self.data / (replicas * experts);
        let mesh = match (replicas, experts) {
            (1, 1) => mesh,
            (_, 1) => mesh.and_then(|mesh| mesh.cut_axis(DATA, &[(REPLICAS, replicas), (SHARDS, shards)])),
            (1, _) => {
                mesh.and_then(|mesh| mesh.cut_axis(DATA, &[(SAME_EXPERTS, shards), (EXPERTS, experts)]))
            }
            _ => mesh.and_then(|mesh| {
                mesh.cut_axis(DATA, &[(REPLICAS, replicas), (SHARDS, shards), (EXPERTS, experts)])
            }),
        };
        // If both dims of a weight are sharded, these axes may shard it further.
        let mesh = match self.grid.rows {
            0 | 1 => mesh,
            _ => mesh.map(|mesh| mesh.with_within(&[DATA, DEPTH])),
        };
        Ok(mesh.map_err(|error| problem(&error))?)
    }
}

/// Compiled programs of a training run.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Distinct parts of a step, with the plans of all ranks.
    pub plans: Vec<(StepPart, Vec<Plan>)>,
    /// Layout of the weights and the optimizer state.
    pub sharding: Sharding,
    /// Initialization of each weight without a checkpoint.
    pub inits: BTreeMap<String, Init>,
}

impl Compiled {
    /// Checks that a checkpoint has exactly the weights and moments of this run.
    ///
    /// # Errors
    /// Every tensor that differs.
    pub fn check_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), Diagnostics> {
        // The size of the compression error state depends on the mesh.
        checkpoint.check(&self.sharding, |name| name.starts_with(KEPT_BACK))
    }
}

/// Programs of a run before scheduling.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// Distinct parts of a step, with their collectives.
    pub parts: Vec<(StepPart, Placed)>,
    /// Initialization of each weight without a checkpoint.
    pub inits: BTreeMap<String, Init>,
    /// Stage and phase of each op by part, if the run has several stages.
    pub places: Vec<Vec<Option<OpPlace>>>,
    /// Model part of each weight and state, if the run has several stages.
    pub homes: BTreeMap<String, usize>,
}

/// Builds the programs of a run and places them on their mesh.
///
/// # Errors
/// The recipe or the layout is invalid, or a placement fails.
pub fn lower(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<Lowered, Diagnostics> {
    check(config, recipe, layout)?;
    let Layout { data, tensor, .. } = *layout;
    let mesh = layout.stage_mesh(config)?;
    let mut parts = Parts {
        config,
        batch: layout.batch(),
        sequence: recipe.seq,
        products: recipe.precision.dtype(),
        optimizer: recipe.optimizer,
        clip_norm: recipe.clip_norm,
        lora: recipe.lora.as_ref(),
        routers: routers::losses(recipe),
        count: layout.micro_batches(recipe),
        recompute: layout.recompute,
        // Early addition requires gradients without communication in each micro-batch. `ZeRO` stage
        // 2 reduces gradients, a sequence-sharded residual stream makes gradients of norms partial
        // over `tp`, and tree sums are reduced at once.
        adds_early: layout.zero < Zero::Gradients
            && (tensor == 1 || layout.residual == Residual::Replicate)
            && (data * layout.context == 1 || recipe.order() == SumOrder::AsTheyCome),
        cut: Cut::whole(config.layers),
        compress: recipe.compress.map(|compress| (compress.by, compress.warmup(recipe.steps))),
        ring: layout.ring,
        order: recipe.order(),
        routing: recipe.routing,
    };
    let (order, levels) = (parts.order, parts.levels());
    let pins_of = |loss: &Program| pins(config, loss, &mesh, layout, order, levels);
    if layout.stages > 1 {
        // Each layer is its own part first, so that `cut` can time it.
        parts.cut = Cut { parts: config.layers + 2, of_layer: (1..=config.layers).collect() };
        let Marked { program, marks } = parts.marked_loss()?;
        let pins = pins_of(&program)?.among(&program);
        let placed = parallelize(&program, &mesh, &pins)?.lowered;
        parts.cut = cut(&placed, &marks, config.layers, layout.stages * recipe.pipeline.chunks());
    }
    let loss = parts.loss()?;
    let pins = pins_of(&loss)?;
    let mut lowered =
        Lowered { parts: Vec::new(), inits: inits(&loss), places: Vec::new(), homes: BTreeMap::new() };
    let usual = StepPart::of_step(parts.count, parts.is_scaled(), parts.order);
    let compressed = parts.compress.map(|_| StepPart::Compressed);
    for part in usual.into_iter().chain(compressed) {
        if lowered.parts.iter().any(|(known, _)| *known == part) {
            continue;
        }
        let Marked { program, marks } = parts.marked(part)?;
        let own_pins = pins.clone().among(&program);
        if layout.stages == 1 {
            let placed = parallelize(&program, &mesh, &own_pins)?.lowered;
            check_order(recipe.order(), &placed)?;
            lowered.parts.push((part, placed));
            continue;
        }
        // Ops of different phases or stages must not share a collective.
        let placed = parallelize_apart(&program, &mesh, &own_pins, |program| marks.apart(program))?.lowered;
        check_order(recipe.order(), &placed)?;
        lowered.places.push(marks.places(&placed.program));
        lowered.homes.extend(marks.homes(&program));
        lowered.parts.push((part, placed));
    }
    Ok(lowered)
}

/// Checks a recipe and a layout without compiling them.
///
/// # Errors
/// Every invalid setting or combination.
pub fn check(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<(), Diagnostics> {
    recipe.check()?;
    // The other checks divide by these counts.
    check_counts(recipe, layout)?;
    let mut problems = Diagnostics::new();
    let checks = [
        check_formats(config, recipe),
        check_recurrent(config, recipe, layout),
        check_experts(config, recipe, layout),
        routers::check(config, recipe),
        check_stages(config, recipe, layout),
        if recipe.exact { exact::check_layout(layout) } else { Ok(()) },
        compress::check(recipe, layout),
    ];
    checks.into_iter().filter_map(Result::err).for_each(|found| problems.append(found));
    problems.into_result(())
}

/// Refuses weights that are not floats, unless they are frozen and become floats when they are
/// read.
fn check_formats(config: &ModelConfig, recipe: &Recipe) -> Result<(), Diagnostics> {
    let is_refused =
        |format: &WeightFormat| recipe.lora.is_none() || !matches!(format, WeightFormat::Packed(_));
    let Some(format) = config.formats.iter().find(is_refused) else { return Ok(()) };
    let problem = Diagnostic::new("model", "quantised weights cannot be trained");
    let help = match format {
        WeightFormat::Packed(_) => "train adapters next to the weights, with --lora",
        _ => "use the checkpoint the quantised one was made from",
    };
    Err(problem.expected("float weights").found(format).help(help).into())
}

/// Largest number of micro-batches with stages. The plan of a stage holds every micro-batch.
const MOST_MICRO_BATCHES: usize = 1 << 12;

fn check_counts(recipe: &Recipe, layout: &Layout) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let Layout { data, expert, replicas, context, tensor, micro_batch, grid, .. } = *layout;
    let counts = [
        ("data", data),
        ("expert", expert),
        ("replicas", replicas),
        ("context", context),
        ("tensor", tensor),
        ("rows", grid.rows),
        ("depth", grid.depth),
        ("stages", layout.stages),
        ("micro_batch", micro_batch),
    ];
    if layout.stages > 1 && micro_batch > 0 && data > 0 && layout.micro_batches(recipe) > MOST_MICRO_BATCHES {
        let problem = Diagnostic::new("layout: micro_batch", "more micro-batches than a stage supports");
        let problem = problem.expected(format!("at most {MOST_MICRO_BATCHES} a step"));
        problems.push(
            problem.found(layout.micro_batches(recipe)).help("use larger micro-batches or fewer sequences"),
        );
    }
    for (what, _) in counts.into_iter().filter(|(_, count)| *count == 0) {
        problems.push(
            Diagnostic::new(format!("layout: {what}"), "cannot be").expected("a number above 0").found(0),
        );
    }
    if replicas > 0 && !data.is_multiple_of(replicas) {
        let problem = Diagnostic::new("layout: replicas", "do not divide the data-parallel cards");
        problems.push(problem.expected(format!("a divisor of {data}")).found(replicas));
    } else if expert > 0 && replicas > 0 && !(data / replicas).is_multiple_of(expert) {
        let problem = Diagnostic::new("layout: expert", "does not divide the data-parallel cards");
        problems.push(problem.expected(format!("a divisor of {}", data / replicas)).found(expert));
    }
    if context > recipe.seq {
        let problem = Diagnostic::new("layout: context", "is more cards than a sequence has tokens");
        problems.push(problem.expected(format!("at most {}", recipe.seq)).found(context));
    }
    if layout.ring && context == 1 {
        let problem =
            Diagnostic::new("layout: ring", "keys and values go around the cards that share a sequence");
        problems.push(
            problem
                .expected("several cards along cp")
                .found("one")
                .help("set cp=2 in --mesh, or remove --ring"),
        );
    }
    if grid.rows > 0 && !tensor.is_multiple_of(grid.rows) {
        let problem = Diagnostic::new("layout: rows", "do not divide the cards that shard each weight");
        problems.push(problem.expected(format!("a divisor of {tensor}")).found(grid.rows));
    }
    if grid.rows > 1 && context > 1 {
        let problem = Diagnostic::new(
            "layout: context",
            "tokens of a sequence cannot be distributed if two axes shard the weights",
        );
        let help = "use tp_depth or dp instead of cp, or one axis tp instead of tp_row and tp_col";
        problems.push(problem.expected("cp=1 with tp_row").found(format!("cp={context}")).help(help));
    }
    if grid.depth > micro_batch {
        let problem = Diagnostic::new(
            "layout: depth",
            "distributes the sequences of a micro-batch, and some cards would have none",
        );
        let help = "use a larger --micro-batch, or dp instead of tp_depth";
        problems.push(problem.expected(format!("at most {micro_batch}")).found(grid.depth).help(help));
    }
    problems.into_result(())
}

/// Refuses cards that share experts that the model does not have, and what experts cannot do.
fn check_experts(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    if layout.expert == 1 {
        return problems.into_result(());
    }
    let fewest = config.mixtures().map(|(_, mixture)| mixture.experts).min();
    let text = match fewest {
        None => "shares experts, and the model has none",
        Some(_) => "is more cards than a layer has experts",
    };
    let most = fewest.unwrap_or(1);
    if layout.expert > most {
        let problem = Diagnostic::new("layout: expert", text);
        let problem = problem.expected(format!("at most {most}")).found(layout.expert);
        problems.push(problem.help("use dp instead of ep in --mesh"));
    }
    if recipe.compress.is_some() {
        let text = "gradients of experts and of other weights have other numbers of partial sums";
        let problem = Diagnostic::new("--compress", text).expected("a mesh without ep");
        problems.push(problem.help("remove --compress, or use dp instead of ep in --mesh"));
    }
    problems.into_result(())
}

/// Refuses what recurrent layers cannot do.
fn check_recurrent(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    if config.remembered_tokens().is_none() {
        return Ok(());
    }
    if layout.context > 1 {
        let text = "a recurrent layer needs the tokens of a sequence in order, and cp distributes them";
        let problem = Diagnostic::new("layout: context", text).expected("cp=1");
        problems.push(problem.found(format!("cp={}", layout.context)).help("use dp or tp instead of cp"));
    }
    if recipe.exact {
        let text = "the gradients of convolutions have no fixed order of sums";
        let problem = Diagnostic::new("--exact", text).expected("a model without recurrent layers");
        problems.push(problem.help("remove --exact"));
    }
    problems.into_result(())
}

fn check_stages(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let Layout { stages, .. } = *layout;
    let (parts, count) = (stages * recipe.pipeline.chunks(), layout.micro_batches(recipe));
    if stages == 1 {
        return Ok(());
    }
    if parts > config.layers {
        let problem = Diagnostic::new("pipeline: stages", "need one layer each, or one per chunk");
        let found = format!("{parts} of {stages} stages");
        problems.push(
            problem.expected(format!("at most {} parts, as many as layers", config.layers)).found(found),
        );
    }
    if count < stages {
        let problem = Diagnostic::new(
            "pipeline: micro-batches",
            "are fewer than the stages, so some stages would always wait",
        );
        let help = "use a larger global batch, a smaller --micro-batch or fewer stages";
        problems.push(problem.expected(format!("{stages} or more")).found(count).help(help));
    } else if !recipe.pipeline.divides(stages, count) {
        let problem = Diagnostic::new(
            "pipeline: micro-batches",
            "must be a multiple of the stages for an interleaved schedule",
        );
        problems.push(problem.expected(format!("a multiple of {stages}")).found(count));
    }
    problems.into_result(())
}

/// Compiles the programs of a run.
///
/// # Errors
/// The errors of [`lower`] and of the scheduler.
pub fn compile(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: &Layout,
    target: Target,
) -> Result<Compiled, Diagnostics> {
    let lowered = lower(config, recipe, layout)?;
    let mut plans = Vec::new();
    for run in lowered.runs(recipe, layout)? {
        plans.push((run.part, run.schedule(StepOrder::Overlapped, recipe, layout, target)?));
    }
    // All parts have the same weights and states.
    let kept = kept(&lowered.parts[0].1);
    let kept = match layout.stages {
        1 => kept,
        _ => {
            let wanted = kept.into_iter().map(|tensor| (tensor.name, tensor.layout)).collect();
            ShardedTensor::planned(&plans[0].1, wanted)?
        }
    };
    let sharding = Sharding::new(layout.mesh(config)?, kept)?;
    Ok(Compiled { plans, sharding, inits: lowered.inits })
}

/// Program of one launch: a micro-batch, a whole pipeline step, or the weight update.
#[derive(Clone, Debug)]
pub struct StepProgram<'a> {
    /// Part of the step.
    pub part: StepPart,
    /// Distinct programs of the launch. The notes of the plans number their ops consecutively.
    pub programs: Vec<(StepPart, Staged<'a>)>,
    /// Index into `programs` by micro-batch.
    pub micro_batches: Vec<usize>,
    homes: &'a BTreeMap<String, usize>,
}

impl StepProgram<'_> {
    /// Returns the scheduled plans of all ranks. Training uses [`StepOrder::Overlapped`].
    ///
    /// # Errors
    /// The stages cannot divide the programs, or the schedule is invalid.
    pub fn schedule(
        &self,
        order: StepOrder,
        recipe: &Recipe,
        layout: &Layout,
        target: Target,
    ) -> Result<Vec<Plan>, Diagnostics> {
        self.schedule_ranks(Ranks::All, order, recipe, layout, target)
    }

    /// Returns the scheduled plans of these ranks.
    ///
    /// # Errors
    /// As [`StepProgram::schedule`].
    pub fn schedule_ranks(
        &self,
        ranks: Ranks,
        order: StepOrder,
        recipe: &Recipe,
        layout: &Layout,
        target: Target,
    ) -> Result<Vec<Plan>, Diagnostics> {
        let programs: Vec<Staged<'_>> = self.programs.iter().map(|(_, staged)| *staged).collect();
        if let (1, [only]) = (layout.stages, programs.as_slice()) {
            return schedule(only.placed, Scheduling { joining: Joining::InPlace, order, target, ranks });
        }
        let step = StagedStep {
            name: &format!(
                "train {:?} of {} in {} stages",
                self.part,
                layout.micro_batches(recipe),
                layout.stages
            ),
            pipeline: recipe.pipeline,
            stages: layout.stages,
            programs: &programs,
            homes: self.homes,
            micro_batches: &self.micro_batches,
        };
        schedule_stages(&step, order, target, ranks)
    }
}

impl Lowered {
    /// Returns the distinct programs of a run in step order, warm-up programs first.
    ///
    /// # Errors
    /// A part of the step was not lowered.
    pub fn runs(&self, recipe: &Recipe, layout: &Layout) -> Result<Vec<StepProgram<'_>>, Diagnostics> {
        let of_one = |part: &StepPart| layout.stages == 1 || *part == StepPart::Update;
        let mut runs: Vec<StepProgram<'_>> = Vec::new();
        for part in layout.warmup_programs(recipe).into_iter().chain(layout.programs(recipe)) {
            if runs.iter().any(|run| run.part == part) {
                continue;
            }
            let steps = if of_one(&part) {
                vec![part]
            } else {
                let steps = StepPart::of_step(layout.micro_batches(recipe), false, recipe.order());
                if part == StepPart::Compressed { StepPart::compressed(steps) } else { steps }
            };
            let number_of = |step: &StepPart| {
                let known = || {
                    self.parts.iter().map(|(known, _)| format!("{known:?}")).collect::<Vec<_>>().join(", ")
                };
                let missing = || Diagnostic::new(format!("{step:?}"), "was not lowered");
                let help = "lower and run with the same recipe and layout";
                let number = self.parts.iter().position(|(known, _)| known == step);
                number.ok_or_else(|| {
                    Diagnostics::from(missing().expected("one of a step").found(known()).help(help))
                })
            };
            let mut numbers: Vec<usize> = steps.iter().map(number_of).collect::<Result<_, _>>()?;
            let own = numbers.clone();
            numbers.sort_unstable();
            numbers.dedup();
            let staged = |number: &usize| {
                let (part, placed) = &self.parts[*number];
                (
                    *part,
                    Staged {
                        placed,
                        places: self.places.get(*number).map_or(&[], Vec::as_slice),
                        like: None,
                    },
                )
            };
            let micro_batches = own.iter().filter_map(|number| numbers.binary_search(number).ok()).collect();
            let programs = numbers.iter().map(staged).collect();
            runs.push(StepProgram { part, programs, micro_batches, homes: &self.homes });
        }
        Ok(runs)
    }
}

fn sharded(lowered: &Placed, id: ValueId) -> ShardedTensor {
    let value = &lowered.program.values[id];
    ShardedTensor {
        source: value.source.clone(),
        ..ShardedTensor::placed(&value.name, &value.shape, value.dtype, &lowered.mesh, &lowered.layouts[id])
    }
}

/// Returns the tensors of a checkpoint, without copies and states of a single step. With adapters,
/// these are the adapters alone. Otherwise they have all weights, also biases of choices, which
/// have no optimizer states.
fn kept(lowered: &Placed) -> Vec<ShardedTensor> {
    let adapters: BTreeSet<ValueId> = adapters(&lowered.program).collect();
    let is_kept = |(id, value): &(ValueId, &Value)| match value.role {
        Role::Param => (adapters.is_empty() || adapters.contains(id)) && !is_copy(&value.name),
        Role::State => !is_of_one_step(&value.name),
        Role::Input | Role::Result => false,
    };
    lowered.program.values.iter().filter(is_kept).map(|(id, _)| sharded(lowered, id)).collect()
}
