//! `models`: lists the presets, their sizes, and for each chip the fewest cards that hold the
//! compiled programs of one sequence.
//!
//! Memory is affine in the number of layers, so two short models give the memory of the whole
//! model.

use ascend_tp::base::{Bytes, DType};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::device::Communicator;
use ascend_tp::exec::regions_wanted;
use ascend_tp::machine::Soc;
use ascend_tp::program::models::Head;
use ascend_tp::schedule::plan::Region;
use ascend_tp_planner::table::Align;
use serde::Serialize;

use super::arguments::ModelsOptions;
use super::failure::{Failure, Outcome};
use super::numbers::{decimal_bytes, in_billions};
use super::{print_json, print_report, terminal};

const CARDS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Chips with different memory sizes.
const CHIPS: [Soc; 2] = [Soc::Ascend910B3, Soc::Ascend910B4];

const CONTEXT: usize = 4096;

const PROMPT: usize = 2048;

const SHORT: [usize; 2] = [1, 2];

#[derive(Debug, Serialize)]
struct ModelRow {
    name: &'static str,
    family: &'static str,
    layers: usize,
    hidden_size: usize,
    parameters: u64,
    weight_bytes: Bytes,
    /// The fewest cards that hold the model, by chip; None if none of the tried numbers suffices.
    cards: Vec<(&'static str, Option<usize>)>,
}

pub(super) fn run(options: &ModelsOptions) -> Result<Outcome, Failure> {
    let mut rows = Vec::new();
    for name in ModelConfig::PRESETS {
        if let Some(config) = ModelConfig::preset(name) {
            rows.push(row(name, &config)?);
        }
    }
    if options.json {
        print_json(&rows)?;
        return Ok(Outcome::Done);
    }
    let mut table = terminal::table([
        ("model", Align::Left),
        ("parameters", Align::Right),
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
            in_billions(row.parameters),
            decimal_bytes(row.weight_bytes.0),
            row.layers.to_string(),
            cards.collect::<Vec<_>>().join(", "),
        ]);
    }
    let about = format!("in bf16, one sequence of {CONTEXT} positions, prompts of {PROMPT} tokens");
    print_report(&format!("{table}\n  {about}; `ascend-tp plan --model NAME --cards N` shows more\n"))?;
    Ok(Outcome::Done)
}

fn row(name: &'static str, config: &ModelConfig) -> Result<ModelRow, Failure> {
    let whole = bytes(config, 1)?;
    let mut cards = Vec::new();
    for chip in CHIPS {
        let mut fewest = None;
        for count in CARDS {
            let needed = bytes(config, count)?;
            if needed.all <= chip.hbm_usable_bytes() {
                fewest = Some(count);
                break;
            }
        }
        cards.push((chip.short_name(), fewest));
    }
    Ok(ModelRow {
        name,
        family: config.family.model_type(),
        layers: config.layers,
        hidden_size: config.hidden_size,
        parameters: whole.weights / DType::BF16.size_bytes() as u64,
        weight_bytes: Bytes(whole.weights),
        cards,
    })
}

struct Needed {
    weights: u64,
    all: u64,
}

fn bytes(config: &ModelConfig, cards: usize) -> Result<Needed, Failure> {
    let mut bytes_by_layers = Vec::new();
    for layers in SHORT {
        let config = ModelConfig { layers, ..config.clone() };
        let deployment = Deployment {
            precision: DType::BF16.into(),
            longest_prompt: PROMPT,
            context: CONTEXT,
            head: Head::LastToken,
            ..Deployment::of(&config, cards)
        };
        let programs = deployment.compile(&config)?.into_vec();
        let regions: Vec<_> = (0..cards).map(|rank| regions_wanted(&programs, rank)).collect();
        let all = regions.iter().map(|regions| regions.iter().map(|bytes| bytes.0).sum::<u64>()).max();
        let weights = regions.iter().map(|regions| regions[Region::Weights as usize].0).max();
        bytes_by_layers.push((weights.unwrap_or(0), all.unwrap_or(0)));
    }
    let groups = u64::from(cards > 1);
    let more = (config.layers - SHORT[0]) as u64;
    let whole = |short: u64, longer: u64| short + longer.saturating_sub(short) * more;
    Ok(Needed {
        weights: whole(bytes_by_layers[0].0, bytes_by_layers[1].0),
        all: whole(bytes_by_layers[0].1, bytes_by_layers[1].1) + groups * Communicator::buffer_bytes().0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_layers_tell_the_bytes_of_all() {
        let config = ModelConfig { layers: 5, ..ModelConfig::preset("qwen2.5-0.5b").unwrap() };
        let deployment = Deployment {
            precision: DType::BF16.into(),
            longest_prompt: PROMPT,
            context: CONTEXT,
            head: Head::LastToken,
            ..Deployment::of(&config, 2)
        };
        let programs = deployment.compile(&config).unwrap().into_vec();
        let weights = programs.iter().flatten().map(|plan| plan.region_bytes(Region::Weights).0).max();
        assert_eq!(Some(bytes(&config, 2).unwrap().weights), weights);
    }

    #[test]
    fn a_72b_model_needs_four_large_cards() {
        let row = row("qwen-72b", &ModelConfig::preset("qwen-72b").unwrap()).unwrap();
        assert!((72_000_000_000..73_000_000_000).contains(&row.parameters), "{}", row.parameters);
        assert_eq!(row.cards, [("910b3", Some(4)), ("910b4", Some(8))]);
    }
}
