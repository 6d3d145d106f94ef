//! Cost by number of cards, hidden size, layers, sequence length and message size. Emulated cards
//! share the processor, so constant cost is the best possible result.

use super::collectives::{self, MeasuredCollective};
use super::error::Error;
use super::generation::{self, Generated};
use super::report::{CellForm, Column, MeasuredTable, PlotAxes, column};
use super::{Bench, Effort};
use ascend_tp::base::DType;
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp::placement::{ExpertShards, Residual};

/// Cards of the emulated machine.
pub(crate) const MOST_CARDS: usize = 64;

const COLUMNS: [Column; 9] = [
    column("grows", "size", CellForm::Text),
    column("value", "value", CellForm::Whole),
    column("cards", "cards", CellForm::Whole),
    column("hidden", "hidden", CellForm::Whole),
    column("layers", "layers", CellForm::Whole),
    column("prompt", "prompt", CellForm::Whole),
    column("prompt_ms", "ms per prompt", CellForm::Decimal),
    column("step_ms", "ms per token", CellForm::Decimal),
    column("step_of_limit", "token, of limit", CellForm::Percent),
];

#[derive(Clone, Copy)]
struct Sizes {
    cards: usize,
    hidden: usize,
    layers: usize,
    prompt: usize,
}

/// Start values, with one head for each card of the largest case.
const SIZES: Sizes = Sizes { cards: 4, hidden: 1024, layers: 4, prompt: 64 };

impl Sizes {
    fn setting(self) -> Option<generation::GenerationSetting> {
        let shape = ModelConfig::preset("llama-3-70b")?;
        let model = ModelConfig {
            vocab_size: 8192,
            hidden_size: self.hidden,
            layers: self.layers,
            heads: MOST_CARDS,
            kv_heads: MOST_CARDS,
            head_dim: (self.hidden / MOST_CARDS).max(16),
            intermediate_size: 4 * self.hidden,
            ..shape
        };
        Some(generation::GenerationSetting {
            name: "a small model".to_owned(),
            model,
            cards: vec![self.cards],
            precision: DType::BF16.into(),
            residual: Residual::Replicate,
            experts: ExpertShards::Whole,
            launching: Launching::Eager,
            prompt: self.prompt,
            tokens: TOKENS,
        })
    }
}

const TOKENS: usize = 16;

pub(crate) fn run(bench: &Bench) -> Result<Vec<MeasuredTable>, Error> {
    Ok(vec![model(bench)?, messages(bench)?])
}

fn model(bench: &Bench) -> Result<MeasuredTable, Error> {
    let axes = PlotAxes { x: "value", y: "step_ms", series: &["grows"] };
    let mut table =
        MeasuredTable::new("scaling", "Scaling of a small model, one size at a time", &COLUMNS).drawn(axes);
    let every = |values: &[usize]| match bench.effort {
        Effort::Quick => values.iter().copied().step_by(2).collect::<Vec<_>>(),
        Effort::Full => values.to_vec(),
    };
    let cards =
        every(&[1, 2, 4, 8, 16, 32, 64]).into_iter().map(|cards| ("cards", cards, Sizes { cards, ..SIZES }));
    let hidden = every(&[512, 1024, 2048, 4096])
        .into_iter()
        .map(|hidden| ("hidden", hidden, Sizes { hidden, ..SIZES }));
    let layers =
        every(&[2, 4, 8, 16, 32]).into_iter().map(|layers| ("layers", layers, Sizes { layers, ..SIZES }));
    let prompt = every(&[64, 128, 256, 512, 1024])
        .into_iter()
        .map(|prompt| ("prompt", prompt, Sizes { prompt, ..SIZES }));
    for (grows, value, sizes) in cards.chain(hidden).chain(layers).chain(prompt) {
        let Some(setting) = sizes.setting() else { continue };
        let Generated { prefill, decode } = generation::run(bench, &setting)?;
        table.row([
            grows.into(),
            value.into(),
            sizes.cards.into(),
            sizes.hidden.into(),
            sizes.layers.into(),
            sizes.prompt.into(),
            prefill.number(&[], "time_ms").into(),
            decode.number(&[], "step_ms").into(),
            decode.number(&[], "of_limit").into(),
        ]);
    }
    Ok(table)
}

fn messages(bench: &Bench) -> Result<MeasuredTable, Error> {
    let (ranks, factor) = match bench.effort {
        Effort::Quick => (vec![2, 8, 64], 64),
        Effort::Full => (vec![2, 4, 8, 16, 32, 64], 4),
    };
    let setting = collectives::ExchangeSetting {
        ops: vec![MeasuredCollective::AllReduce],
        dtypes: vec![DType::F32],
        ranks,
        bytes: collectives::ExchangeSetting::sizes(1 << 10, 16 << 20, factor),
        iterations: None,
        warmup: 3,
    };
    let axes = PlotAxes { x: "bytes", y: "time_us", series: &["ranks"] };
    let mut table = collectives::run(bench, &setting)?.drawn(axes);
    "scaling_messages".clone_into(&mut table.name);
    "Scaling of all_reduce with ranks in one process".clone_into(&mut table.title);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_makes_a_model_that_fits_the_most_cards() {
        for hidden in [512, 4096] {
            let setting = Sizes { cards: MOST_CARDS, hidden, ..SIZES }.setting().unwrap();
            let plans = setting.deployment(MOST_CARDS).compile(&setting.model).unwrap().into_vec();
            assert_eq!(plans[0].len(), MOST_CARDS);
        }
    }
}
