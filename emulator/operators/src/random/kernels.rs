//! Counter-based random numbers: an element depends only on seed, offset and position.
//!
//! Philox4x32-10 (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011). The
//! device uses this generator with an undocumented counter layout.

use std::sync::{Mutex, PoisonError};

use crate::Tiles;
use crate::elementwise::kernels::blocks;
use crate::lane::Lane;
use crate::reduction::kernels::rows_with;
use crate::view::StridedView;

/// Start within the random sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RandomStream {
    /// Key of the generator.
    pub(crate) seed: u64,
    /// Sequence of this key.
    pub(crate) offset: u64,
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = u64::from(counter[0]) * 0xD251_1F53;
        let second = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

impl RandomStream {
    /// Returns the words of elements `4 * block` to `4 * block + 3`.
    fn words(self, block: u64) -> [u32; 4] {
        let counter = [block as u32, (block >> 32) as u32, self.offset as u32, (self.offset >> 32) as u32];
        philox(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// Returns a 24-bit number in `[0, 1)`.
    pub(crate) fn uniform(self, element: usize) -> f32 {
        (self.words(element as u64 / 4)[element % 4] >> 8) as f32 / 16_777_216.0
    }

    /// Returns standard normal number by the Box-Muller method: two words give two numbers.
    pub(crate) fn normal(self, element: usize) -> f32 {
        let words = self.words(element as u64 / 4);
        let pair = element % 4 / 2 * 2;
        // A positive number has a finite logarithm.
        let radius = (f64::from(words[pair]) + 1.0) / 4_294_967_296.0;
        let angle = std::f64::consts::TAU * f64::from(words[pair + 1]) / 4_294_967_296.0;
        let radius = (-2.0 * radius.ln()).sqrt();
        (radius * if element.is_multiple_of(2) { angle.cos() } else { angle.sin() }) as f32
    }

    /// Returns an exponentially distributed number of rate 1.
    pub(crate) fn exponential(self, element: usize) -> f64 {
        -(1.0 - f64::from(self.uniform(element))).ln()
    }

    /// Returns in `0..below`: 64 random bits modulo `below`, nearly uniform for tensor types.
    pub(crate) fn whole(self, element: usize, below: u64) -> u64 {
        let words = self.words(element as u64 / 2 + (1 << 63));
        let pair = element % 2 * 2;
        (u64::from(words[pair]) << 32 | u64::from(words[pair + 1])) % below.max(1)
    }
}

pub(crate) fn fill<L: Lane>(tiles: &dyn Tiles, out: &StridedView, draw: impl Fn(usize) -> L + Sync) {
    let target = out.collapsed();
    blocks(tiles, out.len(), &|start, len| {
        let values: Vec<L> = (start..start + len).map(&draw).collect();
        L::store(&target, start, &values);
    });
}

/// Draws one class per row of `weights` and column of `out`.
///
/// Fails for a negative or non-finite weight, or too few positive weights.
pub(crate) fn choices(
    tiles: &dyn Tiles,
    stream: RandomStream,
    weights: &StridedView,
    is_replaced: bool,
    out: &StridedView,
) -> Result<(), String> {
    let [classes, draws] = [weights, out].map(|view| view.dims()[view.rank() - 1]);
    let (weights, target, count) = (weights.collapsed(), out.collapsed(), out.len() / draws.max(1));
    let failure: Mutex<Option<(usize, String)>> = Mutex::default();
    rows_with(
        tiles,
        count,
        classes.max(draws),
        || vec![0f64; classes],
        |own, row| {
            f64::load(&weights, row * classes, own);
            let positive = own.iter().filter(|weight| **weight > 0.0).count();
            let wanted = if is_replaced { 1 } else { draws };
            let wrong = own.iter().find(|weight| !(weight.is_finite() && **weight >= 0.0));
            if wrong.is_some() || positive < wanted {
                let text = wrong.map_or_else(
                    || format!("row {row} has {positive} weights above 0 for {wanted} classes"),
                    |weight| format!("row {row} has the weight {weight}"),
                );
                let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(other, _)| row < *other) {
                    *first = Some((row, text));
                }
                return;
            }
            let drawn = if is_replaced {
                with_replacement(stream, row, own, draws)
            } else {
                in_order(stream, row, own, draws)
            };
            i64::store(&target, row * draws, &drawn);
        },
    );
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, text)| Err(text))
}

/// Uniform numbers are looked up in the cumulative weights.
fn with_replacement(stream: RandomStream, row: usize, weights: &mut [f64], draws: usize) -> Vec<i64> {
    let last = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
    let mut total = 0.0;
    for weight in weights.iter_mut() {
        total += *weight;
        *weight = total;
    }
    let draw = |at: usize| {
        let place = f64::from(stream.uniform(row * draws + at)) * total;
        weights.partition_point(|sum| *sum <= place).min(last) as i64
    };
    (0..draws).map(draw).collect()
}

/// Sorted exponential numbers with the weights as rates have the order of draws without
/// replacement.
fn in_order(stream: RandomStream, row: usize, weights: &[f64], draws: usize) -> Vec<i64> {
    let end = |(class, weight): (usize, &f64)| {
        (stream.exponential(row * weights.len() + class) / weight, class as i64)
    };
    let mut ends: Vec<(f64, i64)> =
        weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0).map(end).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    ends.into_iter().take(draws).map(|(_, class)| class).collect()
}

/// Bits are 0 with probability `zeros`, lowest bit first.
pub(crate) fn mask(tiles: &dyn Tiles, stream: RandomStream, zeros: f64, out: &StridedView) {
    let bit = |element: usize| i64::from(f64::from(stream.uniform(element)) >= zeros);
    fill(tiles, out, |byte| (0..8).fold(0i64, |bits, place| bits | bit(8 * byte + place) << place));
}

/// Computes `out = x / (1 - zeros)` where the bit is 1, else 0.
pub(crate) fn apply_mask(
    tiles: &dyn Tiles,
    x: &StridedView,
    mask: &StridedView,
    zeros: f64,
    out: &StridedView,
) {
    let mut bits = vec![0i64; mask.len()];
    i64::load(&mask.collapsed(), 0, &mut bits);
    let (source, target) = (x.collapsed(), out.collapsed());
    let scale = if zeros < 1.0 { (1.0 / (1.0 - zeros)) as f32 } else { 0.0 };
    blocks(tiles, out.len(), &|start, len| {
        let mut values = vec![0f32; len];
        f32::load(&source, start, &mut values);
        for (i, value) in values.iter_mut().enumerate() {
            let element = start + i;
            *value = if bits[element / 8] >> (element % 8) & 1 == 1 { *value * scale } else { 0.0 };
        }
        f32::store(&target, start, &values);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_authors_of_the_generator() {
        // `kat_vectors` of Random123.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        let digits = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let found = philox(digits, [0xa409_3822, 0x299f_31d0]);
        assert_eq!(found, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    fn moments(count: usize, draw: impl Fn(usize) -> f64) -> (f64, f64) {
        let (sum, squares) = (0..count)
            .map(draw)
            .fold((0.0, 0.0), |(sum, squares), value| (sum + value, squares + value * value));
        (sum / count as f64, squares / count as f64)
    }

    #[test]
    fn numbers_have_the_moments_of_their_distribution() {
        const COUNT: usize = 40_000;
        let stream = RandomStream { seed: 7, offset: 3 };
        // Six standard errors. Variances: uniform 1/12 and its square 4/45; normal 1 and its square
        // 2.
        let within = |variance: f64| 6.0 * (variance / COUNT as f64).sqrt();
        let (mean, square) = moments(COUNT, |i| f64::from(stream.uniform(i)));
        assert!(
            (mean - 0.5).abs() < within(1.0 / 12.0) && (square - 1.0 / 3.0).abs() < within(4.0 / 45.0),
            "{mean} {square}"
        );
        let (mean, square) = moments(COUNT, |i| f64::from(stream.normal(i)));
        assert!(mean.abs() < within(1.0) && (square - 1.0).abs() < within(2.0), "{mean} {square}");
        let (mean, _) = moments(COUNT, |i| stream.whole(i, 10) as f64);
        assert!((mean - 4.5).abs() < within(99.0 / 12.0), "{mean}");
    }

    #[test]
    fn seeds_and_offsets_give_other_numbers_and_the_same_give_the_same() {
        let numbers = |seed, offset| {
            (0..64).map(|i| RandomStream { seed, offset }.uniform(i).to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(2, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
    }
}
