//! Dynamic scale of the loss, so that small f16 gradients do not become zero.

use serde::{Deserialize, Serialize};

/// Settings of the dynamic loss scale, as in Megatron-LM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossScaling {
    /// Loss scale of the first step.
    pub initial: f64,
    /// Number of consecutive finite steps before the scale doubles.
    pub growth_steps: usize,
    /// Number of overflow steps since the last growth, from which on each halves the scale.
    pub hysteresis: usize,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { initial: 65536.0, growth_steps: 1000, hysteresis: 2 }
    }
}

/// State of the loss scale, part of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// Multiplier of the loss and its gradients.
    pub scale: f64,
    good: usize,
    /// Overflow steps before the scale is halved.
    borne: usize,
}

impl LossScale {
    /// Smallest loss scale that can be set.
    pub const LEAST: f64 = 1.0;
    /// Largest power of two in f32, the type of the scaled loss.
    pub const MOST: f64 = f64::from_bits(0x47E0_0000_0000_0000);

    /// Returns the state before the first step.
    #[must_use]
    pub const fn new(scaling: &LossScaling) -> Self {
        Self { scale: scaling.initial, good: 0, borne: scaling.hysteresis }
    }

    /// Updates the scale after a step with finite or overflowing gradients. Returns false for an
    /// overflow at the smallest scale.
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
        assert_eq!(after(&[false]), (4.0, true));
        assert_eq!(after(&[false, false]), (1.0, true));
        assert_eq!(after(&[false]), (1.0, false));
    }
}
