//! Log-probabilities of the model's own distribution.
//!
//! - Input: the logits of one position before all changes and without temperature (the mode
//!   `raw_logprobs` of vLLM).
//! - Output: [`LogProbabilities`].
//! - Invariants: a token has the same float as the chosen token and among the most likely tokens.

use super::SamplingError;
use super::choice::LogitWeights;
use super::order::{RankedToken, largest, most_likely};

/// Natural logarithms of the model's probabilities, before temperature, penalties and masks.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbabilities {
    /// Log-probability of the chosen token.
    pub chosen: f32,
    /// The most likely tokens in descending order. Ties go to the lower id.
    pub likeliest: Vec<(u32, f32)>,
}

impl LogProbabilities {
    /// Returns the log-probabilities of `chosen` and of the `count` most likely tokens of a row.
    ///
    /// For a prompt, `chosen` is the next token of the prompt.
    ///
    /// # Errors
    /// The logits are empty, contain NaN or +∞, are all −∞, or have no place for `chosen`.
    #[doc(hidden)]
    pub fn of(logits: &[f32], chosen: u32, count: usize) -> Result<Self, SamplingError> {
        let first = largest(logits)?.logit();
        let tokens = logits.len();
        let chosen =
            logits.get(chosen as usize).ok_or(SamplingError::OutsideVocabulary { token: chosen, tokens })?;
        let weights = LogitWeights { largest: f64::from(first), scale: 1.0 };
        let normaliser = weights.largest + weights.sum(logits).ln();
        let mut likeliest = Vec::new();
        most_likely(logits, count, &mut likeliest);
        Ok(Self::relative_to(normaliser, *chosen, &likeliest))
    }

    fn relative_to(normaliser: f64, chosen: f32, likeliest: &[RankedToken]) -> Self {
        let of = |logit: f32| (f64::from(logit) - normaliser) as f32;
        let likeliest = likeliest.iter().map(|token| (token.token(), of(token.logit()))).collect();
        Self { chosen: of(chosen), likeliest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits() -> [f32; 5] {
        [1f32.ln(), 4f32.ln(), 3f32.ln(), f32::NEG_INFINITY, 4f32.ln()]
    }

    #[test]
    fn log_probabilities_are_those_of_the_distribution() {
        let of = |chosen, count| LogProbabilities::of(&logits(), chosen, count).unwrap();
        let found = of(2, 3);
        assert!((found.chosen - (3.0f32 / 12.0).ln()).abs() < 1e-6);
        assert_eq!(found.likeliest.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 4, 2]);
        assert!((found.likeliest[0].1 - (4.0f32 / 12.0).ln()).abs() < 1e-6);
        assert_eq!(found.likeliest[2].1.to_bits(), found.chosen.to_bits());
        assert_eq!(of(1, 0).likeliest, []);
        let all = of(1, 99).likeliest;
        assert_eq!(all.last(), Some(&(3, f32::NEG_INFINITY)));
        let sum: f32 = all.iter().map(|(_, log)| log.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn large_rows_agree_with_the_sum_of_exponentials() {
        let logits: Vec<f32> = (0..3001u32).map(|token| (token * 7919 % 997) as f32 / 40.0).collect();
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        for chosen in [0, 1, 2999, 3000] {
            let found = LogProbabilities::of(&logits, chosen, 1).unwrap().chosen;
            let expected = f64::from(logits[chosen as usize]) - sum.ln();
            assert!((f64::from(found) - expected).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    #[test]
    fn rows_and_ids_without_a_probability_are_errors() {
        let of = |logits: &[f32], chosen| LogProbabilities::of(logits, chosen, 1).unwrap_err();
        assert_eq!(of(&[0.0; 3], 3), SamplingError::OutsideVocabulary { token: 3, tokens: 3 });
        assert_eq!(of(&[], 0), SamplingError::NoLogits);
        assert!(matches!(of(&[0.0, f32::NAN], 0), SamplingError::NotFinite { token: 1, .. }));
    }
}
