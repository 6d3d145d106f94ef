//! Filters and the draw: the last steps of a choice.
//!
//! - Input: tokens in the order of likelihood, and a random number.
//! - Output: a token, or nothing if the known tokens do not decide.
//! - Invariants: a row and candidates of the row give the same token, or candidates give nothing.
//!   Temperature 0 takes the first token and uses no random number.
//!
//! The weight of a token is the exponential of its logit relative to the largest logit, both
//! divided by the temperature. Every filter keeps the first tokens of the order:
//!
//! 1. `top_k` keeps this number of tokens.
//! 2. `top_p` keeps the fewest tokens with this part of the weight after `top_k`.
//! 3. `min_p` keeps tokens with this part of the largest weight. Its order with the other filters
//!    does not matter.
//!
//! The draw goes through the kept tokens in the same order. Without a filter it goes through the
//! first [`HEAD`] tokens in this order, then through all other tokens in the order of ids. So a row
//! is never sorted whole.

use super::SamplingError;
use super::exponential::exp;
use super::options::SamplingOptions;
use super::order::{RankedToken, most_likely};

/// Number of tokens that an unfiltered draw examines in the order of likelihood.
pub(super) const HEAD: usize = 512;

/// Number of tokens that are selected first if no option gives a number.
const FIRST: usize = 128;

/// Factor between successive numbers of selected tokens.
const GROWTH: usize = 8;

/// Number of weights that are computed at once.
const BLOCK: usize = 256;

/// Independent sums of weights.
const LANES: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct LogitWeights {
    pub(super) largest: f64,
    /// Reciprocal of the temperature.
    pub(super) scale: f64,
}

impl LogitWeights {
    /// Returns the weight of a logit: 1 for the largest.
    #[inline]
    pub(super) fn of(self, logit: f32) -> f64 {
        // Relative to the largest logit, so that the exponential cannot overflow.
        exp((f64::from(logit) - self.largest) * self.scale)
    }

    /// Returns the sum of a row's weights. Its order of additions is fixed.
    pub(super) fn sum(self, logits: &[f32]) -> f64 {
        let mut sums = [0.0; LANES];
        let mut weights = [0.0; BLOCK];
        for logits in logits.chunks(BLOCK) {
            // A loop without a sum uses vector instructions.
            for (weight, logit) in weights.iter_mut().zip(logits) {
                *weight = self.of(*logit);
            }
            for weights in weights[..logits.len()].chunks(LANES) {
                sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight);
            }
        }
        sums.iter().sum()
    }
}

/// Two numbers around a number that may be unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Bounds {
    pub(super) const fn exactly(value: f64) -> Self {
        Self { low: value, high: value }
    }

    fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, high: self.high * factor }
    }
}

/// The tokens after the known tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest<'a> {
    /// All tokens are known.
    Nothing,
    /// The tokens can be selected from this row.
    Row(&'a [f32]),
    /// The tokens are unknown, and their logits are at most `largest`.
    Unknown { largest: f32 },
}

/// The first tokens in the order of likelihood.
#[derive(Debug)]
pub(super) struct Ranking<'a> {
    pub(super) known: &'a mut Vec<RankedToken>,
    pub(super) rest: Rest<'a>,
}

/// A place in the order of likelihood.
#[derive(Clone, Copy, Debug)]
enum LikelihoodPlace {
    /// The place has this token, with this weight above 0.
    Token(RankedToken, f64),
    /// No token here or behind has this weight or more.
    End,
    /// The token is not known.
    Unknown,
}

impl Ranking<'_> {
    /// Returns the token at a place, unless its weight is 0 or below `least`.
    fn place(&mut self, at: usize, weights: LogitWeights, least: f64) -> LikelihoodPlace {
        let is_enough = |weight: f64| weight > 0.0 && weight >= least;
        if let Rest::Row(logits) = self.rest
            && at >= self.known.len()
            && at < logits.len()
        {
            most_likely(logits, (self.known.len() * GROWTH).max(FIRST), self.known);
        }
        match (self.known.get(at), self.rest) {
            (Some(token), _) => {
                let weight = weights.of(token.logit());
                if is_enough(weight) { LikelihoodPlace::Token(*token, weight) } else { LikelihoodPlace::End }
            }
            (None, Rest::Unknown { largest }) if is_enough(weights.of(largest)) => LikelihoodPlace::Unknown,
            (None, _) => LikelihoodPlace::End,
        }
    }

    /// Returns the weight of the first `count` tokens, if they are known.
    fn sum_of_first(&mut self, count: usize, weights: LogitWeights) -> Option<f64> {
        let mut sum = 0.0;
        for at in 0..count {
            match self.place(at, weights, 0.0) {
                LikelihoodPlace::Token(_, weight) => sum += weight,
                LikelihoodPlace::End => break,
                LikelihoodPlace::Unknown => return None,
            }
        }
        Some(sum)
    }

    /// Draws a token. `total` returns the sum of all weights. `uniform` is from 0 to below 1.
    ///
    /// The first token is known. Returns nothing if the known tokens do not decide.
    pub(super) fn draw(
        &mut self,
        options: &SamplingOptions,
        vocabulary: usize,
        weights: LogitWeights,
        total: impl FnOnce() -> Result<Option<Bounds>, SamplingError>,
        uniform: f64,
    ) -> Result<Option<u32>, SamplingError> {
        let top_k = options.top_k.filter(|top_k| *top_k < vocabulary);
        let top_p = options.top_p.map(f64::from).filter(|top_p| *top_p < 1.0);
        let least = options.min_p.map_or(0.0, f64::from);
        if top_k.is_none() && top_p.is_none() && least == 0.0 {
            let total = total()?;
            return Ok(total.and_then(|total| self.draw_from_all(weights, total.times(uniform))));
        }
        let wanted = match (top_p, top_k) {
            (None, _) => Some(Bounds::exactly(f64::INFINITY)),
            (Some(top_p), Some(top_k)) => {
                self.sum_of_first(top_k, weights).map(|sum| Bounds::exactly(sum).times(top_p))
            }
            (Some(top_p), None) => total()?.map(|total| total.times(top_p)),
        };
        let top_k = top_k.unwrap_or(vocabulary);
        let kept = wanted.and_then(|wanted| self.filter(top_k, wanted, weights, least));
        Ok(kept.and_then(|kept| draw_from(&self.known[..kept], weights, uniform)))
    }

    /// Returns the number of tokens that the filters keep, if the known tokens decide.
    fn filter(&mut self, top_k: usize, wanted: Bounds, weights: LogitWeights, least: f64) -> Option<usize> {
        let mut sum = 0.0;
        for at in 0..top_k {
            match self.place(at, weights, least) {
                LikelihoodPlace::Token(_, weight) => sum += weight,
                LikelihoodPlace::End => return Some(at),
                LikelihoodPlace::Unknown => return None,
            }
            if sum >= wanted.high {
                return Some(at + 1);
            }
            if sum >= wanted.low {
                return None;
            }
        }
        Some(top_k)
    }

    /// Returns the token at which the sum of weights exceeds `target`.
    fn draw_from_all(&mut self, weights: LogitWeights, target: Bounds) -> Option<u32> {
        let (mut sum, mut last) = (0.0, None);
        for at in 0..HEAD {
            match self.place(at, weights, 0.0) {
                LikelihoodPlace::Token(token, weight) => {
                    sum += weight;
                    last = Some(token);
                }
                LikelihoodPlace::End => return last.map(RankedToken::token),
                LikelihoodPlace::Unknown => return None,
            }
            if sum > target.high {
                return last.map(RankedToken::token);
            }
            if sum > target.low {
                return None;
            }
        }
        let Rest::Row(logits) = self.rest else { return None };
        let boundary = self.known[HEAD - 1];
        let mut last = boundary;
        for (token, logit) in logits.iter().enumerate() {
            let token = RankedToken::new(token as u32, *logit);
            let weight = weights.of(*logit);
            if token < boundary && weight > 0.0 {
                sum += weight;
                last = token;
                if sum > target.high {
                    break;
                }
            }
        }
        Some(last.token())
    }
}

fn draw_from(kept: &[RankedToken], weights: LogitWeights, uniform: f64) -> Option<u32> {
    let sum: f64 = kept.iter().map(|token| weights.of(token.logit())).sum();
    let (target, mut sum) = (uniform * sum, 0.0);
    let chosen = kept.iter().find(|token| {
        sum += weights.of(token.logit());
        sum > target
    });
    // If rounding leaves a remainder, it belongs to the last token.
    chosen.or(kept.last()).map(|token| token.token())
}
