//! Low-rank adapters (LoRA): which linear layers have one, and how it counts.
//!
//! Input → output: `adapter_config.json` of peft, a recipe or a line of options → [`Lora`], or
//! every problem of it. Invariant: what a file says and nobody here reads is a problem, unless it
//! is known to change nothing.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fields::parse_object;
use crate::base::{Diagnostic, Diagnostics};

/// What stands before a layer's name in peft's files.
pub const PEFT_PREFIX: &str = "base_model.model.";

/// In the place of targets: every linear layer but the head.
pub const ALL_LINEAR: &str = "all-linear";

/// Keys of peft that change nothing: where things come from, and what counts while an adapter is
/// made or trained alone.
const NEUTRAL: [&str; 12] = [
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "inference_mode",
    "init_lora_weights",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// Adapters beside linear layers: `y = x Wᵀ + alpha / rank · (x Aᵀ) Bᵀ`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// Rows of `A` and columns of `B`.
    pub rank: usize,
    /// What the product is multiplied by, times the rank.
    pub alpha: f64,
    /// Last parts of the names of the layers, such as `q_proj`; or [`ALL_LINEAR`] alone.
    pub targets: Vec<String>,
}

impl Lora {
    /// What the product of both factors is multiplied by.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Whether the linear layer of this name, `model.layers.0.self_attn.q_proj`, has an adapter.
    #[must_use]
    pub fn is_target(&self, layer: &str) -> bool {
        let last = layer.rsplit('.').next().unwrap_or(layer);
        self.targets.iter().any(|target| target == ALL_LINEAR || target == last)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// All that cannot be.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        if self.rank == 0 {
            problems.push(Diagnostic::new("lora: rank", "cannot be").expected("a number above 0").found(0));
        }
        if !self.alpha.is_finite() || self.alpha == 0.0 {
            problems.push(
                Diagnostic::new("lora: alpha", "cannot be").expected("a number but 0").found(self.alpha),
            );
        }
        if self.targets.is_empty() {
            let expected = format!("names of linear layers such as q_proj, or {ALL_LINEAR}");
            problems.push(Diagnostic::new("lora: targets", "there are none").expected(expected));
        }
        problems.into_result(())
    }

    /// Reads peft's `adapter_config.json`.
    ///
    /// # Errors
    /// No JSON, another kind of adapter, or anything that changes numbers in a way that is not
    /// modelled.
    pub fn from_json(text: &str) -> Result<Self, Diagnostics> {
        const FILE: &str = "adapter_config.json";
        let object: Map<String, Value> = parse_object(FILE, text)?;
        let mut problems = Diagnostics::new();
        let mut wrong = |key: &str, expected: &str, found: &Value| {
            let problem = Diagnostic::new(format!("{FILE}: {key}"), "is not modelled");
            problems.push(problem.expected(expected).found(found));
        };
        let (mut rank, mut alpha, mut targets, mut is_by_root) = (None, None, None, false);
        for (key, value) in &object {
            match key.as_str() {
                "peft_type" if value == "LORA" => {}
                "peft_type" => wrong(key, "LORA", value),
                "bias" if value == "none" => {}
                "bias" => wrong(key, "none", value),
                "r" => rank = value.as_u64().and_then(|rank| usize::try_from(rank).ok()),
                "lora_alpha" => alpha = value.as_f64(),
                "use_rslora" => is_by_root = value == true,
                "target_modules" if value == ALL_LINEAR => targets = Some(vec![ALL_LINEAR.to_owned()]),
                "target_modules" => {
                    let names = value
                        .as_array()
                        .map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
                    match names.flatten() {
                        Some(names) => targets = Some(names.into_iter().map(str::to_owned).collect()),
                        None => wrong(key, "a list of names", value),
                    }
                }
                key if NEUTRAL.contains(&key) || is_empty(value) => {}
                key => wrong(key, "nothing", value),
            }
        }
        for (key, is_there) in
            [("r", rank.is_some()), ("lora_alpha", alpha.is_some()), ("target_modules", targets.is_some())]
        {
            if !is_there && object.get(key).is_none_or(|value| !value.is_string()) {
                problems
                    .push(Diagnostic::new(format!("{FILE}: {key}"), "is missing, or no value of its kind"));
            }
        }
        problems.into_result(())?;
        let (rank, alpha, targets) =
            (rank.unwrap_or_default(), alpha.unwrap_or_default(), targets.unwrap_or_default());
        // There it is alpha over the root of the rank.
        let alpha = if is_by_root { alpha * (rank as f64).sqrt() } else { alpha };
        let found = Self { rank, alpha, targets };
        found.check().map(|()| found)
    }

    /// peft's `adapter_config.json`, for a model that came from `base`.
    #[must_use]
    pub fn to_json(&self, base: &str) -> Value {
        let targets = match self.targets.as_slice() {
            [all] if all == ALL_LINEAR => json!(all),
            names => json!(names),
        };
        json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "target_modules": targets,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "use_rslora": false,
            "use_dora": false,
        })
    }
}

/// Whether a value says that something is not used.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_used) => !is_used,
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        Value::Number(_) | Value::String(_) => false,
    }
}

impl FromStr for Lora {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not of the form rank=8,alpha=16,targets=q_proj+v_proj");
        let (mut rank, mut alpha, mut targets) = (None, None, Vec::new());
        for part in text.split(',') {
            match part.split_once('=').ok_or_else(wrong)? {
                ("rank", value) => rank = value.parse().ok(),
                ("alpha", value) => alpha = value.parse().ok(),
                ("targets", value) => targets = value.split('+').map(str::to_owned).collect(),
                _ => return Err(wrong()),
            }
        }
        let (rank, alpha) = rank.zip(alpha).ok_or_else(wrong)?;
        let found = Self { rank, alpha, targets };
        found.check().map_err(|problems| problems.to_string())?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lora() -> Lora {
        Lora { rank: 8, alpha: 16.0, targets: vec!["q_proj".to_owned(), "v_proj".to_owned()] }
    }

    #[test]
    fn a_line_and_a_file_say_the_same() {
        assert_eq!("rank=8,alpha=16,targets=q_proj+v_proj".parse(), Ok(lora()));
        assert_eq!(Lora::from_json(&lora().to_json("base").to_string()), Ok(lora()));
        assert!(
            lora().is_target("model.layers.3.self_attn.q_proj")
                && !lora().is_target("model.layers.3.mlp.up_proj")
        );
        for text in
            ["", "rank=8", "rank=0,alpha=1,targets=q_proj", "rank=8,alpha=16", "rank=8,alpha=16,target=q"]
        {
            assert!(text.parse::<Lora>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_of_peft_is_read_and_what_is_not_modelled_is_refused_together() {
        let text = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_rslora": true, "target_modules": "all-linear",
            "lora_dropout": 0.1, "bias": "none", "rank_pattern": {}, "modules_to_save": null, "loftq_config": {}}"#;
        let found = Lora::from_json(text).unwrap();
        assert_eq!((found.scale(), found.targets[0].as_str()), (4.0, "all-linear"));
        let text = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ".*q_proj", "use_dora": true,
            "rank_pattern": {"q_proj": 8}, "modules_to_save": ["lm_head"], "bias": "all"}"#;
        let problems = Lora::from_json(text).unwrap_err();
        assert_eq!(problems.items().len(), 5, "{problems}");
        assert_eq!(Lora::from_json("{}").unwrap_err().items().len(), 3);
    }
}
