//! Low-rank adapters (LoRA): the linear layers that have an adapter, its rank and its scale.
//!
//! Input: a recipe or a command line option. Output: a [`Lora`], or all problems; peft's
//! `adapter_config.json`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::base::{Diagnostic, Diagnostics};

/// Prefix of a layer's name in peft's files.
pub const PEFT_PREFIX: &str = "base_model.model.";

/// Value of the targets that selects every linear layer except the head.
pub const ALL_LINEAR: &str = "all-linear";

/// Adapters of linear layers: `y = x Wᵀ + alpha / rank · (x Aᵀ) Bᵀ`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// Number of rows of `A` and of columns of `B`.
    pub rank: usize,
    /// Scale of the product, times the rank.
    pub alpha: f64,
    /// Last parts of the names of the layers, such as `q_proj`, or [`ALL_LINEAR`] alone.
    pub targets: Vec<String>,
}

impl Lora {
    /// Returns the scale of the product of both factors.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Returns whether a linear layer has an adapter, given a name such as
    /// `model.layers.0.self_attn.q_proj`.
    #[must_use]
    pub fn is_target(&self, layer: &str) -> bool {
        let last = layer.rsplit('.').next().unwrap_or(layer);
        self.targets.iter().any(|target| target == ALL_LINEAR || target == last)
    }

    /// Checks all values.
    ///
    /// # Errors
    /// Every value that is not possible.
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

    /// Returns peft's `adapter_config.json` for an adapter of the model `base`.
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
    fn a_line_gives_the_adapters() {
        assert_eq!("rank=8,alpha=16,targets=q_proj+v_proj".parse(), Ok(lora()));
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
}
