//! Descriptions of decoder layers.
//!
//! Input: none. Output: plain types that [`ModelConfig`](super::ModelConfig) contains.
//!
//! Invariants: a description names no family and no tensor. `program::models` builds every
//! description that it supports and refuses the other ones by name.
//!
//! Not here: sizes that all layers of a model share. They are fields of the model.

/// A decoder layer: an attention and a feed-forward part, each added to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Description of the attention part.
    pub attention: AttentionPart,
    /// Description of the feed-forward part.
    pub feed_forward: FeedForwardPart,
    /// Positions of the norms of both parts.
    pub norms: NormPlaces,
}

/// The attention part of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttentionPart {
    /// Softmax attention. Several query heads share a key head.
    Grouped(GroupedAttention),
    /// Softmax attention over keys and values that are projections of one latent vector per token.
    Latent(LatentAttention),
    /// Linear attention by the gated delta rule.
    GatedDelta(GatedDelta),
}

/// Linear attention by the gated delta rule, behind a causal convolution.
///
/// A key head serves `value_heads / key_heads` consecutive value heads. Each value head has a state
/// of [`key_dims`](Self::key_dims) × [`value_dims`](Self::value_dims) numbers per sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedDelta {
    /// Number of key heads, and of query heads.
    pub key_heads: usize,
    /// Number of value heads. It is a multiple of the number of key heads.
    pub value_heads: usize,
    /// Dims of a key or query head.
    pub key_dims: usize,
    /// Dims of a value head.
    pub value_dims: usize,
    /// Number of tokens that the convolution reads, the current one included.
    pub convolution: usize,
}

impl GatedDelta {
    /// Returns the number of value heads that a key head serves.
    #[must_use]
    pub const fn values_per_key(&self) -> usize {
        self.value_heads / self.key_heads
    }

    /// Returns the number of channels of the convolution: queries, keys and values of all heads.
    #[must_use]
    pub const fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dims + self.value_heads * self.value_dims
    }
}

/// Softmax attention. Several query heads share a key head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedAttention {
    /// Whether the query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Norm of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Number of keys that a token sees, itself included. `None`: all earlier tokens.
    pub window: Option<usize>,
    /// Rotary embedding of the layer.
    pub rotary: Rotary,
    /// Number under the root of the scale `1 / √x` of the scores. `None`: dims of a head.
    pub query_scalar: Option<f64>,
    /// Soft cap of the scores: `cap · tanh(score / cap)`.
    pub score_cap: Option<f64>,
    /// Whether each head has a sink, a score without a value.
    pub has_sinks: bool,
    /// Whether a gate multiplies the heads before the output projection.
    pub has_output_gate: bool,
}

/// Softmax attention over keys and values that are projections of one latent vector per token.
///
/// A query or key head has [`plain_dims`](Self::plain_dims), and then
/// [`rotary_dims`](Self::rotary_dims). All heads share the rotated dims of the key, which are not a
/// projection of the latent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentAttention {
    /// Width of the latent of keys and values.
    pub width: usize,
    /// Width of the latent of queries, or `None` if queries are projected directly.
    pub query_width: Option<usize>,
    /// Dims of a query or key head that are not rotated.
    pub plain_dims: usize,
    /// Dims of a query or key head that are rotated.
    pub rotary_dims: usize,
    /// Dims of a value head.
    pub value_dims: usize,
    /// Factor of the scores. It includes the factor of the rotary scaling.
    pub scale: f64,
    /// Number added to the mean square in the norms of both latents.
    pub norm_epsilon: f64,
    /// Rotary embedding of the layer. Its pairing says which of the rotated dims are pairs.
    pub rotary: Rotary,
}

/// Facts about every attention by a softmax over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxAttention {
    /// Number of keys that a token sees, itself included. `None`: all earlier tokens.
    pub window: Option<usize>,
    /// Rotary embedding of the layer.
    pub rotary: Rotary,
}

/// Range and place of the norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Each head by itself before the rotation, with one weight for all heads.
    PerHead,
    /// Each head by itself after the rotation, with one weight for all heads.
    PerRotatedHead,
    /// All heads of a token together, before the rotation.
    AllHeads,
}

/// Choice between the two rotary embeddings of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotary {
    /// The rotary embedding [`ModelConfig::rope`](super::ModelConfig::rope).
    Global,
    /// The rotary embedding [`ModelConfig::local_rope`](super::ModelConfig::local_rope).
    Local,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedForwardPart {
    /// One gated block: `down(activation(gate(x)) · up(x))`.
    Dense {
        /// Function of the gate.
        activation: Activation,
        /// Whether the projections have biases.
        has_bias: bool,
    },
    /// A router that sends each token to a few of many gated blocks, the experts.
    Mixture(Mixture),
}

/// A mixture of experts: `y = Σ weight · expert(x)` over the experts that the router chooses for a
/// token, plus the shared expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// Number of routed experts.
    pub experts: usize,
    /// Number of experts that a token is sent to.
    pub chosen: usize,
    /// Rows of the gate projection and of the up projection of a routed expert.
    pub intermediate_size: usize,
    /// Choice of experts and of their weights.
    pub router: Router,
    /// The expert that every token passes.
    pub shared: Option<SharedExpert>,
    /// Function of the gates.
    pub activation: Activation,
    /// Whether the projections of routed experts have biases.
    pub has_bias: bool,
}

/// An expert that every token passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    /// Rows of the gate projection and of the up projection.
    pub intermediate_size: usize,
    /// Whether the sigmoid of one number per token multiplies its result.
    pub has_gate: bool,
}

/// Choice of experts, and of their weights, from the router's logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Function from logits to scores.
    pub scores: Scores,
    /// Whether the logits have a bias.
    pub has_logit_bias: bool,
    /// Whether a bias is added to the scores for the choice alone.
    pub has_choice_bias: bool,
    /// Groups of experts. A token uses a few groups.
    pub groups: Option<ExpertGroups>,
    /// Number added to the sum of the chosen scores that divides each of them. `None`: the weights
    /// are the scores.
    pub renormalisation: Option<f64>,
    /// Factor of the weights.
    pub factor: f64,
}

/// Groups of experts with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups. It divides the number of experts.
    pub count: usize,
    /// Number of groups with the largest scores. Other experts are not chosen.
    pub kept: usize,
    /// Number of largest scores of experts that are added to the score of a group.
    pub summed: usize,
}

/// Function from the router's logits to scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
    /// Softmax over the chosen experts. The choice is by logits.
    SoftmaxOfChosen,
}

/// Function of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// The activation function `x · sigmoid(x)`.
    Silu,
    /// `x · Φ(x)`, with `Φ` approximated by tanh.
    GeluTanh,
    /// `(clip(up, ±limit) + 1) · g · sigmoid(slope · g)` instead of `activation(gate) · up`, with
    /// `g = min(gate, limit)`.
    Clipped {
        /// Limit of gate and up projection.
        limit: f64,
        /// Slope of the sigmoid.
        slope: f64,
    },
}

impl Activation {
    /// Returns the activation that transformers calls by this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "silu" | "swish" => Some(Self::Silu),
            "gelu_pytorch_tanh" | "gelu_new" => Some(Self::GeluTanh),
            _ => None,
        }
    }
}

/// Positions of the norms of a layer's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlaces {
    /// Norms of the input of each part.
    Before,
    /// Norms of the output of each part, before the addition.
    After,
    /// Norms of the input and of the output.
    Both,
}

impl NormPlaces {
    /// Returns whether the input of each part is normalised.
    #[must_use]
    pub const fn has_before(self) -> bool {
        matches!(self, Self::Before | Self::Both)
    }

    /// Returns whether the output of each part is normalised.
    #[must_use]
    pub const fn has_after(self) -> bool {
        matches!(self, Self::After | Self::Both)
    }

    /// Returns the number of norms of a layer.
    #[must_use]
    pub const fn count(self) -> usize {
        match self {
            Self::Before | Self::After => 2,
            Self::Both => 4,
        }
    }
}

/// Meaning of the weight of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormWeight {
    /// The weight is the factor.
    Factor,
    /// The factor is one plus the weight.
    OnePlus,
}

impl GroupedAttention {
    /// Attention to all earlier tokens, without biases, norms and caps.
    pub const PLAIN: Self = Self {
        qkv_bias: false,
        output_bias: false,
        qk_norm: None,
        window: None,
        rotary: Rotary::Global,
        query_scalar: None,
        score_cap: None,
        has_sinks: false,
        has_output_gate: false,
    };
}

impl Layer {
    /// The layer of Llama: grouped attention, a `SwiGLU` block, norms before both.
    pub const PLAIN: Self = Self {
        attention: AttentionPart::Grouped(GroupedAttention::PLAIN),
        feed_forward: FeedForwardPart::Dense { activation: Activation::Silu, has_bias: false },
        norms: NormPlaces::Before,
    };

    /// Returns which keys a token of the layer reads and how they are rotated, if the attention is
    /// a softmax over keys.
    #[must_use]
    pub const fn softmax(&self) -> Option<SoftmaxAttention> {
        match &self.attention {
            AttentionPart::Grouped(GroupedAttention { window, rotary, .. }) => {
                Some(SoftmaxAttention { window: *window, rotary: *rotary })
            }
            AttentionPart::Latent(latent) => Some(SoftmaxAttention { window: None, rotary: latent.rotary }),
            AttentionPart::GatedDelta(_) => None,
        }
    }

    /// Returns the grouped attention, if the layer has one.
    #[must_use]
    pub const fn grouped(&self) -> Option<&GroupedAttention> {
        match &self.attention {
            AttentionPart::Grouped(attention) => Some(attention),
            AttentionPart::Latent(_) | AttentionPart::GatedDelta(_) => None,
        }
    }

    /// Returns the latent attention, if the layer has one.
    #[must_use]
    pub const fn latent(&self) -> Option<&LatentAttention> {
        match &self.attention {
            AttentionPart::Latent(attention) => Some(attention),
            AttentionPart::Grouped(_) | AttentionPart::GatedDelta(_) => None,
        }
    }

    /// Returns the gated delta rule, if the layer has one.
    #[must_use]
    pub const fn delta(&self) -> Option<&GatedDelta> {
        match &self.attention {
            AttentionPart::GatedDelta(delta) => Some(delta),
            AttentionPart::Grouped(_) | AttentionPart::Latent(_) => None,
        }
    }

    /// Returns whether the projections of the feed-forward part have biases, without the router.
    #[must_use]
    pub const fn has_mlp_bias(&self) -> bool {
        match self.feed_forward {
            FeedForwardPart::Dense { has_bias, .. } => has_bias,
            FeedForwardPart::Mixture(Mixture { has_bias, .. }) => has_bias,
        }
    }
}
