//! Test data for collectives with results in closed form. Sums over at most 64 ranks are integers
//! up to 256, which every float type holds exactly.

use half::{bf16, f16};

use super::error::Error;
use ascend_tp::base::DType;

/// Period of the numbers. A power of two would hide misplaced blocks.
const PERIOD: usize = 5;

const REPEATS: usize = 1 << 12;

/// Maximum ranks with exact sums.
pub(super) const MOST_RANKS: usize = 64;

/// Contiguous elements of one rank or of the sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElementRun {
    pub(super) elems: usize,
    /// Source rank; `None` for the sum.
    pub(super) of: Option<usize>,
    /// Index of the first element in the source.
    pub(super) first: usize,
}

const fn number(rank: usize, index: usize) -> usize {
    (rank + index) % PERIOD
}

impl ElementRun {
    fn at(self, index: usize, world: usize) -> f32 {
        let at = self.first + index;
        let value = match self.of {
            Some(rank) => number(rank, at),
            None => (0..world).map(|rank| number(rank, at)).sum(),
        };
        value as f32
    }

    /// Returns whole periods, at most `REPEATS`. `bytes` repeats and truncates them.
    fn block(self, world: usize, dtype: DType) -> Vec<u8> {
        let values: Vec<f32> = (0..PERIOD).map(|index| self.at(index, world)).collect();
        (0..PERIOD * REPEATS.min(self.elems / PERIOD + 1))
            .flat_map(|index| encode(values[index % PERIOD], dtype))
            .collect()
    }
}

fn encode(value: f32, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

fn decode(bytes: &[u8], dtype: DType) -> f64 {
    match (dtype, bytes) {
        (DType::F16, [a, b, ..]) => f16::from_le_bytes([*a, *b]).to_f64(),
        (DType::BF16, [a, b, ..]) => bf16::from_le_bytes([*a, *b]).to_f64(),
        (_, [a, b, c, d, ..]) => f32::from_le_bytes([*a, *b, *c, *d]).into(),
        _ => f64::NAN,
    }
}

pub(super) fn bytes(runs: &[ElementRun], world: usize, dtype: DType) -> Vec<u8> {
    let elems: usize = runs.iter().map(|run| run.elems).sum();
    let mut bytes = Vec::with_capacity(elems * dtype.size_bytes());
    for run in runs {
        let (block, end) = (run.block(world, dtype), bytes.len() + run.elems * dtype.size_bytes());
        while bytes.len() < end {
            bytes.extend_from_slice(&block[..block.len().min(end - bytes.len())]);
        }
    }
    bytes
}

pub(super) fn check(
    what: &str,
    rank: usize,
    found: &[u8],
    runs: &[ElementRun],
    world: usize,
    dtype: DType,
) -> Result<(), Error> {
    let expected = bytes(runs, world, dtype);
    if expected == found {
        return Ok(());
    }
    let size = dtype.size_bytes();
    let at = expected.chunks(size).zip(found.chunks(size)).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| expected.len().min(found.len()) / size);
    let value = |bytes: &[u8]| bytes.get(at * size..).map_or(f64::NAN, |rest| decode(rest, dtype));
    let (expected, found) = (value(&expected), value(found));
    Err(Error::Wrong { what: what.to_owned(), rank, at, expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_stand_one_after_another_and_sums_are_exact() {
        let runs =
            [ElementRun { elems: 3, of: Some(2), first: 4 }, ElementRun { elems: 7, of: None, first: 1 }];
        let found = bytes(&runs, 3, DType::BF16);
        let numbers: Vec<f64> = found.chunks(2).map(|chunk| decode(chunk, DType::BF16)).collect();
        // Rank 2 has (2 + i) mod 5. The sum at index i adds i, i + 1 and i + 2, each mod 5.
        assert_eq!(numbers, [1.0, 2.0, 3.0, 6.0, 9.0, 7.0, 5.0, 3.0, 6.0, 9.0]);
    }

    #[test]
    fn what_differs_is_named() {
        let runs = [ElementRun { elems: 6000, of: Some(0), first: 0 }];
        let mut found = bytes(&runs, 1, DType::F32);
        assert!(check("a copy", 0, &found, &runs, 1, DType::F32).is_ok());
        found[4 * 5001..4 * 5002].copy_from_slice(&9.0_f32.to_le_bytes());
        let error = check("a copy", 3, &found, &runs, 1, DType::F32).unwrap_err();
        assert_eq!(error.to_string(), "a copy: wrong result on rank 3 at element 5001: expected 1, found 9");
    }
}
