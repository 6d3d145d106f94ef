//! Sizes of dense decoders: grouped-query attention and one feed-forward block a layer.
//!
//! Input → output: a configuration, or sizes → [`Decoder`], and its parameters and operations. Invariants: sizes are positive; pure.

use ascend_tp::config::ModelConfig;

/// How a feed-forward block is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedForward {
    /// `down(silu(gate(x)) · up(x))`.
    Gated,
    /// `down(gelu(up(x)))`, with one matrix less.
    Plain,
}

impl FeedForward {
    /// Weights of a block.
    #[must_use]
    pub const fn weights(self) -> usize {
        match self {
            Self::Gated => 3,
            Self::Plain => 2,
        }
    }
}

/// Sizes of a dense decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoder {
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Key and value heads; fewer than the tensor axis has cards means copies.
    pub kv_heads: usize,
    /// Dims of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate: usize,
    /// How the feed-forward layer is built.
    pub feed_forward: FeedForward,
    /// Norms of a layer, those of heads aside.
    pub norms: usize,
    /// Whether queries and keys are normed before the rotation.
    pub has_head_norms: bool,
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// Whether the head is the embedding's weight.
    pub tied_embeddings: bool,
    /// Where not every layer sees all tokens before it.
    pub window: Option<Window>,
}

/// A window some layers see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Tokens it holds.
    pub tokens: usize,
    /// Part of the layers that have it.
    pub share: f64,
}

impl Decoder {
    /// The sizes of a configuration.
    #[must_use]
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            layers: config.layers,
            hidden: config.hidden_size,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            intermediate: config.intermediate_size,
            feed_forward: FeedForward::Gated,
            norms: 2,
            has_head_norms: config.qk_norm,
            vocabulary: config.vocab_size,
            tied_embeddings: config.tied_embeddings,
            window: None,
        }
    }

    /// Width of all queries.
    #[must_use]
    pub const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all keys, and of all values.
    #[must_use]
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Parameters of the products of one layer's attention.
    #[must_use]
    pub const fn attention_parameters(&self) -> usize {
        self.hidden * (2 * self.query_width() + 2 * self.kv_width())
    }

    /// Parameters of one layer's products.
    #[must_use]
    pub const fn layer_parameters(&self) -> usize {
        self.attention_parameters() + self.hidden * self.feed_forward.weights() * self.intermediate
    }

    /// The same of one of `tp` cards that share a layer. Cards beyond the key heads have a copy of one each.
    #[must_use]
    pub const fn layer_parameters_on(&self, tp: usize) -> usize {
        let attention = 2 * self.query_width().div_ceil(tp) + 2 * self.kv_heads.div_ceil(tp) * self.head_dim;
        self.hidden * (attention + self.feed_forward.weights() * self.intermediate.div_ceil(tp))
    }

    /// Parameters of the embedding, and of the head.
    #[must_use]
    pub const fn embedding_parameters(&self) -> usize {
        self.vocabulary * self.hidden
    }

    /// Parameters of the embedding and the head together.
    #[must_use]
    pub const fn table_parameters(&self) -> usize {
        let tables = if self.tied_embeddings { 1 } else { 2 };
        tables * self.embedding_parameters()
    }

    /// Parameters of all products and of the embedding; norms and biases, below a thousandth of it, are left out.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        self.layers * self.layer_parameters() + self.table_parameters()
    }

    /// Tokens a token sees on average in a sequence of `tokens`.
    #[must_use]
    pub fn visible(&self, tokens: usize) -> f64 {
        let all = tokens as f64 / 2.0;
        match self.window {
            Some(Window { tokens: window, share }) if window < tokens => {
                let seen = window as f64 - (window as f64).powi(2) / (2.0 * tokens as f64);
                share * seen + (1.0 - share) * all
            }
            _ => all,
        }
    }

    /// Operations of the products of a forward pass for each token, in sequences of `tokens`. All scores count, hidden ones
    /// too, as in the published utilisations (KOR, Megatron-LM).
    #[must_use]
    pub fn forward_flops_per_token(&self, tokens: usize) -> f64 {
        let products = 2.0 * (self.layers * self.layer_parameters() + self.embedding_parameters()) as f64;
        products + self.layers as f64 * 8.0 * self.visible(tokens) * self.query_width() as f64
    }
}
