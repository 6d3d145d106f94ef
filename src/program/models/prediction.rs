//! Drafts by a layer for multi-token prediction.
//!
//! Input: a [`ModelConfig`] with a prediction layer, and the sizes of one run. Output: programs
//! that fill the caches of the layer, or that propose a draft and compute it in the same run.
//!
//! The layer reads the embedding of a token, and the output of the final norm at the token before.
//! Its row for a token has the token's place in the caches, so blocks with equal tokens have equal
//! rows. The first token of a sequence has no token before, and attention skips its row. Outputs of
//! the final norm are states with one row per place of the caches.
//!
//! Invariants: a draft depends on known tokens alone. All programs of a session declare the same
//! params and states in one order.
//!
//! Not here: whether a draft is accepted (`generate`), and which tokens run (`serving`).

use crate::base::{DType, Diagnostic, Diagnostics, KvType, Precision, Weights};
use crate::config::{ModelConfig, Rotary};
use crate::program::build::{Builder, Operand};
use crate::program::graph::Program;
use crate::program::op::Kind;
use crate::program::tree::SumOrder;

use super::adapters::Adapters;
use super::layers::{Caches, LayerInputs, Layers, Seen, TokenInputs, whole};
use super::{Head, LayeredProgram, RunShape, input, layer_of_weight, outputs};

/// Name of the states with the outputs of the last layer. A pin has the same name.
const HIDDEN: &str = "prediction.hidden";

/// Number of tokens that the prediction layer reads in a run that proposes a draft: the last known
/// token and the one before. If that was an accepted draft, its row is missing. The other layers
/// also compute this number of tokens: the last known one, and the draft.
pub const PROPOSING_TOKENS: usize = 2;

/// The part of the prediction layer in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PredictionPart {
    /// The layer writes its rows for a chunk of known tokens.
    Fills,
    /// The layer proposes a draft from the last known token of each sequence. The other layers
    /// compute the known token and the draft. The input ids are the last two known tokens.
    Proposes,
}

/// Checks that programs with drafts by prediction can be built.
///
/// # Errors
/// The layers that such programs do not support.
pub fn check_prediction(config: &ModelConfig) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut refuse = |found: &str, help: &str| {
        let problem = Diagnostic::new("drafts by prediction", "cannot be made for this model");
        problems.push(problem.found(found).help(help));
    };
    let lookup = "use --speculate ngram=K, or no drafts";
    if config.prediction_layers == 0 {
        refuse("no layer for multi-token prediction in config.json", lookup);
    }
    if config.remembered_tokens().is_some() {
        refuse(
            "recurrent layers, because a refused draft cannot be removed from their states",
            "generate without drafts",
        );
    }
    if config.window().is_some() || config.local_rope.is_some() || config.logn.is_some() {
        refuse("layers with a window, two rotary embeddings, or scaled queries", lookup);
    }
    problems.into_result(())
}

impl LayerInputs<'_> {
    /// Returns the normalised output `[b,s,h]` of the prediction layer. `embedded` are the
    /// embeddings of tokens, and `hidden` the outputs of the last layer at the tokens before.
    fn predicted(&self, build: &mut Builder, embedded: Operand, hidden: Operand) -> Option<Operand> {
        let (h, layer) = (self.config.hidden_size, self.config.layers);
        let names = self.config.prediction_tensors()?;
        let embedded = self.norm(build, embedded, &names.embedding_norm);
        let hidden = self.norm(build, hidden, &names.hidden_norm);
        let both = build.op(Kind::Concat { dim: 2 }, &[embedded, hidden]);
        let both = self.cast(build, both, self.dtype);
        let source = whole(&names.projection);
        let name = format!("{}.weight", layer_of_weight(&names.projection));
        let x = self.linear(build, "bsi,hi->bsh", both, &name, source, &[h, 2 * h]);
        let x = self.cast(build, x, self.stored);
        let residual = build.name(x, format!("residual.{layer}.prediction"));
        let residual = self.layer(build, layer, residual);
        Some(self.norm(build, residual, &names.norm))
    }

    /// Returns the most likely token `[b,1]` after the token `at` of `y[b,s,h]`. The token is an id
    /// even if the logits are NaN, because the same run looks up its embedding.
    fn most_likely(&self, build: &mut Builder, y: Operand, at: usize, head: Operand) -> Operand {
        let y = build.op(Kind::Narrow { dim: 1, start: at, size: 1 }, &[y]);
        let y = self.cast(build, y, self.dtype);
        let logits = build.matmul("bsh,vh->bsv", y, head);
        let logits = self.capped(build, logits);
        let logits = build.name(logits, "draft_logits");
        let logits = self.cast(build, logits, DType::F32);
        let first = Kind::Choose { chosen: 1, groups: 1, kept: 1, summed: 1 };
        let token = build.op(first, &[logits]);
        build.op(Kind::MergeDims { dim: 1 }, &[token])
    }

    /// Writes the outputs of the last layer to the places of their tokens.
    fn remember(&self, build: &mut Builder, states: Operand, x: Operand) {
        let Seen::Caches { groups, .. } = &self.tokens.seen else { return };
        let rows = build.op(Kind::MergeDims { dim: 0 }, &[x]);
        let places = build.op(Kind::MergeDims { dim: 0 }, &[groups[0].slots]);
        build.op(Kind::WriteStates { pools: 1 }, &[states, rows, places]);
    }
}

impl TokenInputs {
    /// Adds the inputs of the prediction layer in a run that proposes drafts. The blocks of a
    /// sequence are those of the other layers.
    fn of_drafts(build: &mut Builder, config: &ModelConfig, run: RunShape, dtype: DType, of: &Self) -> Self {
        let (b, s) = (run.batch, PROPOSING_TOKENS);
        let table = match &of.seen {
            Seen::Caches { groups, .. } => groups[0].table,
            Seen::Run(_) => unreachable!("a serving program has caches"),
        };
        let caches = Caches {
            group: run.caches,
            slots: build.input(input::DRAFT_SLOTS, [b, s], DType::I64),
            table,
            positions: build.input(input::DRAFT_POSITIONS, [b, s], DType::I64),
            lengths: build.input(input::DRAFT_LENGTHS, [b], DType::I64),
            skipped: 1,
        };
        let shape = [b, s, config.rope.rotated_dims(config.head_dim)];
        let rotary = [input::DRAFT_COS, input::DRAFT_SIN].map(|name| build.input(name, shape, dtype));
        let seen = Seen::Caches { groups: vec![caches], states: None };
        Self { seen, rotary: vec![(Rotary::Global, rotary)], logn: None }
    }
}

/// Builds a program like [`decoder_of_layers`](super::decoder_of_layers) with drafts by prediction.
/// It has a further output, `draft[b,1]`. The params and states of `like` are declared first.
///
/// # Errors
/// As for [`decoder_of_layers`](super::decoder_of_layers).
pub fn predicting_decoder(
    config: &ModelConfig,
    run: RunShape,
    precision: Precision,
    head: Head,
    order: SumOrder,
    part: PredictionPart,
    like: Option<&Program>,
) -> Result<LayeredProgram, Diagnostics> {
    check_prediction(config)?;
    let Precision { activations: dtype, weights, kv } = precision;
    let RunShape { batch: b, sequence: s, caches, .. } = run;
    let name = format!("{} b={b} s={s} t={} {part:?}", config.family.model_type(), caches.length());
    let mut build = Builder::new(name).in_order(order);
    if let Some(like) = like {
        build.declare_memory_of(like);
    }
    let ids = build.input(input::IDS, [b, s], DType::I64);
    let tokens = TokenInputs::of_caches(&mut build, config, run, dtype);
    let of_drafts = (part == PredictionPart::Proposes)
        .then(|| TokenInputs::of_drafts(&mut build, config, run, dtype, &tokens));
    let last = (!head.is_of_all()).then(|| build.input(input::LAST, [b], DType::I64));
    let adapters = Adapters::of_serving(&mut build, config, b);
    let inputs =
        |tokens| LayerInputs { config, stored: dtype, dtype, weights, kv, adapters, tokens, routers: None };
    let shared = inputs(tokens);
    let places = caches.blocks.count * caches.blocks.rows;
    let hidden = build.state(HIDDEN, [places, config.hidden_size], dtype);
    let table = shared.table(&mut build);
    let head_weight = shared.head(&mut build, table, false);
    let known = shared.embedded(&mut build, ids, table);
    let (x, draft, layers) = match of_drafts.map(inputs) {
        None => {
            let from = build.input(input::HIDDEN_FROM, [b], DType::I64);
            let Layers { x, ops, .. } = shared.layers(&mut build, known);
            let before = build.op(Kind::ReadStates { pools: 1 }, &[hidden, from]);
            let mut before = build.op(Kind::Repeat { dim: 1, size: 1 }, &[before]);
            if s > 1 {
                let others = build.op(Kind::Narrow { dim: 1, start: 0, size: s - 1 }, &[x]);
                before = build.op(Kind::Concat { dim: 1 }, &[before, others]);
            }
            let y = shared.predicted(&mut build, known, before);
            let draft = y.map(|y| shared.most_likely(&mut build, y, s - 1, head_weight));
            (x, draft, ops)
        }
        Some(drafts) => {
            let from = build.input(input::HIDDEN_FROM, [b * s], DType::I64);
            build.name(known, "residual.known");
            let before = build.op(Kind::ReadStates { pools: 1 }, &[hidden, from]);
            let before = build.op(Kind::SplitDim { dim: 0, size: s }, &[before]);
            let y = drafts.predicted(&mut build, known, before);
            let draft = y.map(|y| drafts.most_likely(&mut build, y, s - 1, head_weight));
            let last = build.op(Kind::Narrow { dim: 1, start: s - 1, size: 1 }, &[known]);
            let embedded = match draft {
                Some(draft) => {
                    let embedded = shared.embedded(&mut build, draft, table);
                    let embedded = build.name(embedded, "residual.draft");
                    build.op(Kind::Concat { dim: 1 }, &[last, embedded])
                }
                None => known,
            };
            let Layers { x, ops, .. } = shared.layers(&mut build, embedded);
            (x, draft, ops)
        }
    };
    shared.remember(&mut build, hidden, x);
    outputs(&mut build, &shared, [x, head_weight], last, head);
    if let Some(draft) = draft {
        build.output("draft", draft);
    }
    if let Some(adapters) = adapters {
        adapters.check(&mut build);
    }
    Ok(LayeredProgram { program: build.finish()?, layers })
}

/// Adds the draft logits `[b,s-1,v]` of a text: at token `t`, the logits of the token after token
/// `t + 1`, which is known. Inputs are as for [`loss`](fn@super::loss) without labels, and
/// [`input::DRAFT_MASK`].
#[doc(hidden)]
pub fn prediction_logits(
    build: &mut Builder,
    config: &ModelConfig,
    [b, s]: [usize; 2],
    dtype: DType,
) -> Option<Operand> {
    let ids = build.input(input::IDS, [b, s], DType::I64);
    let tokens = TokenInputs::of_run(build, config, [b, s], dtype);
    let mask = build.input(input::DRAFT_MASK, [b, s - 1, s - 1], DType::Bool);
    let first = Kind::Narrow { dim: 1, start: 0, size: s - 1 };
    let later = Kind::Narrow { dim: 1, start: 1, size: s - 1 };
    let rotary = tokens.rotary.clone().into_iter();
    let rotary = rotary.map(|(of, angles)| (of, angles.map(|angles| build.op(first.clone(), &[angles]))));
    let drafts = TokenInputs { rotary: rotary.collect(), seen: Seen::Run(vec![(None, mask)]), logn: None };
    let (weights, kv, adapters) = (Weights::Float, KvType::Activations, None);
    let inputs =
        |tokens| LayerInputs { config, stored: dtype, dtype, weights, kv, adapters, tokens, routers: None };
    let (shared, drafts) = (inputs(tokens), inputs(drafts));
    let table = shared.table(build);
    let embedded = shared.embedded(build, ids, table);
    let Layers { x, .. } = shared.layers(build, embedded);
    let (hidden, next) = (build.op(first, &[x]), build.op(later, &[embedded]));
    let y = drafts.predicted(build, next, hidden)?;
    let head = shared.head(build, table, false);
    let logits = build.matmul("bsh,vh->bsv", y, head);
    Some(shared.capped(build, logits))
}
