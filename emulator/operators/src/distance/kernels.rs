//! Distances between points `[.., P, M]` and `[.., R, M]`, and the gradient of the first set.
//!
//! Sums are f32, in order.

use crate::Tiles;
use crate::lane::Lane;
use crate::reduction::kernels::rows_with;
use crate::view::StridedView;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Norm {
    /// Number of coordinates that differ.
    Count,
    /// Sum of the absolute differences.
    Sum,
    /// Square root of the sum of squares.
    Euclid,
    /// Greatest absolute difference of a coordinate.
    Greatest,
    /// Root of this degree of the sum of powers.
    Power(f32),
}

impl Norm {
    /// The degree is nonnegative.
    pub(crate) fn of(degree: f32) -> Self {
        match degree {
            0.0 => Self::Count,
            1.0 => Self::Sum,
            2.0 => Self::Euclid,
            f32::INFINITY => Self::Greatest,
            other => Self::Power(other),
        }
    }

    pub(crate) fn distance(self, x: &[f32], y: &[f32]) -> f32 {
        let apart = x.iter().zip(y).map(|(x, y)| (x - y).abs());
        match self {
            Self::Count => apart.map(|apart| if apart == 0.0 { 0.0 } else { 1.0 }).sum(),
            Self::Sum => apart.sum(),
            Self::Euclid => apart.map(|apart| apart * apart).sum::<f32>().sqrt(),
            // Unlike `f32::max`, keeps NaN.
            Self::Greatest => {
                apart.fold(0.0, |most, apart| if apart > most || apart.is_nan() { apart } else { most })
            }
            Self::Power(degree) => apart.map(|apart| apart.powf(degree)).sum::<f32>().powf(degree.recip()),
        }
    }

    /// Returns the derivative by a coordinate of the first point; `apart` is the difference. 0
    /// where undefined.
    fn slope(self, apart: f32, distance: f32) -> f32 {
        let sign = if apart == 0.0 { 0.0 } else { apart.signum() };
        match self {
            Self::Count => 0.0,
            Self::Sum => sign,
            Self::Greatest => {
                if apart.abs() == distance {
                    sign
                } else {
                    0.0
                }
            }
            _ if distance == 0.0 || apart == 0.0 => 0.0,
            Self::Euclid => apart / distance,
            Self::Power(degree) => sign * (apart.abs() / distance).powf(degree - 1.0),
        }
    }
}

fn points(view: &StridedView, batch: &[usize]) -> StridedView {
    view.broadcast_to(&[batch, &view.dims()[view.rank() - 2..]].concat()).collapsed()
}

/// `out[.., i, j]` is the distance between `x[.., i]` and `y[.., j]`.
pub(crate) fn distances(tiles: &dyn Tiles, norm: Norm, x: &StridedView, y: &StridedView, out: &StridedView) {
    if out.is_empty() {
        return;
    }
    let (batch, len) = (&out.dims()[..out.rank() - 2], x.dims()[x.rank() - 1]);
    let (own, others) = (out.dims()[out.rank() - 2], out.dims()[out.rank() - 1]);
    let (x, y, count) = (points(x, batch), points(y, batch), out.len() / others);
    let target = out.collapsed();
    let buffers = || [vec![0f32; len], vec![0f32; others * len], vec![0f32; others]];
    rows_with(tiles, count, others * len.max(1), buffers, |[point, set, found], row| {
        f32::load(&x, row * len, point);
        f32::load(&y, row / own * others * len, set);
        for (at, found) in found.iter_mut().enumerate() {
            *found = norm.distance(point, &set[at * len..(at + 1) * len]);
        }
        f32::store(&target, row * others, found);
    });
}

pub(crate) fn distances_grad(
    tiles: &dyn Tiles,
    norm: Norm,
    grad: &StridedView,
    distance: &StridedView,
    x: &StridedView,
    y: &StridedView,
    out: &StridedView,
) {
    if out.is_empty() {
        return;
    }
    let rank = grad.rank();
    let (batch, len, [own, others]) =
        (&grad.dims()[..rank - 2], out.dims()[rank - 1], [grad.dims()[rank - 2], grad.dims()[rank - 1]]);
    let (x, y) = (points(x, batch), points(y, batch));
    let (grad, distance, target, count) =
        (grad.collapsed(), distance.collapsed(), out.collapsed(), out.len() / len);
    let buffers = || {
        (
            [vec![0f32; len], vec![0f32; len]],
            vec![0f32; others * len],
            [vec![0f32; others], vec![0f32; others]],
        )
    };
    rows_with(tiles, count, others * len, buffers, |([point, sums], set, [grads, distances]), row| {
        f32::load(&x, row * len, point);
        f32::load(&y, row / own * others * len, set);
        f32::load(&grad, row * others, grads);
        f32::load(&distance, row * others, distances);
        sums.fill(0.0);
        for (at, (grad, distance)) in grads.iter().zip(distances.iter()).enumerate() {
            let other = &set[at * len..(at + 1) * len];
            // A rounded distance equals none of the differences.
            let distance = if norm == Norm::Greatest { norm.distance(point, other) } else { *distance };
            for ((sum, x), y) in sums.iter_mut().zip(point.iter()).zip(other) {
                *sum += grad * norm.slope(x - y, distance);
            }
        }
        f32::store(&target, row * len, sums);
    });
}
