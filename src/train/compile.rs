//! From a recipe and a layout to the plans of a run.
//!
//! Input → output: a model's configuration, a [`Recipe`] and a [`Layout`] → the programs of a step, placed on their mesh
//! ([`lower`]) and scheduled ([`compile`]). Invariants: all programs of a run have the same weights and states; what cannot be is
//! said here, before a card is asked for anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::base::{Diagnostic, Diagnostics};
use crate::collective::{parallelize, parallelize_apart};
use crate::config::ModelConfig;
use crate::placement::{Mesh, Placed, Residual};
use crate::program::models::trained;
use crate::program::{Role, Value, ValueId};
use crate::schedule::{Place, Plan, Staged, StagedStep, schedule, schedule_stages};

use super::checkpoint::{ShardedTensor, Sharding};
use super::exact;
use super::init::{Init, inits};
use super::layouts::{DATA, REPLICAS, SHARDS, Zero, is_of_one_step, pins};
use super::program::{Marked, Order, Part, Parts, Recompute, is_copy};
use super::recipe::Recipe;
use super::stages::{Cut, PIPELINE, cut};

/// How a run lies on cards. It changes no number but by the order of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Cards over which sequences are dealt.
    pub data: usize,
    /// Into so many groups the data-parallel cards are cut, and [`Layout::zero`] cuts within a group alone (hybrid sharding); 1: all
    /// of them are one group.
    pub replicas: usize,
    /// Cards over which each weight is cut.
    pub tensor: usize,
    /// Stages of a pipeline, each of which has some of the layers on cards of its own.
    pub stages: usize,
    /// The residual stream.
    pub residual: Residual,
    /// What else is cut over the data-parallel cards.
    pub zero: Zero,
    /// Sequences that a data-parallel card passes at once.
    pub micro_batch: usize,
    /// What is computed again rather than kept.
    pub recompute: Recompute,
}

impl Layout {
    /// One card that passes one sequence at once.
    pub const ONE: Self = Self {
        data: 1,
        replicas: 1,
        tensor: 1,
        stages: 1,
        residual: Residual::Replicate,
        zero: Zero::None,
        micro_batch: 1,
        recompute: Recompute::None,
    };

    /// Cards in all.
    #[must_use]
    pub const fn cards(&self) -> usize {
        self.stages * self.data * self.tensor
    }

    /// Sequences of a micro-batch, over all cards.
    #[must_use]
    pub const fn batch(&self) -> usize {
        self.data * self.micro_batch
    }

    /// Micro-batches of a step; the last may lack sequences.
    #[must_use]
    pub const fn micro_batches(&self, recipe: &Recipe) -> usize {
        recipe.global_batch.div_ceil(self.batch())
    }

    /// The mesh of all cards: stages outermost, then data parallel.
    ///
    /// # Errors
    /// No cards.
    pub fn mesh(&self, config: &ModelConfig) -> Result<Mesh, Diagnostics> {
        let mesh = self.stage_mesh(config)?;
        if self.stages == 1 {
            return Ok(mesh);
        }
        let mesh = mesh.under(&[(PIPELINE, self.stages)]);
        Ok(mesh.map_err(|error| Diagnostic::new("mesh", error.to_string()))?)
    }

    /// The mesh of the cards of a stage.
    fn stage_mesh(&self, config: &ModelConfig) -> Result<Mesh, Diagnostics> {
        let problem = |error: &dyn fmt::Display| Diagnostic::new("mesh", error.to_string());
        let tensor = Mesh::tensor_parallel(self.tensor, config.kv_heads, config.heads_per_kv_head());
        let mesh = tensor.map_err(|error| problem(&error))?.under(&[(DATA, self.data)]);
        let mesh = match self.replicas {
            0 | 1 => mesh,
            replicas => {
                mesh.and_then(|mesh| mesh.cut_axis(DATA, &[(REPLICAS, replicas), (SHARDS, self.data / replicas)]))
            }
        };
        Ok(mesh.map_err(|error| problem(&error))?)
    }
}

/// The programs of a run, compiled.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The parts of a step, each once, with the plans of all ranks.
    pub plans: Vec<(Part, Vec<Plan>)>,
    /// Where weights and what the optimizer keeps lie.
    pub sharding: Sharding,
    /// What each weight begins as where there is no checkpoint.
    pub inits: BTreeMap<String, Init>,
}

/// The programs of a run before they are scheduled.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The parts of a step, each once, with their collectives.
    pub parts: Vec<(Part, Placed)>,
    /// What each weight begins as where there is no checkpoint.
    pub inits: BTreeMap<String, Init>,
    /// With several stages, for each of the parts: where each of its ops runs.
    pub places: Vec<Vec<Option<Place>>>,
    /// With several stages: by weight and state, the part of the model that has it.
    pub homes: BTreeMap<String, usize>,
}

/// Writes the programs of a run and places them on their mesh.
///
/// # Errors
/// A recipe or a layout that cannot be, or programs that cannot be placed on the mesh.
pub fn lower(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<Lowered, Diagnostics> {
    recipe.check()?;
    let mut problems = Diagnostics::new();
    let Layout { data, replicas, tensor, micro_batch, .. } = *layout;
    let counts = [
        ("data", data),
        ("replicas", replicas),
        ("tensor", tensor),
        ("stages", layout.stages),
        ("micro_batch", micro_batch),
    ];
    for (what, _) in counts.into_iter().filter(|(_, count)| *count == 0) {
        problems.push(Diagnostic::new(format!("layout: {what}"), "cannot be").expected("a number above 0").found(0));
    }
    if replicas > 0 && !data.is_multiple_of(replicas) {
        let problem = Diagnostic::new("layout: replicas", "do not divide the data-parallel cards");
        problems.push(problem.expected(format!("a divisor of {data}")).found(replicas));
    }
    problems.into_result(())?;
    check_stages(config, recipe, layout)?;
    if recipe.exact {
        exact::check_layout(layout)?;
    }
    let mesh = layout.stage_mesh(config)?;
    let mut parts = Parts {
        config,
        batch: layout.batch(),
        sequence: recipe.seq,
        products: recipe.precision.dtype(),
        optimizer: recipe.optimizer,
        clip_norm: recipe.clip_norm,
        lora: recipe.lora.as_ref(),
        count: layout.micro_batches(recipe),
        recompute: layout.recompute,
        // Else the gradients of each micro-batch are exchanged, those of norms over `tp`.
        adds_early: layout.zero < Zero::Gradients
            && (tensor == 1 || layout.residual == Residual::Replicate)
            && (data == 1 || recipe.order() == Order::AsTheyCome),
        cut: Cut::whole(config.layers),
        order: recipe.order(),
    };
    let lie = (layout.residual, layout.zero);
    if layout.stages > 1 {
        // Each layer by itself, to be timed.
        parts.cut = Cut { parts: config.layers + 2, of_layer: (1..=config.layers).collect() };
        let Marked { program, marks } = parts.marked_loss()?;
        let pins = pins(&program, &mesh, lie, (parts.order, parts.levels()))?.among(&program);
        let placed = parallelize(&program, &mesh, &pins)?.lowered;
        parts.cut = cut(&placed, &marks, config.layers, layout.stages * recipe.pipeline.chunks());
    }
    let loss = parts.loss()?;
    let pins = pins(&loss, &mesh, lie, (parts.order, parts.levels()))?;
    let mut lowered = Lowered { parts: Vec::new(), inits: inits(&loss), places: Vec::new(), homes: BTreeMap::new() };
    for part in Part::of_step(parts.count, parts.is_scaled(), parts.order) {
        if lowered.parts.iter().any(|(known, _)| *known == part) {
            continue;
        }
        let Marked { program, marks } = parts.marked(part)?;
        let own_pins = pins.clone().among(&program);
        if layout.stages == 1 {
            let placed = parallelize(&program, &mesh, &own_pins)?.lowered;
            check_order(recipe, &placed)?;
            lowered.parts.push((part, placed));
            continue;
        }
        // What runs at other times or on other stages shares no collective.
        let placed = parallelize_apart(&program, &mesh, &own_pins, |program| marks.apart(program))?.lowered;
        check_order(recipe, &placed)?;
        lowered.places.push(marks.places(&placed.program));
        lowered.homes.extend(marks.homes(&program));
        lowered.parts.push((part, placed));
    }
    Ok(lowered)
}

/// That sums have one order, if they are to.
fn check_order(recipe: &Recipe, placed: &Placed) -> Result<(), Diagnostics> {
    if recipe.exact { exact::check(placed) } else { Ok(()) }
}

/// What cannot be a pipeline.
fn check_stages(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let Layout { stages, .. } = *layout;
    let (parts, count) = (stages * recipe.pipeline.chunks(), layout.micro_batches(recipe));
    if stages == 1 {
        return Ok(());
    }
    if parts > config.layers {
        let problem = Diagnostic::new("pipeline: stages", "need a layer each, or one for each of their parts");
        let found = format!("{parts} of {stages} stages");
        problems.push(problem.expected(format!("at most {} parts, as many as layers", config.layers)).found(found));
    }
    if count < stages {
        let problem =
            Diagnostic::new("pipeline: micro-batches", "are fewer than the stages, so that some would always wait");
        let help = "a larger global batch, a smaller --micro-batch or fewer stages";
        problems.push(problem.expected(format!("{stages} or more")).found(count).help(help));
    } else if !recipe.pipeline.divides(stages, count) {
        let problem =
            Diagnostic::new("pipeline: micro-batches", "go through interleaved parts in rounds of as many as stages");
        problems.push(problem.expected(format!("a multiple of {stages}")).found(count));
    }
    problems.into_result(())
}

/// Compiles the programs of a run.
///
/// # Errors
/// As [`lower`].
pub fn compile(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<Compiled, Diagnostics> {
    let lowered = lower(config, recipe, layout)?;
    // All parts have the same weights and states.
    let first = &lowered.parts[0].1;
    if layout.stages > 1 {
        let plans = stage_plans(recipe, layout, &lowered)?;
        let mesh = layout.mesh(config)?;
        let wanted = kept(first).into_iter().map(|tensor| (tensor.name, tensor.layout)).collect();
        let sharding = Sharding::new(mesh, ShardedTensor::planned(&plans[0].1, wanted)?)?;
        return Ok(Compiled { plans, sharding, inits: lowered.inits });
    }
    let sharding = Sharding::new(first.mesh.clone(), kept(first))?;
    let plans = lowered.parts.iter().map(|(part, lowered)| Ok((*part, schedule(lowered)?)));
    Ok(Compiled { plans: plans.collect::<Result<_, Diagnostics>>()?, sharding, inits: lowered.inits })
}

/// The plans of a pipeline: all micro-batches as one program, and what stands behind it.
fn stage_plans(recipe: &Recipe, layout: &Layout, lowered: &Lowered) -> Result<Vec<(Part, Vec<Plan>)>, Diagnostics> {
    let count = layout.micro_batches(recipe);
    let mut plans = Vec::new();
    for (part, steps) in [(Part::Only, Part::of_step(count, false, recipe.order())), (Part::Update, vec![Part::Update])]
    {
        let staged: Vec<_> =
            lowered.parts.iter().zip(&lowered.places).filter(|((known, _), _)| steps.contains(known)).collect();
        let number = |step: &Part| staged.iter().position(|((known, _), _)| known == step);
        let micro_batches: Vec<usize> = steps.iter().filter_map(number).collect();
        let programs: Vec<Staged<'_>> = staged.iter().map(|((_, placed), places)| Staged { placed, places }).collect();
        if !programs.is_empty() {
            let name = format!("train {part:?} of {count} in {} stages", layout.stages);
            let step = StagedStep {
                name: &name,
                pipeline: recipe.pipeline,
                stages: layout.stages,
                programs: &programs,
                homes: &lowered.homes,
                micro_batches: &micro_batches,
            };
            plans.push((part, schedule_stages(&step)?));
        }
    }
    Ok(plans)
}

/// Trained weights and states of a program, but for what only one step needs and for copies.
fn kept(lowered: &Placed) -> Vec<ShardedTensor> {
    let trained: BTreeSet<ValueId> = trained(&lowered.program).into_iter().collect();
    let is_kept = |(id, value): &(ValueId, &Value)| match value.role {
        Role::Param => trained.contains(id) && !is_copy(&value.name),
        Role::State => !is_of_one_step(&value.name),
        Role::Input | Role::Result => false,
    };
    let tensor = |(id, value): (ValueId, &Value)| ShardedTensor {
        source: value.source.clone(),
        ..ShardedTensor::placed(&value.name, &value.shape, value.dtype, &lowered.mesh, &lowered.layouts[id])
    };
    lowered.program.values.iter().filter(is_kept).map(tensor).collect()
}
