//! What one more layer takes a micro-batch of the programs that `train` runs, on the clock.
//!
//! Input → output: a model, a job, a setting and a layout of the cards that share a layer or a sequence → time, and the part of it that is
//! exposed. Invariant: two programs are compiled, of one layer and of more, and simulated; what they differ by is layers which are alike.

use ascend_tp::base::{Diagnostics, Kernels};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp::schedule::{StepOrder, Target};
use ascend_tp::train::{Layout, Recipe, lower, recipe};

use super::job::Job;
use super::setting::JobSplit;
use crate::simulate::Simulator;

/// Layers of the two programs.
const LAYERS: [usize; 2] = [1, 3];

/// What a layer takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCost {
    /// A layer and micro-batch, in microseconds.
    pub layer_us: f64,
    /// The part of it in which exchanges run and no operator.
    pub exposed_us: f64,
}

/// The layout on the cards of one stage and copy of a setting, with micro-batches and what is computed again as it says.
#[must_use]
pub fn layout(setting: &JobSplit) -> Layout {
    Layout {
        tensor: setting.tp,
        context: setting.cp,
        micro_batch: setting.micro_batch,
        recompute: setting.recompute,
        ..Layout::ONE
    }
}

/// What a layer takes in a layout, on as many neighbours.
///
/// # Errors
/// What the compiler refuses.
pub fn cost(config: &ModelConfig, job: &Job, layout: &Layout) -> Result<LayerCost, Diagnostics> {
    let recipe = Recipe {
        seq: job.sequence,
        // Of two micro-batches the first moves no weight.
        global_batch: 2 * layout.micro_batch,
        precision: recipe::TrainingPrecision::Bf16,
        ..Recipe::default()
    };
    let on: Vec<usize> = (0..layout.cards()).collect();
    let of = |layers: usize| {
        let config = ModelConfig { layers, ..config.clone() };
        let lowered = lower(&config, &recipe, layout)?;
        let runs = lowered.runs(&recipe, layout)?;
        let plans =
            runs[0].schedule(StepOrder::Overlapped, &recipe, layout, Target::of(job.profile.soc, Kernels::NONE))?;
        let run = Simulator::new(&job.profile, &job.topology, &plans, &on, None).run(Launching::Eager).breakdown;
        Ok::<_, Diagnostics>([run.duration_us, run.exposed_us])
    };
    let [few, more] = [of(LAYERS[0])?, of(LAYERS[1])?];
    let each = |at: usize| (more[at] - few[at]) / (LAYERS[1] - LAYERS[0]) as f64;
    Ok(LayerCost { layer_us: each(0), exposed_us: each(1) })
}
