//! Elements selected by a position list per dim (rolls, flips, padding, repeats, nearest
//! neighbours), and gradients.
//!
//! Gradient sums are f32, in order, rounded once.

use crate::Tiles;
use crate::indexing::kernels::with_bits;
use crate::lane::Lane;
use crate::reduction::kernels::{rows, rows_with};
use crate::view::StridedView;

/// Source positions, per dim.
pub(crate) type SourcePositions = Vec<Vec<usize>>;

/// Returns the start of row `at` in a row-major tensor of `dims`.
fn row_start(positions: &[Vec<usize>], dims: &[usize], mut at: usize) -> usize {
    let (mut start, mut step) = (0, dims.last().copied().unwrap_or(1));
    for dim in (0..dims.len().saturating_sub(1)).rev() {
        let extent = positions[dim].len();
        start += positions[dim][at % extent] * step;
        at /= extent;
        step *= dims[dim];
    }
    start
}

/// Computes `out[i, j, ..] = x[positions[0][i], positions[1][j], ..]`.
pub(crate) fn remap(tiles: &dyn Tiles, x: &StridedView, positions: &[Vec<usize>], out: &StridedView) {
    let only = [0];
    let inner = positions.last().map_or(&only[..], Vec::as_slice);
    let outer = positions.iter().rev().skip(1).map(Vec::len).product();
    let (flat, target) = (x.collapsed(), out.collapsed());
    with_bits!(x, T => {
        let mut data = vec![T::default(); x.len()];
        flat.read(0, &mut data);
        rows(tiles, outer, inner.len(), &|row| {
            let start = row_start(positions, x.dims(), row);
            let picked: Vec<T> = inner.iter().map(|&place| data[start + place]).collect();
            target.write(row * inner.len(), &picked);
        });
    });
}

/// Computes `out[p] = sum of grad[i, j, ..]` over all positions that map to `p`.
pub(crate) fn remap_grad(tiles: &dyn Tiles, grad: &StridedView, positions: &[Vec<usize>], out: &StridedView) {
    let only = [0];
    let inner = positions.last().map_or(&only[..], Vec::as_slice);
    // Blocks of leading dims with identity positions are independent.
    let is_whole = |&(list, extent): &(&Vec<usize>, &usize)| {
        list.len() == *extent && list.iter().copied().eq(0..*extent)
    };
    let whole =
        positions.iter().zip(out.dims()).take(positions.len().saturating_sub(1)).take_while(is_whole).count();
    let (blocks, below) = out.dims().split_at(whole);
    let (count, len) = (blocks.iter().product(), below.iter().product());
    let lines: usize = positions[whole..].iter().rev().skip(1).map(Vec::len).product();
    let (grad, target) = (grad.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; inner.len()], vec![0f32; len]);
    rows_with(tiles, count, lines * inner.len() + len, buffers, |(row, sums), block| {
        sums.fill(0.0);
        for line in 0..lines {
            f32::load(&grad, (block * lines + line) * inner.len(), row);
            let start = row_start(&positions[whole..], below, line);
            inner.iter().zip(row.iter()).for_each(|(&place, value)| sums[start + place] += value);
        }
        f32::store(&target, block * len, sums);
    });
}
