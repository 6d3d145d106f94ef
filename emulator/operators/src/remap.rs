//! Elements that a list of positions for each dim picks: rolls, flips, borders, repeats and the nearest of a grid, and the sums of
//! the gradients of what was picked.
//!
//! Input: a view and, for each of its dims, the position that each place of the output has there. Output: the picked elements,
//! or for each element the sum of what its picks have, in f32, in the order of the picks and rounded once.

use super::Tiles;
use super::index::with_bits;
use super::lane::Lane;
use super::reduce::{rows, rows_with};
use super::view::StridedView;

/// For each dim of a tensor, the position there of each place of another with as many dims.
pub(crate) type Positions = Vec<Vec<usize>>;

/// Where the row `at` of the places begins in a row-major tensor of `dims`, without the last dim.
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

/// `out[i, j, ..] = x[positions[0][i], positions[1][j], ..]`.
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

/// `out[p] = sum of grad[i, j, ..]` over all places whose positions are `p`; zero where there are none.
pub(crate) fn remap_grad(tiles: &dyn Tiles, grad: &StridedView, positions: &[Vec<usize>], out: &StridedView) {
    let only = [0];
    let inner = positions.last().map_or(&only[..], Vec::as_slice);
    // Along the first dims that are whole nothing is summed, so what lies below each of their places is summed by itself.
    let is_whole =
        |&(list, extent): &(&Vec<usize>, &usize)| list.len() == *extent && list.iter().copied().eq(0..*extent);
    let whole = positions.iter().zip(out.dims()).take(positions.len().saturating_sub(1)).take_while(is_whole).count();
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
