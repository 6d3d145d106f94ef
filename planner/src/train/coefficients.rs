//! What was fitted of training, once for a chip and its software.

/// What a training step takes beside what the operators' and links' costs say. Fitted on the training rows of the measured
/// points ([`super::unseen`]); docs/COSTS.md has the errors of rows whose page was left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainCoefficients {
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

impl TrainCoefficients {
    /// For the 910B with MindSpeed, which are the measured rows.
    pub const FITTED: Self =
        Self { product_efficiency: 0.6618, attention_efficiency: 0.4081, overlap: 0.5296, step_us: 173_000.0 };

    /// In the order of [`super::unseen::PARAMETERS`].
    #[must_use]
    pub fn from_values(values: &[f64]) -> Self {
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { product_efficiency: at(0), attention_efficiency: at(1), overlap: at(2), step_us: at(3) }
    }

    /// In the same order.
    #[must_use]
    pub const fn values(&self) -> [f64; 4] {
        [self.product_efficiency, self.attention_efficiency, self.overlap, self.step_us]
    }
}
