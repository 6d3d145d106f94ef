//! Rotary position embedding: the angle of each pair of dims at each position.
//!
//! Input: [`Rope`], a head size and positions. Output: rows of cos and sin.
//!
//! Invariants: both halves of a row are equal, and number `i` of a half is the angle of pair `i`,
//! also where pairs are neighbours. Every step that the reference implementations do in binary32 is
//! rounded to binary32 here too. Cos and sin are correctly rounded, so rows differ from the
//! reference in the last bit at most.
//!
//! Not here: the rotation, and reading of files.
//!
//! Sources: `RoFormer` (arXiv 2104.09864) eq. 15 for the angles, `YaRN` (arXiv 2309.00071) for
//! `Yarn` and `Dynamic`, and the initialisation functions of Hugging Face transformers. Published
//! files follow the conventions of these functions.

use std::f64::consts::TAU;

/// Rotary position embedding of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The base: pair `i` of `n` turns by `theta^(-i/n)` radians per position.
    pub theta: f64,
    /// Change of the frequencies beyond the trained length.
    pub scaling: RopeScaling,
    /// Rotated part of a head, from its first dim. 1: the whole head.
    pub part: f64,
    /// Dims that form a pair.
    pub pairing: RotaryPairing,
}

/// Dims of a head that are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotaryPairing {
    /// Dim `i` and dim `i + n / 2` of `n` rotated dims.
    Halves,
    /// Dim `2i` and dim `2i + 1`.
    Neighbours,
}

/// A change of the rotary frequencies.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Frequencies as the base gives them.
    Default,
    /// Every frequency is divided by `factor`.
    Linear {
        /// Extended length relative to the trained length, at least 1.
        factor: f64,
    },
    /// The base grows with the current length once that exceeds the trained length.
    Dynamic {
        /// Rate of the growth, at least 1.
        factor: f64,
        /// Length in positions up to which the base is kept.
        trained_positions: usize,
    },
    /// Low frequencies are divided by `factor`, high ones are kept, and those between are blended
    /// (Llama 3.1).
    Llama3 {
        /// Divisor of the low frequencies; at least 1.
        factor: f64,
        /// Wavelengths above `original_positions / low_freq_factor` are low frequencies.
        low_freq_factor: f64,
        /// Wavelengths below `original_positions / high_freq_factor` are high frequencies; above
        /// `low_freq_factor`.
        high_freq_factor: f64,
        /// Positions of the training before the extension.
        original_positions: usize,
    },
    /// `YaRN`: interpolation by parts, and a factor on cos and sin.
    Yarn {
        /// Divisor of the low frequencies; at least 1.
        factor: f64,
        /// Positions of the training before the extension.
        original_positions: usize,
        /// Factor of cos and sin.
        attention_factor: f64,
        /// Turns over the original positions above which a frequency is kept.
        beta_fast: f64,
        /// Turns below which a frequency is divided by `factor`.
        beta_slow: f64,
        /// Whether the bounds of the blended frequencies are rounded outwards to whole dims.
        truncate: bool,
    },
    /// The base is multiplied by `alpha^(d / (d − 2))` for heads of `d` dims, at any length
    /// (Hunyuan).
    NtkAlpha {
        /// Divisor of the lowest frequency; at least 1.
        alpha: f64,
    },
    /// The base grows in powers of two with the length of the prompt (original Qwen).
    QwenDynamicNtk {
        /// Length in positions up to which the base is kept: `seq_length` of the file.
        trained_length: usize,
    },
}

/// Length that the frequencies depend on: the argument `sequence_length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthDependence {
    /// No length. One table of rows serves every sequence.
    Fixed,
    /// The length of the prompt. The same frequencies serve all tokens generated after it.
    Prompt,
    /// The positions in use at each step, prompt and generated tokens together. Rows of earlier
    /// steps in the KV cache keep their frequencies.
    Current,
}

impl Rope {
    /// Returns a rotation of whole heads in halves with base `theta` and without scaling.
    #[must_use]
    pub const fn plain(theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::Default, part: 1.0, pairing: RotaryPairing::Halves }
    }

    /// Returns the length that [`Self::cos_sin`] needs.
    #[must_use]
    pub const fn length_dependence(&self) -> LengthDependence {
        match self.scaling {
            RopeScaling::Default
            | RopeScaling::Linear { .. }
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Yarn { .. }
            | RopeScaling::NtkAlpha { .. } => LengthDependence::Fixed,
            RopeScaling::QwenDynamicNtk { .. } => LengthDependence::Prompt,
            RopeScaling::Dynamic { .. } => LengthDependence::Current,
        }
    }

    /// Returns the part of a head of which [`Self::rotated_dims`] gives `dims`.
    pub(super) fn part_of(dims: usize, head_dim: usize) -> f64 {
        let part = dims as f64 / head_dim as f64;
        if (head_dim as f64 * part) as usize == dims { part } else { part.next_up() }
    }

    /// Returns the number of rotated dims of a head.
    #[must_use]
    pub fn rotated_dims(&self, head_dim: usize) -> usize {
        (head_dim as f64 * self.part) as usize
    }

    /// Returns cos and sin of the angle of every pair at every position.
    ///
    /// # Shapes
    /// Both `[positions.len(), rotated dims]`, row-major. Both halves of a row are equal.
    ///
    /// # Panics
    /// If the number of rotated dims is odd or zero, which no [`ModelConfig`](super::ModelConfig)
    /// has.
    #[must_use]
    pub fn cos_sin(
        &self,
        head_dim: usize,
        positions: &[usize],
        sequence_length: usize,
    ) -> (Vec<f32>, Vec<f32>) {
        let dims = self.rotated_dims(head_dim);
        let inverse_frequencies = self.inverse_frequencies(dims, sequence_length);
        let attention_factor = self.attention_factor();
        let mut cos = Vec::with_capacity(positions.len() * dims);
        let mut sin = Vec::with_capacity(positions.len() * dims);
        for &position in positions {
            let start = cos.len();
            for &inverse_frequency in &inverse_frequencies {
                let angle = f64::from(position as f32 * inverse_frequency);
                cos.push(angle.cos() as f32 * attention_factor);
                sin.push(angle.sin() as f32 * attention_factor);
            }
            cos.extend_from_within(start..);
            sin.extend_from_within(start..);
        }
        (cos, sin)
    }

    /// Returns the factor of cos and sin: 1 except for [`RopeScaling::Yarn`].
    #[must_use]
    pub const fn attention_factor(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { attention_factor, .. } => attention_factor as f32,
            _ => 1.0,
        }
    }

    /// Returns the radians per position of each pair of `head_dim` rotated dims.
    ///
    /// # Shapes
    /// `[head_dim / 2]`.
    ///
    /// # Panics
    /// If `head_dim` is odd or zero.
    #[must_use]
    pub fn inverse_frequencies(&self, head_dim: usize, sequence_length: usize) -> Vec<f32> {
        assert!(
            head_dim > 0 && head_dim.is_multiple_of(2),
            "a rotary head has an even number of dims, not {head_dim}"
        );
        match self.scaling {
            RopeScaling::Default => unscaled(self.theta, head_dim),
            RopeScaling::Linear { factor } => {
                unscaled(self.theta, head_dim).into_iter().map(|inverse| inverse / factor as f32).collect()
            }
            RopeScaling::Dynamic { factor, trained_positions } => {
                let stretch = sequence_length.max(trained_positions) as f64 / trained_positions as f64;
                unscaled(grown_base(self.theta, factor * stretch - (factor - 1.0), head_dim), head_dim)
            }
            RopeScaling::NtkAlpha { alpha } => unscaled(grown_base(self.theta, alpha, head_dim), head_dim),
            RopeScaling::QwenDynamicNtk { trained_length } => unscaled(
                grown_base(self.theta, qwen_alpha(sequence_length, trained_length), head_dim),
                head_dim,
            ),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => {
                let positions = original_positions as f64;
                let bands = Llama3Bands {
                    factor: factor as f32,
                    longest_kept: (positions / high_freq_factor) as f32,
                    shortest_divided: (positions / low_freq_factor) as f32,
                    positions: positions as f32,
                    low: low_freq_factor as f32,
                    width: (high_freq_factor - low_freq_factor) as f32,
                };
                unscaled(self.theta, head_dim).into_iter().map(|inverse| bands.scale(inverse)).collect()
            }
            RopeScaling::Yarn { factor, original_positions, beta_fast, beta_slow, truncate, .. } => {
                let [first, last] =
                    yarn_range(self.theta, head_dim, original_positions, beta_fast, beta_slow, truncate);
                yarn(self.theta, head_dim, factor, first, last)
            }
        }
    }
}

/// Returns `base^(2i / head_dim)` for each pair `i`.
fn powers(base: f64, head_dim: usize) -> impl Iterator<Item = f32> {
    let base = f64::from(base as f32);
    (0..head_dim / 2).map(move |pair| {
        let exponent = (2 * pair) as f32 / head_dim as f32;
        base.powf(f64::from(exponent)) as f32
    })
}

fn unscaled(base: f64, head_dim: usize) -> Vec<f32> {
    powers(base, head_dim).map(|power| 1.0 / power).collect()
}

/// Returns the base that divides the lowest frequency by `alpha` and keeps the highest one
/// (NTK-aware scaling).
fn grown_base(base: f64, alpha: f64, head_dim: usize) -> f64 {
    let dim = head_dim as f64;
    // With one pair of dims the only frequency is 1, and the exponent is not defined.
    if head_dim == 2 { base } else { base * alpha.powf(dim / (dim - 2.0)) }
}

/// Returns the growth of the original Qwen: 1 up to the trained length, then 2^⌈log₂(length /
/// trained) + 1⌉ − 1.
fn qwen_alpha(sequence_length: usize, trained_length: usize) -> f64 {
    if sequence_length <= trained_length {
        return 1.0;
    }
    let context = (sequence_length as f64 / trained_length as f64).log2() + 1.0;
    context.ceil().exp2() - 1.0
}

/// The three bands of Llama 3.1's scaling; wavelengths in positions.
struct Llama3Bands {
    factor: f32,
    longest_kept: f32,
    shortest_divided: f32,
    positions: f32,
    low: f32,
    width: f32,
}

impl Llama3Bands {
    fn scale(&self, inverse: f32) -> f32 {
        let wavelength = TAU as f32 / inverse;
        if wavelength < self.longest_kept {
            inverse
        } else if wavelength > self.shortest_divided {
            inverse / self.factor
        } else {
            let smooth = (self.positions / wavelength - self.low) / self.width;
            (1.0 - smooth) * inverse / self.factor + smooth * inverse
        }
    }
}

/// Returns the first and the last pair between which `YaRN` blends. Frequencies below the first
/// pair are kept, and those above the last one are divided.
fn yarn_range(
    theta: f64,
    head_dim: usize,
    original_positions: usize,
    beta_fast: f64,
    beta_slow: f64,
    truncate: bool,
) -> [f64; 2] {
    let dim = head_dim as f64;
    let pair_with_turns =
        |turns: f64| dim * (original_positions as f64 / (turns * TAU)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (pair_with_turns(beta_fast), pair_with_turns(beta_slow));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    [low.max(0.0), high.min(dim - 1.0)]
}

/// Returns the frequencies that `YaRN` blends from pair `first` to pair `last`.
fn yarn(theta: f64, head_dim: usize, factor: f64, first: f64, mut last: f64) -> Vec<f32> {
    if first == last {
        // The ramp would divide by zero. The reference widens it by this number.
        last += 0.001;
    }
    let (first, width) = (first as f32, (last - first) as f32);
    powers(theta, head_dim)
        .enumerate()
        .map(|(pair, power)| {
            let kept = 1.0 - ((pair as f32 - first) / width).clamp(0.0, 1.0);
            1.0 / (factor as f32 * power) * (1.0 - kept) + 1.0 / power * kept
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{LengthDependence, Rope, RopeScaling};

    fn scaled(theta: f64, scaling: RopeScaling) -> Rope {
        Rope { scaling, ..Rope::plain(theta) }
    }

    /// Compares with values computed in binary64 from the formulas; binary32 rounding is all that
    /// may differ.
    fn close(actual: &[f32], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (index, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
            let error = (f64::from(actual) - expected).abs();
            assert!(error <= 1e-6 * expected.abs(), "{index}: {actual} is not {expected}");
        }
    }

    #[test]
    fn frequencies_without_scaling() {
        close(&Rope::plain(10_000.0).inverse_frequencies(8, 1), &[1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn rows_are_in_the_half_layout() {
        let (cos, sin) = Rope::plain(10_000.0).cos_sin(4, &[0, 3], 4);
        let expected_cos = [1.0, 1.0, 1.0, 1.0, 3f64.cos(), 0.03f64.cos(), 3f64.cos(), 0.03f64.cos()];
        close(&cos, &expected_cos);
        assert_eq!(sin[..4], [0.0; 4]);
        close(&sin[4..], &[3f64.sin(), 0.03f64.sin(), 3f64.sin(), 0.03f64.sin()]);
    }

    #[test]
    fn linear_divides_every_frequency() {
        let rope = scaled(10_000.0, RopeScaling::Linear { factor: 4.0 });
        close(&rope.inverse_frequencies(8, 1), &[0.25, 0.025, 0.0025, 0.00025]);
    }

    #[test]
    fn dynamic_grows_the_base_beyond_the_trained_length() {
        let rope = scaled(10_000.0, RopeScaling::Dynamic { factor: 2.0, trained_positions: 100 });
        let plain = Rope::plain(10_000.0);
        assert_eq!(rope.inverse_frequencies(8, 100), plain.inverse_frequencies(8, 100));
        let base = 10_000.0 * (2.0 * 150.0 / 100.0 - 1.0f64).powf(8.0 / 6.0);
        let expected: Vec<f64> = (0..4).map(|pair| base.powf(-f64::from(pair) / 4.0)).collect();
        close(&rope.inverse_frequencies(8, 150), &expected);
        assert_eq!(rope.length_dependence(), LengthDependence::Current);
    }

    #[test]
    fn qwen_grows_the_base_in_powers_of_two() {
        let rope = scaled(10_000.0, RopeScaling::QwenDynamicNtk { trained_length: 100 });
        for (length, alpha) in
            [(1, 1.0), (100, 1.0), (101, 3.0), (200, 3.0), (201, 7.0), (400, 7.0), (401, 15.0f64)]
        {
            let base = 10_000.0 * alpha.powf(8.0 / 6.0);
            let expected: Vec<f64> = (0..4).map(|pair| base.powf(-f64::from(pair) / 4.0)).collect();
            close(&rope.inverse_frequencies(8, length), &expected);
        }
        assert_eq!(rope.length_dependence(), LengthDependence::Prompt);
    }

    #[test]
    fn alpha_grows_the_base_at_any_length() {
        let rope = scaled(10_000.0, RopeScaling::NtkAlpha { alpha: 1000.0 });
        let base = 10_000.0 * 1000f64.powf(8.0 / 6.0);
        let expected: Vec<f64> = (0..4).map(|pair| base.powf(-f64::from(pair) / 4.0)).collect();
        for length in [1, 100_000] {
            close(&rope.inverse_frequencies(8, length), &expected);
        }
        // The lowest frequency of a head is divided by alpha.
        let plain = Rope::plain(10_000.0).inverse_frequencies(8, 1);
        close(&[rope.inverse_frequencies(8, 1)[3] * 1000.0], &[f64::from(plain[3])]);
        assert_eq!(rope.length_dependence(), LengthDependence::Fixed);
    }

    #[test]
    fn llama3_has_three_bands() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 8.0,
            original_positions: 64,
        };
        let actual = scaled(500_000.0, scaling).inverse_frequencies(8, 1);
        let plain: Vec<f64> = (0..4).map(|pair| 500_000f64.powf(-f64::from(pair) / 4.0)).collect();
        // Wavelengths 6.3, 167, 4443 and 118142 positions: kept below 8, divided above 64.
        close(&actual, &[plain[0], plain[1] / 8.0, plain[2] / 8.0, plain[3] / 8.0]);
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 8.0,
            original_positions: 512,
        };
        let actual = scaled(500_000.0, scaling).inverse_frequencies(8, 1);
        // 167 lies between 64 and 512 now.
        let smooth = (512.0 * plain[1] / std::f64::consts::TAU - 1.0) / 7.0;
        let blended = (1.0 - smooth) * plain[1] / 8.0 + smooth * plain[1];
        close(&actual, &[plain[0], blended, plain[2] / 8.0, plain[3] / 8.0]);
    }

    fn yarn(truncate: bool) -> Rope {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            original_positions: 4096,
            attention_factor: 0.1 * 4f64.ln() + 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate,
        };
        scaled(10_000.0, scaling)
    }

    #[test]
    fn yarn_blends_by_parts() {
        let theta = 10_000f64;
        for truncate in [true, false] {
            let pair_with =
                |turns: f64| 16.0 * (4096.0 / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln());
            let (mut low, mut high) = (pair_with(32.0), pair_with(1.0));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            let expected: Vec<f64> = (0..8)
                .map(|pair| {
                    let inverse = theta.powf(-f64::from(pair) / 8.0);
                    let kept = 1.0 - ((f64::from(pair) - low) / (high - low)).clamp(0.0, 1.0);
                    inverse / 4.0 * (1.0 - kept) + inverse * kept
                })
                .collect();
            close(&yarn(truncate).inverse_frequencies(16, 1), &expected);
        }
    }

    #[test]
    fn yarn_scales_cos_and_sin() {
        let (cos, sin) = yarn(true).cos_sin(16, &[0], 1);
        let factor = (0.1 * 4f64.ln() + 1.0) as f32;
        assert_eq!(cos, [factor; 16]);
        assert_eq!(sin, [0.0; 16]);
        assert_eq!(yarn(true).length_dependence(), LengthDependence::Fixed);
    }

    #[test]
    fn a_part_of_a_head_has_the_dims_it_was_made_from() {
        for head_dim in 1..700 {
            for dims in 1..=head_dim {
                let rope = Rope { part: Rope::part_of(dims, head_dim), ..Rope::plain(1e4) };
                assert_eq!(rope.rotated_dims(head_dim), dims, "{dims} of {head_dim}");
            }
        }
        assert_eq!(Rope::part_of(6, 12), 0.5);
    }

    #[test]
    fn one_pair_of_dims_has_one_frequency() {
        let rope = scaled(10_000.0, RopeScaling::QwenDynamicNtk { trained_length: 4 });
        assert_eq!(rope.inverse_frequencies(2, 100), [1.0]);
    }
}
