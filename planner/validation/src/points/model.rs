//! Sizes of the model of a row.
//!
//! Columns of the row precede the configuration with exactly the same name (`points/models.csv`,
//! from `config.json` files).

use super::Point;
use ascend_tp_planner::decoder::{Decoder, FeedForward, Window};

const MODELS: &str = include_str!("../../points/models.csv");

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PublishedModel {
    pub(crate) decoder: Decoder,
    /// The gate uses GELU, which no kernel fuses.
    pub(crate) is_gelu: bool,
    pub(crate) experts: usize,
    /// Expert width, if every feed-forward layer is a pure mixture.
    pub(crate) expert_width: Option<usize>,
    pub(crate) chosen: Option<usize>,
}

/// Name parts that do not identify the model.
const VARIANTS: [&str; 10] =
    ["instruct", "chat", "base", "hf", "w8a8", "w4a8", "quarot", "bf16", "fp16", "int8"];

fn key(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let first = name.split_whitespace().next().unwrap_or_default();
    first.split(['-', '_']).filter(|part| !VARIANTS.contains(part)).collect()
}

impl PublishedModel {
    pub(crate) fn of(point: &Point) -> Result<Self, &'static str> {
        let name = key(point.text("model"));
        let all = Point::all(MODELS);
        let known = all.iter().find(|known| key(known.text("model")) == name);
        let size = |column: &str| -> Result<Option<usize>, &'static str> {
            let of_known = known.and_then(|known| known.leading(column));
            match (point.leading(column), of_known) {
                (Some(own), Some(other)) if own != other => {
                    Err("the columns disagree with the configuration of the model's name")
                }
                (own, other) => Ok(own.or(other)),
            }
        };
        let needed = |column: &str| {
            size(column)?
                .filter(|size| *size > 0)
                .ok_or("sizes of the model are neither in columns nor of a known name")
        };
        let says = |column: &str, value: &str| {
            point.text(column) == value || known.is_some_and(|known| known.text(column) == value)
        };
        let (hidden, heads) = (needed("hidden")?, needed("heads")?);
        let share = known.and_then(|known| known.number("window_share")).unwrap_or(1.0);
        let decoder = Decoder {
            layers: needed("layers")?,
            hidden,
            intermediate: needed("ffn")?,
            heads,
            kv_heads: size("kv_groups")?.unwrap_or(heads),
            head_dim: size("head_dim")?.unwrap_or(hidden / heads),
            vocabulary: needed("vocab")?,
            tied_embeddings: says("tied", "y"),
            feed_forward: if says("feed_forward", "plain") { FeedForward::Plain } else { FeedForward::Gated },
            norms: size("norms")?.unwrap_or(2),
            has_head_norms: says("head_norms", "y"),
            window: size("window")?.map(|tokens| Window { tokens, share }),
            experts: None,
        };
        Ok(Self {
            decoder,
            is_gelu: says("feed_forward", "gelu"),
            experts: size("experts")?.unwrap_or(0),
            expert_width: size("expert_ffn")?,
            chosen: size("chosen")?,
        })
    }

    pub(crate) fn parameters(&self) -> usize {
        let decoder = &self.decoder;
        let norms = 2 * decoder.hidden + if decoder.has_head_norms { 2 * decoder.head_dim } else { 0 };
        let products = match self.experts {
            0 => decoder.layer_parameters(),
            experts => decoder.attention_parameters() + decoder.hidden * experts,
        };
        let layers = decoder.layers * (products + norms);
        layers + self.expert_parameters() + decoder.table_parameters() + decoder.hidden
    }

    pub(crate) fn expert_parameters(&self) -> usize {
        let decoder = &self.decoder;
        let expert = decoder.hidden * decoder.feed_forward.weights() * self.expert_width.unwrap_or(0);
        decoder.layers * self.experts * expert
    }

    pub(crate) const fn cache_bytes_per_token(&self) -> usize {
        2 * 2 * self.decoder.layers * self.decoder.kv_width()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<PublishedModel, &'static str> {
        PublishedModel::of(&Point::all(text)[0])
    }

    #[test]
    fn a_model_is_what_its_whole_name_says() {
        assert_eq!(of("model\nLLaMA3-8B 32K\n").unwrap().decoder.vocabulary, 128_256);
        assert_eq!(of("model\nmeta-llama/Llama-2-7B-hf\n").unwrap().decoder.vocabulary, 32_000);
        assert_eq!(of("model\nMiniCPM-8x2B\n").unwrap().experts, 8);
        assert_eq!(of("model\nQwen/Qwen3-32B-W8A8\n").unwrap(), of("model\nQwen3-32B\n").unwrap());
        assert!(of("model\nLLaMA4-9B\n").unwrap_err().starts_with("sizes of the model"));
    }

    #[test]
    fn columns_stand_before_names_and_may_not_disagree_with_them() {
        let own = "model,layers,hidden,ffn,heads,kv_groups,vocab\nmine,2,64,128,4,2,1000\n";
        let model = of(own).unwrap().decoder;
        assert_eq!((model.layers, model.head_dim, model.kv_heads, model.vocabulary), (2, 16, 2, 1000));
        assert!(of("model,kv_groups\nLLaMA2-7B,8\n").unwrap_err().starts_with("the columns disagree"));
    }

    #[test]
    fn parameters_are_those_of_the_model_cards() {
        for (name, billions) in [
            ("Mixtral-8x7B", 46.70),
            ("Qwen3-30B-A3B", 30.53),
            ("Qwen3-235B-A22B", 235.09),
            ("Qwen3-14B", 14.77),
            ("LLaMA2-7B", 6.738),
            ("LLaMA3.1-70B", 70.55),
            ("Qwen3-0.6B", 0.596),
        ] {
            let found = of(&format!("model\n{name}\n")).unwrap().parameters() as f64 / 1e9;
            assert!((found / billions - 1.0).abs() < 1e-3, "{name}: {found}");
        }
    }

    #[test]
    fn every_name_is_of_one_configuration() {
        let mut keys: Vec<String> = Point::all(MODELS).iter().map(|known| key(known.text("model"))).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() == count && count > 80);
        for known in Point::all(MODELS) {
            PublishedModel::of(&known).unwrap();
        }
    }
}
