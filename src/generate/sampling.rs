//! Choice of the next token from logits.
//!
//! - Input: [`SamplingOptions`], a sample number, and the f32 logits of one position, or its most
//!   likely tokens.
//! - Output: a token id, which is a position in the logits, and log-probabilities.
//! - Invariants: the choice depends only on options, sample number, position, tokens seen, mask and
//!   logits. Temperature 0 draws no random number. All machines choose the same token.
//!
//! `processors` changes logits, `choice` filters and draws, and `candidates` decides when a part of
//! a row suffices. `order` selects tokens.

mod candidates;
mod choice;
mod exponential;
mod logprobs;
mod options;
mod order;
mod philox;
mod processors;

pub use candidates::{Candidates, Ties, TokenCandidate};
pub use logprobs::LogProbabilities;
pub use options::SamplingOptions;
pub use processors::TokenMask;

use crate::base::Diagnostics;
use choice::{Bounds, LogitWeights, Ranking, Rest};
use order::RankedToken;
use processors::{History, Processors};

/// The reason why no token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// The logits are empty.
    #[error("no logits to choose a token from: expected one per token of the vocabulary")]
    NoLogits,
    /// A logit is NaN or +∞.
    #[error(
        "the logit of token {token} is {value}: expected finite logits; \
         the weights do not match the model, or numbers overflowed: try --dtype bf16 or f32"
    )]
    NotFinite {
        /// The first token with such a logit.
        token: u32,
        /// The value of the logit: NaN or +∞.
        value: f32,
    },
    /// The largest logit, which stays on the cards, is NaN or infinite.
    #[error(
        "the largest logit is NaN or inf: expected a finite one; \
         the weights do not match the model, or numbers overflowed: try --dtype bf16 or f32"
    )]
    NoLargest,
    /// No token is possible: all logits are −∞.
    #[error("all {tokens} logits are -inf: expected at least one possible token")]
    NoPossibleToken {
        /// Number of tokens in the vocabulary.
        tokens: usize,
    },
    /// The mask and the stop ids leave no token with a finite logit.
    #[error(
        "all possible tokens are forbidden by the grammar, or by min_tokens before a stop id: \
         expected at least one allowed token"
    )]
    NothingAllowed,
    /// The grammar of the request failed.
    #[error("the grammar of the request: {problem}")]
    Grammar {
        /// What failed.
        problem: String,
    },
    /// The logarithm of the sum of a row's exponentials is too small for its candidates.
    #[error("the log-sum-exp of the row is {log_sum_exp}: expected at least the sum of its candidates")]
    WrongSum {
        /// The value that the cards computed.
        log_sum_exp: f32,
    },
    /// A token has no logit.
    #[error("token {token} has no logit: expected an id below {tokens}")]
    OutsideVocabulary {
        /// Id of the token.
        token: u32,
        /// Number of tokens in the vocabulary.
        tokens: usize,
    },
}

/// Chooses the tokens of one sequence.
#[derive(Debug)]
pub struct Sampler {
    options: SamplingOptions,
    sample: u64,
    history: History,
    /// Reused to save the allocation.
    changed: Vec<f32>,
    /// Reused to save the allocation.
    known: Vec<RankedToken>,
}

impl Sampler {
    /// Creates the sampler of one sequence, with its sample number from 0. `stop_ids` cannot be
    /// chosen before [`SamplingOptions::min_tokens`].
    ///
    /// # Errors
    /// Returns every option that is out of range.
    pub fn new(options: &SamplingOptions, sample: u64, stop_ids: &[u32]) -> Result<Self, Diagnostics> {
        options.check()?;
        Ok(Self {
            options: options.clone(),
            sample,
            history: History::new(stop_ids),
            changed: Vec::new(),
            known: Vec::new(),
        })
    }

    /// Adds tokens of the prompt.
    pub fn add_prompt(&mut self, tokens: &[u32]) {
        self.history.add_prompt(&self.options, tokens);
    }

    /// Adds a generated token of the sequence.
    pub fn add_generated(&mut self, token: u32) {
        self.history.add_generated(&self.options, token);
    }

    /// Returns the token for `position`, counted from 0 with the prompt. Ties go to the lower id.
    /// `allowed` is the mask of a grammar at this position.
    ///
    /// # Errors
    /// The logits are empty, contain NaN or +∞, or are all −∞, or no possible token is allowed.
    pub fn sample(
        &mut self,
        logits: &[f32],
        position: usize,
        allowed: Option<TokenMask<'_>>,
    ) -> Result<u32, SamplingError> {
        let first = order::largest(logits)?;
        let processors = Processors { options: &self.options, history: &self.history, allowed };
        let (row, first) = if processors.is_identity() {
            (logits, first)
        } else {
            self.changed.clear();
            self.changed.extend_from_slice(logits);
            processors.apply(&mut self.changed);
            // A tiny penalty may have made a logit infinite.
            let first = order::largest(&self.changed).map_err(|error| match error {
                SamplingError::NoPossibleToken { .. } => SamplingError::NothingAllowed,
                error => error,
            })?;
            (self.changed.as_slice(), first)
        };
        if self.options.temperature == 0.0 {
            return Ok(first.token());
        }
        let weights = weights(&self.options, first);
        self.known.clear();
        let mut ranking = Ranking { known: &mut self.known, rest: Rest::Row(row) };
        let total = || Ok(Some(Bounds::exactly(weights.sum(row))));
        let uniform = philox::uniform(self.options.seed, self.sample, position as u64);
        let chosen = ranking.draw(&self.options, row.len(), weights, total, uniform)?;
        // A row has all tokens, so the choice always succeeds.
        Ok(chosen.unwrap_or(first.token()))
    }

    /// Returns the token that [`sample`](Self::sample) returns for the whole row, or nothing if the
    /// candidates do not suffice. The module `candidates` lists when they do.
    ///
    /// # Errors
    /// A logit of a candidate or the sum is NaN or +∞, the sum is less than the sum of the
    /// candidates, or no possible token is allowed.
    pub fn sample_candidates(
        &mut self,
        candidates: &Candidates<'_>,
        position: usize,
        allowed: Option<TokenMask<'_>>,
    ) -> Result<Option<u32>, SamplingError> {
        let processors = Processors { options: &self.options, history: &self.history, allowed };
        let least = candidates.least()?;
        let rest = candidates.rank(least, processors, &mut self.known);
        let Some(first) = self.known.first().copied() else { return Ok(None) };
        match first.logit() {
            f32::NEG_INFINITY if least.is_some() => return Ok(None),
            f32::NEG_INFINITY => return Err(SamplingError::NothingAllowed),
            f32::INFINITY => {
                return Err(SamplingError::NotFinite { token: first.token(), value: f32::INFINITY });
            }
            _ if self.options.temperature == 0.0 => return Ok(Some(first.token())),
            _ => {}
        }
        let weights = weights(&self.options, first);
        let total = || candidates.total(least, processors, weights);
        let mut ranking = Ranking { known: &mut self.known, rest };
        let uniform = philox::uniform(self.options.seed, self.sample, position as u64);
        ranking.draw(&self.options, candidates.vocabulary, weights, total, uniform)
    }
}

fn weights(options: &SamplingOptions, first: RankedToken) -> LogitWeights {
    LogitWeights { largest: first.logit().into(), scale: f64::from(options.temperature).recip() }
}

#[cfg(test)]
mod tests {
    use super::{Sampler, SamplingError, SamplingOptions};

    fn options(temperature: f32) -> SamplingOptions {
        SamplingOptions { temperature, ..SamplingOptions::default() }
    }

    fn counts(options: &SamplingOptions, logits: &[f32]) -> Vec<u32> {
        let mut sampler = Sampler::new(options, 0, &[]).unwrap();
        let mut counts = vec![0; logits.len()];
        for position in 0..20_000 {
            counts[sampler.sample(logits, position, None).unwrap() as usize] += 1;
        }
        counts
    }

    fn close(counts: &[u32], probabilities: &[f64]) {
        for (token, (&count, probability)) in counts.iter().zip(probabilities).enumerate() {
            let share = f64::from(count) / 20_000.0;
            assert!((share - probability).abs() < 0.015, "token {token}: {share} is not {probability}");
            assert_eq!(count == 0, *probability == 0.0, "token {token}");
        }
    }

    #[test]
    fn greedy_takes_the_first_maximum() {
        let mut sampler = Sampler::new(&SamplingOptions::default(), 0, &[]).unwrap();
        assert!(SamplingOptions::default().is_likeliest());
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], 0, None), Ok(1));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -5.0], 0, None), Ok(1));
        assert_eq!(sampler.sample(&[-0.0, 0.0], 0, None), Ok(0));
    }

    #[test]
    fn temperature_sharpens_and_flattens() {
        let logits = [0.0, 2f32.ln(), f32::NEG_INFINITY, 5f32.ln()];
        close(&counts(&options(1.0), &logits), &[1.0 / 8.0, 2.0 / 8.0, 0.0, 5.0 / 8.0]);
        close(&counts(&options(0.5), &logits), &[1.0 / 30.0, 4.0 / 30.0, 0.0, 25.0 / 30.0]);
        close(&counts(&options(1e-40), &logits), &[0.0, 0.0, 0.0, 1.0]);
        close(&counts(&options(f32::MAX), &logits), &[1.0 / 3.0, 1.0 / 3.0, 0.0, 1.0 / 3.0]);
    }

    #[test]
    fn top_k_keeps_the_most_likely() {
        let logits = [1f32.ln(), 4f32.ln(), 3f32.ln(), 1f32.ln()];
        let top_k = |top_k| SamplingOptions { top_k: Some(top_k), ..options(1.0) };
        close(&counts(&top_k(2), &logits), &[0.0, 4.0 / 7.0, 3.0 / 7.0, 0.0]);
        // The lower id stays.
        close(&counts(&top_k(3), &logits), &[1.0 / 8.0, 4.0 / 8.0, 3.0 / 8.0, 0.0]);
        close(&counts(&top_k(1), &logits), &[0.0, 1.0, 0.0, 0.0]);
        close(&counts(&top_k(100), &logits), &[1.0 / 9.0, 4.0 / 9.0, 3.0 / 9.0, 1.0 / 9.0]);
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_it() {
        let logits = [1f32.ln(), 4f32.ln(), 3f32.ln(), 2f32.ln()];
        let top_p = |top_p| SamplingOptions { top_p: Some(top_p), ..options(1.0) };
        close(&counts(&top_p(0.3), &logits), &[0.0, 1.0, 0.0, 0.0]);
        close(&counts(&top_p(0.65), &logits), &[0.0, 4.0 / 7.0, 3.0 / 7.0, 0.0]);
        close(&counts(&top_p(0.75), &logits), &[0.0, 4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0]);
        close(&counts(&top_p(1.0), &logits), &[0.1, 0.4, 0.3, 0.2]);
        close(&counts(&top_p(1e-6), &logits), &[0.0, 1.0, 0.0, 0.0]);
        // After `top_k` the shares are 4/7 and 3/7.
        let both = SamplingOptions { top_k: Some(2), ..top_p(0.5) };
        close(&counts(&both, &logits), &[0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn min_p_drops_what_is_unlikely_beside_the_likeliest() {
        let logits = [1f32.ln(), 4f32.ln(), 3f32.ln(), 2f32.ln()];
        let min_p = |min_p| SamplingOptions { min_p: Some(min_p), ..options(1.0) };
        close(&counts(&min_p(0.3), &logits), &[0.0, 4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0]);
        close(&counts(&min_p(0.8), &logits), &[0.0, 1.0, 0.0, 0.0]);
        close(&counts(&min_p(0.0), &logits), &[0.1, 0.4, 0.3, 0.2]);
        close(&counts(&min_p(1.0), &logits), &[0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn tokens_that_were_seen_are_penalised() {
        let options = SamplingOptions { repetition_penalty: 2.0, ..SamplingOptions::default() };
        assert!(!options.is_likeliest());
        let mut sampler = Sampler::new(&options, 0, &[]).unwrap();
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0], 0, None), Ok(0));
        sampler.add_prompt(&[0, 0, 99]);
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0], 0, None), Ok(1));
        sampler.add_generated(1);
        // Penalised logits: 1.5, 1, -1; then -2, -2, -1.5.
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0], 0, None), Ok(0));
        assert_eq!(sampler.sample(&[-1.0, -1.0, -1.5], 0, None), Ok(2));
    }

    fn ids(seed: u64, sample: u64) -> Vec<u32> {
        let logits: Vec<f32> = (0..50).map(|token| (token % 7) as f32 / 3.0).collect();
        let options = SamplingOptions { seed, top_k: Some(40), top_p: Some(0.95), ..options(0.8) };
        let mut sampler = Sampler::new(&options, sample, &[]).unwrap();
        (0..200).map(|position| sampler.sample(&logits, position, None).unwrap()).collect()
    }

    #[test]
    fn a_seed_decides_everything() {
        assert_eq!(ids(1, 0), ids(1, 0));
        assert_ne!(ids(1, 0), ids(2, 0));
        assert_ne!(ids(1, 0), ids(1, 1));
    }

    #[test]
    fn a_token_does_not_depend_on_earlier_draws() {
        let logits: Vec<f32> = (0..50).map(|token| (token % 7) as f32 / 3.0).collect();
        let options = SamplingOptions { seed: 7, ..options(1.0) };
        let mut whole = Sampler::new(&options, 3, &[]).unwrap();
        let ids: Vec<u32> = (5..45).map(|position| whole.sample(&logits, position, None).unwrap()).collect();
        let mut resumed = Sampler::new(&options, 3, &[]).unwrap();
        for position in (5..45).rev() {
            assert_eq!(resumed.sample(&logits, position, None), Ok(ids[position - 5]), "position {position}");
        }
    }

    /// Independent sequences agree at 3.8 % of positions with this distribution.
    #[test]
    fn samples_of_other_seeds_are_independent() {
        let mut sequences = std::collections::BTreeMap::new();
        for seed in 0..20 {
            for sample in 0..20 {
                sequences.insert((seed, sample), ids(seed, sample));
            }
        }
        for ((seed, sample), ids) in &sequences {
            // Detects a sum of seed and sample number, and a shared counter.
            for (other, place) in [
                ((seed + 1, *sample), "the next seed"),
                ((*seed, sample + 1), "the next sample"),
                ((seed + 1, sample.wrapping_sub(1)), "the next seed, shifted"),
                ((*sample, *seed), "seed and sample exchanged"),
            ] {
                let Some(others) = sequences.get(&other).filter(|_| other != (*seed, *sample)) else {
                    continue;
                };
                for shift in 0..3 {
                    let pairs = ids[shift..].iter().zip(others);
                    let equal = pairs.filter(|(a, b)| a == b).count();
                    // Mean 7.7, standard deviation 2.7. A shifted copy has at least 198.
                    assert!(
                        equal < 30,
                        "seed {seed}, sample {sample} and {place}, shift {shift}: {equal} of 200 are equal"
                    );
                }
            }
        }
    }

    #[test]
    fn logits_without_a_choice_are_errors() {
        for temperature in [0.0, 1.0] {
            let mut sampler = Sampler::new(&options(temperature), 0, &[]).unwrap();
            assert_eq!(sampler.sample(&[], 0, None), Err(SamplingError::NoLogits));
            let error = sampler.sample(&[1.0, f32::NAN], 0, None).unwrap_err();
            assert!(error.to_string().starts_with("the logit of token 1 is NaN"), "{error}");
            let value = f32::INFINITY;
            assert_eq!(sampler.sample(&[value], 0, None), Err(SamplingError::NotFinite { token: 0, value }));
            assert_eq!(
                sampler.sample(&[f32::NEG_INFINITY; 3], 0, None),
                Err(SamplingError::NoPossibleToken { tokens: 3 })
            );
        }
    }
}
