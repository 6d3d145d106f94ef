//! The most likely tokens of a row, which the cards select, and when they suffice for a choice.
//!
//! - Input: [`Candidates`] and the changes of logits.
//! - Output: the known first tokens in the order of likelihood, and bounds of the sum of weights.
//! - Invariants: whatever the unknown logits are, the known tokens are the first tokens of the
//!   whole row after all changes, and the bounds hold.
//!
//! A token outside the candidates has at most the logit of the least likely candidate. The same
//! changes apply to it, and no change exchanges the order of two logits of one token. A candidate
//! is *certain* if it is before the least likely candidate's old place, and before the highest
//! possible place of every changed token outside. The candidates suffice
//!
//! - at temperature 0 if one candidate is certain;
//! - with `top_k` if at least this number of candidates is certain;
//! - with `min_p` and no `top_k` if the certain candidates include all tokens that it keeps;
//! - with `top_p` and no `top_k` if the certain candidates reach it, and the bounds of the sum of
//!   weights leave no doubt about the last kept candidate;
//! - without a filter if the drawn token is a certain candidate and one of the first
//!   [`HEAD`](super::choice::HEAD), and the bounds leave no doubt about it.
//!
//! Tokens of weight 0, which is below e⁻⁷⁰⁸, are never needed.

use super::SamplingError;
use super::choice::{Bounds, LogitWeights, Rest};
use super::order::RankedToken;
use super::processors::Processors;

/// Error of [`Candidates::log_sum_exp`], as an absolute and a relative part.
const SUM_ERROR: [f64; 2] = [1e-4, 1e-6];

/// Relative error of a sum of weights by rounding.
const ROUNDING: f64 = 1e-8;

/// A token and its logit before all changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenCandidate {
    /// Id in the vocabulary.
    pub token: u32,
    /// Logit of the model.
    pub logit: f32,
}

/// The order in which a selection takes equal logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The lower id is selected first.
    LowerIdFirst,
    /// Unknown. Tokens outside may have any id and the logit of the least likely candidate.
    AnyOrder,
}

/// The most likely tokens of a row of logits, and the logarithm of the row's sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidates<'a> {
    /// The tokens with the largest logits, in any order and without duplicates.
    pub tokens: &'a [TokenCandidate],
    /// The order of selection among equal logits.
    pub ties: Ties,
    /// Logarithm of the sum of the exponentials of all logits of the row, divided by
    /// `sum_temperature`. The absolute error is at most 1e-4 plus a millionth of its value.
    pub log_sum_exp: f32,
    /// Temperature of `log_sum_exp`, above 0: 1 for log-probabilities. The temperature of the
    /// request gives the closest bounds.
    pub sum_temperature: f32,
    /// Number of tokens of the row.
    pub vocabulary: usize,
}

impl Candidates<'_> {
    /// Returns the least likely candidate, unless all tokens of the vocabulary are candidates.
    ///
    /// # Errors
    /// A logit or the sum is NaN or +∞.
    pub(super) fn least(&self) -> Result<Option<RankedToken>, SamplingError> {
        let is_finite = |value: f32| value < f32::INFINITY;
        if let Some(wrong) = self.tokens.iter().find(|candidate| !is_finite(candidate.logit)) {
            return Err(SamplingError::NotFinite { token: wrong.token, value: wrong.logit });
        }
        if !is_finite(self.log_sum_exp) {
            return Err(SamplingError::NoLargest);
        }
        let ranked = self.tokens.iter().map(|candidate| RankedToken::new(candidate.token, candidate.logit));
        let is_whole = self.tokens.len() >= self.vocabulary;
        if is_whole && ranked.clone().all(|token| token.logit() == f32::NEG_INFINITY) {
            return Err(match self.vocabulary {
                0 => SamplingError::NoLogits,
                tokens => SamplingError::NoPossibleToken { tokens },
            });
        }
        Ok(ranked.min().filter(|_| !is_whole))
    }

    /// Replaces `known` by the certain candidates after all changes, in the order of likelihood.
    /// Returns the tokens behind them.
    pub(super) fn rank(
        &self,
        least: Option<RankedToken>,
        processors: Processors<'_>,
        known: &mut Vec<RankedToken>,
    ) -> Rest<'static> {
        known.clear();
        known.extend(self.tokens.iter().map(|TokenCandidate { token, logit }| {
            RankedToken::new(*token, processors.logit(*token, *logit))
        }));
        known.sort_unstable_by_key(|token| std::cmp::Reverse(*token));
        let Some(least) = least else { return Rest::Nothing };
        let old = match self.ties {
            Ties::LowerIdFirst => least,
            Ties::AnyOrder => RankedToken::new(0, least.logit()),
        };
        let highest = self.changed_outside(least, processors).max().map_or(old, |changed| changed.max(old));
        known.truncate(known.partition_point(|token| *token >= highest));
        Rest::Unknown { largest: highest.logit() }
    }

    /// Returns the highest possible places of the changed tokens outside. Some occur twice.
    fn changed_outside<'a>(
        &self,
        least: RankedToken,
        processors: Processors<'a>,
    ) -> impl Iterator<Item = RankedToken> + 'a {
        let mut inside: Vec<u32> = self.tokens.iter().map(|candidate| candidate.token).collect();
        inside.sort_unstable();
        let outside = processors.changed().filter(move |token| inside.binary_search(token).is_err());
        outside.map(move |token| RankedToken::new(token, processors.logit(token, least.logit())))
    }

    /// Returns bounds of the sum of all weights after all changes.
    ///
    /// Let `y ≤ 1` be the exponential of an outside logit relative to the least likely candidate,
    /// and `n` the number of tokens outside. `log_sum_exp` gives `q`, the sum of all `y`. The sum
    /// of all `yᵃ` is between `q` and `n (q/n)ᵃ`, where `a` is the sum's temperature divided by the
    /// request's.
    ///
    /// Returns nothing if the sum gives no bounds.
    ///
    /// # Errors
    /// `log_sum_exp` is less than the candidates' own sum.
    pub(super) fn total(
        &self,
        least: Option<RankedToken>,
        processors: Processors<'_>,
        weights: LogitWeights,
    ) -> Result<Option<Bounds>, SamplingError> {
        let new = |candidate: &TokenCandidate| weights.of(processors.logit(candidate.token, candidate.logit));
        let inside: f64 = self.tokens.iter().map(new).sum();
        let rounded =
            |low: f64, high: f64| Bounds { low: low * (1.0 - ROUNDING), high: high * (1.0 + ROUNDING) };
        let Some(least) = least.filter(|least| least.logit() > f32::NEG_INFINITY) else {
            return Ok(Some(rounded(inside, inside)));
        };
        let sum_temperature = f64::from(self.sum_temperature);
        let power = weights.scale * sum_temperature;
        let unit = f64::from(least.logit()) / sum_temperature;
        let whole = f64::from(self.log_sum_exp);
        let error = SUM_ERROR[0] + SUM_ERROR[1] * whole.abs();
        let old = |candidate: &TokenCandidate| (f64::from(candidate.logit) / sum_temperature - unit).exp();
        let old: f64 = self.tokens.iter().map(old).sum();
        let outside = (self.vocabulary - self.tokens.len()) as f64;
        let low = ((whole - error - unit).exp() - old * (1.0 + ROUNDING)).clamp(0.0, outside);
        let high = (whole + error - unit).exp() - old * (1.0 - ROUNDING);
        if high < 0.0 {
            return Err(SamplingError::WrongSum { log_sum_exp: self.log_sum_exp });
        }
        if !high.is_finite() {
            return Ok(None);
        }
        let high = high.min(outside);
        let raised = |sum: f64| outside * (sum / outside).powf(power);
        let (low, high) = if power >= 1.0 { (raised(low), high) } else { (low, raised(high)) };
        let weight = weights.of(least.logit());
        let (mut low, mut high) = (low * weight, high * weight);
        for changed in self.changed_outside(least, processors) {
            low -= weight;
            high += weights.of(changed.logit());
        }
        // A mask may forbid all tokens outside.
        low = if processors.allowed.is_some() { 0.0 } else { low.max(0.0) };
        Ok(Some(rounded(inside + low, inside + high)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::super::options::SamplingOptions;
    use super::super::order::most_likely;
    use super::super::processors::TokenMask;
    use super::super::{Sampler, philox};
    use super::*;

    /// Selects candidates as a card does.
    fn candidates(logits: &[f32], count: usize) -> Vec<TokenCandidate> {
        let mut kept = Vec::new();
        most_likely(logits, count, &mut kept);
        kept.iter().map(|token| TokenCandidate { token: token.token(), logit: token.logit() }).collect()
    }

    fn log_sum_exp(logits: &[f32], temperature: f32) -> f32 {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 =
            logits.iter().map(|logit| (f64::from(logit - largest) / f64::from(temperature)).exp()).sum();
        (f64::from(largest) / f64::from(temperature) + sum.ln()) as f32
    }

    /// Rows with steps of different sizes, so that some have many equal logits.
    fn rows() -> impl Strategy<Value = Vec<f32>> {
        let steps = prop::sample::select(vec![0.001f32, 0.1, 0.5, 2.0]);
        let spread = prop::sample::select(vec![0.5f32, 3.0, 12.0]);
        (steps, spread, any::<u64>(), 2usize..900).prop_map(|(step, spread, seed, length)| {
            let number = |at: u64| philox::uniform(seed, 0, at) as f32;
            let logit = |at: u64| match number(2 * at) {
                share if share < 0.02 => f32::NEG_INFINITY,
                // Squares give a few large logits and many small ones.
                _ => (number(2 * at + 1).powi(2) * 2.0 * spread / step).round() * step - spread,
            };
            (0..length as u64).map(logit).collect()
        })
    }

    fn filters() -> impl Strategy<Value = SamplingOptions> {
        let temperature = prop::sample::select(vec![0.0f32, 0.3, 0.7, 1.0, 1.0, 1.7]);
        let top_k = prop::option::of(1usize..80);
        let top_p = prop::option::of(prop::sample::select(vec![0.05f32, 0.5, 0.9, 0.99, 1.0]));
        let min_p = prop::option::of(prop::sample::select(vec![0.0f32, 0.01, 0.2]));
        (temperature, top_k, top_p, min_p, any::<u64>()).prop_map(
            |(temperature, top_k, top_p, min_p, seed)| SamplingOptions {
                temperature,
                top_k,
                top_p,
                min_p,
                seed,
                ..SamplingOptions::default()
            },
        )
    }

    #[derive(Debug)]
    struct Case {
        logits: Vec<f32>,
        options: SamplingOptions,
        prompt: Vec<u32>,
        generated: Vec<u32>,
        mask: Option<Vec<u32>>,
        count: usize,
        /// Error of the sum, from −1 to 1, in units of the permitted error.
        error: f32,
        sum_temperature: f32,
    }

    fn cases() -> impl Strategy<Value = Case> {
        let changes = prop::option::of(super::super::processors::tests::any_options());
        let ids = || prop::collection::vec(0u32..400, 0..6);
        let mask = prop::option::weighted(0.2, prop::collection::vec(any::<u32>(), 30));
        let sum = (-1f32..1.0, prop::sample::select(vec![0.3f32, 0.7, 1.0, 1.7]));
        (rows(), filters(), changes, ids(), ids(), mask, 1usize..100, sum).prop_map(
            |(logits, filters, changes, prompt, generated, mask, count, (error, sum_temperature))| {
                let changes = changes.unwrap_or_default();
                let SamplingOptions { temperature, top_k, top_p, min_p, seed, .. } = filters;
                let options = SamplingOptions { temperature, top_k, top_p, min_p, seed, ..changes };
                Case { logits, options, prompt, generated, mask, count, error, sum_temperature }
            },
        )
    }

    impl Case {
        fn sampler(&self) -> Sampler {
            let mut sampler = Sampler::new(&self.options, 1, &[3, 4]).unwrap();
            sampler.add_prompt(&self.prompt);
            self.generated.iter().for_each(|token| sampler.add_generated(*token));
            sampler
        }

        /// Chooses from candidates with a sum that has the permitted error.
        fn of_candidates(&self, ties: Ties, tokens: &[TokenCandidate]) -> Result<Option<u32>, SamplingError> {
            let sum_temperature = self.sum_temperature;
            let exact = log_sum_exp(&self.logits, sum_temperature);
            let log_sum_exp = exact + self.error * (0.9 * SUM_ERROR[0]) as f32;
            let vocabulary = self.logits.len();
            let candidates = Candidates { tokens, ties, log_sum_exp, sum_temperature, vocabulary };
            self.sampler().sample_candidates(&candidates, 5, self.mask.as_deref().map(TokenMask::from))
        }
    }

    proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4000))]
        #[test]
        fn candidates_choose_the_token_of_the_row_or_none(case in cases()) {
            let mask = case.mask.as_deref().map(TokenMask::from);
            let whole = case.sampler().sample(&case.logits, 5, mask);
            let mut tokens = candidates(&case.logits, case.count);
            let found = case.of_candidates(Ties::LowerIdFirst, &tokens);
            if let Ok(None) = found {
                prop_assert!(case.count < case.logits.len() || case.options.temperature > 0.0);
            } else {
                prop_assert_eq!(&found.transpose().unwrap(), &whole);
            }
            // Any tokens with the least logit may have been selected, in any order.
            let least = tokens.last().unwrap().logit;
            tokens.retain(|candidate| candidate.logit > least);
            let equal = case.logits.iter().enumerate().rev().filter(|(_, logit)| **logit == least);
            let equal = equal.map(|(token, logit)| TokenCandidate { token: token as u32, logit: *logit });
            let missing = case.count.min(case.logits.len()) - tokens.len();
            tokens.extend(equal.take(missing));
            tokens.reverse();
            match case.of_candidates(Ties::AnyOrder, &tokens) {
                Ok(None) => {}
                found => prop_assert_eq!(found.transpose().unwrap(), whole),
            }
        }

        #[test]
        fn without_changes_top_k_of_the_candidates_suffices(case in cases(), more in 0usize..20) {
            let SamplingOptions { temperature, top_p, min_p, seed, .. } = case.options;
            let count = case.count.min(case.logits.len() - 1);
            let top_k = Some(count);
            let options = SamplingOptions { temperature, top_k, top_p, min_p, seed, ..SamplingOptions::default() };
            let (mask, tokens) = (None, candidates(&case.logits, count + more));
            let case = Case { options, mask, ..case };
            let whole = case.sampler().sample(&case.logits, 5, None);
            prop_assert_eq!(case.of_candidates(Ties::LowerIdFirst, &tokens).transpose().unwrap(), whole);
        }
    }

    fn choose(options: &SamplingOptions, logits: &[f32], count: usize, ties: Ties) -> Option<u32> {
        let tokens = candidates(logits, count);
        let (log_sum_exp, vocabulary) = (log_sum_exp(logits, 1.0), logits.len());
        let candidates = Candidates { tokens: &tokens, ties, log_sum_exp, sum_temperature: 1.0, vocabulary };
        let mut sampler = Sampler::new(options, 0, &[]).unwrap();
        let found = sampler.sample_candidates(&candidates, 0, None).unwrap();
        assert!(found.is_none() || found == Some(sampler.sample(logits, 0, None).unwrap()));
        found
    }

    #[test]
    fn a_doubt_about_one_token_needs_the_row() {
        let logits = [1.0, 5.0, 3.0, 3.0, 3.0, 2.0];
        let greedy = SamplingOptions::default;
        let warm = || SamplingOptions { temperature: 1.0, ..greedy() };
        let lower = |options: &SamplingOptions, count| choose(options, &logits, count, Ties::LowerIdFirst);
        assert_eq!(lower(&greedy(), 1), Some(1));
        let equal = [2.0, 3.0, 3.0, 3.0];
        assert_eq!(choose(&greedy(), &equal, 2, Ties::AnyOrder), None, "three tokens are first");
        assert_eq!(choose(&greedy(), &equal, 2, Ties::LowerIdFirst), Some(1));
        assert_eq!(choose(&greedy(), &equal[1..], 2, Ties::AnyOrder), Some(0), "no id is lower");
        let top_k = |top_k| SamplingOptions { top_k: Some(top_k), ..warm() };
        assert!(lower(&top_k(3), 3).is_some());
        assert_eq!(lower(&top_k(4), 3), None);
        assert_eq!(choose(&top_k(3), &logits, 3, Ties::AnyOrder), None);
        assert!(choose(&top_k(3), &logits, 5, Ties::AnyOrder).is_some());
        let min_p = |min_p| SamplingOptions { min_p: Some(min_p), ..warm() };
        // The weight of a logit of 3 is 0.135.
        assert!(lower(&min_p(0.14), 2).is_some());
        assert_eq!(lower(&min_p(0.13), 2), None);
        // The largest probability is 0.66, and the next is 0.09.
        let top_p = |top_p| SamplingOptions { top_p: Some(top_p), ..warm() };
        assert!(lower(&top_p(0.6), 1).is_some());
        assert_eq!(lower(&top_p(0.7), 1), None);
        assert!(lower(&top_p(0.7), 2).is_some());
    }

    #[test]
    fn a_raised_token_outside_needs_the_row() {
        let logits = [5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        let biased = |token, bias| SamplingOptions {
            logit_bias: BTreeMap::from([(token, bias)]),
            ..SamplingOptions::default()
        };
        let of = |options| choose(&options, &logits, 3, Ties::LowerIdFirst);
        assert_eq!(of(biased(1, 2.0)), Some(1), "a candidate");
        assert_eq!(of(biased(5, 6.0)), None, "a token outside may be the first");
        assert_eq!(of(biased(5, 1.5)), Some(0), "its logit is at most 4.5");
        assert_eq!(of(biased(5, -9.0)), Some(0));
        assert_eq!(of(biased(0, -9.0)), Some(1));
        // The new first token is behind the least likely candidate.
        let all = SamplingOptions {
            logit_bias: BTreeMap::from([(0, -9.0), (1, -9.0), (2, -9.0)]),
            ..SamplingOptions::default()
        };
        assert_eq!(of(all), None);
    }

    #[test]
    fn impossible_sums_and_logits_are_errors() {
        let tokens = [TokenCandidate { token: 3, logit: 2.0 }, TokenCandidate { token: 5, logit: 1.0 }];
        let options = SamplingOptions { temperature: 1.0, ..SamplingOptions::default() };
        let sample = |tokens: &[TokenCandidate], log_sum_exp, vocabulary| {
            let candidates =
                Candidates { tokens, ties: Ties::AnyOrder, log_sum_exp, sum_temperature: 1.0, vocabulary };
            Sampler::new(&options, 0, &[]).unwrap().sample_candidates(&candidates, 0, None)
        };
        assert_eq!(sample(&tokens, 2.0, 9), Err(SamplingError::WrongSum { log_sum_exp: 2.0 }));
        assert_eq!(sample(&tokens, f32::NAN, 9), Err(SamplingError::NoLargest));
        assert_eq!(sample(&[], 2.0, 9), Ok(None));
        assert_eq!(sample(&[], f32::NEG_INFINITY, 0), Err(SamplingError::NoLogits));
        let wrong = [tokens[0], TokenCandidate { token: 7, logit: f32::NAN }];
        assert!(matches!(sample(&wrong, 2.0, 9), Err(SamplingError::NotFinite { token: 7, .. })));
        let none = [0, 1].map(|token| TokenCandidate { token, logit: f32::NEG_INFINITY });
        assert_eq!(sample(&none, f32::NEG_INFINITY, 2), Err(SamplingError::NoPossibleToken { tokens: 2 }));
    }

    /// A row with probabilities in proportion to 1 / rank, as words of a language have them.
    #[test]
    fn few_candidates_often_suffice_without_top_k() {
        let logits: Vec<f32> = (0..20_000u32).map(|rank| -(1.0 + rank as f32).ln() * 1.5).collect();
        let tokens = candidates(&logits, 64);
        let count = |temperature, top_p, sum_temperature| {
            let log_sum_exp = log_sum_exp(&logits, sum_temperature);
            let (ties, vocabulary) = (Ties::AnyOrder, logits.len());
            let candidates = Candidates { tokens: &tokens, ties, log_sum_exp, sum_temperature, vocabulary };
            let options = SamplingOptions { temperature, top_p, ..SamplingOptions::default() };
            let mut sampler = Sampler::new(&options, 0, &[]).unwrap();
            let found = (0..500).filter(|position| {
                let found = sampler.sample_candidates(&candidates, *position, None).unwrap();
                found.is_some_and(|found| found == sampler.sample(&logits, *position, None).unwrap())
            });
            found.count()
        };
        let counts = [count(1.0, None, 1.0), count(0.7, None, 1.0), count(0.7, None, 0.7)];
        assert!(counts.iter().all(|count| (430..500).contains(count)), "{counts:?}");
        assert!(counts[2] > counts[1], "{counts:?}");
        assert_eq!([count(1.0, Some(0.8), 1.0), count(0.7, Some(0.9), 0.7)], [500; 2]);
        assert_eq!(count(0.7, Some(0.9), 1.0), 0, "the bounds are too wide");
    }
}
