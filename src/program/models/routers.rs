//! Sums over the routers of all layers, for their losses and for the tokens per expert.
//!
//! Input: the logits and the chosen experts of each router. Output: one row per layer with a
//! mixture, and the sums of the losses.
//!
//! Invariants: all sums are linear in tokens, so a shard of the tokens gives a partial sum. Padding
//! counts in no sum. Counts of tokens are constants for gradients.
//!
//! Not here: coefficients and the number of tokens. The caller multiplies by them.

use crate::base::DType;
use crate::config::{FeedForwardPart, Mixture, ModelConfig, Scores};
use crate::program::build::{Builder, Operand};
use crate::program::graph::Role;
use crate::program::op::Kind;

use super::layers::LayerInputs;
use super::{choice_of, input};

/// Losses of routers that a program computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterLosses {
    /// Whether to compute [`RouterSums::balance`].
    pub balance: bool,
    /// Whether to compute [`RouterSums::squares`].
    pub squares: bool,
}

/// Sums over the tokens of a program and the routers of all layers.
#[derive(Clone, Copy, Debug)]
pub struct RouterSums {
    /// `[m,e]` f32: tokens that each of the `m` layers with a mixture sends to each expert.
    pub tokens: Operand,
    /// `[]` f32: `Σₑ cₑ pₑ`, where `cₑ` counts the tokens of expert `e` in all layers, and `pₑ` is
    /// the sum of probabilities of `e`.
    pub balance: Option<Operand>,
    /// `[]` f32: the sum of `(ln Σₑ exp(logitₑ))²`.
    pub squares: Option<Operand>,
}

/// Returns the names of the biases of choices. Each has its place among the layers with a mixture,
/// which is a row of [`RouterSums::tokens`].
#[must_use]
pub fn choice_biases(config: &ModelConfig) -> Vec<(usize, String)> {
    let tensors = &config.family.table().tensors;
    let mixtures = config.mixtures().enumerate();
    let biases = mixtures.filter(|(_, (_, mixture))| mixture.router.has_choice_bias);
    biases.map(|(row, (layer, _))| (row, tensors.layer(layer, tensors.experts.choice_bias))).collect()
}

/// Inputs of the sums.
pub(super) struct RouterInputs {
    losses: RouterLosses,
    /// The input [`input::ROUTED`].
    routed: Operand,
    /// The same numbers as `[b,s,1]`, for sums with one row.
    as_row: Operand,
}

impl RouterInputs {
    pub(super) fn new(build: &mut Builder, [b, s]: [usize; 2], losses: RouterLosses) -> Self {
        let routed = build.input(input::ROUTED, [b, s], DType::F32);
        let as_row = build.op(Kind::Repeat { dim: 2, size: 1 }, &[routed]);
        Self { losses, routed, as_row }
    }
}

/// Sums of the layers so far, with one row per layer.
#[derive(Clone, Copy)]
pub(super) struct LayerSums {
    tokens: Operand,
    probabilities: Option<Operand>,
    squares: Option<Operand>,
}

impl LayerInputs<'_> {
    /// Adds the sums of a layer to the sums of earlier layers. Each layer has an op for each sum,
    /// because a pipeline stage exchanges values with its neighbours only.
    pub(super) fn router_sums(
        &self,
        build: &mut Builder,
        layer: usize,
        earlier: Option<LayerSums>,
    ) -> Option<LayerSums> {
        let inputs = self.routers.as_ref()?;
        let FeedForwardPart::Mixture(mixture) = &self.config.layer(layer).feed_forward else {
            return earlier.map(|sums| sums.passed_on(build));
        };
        let Some(own) = inputs.of_layer(build, layer, mixture) else { return earlier };
        let Some(earlier) = earlier else { return Some(own) };
        let rows = |build: &mut Builder, above, below| build.op(Kind::Concat { dim: 0 }, &[above, below]);
        let probabilities = earlier.probabilities.zip(own.probabilities);
        let squares = earlier.squares.zip(own.squares);
        Some(LayerSums {
            tokens: rows(build, earlier.tokens, own.tokens),
            probabilities: probabilities.map(|(above, below)| rows(build, above, below)),
            squares: squares.map(|(sum, own)| build.add(sum, own)),
        })
    }
}

impl RouterInputs {
    /// Returns the sums of one layer, with one row, or `None` if its router was refused.
    fn of_layer(&self, build: &mut Builder, layer: usize, mixture: &Mixture) -> Option<LayerSums> {
        let value = |name: String| build.program().find(Role::Result, &name).map(|id| build.operand(id));
        let of_router = |name: &str| value(format!("layers.{layer}.mlp.router.{name}"));
        let (logits, experts) = (of_router("logits")?, value(choice_of(layer))?);
        let probabilities = of_router("probabilities");
        let once = build.op(Kind::Expand { dims: vec![2] }, &[self.routed, experts]);
        let sent = build.op(Kind::PickGrad, &[experts, once, logits]);
        let row = |build: &mut Builder, x| build.matmul("bso,bse->oe", self.as_row, x);
        let tokens = row(build, sent);
        let probabilities = self.losses.balance.then(|| {
            let probabilities = match (mixture.router.scores, probabilities) {
                (Scores::Softmax, Some(known)) => known,
                _ => build.op(Kind::Softmax, &[logits]),
            };
            row(build, probabilities)
        });
        let squares = self.losses.squares.then(|| {
            let log = build.op(Kind::LogSumExp, &[logits]);
            let square = build.mul(log, log);
            build.matmul("bs,bs->", square, self.routed)
        });
        Some(LayerSums { tokens, probabilities, squares })
    }
}

impl LayerSums {
    /// Copies the sums in a layer without a mixture.
    fn passed_on(self, build: &mut Builder) -> Self {
        let mut copy = |sum| build.op(Kind::Scale { by: 1.0 }, &[sum]);
        Self {
            tokens: copy(self.tokens),
            probabilities: self.probabilities.map(&mut copy),
            squares: self.squares.map(&mut copy),
        }
    }

    /// Adds the sums over all layers.
    pub(super) fn of_all_layers(self, build: &mut Builder) -> RouterSums {
        let balance = self.probabilities.map(|probabilities| {
            let [tokens, probabilities] =
                [self.tokens, probabilities].map(|rows| build.op(Kind::ReduceSum { dim: 0 }, &[rows]));
            build.matmul("e,e->", tokens, probabilities)
        });
        RouterSums { tokens: self.tokens, balance, squares: self.squares }
    }
}
