//! Training recipe, the contents of `recipe.toml`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::{DType, Diagnostic, Diagnostics};
use crate::config::Lora;
use crate::program::tree::SumOrder;
use crate::schedule::pipeline::Pipeline;

use super::choices::Routing;
use super::compress::Compress;
use super::data::MOST_TOKENS;
use super::loss_scale::{LossScale, LossScaling};
use super::optimizer::Optimizer;

/// Settings of a training run. The defaults suit a small model.
///
/// ```
/// use ascend_tp::train::{Optimizer, Recipe};
///
/// let recipe = Recipe::parse("steps = 100\nseq = 64\noptimizer = { name = \"sgd\" }")?;
/// assert_eq!(recipe.seq, 64);
/// assert!(matches!(recipe.optimizer, Optimizer::Sgd { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// Number of optimizer steps.
    pub steps: usize,
    /// Sequences per step, over all cards.
    pub global_batch: usize,
    /// Predicted tokens per sequence.
    pub seq: usize,
    /// Element type of products and attention. Everything else is f32.
    pub precision: TrainingPrecision,
    /// Largest norm of all gradients. 0 disables clipping.
    pub clip_norm: f64,
    /// Coefficient of the loss that balances the experts of a mixture, as in Mixtral and Qwen. 0
    /// disables it.
    pub aux_loss: f64,
    /// Coefficient of the mean square of the routers' `ln Σ exp(logit)`. 0 disables it.
    pub z_loss: f64,
    /// Change of the bias of each expert's choice in a step, as in DeepSeek-V3. 0 leaves the biases
    /// unchanged.
    pub router_bias_rate: f64,
    /// Update rule of the weights.
    pub optimizer: Optimizer,
    /// Learning rate by step.
    pub schedule: Schedule,
    /// Loss scale of products in f16.
    pub loss_scale: LossScaling,
    /// Order of micro-batches in the pipeline.
    pub pipeline: Pipeline,
    /// Adapters, if only they are trained.
    pub lora: Option<Lora>,
    /// Compression of gradient sums.
    pub compress: Option<Compress>,
    /// True if every sum has one order, so that all layouts give the same bits.
    pub exact: bool,
    /// Who chooses the experts of each token.
    #[doc(hidden)]
    #[serde(skip)]
    pub routing: Routing,
}

/// Element type of products and attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainingPrecision {
    /// f32, the type of stored weights.
    F32,
    /// bf16, with the exponent range of f32.
    Bf16,
    /// f16 with a dynamic loss scale.
    F16,
}

#[doc(hidden)]
impl TrainingPrecision {
    /// Returns the element type of products and attention.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

impl FromStr for TrainingPrecision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            "f16" => Ok(Self::F16),
            _ => Err(format!("`{name}` is not a precision of training; expected f32, bf16 or f16")),
        }
    }
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            steps: 300,
            global_batch: 8,
            seq: 256,
            precision: TrainingPrecision::F32,
            clip_norm: 1.0,
            aux_loss: 0.0,
            z_loss: 0.0,
            router_bias_rate: 0.0,
            optimizer: Optimizer::default(),
            schedule: Schedule::default(),
            pipeline: Pipeline::default(),
            lora: None,
            compress: None,
            exact: false,
            loss_scale: LossScaling::default(),
            routing: Routing::default(),
        }
    }
}

/// Learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Constant `lr` after the warm-up.
    Constant,
    /// Linear decay from `lr` to `min_lr`.
    Linear,
    /// Cosine decay from `lr` to `min_lr`.
    Cosine,
    /// Constant `lr`, then linear decay to `min_lr` over the last fifth after the warm-up.
    Wsd,
}

impl FromStr for ScheduleKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "constant" => Ok(Self::Constant),
            "linear" => Ok(Self::Linear),
            "cosine" => Ok(Self::Cosine),
            "wsd" => Ok(Self::Wsd),
            _ => Err(format!("`{text}` is none of constant, linear, cosine and wsd")),
        }
    }
}

/// Learning rate by step, with a linear warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// Schedule after the warm-up.
    pub name: ScheduleKind,
    /// Peak learning rate of the schedule.
    pub lr: f64,
    /// Minimum learning rate at the end.
    pub min_lr: f64,
    /// Steps until the peak learning rate.
    pub warmup_steps: usize,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { name: ScheduleKind::Cosine, lr: 1e-3, min_lr: 1e-4, warmup_steps: 20 }
    }
}

#[doc(hidden)]
impl Schedule {
    /// Share of the steps after the warm-up over which `Wsd` decays.
    const DECAY: f64 = 0.2;

    /// Returns the learning rate of `step`, from 0, out of `steps`.
    #[must_use]
    pub fn rate(&self, step: usize, steps: usize) -> f64 {
        if step < self.warmup_steps {
            return self.lr * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let all = steps.saturating_sub(self.warmup_steps).max(1) as f64;
        let progress = ((step - self.warmup_steps) as f64 / all).min(1.0);
        let falls = |share: f64| self.min_lr + (self.lr - self.min_lr) * share;
        match self.name {
            ScheduleKind::Constant => self.lr,
            ScheduleKind::Linear => falls(1.0 - progress),
            ScheduleKind::Cosine => falls((1.0 + (std::f64::consts::PI * progress).cos()) / 2.0),
            ScheduleKind::Wsd => falls(((1.0 - progress) / Self::DECAY).min(1.0)),
        }
    }
}

impl Recipe {
    /// Returns the order of sums.
    #[must_use]
    #[doc(hidden)]
    pub const fn order(&self) -> SumOrder {
        if self.exact { SumOrder::Tree } else { SumOrder::AsTheyCome }
    }

    /// Reads a recipe in TOML, or in JSON if the text begins with a brace.
    ///
    /// # Errors
    /// A syntax error or an unknown key with its line, or every invalid value.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        let text = text.trim_start_matches('\u{feff}');
        let refuse = |line: usize, what: &str| Diagnostic::new(format!("recipe: line {line}"), what);
        let recipe: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| {
                let (what, place) =
                    (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
                refuse(error.line(), what.strip_suffix(&place).unwrap_or(&what))
            })?
        } else {
            toml::from_str(text).map_err(|error| {
                let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                refuse(line, error.message())
            })?
        };
        recipe.check().map(|()| recipe)
    }

    /// Checks the values of the recipe.
    ///
    /// # Errors
    /// Every invalid value.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut need = |key: &str, expected: &str, found: String, holds: bool| {
            if !holds {
                problems.push(
                    Diagnostic::new(format!("recipe: {key}"), "cannot be").expected(expected).found(found),
                );
            }
        };
        let positive = "a number above 0";
        for (key, value) in [("steps", self.steps), ("global_batch", self.global_batch), ("seq", self.seq)] {
            need(key, positive, value.to_string(), value > 0);
        }
        let tokens = self.global_batch.checked_mul(self.seq);
        let tokens_of_step = format!("{} sequences of {} tokens", self.global_batch, self.seq);
        let fits = tokens.is_some_and(|tokens| tokens <= MOST_TOKENS);
        need("global_batch and seq", &format!("at most {MOST_TOKENS} tokens a step"), tokens_of_step, fits);
        let not_negative = |value: f64| value.is_finite() && value >= 0.0;
        let Schedule { lr, min_lr, .. } = self.schedule;
        need("schedule.lr", positive, lr.to_string(), lr.is_finite() && lr > 0.0);
        need("schedule.min_lr", "0 to lr", min_lr.to_string(), not_negative(min_lr) && min_lr <= lr);
        for (key, value) in [
            ("clip_norm", self.clip_norm),
            ("aux_loss", self.aux_loss),
            ("z_loss", self.z_loss),
            ("router_bias_rate", self.router_bias_rate),
        ] {
            need(key, "0 (none) or more", value.to_string(), not_negative(value));
        }
        let LossScaling { initial, growth_steps, hysteresis } = self.loss_scale;
        let scales = LossScale::LEAST..=LossScale::MOST;
        need(
            "loss_scale.initial",
            "1 to 2^127, as f32 holds it",
            initial.to_string(),
            scales.contains(&initial),
        );
        for (key, value) in [("loss_scale.growth_steps", growth_steps), ("loss_scale.hysteresis", hysteresis)]
        {
            need(key, positive, value.to_string(), value > 0);
        }
        match self.optimizer {
            Optimizer::Adamw { betas, eps, weight_decay } => {
                for (beta, key) in betas.into_iter().zip(["optimizer.betas[0]", "optimizer.betas[1]"]) {
                    need(key, "at least 0 and below 1", beta.to_string(), (0.0..1.0).contains(&beta));
                }
                need("optimizer.eps", positive, eps.to_string(), eps.is_finite() && eps > 0.0);
                let key = "optimizer.weight_decay";
                need(key, "0 or more", weight_decay.to_string(), not_negative(weight_decay));
            }
            Optimizer::Sgd { momentum, weight_decay } => {
                need(
                    "optimizer.momentum",
                    "at least 0 and below 1",
                    momentum.to_string(),
                    (0.0..1.0).contains(&momentum),
                );
                let key = "optimizer.weight_decay";
                need(key, "0 or more", weight_decay.to_string(), not_negative(weight_decay));
            }
        }
        if let Some(Err(found)) = self.lora.as_ref().map(Lora::check) {
            problems.append(found);
        }
        problems.into_result(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_keeps_what_it_says_and_the_rest_is_default() {
        let text = "steps = 40\n[optimizer]\nname = \"sgd\"\nmomentum = 0.5\n[schedule]\nname = \"linear\"\nlr = 0.1\n";
        let recipe = Recipe::parse(text).unwrap();
        assert_eq!((recipe.steps, recipe.seq), (40, Recipe::default().seq));
        assert_eq!(recipe.optimizer, Optimizer::Sgd { momentum: 0.5, weight_decay: 0.0 });
        assert_eq!(Recipe::parse(&toml::to_string(&recipe).unwrap()).unwrap(), recipe);
    }

    #[test]
    fn keys_that_are_misspelt_and_values_that_cannot_be_are_said() {
        let error = Recipe::parse("steps = 4\nclipnorm = 1.0\n").unwrap_err().to_string();
        assert!(error.starts_with("recipe: line 2: unknown field `clipnorm`"), "{error}");
        let error = Recipe::parse("steps = 0\nseq = 0\n[schedule]\nlr = -1.0\n").unwrap_err().to_string();
        for place in ["recipe: steps", "recipe: seq", "recipe: schedule.lr", "recipe: schedule.min_lr"] {
            assert!(error.contains(place), "{error}");
        }
    }

    #[test]
    fn a_recipe_in_json_is_read_like_one_in_toml() {
        let toml = "steps = 40\n[optimizer]\nname = \"sgd\"\nmomentum = 0.5\n[schedule]\nname = \"linear\"\nlr = 1\nmin_lr = 0\n";
        let json = r#" {"steps": 40, "optimizer": {"name": "sgd", "momentum": 0.5},
            "schedule": {"name": "linear", "lr": 1, "min_lr": 0}}"#;
        let recipe = Recipe::parse(json).unwrap();
        assert_eq!(recipe, Recipe::parse(toml).unwrap());
        assert_eq!(Recipe::parse(&serde_json::to_string_pretty(&recipe).unwrap()).unwrap(), recipe);
        for (text, expected) in [
            ("{\n\"clipnorm\": 1}", "recipe: line 2: unknown field `clipnorm`, expected one of"),
            (
                "{\"steps\": 4,\n\"seq\": \"long\"}",
                "recipe: line 2: invalid type: string \"long\", expected usize",
            ),
            ("{\"steps\": 4", "recipe: line 1: EOF while parsing an object"),
            ("{\"steps\": 0}", "recipe: steps: cannot be: expected a number above 0, found 0"),
            ("{\"optimizer\": {\"name\": \"adam\"}}", "recipe: line 1: unknown variant `adam`"),
        ] {
            let error = Recipe::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn rates_meet_where_their_parts_meet() {
        let schedule = |name| Schedule { name, lr: 1.0, min_lr: 0.1, warmup_steps: 4 };
        for name in [ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine, ScheduleKind::Wsd] {
            let schedule = schedule(name);
            assert_eq!([0, 1, 2, 3].map(|step| schedule.rate(step, 24)), [0.25, 0.5, 0.75, 1.0]);
            assert_eq!(schedule.rate(4, 24), 1.0);
        }
        assert!((schedule(ScheduleKind::Linear).rate(14, 24) - 0.55).abs() < 1e-12);
        assert!((schedule(ScheduleKind::Cosine).rate(14, 24) - 0.55).abs() < 1e-12);
        assert!((schedule(ScheduleKind::Wsd).rate(20, 24) - 1.0).abs() < 1e-12);
        assert!((schedule(ScheduleKind::Wsd).rate(22, 24) - 0.55).abs() < 1e-12);
    }
}
