//! The scale of the loss, for gradients in f16: numbers that would vanish are kept, and a step
//! whose gradients overflow moves nothing.

use serde::{Deserialize, Serialize};

/// How the scale moves, as in Megatron-LM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossScaling {
    /// The first scale.
    pub initial: f64,
    /// Good steps in a row after which it doubles.
    pub growth_steps: usize,
    /// Bad steps, since it last grew, from which on each halves it.
    pub hysteresis: usize,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { initial: 65536.0, growth_steps: 1000, hysteresis: 2 }
    }
}

/// The scale now; part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// What the loss is multiplied by.
    pub scale: f64,
    good: usize,
    /// Bad steps that are still borne.
    borne: usize,
}

impl LossScale {
    /// Below it a scale does not go.
    pub const LEAST: f64 = 1.0;
    /// Largest scale: the largest power of two in f32, the type in which cards multiply the loss by
    /// it.
    pub const MOST: f64 = f64::from_bits(0x47E0_0000_0000_0000);

    /// Before the first step.
    #[must_use]
    pub const fn new(scaling: &LossScaling) -> Self {
        Self { scale: scaling.initial, good: 0, borne: scaling.hysteresis }
    }

    /// After a step whose gradients were finite, or not. False: they were not, at the least scale
    /// that there is.
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
        // Grown, it bears one again.
        assert_eq!(after(&[false]), (4.0, true));
        assert_eq!(after(&[false, false]), (1.0, true));
        assert_eq!(after(&[false]), (1.0, false));
    }
}
