//! Decoders with gated attention and gated delta rules (a linear attention with a fixed-size
//! state): Qwen3.5.

use ascend_tp_machine::Element;
use serde::Deserialize;

use super::dense::{embedding, head, reduce};
use super::experts::Experts;
use super::launches::{
    ACTIVATION, AttentionLaunch, Operands, SeenPositions, add_rms_norm, cache_write, elementwise, matmul,
    projection, rms_norm, rotary, swiglu,
};
use super::{ParallelSplit, ProductPrecision, Section, Tokens, WorkloadStep};

/// Feed-forward block of every layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedForwardBlock {
    /// Gated block of this width.
    Dense(usize),
    /// A mixture of experts.
    Experts(Experts),
}

/// Sizes of a hybrid decoder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hybrid {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Layers; every fourth has attention.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dims of an attention head.
    pub head_dim: usize,
    /// Key heads of the delta rule.
    pub linear_key_heads: usize,
    /// Value heads of the delta rule, each with `linear_dim` squared state elements.
    pub linear_value_heads: usize,
    /// Dims of a delta rule head.
    pub linear_dim: usize,
    /// Feed-forward block of every layer.
    pub block: FeedForwardBlock,
    /// Rows of the embedding.
    pub vocab: usize,
}

/// Distance between attention layers (`full_attention_interval`).
const INTERVAL: usize = 4;

/// Tokens per chunk of the delta rule (`chunk_size` of the published kernels).
const CHUNK: usize = 64;

/// Delta rule over a prompt: decay sums, products of keys, triangular solve, chunk states, outputs.
/// The first operand is `[chunks of all heads, CHUNK, dim]`.
pub(crate) const DELTA_CHUNKS: &str = "chunk_gated_delta_rule";

/// Delta rule of one new token per sequence. The first operand is `[sequences, heads, dim, dim]`.
pub(crate) const DELTA_TOKEN: &str = "recurrent_gated_delta_rule";

impl Hybrid {
    fn gated_attention(
        &self,
        tokens: Tokens,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        let rows = tokens.new_tokens();
        let (heads, kv_heads) = (self.heads.div_ceil(split.tensor), self.kv_heads.div_ceil(split.tensor));
        let width = self.head_dim;
        let mut steps = vec![add_rms_norm(rows, self.hidden)];
        steps.extend(projection(precision, rows, self.hidden, 2 * (heads + kv_heads) * width));
        steps.extend([
            rms_norm(rows * heads, width),
            rms_norm(rows * kv_heads, width),
            rotary(tokens.batch, tokens.query, heads, width / 4),
            rotary(tokens.batch, tokens.query, kv_heads, width / 4),
            cache_write(tokens.batch * tokens.positions(), rows, 2 * kv_heads * width, ACTIVATION),
        ]);
        let attention = AttentionLaunch {
            batch: tokens.batch,
            query: tokens.query,
            positions: tokens.positions(),
            heads,
            kv_heads,
            key_dim: width,
            value_dim: width,
            sight: SeenPositions::Past,
        };
        steps.push(attention.step());
        let gate = [rows, heads * width];
        steps.extend([
            elementwise("aclnnSigmoid", ACTIVATION, &gate, 1),
            elementwise("aclnnMul", ACTIVATION, &gate, 2),
        ]);
        steps.extend(projection(precision, rows, heads * width, self.hidden));
        steps.extend(reduce(rows, self.hidden, split));
        steps
    }

    fn delta_rule(
        &self,
        tokens: Tokens,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        let rows = tokens.new_tokens();
        let (keys, values) =
            (self.linear_key_heads.div_ceil(split.tensor), self.linear_value_heads.div_ceil(split.tensor));
        let (mixed, width) = ((2 * keys + values) * self.linear_dim, values * self.linear_dim);
        let mut steps = vec![add_rms_norm(rows, self.hidden)];
        steps.extend(projection(precision, rows, self.hidden, mixed + width));
        steps.extend([
            matmul(rows, self.hidden, 2 * values),
            // Convolution with four taps per channel, and an activation.
            elementwise("aclnnSilu", ACTIVATION, &[rows, mixed], 1),
            // Decay and step size per head and token, and the norm of queries and keys.
            elementwise("aclnnExp", Element::F32, &[rows, 2 * values], 1),
            rms_norm(rows * 2 * keys, self.linear_dim),
        ]);
        steps.extend(if tokens.context == 0 {
            self.chunks(tokens, values)
        } else {
            self.recurrence(tokens, values)
        });
        steps.extend([
            rms_norm(rows * values, self.linear_dim),
            elementwise("aclnnSilu", ACTIVATION, &[rows, width], 1),
            elementwise("aclnnMul", ACTIVATION, &[rows, width], 2),
        ]);
        steps.extend(projection(precision, rows, width, self.hidden));
        steps.extend(reduce(rows, self.hidden, split));
        steps
    }

    fn chunks(&self, tokens: Tokens, heads: usize) -> Vec<WorkloadStep> {
        let dim = self.linear_dim;
        let all = tokens.batch * heads * tokens.query.div_ceil(CHUNK);
        let rows = [all, CHUNK, dim];
        let rule = Operands::new().read(ACTIVATION, &rows).read(ACTIVATION, &rows).read(ACTIVATION, &rows);
        vec![rule.write(ACTIVATION, &rows).of(DELTA_CHUNKS)]
    }

    /// Tokens run in sequence; each reads and writes the state.
    fn recurrence(&self, tokens: Tokens, heads: usize) -> Vec<WorkloadStep> {
        let dim = self.linear_dim;
        let state = [tokens.batch, heads, dim, dim];
        let step = Operands::new()
            .update(Element::F32, &state)
            .read(ACTIVATION, &[tokens.batch, 3, heads, dim])
            .write(ACTIVATION, &[tokens.batch, heads, dim])
            .of(DELTA_TOKEN);
        vec![WorkloadStep { times: tokens.query, ..step }]
    }

    fn block(&self, tokens: Tokens, split: ParallelSplit, precision: ProductPrecision) -> Vec<WorkloadStep> {
        let rows = tokens.new_tokens();
        let mut steps = vec![add_rms_norm(rows, self.hidden)];
        match self.block {
            FeedForwardBlock::Experts(experts) => {
                steps.extend(experts.block(self.hidden, rows, split, precision));
            }
            FeedForwardBlock::Dense(intermediate) => {
                let width = intermediate.div_ceil(split.tensor);
                steps.extend(projection(precision, rows, self.hidden, 2 * width));
                steps.push(swiglu(rows, width));
                steps.extend(projection(precision, rows, width, self.hidden));
                steps.extend(reduce(rows, self.hidden, split));
            }
        }
        steps
    }

    /// Returns a forward pass with logits of all new tokens, or of each last token without a cache.
    /// Each of `drafts` tokens takes one more layer and head.
    #[must_use]
    pub fn forward(
        &self,
        tokens: Tokens,
        drafts: usize,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<Section> {
        let block = self.block(tokens, split, precision);
        let mut attention = self.gated_attention(tokens, split, precision);
        attention.extend(block.clone());
        let mut linear = self.delta_rule(tokens, split, precision);
        linear.extend(block);
        let rows = if tokens.context == 0 { tokens.batch } else { tokens.new_tokens() };
        let last = head(rows, self.vocab, self.hidden, split);
        let mut draft = projection(precision, tokens.new_tokens(), 2 * self.hidden, self.hidden);
        draft.extend(attention.clone());
        draft.extend(last.clone());
        let with_attention = self.layers / INTERVAL;
        vec![
            Section {
                name: "embedding",
                repeats: 1,
                steps: embedding(tokens.new_tokens(), self.vocab, self.hidden, split),
            },
            Section { name: "attention layer", repeats: with_attention, steps: attention },
            Section { name: "delta-rule layer", repeats: self.layers - with_attention, steps: linear },
            Section { name: "head", repeats: 1, steps: last },
            Section { name: "draft", repeats: drafts, steps: draft },
        ]
    }
}
