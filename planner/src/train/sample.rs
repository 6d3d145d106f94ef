//! Predicts the step of a model from the programs of two models with fewer layers.
//!
//! Input: a recipe and a layout of one stage. Output: the time of a step.
//!
//! The time of a step is linear in the number of layers, because the order of the few layers
//! spends as many spare bytes as the order of all layers ([`Ranks::Sample`]).
//!
//! Not here: pipelines, because their layers are cut by time and the order of their passes is not
//! linear; and `ZeRO` stage 3, because gathered weights of all layers leave gaps in the memory that
//! few layers do not have.

use ascend_tp::base::Diagnostics;
use ascend_tp::config::ModelConfig;
use ascend_tp::schedule::Ranks;
use ascend_tp::train::{Layout, Recipe, Recompute, Zero};

use super::simulated::{TrainingSite, step_us_of};

/// Fewest layers that the second sample has more than the first.
const MORE: usize = 3;

/// Most layers before the layers repeat.
const MOST_BEFORE: usize = 4;

/// Most layers that repeat.
const MOST_REPEATED: usize = 8;

/// Two models with the first layers of a model.
#[derive(Clone, Copy, Debug)]
pub struct LayerSample<'a> {
    config: &'a ModelConfig,
    /// Numbers of layers. They differ by whole repetitions.
    layers: [usize; 2],
}

impl<'a> LayerSample<'a> {
    /// Returns the smallest sample. `None` if the model has so few layers, if its layers do not
    /// repeat, or if the layout has stages, shards the weights by `ZeRO` or recomputes some layers
    /// only.
    #[must_use]
    pub fn of(config: &'a ModelConfig, layout: &Layout) -> Option<Self> {
        let is_sampled = layout.stages == 1 && layout.zero < Zero::Weights;
        if !is_sampled || matches!(layout.recompute, Recompute::Layers(_)) {
            return None;
        }
        let is_repeated = |before: usize, repeated: usize| {
            (before + repeated..config.layers)
                .all(|layer| config.layer(layer) == config.layer(layer - repeated))
        };
        let (before, repeated) = (1..=MOST_REPEATED)
            .flat_map(|repeated| (0..=MOST_BEFORE).map(move |before| (before, repeated)))
            .find(|(before, repeated)| is_repeated(*before, *repeated))?;
        let more = repeated * MORE.div_ceil(repeated);
        let layers = [before + more, before + 2 * more];
        (layers[1] < config.layers).then_some(Self { config, layers })
    }

    /// Counts the layers of both models.
    #[must_use]
    pub fn compiled_layers(&self) -> usize {
        self.layers.iter().sum()
    }

    /// Returns the time of a step of the whole model, in microseconds.
    ///
    /// # Errors
    /// The compiler refuses the layout.
    pub fn step_us(
        &self,
        recipe: &Recipe,
        layout: &Layout,
        site: TrainingSite<'_>,
    ) -> Result<f64, Diagnostics> {
        let all = self.config.layers;
        let of = |layers: usize| {
            let pattern = (0..layers).map(|layer| *self.config.layer(layer)).collect();
            let model = ModelConfig { layers, pattern, ..self.config.clone() };
            step_us_of(&model, recipe, layout, site, Ranks::Sample { layers, of: all })
        };
        let [few, more] = self.layers;
        let (few_us, more_us) = (of(few)?, of(more)?);
        Ok(few_us + (more_us - few_us) / (more - few) as f64 * (all - few) as f64)
    }
}

#[cfg(test)]
mod tests {
    use ascend_tp::base::Kernels;
    use ascend_tp::placement::Residual;
    use ascend_tp::train::recipe::TrainingPrecision;
    use ascend_tp_machine::{Profile, Soc, Topology};

    use super::*;

    #[test]
    fn a_sample_predicts_the_step_of_all_layers() {
        let config = ModelConfig { layers: 12, ..ModelConfig::preset("qwen3-32b").unwrap() };
        let recipe = Recipe { seq: 1024, global_batch: 16, ..Recipe::default() };
        let recipe = Recipe { precision: TrainingPrecision::Bf16, ..recipe };
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
        let site = TrainingSite { profile: &profile, topology: &topology, kernels: Kernels::NONE };
        let shared = Layout { tensor: 2, data: 2, residual: Residual::Seq, ..Layout::ONE };
        for layout in [
            Layout { zero: Zero::Moments, micro_batch: 8, ..shared },
            Layout { data: 4, zero: Zero::Gradients, micro_batch: 2, ..Layout::ONE },
        ] {
            let sample = LayerSample::of(&config, &layout).unwrap();
            let sampled_us = sample.step_us(&recipe, &layout, site).unwrap();
            let whole_us = step_us_of(&config, &recipe, &layout, site, Ranks::First).unwrap();
            let error = sampled_us / whole_us - 1.0;
            assert!(error.abs() < 0.02, "{layout:?}: {sampled_us} us instead of {whole_us} us");
        }
    }

    #[test]
    fn samples_differ_by_whole_repetitions() {
        for (preset, layers) in [
            ("qwen2.5-72b", [3, 6]),
            ("gemma-2-27b", [4, 8]),
            ("gemma-3-1b", [6, 12]),
            ("glm-4.5-air", [4, 7]),
        ] {
            let config = ModelConfig::preset(preset).unwrap();
            assert_eq!(LayerSample::of(&config, &Layout::ONE).unwrap().layers, layers, "{preset}");
        }
        let config = ModelConfig { layers: 6, ..ModelConfig::preset("qwen2.5-72b").unwrap() };
        assert!(LayerSample::of(&config, &Layout::ONE).is_none());
        let config = ModelConfig::preset("qwen2.5-72b").unwrap();
        for layout in [
            Layout { stages: 2, ..Layout::ONE },
            Layout { zero: Zero::Weights, ..Layout::ONE },
            Layout { recompute: Recompute::Layers(2), ..Layout::ONE },
        ] {
            assert!(LayerSample::of(&config, &layout).is_none(), "{layout:?}");
        }
    }
}
