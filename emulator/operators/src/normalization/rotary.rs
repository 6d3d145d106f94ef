//! Rotary position embedding: rotates pairs of elements of the last dim.
//!
//! `x` has four dims; `cos` and `sin` broadcast to `x`. Computed in f32, rounded once.

use crate::Tiles;
use crate::lane::{BLOCK, Lane};
use crate::math;
use crate::reduction::kernels::rows;
use crate::view::StridedView;

/// Pairs of elements within a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Element `i` pairs with element `i + D/2`.
    Half,
    /// Element `2i` pairs with element `2i + 1`.
    Interleaved,
}

/// Computes `out = x * cos + rotate(x) * sin`, where `rotate` maps each pair `(a, b)` to `(-b, a)`.
pub(crate) fn rotary(
    tiles: &dyn Tiles,
    x: &StridedView,
    cos: &StridedView,
    sin: &StridedView,
    pairing: Pairing,
    out: &StridedView,
) {
    let row_len = x.dims()[x.rank() - 1];
    let (cos, sin) = (cos.broadcast_to(x.dims()).collapsed(), sin.broadcast_to(x.dims()).collapsed());
    let (x, out, total) = (x.collapsed(), out.collapsed(), x.len());
    // The operator accepts no row longer than a block.
    let len = BLOCK / row_len * row_len;
    rows(tiles, total.div_ceil(len), len, &|block| {
        let start = block * len;
        let (mut values, mut c, mut s) = ([0f32; BLOCK], [0f32; BLOCK], [0f32; BLOCK]);
        let len = len.min(total - start);
        f32::load(&x, start, &mut values[..len]);
        f32::load(&cos, start, &mut c[..len]);
        f32::load(&sin, start, &mut s[..len]);
        match pairing {
            Pairing::Half => {
                let angles = c.chunks_exact(row_len).zip(s.chunks_exact(row_len));
                for (row, (c, s)) in values[..len].chunks_exact_mut(row_len).zip(angles) {
                    let half = row_len / 2;
                    let (first, second) = row.split_at_mut(half);
                    math::turn(first, second, c.split_at(half).into(), s.split_at(half).into());
                }
            }
            Pairing::Interleaved => {
                for (i, pair) in values[..len].chunks_exact_mut(2).enumerate() {
                    let (a, b) = (pair[0], pair[1]);
                    pair[0] = a * c[2 * i] - b * s[2 * i];
                    pair[1] = b * c[2 * i + 1] + a * s[2 * i + 1];
                }
            }
        }
        f32::store(&out, start, &values[..len]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::dtype::AclType;
    use crate::raw::tests::span_of;
    use crate::view::contiguous_strides;

    fn view(data: &mut [f32], dims: &[usize]) -> StridedView {
        StridedView::new(span_of(data), AclType::F32, dims, &contiguous_strides(dims), 0).unwrap()
    }

    fn run(x: &[f32], pairing: Pairing) -> Vec<f32> {
        let (mut x, mut cos, mut sin) = (x.to_vec(), [0.5f32, 0.0, 0.25, 1.0], [2f32, 1.0, 3.0, 0.5]);
        let mut out = vec![0f32; 8];
        rotary(
            &Serial,
            &view(&mut x, &[1, 1, 2, 4]),
            &view(&mut cos, &[1, 1, 1, 4]),
            &view(&mut sin, &[1, 1, 1, 4]),
            pairing,
            &view(&mut out, &[1, 1, 2, 4]),
        );
        out
    }

    #[test]
    fn both_pairings_follow_the_formula() {
        let x = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let (cos, sin) = ([0.5f32, 0.0, 0.25, 1.0], [2f32, 1.0, 3.0, 0.5]);
        let half: Vec<f32> = [[-3.0f32, -4.0, 1.0, 2.0], [-7.0, -8.0, 5.0, 6.0]].concat();
        let interleaved: Vec<f32> = [[-2.0f32, 1.0, -4.0, 3.0], [-6.0, 5.0, -8.0, 7.0]].concat();
        for (pairing, rotated) in [(Pairing::Half, half), (Pairing::Interleaved, interleaved)] {
            let expected: Vec<f32> = (0..8).map(|i| x[i] * cos[i % 4] + rotated[i] * sin[i % 4]).collect();
            assert_eq!(run(&x, pairing), expected);
        }
    }
}
