//! What is trained, with what software, on how much at once.
//!
//! Input → output: a configuration, a batch and cards → [`Job`].

use ascend_tp_machine::{Profile, Soc, Topology};

use super::coefficients::TrainCoefficients;
use super::forms::StateBytes;
use crate::decoder::Decoder;
use ascend_tp::base::DType;
use ascend_tp::config::ModelConfig;

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
