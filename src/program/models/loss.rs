//! The loss of a decoder over whole sequences, for training.

use std::ops::Range;

use crate::base::Diagnostic;
use crate::base::{DType, Weights};
use crate::config::{ALL_LINEAR, Lora, ModelConfig};
use crate::program::build::{Builder, Operand};
use crate::program::op::Kind;

use super::names::Names;
use super::{LayerInputs, Layers, input, trained};

/// The values of a program that ends in a loss.
#[derive(Clone, Debug)]
pub struct Loss {
    /// `[]` f32: the negative logarithm of each label's probability times its weight, summed.
    pub loss: Operand,
    /// Every param that is trained, f32, in the order of the program.
    pub params: Vec<Operand>,
    /// The ops of each layer, by number.
    pub layers: Vec<Range<usize>>,
}

/// Writes a decoder over `batch` sequences of `sequence` tokens and its loss.
///
/// Inputs are those of [`super::decoder`] without caches (`ids`, `mask[b,s,s]`, `cos`, `sin`,
/// `logn`), and [`input::LABELS`] and [`input::LABEL_WEIGHTS`]. Params, residual stream, norms,
/// softmax and loss are f32; products and attention are of type `products`. Logits may be cut along
/// the vocabulary: they are never whole on a card for the loss.
///
/// Where the head is the embedding, it is one param of two uses, or with `copies_table` a param of
/// its own, called [`super::COPY`] and the embedding's name: whoever moves weights has to add both
/// gradients and to keep both alike.
///
/// With `lora` only the adapters are trained; matrices and biases are of type `products` then.
///
/// Problems are found by [`Builder::finish`]: targets that no linear layer is called by.
pub fn loss(
    build: &mut Builder,
    config: &ModelConfig,
    batch: usize,
    sequence: usize,
    products: DType,
    lora: Option<&Lora>,
    copies_table: bool,
) -> Loss {
    let (b, s, d) = (batch, sequence, config.head_dim);
    let names = Names::of(config.family);
    let ids = build.input(input::IDS, [b, s], DType::I64);
    let mask = build.input(input::MASK, [b, s, s], DType::Bool);
    let cos = build.input(input::COS, [b, s, d], products);
    let sin = build.input(input::SIN, [b, s, d], products);
    let logn = config.logn.is_some().then(|| build.input(input::LOGN, [b, s, 1, 1, 1], products));
    let labels = build.input(input::LABELS, [b, s], DType::I64);
    let weights = build.input(input::LABEL_WEIGHTS, [b, s], DType::F32);
    let shared = LayerInputs {
        config,
        names,
        batch,
        caches: None,
        stored: DType::F32,
        dtype: products,
        weights: Weights::Float,
        lora,
        mask,
        cos,
        sin,
        logn,
    };
    let Layers { x, table, ops: layers } = shared.layers(build, ids);
    let x = shared.cast(build, x, products);
    let head = shared.head(build, table, copies_table);
    let head = shared.cast(build, head, products);
    let logits = build.matmul("bsh,vh->bsv", x, head);
    let logits = build.name(logits, "logits");
    let logits = shared.cast(build, logits, DType::F32);
    let largest = build.op(Kind::ReduceMax { dim: 2 }, &[logits]);
    let sum = build.op(Kind::SumExp, &[logits, largest]);
    let chosen = build.op(Kind::LogProbability, &[logits, labels, largest, sum]);
    let chosen = build.name(chosen, "log_probability");
    let total = build.matmul("bs,bs->", chosen, weights);
    let loss = build.op(Kind::Scale { by: -1.0 }, &[total]);
    let loss = build.name(loss, "loss");
    for target in lora.into_iter().flat_map(|lora| &lora.targets).filter(|target| *target != ALL_LINEAR) {
        let linear = names.linear();
        if !linear.contains(&target.as_str()) {
            let problem = Diagnostic::new("lora: targets", "no linear layer of the model is called so");
            build
                .problem(problem.expected(format!("of {} or {ALL_LINEAR}", linear.join(", "))).found(target));
        }
    }
    let params = trained(build.program()).into_iter().map(|id| build.operand(id)).collect();
    Loss { loss, params, layers }
}
