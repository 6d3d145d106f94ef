//! Products of f16 or bf16 rows with 8-bit or 4-bit weights, and packing.
//!
//! A weight is rounded to the row type, as in the cube unit. Sums are f32, rounded once; a tile is
//! some output columns.

use crate::Tiles;
use crate::dtype::AclType;
use crate::lane::Lane;
use crate::math;
use crate::view::StridedView;

const COLUMNS: usize = 16;
/// 4-bit integers per 32-bit word.
const PER_WORD: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightPacking {
    None,
    /// Eight 4-bit neighbours along the columns.
    Columns,
    /// Eight 4-bit neighbours along the contracted dim.
    Depth,
}

/// Weights of value `(weight + offset) * scale`.
#[derive(Debug)]
pub(crate) struct Dequantised<'a> {
    /// `[k, n]`, one dim divided by eight if packed.
    pub(crate) weight: &'a StridedView,
    pub(crate) packing: WeightPacking,
    /// Elements along `k` per scale.
    pub(crate) group: usize,
    /// Scales `[ceil(k / group), n]` of the weights.
    pub(crate) scale: &'a StridedView,
    /// In the shape of `scale`.
    pub(crate) offset: Option<StridedView>,
    /// Type of the rounded weights.
    pub(crate) dtype: AclType,
}

fn nibble(word: i64, place: usize) -> f32 {
    let bits = (word >> (4 * place) & 0xF) as i32;
    (if bits >= 8 { bits - 16 } else { bits }) as f32
}

impl Dequantised<'_> {
    fn column(&self, j: usize, k: usize) -> Vec<f32> {
        let at = if self.packing == WeightPacking::Columns { j / PER_WORD } else { j };
        let stored = self.weight.slice(1, at, 1, 1).collapsed();
        let mut words = vec![0i64; stored.len()];
        i64::load(&stored, 0, &mut words);
        let groups = k.div_ceil(self.group);
        let line = |view: &StridedView| {
            let mut values = vec![0f32; groups];
            f32::load(&view.slice(1, j, 1, 1).collapsed(), 0, &mut values);
            values
        };
        let (scales, offsets) = (line(self.scale), self.offset.as_ref().map(line));
        (0..k)
            .map(|i| {
                let whole = match self.packing {
                    WeightPacking::None => words[i] as f32,
                    WeightPacking::Columns => nibble(words[i], j % PER_WORD),
                    WeightPacking::Depth => nibble(words[i / PER_WORD], i % PER_WORD),
                };
                let group = i / self.group;
                let shifted = offsets.as_ref().map_or(whole, |offsets| whole + offsets[group]);
                (shifted * scales[group]).rounded(self.dtype)
            })
            .collect()
    }
}

/// Computes `out = x @ weights + bias`.
///
/// # Shapes
///
/// `x: [m, k]`, `bias: [n]`, `out: [m, n]`.
pub(crate) fn product(
    tiles: &dyn Tiles,
    x: &StridedView,
    weights: &Dequantised<'_>,
    bias: Option<&StridedView>,
    out: &StridedView,
) {
    let (m, k, n) = (x.dims()[0], x.dims()[1], out.dims()[1]);
    let mut added = vec![0f32; n];
    if let Some(bias) = bias {
        f32::load(&bias.collapsed(), 0, &mut added);
    }
    let x = x.collapsed();
    tiles.run(n.div_ceil(COLUMNS), &|tile| {
        let first = tile * COLUMNS;
        let width = COLUMNS.min(n - first);
        let columns: Vec<Vec<f32>> = (first..first + width).map(|j| weights.column(j, k)).collect();
        let target = out.slice(1, first, width, 1).collapsed();
        let mut row = vec![0f32; k];
        for i in 0..m {
            f32::load(&x, i * k, &mut row);
            let sums: Vec<f32> = columns
                .iter()
                .zip(&added[first..])
                .map(|(column, add)| math::dot(&row, column) + add)
                .collect();
            f32::store(&target, i * width, &sums);
        }
    });
}

/// Eight neighbours of the last dim form a word, lowest bits first.
pub(crate) fn pack(weight: &StridedView, out: &StridedView) -> Result<(), String> {
    let mut values = vec![0i64; weight.len()];
    i64::load(&weight.collapsed(), 0, &mut values);
    if let Some(at) = values.iter().position(|value| !(-8..8).contains(value)) {
        return Err(format!("weight: expected -8 to 7, found {} at element {at}", values[at]));
    }
    let word = |eight: &[i64]| {
        eight.iter().enumerate().fold(0i64, |word, (place, value)| word | (value & 0xF) << (4 * place))
    };
    let words: Vec<i64> = values.chunks_exact(PER_WORD).map(|eight| i64::from(word(eight) as i32)).collect();
    i64::store(&out.collapsed(), 0, &words);
    Ok(())
}
