//! Normalisation over channels or channel groups, and its gradients.
//!
//! Sums are f32; each row belongs to one tile.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::Tiles;
use crate::lane::Lane;
use crate::math;
use crate::reduction::kernels::{rows_with, sum_over_rows};
use crate::view::StridedView;

/// Row `r` has `channels` channels from `r * channels` on, modulo `all`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelRows {
    pub(crate) count: usize,
    /// Per row; `all` counts distinct channels.
    pub(crate) channels: usize,
    pub(crate) all: usize,
    pub(crate) len: usize,
}

impl ChannelRows {
    fn row_len(&self) -> usize {
        self.channels * self.len
    }

    fn first(&self, row: usize) -> usize {
        row * self.channels % self.all
    }
}

/// Returns the mean and variance (divided by the row length).
pub(crate) fn moments(tiles: &dyn Tiles, x: &StridedView, of: ChannelRows) -> Vec<[f32; 2]> {
    let (x, len) = (x.collapsed(), of.row_len());
    of_rows(
        tiles,
        of,
        || vec![0f32; len],
        |row, at| {
            f32::load(&x, at * len, row);
            let mean = math::sum(row) / len as f32;
            math::subtract(row, mean);
            [mean, math::sum_of_squares(row) / len as f32]
        },
    )
}

/// Computes two numbers per row.
fn of_rows<B>(
    tiles: &dyn Tiles,
    of: ChannelRows,
    buffers: impl Fn() -> B + Sync,
    numbers: impl Fn(&mut B, usize) -> [f32; 2] + Sync,
) -> Vec<[f32; 2]> {
    let found: Vec<[AtomicU32; 2]> = (0..of.count).map(|_| Default::default()).collect();
    rows_with(tiles, of.count, of.row_len(), buffers, |buffers, row| {
        for (place, number) in found[row].iter().zip(numbers(buffers, row)) {
            place.store(number.to_bits(), Ordering::Relaxed);
        }
    });
    found.into_iter().map(|pair| pair.map(|bits| f32::from_bits(bits.into_inner()))).collect()
}

/// Computes `y = (x - mean) * rstd * weight + bias`, with one weight and bias per channel.
pub(crate) fn norm(
    tiles: &dyn Tiles,
    x: &StridedView,
    of: ChannelRows,
    statistics: &[[f32; 2]],
    [weight, bias]: [&[f32]; 2],
    y: &StridedView,
) {
    let (x, y, len) = (x.collapsed(), y.collapsed(), of.row_len());
    rows_with(
        tiles,
        of.count,
        len,
        || vec![0f32; len],
        |row, at| {
            f32::load(&x, at * len, row);
            let [mean, rstd] = statistics[at];
            for (channel, part) in row.chunks_mut(of.len.max(1)).enumerate() {
                let channel = of.first(at) + channel;
                for value in part {
                    *value = (*value - mean) * rstd * weight[channel] + bias[channel];
                }
            }
            f32::store(&y, at * len, row);
        },
    );
}

/// Mean and inverse deviation of each row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowStatistics<'a> {
    pub(crate) rows: &'a [[f32; 2]],
    /// Whether the statistics are given. They then have no gradient.
    pub(crate) are_given: bool,
}

/// Computes the requested gradients of [`norm`]. With `n = (x - mean) * rstd` and `h = dy *
/// weight`: `dx = (h - mean(h) - n * mean(h * n)) * rstd`. For given statistics, `dx = h * rstd`.
pub(crate) fn norm_grad(
    tiles: &dyn Tiles,
    dy: &StridedView,
    x: &StridedView,
    of: ChannelRows,
    statistics: RowStatistics<'_>,
    weight: &[f32],
    [dx, dweight, dbias]: [Option<&StridedView>; 3],
) {
    let (dy, x, dx, len) = (dy.collapsed(), x.collapsed(), dx.map(StridedView::collapsed), of.row_len());
    let buffers = || [vec![0f32; len], vec![0f32; len]];
    let totals = sum_over_rows(tiles, of.count, 2 * of.all, buffers, |[grads, normal], row, sums| {
        f32::load(&dy, row * len, grads);
        f32::load(&x, row * len, normal);
        let [mean, rstd] = statistics.rows[row];
        math::subtract(normal, mean);
        math::scale(normal, rstd);
        let (weights, biases) = sums.split_at_mut(of.all);
        let parts = grads.chunks_mut(of.len.max(1)).zip(normal.chunks(of.len.max(1)));
        for (channel, (grads, normal)) in parts.enumerate() {
            let channel = of.first(row) + channel;
            weights[channel] += math::dot(grads, normal);
            biases[channel] += math::sum(grads);
            math::scale(grads, weight[channel]);
        }
        if let Some(dx) = &dx {
            if !statistics.are_given {
                let shift = math::sum(grads) / len as f32;
                let slope = math::dot(grads, normal) / len as f32;
                math::subtract(grads, shift);
                math::add_scaled(grads, normal, -slope);
            }
            math::scale(grads, rstd);
            f32::store(dx, row * len, grads);
        }
    });
    for (out, total) in [dweight, dbias].into_iter().zip(totals.chunks(of.all.max(1))) {
        if let Some(out) = out {
            f32::store(&out.collapsed(), 0, total);
        }
    }
}

/// Computes row sums of `y` and of `y * (x - shift)`, with one shift per row.
pub(crate) fn paired_sums(
    tiles: &dyn Tiles,
    y: &StridedView,
    x: &StridedView,
    of: ChannelRows,
    shifts: &[f32],
) -> Vec<[f32; 2]> {
    let (y, x, len) = (y.collapsed(), x.collapsed(), of.row_len());
    of_rows(
        tiles,
        of,
        || [vec![0f32; len], vec![0f32; len]],
        |[left, right], row| {
            f32::load(&y, row * len, left);
            f32::load(&x, row * len, right);
            math::subtract(right, shifts[row]);
            [math::sum(left), math::dot(left, right)]
        },
    )
}

/// Computes `out = (y - a) * b - (x - c) * d`, with one `[a, b, c, d]` per row.
pub(crate) fn combined(
    tiles: &dyn Tiles,
    y: &StridedView,
    x: &StridedView,
    of: ChannelRows,
    factors: &[[f32; 4]],
    out: &StridedView,
) {
    let (y, x, out, len) = (y.collapsed(), x.collapsed(), out.collapsed(), of.row_len());
    let buffers = || [vec![0f32; len], vec![0f32; len]];
    rows_with(tiles, of.count, len, buffers, |[left, right], row| {
        f32::load(&y, row * len, left);
        f32::load(&x, row * len, right);
        let [a, b, c, d] = factors[row];
        left.iter_mut().zip(right).for_each(|(y, x)| *y = (*y - a) * b - (*x - c) * d);
        f32::store(&out, row * len, left);
    });
}
