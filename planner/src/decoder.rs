//! Dense decoders: grouped-query attention and one feed-forward block per layer.

use ascend_tp::base::Diagnostic;
use ascend_tp::config::{AttentionPart, FeedForwardPart, ModelConfig};

/// Structure of a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedForward {
    /// Gated block of three matrices: `down(silu(gate(x)) · up(x))`.
    Gated,
    /// Plain block of two matrices: `down(gelu(up(x)))`.
    Plain,
}

impl FeedForward {
    /// Returns the number of weight matrices of a block.
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
    /// Number of decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Key and value heads. More cards hold copies.
    pub kv_heads: usize,
    /// Number of dims per head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate: usize,
    /// Structure of the feed-forward layer.
    pub feed_forward: FeedForward,
    /// Norms per layer, without head norms.
    pub norms: usize,
    /// Normalises queries and keys before the rotation.
    pub has_head_norms: bool,
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// The head uses the embedding's weight.
    pub tied_embeddings: bool,
    /// Window of some layers.
    pub window: Option<Window>,
}

/// Sliding window of some layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Window length in tokens.
    pub tokens: usize,
    /// Fraction of layers with the window.
    pub share: f64,
}

impl Decoder {
    /// Refuses a model with layers that these sizes do not describe.
    ///
    /// # Errors
    /// The first layer with a mixture of experts, or without grouped attention.
    pub fn check(config: &ModelConfig) -> Result<(), Diagnostic> {
        let other = config.pattern.iter().enumerate().find_map(|(layer, described)| {
            let found = match (&described.attention, &described.feed_forward) {
                (AttentionPart::Latent(_), _) => "latent attention",
                (AttentionPart::GatedDelta(_), _) => "attention by the gated delta rule",
                (_, FeedForwardPart::Mixture(_)) => "a mixture of experts",
                (AttentionPart::Grouped(_), FeedForwardPart::Dense { .. }) => return None,
            };
            Some((layer, found))
        });
        match other {
            Some((layer, found)) => Err(Diagnostic::new(
                format!("layer {layer}"),
                "the planner of training does not predict this layer",
            )
            .expected("grouped attention and a dense feed-forward part")
            .found(found)),
            None => Ok(()),
        }
    }

    /// Reads the sizes from a configuration that passes [`Self::check`].
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
            norms: config.layer(0).norms.count(),
            has_head_norms: config.attentions().any(|attention| attention.qk_norm.is_some()),
            vocabulary: config.vocab_size,
            tied_embeddings: config.tied_embeddings,
            window: config.window().map(|tokens| {
                let windowed = config.attentions().filter(|attention| attention.window.is_some()).count();
                Window { tokens, share: windowed as f64 / config.layers as f64 }
            }),
        }
    }

    /// Returns the width of all queries.
    #[must_use]
    pub const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Returns the width of all keys, or of all values.
    #[must_use]
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Counts the attention weights of a layer, without biases.
    #[must_use]
    pub const fn attention_parameters(&self) -> usize {
        self.hidden * (2 * self.query_width() + 2 * self.kv_width())
    }

    /// Counts the product weights of a layer.
    #[must_use]
    pub const fn layer_parameters(&self) -> usize {
        self.attention_parameters() + self.hidden * self.feed_forward.weights() * self.intermediate
    }

    /// Counts the product weights of a layer on one of `tp` cards. Each card beyond the key heads
    /// copies one.
    #[must_use]
    pub const fn layer_parameters_on(&self, tp: usize) -> usize {
        let attention = 2 * self.query_width().div_ceil(tp) + 2 * self.kv_heads.div_ceil(tp) * self.head_dim;
        self.hidden * (attention + self.feed_forward.weights() * self.intermediate.div_ceil(tp))
    }

    /// Counts the embedding or head parameters.
    #[must_use]
    pub const fn embedding_parameters(&self) -> usize {
        self.vocabulary * self.hidden
    }

    /// Counts the parameters of embedding and head together.
    #[must_use]
    pub const fn table_parameters(&self) -> usize {
        let tables = if self.tied_embeddings { 1 } else { 2 };
        tables * self.embedding_parameters()
    }

    /// Counts the product and embedding weights. Norms and biases are below a thousandth.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        self.layers * self.layer_parameters() + self.table_parameters()
    }

    /// Returns the mean number of tokens that a token sees.
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

    /// Returns the forward operations per token. Masked scores count, as in published utilisations
    /// (KOR, Megatron-LM).
    #[must_use]
    pub fn forward_flops_per_token(&self, tokens: usize) -> f64 {
        let products = 2.0 * (self.layers * self.layer_parameters() + self.embedding_parameters()) as f64;
        products + self.layers as f64 * 8.0 * self.visible(tokens) * self.query_width() as f64
    }
}
