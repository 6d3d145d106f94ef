//! Published closed forms of training: bytes of states, and days of a run.
//!
//! Sources: SC21 = Narayanan et al., arXiv 2104.04473; ZERO = Rajbhandari et al., arXiv 1910.02054;
//! DO = `dist_optimizer.md` of Megatron-LM.

use ascend_tp::train::Zero;

/// State bytes per parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateBytes {
    /// Bytes of the parameter.
    pub parameter: f64,
    /// Bytes of the gradient.
    pub gradient: f64,
    /// Bytes of the 32-bit copy and two moments.
    pub optimizer: f64,
}

impl StateBytes {
    /// 16-bit parameters and gradients, 12 bytes for Adam (ZERO).
    pub const ZERO_PAPER: Self = Self { parameter: 2.0, gradient: 2.0, optimizer: 12.0 };
    /// 16-bit parameters, 32-bit gradients (DO, bf16).
    pub const MEGATRON: Self = Self { parameter: 2.0, gradient: 4.0, optimizer: 12.0 };

    /// 16-bit parameters and gradients, plus 32-bit gradients for the optimizer (DO, fp16).
    pub const MEGATRON_F16: Self = Self { parameter: 2.0, gradient: 2.0, optimizer: 16.0 };

    /// Returns the bytes per parameter on each of `copies` cards.
    #[must_use]
    pub fn per_parameter(&self, zero: Zero, copies: f64) -> f64 {
        let split = |bytes: f64, from: Zero| if zero >= from { bytes / copies } else { bytes };
        split(self.parameter, Zero::Weights)
            + split(self.gradient, Zero::Gradients)
            + split(self.optimizer, Zero::Moments)
    }
}

/// Inputs of the time formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingTime {
    /// Operations per parameter and token: [`Self::RECOMPUTED`] or [`Self::KEPT`].
    pub flops_per_parameter: f64,
    /// Number of training tokens.
    pub tokens: f64,
    /// Number of model parameters.
    pub parameters: f64,
    /// Cards of the run.
    pub cards: f64,
    /// FLOP/s per card, counted alike.
    pub achieved_flops: f64,
}

impl TrainingTime {
    /// 2 forward, 2 recomputed, 4 backward (SC21 section 5.1).
    pub const RECOMPUTED: f64 = 8.0;
    /// 2 operations in the forward pass and 4 in the backward pass.
    pub const KEPT: f64 = 6.0;

    /// Returns 8 · tokens · parameters / (cards · achieved FLOP/s) in days (SC21 equation 4).
    #[must_use]
    pub fn days(&self) -> f64 {
        const SECONDS_A_DAY: f64 = 86_400.0;
        self.flops_per_parameter * self.tokens * self.parameters
            / (self.cards * self.achieved_flops)
            / SECONDS_A_DAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_bytes_are_those_of_the_distributed_optimizer() {
        let bytes = StateBytes::MEGATRON;
        for (zero, expected) in Zero::ALL.into_iter().zip([18.0, 7.5, 4.0, 2.25]) {
            assert!((bytes.per_parameter(zero, 8.0) - expected).abs() < 1e-12, "{zero:?}");
        }
        assert!((StateBytes::MEGATRON_F16.per_parameter(Zero::Moments, 8.0) - 6.0).abs() < 1e-12);
    }
}
