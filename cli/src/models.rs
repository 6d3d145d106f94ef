//! `models`: lists the presets, their sizes, and for each chip the fewest cards that hold the
//! compiled programs of one sequence.
//!
//! Memory is affine in the number of layers of each kind, so two short models of each kind give the
//! memory of the whole model.

use ascend_tp::base::{Bytes, DType, Diagnostics};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{Layer, ModelConfig, Parameters};
use ascend_tp::device::Communicator;
use ascend_tp::exec::regions_wanted;
use ascend_tp::machine::Soc;
use ascend_tp::program::models::Head;
use ascend_tp_planner::table::Align;
use serde::Serialize;

use super::arguments::ModelsOptions;
use super::failure::{Failure, Outcome};
use super::numbers::{decimal_bytes, in_billions};
use super::{print_json, print_report, terminal};

const CARDS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Chips with different memory sizes.
const CHIPS: [Soc; 2] = [Soc::Ascend910B3, Soc::Ascend910B4];

const CONTEXT: usize = 4096;

const PROMPT: usize = 2048;

#[derive(Debug, Serialize)]
struct ModelRow {
    name: &'static str,
    family: &'static str,
    layers: usize,
    hidden_size: usize,
    parameters: usize,
    /// Parameters that compute one token.
    active_parameters: usize,
    weight_bytes: Bytes,
    /// The fewest cards that hold the model, by chip; None if none of the tried numbers suffices.
    cards: Vec<(&'static str, Option<usize>)>,
    /// The reason why there is no program of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

pub(super) fn run(options: &ModelsOptions) -> Result<Outcome, Failure> {
    let mut rows = Vec::new();
    for name in ModelConfig::presets() {
        if let Some(config) = ModelConfig::preset(name) {
            rows.push(row(name, &config));
        }
    }
    if options.json {
        print_json(&rows)?;
        return Ok(Outcome::Done);
    }
    let mut table = terminal::table([
        ("model", Align::Left),
        ("parameters", Align::Right),
        ("active", Align::Right),
        ("weights", Align::Right),
        ("layers", Align::Right),
        ("cards", Align::Left),
    ]);
    for row in rows {
        let cards = row.cards.iter().map(|(chip, cards)| match cards {
            Some(cards) => format!("{cards} × {chip}"),
            None => format!("more than {} × {chip}", CARDS[CARDS.len() - 1]),
        });
        table.row([
            row.name.to_owned(),
            in_billions(row.parameters as u64),
            in_billions(row.active_parameters as u64),
            decimal_bytes(row.weight_bytes.0),
            row.layers.to_string(),
            row.refused.clone().unwrap_or_else(|| cards.collect::<Vec<_>>().join(", ")),
        ]);
    }
    let about = format!("in bf16, one sequence of {CONTEXT} positions, prompts of {PROMPT} tokens");
    print_report(&format!("{table}\n  {about}; `ascend-tp plan --model NAME --cards N` shows more\n"))?;
    Ok(Outcome::Done)
}

fn row(name: &'static str, config: &ModelConfig) -> ModelRow {
    let Parameters { total, active } = config.parameters();
    let weight_bytes = Bytes::of(total, DType::BF16.size_bytes());
    let (cards, refused) = match cards(config, weight_bytes) {
        Ok(cards) => (cards, None),
        Err(refused) => (Vec::new(), refused.items().first().map(|problem| problem.message.clone())),
    };
    ModelRow {
        name,
        family: config.family.model_type(),
        layers: config.layers,
        hidden_size: config.hidden_size,
        parameters: total,
        active_parameters: active,
        weight_bytes,
        cards,
        refused,
    }
}

/// Returns the fewest cards of each chip that hold the model.
fn cards(config: &ModelConfig, weights: Bytes) -> Result<Vec<(&'static str, Option<usize>)>, Diagnostics> {
    let mut fewest: Vec<(&str, Option<usize>)> = CHIPS.map(|chip| (chip.short_name(), None)).into();
    for count in CARDS {
        let usable = CHIPS.map(|chip| chip.hbm_usable_bytes());
        let shard = weights.0 / count as u64;
        let may_hold = |chip: usize| fewest[chip].1.is_none() && shard <= usable[chip];
        if !(0..CHIPS.len()).any(may_hold) {
            continue;
        }
        let needed = bytes(config, count)?;
        for ((_, fewest), usable) in fewest.iter_mut().zip(usable) {
            if fewest.is_none() && needed <= usable {
                *fewest = Some(count);
            }
        }
    }
    Ok(fewest)
}

/// Returns the bytes that the fullest card needs. Weights and states add up over layers, and all
/// layers share the memory of temporary tensors.
fn bytes(config: &ModelConfig, cards: usize) -> Result<u64, Diagnostics> {
    let (mut outside_layers, mut of_layers, mut temporary) = (0, 0, 0);
    for (kind, layers) in kinds(config) {
        let of_short = |layers| {
            let config = ModelConfig { layers, pattern: vec![kind], ..config.clone() };
            let programs = deployment(&config, cards).compile(&config)?.into_vec();
            let regions = (0..cards).map(|rank| {
                let [weights, states, inputs, outputs, arena] = regions_wanted(&programs, rank);
                [weights.0 + states.0, inputs.0 + outputs.0 + arena.0]
            });
            Ok::<_, Diagnostics>(regions.fold([0, 0], |[a, b], [c, d]| [a.max(c), b.max(d)]))
        };
        let ([short, _], [longer, shared]) = (of_short(1)?, of_short(2)?);
        let of_layer = longer.saturating_sub(short);
        outside_layers = outside_layers.max(short.saturating_sub(of_layer));
        of_layers += of_layer * layers;
        temporary = temporary.max(shared);
    }
    let groups = u64::from(cards > 1);
    Ok(outside_layers + of_layers + temporary + groups * Communicator::buffer_bytes().0)
}

fn deployment(config: &ModelConfig, cards: usize) -> Deployment {
    Deployment {
        precision: DType::BF16.into(),
        longest_prompt: PROMPT,
        context: CONTEXT,
        head: Head::LastToken,
        ..Deployment::of(config, cards)
    }
}

/// Returns the different layers of the model, each with their number.
fn kinds(config: &ModelConfig) -> Vec<(Layer, u64)> {
    let mut kinds: Vec<(Layer, u64)> = Vec::new();
    for layer in (0..config.layers).map(|layer| config.layer(layer)) {
        match kinds.iter_mut().find(|(kind, _)| kind == layer) {
            Some((_, count)) => *count += 1,
            None => kinds.push((*layer, 1)),
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_whole(config: &ModelConfig, cards: usize) -> u64 {
        let programs = deployment(config, cards).compile(config).unwrap().into_vec();
        let regions = (0..cards).map(|rank| regions_wanted(&programs, rank));
        regions.map(|regions| regions.iter().map(|bytes| bytes.0).sum()).max().unwrap()
    }

    #[test]
    fn short_models_give_the_bytes_of_all_layers() {
        for (name, layers) in [("qwen2.5-0.5b", 5), ("deepseek-v2-lite", 3)] {
            let config = ModelConfig { layers, ..ModelConfig::preset(name).unwrap() };
            let (found, whole) = (bytes(&config, 2).unwrap(), of_whole(&config, 2));
            let differ = found.abs_diff(whole + Communicator::buffer_bytes().0);
            assert!(differ <= whole / 100, "{name}: {found} bytes, {whole} of the whole model");
        }
    }

    #[test]
    fn a_72b_model_needs_four_large_cards() {
        let row = row("qwen-72b", &ModelConfig::preset("qwen-72b").unwrap());
        assert!((72_000_000_000..73_000_000_000).contains(&row.parameters), "{}", row.parameters);
        assert_eq!(row.cards, [("910b3", Some(4)), ("910b4", Some(8))]);
    }
}
