//! Kernels that address elements through an index tensor.
//!
//! Invariants: every index is checked before any write. An error names position, value and legal
//! range. Elements are copied bit for bit. Repeated indices apply in index order.

use crate::Tiles;
use crate::lane::{Arithmetic, BLOCK, Lane};
use crate::math;
use crate::raw::Pod;
use crate::reduction::kernels::{rows, rows_with};
use crate::view::StridedView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negative {
    /// Negative indices count from the end.
    FromTheEnd,
    /// Negative indices are out of range.
    Refused,
}

/// `$bits` is the unsigned integer of the element width of `$view`.
macro_rules! with_bits {
    ($view:expr, $bits:ident => $body:expr) => {
        match $view.dtype().size() {
            1 => {
                type $bits = u8;
                $body
            }
            2 => {
                type $bits = u16;
                $body
            }
            4 => {
                type $bits = u32;
                $body
            }
            _ => {
                type $bits = u64;
                $body
            }
        }
    };
}
pub(crate) use with_bits;

/// Returns the positions in a dim of `extent`.
pub(crate) fn positions(
    index: &StridedView,
    extent: usize,
    negative: Negative,
) -> Result<Vec<usize>, String> {
    let mut raw = vec![0i64; index.len()];
    i64::load(&index.collapsed(), 0, &mut raw);
    let low = if negative == Negative::FromTheEnd { -(extent as i64) } else { 0 };
    raw.iter()
        .enumerate()
        .map(|(at, &value)| {
            if value < low || value >= extent as i64 {
                return Err(format!("index {value} at position {at} is outside {low}..{extent}"));
            }
            Ok(if value < 0 { value + extent as i64 } else { value } as usize)
        })
        .collect()
}

/// Returns the row-major positions of index tuples within `extents`.
pub(crate) fn places(indices: &StridedView, extents: &[usize]) -> Result<Vec<usize>, String> {
    let count = indices.dims()[..indices.rank() - 1].iter().product();
    let mut raw = vec![0i64; indices.len()];
    i64::load(&indices.collapsed(), 0, &mut raw);
    let place = |at: usize| {
        let own = &raw[at * extents.len()..(at + 1) * extents.len()];
        own.iter().zip(extents).try_fold(0usize, |place, (&index, &extent)| match usize::try_from(index) {
            Ok(index) if index < extent => Ok(place * extent + index),
            _ => Err(format!("index {own:?} at position {at} is outside {extents:?}")),
        })
    };
    (0..count).map(place).collect()
}

/// Computes `out[.., i, ..] = data[.., index[i], ..]` along `dim`; the dims of `index` replace
/// `dim` in `out`.
pub(crate) fn select(
    tiles: &dyn Tiles,
    data: &StridedView,
    dim: usize,
    index: &StridedView,
    negative: Negative,
    out: &StridedView,
) -> Result<(), String> {
    let places = positions(index, data.dims()[dim], negative)?;
    let outer: usize = data.dims()[..dim].iter().product();
    let inner: usize = data.dims()[dim + 1..].iter().product();
    let extent = data.dims()[dim];
    let (data, out) = (data.collapsed(), out.collapsed());
    with_bits!(data, T => rows(tiles, outer * places.len(), inner, &|row| {
        let (block, i) = (row / places.len(), row % places.len());
        move_run::<T>(&data, (block * extent + places[i]) * inner, &out, row * inner, inner);
    }));
    Ok(())
}

fn move_run<T: Pod>(source: &StridedView, from: usize, target: &StridedView, to: usize, len: usize) {
    let mut buffer = [T::default(); BLOCK];
    for start in (0..len).step_by(BLOCK) {
        let part = &mut buffer[..BLOCK.min(len - start)];
        source.read(from + start, part);
        target.write(to + start, part);
    }
}

/// Returns the row-major position in `dims` of element `at` of `shape`, moved to `place` along
/// `dim`.
fn redirected(shape: &[usize], mut at: usize, dims: &[usize], dim: usize, place: usize) -> usize {
    let (mut position, mut step) = (0, 1);
    for i in (0..shape.len()).rev() {
        let coordinate = if i == dim { place } else { at % shape[i] };
        at /= shape[i];
        position += coordinate * step;
        step *= dims[i];
    }
    position
}

/// Computes `out[..] = data[.., index[..], ..]` along `dim`, with one index per element of `out`.
pub(crate) fn gather(
    tiles: &dyn Tiles,
    data: &StridedView,
    dim: usize,
    index: &StridedView,
    out: &StridedView,
) -> Result<(), String> {
    let places = positions(index, data.dims().get(dim).copied().unwrap_or(1), Negative::FromTheEnd)?;
    let (flat, target) = (data.collapsed(), out.collapsed());
    let (shape, dims) = (out.dims(), data.dims());
    let inner = shape.last().copied().unwrap_or(1);
    // Elements are contiguous in the data while indices increase along the last dim, or stay equal
    // for another dim.
    let step = usize::from(dim + 1 >= shape.len());
    with_bits!(flat, T => rows(tiles, places.len().checked_div(inner).unwrap_or(0), inner, &|row| {
        let mut at = row * inner;
        for run in places[at..at + inner].chunk_by(|a, b| a + step == *b) {
            move_run::<T>(&flat, redirected(shape, at, dims, dim, run[0]), &target, at, run.len());
            at += run.len();
        }
    }));
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The last value of a position remains.
    Replace,
    /// Every value is added, in order.
    Add,
}

pub(crate) fn take_rows(tiles: &dyn Tiles, data: &StridedView, places: &[usize], out: &StridedView) {
    let inner = out.len().checked_div(places.len()).unwrap_or(0);
    let (data, out) = (data.collapsed(), out.collapsed());
    with_bits!(data, T => rows(tiles, places.len(), inner, &|row| {
        move_run::<T>(&data, places[row] * inner, &out, row * inner, inner);
    }));
}

/// Sets or adds `data[places[i]] = values[i]`, in order.
pub(crate) fn put_rows<L: Arithmetic>(
    data: &StridedView,
    places: &[usize],
    values: &StridedView,
    update: Update,
) {
    let inner = values.len().checked_div(places.len()).unwrap_or(0);
    let (data, values) = (data.collapsed(), values.collapsed());
    if update == Update::Replace {
        return with_bits!(data, T => for (i, &place) in places.iter().enumerate() {
            move_run::<T>(&values, i * inner, &data, place * inner, inner);
        });
    }
    let (mut sums, mut row) = (vec![L::default(); inner], vec![L::default(); inner]);
    for (i, &place) in places.iter().enumerate() {
        L::load(&data, place * inner, &mut sums);
        L::load(&values, i * inner, &mut row);
        sums.iter_mut().zip(&row).for_each(|(sum, value)| *sum = sum.plus(*value));
        L::store(&data, place * inner, &sums);
    }
}

/// Computes `data[.., index[i], ..] = source[.., i, ..]` along `dim`, in index order.
pub(crate) fn copy_at(
    tiles: &dyn Tiles,
    data: &StridedView,
    dim: usize,
    index: &StridedView,
    negative: Negative,
    source: &StridedView,
) -> Result<(), String> {
    let extent = data.dims().get(dim).copied().unwrap_or(1);
    let places = positions(index, extent, negative)?;
    let outer: usize = data.dims().iter().take(dim).product();
    let inner: usize = data.dims().iter().skip(dim + 1).product();
    let (target, source) = (data.collapsed(), source.collapsed());
    // One tile owns an outer block, so repeated indices apply in order.
    with_bits!(target, T => rows(tiles, outer, places.len() * inner, &|block| {
        for (i, &place) in places.iter().enumerate() {
            let from = (block * places.len() + i) * inner;
            move_run::<T>(&source, from, &target, (block * extent + place) * inner, inner);
        }
    }));
    Ok(())
}

/// Updates are in place if fewer than one in `FEW` elements change.
const FEW: usize = 16;

/// Computes `out[.., index[..], ..] += source[..]` along `dim` in row-major order.
pub(crate) fn scatter_add<L: Arithmetic>(
    out: &StridedView,
    dim: usize,
    index: &StridedView,
    source: &StridedView,
) -> Result<(), String> {
    let places = positions(index, out.dims().get(dim).copied().unwrap_or(1), Negative::Refused)?;
    // The index covers a leading corner of the source.
    let corner =
        index.dims().iter().enumerate().fold(source.clone(), |view, (i, &len)| view.slice(i, 0, len, 1));
    let mut values = vec![L::default(); places.len()];
    L::load(&corner.collapsed(), 0, &mut values);
    let flat = out.collapsed();
    let slot = |(at, place): (usize, &usize)| redirected(index.dims(), at, out.dims(), dim, *place);
    let slots: Vec<usize> = places.iter().enumerate().map(slot).collect();
    // Additions to one element are rounded once.
    if slots.len() < out.len() / FEW {
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by_key(|at| slots[*at]);
        for same in order.chunk_by(|a, b| slots[*a] == slots[*b]) {
            let mut sum = [L::default()];
            L::load(&flat, slots[same[0]], &mut sum);
            same.iter().for_each(|at| sum[0] = sum[0].plus(values[*at]));
            L::store(&flat, slots[same[0]], &sum);
        }
        return Ok(());
    }
    let mut sums = vec![L::default(); out.len()];
    L::load(&flat, 0, &mut sums);
    for (slot, value) in slots.into_iter().zip(values) {
        sums[slot] = sums[slot].plus(value);
    }
    L::store(&flat, 0, &sums);
    Ok(())
}

/// Computes `out[.., index[..], ..] = combine(it, value)` along `dim` in row-major order. Values
/// come from the leading corner of `source` that the index covers, or are equal.
pub(crate) fn scatter<L: Lane>(
    out: &StridedView,
    dim: usize,
    index: &StridedView,
    source: Result<&StridedView, L>,
    combine: impl Fn(L, L) -> L,
) -> Result<(), String> {
    let places = positions(index, out.dims().get(dim).copied().unwrap_or(1), Negative::Refused)?;
    let mut values = vec![source.err().unwrap_or_default(); places.len()];
    if let Ok(source) = source {
        let corner =
            index.dims().iter().enumerate().fold(source.clone(), |view, (i, &len)| view.slice(i, 0, len, 1));
        L::load(&corner.collapsed(), 0, &mut values);
    }
    let flat = out.collapsed();
    for (at, (place, value)) in places.into_iter().zip(values).enumerate() {
        let slot = redirected(index.dims(), at, out.dims(), dim, place);
        let mut held = [L::default()];
        L::load(&flat, slot, &mut held);
        L::store(&flat, slot, &[combine(held[0], value)]);
    }
    Ok(())
}

/// Each `data[i]` with nonzero `mask[i]` becomes the next element of `source`.
pub(crate) fn fill_from(data: &StridedView, mask: &StridedView, source: &StridedView) -> Result<(), String> {
    let mut lets_in = vec![0i64; data.len()];
    i64::load(&mask.broadcast_to(data.dims()).collapsed(), 0, &mut lets_in);
    let places: Vec<usize> = (0..lets_in.len()).filter(|&place| lets_in[place] != 0).collect();
    if places.len() > source.len() {
        return Err(format!("source: expected at least {} elements, found {}", places.len(), source.len()));
    }
    let (data, source) = (data.collapsed(), source.collapsed());
    with_bits!(data, T => for (from, &to) in places.iter().enumerate() {
        move_run::<T>(&source, from, &data, to, 1);
    });
    Ok(())
}

/// Computes `out[.., index[i], ..] += scale(source[.., i, ..])` along `dim`, in index order.
pub(crate) fn add_at<L: Arithmetic>(
    tiles: &dyn Tiles,
    out: &StridedView,
    dim: usize,
    index: &StridedView,
    source: &StridedView,
    scale: impl Fn(L) -> L + Sync,
) -> Result<(), String> {
    let extent = out.dims()[dim];
    let places = positions(index, extent, Negative::Refused)?;
    let outer: usize = out.dims()[..dim].iter().product();
    let inner: usize = out.dims()[dim + 1..].iter().product();
    let (target, source) = (out.collapsed(), source.collapsed());
    rows(tiles, outer, extent * inner, &|block| {
        let mut sums = vec![L::default(); extent * inner];
        L::load(&target, block * extent * inner, &mut sums);
        let mut line = vec![L::default(); inner];
        for (i, &place) in places.iter().enumerate() {
            L::load(&source, (block * places.len() + i) * inner, &mut line);
            for (sum, &value) in sums[place * inner..(place + 1) * inner].iter_mut().zip(&line) {
                *sum = sum.plus(scale(value));
            }
        }
        L::store(&target, block * extent * inner, &sums);
    });
    Ok(())
}

/// Treatment of repeated table rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frequency {
    /// The sum stays unchanged.
    Ignored,
    /// The sum is divided by the number of uses.
    Divides,
}

/// Computes `out[index[i], ..] = sum of grad[i, ..]` over all `i` in order. Rows without a gradient
/// and the row `padding` are zeros. Sums are f32 and rounded once.
pub(crate) fn embedding_grad(
    tiles: &dyn Tiles,
    grad: &StridedView,
    index: &StridedView,
    padding: Option<usize>,
    frequency: Frequency,
    out: &StridedView,
) -> Result<(), String> {
    let (extent, inner) = (out.dims()[0], out.dims()[1]);
    let places = positions(index, extent, Negative::Refused)?;
    // Gradient numbers sorted by row, and the first position of each row.
    let mut starts = vec![0usize; extent + 1];
    places.iter().for_each(|&place| starts[place + 1] += 1);
    for row in 0..extent {
        starts[row + 1] += starts[row];
    }
    let (mut order, mut next) = (vec![0usize; places.len()], starts.clone());
    for (i, &place) in places.iter().enumerate() {
        order[next[place]] = i;
        next[place] += 1;
    }
    let (grad, out) = (grad.collapsed(), out.collapsed());
    let buffers = || [vec![0f32; inner], vec![0f32; inner]];
    rows_with(tiles, extent, inner, buffers, |[sums, line], row| {
        sums.fill(0.0);
        let own = if padding == Some(row) { &[][..] } else { &order[starts[row]..starts[row + 1]] };
        for &i in own {
            f32::load(&grad, i * inner, line);
            math::add(sums, line);
        }
        if frequency == Frequency::Divides && own.len() > 1 {
            math::divide(sums, own.len() as f32);
        }
        f32::store(&out, row * inner, sums);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::dtype::AclType;
    use crate::raw::tests::span_of;
    use crate::view::contiguous_strides;

    fn view<T: Pod>(data: &mut [T], dtype: AclType, dims: &[usize]) -> StridedView {
        StridedView::new(span_of(data), dtype, dims, &contiguous_strides(dims), 0).unwrap()
    }

    #[test]
    fn selects_rows_and_columns() {
        let mut data: Vec<i32> = (0..12).collect();
        let (mut index, mut rows, mut cols) = ([2i64, 0], [0i32; 8], [0i32; 6]);
        let data = view(&mut data, AclType::I32, &[3, 4]);
        let index = view(&mut index, AclType::I64, &[2]);
        select(&Serial, &data, 0, &index, Negative::Refused, &view(&mut rows, AclType::I32, &[2, 4]))
            .unwrap();
        assert_eq!(rows, [8, 9, 10, 11, 0, 1, 2, 3]);
        select(&Serial, &data, 1, &index, Negative::Refused, &view(&mut cols, AclType::I32, &[3, 2]))
            .unwrap();
        assert_eq!(cols, [2, 0, 6, 4, 10, 8]);
    }

    #[test]
    fn indices_out_of_range_are_named_and_nothing_is_written() {
        let (mut data, mut index, mut out) = ([1f32, 2.0], [0i32, 2], [7f32; 2]);
        let data = view(&mut data, AclType::F32, &[2]);
        let index = view(&mut index, AclType::I32, &[2]);
        let out_view = view(&mut out, AclType::F32, &[2]);
        let error = select(&Serial, &data, 0, &index, Negative::Refused, &out_view).unwrap_err();
        assert_eq!(error, "index 2 at position 1 is outside 0..2");
        assert_eq!(out, [7.0; 2]);
        let mut below = [-1i32, -3];
        let below = view(&mut below, AclType::I32, &[2]);
        assert_eq!(
            positions(&below, 2, Negative::FromTheEnd).unwrap_err(),
            "index -3 at position 1 is outside -2..2"
        );
        assert!(positions(&below, 9, Negative::Refused).is_err());
    }

    #[test]
    fn gathers_along_each_dim_as_documented() {
        let mut data: Vec<f32> = (1..=9).map(|v| v as f32).collect();
        let (mut index, mut out) = ([0i64, 2, 1, 0], [0f32; 4]);
        let data = view(&mut data, AclType::F32, &[3, 3]);
        let index = view(&mut index, AclType::I64, &[2, 2]);
        gather(&Serial, &data, 0, &index, &view(&mut out, AclType::F32, &[2, 2])).unwrap();
        assert_eq!(out, [1.0, 8.0, 4.0, 2.0]);
        gather(&Serial, &data, 1, &index, &view(&mut out, AclType::F32, &[2, 2])).unwrap();
        assert_eq!(out, [1.0, 3.0, 5.0, 4.0]);
    }

    #[test]
    fn copies_to_indexed_places_in_order() {
        let (mut data, mut index, mut source) = ([0i16; 8], [3i64, 1, 3], [1i16, 2, 3, 4, 5, 6]);
        let target = view(&mut data, AclType::I16, &[2, 4]);
        let index = view(&mut index, AclType::I64, &[3]);
        copy_at(&Serial, &target, 1, &index, Negative::Refused, &view(&mut source, AclType::I16, &[2, 3]))
            .unwrap();
        assert_eq!(data, [0, 2, 0, 3, 0, 5, 0, 6], "of repeated indices the last wins");
    }

    #[test]
    fn a_few_elements_of_many_are_added_to_in_the_order_of_the_index_and_rounded_once() {
        let places = [90i64, 7, 90, 0, 90];
        let added = [1.0_f32, 2.0, f32::EPSILON / 2.0, 3.0, f32::EPSILON / 2.0].map(half::bf16::from_f32);
        for len in [95, 5 * FEW + 1, 5 * FEW] {
            let places = places.map(|place| place.min(len as i64 - 1));
            let (mut out, mut index, mut source) = (vec![half::bf16::ONE; len], places, added);
            let target = view(&mut out, AclType::BF16, &[len]);
            let index = view(&mut index, AclType::I64, &[5]);
            scatter_add::<f32>(&target, 0, &index, &view(&mut source, AclType::BF16, &[5])).unwrap();
            let last = places[0] as usize;
            let expected = |at: usize| match at {
                0 => 4.0,
                7 => 3.0,
                at if at == last => 2.0,
                _ => 1.0,
            };
            assert!(
                out.iter().enumerate().all(|(at, found)| found.to_f32() == expected(at)),
                "{len}: {out:?}"
            );
        }
    }

    #[test]
    fn adds_at_indexed_places() {
        let (mut out, mut index, mut source) = ([10f32; 4], [1i32, 1, 0, 1], [1f32, 2.0, 3.0, 4.0]);
        let target = view(&mut out, AclType::F32, &[2, 2]);
        let index = view(&mut index, AclType::I32, &[2, 2]);
        scatter_add::<f32>(&target, 0, &index, &view(&mut source, AclType::F32, &[2, 2])).unwrap();
        assert_eq!(out, [13.0, 10.0, 11.0, 16.0]);

        let (mut out, mut index) = ([0i32; 6], [2i64, 0, 2]);
        let target = view(&mut out, AclType::I32, &[3, 2]);
        let mut source = [1i32, 2, 3, 4, 5, 6];
        let source = view(&mut source, AclType::I32, &[3, 2]);
        let index = view(&mut index, AclType::I64, &[3]);
        add_at::<i64>(&Serial, &target, 0, &index, &source, |v| v * 10).unwrap();
        assert_eq!(out, [30, 40, 0, 0, 60, 80]);
    }
}
