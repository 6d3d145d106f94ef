//! The configuration that peft writes for a low-rank adapter.
//!
//! Input: `adapter_config.json`. Output: a [`PeftAdapter`], or all problems. Invariants: the file
//! of factors decides which layers have an adapter, and with which rank. So the keys that choose
//! layers are not read. A key that changes numbers is read or refused by name.
//!
//! # Source
//! peft 0.21: `get_pattern_key`, `LoraConfig` and `LoraLayer.update_layer`.

use std::fmt;

use regex::Regex;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::fields::parse_object;
use crate::base::{Diagnostic, Diagnostics};

const FILE: &str = "adapter_config.json";

/// Keys that change no number: origins, training, and the choice of layers, which the factors show.
const NEUTRAL: [&str; 17] = [
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "rank_pattern",
];

/// Initializations of the factors that leave the model's weights unchanged.
const INITIALIZATIONS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// The configuration of an adapter: `y = x Wᵀ + scale · (x Aᵀ) Bᵀ`.
#[derive(Clone, Debug)]
pub(crate) struct PeftAdapter {
    ranks: Vec<usize>,
    alpha: f64,
    /// Values of `alpha` for some layers. The first matching pattern is used.
    alphas: Vec<AlphaPattern>,
    /// Whether the scale is `alpha / √rank` instead of `alpha / rank`.
    is_by_root: bool,
}

#[derive(Clone, Debug)]
struct AlphaPattern {
    layer: Regex,
    alpha: f64,
}

impl PeftAdapter {
    /// Returns the ranks that layers may have: `r`, and the values of `rank_pattern`.
    pub(crate) fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the scale of the product for a layer, such as `model.layers.0.self_attn.q_proj`,
    /// with a rank.
    pub(crate) fn scale(&self, layer: &str, rank: usize) -> f64 {
        let found = self.alphas.iter().find(|pattern| pattern.layer.is_match(layer));
        let alpha = found.map_or(self.alpha, |pattern| pattern.alpha);
        let rank = rank as f64;
        alpha / if self.is_by_root { rank.sqrt() } else { rank }
    }

    /// Parses `adapter_config.json`.
    pub(crate) fn from_json(text: &str) -> Result<Self, Diagnostics> {
        let object: Map<String, Value> = parse_object(FILE, text)?;
        let mut problems = Diagnostics::new();
        let value = |key: &str| object.get(key).unwrap_or(&Value::Null);
        for (key, value) in &object {
            if let Some(expected) = refusal(key, value) {
                let problem = Diagnostic::new(format!("{FILE}: {key}"), "is not modelled");
                problems.push(problem.expected(expected).found(value));
            }
        }
        let rank = value("r").as_u64().and_then(|rank| usize::try_from(rank).ok()).filter(|rank| *rank > 0);
        let alpha = value("lora_alpha").as_f64().filter(|alpha| *alpha != 0.0);
        for (key, is_there, expected) in [
            ("r", rank.is_some(), "a whole number above 0"),
            ("lora_alpha", alpha.is_some(), "a number but 0"),
        ] {
            if !is_there {
                let problem = Diagnostic::new(format!("{FILE}: {key}"), "is missing or has a wrong value");
                problems.push(problem.expected(expected));
            }
        }
        let alphas = alphas(text).map_err(|found| problems.append(found)).unwrap_or_default();
        let ranks = value("rank_pattern").as_object().into_iter().flat_map(Map::values);
        let ranks = ranks.filter_map(Value::as_u64).filter_map(|rank| usize::try_from(rank).ok());
        let ranks = rank.into_iter().chain(ranks).collect();
        let is_by_root = value("use_rslora") == true;
        problems.into_result(Self { ranks, alpha: alpha.unwrap_or_default(), alphas, is_by_root })
    }
}

/// Returns the expected value of a key, if its value is not supported.
fn refusal(key: &str, value: &Value) -> Option<&'static str> {
    let is_unused = is_unused(value);
    let (is_known, expected) = match key {
        "peft_type" => (value == "LORA", "LORA"),
        "bias" => (value == "none" || is_unused, "none"),
        "init_lora_weights" => (
            value.is_boolean()
                || value.is_null()
                || value.as_str().is_some_and(|name| INITIALIZATIONS.contains(&name)),
            "an initialization that keeps the weights of the model",
        ),
        "r" | "lora_alpha" | "alpha_pattern" | "use_rslora" => (true, ""),
        key => (NEUTRAL.contains(&key) || is_unused, "nothing"),
    };
    (!is_known).then_some(expected)
}

/// Returns whether a value means that a feature is not used.
fn is_unused(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_used) => !is_used,
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the patterns of `alpha_pattern` in the order of the file.
fn alphas(text: &str) -> Result<Vec<AlphaPattern>, Diagnostics> {
    let place = format!("{FILE}: alpha_pattern");
    let wrong = |error| Diagnostic::new(&place, "is not an object of numbers by layer").found(error);
    let found: AlphaFields = serde_json::from_str(text).map_err(wrong)?;
    let mut problems = Diagnostics::new();
    let mut patterns = Vec::new();
    for WrittenAlpha { layer, alpha } in found.alpha_pattern.unwrap_or_default().0 {
        // peft matches the name of the layer, or its last parts after a dot.
        match Regex::new(&format!(r"^(?:.*\.)?(?:{layer})$")) {
            Ok(layer) => patterns.push(AlphaPattern { layer, alpha }),
            Err(_) => {
                let expected = "a regular expression without look-around or back-references";
                problems.push(Diagnostic::new(&place, "is not modelled").expected(expected).found(layer));
            }
        }
    }
    problems.into_result(patterns)
}

#[derive(serde::Deserialize)]
struct AlphaFields {
    alpha_pattern: Option<WrittenAlphas>,
}

/// The members of `alpha_pattern`, in their order.
#[derive(Default)]
struct WrittenAlphas(Vec<WrittenAlpha>);

struct WrittenAlpha {
    layer: String,
    alpha: f64,
}

impl<'de> Deserialize<'de> for WrittenAlphas {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(AlphasVisitor)
    }
}

struct AlphasVisitor;

impl<'de> Visitor<'de> for AlphasVisitor {
    type Value = WrittenAlphas;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<WrittenAlphas, A::Error> {
        let mut found = Vec::new();
        while let Some((layer, alpha)) = members.next_entry()? {
            found.push(WrittenAlpha { layer, alpha });
        }
        Ok(WrittenAlphas(found))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Lora;
    use super::*;

    #[test]
    fn the_configuration_of_a_run_is_read_back() {
        let lora: Lora = "rank=8,alpha=16,targets=q_proj+v_proj".parse().unwrap();
        let found = PeftAdapter::from_json(&lora.to_json("base").to_string()).unwrap();
        assert_eq!((found.scale("model.layers.0.self_attn.q_proj", 8), found.ranks()), (2.0, &[8][..]));
    }

    #[test]
    fn keys_that_choose_layers_are_accepted() {
        for keys in [
            r#""target_modules": ".*\\.(q|v)_proj""#,
            r#""target_modules": "all-linear", "exclude_modules": ["k_proj"]"#,
            r#""target_modules": ["q_proj"], "exclude_modules": ".*k_proj", "layers_to_transform": [0, 2], "layers_pattern": "layers""#,
            r#""target_modules": ["q_proj"], "layers_to_transform": 1, "init_lora_weights": "gaussian", "lora_dropout": 0.1"#,
            r#""target_modules": ["q_proj"], "init_lora_weights": "eva", "eva_config": {"rho": 2.0}, "loftq_config": {}"#,
        ] {
            let text = format!(r#"{{"peft_type": "LORA", "r": 4, "lora_alpha": 8, {keys}}}"#);
            assert_eq!(
                PeftAdapter::from_json(&text).unwrap().scale("model.layers.0.self_attn.q_proj", 4),
                2.0
            );
        }
    }

    #[test]
    fn patterns_give_ranks_and_alphas() {
        let text = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "rank_pattern": {"q_proj": 2, "v_proj": 16},
            "alpha_pattern": {"layers\\.1\\.self_attn\\.q_proj": 3, "self_attn.q_proj": 5, "^model.layers.0.mlp.(up|gate)_proj": 7}}"#;
        let found = PeftAdapter::from_json(text).unwrap();
        let scale = |layer: &str, rank| found.scale(&format!("model.layers.{layer}"), rank);
        assert_eq!(found.ranks(), [4, 2, 16]);
        assert_eq!(scale("1.self_attn.q_proj", 2), 1.5, "the first of two patterns: 3 / 2");
        assert_eq!(scale("11.self_attn.q_proj", 2), 2.5, "5 / 2: a pattern begins behind a dot");
        assert_eq!(scale("0.mlp.gate_proj", 4), 1.75, "7 / 4");
        assert_eq!(scale("1.mlp.gate_proj", 4), 2.0, "8 / 4");
        let text = text.replace("\"r\": 4", "\"r\": 4, \"use_rslora\": true");
        assert_eq!(
            PeftAdapter::from_json(&text).unwrap().scale("model.layers.0.self_attn.v_proj", 16),
            2.0,
            "8 / 4"
        );
    }

    #[test]
    fn what_is_not_modelled_is_refused_together() {
        let text = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "use_dora": true,
            "modules_to_save": ["lm_head"], "bias": "all", "lora_bias": true, "init_lora_weights": "pissa_niter_16",
            "alpha_pattern": {"(?!a)b": 1}}"#;
        let problems = PeftAdapter::from_json(text).unwrap_err();
        for key in ["use_dora", "modules_to_save", "bias", "lora_bias", "init_lora_weights", "alpha_pattern"]
        {
            assert!(
                problems.to_string().contains(&format!("{FILE}: {key}: is not modelled")),
                "{key}: {problems}"
            );
        }
        assert_eq!(problems.items().len(), 6, "{problems}");
        assert_eq!(PeftAdapter::from_json("{}").unwrap_err().items().len(), 2);
        let text = r#"{"r": 4, "lora_alpha": 8, "alpha_pattern": {"a": "x"}}"#;
        assert!(
            PeftAdapter::from_json(text)
                .unwrap_err()
                .to_string()
                .contains("is not an object of numbers by layer")
        );
    }
}
