//! The order of likelihood: by logit, and by id where logits are equal.
//!
//! - Input: a row of logits.
//! - Output: its largest logit, or its first tokens in this order.
//! - Invariants: the lower id is first if logits are equal; −0 equals 0. No row is sorted whole
//!   unless all of its tokens are wanted.

use std::cmp::Reverse;

use super::SamplingError;

/// Logits that are examined at once. Most blocks have no token that counts.
const BLOCK: usize = 256;

/// Independent comparisons per instruction.
const LANES: usize = 16;

/// A token with its logit. The more likely token is the larger value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedToken(u64);

impl RankedToken {
    pub(super) const fn new(token: u32, logit: f32) -> Self {
        // The sum turns −0 into 0.
        let bits = (logit + 0.0).to_bits();
        let ordered = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
        Self((ordered as u64) << 32 | !token as u64)
    }

    pub(super) const fn token(self) -> u32 {
        !(self.0 as u32)
    }

    pub(super) const fn logit(self) -> f32 {
        let ordered = (self.0 >> 32) as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
    }
}

/// The largest logit of a block, and whether all logits of the block are numbers below +∞.
#[derive(Clone, Copy, Debug)]
struct BlockSummary {
    largest: f32,
    is_valid: bool,
}

impl BlockSummary {
    #[inline]
    fn of(values: &[f32]) -> Self {
        let (whole, rest) = values.as_chunks::<LANES>();
        let (mut largest, mut wrong) = ([f32::NEG_INFINITY; LANES], [0u32; LANES]);
        let mut add = |lane: usize, value: f32| {
            largest[lane] = if value > largest[lane] { value } else { largest[lane] };
            // NaN is not below +∞ either.
            wrong[lane] |= if value < f32::INFINITY { 0 } else { u32::MAX };
        };
        for values in whole {
            for (lane, value) in values.iter().enumerate() {
                add(lane, *value);
            }
        }
        rest.iter().enumerate().for_each(|(lane, value)| add(lane, *value));
        let largest = largest.into_iter().fold(f32::NEG_INFINITY, f32::max);
        Self { largest, is_valid: wrong.iter().all(|wrong| *wrong == 0) }
    }
}

/// Returns the most likely token of a row, in one pass.
///
/// # Errors
/// The row is empty, contains NaN or +∞, or is −∞ everywhere.
pub(super) fn largest(logits: &[f32]) -> Result<RankedToken, SamplingError> {
    let mut largest = f32::NEG_INFINITY;
    let mut place = 0;
    for (block, values) in logits.chunks(BLOCK).enumerate() {
        let summary = BlockSummary::of(values);
        if !summary.is_valid {
            return Err(not_finite(logits));
        }
        if summary.largest > largest {
            (largest, place) = (summary.largest, block * BLOCK);
        }
    }
    if largest == f32::NEG_INFINITY {
        return Err(match logits.len() {
            0 => SamplingError::NoLogits,
            tokens => SamplingError::NoPossibleToken { tokens },
        });
    }
    let within = logits[place..].iter().take_while(|value| **value != largest).count();
    Ok(RankedToken::new((place + within) as u32, largest))
}

fn not_finite(logits: &[f32]) -> SamplingError {
    let is_valid = |value: &f32| *value < f32::INFINITY;
    let token = logits.iter().take_while(|value| is_valid(value)).count();
    SamplingError::NotFinite { token: token as u32, value: logits[token] }
}

/// Replaces `kept` by the `count` most likely tokens of a row without NaN, in descending order.
pub(super) fn most_likely(logits: &[f32], count: usize, kept: &mut Vec<RankedToken>) {
    kept.clear();
    let count = count.min(logits.len());
    if count == 0 {
        return;
    }
    let capacity = count + count.max(BLOCK);
    // The least kept logit, once `count` tokens are kept. Later tokens must be above it.
    let mut floor = None;
    for (block, values) in logits.chunks(BLOCK).enumerate() {
        if floor.is_some_and(|floor| BlockSummary::of(values).largest <= floor) {
            continue;
        }
        let tokens = values.iter().enumerate().map(|(at, logit)| ((block * BLOCK + at) as u32, *logit));
        let above = tokens.filter(|(_, logit)| floor.is_none_or(|floor| *logit > floor));
        kept.extend(above.map(|(token, logit)| RankedToken::new(token, logit)));
        if kept.len() >= capacity {
            floor = Some(keep(count, kept).logit());
        }
    }
    if kept.len() > count {
        keep(count, kept);
    }
    kept.sort_unstable_by_key(|token| Reverse(*token));
}

/// Keeps the `count` most likely tokens and returns the least likely one.
fn keep(count: usize, kept: &mut Vec<RankedToken>) -> RankedToken {
    let (_, least, _) = kept.select_nth_unstable_by_key(count - 1, |token| Reverse(*token));
    let least = *least;
    kept.truncate(count);
    least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn a_token_keeps_its_id_and_logit() {
        for logit in [f32::NEG_INFINITY, f32::MIN, -1.5, -1e-45, 0.0, 1e-45, 2.0, f32::MAX] {
            for token in [0, 1, 151_935, u32::MAX] {
                let ranked = RankedToken::new(token, logit);
                assert_eq!((ranked.token(), ranked.logit()), (token, logit));
            }
        }
        assert_eq!(RankedToken::new(3, -0.0), RankedToken::new(3, 0.0));
        assert!(RankedToken::new(1, 2.0) > RankedToken::new(2, 2.0));
        assert!(RankedToken::new(9, 2.0) > RankedToken::new(0, 1.0));
        assert!(RankedToken::new(9, -1.0) > RankedToken::new(0, -2.0));
    }

    /// Rows with many equal logits, longer than several blocks.
    fn rows() -> impl Strategy<Value = Vec<f32>> {
        let logit = any::<u8>().prop_map(|value| match value {
            0..4 => f32::NEG_INFINITY,
            4 => -0.0,
            value => f32::from(value % 32) - 16.0,
        });
        prop::collection::vec(logit, 1..2000)
    }

    proptest! {
        #[test]
        fn selection_is_a_prefix_of_the_sorted_row(logits in rows(), count in 0usize..700) {
            let tokens = logits.iter().enumerate();
            let mut sorted: Vec<(u32, f32)> = tokens.map(|(token, logit)| (token as u32, *logit)).collect();
            // A stable sort leaves equal logits in the order of their ids.
            sorted.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
            let mut kept = Vec::new();
            most_likely(&logits, count, &mut kept);
            let found: Vec<(u32, f32)> = kept.iter().map(|kept| (kept.token(), kept.logit())).collect();
            prop_assert_eq!(&found, &sorted[..count.min(sorted.len())]);
            match largest(&logits) {
                Ok(first) => prop_assert_eq!((first.token(), first.logit()), sorted[0]),
                Err(error) => {
                    prop_assert_eq!(sorted[0].1, f32::NEG_INFINITY);
                    prop_assert_eq!(error, SamplingError::NoPossibleToken { tokens: logits.len() });
                }
            }
        }

        #[test]
        fn the_first_wrong_logit_is_named(logits in rows(), at in any::<prop::sample::Index>(), is_nan in any::<bool>()) {
            let (mut logits, at) = (logits.clone(), at.index(logits.len()));
            logits[at] = if is_nan { f32::NAN } else { f32::INFINITY };
            let error = largest(&logits).unwrap_err();
            let SamplingError::NotFinite { token, value } = error else { panic!("{error}") };
            prop_assert_eq!((token as usize, value.is_nan()), (at, is_nan));
        }
    }

    #[test]
    fn ascending_rows_are_selected_too() {
        let logits: Vec<f32> = (0..5000).map(|token| token as f32).collect();
        let mut kept = Vec::new();
        most_likely(&logits, 3, &mut kept);
        assert_eq!(kept.iter().map(|kept| kept.token()).collect::<Vec<_>>(), [4999, 4998, 4997]);
    }
}
