//! Row quantisation to 8 bits, and products of quantised matrices.
//!
//! Products accumulate exactly in 32 bits, in any order. Scales are applied in f32, and results are
//! rounded once.

use crate::Tiles;
use crate::dtype::AclType;
use crate::lane::Lane;
use crate::math;
use crate::reduction::kernels::rows;
use crate::view::StridedView;

const LARGEST: f32 = 127.0;
const TILE_ROWS: usize = 64;
const TILE_COLS: usize = 64;

/// Computes `scale[r] = max |x[r]| / 127` and `y[r] = round(x[r] / scale[r])`, ties to even. Zero
/// rows get scale 0.
///
/// # Shapes
///
/// `x: [.., k]`, `smooth: [k]`, which multiplies each row, `y: [.., k]`, `scale: [..]`.
pub(crate) fn dynamic_quant(
    tiles: &dyn Tiles,
    x: &StridedView,
    smooth: Option<&StridedView>,
    y: &StridedView,
    scale: &StridedView,
) {
    let row_len = x.dims()[x.rank() - 1];
    let (count, x, y, scale) = (scale.len(), x.collapsed(), y.collapsed(), scale.collapsed());
    let smooth = smooth.map(|smooth| {
        let mut factors = vec![0f32; row_len];
        f32::load(&smooth.collapsed(), 0, &mut factors);
        factors
    });
    rows(tiles, count, row_len, &|row| {
        let mut buffer = vec![0f32; row_len];
        f32::load(&x, row * row_len, &mut buffer);
        if let Some(smooth) = &smooth {
            math::multiply(&mut buffer, smooth);
        }
        let factor = quantized(&mut buffer);
        f32::store(&y, row * row_len, &buffer);
        f32::store(&scale, row, &[factor]);
    });
}

/// Integers have magnitude at most 127; returns the scale.
pub(crate) fn quantized(row: &mut [f32]) -> f32 {
    let factor = row.iter().fold(0f32, |largest, value| largest.max(value.abs())) / LARGEST;
    if factor > 0.0 {
        for value in row {
            *value = (*value / factor).round_ties_even();
        }
    }
    factor
}

/// `((sum + whole[j]) * columns[j] * rows[i] + shift[j])` of an integer sum.
#[derive(Debug)]
pub(crate) struct Dequantizer {
    /// Scale per column, or one for all.
    columns: Vec<f32>,
    rows: Option<Vec<f32>>,
    /// Integer bias, added before the scales.
    whole: Option<Vec<i64>>,
    /// Offset or bias, after the scales.
    shift: Option<Vec<f32>>,
}

impl Dequantizer {
    /// Builds the conversion from scales and a bias. 64-bit integer scales come from
    /// [`pack_scales`].
    pub(crate) fn new(columns: &StridedView, rows: Option<&StridedView>, bias: Option<&StridedView>) -> Self {
        let is_packed = matches!(columns.dtype(), AclType::U64 | AclType::I64);
        let (scales, offsets) = if is_packed {
            let mut packed = vec![0i64; columns.len()];
            i64::load(&columns.collapsed(), 0, &mut packed);
            let unpacked: (Vec<f32>, Vec<f32>) =
                packed.into_iter().map(|packed| unpack(packed.cast_unsigned())).unzip();
            (unpacked.0, Some(unpacked.1))
        } else {
            (line(columns), None)
        };
        let whole = bias.filter(|bias| bias.dtype() == AclType::I32).map(|bias| {
            let mut values = vec![0i64; bias.len()];
            i64::load(&bias.collapsed(), 0, &mut values);
            values
        });
        let real = bias.filter(|bias| bias.dtype() != AclType::I32).map(line);
        Self { columns: scales, rows: rows.map(line), whole, shift: real.or(offsets) }
    }

    fn of(&self, sum: i32, i: usize, j: usize, is_rounded: bool) -> f32 {
        let pick = |values: &[f32]| values[if values.len() == 1 { 0 } else { j }];
        // The device's sum has 32 bits, with bias.
        let sum = self.whole.as_ref().map_or(sum, |whole| sum.wrapping_add(whole[j] as i32));
        let scaled = sum as f32 * pick(&self.columns);
        let scaled = self.rows.as_ref().map_or(scaled, |rows| scaled * rows[i]);
        let shifted = self.shift.as_ref().map_or(scaled, |shift| scaled + pick(shift));
        if is_rounded { shifted.round_ties_even().clamp(-128.0, 127.0) } else { shifted }
    }
}

/// Set in every packed scale.
const PACKED: u64 = 1 << 46;
/// Scale bits that are kept.
const SCALE_BITS: u64 = 0xFFFF_E000;
const OFFSET_AT: u32 = 37;

/// Packs the upper 19 bits of `scale[i]`, nine bits of the rounded `offset[i]`, and a constant bit.
/// A single scale or offset applies to all.
pub(crate) fn pack_scales(scale: &StridedView, offset: Option<&StridedView>, out: &StridedView) {
    let (scales, offsets) = (line(scale), offset.map(line));
    let pick = |values: &[f32], i: usize| values[if values.len() == 1 { 0 } else { i }];
    let packed: Vec<i64> = (0..out.len())
        .map(|i| {
            let scale = u64::from(pick(&scales, i).to_bits()) & SCALE_BITS;
            let offset = offsets.as_ref().map_or(0, |offsets| {
                (pick(offsets, i).round_ties_even().clamp(-256.0, 255.0) as i64).cast_unsigned() & 0x1FF
            });
            (scale | PACKED | offset << OFFSET_AT).cast_signed()
        })
        .collect();
    i64::store(&out.collapsed(), 0, &packed);
}

pub(crate) fn unpack(packed: u64) -> (f32, f32) {
    let nine = (packed >> OFFSET_AT & 0x1FF) as i32;
    let offset = if nine >= 256 { nine - 512 } else { nine };
    (f32::from_bits((packed & SCALE_BITS) as u32), offset as f32)
}

fn line(view: &StridedView) -> Vec<f32> {
    let mut values = vec![0f32; view.len()];
    f32::load(&view.collapsed(), 0, &mut values);
    values
}

fn bytes(matrix: &StridedView) -> Vec<i8> {
    let mut values = vec![0i8; matrix.len()];
    matrix.read(0, &mut values);
    values
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

/// Computes `out[i][j] = finish(sum over p of a[i][p] * b[j][p])`. 8-bit results round to nearest,
/// ties to even, and saturate.
///
/// # Shapes
///
/// `a: [m, k]`, `b: [n, k]`, `out: [m, n]`, none empty, `k` at most 65535: a sum is below `128² ·
/// 65535 < 2³¹`.
pub(crate) fn quant_matmul(
    tiles: &dyn Tiles,
    a: &StridedView,
    b: &StridedView,
    finish: &Dequantizer,
    out: &StridedView,
) {
    let (m, n, k) = (out.dims()[0], out.dims()[1], a.dims()[1]);
    let is_rounded = out.dtype() == AclType::I8;
    let across = n.div_ceil(TILE_COLS);
    tiles.run(m.div_ceil(TILE_ROWS) * across, &|tile| {
        let (row, col) = (tile / across * TILE_ROWS, tile % across * TILE_COLS);
        let (height, width) = (TILE_ROWS.min(m - row), TILE_COLS.min(n - col));
        let (lhs, rhs) = (bytes(&a.slice(0, row, height, 1)), bytes(&b.slice(0, col, width, 1)));
        let mut block = Vec::with_capacity(height * width);
        for (i, a) in (row..).zip(lhs.chunks_exact(k)) {
            block.extend(
                (col..).zip(rhs.chunks_exact(k)).map(|(j, b)| finish.of(dot(a, b), i, j, is_rounded)),
            );
        }
        f32::store(&out.slice(0, row, height, 1).slice(1, col, width, 1).collapsed(), 0, &block);
    });
}

/// Computes `out[i][j] = sum over g of (sum over p of a[g][i][p] * b[g][j][p]) * rows[g][i] *
/// columns[j]`, rounded once.
///
/// # Shapes
///
/// `a: [g, m, k]`, `b: [g, n, k]`, none empty, `k` as in [`quant_matmul`]; `rows: [g, m]`,
/// `columns: [n]`, `out: [m, n]`.
pub(crate) fn quant_matmul_sum(
    tiles: &dyn Tiles,
    [a, b]: [&StridedView; 2],
    [rows, columns]: [&StridedView; 2],
    out: &StridedView,
) {
    let (groups, m, n, k) = (a.dims()[0], out.dims()[0], out.dims()[1], a.dims()[2]);
    let (rows, columns, across) = (line(rows), line(columns), n.div_ceil(TILE_COLS));
    tiles.run(m.div_ceil(TILE_ROWS) * across, &|tile| {
        let (row, col) = (tile / across * TILE_ROWS, tile % across * TILE_COLS);
        let (height, width) = (TILE_ROWS.min(m - row), TILE_COLS.min(n - col));
        let mut sums = vec![0f32; height * width];
        for group in 0..groups {
            let lhs = bytes(&a.at(0, group).slice(0, row, height, 1));
            let rhs = bytes(&b.at(0, group).slice(0, col, width, 1));
            for (i, (a, sums)) in lhs.chunks_exact(k).zip(sums.chunks_exact_mut(width)).enumerate() {
                for (b, sum) in rhs.chunks_exact(k).zip(sums) {
                    *sum += dot(a, b) as f32 * rows[group * m + row + i];
                }
            }
        }
        for sums in sums.chunks_exact_mut(width) {
            sums.iter_mut().zip(&columns[col..]).for_each(|(sum, column)| *sum *= column);
        }
        f32::store(&out.slice(0, row, height, 1).slice(1, col, width, 1).collapsed(), 0, &sums);
    });
}
