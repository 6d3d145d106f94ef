//! Reductions along the last dims: sums, maxima with positions, softmax and its gradient, running
//! sums.
//!
//! One tile reduces a row, in an order that depends only on its length. f16 and bf16 accumulate in
//! f32; integers wrap. The first of equal maxima wins, and NaN is the greatest value.

use std::sync::{Mutex, PoisonError};

use crate::Tiles;
use crate::dtype::AclType;
use crate::lane::{Arithmetic, BLOCK, Lane};
use crate::math;
use crate::view::StridedView;

/// Minimum elements per tile.
const GRAIN: usize = 16 * 1024;
/// Parallel partial sums, so that additions vectorise.
const WIDTH: usize = 16;

pub(crate) fn with_trailing(view: &StridedView, dims: &[usize]) -> StridedView {
    let mut order: Vec<usize> = (0..view.rank()).filter(|i| !dims.contains(i)).collect();
    order.extend_from_slice(dims);
    view.permute(&order)
}

/// Runs several rows per tile.
pub(crate) fn rows(tiles: &dyn Tiles, count: usize, row_len: usize, body: &(dyn Fn(usize) + Sync)) {
    rows_with(tiles, count, row_len, || (), |(), row| body(row));
}

/// Works like [`rows`]; each tile creates its buffers once.
pub(crate) fn rows_with<B>(
    tiles: &dyn Tiles,
    count: usize,
    row_len: usize,
    buffers: impl Fn() -> B + Sync,
    body: impl Fn(&mut B, usize) + Sync,
) {
    let per_tile = (GRAIN / row_len.max(1)).max(1);
    tiles.run(count.div_ceil(per_tile), &|tile| {
        let mut buffers = buffers();
        for row in tile * per_tile..count.min((tile + 1) * per_tile) {
            body(&mut buffers, row);
        }
    });
}

/// Maximum of partial sums in [`sum_over_rows`].
const MOST_PARTS: usize = 64;

/// Sums vectors of `row_len` over all rows; `add` adds one row to the sums. Parts are summed row by
/// row, then added in order; their number depends only on the shape.
pub(crate) fn sum_over_rows<B>(
    tiles: &dyn Tiles,
    count: usize,
    row_len: usize,
    buffers: impl Fn() -> B + Sync,
    add: impl Fn(&mut B, usize, &mut [f32]) + Sync,
) -> Vec<f32> {
    let per_part = (GRAIN / row_len.max(1)).max(count.div_ceil(MOST_PARTS)).max(1);
    let parts: Vec<Mutex<Vec<f32>>> = (0..count.div_ceil(per_part)).map(|_| Mutex::default()).collect();
    tiles.run(parts.len(), &|part| {
        let mut buffers = buffers();
        let mut sums = vec![0f32; row_len];
        for row in part * per_part..count.min((part + 1) * per_part) {
            add(&mut buffers, row, &mut sums);
        }
        *parts[part].lock().unwrap_or_else(PoisonError::into_inner) = sums;
    });
    let mut total = vec![0f32; row_len];
    for part in parts {
        math::add(&mut total, &part.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    total
}

/// Uses `WIDTH` interleaved partial sums.
fn total<L: Lane>(row: &[L], add: impl Fn(L, L) -> L) -> L {
    let mut partial = [L::default(); WIDTH];
    let chunks = row.chunks_exact(WIDTH);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (sum, &value) in partial.iter_mut().zip(chunk) {
            *sum = add(*sum, value);
        }
    }
    for (sum, &value) in partial.iter_mut().zip(rest) {
        *sum = add(*sum, value);
    }
    partial.into_iter().fold(L::default(), add)
}

/// Computes `out[r] = finish(sum of row r)`; `x` has `out.len()` rows of `row_len` trailing
/// elements.
pub(crate) fn sum<L: Arithmetic>(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    out: &StridedView,
    finish: impl Fn(L) -> L + Sync,
) {
    let count = out.len();
    if let Some(columns) = beside_each_other(x, row_len) {
        sum_beside(tiles, &columns, row_len, out, finish);
        return;
    }
    let (x, out) = (x.collapsed(), out.collapsed());
    rows(tiles, count, row_len, &|row| {
        let mut buffer = vec![L::default(); row_len];
        L::load(&x, row * row_len, &mut buffer);
        L::store(&out, row, &[finish(total(&buffer, L::plus))]);
    });
}

/// Moves the trailing dims, of `row_len` elements, to the front if the other dims have the smaller
/// stride.
fn beside_each_other(x: &StridedView, row_len: usize) -> Option<StridedView> {
    if row_len == 0 {
        return None;
    }
    let lead = (0..=x.rank()).rev().find(|lead| x.dims()[*lead..].iter().product::<usize>() == row_len)?;
    let step = |mut dims: std::ops::Range<usize>| {
        let last = dims.rfind(|dim| x.dims()[*dim] > 1)?;
        Some(x.strides()[last].unsigned_abs())
    };
    let order: Vec<usize> = (lead..x.rank()).chain(0..lead).collect();
    (step(0..lead)? < step(lead..x.rank())?).then(|| x.permute(&order))
}

const LEAST_BESIDE: usize = 64;

/// Works like [`sum`], with the same bits; `columns` has one element of each row per line.
fn sum_beside<L: Arithmetic>(
    tiles: &dyn Tiles,
    columns: &StridedView,
    row_len: usize,
    out: &StridedView,
    finish: impl Fn(L) -> L + Sync,
) {
    let count = out.len();
    let (columns, out) = (columns.collapsed(), out.collapsed());
    let width = (GRAIN / row_len).clamp(LEAST_BESIDE, BLOCK);
    tiles.run(count.div_ceil(width), &|tile| {
        let first = tile * width;
        let len = width.min(count - first);
        let mut partial = vec![L::default(); WIDTH.min(row_len) * len];
        let mut block = vec![L::default(); len];
        let add = |sums: &mut [L], values: &[L]| {
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum = sum.plus(value);
            }
        };
        for at in 0..row_len {
            L::load(&columns, at * count + first, &mut block);
            add(&mut partial[at % WIDTH * len..][..len], &block);
        }
        block.fill(L::default());
        partial.chunks_exact(len).for_each(|partial| add(&mut block, partial));
        block.iter_mut().for_each(|sum| *sum = finish(*sum));
        L::store(&out, first, &block);
    });
}

/// Returns true if `candidate` is greater, or the first NaN.
fn beats<L: Lane>(candidate: L, best: L) -> bool {
    candidate > best || (candidate.is_nan() && !best.is_nan())
}

/// Stores the first greatest element, its position, or both.
pub(crate) fn max<L: Lane>(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    values: Option<&StridedView>,
    indices: Option<&StridedView>,
) {
    let count = x.len() / row_len.max(1);
    let x = x.collapsed();
    let (values, indices) = (values.map(StridedView::collapsed), indices.map(StridedView::collapsed));
    rows_with(
        tiles,
        count,
        row_len,
        || [L::default(); BLOCK],
        |buffer, row| {
            let mut best: Option<(L, usize)> = None;
            for start in (0..row_len).step_by(BLOCK) {
                let block = &mut buffer[..BLOCK.min(row_len - start)];
                L::load(&x, row * row_len + start, block);
                let (mut value, mut at) = best.unwrap_or((block[0], start));
                // Branch-free, so that it vectorises: few blocks hold a new maximum.
                if block.iter().fold(false, |found, &other| found | beats(other, value)) {
                    for (i, &other) in block.iter().enumerate() {
                        if beats(other, value) {
                            (value, at) = (other, start + i);
                        }
                    }
                }
                best = Some((value, at));
            }
            let Some((value, at)) = best else { return };
            if let Some(values) = &values {
                L::store(values, row, &[value]);
            }
            if let Some(indices) = &indices {
                i64::store(indices, row, &[at as i64]);
            }
        },
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftmaxForm {
    Plain,
    Log,
}

/// Computes over `row_len` trailing elements, in f32 or, for doubles, in f64.
pub(crate) fn softmax(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    out: &StridedView,
    form: SoftmaxForm,
) {
    if x.dtype() == AclType::F64 {
        return softmax_of_doubles(tiles, x, row_len, out, form);
    }
    let count = x.len() / row_len.max(1);
    let (x, out) = (x.collapsed(), out.collapsed());
    rows(tiles, count, row_len, &|row| {
        let mut buffer = vec![0f32; row_len];
        f32::load(&x, row * row_len, &mut buffer);
        // The maximum ignores NaN; the sum passes it to every output.
        let max = math::greatest(&buffer);
        match form {
            SoftmaxForm::Plain => {
                let sum = math::exp_shifted(&mut buffer, max);
                math::divide(&mut buffer, sum);
            }
            SoftmaxForm::Log => {
                let shift = max + math::exp_shifted(&mut buffer.clone(), max).ln();
                math::subtract(&mut buffer, shift);
            }
        }
        f32::store(&out, row * row_len, &buffer);
    });
}

fn softmax_of_doubles(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    out: &StridedView,
    form: SoftmaxForm,
) {
    let (count, x, out) = (x.len() / row_len.max(1), x.collapsed(), out.collapsed());
    rows(tiles, count, row_len, &|row| {
        let mut buffer = vec![0f64; row_len];
        f64::load(&x, row * row_len, &mut buffer);
        let max = buffer.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = buffer.iter().map(|value| (value - max).exp()).sum();
        for value in &mut buffer {
            *value = match form {
                SoftmaxForm::Plain => (*value - max).exp() / sum,
                SoftmaxForm::Log => *value - max - sum.ln(),
            };
        }
        f64::store(&out, row * row_len, &buffer);
    });
}

/// Computes `result * (grad - sum(grad * result))` per row of `row_len` elements, in f32.
pub(crate) fn softmax_grad(
    tiles: &dyn Tiles,
    grad: &StridedView,
    result: &StridedView,
    row_len: usize,
    out: &StridedView,
) {
    let count = out.len() / row_len.max(1);
    let (grad, result, out) = (grad.collapsed(), result.collapsed(), out.collapsed());
    let buffers = || [vec![0f32; row_len], vec![0f32; row_len]];
    rows_with(tiles, count, row_len, buffers, |[grads, results], row| {
        f32::load(&grad, row * row_len, grads);
        f32::load(&result, row * row_len, results);
        let total = math::dot(grads, results);
        math::softmax_grad(grads, results, total, 1.0);
        f32::store(&out, row * row_len, grads);
    });
}

/// Computes `grad - exp(result) * sum(grad)` per row of `row_len` elements, in f32.
pub(crate) fn log_softmax_grad(
    tiles: &dyn Tiles,
    grad: &StridedView,
    result: &StridedView,
    row_len: usize,
    out: &StridedView,
) {
    let count = out.len() / row_len.max(1);
    let (grad, result, out) = (grad.collapsed(), result.collapsed(), out.collapsed());
    let buffers = || [vec![0f32; row_len], vec![0f32; row_len]];
    rows_with(tiles, count, row_len, buffers, |[grads, results], row| {
        f32::load(&grad, row * row_len, grads);
        f32::load(&result, row * row_len, results);
        let total = math::sum(grads);
        math::exp_scaled(results, 1.0, 0.0, -total);
        math::add(grads, results);
        f32::store(&out, row * row_len, grads);
    });
}

/// Computes `out[r] = f(row r)`; `x` has `out.len()` rows of `row_len` trailing elements.
pub(crate) fn each_row<L: Lane>(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    out: &StridedView,
    f: impl Fn(&[L]) -> L + Sync,
) {
    let (x, target) = (x.collapsed(), out.collapsed());
    let buffers = || vec![L::default(); row_len];
    rows_with(tiles, out.len(), row_len, buffers, |row, at| {
        L::load(&x, at * row_len, row);
        L::store(&target, at, &[f(row)]);
    });
}

pub(crate) fn cumulative_sum<L: Arithmetic>(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    out: &StridedView,
) {
    let count = x.len() / row_len.max(1);
    let (x, out) = (x.collapsed(), out.collapsed());
    rows(tiles, count, row_len, &|row| {
        let mut buffer = vec![L::default(); row_len];
        L::load(&x, row * row_len, &mut buffer);
        let mut sum = L::default();
        for value in &mut buffer {
            sum = sum.plus(*value);
            *value = sum;
        }
        L::store(&out, row * row_len, &buffer);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::dtype::AclType;
    use crate::raw::tests::span_of;
    use crate::view::contiguous_strides;

    fn view<T: crate::raw::Pod>(data: &mut [T], dtype: AclType, dims: &[usize]) -> StridedView {
        StridedView::new(span_of(data), dtype, dims, &contiguous_strides(dims), 0).unwrap()
    }

    #[test]
    fn sums_over_any_dims() {
        let mut x: Vec<f32> = (0..24).map(|v| v as f32).collect();
        let x = view(&mut x, AclType::F32, &[2, 3, 4]);
        let mut out = [0f32; 3];
        let middle = view(&mut out, AclType::F32, &[3]);
        sum::<f32>(&Serial, &with_trailing(&x, &[0, 2]), 8, &middle, |s| s);
        assert_eq!(out, [60.0, 92.0, 124.0]);
        let middle = view(&mut out, AclType::F32, &[3]);
        sum::<f32>(&Serial, &with_trailing(&x, &[0, 2]), 8, &middle, |s| s / 8.0);
        assert_eq!(out, [7.5, 11.5, 15.5]);
    }

    #[test]
    fn rows_that_lie_beside_each_other_are_summed_with_the_bits_of_one_by_itself() {
        for (dims, reduced) in [
            (&[37usize, 70][..], &[0usize][..]),
            (&[3, 5, 130], &[1]),
            (&[16, 2, 3, 7], &[0, 2]),
            (&[4, 1, 9], &[0, 1]),
            (&[200, 1100], &[0]),
        ] {
            let len: usize = dims.iter().product();
            let mut data: Vec<f32> = (0..len).map(|at| ((at * 7919 % 4093) as f32 - 2000.0) / 3.0).collect();
            let x = with_trailing(&view(&mut data, AclType::F32, dims), reduced);
            let row_len: usize = reduced.iter().map(|dim| dims[*dim]).product();
            assert!(beside_each_other(&x, row_len).is_some(), "{dims:?}");
            let mut out = vec![0f32; len / row_len];
            sum::<f32>(
                &crate::tests::Threads(3),
                &x,
                row_len,
                &view(&mut out, AclType::F32, &[len / row_len]),
                |s| s,
            );
            let rows = x.collapsed();
            for (at, found) in out.iter().enumerate() {
                let mut row = vec![0f32; row_len];
                f32::load(&rows, at * row_len, &mut row);
                assert_eq!(
                    found.to_bits(),
                    total(&row, f32::plus).to_bits(),
                    "{dims:?} over {reduced:?} at {at}"
                );
            }
        }
        assert!(
            beside_each_other(&with_trailing(&view(&mut [0f32; 6], AclType::F32, &[2, 3]), &[1]), 3)
                .is_none()
        );
    }

    #[test]
    fn sums_over_rows_do_not_depend_on_threads() {
        for (count, row_len) in [(0, 3), (1, 5), (1000, 7), (300, 2000), (70_000, 1)] {
            let run = |tiles: &dyn Tiles| {
                let add = |(): &mut (), row: usize, sums: &mut [f32]| {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum += ((row * 7 + i * 3) % 11) as f32 / 3.0;
                    }
                };
                sum_over_rows(tiles, count, row_len, || (), add)
            };
            let alone = run(&Serial);
            for (i, &found) in alone.iter().enumerate() {
                let exact: f64 = (0..count).map(|row| f64::from(((row * 7 + i * 3) % 11) as f32 / 3.0)).sum();
                assert!(
                    (f64::from(found) - exact).abs() <= 1e-5 * exact.max(1.0),
                    "{found}, expected {exact}"
                );
            }
            assert_eq!(run(&crate::tests::Threads(3)), alone);
        }
    }

    #[test]
    fn an_empty_sum_is_zero() {
        let mut out = [9i64; 2];
        let empty = view(&mut [0i64; 0], AclType::I64, &[2, 0]);
        sum::<i64>(&Serial, &empty, 0, &view(&mut out, AclType::I64, &[2]), |s| s);
        assert_eq!(out, [0, 0]);
    }

    #[test]
    fn the_first_maximum_wins_and_nan_is_greatest() {
        let mut x = [1f32, 5.0, 5.0, 2.0, f32::NAN, 9.0, f32::NAN, 0.0, -1.0, -1.0, -3.0, -2.0];
        let (mut values, mut indices) = ([0f32; 3], [0i32; 3]);
        let (v, i) = (view(&mut values, AclType::F32, &[3]), view(&mut indices, AclType::I32, &[3]));
        max::<f32>(&Serial, &view(&mut x, AclType::F32, &[3, 4]), 4, Some(&v), Some(&i));
        assert_eq!(indices, [1, 0, 0]);
        assert!(values[1].is_nan() && values[0] == 5.0 && values[2] == -1.0);
    }

    #[test]
    fn softmax_of_a_strided_dim_sums_to_one() {
        let mut x: Vec<f32> = (0..12).map(|v| (v % 5) as f32).collect();
        let mut y = vec![0f32; 12];
        let (vx, vy) = (view(&mut x, AclType::F32, &[3, 4]), view(&mut y, AclType::F32, &[3, 4]));
        softmax(&Serial, &vx.with_last(0), 3, &vy.with_last(0), SoftmaxForm::Plain);
        for column in 0..4 {
            let exact: Vec<f64> = (0..3).map(|row| f64::from(x[row * 4 + column]).exp()).collect();
            let sum: f64 = exact.iter().sum();
            for row in 0..3 {
                assert!((f64::from(y[row * 4 + column]) - exact[row] / sum).abs() < 1e-6);
            }
        }
        let probabilities = y.clone();
        softmax(&Serial, &vx.with_last(0), 3, &vy.with_last(0), SoftmaxForm::Log);
        assert!(y.iter().zip(&probabilities).all(|(log, p)| (log.exp() - p).abs() < 1e-6));
    }

    #[test]
    fn softmax_in_place_with_infinities() {
        let mut x = [f32::NEG_INFINITY, 0.0, 0.0, f32::NEG_INFINITY];
        let v = view(&mut x, AclType::F32, &[4]);
        softmax(&Serial, &v, 4, &v, SoftmaxForm::Plain);
        assert_eq!(x, [0.0, 0.5, 0.5, 0.0]);
    }

    #[test]
    fn running_sums() {
        let mut x = [1i32, 2, 3, 4, 5, 6];
        let v = view(&mut x, AclType::I32, &[2, 3]);
        cumulative_sum::<i64>(&Serial, &v, 3, &v);
        assert_eq!(x, [1, 3, 6, 4, 9, 15]);
    }
}
