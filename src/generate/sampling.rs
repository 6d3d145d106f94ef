//! Choice of the next token from logits.
//!
//! - Input: [`SamplingOptions`], a sample number, and the f32 logits of one position.
//! - Output: a token id, which is a position in the logits.
//! - Invariants: the choice depends only on options, sample number, position, tokens seen and
//!   logits. Temperature 0 draws no random number.

use std::cmp::Ordering;
use std::collections::BTreeSet;

mod philox;

use crate::base::{Diagnostic, Diagnostics};
use crate::config::SamplingDefaults;

/// Settings for the choice of tokens.
#[derive(Clone, Debug, PartialEq)]
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
    /// Penalty for tokens seen: positive logits are divided by it, negative logits are multiplied.
    /// Applied first (Keskar et al. 2019, section 4.1). 1 has no effect.
    pub repetition_penalty: f32,
    /// Key of the random numbers.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: None, top_p: None, min_p: None, repetition_penalty: 1.0, seed: 0 }
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
            seed: 0,
        }
    }

    /// Returns whether the largest logit always decides.
    #[must_use]
    pub fn is_likeliest(&self) -> bool {
        self.temperature == 0.0 && self.repetition_penalty == 1.0
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
        problems.into_result(())
    }
}

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
    /// All logits are −∞.
    #[error("all {tokens} logits are -inf: expected at least one possible token")]
    NoPossibleToken {
        /// Number of tokens in the vocabulary.
        tokens: usize,
    },
}

/// Chooses the tokens of one sequence.
#[derive(Debug)]
pub struct Sampler {
    options: SamplingOptions,
    sample: u64,
    seen: BTreeSet<u32>,
    /// Reused to save the allocation.
    penalised: Vec<f32>,
    /// Reused to save the allocation.
    candidates: Vec<CandidateToken>,
}

#[derive(Clone, Copy, Debug)]
struct CandidateToken {
    token: u32,
    logit: f32,
    weight: f64,
}

impl Sampler {
    /// Creates the sampler of one sequence, with its sample number from 0.
    ///
    /// # Errors
    /// Returns every option that is out of range.
    pub fn new(options: &SamplingOptions, sample: u64) -> Result<Self, Diagnostics> {
        options.check()?;
        Ok(Self {
            options: options.clone(),
            sample,
            seen: BTreeSet::new(),
            penalised: Vec::new(),
            candidates: Vec::new(),
        })
    }

    /// Adds tokens of the sequence, for the penalty.
    pub fn saw(&mut self, tokens: &[u32]) {
        if self.options.repetition_penalty != 1.0 {
            self.seen.extend(tokens);
        }
    }

    /// Returns the token for `position`, counted from 0 with the prompt. Ties go to the lower id.
    ///
    /// # Errors
    /// The logits are empty, contain NaN or +∞, or are all −∞.
    pub fn sample(&mut self, logits: &[f32], position: usize) -> Result<u32, SamplingError> {
        check_logits(logits)?;
        let mut penalised = std::mem::take(&mut self.penalised);
        penalised.clear();
        penalised.extend_from_slice(logits);
        let chosen = self.sample_penalised(&mut penalised, position);
        self.penalised = penalised;
        chosen
    }

    fn sample_penalised(&mut self, logits: &mut [f32], position: usize) -> Result<u32, SamplingError> {
        let penalty = self.options.repetition_penalty;
        for token in &self.seen {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
        // A tiny penalty may have made a logit infinite.
        let best = check_logits(logits)?;
        if self.options.temperature == 0.0 {
            return Ok(best as u32);
        }
        self.weigh(logits, logits[best]);
        self.keep_top_k();
        self.keep_top_p();
        self.keep_min_p();
        let total: f64 = self.candidates.iter().map(|candidate| candidate.weight).sum();
        let mut left = philox::uniform(self.options.seed, self.sample, position as u64) * total;
        let chosen = self.candidates.iter().find(|candidate| {
            left -= candidate.weight;
            left < 0.0
        });
        // If rounding leaves a remainder, it belongs to the last candidate.
        Ok(chosen.or(self.candidates.last()).map_or(best as u32, |candidate| candidate.token))
    }

    fn weigh(&mut self, logits: &[f32], largest: f32) {
        let temperature = f64::from(self.options.temperature);
        self.candidates.clear();
        self.candidates.extend(logits.iter().enumerate().filter_map(|(token, &logit)| {
            // Relative to the largest logit, so that the exponential cannot overflow.
            let weight = ((f64::from(logit) - f64::from(largest)) / temperature).exp();
            (weight > 0.0).then_some(CandidateToken { token: token as u32, logit, weight })
        }));
    }

    fn keep_top_k(&mut self) {
        if let Some(top_k) = self.options.top_k
            && top_k < self.candidates.len()
        {
            self.candidates.select_nth_unstable_by(top_k - 1, more_likely);
            self.candidates.truncate(top_k);
            self.candidates.sort_unstable_by(more_likely);
        }
    }

    fn keep_min_p(&mut self) {
        if let Some(min_p) = self.options.min_p {
            // The largest weight is 1.
            self.candidates.retain(|candidate| candidate.weight >= f64::from(min_p));
        }
    }

    fn keep_top_p(&mut self) {
        let Some(top_p) = self.options.top_p.filter(|top_p| *top_p < 1.0) else { return };
        self.candidates.sort_unstable_by(more_likely);
        let wanted = f64::from(top_p) * self.candidates.iter().map(|candidate| candidate.weight).sum::<f64>();
        let mut sum = 0.0;
        let enough = self.candidates.iter().position(|candidate| {
            sum += candidate.weight;
            sum >= wanted
        });
        if let Some(last) = enough {
            self.candidates.truncate(last + 1);
        }
    }
}

fn more_likely(a: &CandidateToken, b: &CandidateToken) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

fn check_logits(logits: &[f32]) -> Result<usize, SamplingError> {
    let mut best = None;
    for (token, &value) in logits.iter().enumerate() {
        if value.is_nan() || value == f32::INFINITY {
            return Err(SamplingError::NotFinite { token: token as u32, value });
        }
        if best.is_none_or(|(_, largest)| value > largest) {
            best = Some((token, value));
        }
    }
    match best {
        None => Err(SamplingError::NoLogits),
        Some((_, f32::NEG_INFINITY)) => Err(SamplingError::NoPossibleToken { tokens: logits.len() }),
        Some((token, _)) => Ok(token),
    }
}

#[cfg(test)]
mod tests {
    use super::{Sampler, SamplingError, SamplingOptions};

    fn options(temperature: f32) -> SamplingOptions {
        SamplingOptions { temperature, ..SamplingOptions::default() }
    }

    fn counts(options: &SamplingOptions, logits: &[f32]) -> Vec<u32> {
        let mut sampler = Sampler::new(options, 0).unwrap();
        let mut counts = vec![0; logits.len()];
        for position in 0..20_000 {
            counts[sampler.sample(logits, position).unwrap() as usize] += 1;
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
        let mut sampler = Sampler::new(&SamplingOptions::default(), 0).unwrap();
        assert!(SamplingOptions::default().is_likeliest());
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], 0), Ok(1));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -5.0], 0), Ok(1));
        assert_eq!(sampler.sample(&[-0.0, 0.0], 0), Ok(0));
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
        let mut sampler = Sampler::new(&options, 0).unwrap();
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0], 0), Ok(0));
        sampler.saw(&[0, 0, 99]);
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0], 0), Ok(1));
        sampler.saw(&[1]);
        // Penalised logits: 1.5, 1, -1; then -2, -2, -1.5.
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0], 0), Ok(0));
        assert_eq!(sampler.sample(&[-1.0, -1.0, -1.5], 0), Ok(2));
    }

    fn ids(seed: u64, sample: u64) -> Vec<u32> {
        let logits: Vec<f32> = (0..50).map(|token| (token % 7) as f32 / 3.0).collect();
        let options = SamplingOptions { seed, top_k: Some(40), top_p: Some(0.95), ..options(0.8) };
        let mut sampler = Sampler::new(&options, sample).unwrap();
        (0..200).map(|position| sampler.sample(&logits, position).unwrap()).collect()
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
        let mut whole = Sampler::new(&options, 3).unwrap();
        let ids: Vec<u32> = (5..45).map(|position| whole.sample(&logits, position).unwrap()).collect();
        let mut resumed = Sampler::new(&options, 3).unwrap();
        for position in (5..45).rev() {
            assert_eq!(resumed.sample(&logits, position), Ok(ids[position - 5]), "position {position}");
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
    fn options_without_meaning_come_at_once() {
        let wrong = SamplingOptions {
            temperature: -1.0,
            top_k: Some(0),
            top_p: Some(1.5),
            min_p: Some(-0.5),
            repetition_penalty: 0.0,
            seed: 0,
        };
        let expected = [
            "sampling: temperature: out of range: expected 0 (greedy) or a finite number above it, found -1",
            "sampling: top_k: keeps no token: expected at least 1, found 0; omit it to keep all",
            "sampling: top_p: out of range: expected above 0 and at most 1, found 1.5",
            "sampling: min_p: out of range: expected 0 to 1, found -0.5",
            "sampling: repetition_penalty: out of range: expected 1 (none) or another finite number above 0, found 0",
        ];
        assert_eq!(Sampler::new(&wrong, 0).unwrap_err().to_string(), expected.join("\n"));
        for options in [
            options(f32::NAN),
            options(f32::INFINITY),
            SamplingOptions { top_p: Some(0.0), ..options(1.0) },
            SamplingOptions { top_p: Some(f32::NAN), ..options(1.0) },
        ] {
            assert_eq!(Sampler::new(&options, 0).unwrap_err().items().len(), 1, "{options:?}");
        }
    }

    #[test]
    fn logits_without_a_choice_are_errors() {
        for temperature in [0.0, 1.0] {
            let mut sampler = Sampler::new(&options(temperature), 0).unwrap();
            assert_eq!(sampler.sample(&[], 0), Err(SamplingError::NoLogits));
            let error = sampler.sample(&[1.0, f32::NAN], 0).unwrap_err();
            assert!(error.to_string().starts_with("the logit of token 1 is NaN"), "{error}");
            let value = f32::INFINITY;
            assert_eq!(sampler.sample(&[value], 0), Err(SamplingError::NotFinite { token: 0, value }));
            assert_eq!(
                sampler.sample(&[f32::NEG_INFINITY; 3], 0),
                Err(SamplingError::NoPossibleToken { tokens: 3 })
            );
        }
    }
}
