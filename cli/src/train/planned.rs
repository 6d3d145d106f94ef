//! `--mesh auto`: the planner chooses the layout.
//!
//! - Output: the fastest layout known to `plan --train` that matches all other options and that
//!   `train` supports.
//! - Invariant: the same input gives the same layout, so every process computes it itself. A run
//!   restarted on other cards gets the layout for those cards.
//! - Not here: row and column grids, several replica groups and adapters. The planner assumes
//!   16-bit products and `AdamW`.

use ascend_tp::base::{Diagnostic, Diagnostics, Kernels};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Layout, Recipe, Recompute, check};
use ascend_tp_planner::decoder::Decoder;
use ascend_tp_planner::train::job::Job;
use ascend_tp_planner::train::search::{PredictedSplit, Search};
use ascend_tp_planner::train::setting::{JobSplit, RankOrder};
use ascend_tp_planner::train::simulated::{self, SHORTLIST, TrainingSite};

use super::mesh::{MeshAxes, mesh};
use super::step::{StepContext, StepOptions};
use crate::numbers::counted;
use crate::plan::fits_nowhere;
use crate::site::Site;

pub(super) const AUTO: &str = "auto";

impl StepOptions {
    pub(super) fn is_planned(&self) -> bool {
        self.mesh.as_deref() == Some(AUTO)
    }

    /// Returns the fastest layout of the cards, or None if the model is missing, which has been
    /// reported. The programs of the splits with the best estimates are simulated, if they are
    /// little work to compile.
    pub(super) fn planned(
        &self,
        recipe: &Recipe,
        on: StepContext<'_>,
    ) -> Result<Option<Layout>, Diagnostics> {
        let (Some(model), Some(Site { profile, topology })) = (on.model, on.site) else {
            return self.estimated(recipe, on, 1).map(|_| None);
        };
        let candidates = self.estimated(recipe, on, SHORTLIST)?;
        let layout = |split: &JobSplit| self.layout(axes(split), split.micro_batch, on);
        // Every process ranks the same programs.
        let site = TrainingSite { profile, topology, kernels: Kernels::NONE };
        let job = |split: &PredictedSplit| Some((recipe.clone(), layout(&split.setting)));
        let ranked = simulated::rank(model, &candidates, 1, site, job);
        let fastest = ranked.as_ref().unwrap_or(&candidates).first();
        Ok(fastest.map(|split| layout(&split.setting)))
    }

    /// Returns the splits that match all options, at most `count`, by the estimated times of their
    /// steps.
    ///
    /// # Errors
    /// No split matches, or the planner does not support the run.
    fn estimated(
        &self,
        recipe: &Recipe,
        on: StepContext<'_>,
        count: usize,
    ) -> Result<Vec<PredictedSplit>, Diagnostics> {
        let Some(model) = on.model else { return Ok(Vec::new()) };
        let problem =
            |what: &str| Diagnostic::new("--mesh auto", what).help("pass the axes, such as --mesh dp=2,tp=4");
        let Some(Site { profile, topology }) = on.site.cloned() else {
            return Err(problem("the speed of these cards is unknown").into());
        };
        if recipe.lora.is_some() {
            return Err(problem("the planner does not support adapters").found("--lora").into());
        }
        if let Recompute::Layers(layers) = self.recompute {
            let problem = problem("the planner recomputes all layers or none");
            let problem = problem.expected("--recompute none, selective or full");
            return Err(problem.found(counted(layers, "layer")).into());
        }
        Decoder::check(model)?;
        let job = Job::new(model, recipe.seq, recipe.global_batch, on.cards, profile, topology);
        let search = Search::new(&job)?;
        if let Some(problem) = fits_nowhere("--mesh auto", &job, &search) {
            return Err(problem.into());
        }
        let layout = |split: &JobSplit| self.layout(axes(split), split.micro_batch, on);
        let candidates = search.best_of(count, |split| {
            self.is_asked_for(split, recipe, on.residual) && check(model, recipe, &layout(split)).is_ok()
        });
        let missing = || {
            let problem = problem("no layout that fits these cards matches all options");
            problem.expected(self.said(recipe, on.residual)).found(counted(on.cards, "card"))
        };
        if candidates.is_empty() { Err(missing().into()) } else { Ok(candidates) }
    }

    /// Returns the price of a step on these cards, for comparison with other numbers of cards.
    /// Lower is better.
    ///
    /// For a given mesh, more cards have a lower price.
    pub(super) fn price(
        &self,
        on: StepContext<'_>,
        dtype: Option<TrainingPrecision>,
    ) -> Result<f64, Diagnostics> {
        let mut problems = Diagnostics::new();
        if !self.is_planned() {
            mesh(self.mesh.as_deref(), on.cards)?;
            // The ranks report the other problems of the options.
            if let (Some(model), Some((recipe, layout))) = (on.model, self.resolve(on, dtype, &mut problems))
            {
                check(model, &recipe, &layout)?;
            }
            return Ok((on.cards as f64).recip());
        }
        let recipe = self.recipe(dtype, &mut problems);
        // Estimates alone compare different numbers of cards.
        let estimated = recipe.map(|recipe| self.estimated(&recipe, on, 1)).transpose()?;
        let fastest = estimated.and_then(|splits| splits.into_iter().next());
        fastest.map(|fastest| fastest.prediction.step_us).ok_or(problems)
    }

    fn is_asked_for(&self, split: &JobSplit, recipe: &Recipe, residual: Residual) -> bool {
        let JobSplit { tp, sequence_parallel, cp, pp, schedule, dp, zero, micro_batch, order, .. } = *split;
        // If an axis has size 1, the planner uses a default value.
        let is_zero = zero.stage() == self.zero || dp * cp == 1;
        let is_residual = sequence_parallel == (residual == Residual::Seq) || tp == 1;
        let is_pipeline = schedule == recipe.pipeline || pp == 1;
        let is_micro_batch = self.micro_batch.is_none_or(|asked| asked.get() == micro_batch);
        let is_order = order == RankOrder::DataInside;
        is_zero
            && is_residual
            && is_pipeline
            && is_micro_batch
            && is_order
            && split.recompute == self.recompute
    }

    fn said(&self, recipe: &Recipe, residual: Residual) -> String {
        let (zero, pipeline, recompute, residual) =
            (self.zero, recipe.pipeline, self.recompute, residual.name());
        let mut said = format!(
            "--zero {zero}, --residual {residual}, --recompute {recompute} and --pipeline {pipeline}"
        );
        let more = [
            (self.ring, "--ring".to_owned()),
            (recipe.exact, "--exact".to_owned()),
            (recipe.compress.is_some(), "--compress".to_owned()),
            (
                self.micro_batch.is_some(),
                format!("--micro-batch {}", self.micro_batch.map_or(0, usize::from)),
            ),
        ];
        for (_, option) in more.into_iter().filter(|(is_said, _)| *is_said) {
            said += &format!(", {option}");
        }
        said
    }
}

fn axes(split: &JobSplit) -> MeshAxes {
    let JobSplit { tp, cp, pp, dp, ep, .. } = *split;
    MeshAxes { stages: pp, data: dp, expert: ep, replicas: 1, context: cp, tensor: tp, grid: Grid::LINE }
}

/// Formats a layout as command-line options.
pub(crate) fn mesh_words(layout: &Layout) -> String {
    let Layout { stages, data, expert, context, tensor, micro_batch, .. } = *layout;
    let axes = [("pp", stages), ("dp", data / expert), ("ep", expert), ("cp", context), ("tp", tensor)];
    let axes = axes.iter().filter(|(name, size)| *size > 1 || *name == "tp");
    let axes: Vec<String> = axes.map(|(name, size)| format!("{name}={size}")).collect();
    format!("--mesh {} --micro-batch {micro_batch}", axes.join(","))
}
