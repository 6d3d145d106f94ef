//! The training job: model, batch, cards and software.

use ascend_tp_machine::{Profile, Soc, Topology};

use super::coefficients::TrainCoefficients;
use super::forms::StateBytes;
use crate::decoder::Decoder;
use ascend_tp::base::DType;
use ascend_tp::config::ModelConfig;

/// Returns the peak FLOP/s of a card.
#[must_use]
pub fn peak_flops_per_s(soc: Soc, dtype: DType) -> f64 {
    let share = if dtype == DType::F32 { 0.25 } else { 1.0 };
    soc.cube_flops_per_us() * 1e6 * share
}

/// Implementation of the attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// A fused kernel that stores no scores.
    Fused,
    /// Separate products and softmax.
    Stored,
}

/// Implementation of the operators between products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elementwise {
    /// Fused rotation and gated function.
    Fused,
    /// A kernel per operation.
    Separate,
}

/// Tensor-parallel products and collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorExchange {
    /// Fused kernels that communicate while they multiply (MC2).
    Overlapped,
    /// Products and collectives in sequence.
    Exposed,
}

/// Accumulation of weight gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientSums {
    /// Products accumulate their result.
    Fused,
    /// Separate passes accumulate gradients.
    Separate,
    /// A step has one micro-batch.
    Absent,
}

/// Behaviour of the training software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// Implementation of the attention.
    pub attention: Attention,
    /// Between products, without the activation.
    pub elementwise: Elementwise,
    /// Activation of the feed-forward layer.
    pub activation: Elementwise,
    /// Collectives of the tensor axis.
    pub tensor_exchange: TensorExchange,
    /// Accumulation of weight gradients.
    pub gradient_sums: GradientSums,
}

impl Software {
    /// Every fused kernel of CANN 8.
    pub const FUSED: Self = Self {
        attention: Attention::Fused,
        elementwise: Elementwise::Fused,
        activation: Elementwise::Fused,
        tensor_exchange: TensorExchange::Overlapped,
        gradient_sums: GradientSums::Fused,
    };
}

/// Model, cards and software.
#[derive(Clone, Debug)]
pub struct Job {
    /// The model that is trained.
    pub decoder: Decoder,
    /// Sequence length in tokens.
    pub sequence: usize,
    /// Sequences of a step.
    pub global_batch: usize,
    /// Cards of the job.
    pub cards: usize,
    /// Profile of the chip.
    pub profile: Profile,
    /// Fitted coefficients of training.
    pub coefficients: TrainCoefficients,
    /// Topology that connects the cards.
    pub topology: Topology,
    /// Behaviour of the training software.
    pub software: Software,
    /// State bytes per parameter.
    pub state: StateBytes,
    /// Layers of each stage, if given.
    pub stage_layers: Option<Vec<usize>>,
    /// Recomputed layers of each stage, if not all.
    pub recomputed: Option<Vec<usize>>,
}

impl Job {
    /// Uses the fitted software and states as in Megatron-LM.
    #[must_use]
    pub fn new(
        config: &ModelConfig,
        sequence: usize,
        global_batch: usize,
        cards: usize,
        profile: Profile,
        topology: Topology,
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
