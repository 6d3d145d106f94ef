//! Options that describe one training step and its layout on cards, for all commands about a step.

use std::num::NonZero;
use std::path::PathBuf;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::config::{Lora, ModelConfig};
use ascend_tp::placement::{ExpertShards, Grid, Residual};
use ascend_tp::program::compress::Compression;
use ascend_tp::program::tree::SumOrder;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compress, Layout, Optimizer, Recipe, Recompute, ScheduleKind, Zero};
use ascend_tp::weights::file;
use clap::{Args, ValueEnum};

use super::mesh::{MeshAxes, cards_of_mesh, mesh, serving_mesh};
use crate::site::Site;

/// Minimum number of micro-batches per pipeline stage by default, if there are enough sequences.
/// With four, a stage waits at most a fifth of a step.
const MICRO_BATCHES_A_STAGE: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct StepContext<'a> {
    pub(crate) cards: usize,
    pub(crate) residual: Residual,
    pub(crate) experts: ExpertShards,
    /// None: the configuration could not be read.
    pub(crate) model: Option<&'a ModelConfig>,
    /// None: the speed of the cards is unknown.
    pub(crate) site: Option<&'a Site>,
}

#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct StepOptions {
    /// Recipe in TOML or JSON; options on the command line override it
    #[arg(long, alias = "config", value_name = "FILE", help_heading = "Training")]
    pub(super) recipe: Option<PathBuf>,
    #[command(flatten)]
    over: Overrides,
    /// Mesh axes with their sizes, such as dp=2,tp=4 or pp=2,dp=2,cp=2,tp=2 (pipeline, data,
    /// context and tensor parallelism). In dp=*,tp=4, dp takes the remaining cards. dp=2,ep=4 has
    /// eight cards with sequences of their own, and each group of four shares the experts.
    /// tp_row=2,tp_col=4 shards each weight along both dims; tp_depth=2 distributes a micro-batch
    /// over two such grids. auto selects the mesh and micro-batch that plan --train predicts to be
    /// the fastest with the other options [default: tp over all cards]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "AXES", help_heading = "Parallelism")]
    pub(super) mesh: Option<String>,
    /// Shard over data-parallel cards: 0 nothing, 1 optimizer moments, 2 gradients too, 3 weights
    /// too
    #[arg(
        long,
        value_name = "STAGE",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=3),
        help_heading = "Parallelism"
    )]
    pub(super) zero: u8,
    /// With cp in the mesh, pass keys and values from card to card during attention (ring
    /// attention) instead of gathering them before it; plan --train shows when this is faster
    #[arg(long, help_heading = "Parallelism")]
    pub(super) ring: bool,
    /// Number of sequences per micro-batch and data-parallel rank [default: global batch / dp; with
    /// pipeline stages, a size that gives four micro-batches per stage]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub(super) micro_batch: Option<NonZero<usize>>,
    /// Activations to recompute in the backward pass: none, selective (all but matrix products and
    /// attention), full, or a number of layers
    #[arg(long, value_name = "WHAT", default_value = "none", help_heading = "Training")]
    pub(super) recompute: Recompute,
}

impl StepOptions {
    #[cfg(test)]
    pub(super) fn on_mesh(text: &str) -> Self {
        Self { mesh: Some(text.to_owned()), ..Self::default() }
    }

    /// Refuses options of a step for a command without `--train`.
    pub(crate) fn check_is_asked_for(&self, command: &str, train: bool) -> Result<(), Diagnostics> {
        if train || *self == Self::default() {
            return Ok(());
        }
        let problem = Diagnostic::new(command, "options of a training step are given without --train");
        Err(problem.help("add --train").into())
    }

    /// Returns the order of sums and the other options, for a command that takes `--exact` without
    /// `--train`.
    pub(crate) fn order_apart(&self) -> (SumOrder, Self) {
        let mut others = self.clone();
        let order =
            if std::mem::take(&mut others.over.exact) { SumOrder::Tree } else { SumOrder::AsTheyCome };
        (order, others)
    }

    /// Returns the product of the mesh axes, if no axis is free.
    pub(crate) fn cards(&self) -> Option<usize> {
        cards_of_mesh(self.mesh.as_deref())
    }

    /// Returns the stages and the grid of a command without `--train`. `axes` lists the prefixes of
    /// the axes that the command takes.
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

    /// Returns the recipe with the overrides of the command line, or None after adding to
    /// `problems`.
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

    /// Returns the recipe and the layout, or None after adding to `problems`. Also returns None
    /// without a model, which has been reported.
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
            return Some((recipe, planned));
        }
        let axes = mesh(self.mesh.as_deref(), on.cards).map_err(|problem| problems.push(problem)).ok();
        let (recipe, axes) = recipe.zip(axes)?;
        let (share, stages) = (recipe.global_batch.div_ceil(axes.data).max(1), axes.stages);
        // More micro-batches than stages make better use of a pipeline.
        let most = if stages > 1 { (share / (MICRO_BATCHES_A_STAGE * stages)).max(1) } else { share };
        // With a fixed order of sums, a micro-batch is a subtree.
        let most = if recipe.exact { 1 << most.ilog2() } else { most };
        let layout = self.layout(axes, self.micro_batch.map_or(most, NonZero::get), on);
        Some((recipe, layout))
    }

    /// Returns the layout with these axes and the other options.
    pub(super) fn layout(&self, axes: MeshAxes, micro_batch: usize, on: StepContext<'_>) -> Layout {
        let (residual, experts) = (on.residual, on.experts);
        let MeshAxes { stages, data, expert, replicas, context, tensor, grid } = axes;
        let zero = Zero::of_stage(self.zero).unwrap_or_default();
        let (ring, recompute) = (self.ring, self.recompute);
        Layout {
            data,
            expert,
            replicas,
            context,
            ring,
            tensor,
            grid,
            stages,
            residual,
            experts,
            zero,
            micro_batch,
            recompute,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Args)]
struct Overrides {
    /// Number of optimizer steps
    #[arg(long, value_name = "N", help_heading = "Training")]
    steps: Option<usize>,
    /// Number of sequences per step
    #[arg(long, value_name = "N", help_heading = "Training")]
    global_batch: Option<usize>,
    /// Number of tokens per sequence
    #[arg(long, value_name = "N", help_heading = "Training")]
    seq: Option<usize>,
    /// Compute every sum in a fixed order: results have the same bits with any mesh, sharding,
    /// micro-batch and recomputation
    #[arg(long, help_heading = "Training")]
    exact: bool,
    /// Optimizer: adamw or sgd
    #[arg(long, value_enum, help_heading = "Optimizer")]
    optimizer: Option<OptimizerName>,
    /// Peak learning rate
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    lr: Option<f64>,
    /// Learning rate schedule after the warm-up: constant, linear, cosine or wsd
    #[arg(long, value_name = "NAME", help_heading = "Optimizer")]
    schedule: Option<ScheduleKind>,
    /// Number of warm-up steps of the learning rate
    #[arg(long, value_name = "N", help_heading = "Optimizer")]
    warmup_steps: Option<usize>,
    /// Minimum learning rate at the end of the schedule
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    min_lr: Option<f64>,
    /// Weight decay of matrices: decoupled for adamw [default: 0.1], added to the gradient for sgd
    /// [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Optimizer")]
    weight_decay: Option<f64>,
    /// Decay rates of the moments of adamw
    #[arg(long, value_name = "B1,B2", value_delimiter = ',', num_args = 1..=2, help_heading = "Optimizer")]
    betas: Option<Vec<f64>>,
    /// Epsilon of adamw, added outside the square root
    #[arg(long, value_name = "EPS", help_heading = "Optimizer")]
    eps: Option<f64>,
    /// Momentum of sgd
    #[arg(long, value_name = "SHARE", help_heading = "Optimizer")]
    momentum: Option<f64>,
    /// Maximum norm of all gradients; 0 disables clipping
    #[arg(long, value_name = "NORM", help_heading = "Optimizer")]
    clip_norm: Option<f64>,
    /// Coefficient of the load-balancing loss of a mixture of experts, as in Mixtral and Qwen: mean
    /// over all layers and the tokens of a micro-batch on all cards [default: 0]
    #[arg(long, value_name = "COEFFICIENT", help_heading = "Optimizer")]
    aux_loss: Option<f64>,
    /// Coefficient of the router z-loss, the mean square of the logarithm of the sum of
    /// exponentials of the logits [default: 0]
    #[arg(long, value_name = "COEFFICIENT", help_heading = "Optimizer")]
    z_loss: Option<f64>,
    /// Change per step of the bias that DeepSeek-V3 and similar routers add for the choice of
    /// experts: up for experts with fewer tokens than the mean, down for others [default: 0]
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    router_bias_rate: Option<f64>,
    /// Pipeline schedule: gpipe, 1f1b, interleaved=CHUNKS, zb-h1 or zb-v
    #[arg(long, value_name = "ORDER", help_heading = "Parallelism", display_order = 800)]
    pipeline: Option<Pipeline>,
    /// Train only low-rank adapters of linear layers: `rank=8,alpha=16,targets=q_proj+v_proj`, or
    /// `targets=all-linear`
    #[arg(long, value_name = "WHAT", help_heading = "Model", display_order = 803)]
    lora: Option<Lora>,
    /// Compress the gradients of matrices in data parallelism: onebit (signs and their mean
    /// magnitude) or topk=SHARE (the largest values). The error is carried to the next step
    #[arg(long, value_name = "HOW", help_heading = "Parallelism", display_order = 801)]
    compress: Option<Compression>,
    /// Number of steps before gradients are compressed [default: 60 % of the steps]
    #[arg(long, value_name = "N", help_heading = "Parallelism", display_order = 802)]
    compress_after: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OptimizerName {
    Adamw,
    Sgd,
}

impl Overrides {
    fn over(&self, mut recipe: Recipe, problems: &mut Diagnostics) -> Recipe {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            *to = from.unwrap_or(*to);
        }
        set(&mut recipe.steps, self.steps);
        set(&mut recipe.global_batch, self.global_batch);
        set(&mut recipe.seq, self.seq);
        set(&mut recipe.clip_norm, self.clip_norm);
        set(&mut recipe.aux_loss, self.aux_loss);
        set(&mut recipe.z_loss, self.z_loss);
        set(&mut recipe.router_bias_rate, self.router_bias_rate);
        match (self.optimizer, recipe.optimizer) {
            (Some(OptimizerName::Adamw), Optimizer::Sgd { .. }) => recipe.optimizer = Optimizer::default(),
            (Some(OptimizerName::Sgd), Optimizer::Adamw { .. }) => {
                recipe.optimizer = Optimizer::Sgd { momentum: 0.0, weight_decay: 0.0 };
            }
            _ => {}
        }
        let mut misplaced = |option: &str, is_given: bool, of: &str| {
            if is_given {
                let problem = Diagnostic::new(option, "is not an option of the optimizer");
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
        // A learning rate given without `--min-lr` also limits the minimum rate.
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
                let problem = Diagnostic::new("--compress-after", "gradients are not compressed");
                problems.push(problem.expected("--compress onebit or topk=SHARE"));
            }
            (None, _) => {}
        }
    }
}
