//! What was fitted of training, once for a chip and its software.

/// What a training step takes beside what the operators' and links' costs say. Fitted on the training rows of the measured
/// points, all of them together; docs/COSTS.md has the errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// Part of the cube units' rate that a large product reaches within a step, where exchanges and other streams share power,
    /// memory and cache with it. Other shapes are as much slower than it as they are alone.
    pub product_efficiency: f64,
    /// Rate of fused attention as a part of the cube units' rate, at heads of 128 dims. Its softmax takes as long for narrower
    /// heads.
    pub attention_efficiency: f64,
    /// Part of an exchange that a fused kernel hides behind its product, and part of a computation's time in which an
    /// exchange on another stream gets on: both want the same memory.
    pub overlap: f64,
    /// What a step takes beside the work of the cards, in microseconds: the data, the loss, the log.
    pub step_us: f64,
}

impl Coefficients {
    /// For the 910B with MindSpeed, which are the measured rows.
    pub const FITTED: Self =
        Self { product_efficiency: 0.664, attention_efficiency: 0.37, overlap: 0.49, step_us: 263_000.0 };
}
