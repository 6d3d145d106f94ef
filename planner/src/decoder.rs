//! Decoders: grouped-query attention, and one feed-forward block or a mixture of experts per layer.

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

/// Sizes of a decoder.
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
    /// Mixtures of experts of some layers.
    pub experts: Option<RoutedExperts>,
}

/// Mixtures of experts of some layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutedExperts {
    /// Number of layers with a mixture.
    pub layers: usize,
    /// Number of routed experts of a layer.
    pub count: usize,
    /// Number of routed experts of a token.
    pub chosen: usize,
    /// Width of a routed expert.
    pub intermediate: usize,
    /// Width of the expert that every token passes. 0 without one.
    pub shared: usize,
}

impl RoutedExperts {
    /// Reads the sizes of the first mixture.
    fn of(config: &ModelConfig) -> Option<Self> {
        let (_, mixture) = config.mixtures().next()?;
        Some(Self {
            layers: config.mixtures().count(),
            count: mixture.experts,
            chosen: mixture.chosen,
            intermediate: mixture.intermediate_size,
            shared: mixture.shared.map_or(0, |shared| shared.intermediate_size),
        })
    }
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
    /// The first layer without grouped attention, or with another mixture than the first one.
    pub fn check(config: &ModelConfig) -> Result<(), Diagnostic> {
        let first = config.mixtures().next().map(|(_, mixture)| mixture);
        let other = config.pattern.iter().enumerate().find_map(|(layer, described)| {
            let found = match (&described.attention, &described.feed_forward) {
                (AttentionPart::Latent(_), _) => "latent attention",
                (AttentionPart::GatedDelta(_), _) => "attention by the gated delta rule",
                (_, FeedForwardPart::Mixture(mixture)) if Some(mixture) != first => {
                    "a mixture of experts with other sizes than the first one"
                }
                (AttentionPart::Grouped(_), _) => return None,
            };
            Some((layer, found))
        });
        match other {
            Some((layer, found)) => Err(Diagnostic::new(
                format!("layer {layer}"),
                "the planner of training does not predict this layer",
            )
            .expected("grouped attention, and the same sizes in all mixtures of experts")
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
            experts: RoutedExperts::of(config),
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

    /// Returns the mean over all layers: `dense` for layers with a feed-forward block, `mixture`
    /// for layers with a mixture of experts.
    pub(crate) fn mean(&self, dense: f64, mixture: impl FnOnce(&RoutedExperts) -> f64) -> f64 {
        let Some(experts) = &self.experts else { return dense };
        let share = experts.layers as f64 / self.layers as f64;
        (1.0 - share) * dense + share * mixture(experts)
    }

    /// Counts the feed-forward weights of a mean layer on one of `tp` cards, without routed
    /// experts.
    fn common_parameters_on(&self, tp: usize) -> f64 {
        let block = |width: usize| (self.feed_forward.weights() * width.div_ceil(tp)) as f64;
        let mean = self.mean(block(self.intermediate), |of| block(of.shared) + of.count as f64);
        self.hidden as f64 * mean
    }

    /// Counts the weights of this number of routed experts, as the mean of all layers.
    fn routed_parameters(&self, experts: impl FnOnce(&RoutedExperts) -> usize) -> f64 {
        let of_one =
            |of: &RoutedExperts| (self.hidden * self.feed_forward.weights() * of.intermediate) as f64;
        self.mean(0.0, |of| of_one(of) * experts(of) as f64)
    }

    /// Counts the weights of routed experts of a mean layer, if `cards` cards share them.
    #[must_use]
    pub fn expert_parameters_on(&self, cards: usize) -> usize {
        self.routed_parameters(|of| of.count.div_ceil(cards)) as usize
    }

    /// Counts the product weights of a mean layer.
    #[must_use]
    pub fn layer_parameters(&self) -> usize {
        self.attention_parameters() + self.common_parameters_on(1) as usize + self.expert_parameters_on(1)
    }

    /// Counts the product weights of a mean layer on one of `tp` cards, without routed experts.
    /// Each card beyond the key heads copies one.
    #[must_use]
    pub fn layer_parameters_on(&self, tp: usize) -> usize {
        let attention = 2 * self.query_width().div_ceil(tp) + 2 * self.kv_heads.div_ceil(tp) * self.head_dim;
        self.hidden * attention + self.common_parameters_on(tp) as usize
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
    pub fn parameters(&self) -> usize {
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

    /// Returns the forward operations per token, with the chosen experts alone. Masked scores
    /// count, as in published utilisations (KOR, Megatron-LM).
    #[must_use]
    pub fn forward_flops_per_token(&self, tokens: usize) -> f64 {
        let active = self.layer_parameters_on(1) as f64 + self.routed_parameters(|of| of.chosen);
        let products = 2.0 * (self.layers as f64 * active + self.embedding_parameters() as f64);
        products + self.layers as f64 * 8.0 * self.visible(tokens) * self.query_width() as f64
    }
}
