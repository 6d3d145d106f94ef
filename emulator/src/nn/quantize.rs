//! Rows as bytes with a scale each, and products of such rows.
//!
//! Input: rows of f16 or bf16, or matrices of 8-bit integers with their scales. Output: 8-bit integers and scales, or the
//! product of the matrices with the scales taken back in.
//! Invariants: products accumulate exactly in 32 bits, so their order does not matter; scales are applied in f32 and the
//! result is rounded once to the type of the output; tiles depend on shapes only.

use super::Tiles;
use super::lane::Lane;
use super::reduce::rows;
use super::view::View;

/// Largest magnitude a row is scaled to.
const LARGEST: f32 = 127.0;
/// Rows of an output tile.
const TILE_ROWS: usize = 64;
/// Columns of an output tile.
const TILE_COLS: usize = 64;

/// `scale[r] = max |x[r]| / 127`, `y[r] = round(x[r] / scale[r])`, ties to even; a row of zeros stays zeros, with scale 0.
///
/// # Shapes
/// `x: [.., k]`, `y: [.., k]`, `scale: [..]`.
pub(crate) fn dynamic_quant(tiles: &dyn Tiles, x: &View, y: &View, scale: &View) {
    let row_len = x.dims()[x.rank() - 1];
    let (count, x, y, scale) = (scale.len(), x.collapsed(), y.collapsed(), scale.collapsed());
    rows(tiles, count, row_len, &|row| {
        let mut buffer = vec![0f32; row_len];
        f32::load(&x, row * row_len, &mut buffer);
        let factor = buffer.iter().fold(0f32, |largest, value| largest.max(value.abs())) / LARGEST;
        if factor > 0.0 {
            for value in &mut buffer {
                *value = (*value / factor).round_ties_even();
            }
        }
        f32::store(&y, row * row_len, &buffer);
        f32::store(&scale, row, &[factor]);
    });
}

/// What a product of 8-bit integers is multiplied by.
#[derive(Clone, Debug)]
pub(crate) struct Scales<'a> {
    /// By column of the product; one for all if there is only one.
    pub(crate) columns: &'a View,
    /// By row of the product.
    pub(crate) rows: Option<&'a View>,
}

/// A line of a view as f32.
fn line(view: &View) -> Vec<f32> {
    let mut values = vec![0f32; view.len()];
    f32::load(&view.collapsed(), 0, &mut values);
    values
}

/// The 8-bit integers of a matrix, row by row.
fn bytes(matrix: &View) -> Vec<i8> {
    let mut values = vec![0i8; matrix.len()];
    matrix.read(0, &mut values);
    values
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

/// `out[i][j] = (sum over p of a[i][p] * b[j][p]) * columns[j] * rows[i]`.
///
/// # Shapes
/// `a: [m, k]`, `b: [n, k]`, `out: [m, n]`, none empty, `k` at most 65535: a sum is below `128² · 65535 < 2³¹`.
pub(crate) fn quant_matmul(tiles: &dyn Tiles, a: &View, b: &View, scales: &Scales<'_>, out: &View) {
    let (m, n, k) = (out.dims()[0], out.dims()[1], a.dims()[1]);
    let (columns, by_row) = (line(scales.columns), scales.rows.map(line));
    let across = n.div_ceil(TILE_COLS);
    tiles.run(m.div_ceil(TILE_ROWS) * across, &|tile| {
        let (row, col) = (tile / across * TILE_ROWS, tile % across * TILE_COLS);
        let (height, width) = (TILE_ROWS.min(m - row), TILE_COLS.min(n - col));
        let (lhs, rhs) = (bytes(&a.slice(0, row, height, 1)), bytes(&b.slice(0, col, width, 1)));
        let mut block = Vec::with_capacity(height * width);
        for (i, a) in (row..).zip(lhs.chunks_exact(k)) {
            for (j, b) in (col..).zip(rhs.chunks_exact(k)) {
                let scaled = dot(a, b) as f32 * columns[if columns.len() == 1 { 0 } else { j }];
                block.push(by_row.as_ref().map_or(scaled, |by_row| scaled * by_row[i]));
            }
        }
        f32::store(&out.slice(0, row, height, 1).slice(1, col, width, 1).collapsed(), 0, &block);
    });
}
