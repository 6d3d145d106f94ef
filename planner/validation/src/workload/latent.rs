//! Decoders with latent attention (MLA) and mixtures of experts, such as DeepSeek-V3.
//!
//! Decode attends in the latent space, where keys and values are the same rows. Prefill expands
//! keys and values of every head.

use ascend_tp_machine::{Element, Launch};
use serde::Deserialize;

use super::dense::{embedding, head, reduce};
use super::experts::Experts;
use super::launches::{
    ACTIVATION, AttentionLaunch, Operands, SeenPositions, add_rms_norm, cache_write, projection, rms_norm,
    rotary, swiglu,
};
use super::{ParallelSplit, ProductPrecision, Section, Tokens, WorkloadStep, WorkloadTask};

/// Sizes of a decoder with latent attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentDecoder {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Number of leading layers with a dense block.
    pub dense_layers: usize,
    /// Width of the dense block.
    pub intermediate: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Rank of the query projection.
    pub query_rank: usize,
    /// Rank of keys and values, as cached.
    pub kv_rank: usize,
    /// Dims of a head without rotation.
    pub plain_dim: usize,
    /// Rotated dims, shared by the keys of all heads.
    pub rotary_dim: usize,
    /// Dims of the values per head.
    pub value_dim: usize,
    /// Sizes of the mixture.
    pub experts: Experts,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Element type of cache and attention products.
    pub attention: Element,
}

impl LatentDecoder {
    fn attention(
        &self,
        tokens: Tokens,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        let (rows, heads) = (tokens.new_tokens(), self.heads.div_ceil(split.tensor));
        let (latent, key) = (self.kv_rank + self.rotary_dim, self.plain_dim + self.rotary_dim);
        let mut steps = vec![add_rms_norm(rows, self.hidden)];
        steps.extend(projection(precision, rows, self.hidden, self.query_rank + latent));
        steps.extend([rms_norm(rows, self.query_rank), rms_norm(rows, self.kv_rank)]);
        steps.extend(projection(precision, rows, self.query_rank, heads * key));
        steps.extend([
            rotary(tokens.batch, tokens.query, heads, self.rotary_dim),
            rotary(tokens.batch, tokens.query, 1, self.rotary_dim),
            cache_write(tokens.batch * tokens.positions(), rows, latent, self.attention),
        ]);
        if tokens.context == 0 {
            steps.extend(projection(
                precision,
                rows,
                self.kv_rank,
                heads * (self.plain_dim + self.value_dim),
            ));
            let whole = AttentionLaunch {
                batch: tokens.batch,
                query: tokens.query,
                positions: tokens.query,
                heads,
                kv_heads: heads,
                key_dim: key,
                value_dim: self.value_dim,
                sight: SeenPositions::Past,
            };
            steps.push(whole.step());
        } else {
            steps.push(by_head(heads, rows, self.plain_dim, self.kv_rank));
            let shared = AttentionLaunch {
                batch: tokens.batch,
                query: tokens.query,
                positions: tokens.positions(),
                heads,
                kv_heads: 1,
                key_dim: latent,
                value_dim: self.kv_rank,
                sight: SeenPositions::Past,
            };
            steps.push(self.over_latent(shared.step()));
            steps.push(by_head(heads, rows, self.kv_rank, self.value_dim));
        }
        steps.extend(projection(precision, rows, heads * self.value_dim, self.hidden));
        steps.extend(reduce(rows, self.hidden, split));
        steps
    }

    /// Values are the first dims of the keys, so they are read once.
    fn over_latent(&self, mut step: WorkloadStep) -> WorkloadStep {
        if let WorkloadTask::Launch(Launch { operands, .. }) = &mut step.task {
            for operand in operands.iter_mut().take(3) {
                operand.element = self.attention;
            }
            operands[2].distinct = 0;
        }
        step
    }

    fn dense_block(
        &self,
        tokens: Tokens,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        let (rows, width) = (tokens.new_tokens(), self.intermediate.div_ceil(split.tensor));
        let mut steps = vec![add_rms_norm(rows, self.hidden)];
        steps.extend(projection(precision, rows, self.hidden, 2 * width));
        steps.push(swiglu(rows, width));
        steps.extend(projection(precision, rows, width, self.hidden));
        steps.extend(reduce(rows, self.hidden, split));
        steps
    }

    fn expert_layer(
        &self,
        tokens: Tokens,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        let mut steps = self.attention(tokens, split, precision);
        steps.push(add_rms_norm(tokens.new_tokens(), self.hidden));
        steps.extend(self.experts.block(self.hidden, tokens.new_tokens(), split, precision));
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
        let mut dense = self.attention(tokens, split, precision);
        dense.extend(self.dense_block(tokens, split, precision));
        let experts = self.expert_layer(tokens, split, precision);
        let rows = if tokens.context == 0 { tokens.batch } else { tokens.new_tokens() };
        let last = head(rows, self.vocab, self.hidden, split);
        let mut draft = projection(precision, tokens.new_tokens(), 2 * self.hidden, self.hidden);
        draft.extend(experts.clone());
        draft.extend(last.clone());
        vec![
            Section {
                name: "embedding",
                repeats: 1,
                steps: embedding(tokens.new_tokens(), self.vocab, self.hidden, split),
            },
            Section { name: "dense layer", repeats: self.dense_layers, steps: dense },
            Section { name: "expert layer", repeats: self.layers - self.dense_layers, steps: experts },
            Section { name: "head", repeats: 1, steps: last },
            Section { name: "draft", repeats: drafts, steps: draft },
        ]
    }
}

/// One product per head: `[heads, rows, k] × [heads, k, n]`.
fn by_head(heads: usize, rows: usize, k: usize, n: usize) -> WorkloadStep {
    Operands::new()
        .read(ACTIVATION, &[heads, rows, k])
        .read(ACTIVATION, &[heads, k, n])
        .write(ACTIVATION, &[heads, rows, n])
        .of("aclnnBatchMatMul")
}
