//! Decoder-only Transformers as single-card programs.
//!
//! Input: a [`ModelConfig`] and the sizes of one run. Output: a [`Program`]. Shape letters: b
//! batch, s sequence, n blocks of the cache, t rows of a block, w blocks of a sequence, h hidden, k
//! key heads, g query heads per key head, d head size, r rotated dims, f intermediate, v
//! vocabulary.
//!
//! Invariants: one builder builds every layer description that it supports, and refuses other ones
//! by name. It never asks for the family. Inputs, states and params have the same names in all
//! programs of a model, so prefill and decode programs share weights and caches. Values of the
//! residual stream are named `residual.…`, so pins find them.
//!
//! Not here: parallelism, which placement derives.

mod adapters;
mod attention;
mod caches;
mod candidates;
mod choices;
mod delta;
mod inputs;
mod latent;
mod layers;
mod loss;
mod mixture;
mod packed;
mod prediction;
mod routers;
mod stored;

use std::ops::Range;

use crate::base::{Diagnostics, Precision};
use crate::config::{Family, ModelConfig, PEFT_PREFIX};

use super::build::{Builder, Operand};
use super::graph::{Program, Role, ValueId};
use super::op::Kind;
use super::tree::SumOrder;
use crate::base::DType;

use adapters::Adapters;
pub(crate) use adapters::factor_tensor;
pub use caches::{
    CACHE_SCALES, CacheBlocks, CacheGroup, CacheInputs, CacheNames, CacheRow, RunShape, SequenceBlocks,
    StateInputs, StatePool, StateRow, cache_inputs, run_of, sequence_blocks,
};
pub(crate) use caches::{static_rows, static_states};
pub use candidates::CandidateSizes;
pub(crate) use candidates::KEPT_LOGITS;
pub use choices::ChosenExperts;
pub(crate) use choices::{choice_of, choices, give, given_name, has_choices, show};
pub use delta::CHUNK;
pub(crate) use delta::{OUT, RULE};
pub use inputs::{MaskInput, RotaryInput, masks, rotary_tables};
use layers::{LayerInputs, Layers, TokenInputs};
pub use loss::{Loss, loss};
pub use packed::{GroupDim, group_dims, unpacked};
pub use prediction::{
    PROPOSING_TOKENS, PredictionPart, check_prediction, predicting_decoder, prediction_logits,
};
pub use routers::{RouterLosses, RouterSums, choice_biases};
pub(crate) use stored::layer_of_weight;
pub use stored::{
    QuantisedWeight, StoredTensor, checkpoint_tensors, quantised_source, quantised_weight, stored_tensors,
};

/// Result of a decoder program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// `logits[b,s,v]` of every position.
    AllLogits,
    /// `logits[b,v]` of the position in input `last`.
    LastLogits,
    /// `token[b]`: the most likely token of that position, or an id outside of the vocabulary if
    /// the largest logit is NaN or infinite.
    LastToken,
    /// `candidates[b,s,p,2·n+1]` f32 of every position: for each of `p` equal parts of the
    /// vocabulary, the `n` largest logits, their ids within the part, and the logarithm of the sum
    /// of `exp(logit)`. The logits stay on the cards.
    AllCandidates(CandidateSizes),
    /// `candidates[b,p,2·n+1]` of the position in input `last`.
    LastCandidates(CandidateSizes),
}

impl Head {
    /// Returns whether the program has outputs for every position.
    #[must_use]
    #[doc(hidden)]
    pub const fn is_of_all(self) -> bool {
        matches!(self, Self::AllLogits | Self::AllCandidates(_))
    }

    /// Returns the sizes of the candidates, if they are the output.
    #[must_use]
    #[doc(hidden)]
    pub const fn candidates(self) -> Option<CandidateSizes> {
        match self {
            Self::AllCandidates(sizes) | Self::LastCandidates(sizes) => Some(sizes),
            Self::AllLogits | Self::LastLogits | Self::LastToken => None,
        }
    }

    /// Returns the name of the output.
    #[must_use]
    #[doc(hidden)]
    pub const fn output(self) -> &'static str {
        match self {
            Self::AllLogits | Self::LastLogits => "logits",
            Self::LastToken => "token",
            Self::AllCandidates(_) | Self::LastCandidates(_) => "candidates",
        }
    }
}

/// Names of the inputs of a decoder.
pub mod input {
    /// `[b,s]` i64: token ids.
    pub const IDS: &str = "ids";
    /// `[b,s]` i64: place of each token in the KV cache, counted over the rows of all blocks of the
    /// pool. Padding has a place in the null block.
    pub const SLOTS: &str = "slots";
    /// `[b,w]` i32: blocks of each sequence, in the order of the tokens. If all layers have a
    /// window, the first block is at or before the window of the first token.
    pub const TABLE: &str = "table";
    /// `[b,s]` i64: row of each token among the rows of the sequence's blocks. Padding has the row
    /// of the last token.
    pub const POSITIONS: &str = "positions";
    /// `[b]` i64: rows of each sequence that attention reads, up to the last token or padding.
    pub const LENGTHS: &str = "lengths";
    /// As [`SLOTS`], for layers with a window whose caches have a separate table.
    pub const WINDOW_SLOTS: &str = "window_slots";
    /// As [`TABLE`], for these layers. The first block is at or before the window of the first
    /// token.
    pub const WINDOW_TABLE: &str = "window_table";
    /// As [`POSITIONS`], for these layers.
    pub const WINDOW_POSITIONS: &str = "window_positions";
    /// As [`LENGTHS`], for these layers.
    pub const WINDOW_LENGTHS: &str = "window_lengths";
    /// `[b]` i64: state that each sequence reads, counted in its pool.
    pub const STATE_FROM: &str = "state_from";
    /// `[b]` i64: state that each sequence writes.
    pub const STATE_TO: &str = "state_to";
    /// `[b,w]` i64: the last tokens of each sequence that the next token's convolution reads,
    /// counted from `w` tokens before the run. Only for runs of several tokens.
    pub const LAST_TOKENS: &str = "last_tokens";
    /// `[b,s,1,1]` f32: 1 for a token, 0 for padding. Only for runs of several tokens.
    pub const VALID: &str = "valid";
    /// `[b,s,s]` bool: true hides a token from another one. Only for [`loss`](fn@super::loss).
    pub const MASK: &str = "mask";
    /// As [`MASK`], for layers with a sliding window.
    pub const WINDOW_MASK: &str = "window_mask";
    /// `[b,s,r]`: rotary cosines per token.
    pub const COS: &str = "cos";
    /// `[b,s,r]`: rotary sines per token.
    pub const SIN: &str = "sin";
    /// As [`COS`], for layers with the second rotary embedding.
    pub const LOCAL_COS: &str = "local_cos";
    /// As [`SIN`], for layers with the second rotary embedding.
    pub const LOCAL_SIN: &str = "local_sin";
    /// `[b,s,1,1,1]`: factor of queries beyond the trained length (original Qwen).
    pub const LOGN: &str = "logn";
    /// `[b,s]` i64: the token after each token. Only for [`loss`](fn@super::loss).
    pub const LABELS: &str = "labels";
    /// `[b,s]` f32: weight of each label, such as one over the labels of the global batch. 0
    /// ignores the label.
    pub const LABEL_WEIGHTS: &str = "label_weights";
    /// `[b,1,r]` bool: false for the rows of stacked factors that belong to the adapter of a
    /// sequence, else true. Only for models with adapters.
    pub const ADAPTERS: &str = "adapters";
    /// `[b,s]` f32: 1 for a token that counts in the figures of routers, 0 for padding. Only for
    /// [`loss`](fn@super::loss) of a model with experts.
    pub const ROUTED: &str = "routed";
    /// `[b,2]` i64: as [`SLOTS`], for the last two known tokens of each sequence. This input and
    /// the next ones are only for [`PredictionPart::Proposes`](super::PredictionPart::Proposes).
    pub const DRAFT_SLOTS: &str = "draft_slots";
    /// `[b,2]` i64: as [`POSITIONS`], for these tokens.
    pub const DRAFT_POSITIONS: &str = "draft_positions";
    /// `[b]` i64: as [`LENGTHS`], for these tokens.
    pub const DRAFT_LENGTHS: &str = "draft_lengths";
    /// `[b,2,r]`: as [`COS`], for these tokens.
    pub const DRAFT_COS: &str = "draft_cos";
    /// `[b,2,r]`: as [`SIN`], for these tokens.
    pub const DRAFT_SIN: &str = "draft_sin";
    /// `[b,s-1,s-1]` bool: as [`MASK`], for [`prediction_logits`](super::prediction_logits).
    pub const DRAFT_MASK: &str = "draft_mask";
    /// `[b]` i64: place of the token before the first one of each sequence. Only for
    /// [`PredictionPart::Fills`](super::PredictionPart::Fills).
    ///
    /// `[2·b]` i64: places of the tokens before the last two known tokens, for
    /// [`PredictionPart::Proposes`](super::PredictionPart::Proposes).
    pub const HIDDEN_FROM: &str = "hidden_from";
    /// `[b·s]` i64, or `[b]` for the outputs of one position: place of each row among the logits
    /// that a pool keeps. Only for programs with [candidates](super::CandidateSizes).
    pub const LOGIT_PLACES: &str = "logit_places";
    /// `[b]` i64: position within `s` after which a token is wanted. Only for outputs of one
    /// position.
    pub const LAST: &str = "last";
}

/// Builds the program of one forward pass in a precision. With quantised weights, a linear layer
/// has two params: `….weight` in 8-bit integers, and `….weight_scale` with one f32 per output
/// channel. A packed weight has words of 4-bit integers, scales of groups of inputs, and possibly
/// `….weight_offset`.
///
/// # Errors
/// If the configuration has layers that no program is built for, and everything that `verify`
/// finds.
pub fn decoder(
    config: &ModelConfig,
    run: RunShape,
    precision: impl Into<Precision>,
    head: Head,
) -> Result<Program, Diagnostics> {
    Ok(decoder_of_layers(config, run, precision.into(), head, SumOrder::AsTheyCome, false, None)?.program)
}

/// A program with the ops of each layer.
#[derive(Clone, Debug)]
pub struct LayeredProgram {
    /// The program of one forward pass.
    pub program: Program,
    /// Index ranges of ops, one range per layer.
    pub layers: Vec<Range<usize>>,
}

/// Builds a program like [`decoder`], with sums in `order`, and stores the ops of each layer. With
/// `copies_table`, a head that is the embedding is a separate param, named [`COPY`] and the
/// embedding's name. The params and states of `like` are declared first.
///
/// # Errors
/// As for [`decoder`].
pub fn decoder_of_layers(
    config: &ModelConfig,
    run: RunShape,
    precision: Precision,
    head: Head,
    order: SumOrder,
    copies_table: bool,
    like: Option<&Program>,
) -> Result<LayeredProgram, Diagnostics> {
    let Precision { activations: dtype, weights, kv } = precision;
    let RunShape { batch: b, sequence: s, .. } = run;
    let name = format!("{} b={b} s={s} t={}", config.family.model_type(), run.caches.length());
    let mut build = Builder::new(name).in_order(order);
    if let Some(like) = like {
        build.declare_memory_of(like);
    }

    let ids = build.input(input::IDS, [b, s], DType::I64);
    let tokens = TokenInputs::of_caches(&mut build, config, run, dtype);
    let last = (!head.is_of_all()).then(|| build.input(input::LAST, [b], DType::I64));
    let adapters = Adapters::of_serving(&mut build, config, b);
    let shared = LayerInputs { config, stored: dtype, dtype, weights, kv, adapters, tokens, routers: None };

    let table = shared.table(&mut build);
    let embedded = shared.embedded(&mut build, ids, table);
    let Layers { x, ops: layers, .. } = shared.layers(&mut build, embedded);
    let head_weight = shared.head(&mut build, table, copies_table);
    outputs(&mut build, &shared, [x, head_weight], last, head);
    if let Some(adapters) = adapters {
        adapters.check(&mut build);
    }
    Ok(LayeredProgram { program: build.finish()?, layers })
}

/// Adds the head and the outputs of a program. `last` is the input of the same name, unless the
/// outputs are those of all positions.
fn outputs(
    build: &mut Builder,
    shared: &LayerInputs<'_>,
    [x, weight]: [Operand; 2],
    last: Option<Operand>,
    head: Head,
) {
    let logits = match last {
        None => build.matmul("bsh,vh->bsv", x, weight),
        Some(last) => {
            let x = build.op(Kind::Take, &[x, last]);
            build.matmul("bh,vh->bv", x, weight)
        }
    };
    let logits = shared.capped(build, logits);
    let logits = build.name(logits, "logits");
    let output = match head {
        Head::AllLogits | Head::LastLogits => logits,
        Head::LastToken => {
            let largest = build.op(Kind::ReduceMax { dim: 1 }, &[logits]);
            build.op(Kind::IndexOf, &[logits, largest])
        }
        Head::AllCandidates(sizes) | Head::LastCandidates(sizes) => sizes.select(build, logits),
    };
    build.output(head.output(), output);
}

/// Prefix of a param's name in the name of the copy.
pub const COPY: &str = "copy.";

/// Returns the params of adapters.
pub(crate) fn adapters(program: &Program) -> impl Iterator<Item = ValueId> {
    let is_adapter = |id: &ValueId| {
        program.values[*id].source.as_ref().is_some_and(|source| source.tensor.starts_with(PEFT_PREFIX))
    };
    program.with_role(Role::Param).filter(is_adapter)
}

/// Returns the trained params of a program before placement: its adapters if there are any, or else
/// all params. The bias of a choice of experts has no gradient.
#[must_use]
pub fn trained(program: &Program) -> Vec<ValueId> {
    let adapters: Vec<ValueId> = adapters(program).collect();
    if !adapters.is_empty() {
        return adapters;
    }
    let ops = program.ops.values();
    let choices = ops.iter().filter(|op| matches!(op.kind, Kind::Choose { .. }));
    // Only the choice reads the sum of scores and such a bias.
    let is_read_once = |value: &ValueId| ops.iter().filter(|op| op.operands.contains(value)).count() == 1;
    let preferences = choices.map(|choice| choice.operands[0]).filter(is_read_once);
    let sums = preferences.filter_map(|sum| ops.iter().find(|op| op.results.contains(&sum)));
    let biases: Vec<ValueId> = sums.flat_map(|sum| sum.operands.iter().copied()).collect();
    program.with_role(Role::Param).filter(|id| !biases.contains(id)).collect()
}

/// Returns the name of the embedding's tensor.
#[must_use]
pub const fn embedding_tensor(family: Family) -> &'static str {
    family.table().tensors.embedding
}

/// Endings of tensors that checkpoints have and no program needs: buffers that follow from
/// config.json.
pub const IGNORED_TENSORS: [&str; 3] = ["rotary_emb.inv_freq", "attn.masked_bias", "attn.bias"];

/// Returns the layer of a value, param or state, for messages.
#[must_use]
pub fn layer_of(name: &str) -> Option<usize> {
    let of_families = Family::ALL.iter().map(|family| family.table().tensors.layer_prefix);
    of_families
        .chain(["layers.", "residual."])
        .find_map(|prefix| name.strip_prefix(prefix))
        .and_then(|rest| rest.split('.').next())
        .and_then(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Shape;
    use crate::program::{Form, Source, text, verify::verify};

    #[test]
    fn every_family_builds_verifies_and_survives_its_text() {
        for preset in ModelConfig::dense_presets() {
            let mut config = ModelConfig::preset(preset).unwrap();
            config.layers = 2;
            let run = RunShape::new(2, 3, 16);
            for precision in [DType::BF16.into(), Precision::w8a8(DType::BF16)] {
                for head in [Head::AllLogits, Head::LastLogits, Head::LastToken] {
                    let program = decoder(&config, run, precision, head).unwrap();
                    verify(&program).unwrap();
                    assert_eq!(text::parse(&text::print(&program)).unwrap(), program, "{preset}");
                }
            }
        }
    }

    #[test]
    fn a_stack_is_one_tensor_per_name() {
        let mut build = Builder::new("experts");
        let source = |tensor: &str, element_offset| Source {
            tensor: tensor.to_owned(),
            element_offset,
            form: Form::Numbers,
        };
        let x = build.input("x", [2, 5], DType::F32);
        let separate =
            build.param_from("separate", [3, 2, 4, 5], DType::F32, source("e.{0..3}.{w1,w3}.weight", 0));
        let y = build.matmul("bi,egoi->bego", x, separate);
        // Two params share each tensor of the second stack.
        for (name, rows, offset) in [("gate", 4, 0), ("up", 6, 20)] {
            let part =
                build.param_from(name, [3, rows, 5], DType::F32, source("e.{0..3}.w13.weight", offset));
            let y = build.matmul("bi,eoi->beo", x, part);
            build.output(name, y);
        }
        build.output("y", y);
        let mut expected: Vec<(String, Shape)> = Vec::new();
        for expert in 0..3 {
            expected.push((format!("e.{expert}.w1.weight"), [4, 5].into()));
            expected.push((format!("e.{expert}.w13.weight"), [10, 5].into()));
            expected.push((format!("e.{expert}.w3.weight"), [4, 5].into()));
        }
        let found: Vec<(String, Shape)> = checkpoint_tensors(&build.finish().unwrap()).into_iter().collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn fused_and_packed_tensors_have_their_own_shapes() {
        let mut build = Builder::new("experts");
        for (name, form) in [("a", "dims/0,3,21"), ("b", "dims/0,12,3"), ("c", "mxfp4/0,21,3")] {
            let form = Form::parse(form).unwrap();
            let source = Source { tensor: name.to_owned(), element_offset: 0, form };
            let weight = build.param_from(name, [3, 2, 4, 32], DType::F32, source);
            build.output(name, weight);
        }
        let found: Vec<(String, Shape)> = checkpoint_tensors(&build.finish().unwrap()).into_iter().collect();
        let expected: [(&str, Shape); 4] = [
            ("a", [3, 32, 8].into()),
            ("b", [3, 8, 32].into()),
            ("c_blocks", [3, 8, 1, 16].into()),
            ("c_scales", [3, 8, 1].into()),
        ];
        assert_eq!(found, expected.map(|(name, shape)| (name.to_owned(), shape)));
    }

    fn param_bytes(program: &Program) -> usize {
        let bytes = |id| program.values[id].shape.elems() * program.values[id].dtype.size_bytes();
        program.with_role(Role::Param).map(bytes).sum()
    }

    #[test]
    fn quantised_layers_hold_a_byte_a_weight_and_a_scale_a_row() {
        for preset in ModelConfig::dense_presets() {
            let mut config = ModelConfig::preset(preset).unwrap();
            let run = RunShape::new(1, 1, 16);
            let mut build = |layers, precision: Precision| {
                config.layers = layers;
                decoder(&config, run, precision, Head::AllLogits).unwrap()
            };
            let (float, quantised) = (build(1, DType::BF16.into()), build(1, Precision::w8a8(DType::BF16)));
            // The same tensors of the same checkpoint.
            assert_eq!(checkpoint_tensors(&float), checkpoint_tensors(&quantised), "{preset}");
            let (mut weights, mut rows) = (0, 0);
            for (name, shape) in checkpoint_tensors(&float) {
                if name.contains(".0.") && shape.rank() == 2 {
                    (weights, rows) = (weights + shape.elems(), rows + shape[0]);
                }
            }
            assert_eq!(param_bytes(&float) - param_bytes(&quantised), weights - 4 * rows, "{preset}");
        }
    }
}
