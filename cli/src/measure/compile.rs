//! Compile time from a configuration to the plans of all ranks.

use std::time::Duration;

use super::Samples;
use super::error::Error;
use super::report::{CellForm, Column, MeasuredTable, PlotAxes, column};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::program::models::Head;

#[derive(Clone, Debug)]
pub(crate) struct CompileSetting {
    pub(crate) name: String,
    pub(crate) model: ModelConfig,
    pub(crate) cards: usize,
}

impl CompileSetting {
    fn preset(name: &str, cards: usize) -> Option<Self> {
        Some(Self { name: name.to_owned(), model: ModelConfig::preset(name)?, cards })
    }

    /// Returns the largest model with growing numbers of cards and layers, and other models on
    /// eight cards.
    #[must_use]
    pub(crate) fn usual() -> Vec<Self> {
        let cards = [1, 2, 4, 8, 16, 32, 64].into_iter().filter_map(|cards| Self::preset("qwen-72b", cards));
        let layers = [20, 40, 160].into_iter().filter_map(|layers| {
            let setting = Self::preset("qwen-72b", 8)?;
            Some(Self { model: ModelConfig { layers, ..setting.model }, ..setting })
        });
        let others = ["qwen2.5-72b", "llama-3-70b", "qwen3-32b", "qwen2.5-0.5b"];
        let others = others.into_iter().filter_map(|name| Self::preset(name, 8));
        cards.chain(layers).chain(others).collect()
    }
}

const COLUMNS: [Column; 8] = [
    column("model", "model", CellForm::Text),
    column("layers", "layers", CellForm::Whole),
    column("cards", "cards", CellForm::Whole),
    column("time_ms", "time ms", CellForm::Decimal),
    column("least_ms", "min ms", CellForm::Decimal),
    column("spread", "spread", CellForm::Percent),
    column("layer_rank_us", "µs per layer and rank", CellForm::Decimal),
    column("steps", "plan steps", CellForm::Whole),
];

/// Prompt length, at most the model's context. Compile time does not depend on it.
const PROMPT: usize = 512;

const TOKENS: usize = 64;

pub(crate) fn run(settings: &[CompileSetting], budget: Duration) -> Result<MeasuredTable, Error> {
    let mut table =
        MeasuredTable::new("compile", "Compile time of the prefill and decode plans of all ranks", &COLUMNS)
            .drawn(PlotAxes { x: "cards", y: "time_ms", series: &["model", "layers"] });
    for CompileSetting { name, model, cards } in settings {
        let deployment = Deployment {
            precision: model.dtype.into(),
            longest_prompt: PROMPT.min(model.max_positions.saturating_sub(TOKENS)),
            context: PROMPT.min(model.max_positions.saturating_sub(TOKENS)) + TOKENS,
            head: Head::LastToken,
            ..Deployment::of(model, *cards)
        };
        let mut steps = 0;
        let samples = Samples::take(budget, || {
            let plans = deployment.compile(model)?.into_vec();
            steps = plans.iter().flatten().map(|plan| plan.steps.len()).sum();
            Ok::<_, Error>(())
        })?;
        let seconds = samples.median();
        table.row([
            name.as_str().into(),
            model.layers.into(),
            (*cards).into(),
            (seconds * 1e3).into(),
            (samples.min() * 1e3).into(),
            samples.spread().into(),
            (seconds * 1e6 / (model.layers * cards) as f64).into(),
            steps.into(),
        ]);
    }
    Ok(table)
}
