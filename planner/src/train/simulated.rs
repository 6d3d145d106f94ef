//! Simulated steps of the programs of `train`.
//!
//! Input: the lowered programs of a run. Output: the plans of each program, with simulated spans,
//! and the time of a step. `explain --train` shows such a step. `plan --train` and `--mesh auto`
//! rank the splits by it that are little work to compile ([`rank`]).
//!
//! The plan of the first card of each stage stands for all cards of the stage above
//! [`MOST_CARDS`] cards, and above 16 cards if all have equal shards.

use std::ops::Range;

use ascend_tp::base::{Diagnostics, Kernels};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp::placement::Placed;
use ascend_tp::program::Role;
use ascend_tp::schedule::{Plan, Ranks, StepOrder, Target};
use ascend_tp::train::{Layout, Lowered, Recipe, StepProgram, lower};
use ascend_tp_machine::{Profile, Topology};
use rayon::prelude::*;

use super::sample::LayerSample;
use super::search::PredictedSplit;
use crate::simulate::{SimulatedRun, Simulator};

/// Largest number of cards with a plan each.
pub const MOST_CARDS: usize = 256;

/// Largest number of cards with a plan each, if all have equal shards.
const FEW_CARDS: usize = 16;

/// Cards that train, and the kernels of the programs.
#[derive(Clone, Copy, Debug)]
pub struct TrainingSite<'a> {
    /// Speed of a card.
    pub profile: &'a Profile,
    /// Links between the cards.
    pub topology: &'a Topology,
    /// Kernels that replace aclnn calls.
    pub kernels: Kernels,
}

/// A program of a step, compiled and simulated.
#[derive(Debug)]
pub struct SimulatedProgram<'a> {
    /// The program.
    pub program: StepProgram<'a>,
    /// Number of launches in a step.
    pub times: usize,
    /// Plans of all ranks, or of the first rank of each stage.
    pub plans: Vec<Plan>,
    /// The simulated launch.
    pub run: SimulatedRun,
    /// Index of the slowest plan of each stage.
    pub slowest: Vec<usize>,
}

impl SimulatedProgram<'_> {
    /// Returns the time in all launches of a step, in microseconds.
    #[must_use]
    pub fn step_us(&self) -> f64 {
        let slowest = self.slowest.iter().map(|rank| self.run.ranks[*rank].duration_us);
        slowest.fold(0.0, f64::max) * self.times as f64
    }
}

/// Compiles and simulates all programs of a step.
///
/// # Errors
/// The compiler refuses the layout.
pub fn programs<'a>(
    lowered: &'a Lowered,
    recipe: &Recipe,
    layout: &Layout,
    site: TrainingSite<'_>,
) -> Result<Vec<SimulatedProgram<'a>>, Diagnostics> {
    let cards = layout.cards();
    let is_alike = || lowered.parts.iter().all(|(_, placed)| has_equal_shards(placed));
    let is_first = cards > MOST_CARDS || cards > FEW_CARDS && is_alike();
    programs_of(lowered, recipe, layout, site, if is_first { Ranks::First } else { Ranks::All })
}

fn programs_of<'a>(
    lowered: &'a Lowered,
    recipe: &Recipe,
    layout: &Layout,
    site: TrainingSite<'_>,
    ranks: Ranks,
) -> Result<Vec<SimulatedProgram<'a>>, Diagnostics> {
    let target = Target::of(site.profile.soc, site.kernels);
    let on: Vec<usize> = (0..layout.cards()).collect();
    let mut found = Vec::new();
    for program in lowered.runs(recipe, layout)? {
        let times = layout.programs(recipe).into_iter().filter(|part| *part == program.part).count();
        // This program runs only in a warm-up.
        if times == 0 {
            continue;
        }
        let plans = program.schedule_ranks(ranks, StepOrder::Overlapped, recipe, layout, target)?;
        let run = Simulator::new(site.profile, site.topology, &plans, &on, None).run(Launching::Eager);
        let duration_us = |rank: usize| run.ranks[rank].duration_us;
        let slowest = |ranks: Range<usize>| ranks.max_by(|a, b| duration_us(*a).total_cmp(&duration_us(*b)));
        let inner = plans.len() / layout.stages;
        let slowest =
            (0..layout.stages).filter_map(|stage| slowest(stage * inner..(stage + 1) * inner)).collect();
        found.push(SimulatedProgram { program, times, plans, run, slowest });
    }
    Ok(found)
}

/// Returns whether all ranks hold as much of each param and input.
fn has_equal_shards(placed: &Placed) -> bool {
    let Placed { program, layouts, mesh, .. } = placed;
    let mut given = program.with_role(Role::Param).chain(program.with_role(Role::Input));
    given.all(|id| {
        let on = |rank| layouts[id].local_shape(mesh, &program.values[id].shape, rank);
        (1..mesh.cards()).all(|rank| on(rank) == on(0))
    })
}

/// Returns the time of a step of the first ranks, in microseconds.
///
/// # Errors
/// As [`programs`].
pub(super) fn step_us_of(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: &Layout,
    site: TrainingSite<'_>,
    ranks: Ranks,
) -> Result<f64, Diagnostics> {
    let lowered = lower(config, recipe, layout)?;
    Ok(sum_us(&programs_of(&lowered, recipe, layout, site, ranks)?))
}

fn step_us(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: &Layout,
    site: TrainingSite<'_>,
) -> Result<f64, Diagnostics> {
    let lowered = lower(config, recipe, layout)?;
    Ok(sum_us(&programs(&lowered, recipe, layout, site)?))
}

fn sum_us(programs: &[SimulatedProgram<'_>]) -> f64 {
    programs.iter().map(SimulatedProgram::step_us).sum()
}

/// Number of candidates to give to [`rank`].
pub const SHORTLIST: usize = 16;

/// Layers, passes and plans that [`rank`] compiles at most. A unit is about three milliseconds of a
/// release build.
const MOST_WORK: usize = 600;

/// Returns how [`rank`] simulates candidates: in full if this is little work, otherwise from
/// samples.
fn samples<'a>(config: &'a ModelConfig, jobs: &[(Recipe, Layout)]) -> Vec<Option<LayerSample<'a>>> {
    let whole = jobs.iter().map(|(recipe, layout)| work(config, recipe, layout, None));
    let is_little = whole.sum::<usize>() <= MOST_WORK;
    let sample = |(_, layout): &(Recipe, Layout)| LayerSample::of(config, layout).filter(|_| !is_little);
    jobs.iter().map(sample).collect()
}

/// Returns the layers of all passes and plans of a step.
fn work(config: &ModelConfig, recipe: &Recipe, layout: &Layout, sample: Option<LayerSample<'_>>) -> usize {
    let passes = match layout.stages {
        1 => layout.programs(recipe).len().min(3),
        _ => layout.micro_batches(recipe),
    };
    let plans = if layout.cards() > FEW_CARDS { 1 } else { layout.cards() / layout.stages };
    passes * sample.map_or(config.layers * plans, |sample| sample.compiled_layers())
}

/// Returns how many of the jobs are together little work to compile.
fn little(config: &ModelConfig, jobs: &[(Recipe, Layout)]) -> usize {
    let samples = samples(config, jobs);
    let sums = jobs.iter().zip(samples).scan(0, |sum, ((recipe, layout), sample)| {
        *sum += work(config, recipe, layout, sample);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= MOST_WORK).count()
}

/// Returns whether [`rank`] can simulate `count` of these candidates.
pub fn is_little_work(
    config: &ModelConfig,
    candidates: &[PredictedSplit],
    count: usize,
    job: impl Fn(&PredictedSplit) -> Option<(Recipe, Layout)>,
) -> bool {
    let jobs: Vec<(Recipe, Layout)> = candidates.iter().filter_map(job).collect();
    little(config, &jobs) >= count.min(jobs.len())
}

/// Returns candidates by the simulated times of their steps, at most `count`, fastest first.
///
/// `job` returns the recipe and layout of `train` for a candidate, if there are any. Candidates are
/// simulated in the given order while that is little work. The result is `None` if `count`
/// candidates are too much work, or if the compiler refuses all: only estimates can rank them.
pub fn rank(
    config: &ModelConfig,
    candidates: &[PredictedSplit],
    count: usize,
    site: TrainingSite<'_>,
    job: impl Fn(&PredictedSplit) -> Option<(Recipe, Layout)>,
) -> Option<Vec<PredictedSplit>> {
    let with_job = |split: &PredictedSplit| Some((*split, job(split)?));
    let (splits, jobs): (Vec<PredictedSplit>, Vec<(Recipe, Layout)>) =
        candidates.iter().filter_map(with_job).unzip();
    let little = little(config, &jobs);
    if little < count.min(jobs.len()) {
        return None;
    }
    let samples = samples(config, &jobs);
    let simulated = |at: usize| {
        let (recipe, layout) = &jobs[at];
        let step_us = match samples[at] {
            Some(sample) => sample.step_us(recipe, layout, site),
            None => step_us(config, recipe, layout, site),
        };
        // The estimates do not know what the compiler refuses.
        let prediction = splits[at].prediction.with_step(step_us.ok()?);
        Some(PredictedSplit { prediction, ..splits[at] })
    };
    let mut ranked: Vec<PredictedSplit> = (0..little).into_par_iter().filter_map(simulated).collect();
    ranked.sort_by(|a, b| a.prediction.step_us.total_cmp(&b.prediction.step_us));
    ranked.truncate(count);
    (!ranked.is_empty()).then_some(ranked)
}
