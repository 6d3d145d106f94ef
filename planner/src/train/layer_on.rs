//! Simulated time of one more layer: the difference between two layer counts.

use ascend_tp::base::{Diagnostics, Kernels};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp::schedule::{StepOrder, Target};
use ascend_tp::train::{Layout, Recipe, lower, recipe};

use super::job::Job;
use super::setting::JobSplit;
use crate::simulate::Simulator;

const LAYERS: [usize; 2] = [1, 3];

/// Cost of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCost {
    /// Per layer and micro-batch.
    pub layer_us: f64,
    /// Time with collectives but no operators.
    pub exposed_us: f64,
}

/// Returns the layout of one stage and copy.
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

/// Times a layer in a layout on neighbouring cards.
///
/// # Errors
/// The compiler refuses the layout.
pub fn cost(config: &ModelConfig, job: &Job, layout: &Layout) -> Result<LayerCost, Diagnostics> {
    let recipe = Recipe {
        seq: job.sequence,
        // The first of two micro-batches updates no weights.
        global_batch: 2 * layout.micro_batch,
        precision: recipe::TrainingPrecision::Bf16,
        ..Recipe::default()
    };
    let on: Vec<usize> = (0..layout.cards()).collect();
    let of = |layers: usize| {
        let config = ModelConfig { layers, ..config.clone() };
        let lowered = lower(&config, &recipe, layout)?;
        let runs = lowered.runs(&recipe, layout)?;
        let plans = runs[0].schedule(
            StepOrder::Overlapped,
            &recipe,
            layout,
            Target::of(job.profile.soc, Kernels::NONE),
        )?;
        let run =
            Simulator::new(&job.profile, &job.topology, &plans, &on, None).run(Launching::Eager).breakdown;
        Ok::<_, Diagnostics>([run.duration_us, run.exposed_us])
    };
    let [few, more] = [of(LAYERS[0])?, of(LAYERS[1])?];
    let each = |at: usize| (more[at] - few[at]) / (LAYERS[1] - LAYERS[0]) as f64;
    Ok(LayerCost { layer_us: each(0), exposed_us: each(1) })
}
