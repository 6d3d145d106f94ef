//! Sampling settings and their checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::{Diagnostic, Diagnostics};
use crate::config::SamplingDefaults;

const LARGEST_PENALTY: f32 = 2.0;

const LARGEST_BIAS: f32 = 100.0;

/// Settings for the choice of tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingOptions {
    /// Divisor of the logits. 0 always takes the most likely token; 1 samples from the model's
    /// distribution.
    pub temperature: f32,
    /// Number of most likely tokens to keep.
    pub top_k: Option<usize>,
    /// Probability mass to keep: the fewest most likely tokens that reach it, after `top_k`.
    pub top_p: Option<f32>,
    /// Minimum probability relative to the most likely token. Less likely tokens are dropped.
    pub min_p: Option<f32>,
    /// Penalty for tokens of the prompt and the text: positive logits are divided by it, negative
    /// logits are multiplied (Keskar et al. 2019, section 4.1). 1 has no effect.
    pub repetition_penalty: f32,
    /// Number that is subtracted from the logit of each generated token, from −2 to 2. 0 has no
    /// effect. Tokens of the prompt do not count, as in the API of OpenAI.
    pub presence_penalty: f32,
    /// Number that is subtracted from the logit of a token once for each time it was generated,
    /// from −2 to 2. 0 has no effect. Tokens of the prompt do not count.
    pub frequency_penalty: f32,
    /// Numbers that are added to the logits of tokens, from −100 to 100.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Minimum number of new tokens. Until then, the stop ids of the request and of the model
    /// cannot be chosen, and stop texts have no effect.
    pub min_tokens: usize,
    /// Key of the random numbers.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            min_tokens: 0,
            seed: 0,
        }
    }
}

#[doc(hidden)]
impl SamplingOptions {
    /// Returns the settings of `generation_config.json`. Without `do_sample` the most likely token
    /// is taken, as in transformers.
    #[must_use]
    pub fn of(defaults: &SamplingDefaults) -> Self {
        let is_sampled = defaults.do_sample == Some(true);
        Self {
            temperature: if is_sampled { defaults.temperature.unwrap_or(1.0) } else { 0.0 },
            top_k: defaults.top_k,
            top_p: defaults.top_p,
            min_p: defaults.min_p,
            repetition_penalty: defaults.repetition_penalty.unwrap_or(1.0),
            ..Self::default()
        }
    }

    /// Returns whether the model's largest logit always decides.
    #[must_use]
    pub fn is_likeliest(&self) -> bool {
        self.temperature == 0.0 && !self.has_penalties() && self.logit_bias.is_empty() && self.min_tokens == 0
    }

    /// Returns whether tokens of the sequence change the logits.
    pub(super) fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Checks that all options are in range.
    ///
    /// # Errors
    /// Returns every option that is out of range.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            problems.push(
                Diagnostic::new("sampling: temperature", "out of range")
                    .expected("0 (greedy) or a finite number above it")
                    .found(self.temperature),
            );
        }
        if self.top_k == Some(0) {
            problems.push(
                Diagnostic::new("sampling: top_k", "keeps no token")
                    .expected("at least 1")
                    .found(0)
                    .help("omit it to keep all"),
            );
        }
        if let Some(top_p) = self.top_p
            && !(top_p > 0.0 && top_p <= 1.0)
        {
            problems.push(
                Diagnostic::new("sampling: top_p", "out of range")
                    .expected("above 0 and at most 1")
                    .found(top_p),
            );
        }
        if let Some(min_p) = self.min_p
            && !(0.0..=1.0).contains(&min_p)
        {
            problems.push(Diagnostic::new("sampling: min_p", "out of range").expected("0 to 1").found(min_p));
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            problems.push(
                Diagnostic::new("sampling: repetition_penalty", "out of range")
                    .expected("1 (none) or another finite number above 0")
                    .found(self.repetition_penalty),
            );
        }
        self.check_additions(&mut problems);
        problems.into_result(())
    }

    fn check_additions(&self, problems: &mut Diagnostics) {
        let mut check = |place: String, value: f32, largest: f32| {
            if !(-largest..=largest).contains(&value) {
                let problem = Diagnostic::new(place, "out of range");
                problems.push(problem.expected(format!("-{largest} to {largest}")).found(value));
            }
        };
        check("sampling: presence_penalty".to_owned(), self.presence_penalty, LARGEST_PENALTY);
        check("sampling: frequency_penalty".to_owned(), self.frequency_penalty, LARGEST_PENALTY);
        for (token, bias) in &self.logit_bias {
            check(format!("sampling: logit_bias of token {token}"), *bias, LARGEST_BIAS);
        }
    }

    /// Checks that all token ids are below the size of the vocabulary.
    ///
    /// # Errors
    /// Returns every id that is not.
    pub fn check_ids(&self, vocabulary: usize) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        for token in self.logit_bias.keys().filter(|token| **token as usize >= vocabulary) {
            let problem = Diagnostic::new("sampling: logit_bias", "token id outside the vocabulary");
            problems.push(problem.expected(format!("below {vocabulary}")).found(token));
        }
        problems.into_result(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_meaning_come_at_once() {
        let wrong = SamplingOptions {
            temperature: -1.0,
            top_k: Some(0),
            top_p: Some(1.5),
            min_p: Some(-0.5),
            repetition_penalty: 0.0,
            presence_penalty: 2.5,
            frequency_penalty: f32::NAN,
            logit_bias: BTreeMap::from([(3, 100.0), (5, -101.0), (7, f32::INFINITY)]),
            ..SamplingOptions::default()
        };
        let expected = [
            "sampling: temperature: out of range: expected 0 (greedy) or a finite number above it, found -1",
            "sampling: top_k: keeps no token: expected at least 1, found 0; omit it to keep all",
            "sampling: top_p: out of range: expected above 0 and at most 1, found 1.5",
            "sampling: min_p: out of range: expected 0 to 1, found -0.5",
            "sampling: repetition_penalty: out of range: expected 1 (none) or another finite number above 0, found 0",
            "sampling: presence_penalty: out of range: expected -2 to 2, found 2.5",
            "sampling: frequency_penalty: out of range: expected -2 to 2, found NaN",
            "sampling: logit_bias of token 5: out of range: expected -100 to 100, found -101",
            "sampling: logit_bias of token 7: out of range: expected -100 to 100, found inf",
        ];
        assert_eq!(wrong.check().unwrap_err().to_string(), expected.join("\n"));
        let greedy = SamplingOptions::default;
        for options in [
            SamplingOptions { temperature: f32::NAN, ..greedy() },
            SamplingOptions { temperature: f32::INFINITY, ..greedy() },
            SamplingOptions { top_p: Some(0.0), ..greedy() },
            SamplingOptions { top_p: Some(f32::NAN), ..greedy() },
        ] {
            assert_eq!(options.check().unwrap_err().items().len(), 1, "{options:?}");
        }
    }

    #[test]
    fn ids_outside_the_vocabulary_are_problems() {
        let logit_bias = BTreeMap::from([(3, 1.0), (4, 1.0), (5, 1.0)]);
        let options = SamplingOptions { logit_bias, ..SamplingOptions::default() };
        assert_eq!(options.check_ids(6), Ok(()));
        let expected = "sampling: logit_bias: token id outside the vocabulary: expected below 4, found 4\n\
            sampling: logit_bias: token id outside the vocabulary: expected below 4, found 5";
        assert_eq!(options.check_ids(4).unwrap_err().to_string(), expected);
    }

    #[test]
    fn any_change_of_the_logits_needs_them() {
        let greedy = SamplingOptions::default;
        assert!(greedy().is_likeliest());
        for options in [
            SamplingOptions { temperature: 0.5, ..greedy() },
            SamplingOptions { repetition_penalty: 1.5, ..greedy() },
            SamplingOptions { presence_penalty: 0.5, ..greedy() },
            SamplingOptions { frequency_penalty: -0.5, ..greedy() },
            SamplingOptions { logit_bias: BTreeMap::from([(1, 1.0)]), ..greedy() },
            SamplingOptions { min_tokens: 1, ..greedy() },
        ] {
            assert!(!options.is_likeliest(), "{options:?}");
        }
    }
}
