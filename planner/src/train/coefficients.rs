//! Fitted training coefficients.

/// Training costs in addition to operators and links, fitted to measured rows;
/// docs/COSTS.md has the errors of held-out rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainCoefficients {
    /// Fraction of the cube rate of a large product within a step, where streams share power,
    /// memory and cache.
    pub product_efficiency: f64,
    /// Fraction of the cube rate of fused attention with 128-dim heads. Narrower heads have the
    /// same softmax time.
    pub attention_efficiency: f64,
    /// Fraction of a collective that a fused product hides, and of computation that hides another
    /// stream's collective.
    pub overlap: f64,
    /// Host time per step: data, loss and log.
    pub step_us: f64,
}

impl TrainCoefficients {
    /// Fitted on 910B with MindSpeed.
    #[expect(clippy::approx_constant, reason = "a fitted number that is near π / 6 by chance")]
    pub const FITTED: Self = Self {
        product_efficiency: 0.6699,
        attention_efficiency: 0.4161,
        overlap: 0.5235,
        step_us: 169_900.0,
    };

    /// Reads values in the order of the fields.
    #[must_use]
    pub fn from_values(values: &[f64]) -> Self {
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { product_efficiency: at(0), attention_efficiency: at(1), overlap: at(2), step_us: at(3) }
    }

    /// Returns values in the order of the fields.
    #[must_use]
    pub const fn values(&self) -> [f64; 4] {
        [self.product_efficiency, self.attention_efficiency, self.overlap, self.step_us]
    }
}
