//! The loss of a decoder over whole sequences, for training.

use std::ops::Range;

use crate::base::{DType, KvType, Weights};
use crate::config::{Lora, ModelConfig};
use crate::program::build::{Builder, Operand};
use crate::program::op::Kind;

use super::adapters::{Adapters, check_targets};
use super::layers::{LayerInputs, Layers, TokenInputs};
use super::routers::{RouterInputs, RouterLosses, RouterSums};
use super::{input, trained};

/// The values of a program that ends in a loss.
#[derive(Clone, Debug)]
pub struct Loss {
    /// `[]` f32: the weighted sum of the negative logarithms of the labels' probabilities.
    pub loss: Operand,
    /// All trained params, f32, in the order of the program.
    pub params: Vec<Operand>,
    /// Ops of each layer, by number.
    pub layers: Vec<Range<usize>>,
    /// Sums over the routers of a model with experts.
    pub routers: Option<RouterSums>,
}

/// Builds a decoder over `b` sequences of `s` tokens, and its loss.
///
/// Inputs are the inputs of [`super::decoder`] without caches, [`input::LABELS`] and
/// [`input::LABEL_WEIGHTS`]. Params, the residual stream, norms, softmax and loss are f32. Products
/// and attention are of type `products`. Logits can be sharded along the vocabulary. The loss never
/// needs all logits on one card.
///
/// If the head is the embedding, it is one param with two uses. With `copies_table` it is a
/// separate param, named [`super::COPY`] and the embedding's name. The caller must then add both
/// gradients and keep both params equal.
///
/// A model with experts also reads [`input::ROUTED`], and `routers` are the losses of its routers
/// that the program computes. They are not part of the loss.
///
/// With `lora`, only the adapters are trained, and matrices and biases are of type `products`.
///
/// [`Builder::finish`] reports problems, such as targets that name no linear layer.
pub fn loss(
    build: &mut Builder,
    config: &ModelConfig,
    [b, s]: [usize; 2],
    products: DType,
    lora: Option<&Lora>,
    copies_table: bool,
    routers: RouterLosses,
) -> Loss {
    let ids = build.input(input::IDS, [b, s], DType::I64);
    let tokens = TokenInputs::of_run(build, config, [b, s], products);
    let labels = build.input(input::LABELS, [b, s], DType::I64);
    let weights = build.input(input::LABEL_WEIGHTS, [b, s], DType::F32);
    let adapters = lora.map(Adapters::Trained);
    let routers = config.has_mixture().then(|| RouterInputs::new(build, [b, s], routers));
    let shared = LayerInputs {
        config,
        stored: DType::F32,
        dtype: products,
        weights: Weights::Unpacked,
        kv: KvType::Activations,
        adapters,
        tokens,
        routers,
    };
    let table = shared.table(build);
    let embedded = shared.embedded(build, ids, table);
    let Layers { x, ops: layers, routers } = shared.layers(build, embedded);
    let x = shared.cast(build, x, products);
    let head = shared.head(build, table, copies_table);
    let head = shared.cast(build, head, products);
    let logits = build.matmul("bsh,vh->bsv", x, head);
    let logits = shared.capped(build, logits);
    let logits = build.name(logits, "logits");
    let logits = shared.cast(build, logits, DType::F32);
    let largest = build.op(Kind::ReduceMax { dim: 2 }, &[logits]);
    let sum = build.op(Kind::SumExp, &[logits, largest]);
    let chosen = build.op(Kind::LogProbability, &[logits, labels, largest, sum]);
    let chosen = build.name(chosen, "log_probability");
    let total = build.matmul("bs,bs->", chosen, weights);
    let loss = build.op(Kind::Scale { by: -1.0 }, &[total]);
    let loss = build.name(loss, "loss");
    if let Some(lora) = lora {
        check_targets(build, config, lora);
    }
    let params = trained(build.program()).into_iter().map(|id| build.operand(id)).collect();
    let routers = routers.map(|sums| sums.of_all_layers(build));
    Loss { loss, params, layers, routers }
}
