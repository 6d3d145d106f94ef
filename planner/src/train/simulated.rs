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
use ascend_tp::schedule::{Plan, StepOrder, Target};
use ascend_tp::train::{Layout, Lowered, Recipe, StepProgram, lower};
use ascend_tp_machine::{Profile, Topology};

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
    let (target, cards) = (Target::of(site.profile.soc, site.kernels), layout.cards());
    let on: Vec<usize> = (0..cards).collect();
    let mut found = Vec::new();
    for program in lowered.runs(recipe, layout)? {
        let times = layout.programs(recipe).into_iter().filter(|part| *part == program.part).count();
        // This program runs only in a warm-up.
        if times == 0 {
            continue;
        }
        let is_alike = || program.programs.iter().all(|(_, staged)| has_equal_shards(staged.placed));
        let plans = if cards > MOST_CARDS || cards > FEW_CARDS && is_alike() {
            program.schedule_first(recipe, layout, target)?
        } else {
            program.schedule(StepOrder::Overlapped, recipe, layout, target)?
        };
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

/// Returns the time of a step in microseconds.
///
/// # Errors
/// As [`programs`].
pub fn step_us(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: &Layout,
    site: TrainingSite<'_>,
) -> Result<f64, Diagnostics> {
    let lowered = lower(config, recipe, layout)?;
    Ok(programs(&lowered, recipe, layout, site)?.iter().map(SimulatedProgram::step_us).sum())
}

/// Number of candidates to give to [`rank`].
pub const SHORTLIST: usize = 16;

/// Layers, passes and plans that [`rank`] compiles at most. A unit is about three milliseconds of a
/// release build.
const MOST_WORK: usize = 600;

/// Returns the layers of all passes and plans of a step.
fn work(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> usize {
    let passes = match layout.stages {
        1 => layout.programs(recipe).len().min(3),
        _ => layout.micro_batches(recipe),
    };
    let plans = if layout.cards() > FEW_CARDS { 1 } else { layout.cards() / layout.stages };
    config.layers * passes * plans
}

/// Returns how many of the jobs are together little work to compile.
fn little<'a>(config: &ModelConfig, jobs: impl Iterator<Item = &'a (Recipe, Layout)>) -> usize {
    let sums = jobs.scan(0, |sum, (recipe, layout)| {
        *sum += work(config, recipe, layout);
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
    little(config, jobs.iter()) >= count.min(jobs.len())
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
    let jobs: Vec<(&PredictedSplit, (Recipe, Layout))> =
        candidates.iter().filter_map(|candidate| Some((candidate, job(candidate)?))).collect();
    let little = little(config, jobs.iter().map(|(_, job)| job));
    if little < count.min(jobs.len()) {
        return None;
    }
    let simulated = jobs[..little].iter().filter_map(|(candidate, (recipe, layout))| {
        // The estimates do not know what the compiler refuses.
        let step_us = step_us(config, recipe, layout, site).ok()?;
        Some(PredictedSplit { prediction: candidate.prediction.with_step(step_us), ..**candidate })
    });
    let mut ranked: Vec<PredictedSplit> = simulated.collect();
    ranked.sort_by(|a, b| a.prediction.step_us.total_cmp(&b.prediction.step_us));
    ranked.truncate(count);
    (!ranked.is_empty()).then_some(ranked)
}
