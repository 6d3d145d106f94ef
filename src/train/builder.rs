//! Builder that starts training of a decoder, from a checkpoint or from random weights.

use std::sync::Arc;

use super::checkpoint::Checkpoint;
use super::compile::{Compiled, Layout, compile};
use super::error::Error;
use super::init;
use super::recipe::Recipe;
use super::trainer::{Progress, Trainer};
use crate::config::ModelConfig;
use crate::device::Cann;
use crate::exec::{EngineOptions, Shards, target_of};
use crate::generate::Model;
use crate::weights;

#[derive(Clone, Copy, Debug)]
enum InitialWeights<'a> {
    Checkpoint(&'a weights::Checkpoint),
    Seed(u64),
}

/// Settings of a new [`Trainer`]. The defaults are [`Recipe::default`] and [`Layout::ONE`].
#[must_use = "nothing is done before `start`"]
#[derive(Debug)]
pub struct TrainerBuilder<'a> {
    cann: &'a Arc<Cann>,
    config: &'a ModelConfig,
    weights: InitialWeights<'a>,
    recipe: Recipe,
    layout: Layout,
    engine: EngineOptions,
    compiled: Option<Compiled>,
    resumed: Option<(&'a Checkpoint, Progress)>,
}

impl Trainer {
    /// Trains a model from its own checkpoint.
    pub fn of_model<'a>(cann: &'a Arc<Cann>, model: &'a Model) -> TrainerBuilder<'a> {
        TrainerBuilder::new(cann, &model.config, InitialWeights::Checkpoint(&model.checkpoint))
    }

    /// Trains a model from random weights.
    pub fn of_seed<'a>(cann: &'a Arc<Cann>, config: &'a ModelConfig, seed: u64) -> TrainerBuilder<'a> {
        TrainerBuilder::new(cann, config, InitialWeights::Seed(seed))
    }
}

impl<'a> TrainerBuilder<'a> {
    fn new(cann: &'a Arc<Cann>, config: &'a ModelConfig, weights: InitialWeights<'a>) -> Self {
        let (recipe, engine) = (Recipe::default(), EngineOptions::default());
        Self { cann, config, weights, recipe, layout: Layout::ONE, engine, compiled: None, resumed: None }
    }

    /// Sets the training recipe of the run.
    pub fn recipe(mut self, recipe: Recipe) -> Self {
        self.recipe = recipe;
        self
    }

    /// Sets the distribution over cards.
    pub const fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets the options of the engine.
    pub fn engine(mut self, engine: EngineOptions) -> Self {
        self.engine = engine;
        self
    }

    /// Sets programs that were compiled from the same model, recipe and layout.
    #[doc(hidden)]
    pub fn compiled(mut self, compiled: Compiled) -> Self {
        self.compiled = Some(compiled);
        self
    }

    /// Continues a run from its checkpoint, of any layout.
    pub const fn resume(mut self, checkpoint: &'a Checkpoint, progress: Progress) -> Self {
        self.resumed = Some((checkpoint, progress));
        self
    }

    /// Compiles the programs, starts the cards and loads the weights.
    ///
    /// # Errors
    /// The settings do not fit the model, or a device call fails.
    pub fn start(self) -> Result<Trainer, Error> {
        let Self { cann, config, weights, recipe, layout, engine, compiled, resumed } = self;
        let compiled = match compiled {
            Some(compiled) => compiled,
            None => compile(config, &recipe, &layout, target_of(cann, &engine.group, &engine.kernels))?,
        };
        let (inits, trained) = (compiled.inits.clone(), compiled.sharding.clone());
        let fill = |shards: &Shards<'_>| {
            // `restore` writes the trained weights.
            let own = shards.only(|tensor| resumed.is_none() || !trained.has(&tensor.name));
            match weights {
                InitialWeights::Checkpoint(checkpoint) => init::fill_beside(checkpoint, &own, &inits, 0),
                InitialWeights::Seed(seed) => init::fill(&own, &inits, seed),
            }
        };
        let mut trainer = Trainer::start(cann, config, &recipe, layout, compiled, &engine, fill)?;
        if let Some((checkpoint, progress)) = resumed {
            trainer.restore(checkpoint, progress)?;
        }
        Ok(trainer)
    }
}
