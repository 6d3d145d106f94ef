//! Dynamic scale of the loss for gradients in f16.
//!
//! The scale keeps small gradients from becoming zero. A step with overflowing gradients updates no
//! weight.

use serde::{Deserialize, Serialize};

/// Settings of the dynamic loss scale, as in Megatron-LM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossScaling {
    /// Loss scale of the first step.
    pub initial: f64,
    /// Number of consecutive finite steps after which the scale doubles.
    pub growth_steps: usize,
    /// Number of overflow steps since the last growth, from which on each overflow halves the
    /// scale.
    pub hysteresis: usize,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { initial: 65536.0, growth_steps: 1000, hysteresis: 2 }
    }
}

/// Current state of the loss scale. Checkpoints include this state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// Multiplier of the loss and its gradients.
    pub scale: f64,
    good: usize,
    /// Overflow steps that remain until the scale is halved.
    borne: usize,
}

impl LossScale {
    /// Smallest loss scale that can be set.
    pub const LEAST: f64 = 1.0;
    /// Largest loss scale: the largest power of two in f32. Cards multiply the loss by the scale in
    /// f32.
    pub const MOST: f64 = f64::from_bits(0x47E0_0000_0000_0000);

    /// Returns the state before the first step.
    #[must_use]
    pub const fn new(scaling: &LossScaling) -> Self {
        Self { scale: scaling.initial, good: 0, borne: scaling.hysteresis }
    }

    /// Updates the scale after a step. `is_finite` tells whether the gradients were finite. Returns
    /// false if they overflowed at the smallest scale.
    #[must_use]
    pub fn next(&mut self, is_finite: bool, scaling: &LossScaling) -> bool {
        if is_finite {
            self.good += 1;
            if self.good == scaling.growth_steps {
                *self = Self { scale: (self.scale * 2.0).min(Self::MOST), ..Self::new(scaling) };
            }
            return true;
        }
        self.good = 0;
        self.borne = self.borne.saturating_sub(1);
        if self.borne > 0 {
            return true;
        }
        let can_fall = self.scale > Self::LEAST;
        self.scale = (self.scale / 2.0).max(Self::LEAST);
        can_fall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_stays_within_f32() {
        assert_eq!(LossScale::MOST, f64::powi(2.0, 127));
        let scaling = LossScaling { initial: LossScale::MOST, growth_steps: 1, hysteresis: 1 };
        let mut scale = LossScale::new(&scaling);
        assert!(scale.next(true, &scaling) && (scale.scale as f32).is_finite(), "{scale:?}");
    }

    #[test]
    fn bad_steps_beyond_the_borne_ones_halve_it_and_good_ones_in_a_row_double_it() {
        let scaling = LossScaling { initial: 8.0, growth_steps: 3, hysteresis: 2 };
        let mut scale = LossScale::new(&scaling);
        let mut after = |steps: &[bool]| {
            let held = steps.iter().map(|is_finite| scale.next(*is_finite, &scaling)).last() == Some(true);
            (scale.scale, held)
        };
        assert_eq!(after(&[false]), (8.0, true));
        assert_eq!(after(&[true, true, false]), (4.0, true));
        assert_eq!(after(&[false]), (2.0, true));
        assert_eq!(after(&[true, true, true]), (4.0, true));
        // Growth restores the hysteresis.
        assert_eq!(after(&[false]), (4.0, true));
        assert_eq!(after(&[false, false]), (1.0, true));
        assert_eq!(after(&[false]), (1.0, false));
    }
}
