//! Losses of routers, and the tokens of each expert.
//!
//! Input: sums over the tokens of each micro-batch, from
//! [`RouterSums`](crate::program::models::RouterSums). Output: the losses of the step, without
//! their coefficients, and the tokens per expert.
//!
//! The auxiliary loss of a micro-batch is `E · Σₑ fₑ pₑ`. Here `fₑ` is the number of choices of
//! expert `e` per token, and `pₑ` is its mean probability. Both are means over all tokens of the
//! micro-batch on all cards, and over all layers with a mixture. The z-loss is the mean of `(ln Σₑ
//! exp(logitₑ))²` over the same tokens and layers. The losses of a step are the means of its
//! micro-batches, weighted by their tokens.

use std::cmp::Ordering;

use crate::base::{Diagnostic, Diagnostics};
use crate::config::{ModelConfig, Scores};
use crate::exec::{self, Shards};
use crate::program::models::{RouterLosses, choice_biases};

use super::compile::Layout;
use super::program::name;
use super::recipe::Recipe;

/// Figures of the routers in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterOutcome {
    /// Mean auxiliary loss before the update, without its coefficient, if the recipe has one.
    pub aux_loss: Option<f64>,
    /// Mean z-loss before the update, without its coefficient, if the recipe has one.
    pub z_loss: Option<f64>,
    /// Number of tokens that each layer with a mixture sends to each expert.
    pub tokens: Vec<Vec<u64>>,
}

impl RouterOutcome {
    pub(super) fn new(config: &ModelConfig, recipe: &Recipe) -> Option<Self> {
        let RouterLosses { balance, squares } = losses(recipe);
        let none = |is_computed: bool| is_computed.then_some(0.0);
        let tokens: Vec<Vec<u64>> = config.mixtures().map(|(_, mixture)| vec![0; mixture.experts]).collect();
        (!tokens.is_empty()).then(|| Self { aux_loss: none(balance), z_loss: none(squares), tokens })
    }

    /// Adds an output of a micro-batch.
    pub(super) fn add(&mut self, output: &str, values: &[f32], factors: RouterFactors) {
        let add = |to: &mut Option<f64>, factor: f64| {
            let sums = to.iter_mut().zip(values);
            sums.for_each(|(sum, value)| *sum += factor * f64::from(*value));
        };
        match output {
            name::ROUTER_BALANCE => add(&mut self.aux_loss, factors.balance),
            name::ROUTER_SQUARES => add(&mut self.z_loss, factors.squares),
            name::ROUTER_TOKENS => {
                let counts = self.tokens.iter_mut().flatten().zip(values);
                counts.for_each(|(count, tokens)| *count += *tokens as u64);
            }
            _ => {}
        }
    }

    /// Returns the tokens of the fullest expert over the mean of the layer, for the layer where the
    /// ratio is largest.
    #[must_use]
    pub fn largest_over_mean(&self) -> f64 {
        let of_layer = |tokens: &Vec<u64>| {
            let (largest, sum) = (tokens.iter().max().copied().unwrap_or(0), tokens.iter().sum::<u64>());
            (largest * tokens.len() as u64) as f64 / sum.max(1) as f64
        };
        self.tokens.iter().map(of_layer).fold(0.0, f64::max)
    }
}

/// Moves the biases of choices by `rate`: up for experts with fewer tokens than the mean of their
/// layer, down for experts with more.
///
/// All ranks have the same counts, so a replicated bias stays equal on all ranks.
pub(super) fn move_biases(
    shards: &Shards<'_>,
    config: &ModelConfig,
    routers: &RouterOutcome,
    rate: f32,
) -> Result<(), exec::Error> {
    let biases = choice_biases(config);
    for part in shards.weights().iter().flatten() {
        let tensor = part.tensor();
        let Some((row, _)) = biases.iter().find(|(_, name)| *name == tensor.name) else { continue };
        let tokens = &routers.tokens[*row];
        let (count, sum) = (tokens.len() as u64, tokens.iter().sum::<u64>());
        let old = part.read()?;
        let numbers = old.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let own = tokens[tensor.ranges[0].clone()].iter();
        let moved = numbers.zip(own).map(|(bias, tokens)| match (tokens * count).cmp(&sum) {
            Ordering::Less => bias + rate,
            Ordering::Equal => bias,
            Ordering::Greater => bias - rate,
        });
        let moved: Vec<u8> = moved.flat_map(f32::to_le_bytes).collect();
        part.write(0, &moved)?;
    }
    Ok(())
}

/// Factors of the sums of one micro-batch in the losses of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouterFactors {
    pub(super) balance: f64,
    pub(super) squares: f64,
}

impl RouterFactors {
    pub(super) fn of(config: &ModelConfig, recipe: &Recipe, layout: &Layout, micro_batch: usize) -> Self {
        let batch = layout.batch();
        let sequences = recipe.global_batch.saturating_sub(micro_batch * batch).min(batch).max(1);
        let [tokens, of_step] = [sequences, recipe.global_batch].map(|count| (count * recipe.seq) as f64);
        let layers = config.mixtures().count().max(1) as f64;
        let experts = config.mixtures().map(|(_, mixture)| mixture.experts).max().unwrap_or(0) as f64;
        Self { balance: experts / (layers * layers * tokens * of_step), squares: (layers * of_step).recip() }
    }

    /// Returns the cotangents of the sums, by the names of their inputs.
    pub(super) fn cotangents(self, recipe: &Recipe, loss_scale: f64) -> Vec<(&'static str, f32)> {
        let all = [
            (name::BALANCE_SCALE, recipe.aux_loss, self.balance),
            (name::SQUARES_SCALE, recipe.z_loss, self.squares),
        ];
        let used = all.into_iter().filter(|(_, coefficient, _)| *coefficient > 0.0);
        used.map(|(name, coefficient, factor)| (name, (coefficient * factor * loss_scale) as f32)).collect()
    }
}

/// Returns the losses that the programs of a recipe compute.
pub(super) fn losses(recipe: &Recipe) -> RouterLosses {
    RouterLosses { balance: recipe.aux_loss > 0.0, squares: recipe.z_loss > 0.0 }
}

/// Refuses losses of routers that the model does not have.
pub(super) fn check(config: &ModelConfig, recipe: &Recipe) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let given = [("aux_loss", recipe.aux_loss), ("z_loss", recipe.z_loss)];
    for (key, coefficient) in given.into_iter().filter(|(_, coefficient)| *coefficient > 0.0) {
        let refuse = |what: &str| Diagnostic::new(format!("recipe: {key}"), what).found(coefficient);
        if !config.has_mixture() {
            let problem = refuse("the model has no router").expected("0, or a mixture of experts");
            problems.push(problem.help(format!("remove {}", option(key))));
        } else if key == "aux_loss" && config.mixtures().any(|(_, of)| of.router.scores == Scores::Sigmoid) {
            let problem = refuse("the scores of a router by sigmoid are not the shares of its experts");
            let help = "remove --aux-loss, or use --router-bias-rate if the router has a bias";
            problems.push(problem.expected("0").help(help));
        }
    }
    let rate = recipe.router_bias_rate;
    let refuse = |what: &str| Diagnostic::new("recipe: router_bias_rate", what).found(rate);
    if rate > 0.0 && choice_biases(config).is_empty() {
        let problem = refuse("the model has no biases of choices").expected("0");
        problems.push(problem.help("remove --router-bias-rate, or use --aux-loss"));
    } else if rate > 0.0 && recipe.lora.is_some() {
        let problem = refuse("adapters have no place for the biases of choices").expected("0");
        problems.push(problem.help("remove --router-bias-rate or --lora"));
    }
    problems.into_result(())
}

fn option(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}
