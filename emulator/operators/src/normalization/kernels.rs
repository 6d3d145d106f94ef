//! Root mean square and layer norm of rows, with gradients.
//!
//! f32 statistics, in an order that depends only on the row length; outputs are rounded once.

use crate::Tiles;
use crate::lane::Lane;
use crate::math;
use crate::reduction::kernels::{rows_with, sum_over_rows};
use crate::view::StridedView;

fn line(view: &StridedView) -> Vec<f32> {
    let mut values = vec![0f32; view.len()];
    f32::load(&view.collapsed(), 0, &mut values);
    values
}

/// Computes `y = x * rstd * gamma`, with `rstd = 1 / sqrt(mean(x^2) + epsilon)` over the elements
/// that `gamma` spans.
pub(crate) fn rms_norm(
    tiles: &dyn Tiles,
    x: &StridedView,
    gamma: &StridedView,
    epsilon: f32,
    y: &StridedView,
    rstd: &StridedView,
) {
    add_rms_norm(tiles, x, None, gamma, epsilon, y, rstd);
}

/// A tensor that is added before the norm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddedResidual<'a> {
    pub(crate) addend: &'a StridedView,
    /// Receives the rounded sum, which the norm reads.
    pub(crate) sum: &'a StridedView,
}

/// Computes [`rms_norm`] of `x`, or of `x + residual` rounded to the element type.
pub(crate) fn add_rms_norm(
    tiles: &dyn Tiles,
    x: &StridedView,
    residual: Option<AddedResidual<'_>>,
    gamma: &StridedView,
    epsilon: f32,
    y: &StridedView,
    rstd: &StridedView,
) {
    normed(tiles, x, residual, &line(gamma), epsilon, y, rstd);
}

/// Computes [`rms_norm`] with the factor `1 + gamma`.
pub(crate) fn rms_norm_beside_one(
    tiles: &dyn Tiles,
    x: &StridedView,
    gamma: &StridedView,
    epsilon: f32,
    y: &StridedView,
    rstd: &StridedView,
) {
    let factors: Vec<f32> = line(gamma).into_iter().map(|gamma| 1.0 + gamma).collect();
    normed(tiles, x, None, &factors, epsilon, y, rstd);
}

fn normed(
    tiles: &dyn Tiles,
    x: &StridedView,
    residual: Option<AddedResidual<'_>>,
    gamma: &[f32],
    epsilon: f32,
    y: &StridedView,
    rstd: &StridedView,
) {
    let row_len = gamma.len();
    let count = x.len().checked_div(row_len).unwrap_or(0);
    let (x, y, rstd) = (x.collapsed(), y.collapsed(), rstd.collapsed());
    let residual = residual.map(|AddedResidual { addend, sum }| (addend.collapsed(), sum.collapsed()));
    let buffers = || [vec![0f32; row_len], vec![0f32; if residual.is_some() { row_len } else { 0 }]];
    rows_with(tiles, count, row_len, buffers, |[buffer, addend], row| {
        let start = row * row_len;
        f32::load(&x, start, buffer);
        if let Some((other, sum)) = &residual {
            f32::load(other, start, addend);
            math::add(buffer, addend);
            // The sum as stored.
            f32::store(sum, start, buffer);
            f32::load(sum, start, buffer);
        }
        let inverse = 1.0 / (math::sum_of_squares(buffer) / row_len as f32 + epsilon).sqrt();
        math::normalise(buffer, inverse, gamma);
        f32::store(&y, start, buffer);
        f32::store(&rstd, row, &[inverse]);
    });
}

/// Uses the stored statistic.
///
/// With `n = x * rstd`: `dx = (dy * gamma - n * mean(dy * gamma * n)) * rstd`, and `dgamma` sums
/// `dy * n` over the rows.
pub(crate) fn rms_norm_grad(
    tiles: &dyn Tiles,
    dy: &StridedView,
    x: &StridedView,
    rstd: &StridedView,
    gamma: &StridedView,
    dx: &StridedView,
    dgamma: &StridedView,
) {
    let row_len = gamma.len();
    let (gamma, rstd) = (line(gamma), line(rstd));
    let (dy, x, dx) = (dy.collapsed(), x.collapsed(), dx.collapsed());
    let buffers = || [vec![0f32; row_len], vec![0f32; row_len]];
    let total = sum_over_rows(tiles, rstd.len(), row_len, buffers, |[grads, normal], row, sums| {
        let start = row * row_len;
        f32::load(&dy, start, grads);
        f32::load(&x, start, normal);
        math::scale(normal, rstd[row]);
        math::add_products(sums, grads, normal);
        math::multiply(grads, &gamma);
        let mean = math::dot(grads, normal) / row_len as f32;
        math::add_scaled(grads, normal, -mean);
        math::scale(grads, rstd[row]);
        f32::store(&dx, start, grads);
    });
    f32::store(&dgamma.collapsed(), 0, &total);
}

/// Computes the requested gradients from the stored statistics.
///
/// With `n = (x - mean) * rstd` and `h = dy * weight`: `dx = (h - mean(h) - n * mean(h * n)) *
/// rstd`. `dweight` sums `dy * n` over the rows, and `dbias` sums `dy`.
pub(crate) fn layer_norm_grad(
    tiles: &dyn Tiles,
    dy: &StridedView,
    x: &StridedView,
    row_len: usize,
    [mean, rstd]: [&StridedView; 2],
    weight: Option<&StridedView>,
    [dx, dweight, dbias]: [Option<&StridedView>; 3],
) {
    let weight = weight.map_or_else(|| vec![1.0; row_len], line);
    let (mean, rstd) = (line(mean), line(rstd));
    let (dy, x, dx) = (dy.collapsed(), x.collapsed(), dx.map(StridedView::collapsed));
    let buffers = || [vec![0f32; row_len], vec![0f32; row_len]];
    let totals = sum_over_rows(tiles, rstd.len(), 2 * row_len, buffers, |[grads, normal], row, sums| {
        let start = row * row_len;
        f32::load(&dy, start, grads);
        f32::load(&x, start, normal);
        math::subtract(normal, mean[row]);
        math::scale(normal, rstd[row]);
        let (weights, biases) = sums.split_at_mut(row_len);
        math::add_products(weights, grads, normal);
        math::add(biases, grads);
        if let Some(dx) = &dx {
            math::multiply(grads, &weight);
            let shift = math::sum(grads) / row_len as f32;
            let slope = math::dot(grads, normal) / row_len as f32;
            math::subtract(grads, shift);
            math::add_scaled(grads, normal, -slope);
            math::scale(grads, rstd[row]);
            f32::store(dx, start, grads);
        }
    });
    for (out, total) in [dweight, dbias].into_iter().zip(totals.chunks(row_len.max(1))) {
        if let Some(out) = out {
            f32::store(&out.collapsed(), 0, total);
        }
    }
}

/// Computes `y = (x - mean) * rstd * weight + bias` over `row_len` elements, and the requested
/// statistics.
pub(crate) fn layer_norm(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    [weight, bias]: [Option<&StridedView>; 2],
    epsilon: f32,
    y: &StridedView,
    [mean_out, rstd_out]: [Option<&StridedView>; 2],
) {
    let count = x.len().checked_div(row_len).unwrap_or(0);
    let weight = weight.map_or_else(|| vec![1.0; row_len], line);
    let bias = bias.map_or_else(|| vec![0.0; row_len], line);
    let (x, y) = (x.collapsed(), y.collapsed());
    let (mean_out, rstd_out) = (mean_out.map(StridedView::collapsed), rstd_out.map(StridedView::collapsed));
    rows_with(
        tiles,
        count,
        row_len,
        || vec![0f32; row_len],
        |buffer, row| {
            let start = row * row_len;
            f32::load(&x, start, buffer);
            let mean = math::sum(buffer) / row_len as f32;
            math::subtract(buffer, mean);
            let rstd = 1.0 / (math::sum_of_squares(buffer) / row_len as f32 + epsilon).sqrt();
            math::normalise(buffer, rstd, &weight);
            math::add(buffer, &bias);
            f32::store(&y, start, buffer);
            for (out, value) in [(&mean_out, mean), (&rstd_out, rstd)] {
                if let Some(out) = out {
                    f32::store(out, row, &[value]);
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::Serial;
    use crate::dtype::AclType;
    use crate::raw::tests::span_of;
    use crate::view::contiguous_strides;

    fn view<T: crate::raw::Pod>(data: &mut [T], dtype: AclType, dims: &[usize]) -> StridedView {
        StridedView::new(span_of(data), dtype, dims, &contiguous_strides(dims), 0).unwrap()
    }

    #[test]
    fn rms_norm_follows_the_formula() {
        let (rows, cols) = (3, 37);
        let mut x: Vec<f32> = (0..rows * cols).map(|i| (i % 11) as f32 - 5.0).collect();
        let mut gamma: Vec<f32> = (0..cols).map(|i| 1.0 + i as f32 / 10.0).collect();
        let (mut y, mut rstd) = (vec![0f32; rows * cols], vec![0f32; rows]);
        rms_norm(
            &Serial,
            &view(&mut x, AclType::F32, &[rows, cols]),
            &view(&mut gamma, AclType::F32, &[cols]),
            1e-5,
            &view(&mut y, AclType::F32, &[rows, cols]),
            &view(&mut rstd, AclType::F32, &[rows, 1]),
        );
        for row in 0..rows {
            let line = &x[row * cols..(row + 1) * cols];
            let mean: f64 = line.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / cols as f64;
            let expected = 1.0 / (mean + 1e-5).sqrt();
            assert!((f64::from(rstd[row]) - expected).abs() < 1e-6);
            for col in 0..cols {
                let exact = f64::from(line[col]) * expected * f64::from(gamma[col]);
                assert!((f64::from(y[row * cols + col]) - exact).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn add_rms_norm_normalises_the_rounded_sum() {
        // f16 cannot hold 2049.
        let (mut a, mut b) = ([f16::from_f32(2048.0)], [f16::ONE]);
        let (mut gamma, mut y, mut sum, mut rstd) = ([f16::ONE], [f16::ZERO], [f16::ZERO], [0f32]);
        add_rms_norm(
            &Serial,
            &view(&mut a, AclType::F16, &[1, 1]),
            Some(AddedResidual {
                addend: &view(&mut b, AclType::F16, &[1, 1]),
                sum: &view(&mut sum, AclType::F16, &[1, 1]),
            }),
            &view(&mut gamma, AclType::F16, &[1]),
            0.0,
            &view(&mut y, AclType::F16, &[1, 1]),
            &view(&mut rstd, AclType::F32, &[1, 1]),
        );
        assert_eq!((sum[0].to_f32(), rstd[0], y[0].to_f32()), (2048.0, 1.0 / 2048.0, 1.0));
    }

    #[test]
    fn layer_norm_has_mean_zero_and_applies_scale_and_shift() {
        let mut x = [1f32, 2.0, 3.0, 4.0];
        let (mut w, mut b, mut y) = ([2f32; 4], [1f32; 4], [0f32; 4]);
        let (mut mean, mut rstd) = ([0f32], [0f32]);
        layer_norm(
            &Serial,
            &view(&mut x, AclType::F32, &[1, 4]),
            4,
            [Some(&view(&mut w, AclType::F32, &[4])), Some(&view(&mut b, AclType::F32, &[4]))],
            0.0,
            &view(&mut y, AclType::F32, &[1, 4]),
            [Some(&view(&mut mean, AclType::F32, &[1])), Some(&view(&mut rstd, AclType::F32, &[1]))],
        );
        assert_eq!(mean[0], 2.5);
        let scale = 1.0 / 1.25f32.sqrt();
        assert!((rstd[0] - scale).abs() < 1e-6);
        for (value, offset) in y.iter().zip([-1.5f32, -0.5, 0.5, 1.5]) {
            assert!((value - (2.0 * offset * scale + 1.0)).abs() < 1e-5);
        }
    }
}
