//! The tokens that the cards selected, merged for the choice of a token.
//!
//! - Input: the output of a program with [`CandidateSizes`]: the most likely tokens of each part of
//!   the vocabulary.
//! - Output: the most likely tokens of the whole vocabulary.
//! - Not here: whether they suffice (`sampling`).

use crate::program::models::CandidateSizes;

use super::sampling::{Candidates, Ties, TokenCandidate};

/// Candidates of consecutive positions of one sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateRows<'a> {
    /// `[positions, parts, columns]`.
    pub(super) values: &'a [f32],
    pub(super) sizes: CandidateSizes,
    /// Number of ids of the model.
    pub(super) vocabulary: usize,
    /// The pool that keeps the logits.
    pub(super) pool: usize,
    /// Place of the first position among the pool's kept logits.
    pub(super) place: usize,
}

/// The most likely tokens of one position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MergedCandidates {
    tokens: Vec<TokenCandidate>,
    log_sum_exp: f32,
    vocabulary: usize,
}

impl CandidateRows<'_> {
    /// Returns the most likely tokens of the position `at`.
    ///
    /// A token outside is at most as likely as the least likely selected token of its part. So the
    /// tokens that are at least as likely as all these are the most likely ones.
    pub(super) fn merged(&self, at: usize) -> MergedCandidates {
        let CandidateSizes { count, parts, .. } = self.sizes;
        let (columns, of_part) = (self.sizes.columns(), self.vocabulary / parts);
        let rows = self.values[at * parts * columns..][..parts * columns].chunks_exact(columns);
        let least = if count < of_part {
            rows.clone().map(|row| row[count - 1]).fold(f32::NEG_INFINITY, f32::max)
        } else {
            f32::NEG_INFINITY
        };
        let tokens = rows.clone().enumerate().flat_map(|(part, row)| {
            let (logits, indices) = row[..2 * count].split_at(count);
            // A NaN stays, so that the choice reports it.
            let kept =
                logits.iter().zip(indices).take_while(move |(logit, _)| **logit >= least || logit.is_nan());
            kept.map(move |(logit, index)| {
                let token = (part * of_part) as u32 + *index as u32;
                TokenCandidate { token, logit: *logit }
            })
        });
        let logarithms = rows.clone().map(|row| f64::from(row[columns - 1]));
        let largest = logarithms.clone().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logarithms.map(|logarithm| (logarithm - largest).exp()).sum();
        MergedCandidates {
            tokens: tokens.collect(),
            log_sum_exp: (largest + sum.ln()) as f32,
            vocabulary: self.vocabulary,
        }
    }
}

impl MergedCandidates {
    /// Returns the candidates for the sampler. A card may order equal logits in any way.
    pub(super) fn candidates(&self) -> Candidates<'_> {
        Candidates {
            tokens: &self.tokens,
            ties: Ties::AnyOrder,
            log_sum_exp: self.log_sum_exp,
            sum_temperature: 1.0,
            vocabulary: self.vocabulary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampling::{Sampler, SamplingOptions};
    use super::*;

    /// Selects candidates as cards do.
    fn rows(logits: &[f32], sizes: CandidateSizes) -> Vec<f32> {
        let of_part = logits.len() / sizes.parts;
        let of = |part: &[f32]| {
            let mut order: Vec<usize> = (0..of_part).collect();
            order.sort_by(|a, b| part[*b].total_cmp(&part[*a]));
            order.truncate(sizes.count);
            let sum: f64 = part.iter().map(|logit| f64::from(*logit).exp()).sum();
            let values = order.iter().map(|at| part[*at]);
            values.chain(order.iter().map(|at| *at as f32)).chain([sum.ln() as f32]).collect::<Vec<_>>()
        };
        logits.chunks(of_part).flat_map(of).collect()
    }

    #[test]
    fn merged_candidates_are_the_most_likely_of_the_whole_row() {
        let logits = [0.5, 3.0, -1.0, 2.0, 9.0, 8.0, 7.0, 6.0, 1.0, 0.0, 2.5, -3.0];
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        for (count, parts, expected) in [
            // The least of the second part is 8, and only it and 9 are as large.
            (2, 3, vec![4, 5]),
            (3, 3, vec![4, 5, 6]),
            // All tokens are known.
            (4, 3, (0..12).collect::<Vec<u32>>()),
            (2, 1, vec![4, 5]),
            (7, 1, vec![1, 3, 4, 5, 6, 7, 10]),
        ] {
            let sizes = CandidateSizes { count, parts, kept: 1, pools: 1 };
            let values = [rows(&[0.0; 12], sizes), rows(&logits, sizes)].concat();
            let rows = CandidateRows { values: &values, sizes, vocabulary: 12, pool: 0, place: 0 };
            let merged = rows.merged(1);
            let mut tokens: Vec<u32> = merged.tokens.iter().map(|candidate| candidate.token).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, expected, "{count} of each of {parts} parts");
            assert!((f64::from(merged.log_sum_exp) - sum.ln()).abs() < 1e-5);
            for TokenCandidate { token, logit } in merged.tokens {
                assert_eq!(logit, logits[token as usize]);
            }
        }
    }

    #[test]
    fn a_row_that_is_not_finite_is_no_choice() {
        let sizes = CandidateSizes { count: 2, parts: 1, kept: 1, pools: 1 };
        let values = [f32::NAN, 1.0, 3.0, 0.0, f32::NAN];
        let rows = CandidateRows { values: &values, sizes, vocabulary: 4, pool: 0, place: 0 };
        let mut sampler = Sampler::new(&SamplingOptions::default(), 0, &[]).unwrap();
        assert!(sampler.sample_candidates(&rows.merged(0).candidates(), 0, None).is_err());
    }
}
