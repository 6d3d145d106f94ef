//! What is trained, with what software, on how much at once.
//!
//! Input → output: a configuration or sizes → [`Decoder`], and its parameters. Invariants: sizes are positive.

use ascend_tp_machine::{Profile, Soc, Topology};

use super::super::workload::FeedForward;
use super::coefficients::TrainCoefficients;
use super::forms::StateBytes;
use ascend_tp::base::DType;
use ascend_tp::config::ModelConfig;

/// Sizes of a dense decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoder {
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dims of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate: usize,
    /// How the feed-forward layer is built.
    pub feed_forward: FeedForward,
    /// Norms of a layer.
    pub norms: usize,
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

    /// Parameters of one layer's products.
    #[must_use]
    pub const fn layer_parameters(&self) -> usize {
        let attention = 2 * self.query_width() + 2 * self.kv_width();
        self.hidden * (attention + self.feed_forward.weights() * self.intermediate)
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

    /// Parameters of all products and of the embedding; norms and biases, below a thousandth of it, are left out.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        let tables = if self.tied_embeddings { 1 } else { 2 };
        self.layers * self.layer_parameters() + tables * self.embedding_parameters()
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

/// Floating-point operations that the products of one card can do in a second on values of a type.
#[must_use]
pub fn peak_flops_per_s(soc: Soc, dtype: DType) -> f64 {
    let share = if dtype == DType::F32 { 0.25 } else { 1.0 };
    soc.cube_flops_per_us() * 1e6 * share
}

/// How the attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// In one kernel that keeps no scores.
    Fused,
    /// Products and a softmax whose scores are kept.
    Stored,
}

/// How what lies between products is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elementwise {
    /// One kernel for the rotation, one for the gated function.
    Fused,
    /// One kernel for each addition, product and copy.
    Separate,
}

/// How products and the exchanges of tensor parallelism are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorExchange {
    /// In one kernel that exchanges parts while it multiplies others (MC2).
    Overlapped,
    /// One after the other.
    Exposed,
}

/// How the gradients of weights are added up over the micro-batches of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientSums {
    /// The product that gives a gradient adds it to the sum.
    Fused,
    /// A pass over the gradient and the sum.
    Separate,
    /// Nothing is added up: a step has one micro-batch, whose gradients are the step's.
    Absent,
}

/// What the training software does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// How attention is computed.
    pub attention: Attention,
    /// How the operators between products are computed, but for the next.
    pub elementwise: Elementwise,
    /// How the function of the feed-forward layer is.
    pub activation: Elementwise,
    /// How exchanges of the tensor axis run.
    pub tensor_exchange: TensorExchange,
    /// How gradients are added up.
    pub gradient_sums: GradientSums,
}

impl Software {
    /// Everything CANN 8 has a kernel for.
    pub const FUSED: Self = Self {
        attention: Attention::Fused,
        elementwise: Elementwise::Fused,
        activation: Elementwise::Fused,
        tensor_exchange: TensorExchange::Overlapped,
        gradient_sums: GradientSums::Fused,
    };
}

/// What is to be trained where.
#[derive(Clone, Debug)]
pub struct Job {
    /// The model that is trained.
    pub decoder: Decoder,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Sequences of a step.
    pub global_batch: usize,
    /// Cards of the job.
    pub cards: usize,
    /// What its chip can do.
    pub profile: Profile,
    /// What is fitted of training.
    pub coefficients: TrainCoefficients,
    /// How the cards are joined.
    pub topology: Topology,
    /// What the training software does.
    pub software: Software,
    /// Bytes of a parameter's state.
    pub state: StateBytes,
    /// Layers of each stage, where they are given.
    pub stage_layers: Option<Vec<usize>>,
    /// Layers of each stage that are computed again, where a setting that recomputes does so for some of them only.
    pub recomputed: Option<Vec<usize>>,
}

impl Job {
    /// A model as the software trains it that the coefficients are of, states as Megatron-LM keeps them.
    #[must_use]
    pub fn new(
        config: &ModelConfig,
        (sequence, global_batch): (usize, usize),
        cards: usize,
        (profile, topology): (Profile, Topology),
    ) -> Self {
        Self {
            decoder: Decoder::of(config),
            sequence,
            global_batch,
            cards,
            profile,
            coefficients: TrainCoefficients::FITTED,
            topology,
            software: Software::FUSED,
            state: StateBytes::MEGATRON,
            stage_layers: None,
            recomputed: None,
        }
    }
}
