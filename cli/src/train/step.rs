//! What a step of training does, and how it lies on cards: the options of every command that is
//! about one.

use std::num::NonZero;
use std::path::PathBuf;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::config::{Lora, ModelConfig};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::program::compress::Compression;
use ascend_tp::program::tree::SumOrder;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compress, Layout, Optimizer, Recipe, Recompute, ScheduleKind, Zero};
use ascend_tp::weights::file;
use clap::{Args, ValueEnum};

use super::mesh::{MeshAxes, cards_of_mesh, mesh, serving_mesh};
use crate::site::Site;

/// Micro-batches for each stage of a pipeline at least, if there are as many sequences, where
/// nobody says how many: a stage then waits for a fifth of a step at most.
const MICRO_BATCHES_A_STAGE: usize = 4;

/// What a step is taken on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepContext<'a> {
    pub(crate) cards: usize,
    pub(crate) residual: Residual,
    /// None: it could not be read.
    pub(crate) model: Option<&'a ModelConfig>,
    /// None: nothing is known of their speed.
    pub(crate) site: Option<&'a Site>,
}

/// What a step does, and how it lies on cards.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct StepOptions {
    /// File with the recipe, in TOML or JSON; options below take precedence over it
    #[arg(long, alias = "config", value_name = "FILE")]
    pub(super) recipe: Option<PathBuf>,
    #[command(flatten)]
    over: Overrides,
    /// How the cards are used, such as dp=2,tp=4 or, with stages of a pipeline and tokens of a
    /// sequence on several cards, pp=2,dp=2,cp=2,tp=2; of dp=*,tp=4 the first is what the number of
    /// cards leaves; auto is what plan --train finds fastest of everything else that is said, on
    /// cards as the chip is sold, and its micro-batch; tp_row=2,tp_col=4 cuts each weight along
    /// both of its dims, and tp_depth=2 deals a micro-batch over two such grids [default: all for
    /// tp]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "AXES")]
    pub(super) mesh: Option<String>,
    /// What is cut over data-parallel cards: 0 nothing, 1 moments, 2 gradients too, 3 weights too
    #[arg(long, value_name = "STAGE", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(super) zero: u8,
    /// With cp in the mesh: keys and values go from card to card while attention computes with
    /// those that are there, rather than being gathered before it and kept; plan --train says when
    /// that pays
    #[arg(long)]
    pub(super) ring: bool,
    /// Sequences that a data-parallel card passes at once [default: all of its share; with stages,
    /// so many that there are four micro-batches a stage]
    #[arg(long, value_name = "N")]
    pub(super) micro_batch: Option<NonZero<usize>>,
    /// What is computed again for gradients rather than kept: none, selective (all but products and
    /// attention), full, or the number of layers
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub(super) recompute: Recompute,
}

impl StepOptions {
    /// Nothing but a mesh is said.
    #[cfg(test)]
    pub(super) fn on_mesh(text: &str) -> Self {
        Self { mesh: Some(text.to_owned()), ..Self::default() }
    }

    /// For commands that are about a step of training with `--train` alone.
    ///
    /// # Errors
    /// Options of a step without it.
    pub(crate) fn check_is_asked_for(&self, command: &str, train: bool) -> Result<(), Diagnostics> {
        if train || *self == Self::default() {
            return Ok(());
        }
        let problem = Diagnostic::new(command, "recipe, mesh and the like are of a step of training");
        Err(problem.help("add --train").into())
    }

    /// The order of sums, and what else is asked for: of a command without `--train` that takes the
    /// order alone.
    pub(crate) fn order_apart(&self) -> (SumOrder, Self) {
        let mut others = self.clone();
        let order =
            if std::mem::take(&mut others.over.exact) { SumOrder::Tree } else { SumOrder::AsTheyCome };
        (order, others)
    }

    /// As many cards as the mesh says, if it leaves none open.
    pub(crate) fn cards(&self) -> Option<usize> {
        cards_of_mesh(self.mesh.as_deref())
    }

    /// How the cards divide that a command without `--train` is about: stages, and the cards of
    /// each. `axes`: how the names of those that the command takes begin.
    ///
    /// # Errors
    /// Options of a step, axes that only a step has, and a mesh that is not of the cards.
    pub(crate) fn serving(
        &self,
        command: &str,
        cards: usize,
        axes: &[&str],
    ) -> Result<(usize, Grid), Diagnostics> {
        let is_taken = |axis: &str| axes.iter().any(|begin| axis.starts_with(begin));
        let is_of_step = |mesh: &&String| mesh.split(',').any(|axis| !is_taken(axis));
        Self { mesh: self.mesh.clone().filter(|mesh| is_of_step(&mesh)), ..self.clone() }
            .check_is_asked_for(command, false)?;
        Ok(serving_mesh(self.mesh.as_deref(), cards)?)
    }

    /// The recipe with what is said on the command line; `None` if `problems` has got why not.
    pub(super) fn recipe(
        &self,
        dtype: Option<TrainingPrecision>,
        problems: &mut Diagnostics,
    ) -> Option<Recipe> {
        let read = |path: &PathBuf| {
            let text = file::read_text(path).map_err(|error| {
                Diagnostic::new(path.display().to_string(), "cannot be read").found(error)
            })?;
            Recipe::parse(&text)
        };
        let recipe = self.recipe.as_ref().map_or_else(|| Ok(Recipe::default()), read);
        let recipe = recipe.map_err(|found| problems.append(found)).ok();
        let mut recipe = recipe.map(|recipe| self.over.over(recipe, problems))?;
        recipe.precision = dtype.unwrap_or(recipe.precision);
        Some(recipe)
    }

    /// The recipe, and the layout; `None` if `problems` has got why not, or if a model is missing
    /// that others have told of.
    pub(crate) fn resolve(
        &self,
        on: StepContext<'_>,
        dtype: Option<TrainingPrecision>,
        problems: &mut Diagnostics,
    ) -> Option<(Recipe, Layout)> {
        let recipe = self.recipe(dtype, problems);
        if self.is_planned() {
            let recipe = recipe?;
            let planned = self.planned(&recipe, on).map_err(|found| problems.append(found)).ok().flatten()?;
            return Some((recipe, planned.layout));
        }
        let axes = mesh(self.mesh.as_deref(), on.cards).map_err(|problem| problems.push(problem)).ok();
        let (recipe, axes) = recipe.zip(axes)?;
        let (share, stages) = (recipe.global_batch.div_ceil(axes.data).max(1), axes.stages);
        // A pipeline is full with as many micro-batches as stages, and better used with more.
        let most = if stages > 1 { (share / (MICRO_BATCHES_A_STAGE * stages)).max(1) } else { share };
        // In one order of sums a micro-batch is a subtree.
        let most = if recipe.exact { 1 << most.ilog2() } else { most };
        let layout = self.layout(axes, self.micro_batch.map_or(most, NonZero::get), on.residual);
        Some((recipe, layout))
    }

    /// Cards that are used so, with what else is said.
    pub(super) fn layout(&self, axes: MeshAxes, micro_batch: usize, residual: Residual) -> Layout {
        let MeshAxes { stages, data, replicas, context, tensor, grid } = axes;
        let zero = Zero::of_stage(self.zero).unwrap_or_default();
        let (ring, recompute) = (self.ring, self.recompute);
        Layout { data, replicas, context, ring, tensor, grid, stages, residual, zero, micro_batch, recompute }
    }
}

/// Keys of the recipe as options.
#[derive(Clone, Debug, Default, PartialEq, Args)]
struct Overrides {
    /// Steps of the optimizer
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Sequences of a step
    #[arg(long, value_name = "N")]
    global_batch: Option<usize>,
    /// Tokens of a sequence
    #[arg(long, value_name = "N")]
    seq: Option<usize>,
    /// The largest norm of all gradients; 0: none
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f64>,
    /// adamw or sgd
    #[arg(long, value_enum)]
    optimizer: Option<OptimizerName>,
    /// Shares of the old moments of adamw
    #[arg(long, value_name = "B1,B2", value_delimiter = ',', num_args = 1..=2)]
    betas: Option<Vec<f64>>,
    /// Added outside the root by adamw
    #[arg(long, value_name = "EPS")]
    eps: Option<f64>,
    /// Weight decay of matrices: decoupled in adamw [default: 0.1], added to the gradient in sgd
    /// [default: 0]
    #[arg(long, value_name = "SHARE")]
    weight_decay: Option<f64>,
    /// Share of the old update of sgd
    #[arg(long, value_name = "SHARE")]
    momentum: Option<f64>,
    /// How the rate goes on after the warm-up: constant, linear, cosine or wsd
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleKind>,
    /// The largest rate
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// The rate of the end
    #[arg(long, value_name = "RATE")]
    min_lr: Option<f64>,
    /// Steps until the largest rate
    #[arg(long, value_name = "N")]
    warmup_steps: Option<usize>,
    /// The order in which stages take micro-batches: gpipe, 1f1b, interleaved=CHUNKS, zb-h1 or zb-v
    #[arg(long, value_name = "ORDER")]
    pipeline: Option<Pipeline>,
    /// Train low-rank adapters beside linear layers and nothing else:
    /// `rank=8,alpha=16,targets=q_proj+v_proj`, or `targets=all-linear`
    #[arg(long, value_name = "WHAT")]
    lora: Option<Lora>,
    /// How data-parallel cards sum the gradients of matrices with fewer bytes: onebit (signs and
    /// their mean magnitude) or topk=SHARE (the greatest); what a card does not say it keeps back
    /// for the next step
    #[arg(long, value_name = "HOW")]
    compress: Option<Compression>,
    /// Steps before gradients are compressed [default: three fifths of all]
    #[arg(long, value_name = "N")]
    compress_after: Option<usize>,
    /// Add every sum in one order: the same bits on every mesh, however states are cut, sequences
    /// dealt and activations computed again, and after every change of these
    #[arg(long)]
    exact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OptimizerName {
    Adamw,
    Sgd,
}

impl Overrides {
    /// The recipe with what was said on the command line.
    fn over(&self, mut recipe: Recipe, problems: &mut Diagnostics) -> Recipe {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            *to = from.unwrap_or(*to);
        }
        set(&mut recipe.steps, self.steps);
        set(&mut recipe.global_batch, self.global_batch);
        set(&mut recipe.seq, self.seq);
        set(&mut recipe.clip_norm, self.clip_norm);
        match (self.optimizer, recipe.optimizer) {
            (Some(OptimizerName::Adamw), Optimizer::Sgd { .. }) => recipe.optimizer = Optimizer::default(),
            (Some(OptimizerName::Sgd), Optimizer::Adamw { .. }) => {
                recipe.optimizer = Optimizer::Sgd { momentum: 0.0, weight_decay: 0.0 };
            }
            _ => {}
        }
        let mut misplaced = |option: &str, is_given: bool, of: &str| {
            if is_given {
                let problem = Diagnostic::new(option, "is no option of the optimizer");
                problems.push(problem.expected(format!("--optimizer {of}")));
            }
        };
        match &mut recipe.optimizer {
            Optimizer::Adamw { betas, eps, weight_decay } => {
                for (beta, given) in betas.iter_mut().zip(self.betas.iter().flatten()) {
                    *beta = *given;
                }
                set(eps, self.eps);
                set(weight_decay, self.weight_decay);
                misplaced("--momentum", self.momentum.is_some(), "sgd");
            }
            Optimizer::Sgd { momentum, weight_decay } => {
                set(momentum, self.momentum);
                set(weight_decay, self.weight_decay);
                misplaced("--betas", self.betas.is_some(), "adamw");
                misplaced("--eps", self.eps.is_some(), "adamw");
            }
        }
        set(&mut recipe.schedule.name, self.schedule);
        set(&mut recipe.schedule.lr, self.lr);
        // A rate that is said alone on the command line is not below the one of the end.
        let least = self.lr.map(|lr| recipe.schedule.min_lr.min(lr));
        set(&mut recipe.schedule.min_lr, self.min_lr.or(least));
        set(&mut recipe.schedule.warmup_steps, self.warmup_steps);
        set(&mut recipe.pipeline, self.pipeline);
        recipe.lora = self.lora.clone().or(recipe.lora);
        recipe.exact |= self.exact;
        self.compress(&mut recipe, problems);
        recipe
    }

    fn compress(&self, recipe: &mut Recipe, problems: &mut Diagnostics) {
        if let Some(by) = self.compress {
            let warmup_steps = recipe.compress.and_then(|compress| compress.warmup_steps);
            recipe.compress = Some(Compress { by, warmup_steps });
        }
        match (self.compress_after, &mut recipe.compress) {
            (Some(steps), Some(compress)) => compress.warmup_steps = Some(steps),
            (Some(_), None) => {
                let problem = Diagnostic::new("--compress-after", "nothing is compressed");
                problems.push(problem.expected("--compress onebit or topk=SHARE"));
            }
            (None, _) => {}
        }
    }
}
