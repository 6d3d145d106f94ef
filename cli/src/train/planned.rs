//! `--mesh auto`: how cards are used is left to the planner.
//!
//! Input → output: what a step does, a model and cards → the mesh and the micro-batch of the fastest split that `plan --train` knows among
//! those that have everything else that was said. Invariant: the same input gives the same mesh, so every process finds it by itself,
//! and a run that is started again on other cards the one for these. Does not: try rows and columns, or cards that share a sequence in a
//! ring.

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::program::tree::BLOCK_LEVELS;
use ascend_tp::train::{Layout, Recipe, Recompute};
use ascend_tp_planner::train::decoder::Job;
use ascend_tp_planner::train::search::{PredictedSplit, Search, usable_bytes};
use ascend_tp_planner::train::setting::{JobSplit, RankOrder, Recomputation};

use super::mesh::{Axes, mesh};
use super::step::{On, StepOptions};
use crate::numbers::counted;
use crate::site::Site;

/// What `--mesh` says for it.
pub(super) const AUTO: &str = "auto";

/// Parts of a sum that has one order; what cuts it divides them.
const PARTS_OF_A_SUM: usize = 1 << BLOCK_LEVELS;

/// What the planner has chosen.
pub(super) struct Planned {
    pub(super) axes: Axes,
    pub(super) micro_batch: usize,
    /// What it predicts of a step.
    pub(super) step_us: f64,
}

impl StepOptions {
    /// Whether the planner is to say how cards are used.
    pub(super) fn is_planned(&self) -> bool {
        self.mesh.as_deref() == Some(AUTO)
    }

    /// The fastest way to use the cards; none if there is no model, of which others have told.
    ///
    /// # Errors
    /// Nothing is known of the cards' speed, or no split of them has what else was said.
    pub(super) fn planned(&self, recipe: &Recipe, on: On<'_>) -> Result<Option<Planned>, Diagnostics> {
        let Some(model) = on.model else { return Ok(None) };
        let problem = |what: &str| Diagnostic::new("--mesh auto", what).help("say the axes, such as --mesh dp=2,tp=4");
        let Some(Site { profile, topology }) = on.site.cloned() else {
            return Err(problem("nothing is known of the speed of these cards").into());
        };
        let recompute = match self.recompute {
            Recompute::None => Recomputation::None,
            Recompute::Selective => Recomputation::Selective,
            Recompute::Full => Recomputation::Full,
            Recompute::Layers(layers) => {
                let problem = problem("the planner computes all layers again, or none");
                let problem = problem.expected("--recompute none, selective or full");
                return Err(problem.found(counted(layers, "layer")).into());
            }
        };
        let job = Job::new(model, (recipe.seq, recipe.global_batch), on.cards, (profile, topology));
        let search = Search::new(&job)?;
        if let Some((setting, memory)) = search.smallest() {
            let gib = |bytes: f64| format!("{:.1} GiB a card", bytes / f64::from(1 << 30));
            let problem = Diagnostic::new("--mesh auto", "the job fits on no split of these cards");
            let problem = problem.expected(format!("at most {}", gib(usable_bytes(&job))));
            return Err(problem.found(format!("{} with {setting}", gib(memory.total()))).into());
        }
        let found = search.fastest(|split| self.is_asked_for(split, recompute, recipe, on.residual));
        let missing = || {
            let problem = problem("no split of these cards that fits has what else is said");
            let kept = recompute.name();
            let said = format!("--zero {}, --pipeline {}, --recompute {kept}", self.zero, recipe.pipeline);
            problem.expected(said).found(counted(on.cards, "card"))
        };
        found.as_ref().map(Planned::of).ok_or_else(|| missing().into()).map(Some)
    }

    /// What a step takes on these cards, to be held against what it takes on fewer: the less the better. Of a mesh that was said the more
    /// cards the better.
    ///
    /// # Errors
    /// As for [`StepOptions::planned`], or a mesh that is not of the cards.
    pub(super) fn price(&self, on: On<'_>) -> Result<f64, Diagnostics> {
        if !self.is_planned() {
            mesh(self.mesh.as_deref(), on.cards)?;
            return Ok((on.cards as f64).recip());
        }
        let mut problems = Diagnostics::new();
        let recipe = self.recipe(&mut problems);
        let planned = recipe.map(|recipe| self.planned(&recipe, on)).transpose()?.flatten();
        planned.map(|planned| planned.step_us).ok_or(problems)
    }

    /// Whether a split has everything that was said beside the mesh.
    fn is_asked_for(&self, split: &JobSplit, recompute: Recomputation, recipe: &Recipe, residual: Residual) -> bool {
        let JobSplit { tp, sequence_parallel, cp, pp, schedule, dp, zero, micro_batch, order, .. } = *split;
        // The planner has one value where there is nothing to choose.
        let is_zero = zero.number() == usize::from(self.zero) || dp * cp == 1;
        let is_residual = sequence_parallel == (residual == Residual::Seq) || tp == 1;
        let is_pipeline = schedule == recipe.pipeline || pp == 1;
        let is_exact = !recipe.exact || [tp, cp, dp].iter().all(|size| PARTS_OF_A_SUM.is_multiple_of(*size));
        let is_micro_batch = self.micro_batch.is_none_or(|asked| asked.get() == micro_batch);
        let is_order = order == RankOrder::DataInside;
        is_zero && is_residual && is_pipeline && is_exact && is_micro_batch && is_order && split.recompute == recompute
    }
}

/// A layout in the words that ask for it.
pub(super) fn words(layout: &Layout) -> String {
    let Layout { stages, data, context, tensor, micro_batch, .. } = *layout;
    let axes = [("pp", stages), ("dp", data), ("cp", context), ("tp", tensor)];
    let axes = axes.iter().filter(|(name, size)| *size > 1 || *name == "tp");
    let axes: Vec<String> = axes.map(|(name, size)| format!("{name}={size}")).collect();
    format!("--mesh {} --micro-batch {micro_batch}", axes.join(","))
}

impl Planned {
    fn of(found: &PredictedSplit) -> Self {
        let JobSplit { tp, cp, pp, dp, micro_batch, .. } = found.setting;
        let axes = Axes { stages: pp, data: dp, replicas: 1, context: cp, tensor: tp, grid: Grid::LINE };
        Self { axes, micro_batch, step_us: found.prediction.step_us }
    }
}
