//! Selection of nonzero, masked or distinct elements, in order.
//!
//! The output view has capacity for all elements. Sorted results follow [`compare`], then position.
//! Two NaNs are distinct.

use std::cmp::Ordering;

use crate::indexing::kernels::with_bits;
use crate::lane::Lane;
use crate::reduction::order::compare;
use crate::view::StridedView;

pub(crate) fn nonzero<L: Lane>(x: &StridedView) -> Vec<usize> {
    let mut values = vec![L::default(); x.len()];
    L::load(&x.collapsed(), 0, &mut values);
    (0..values.len()).filter(|&place| values[place] != L::default()).collect()
}

pub(crate) fn compact(x: &StridedView, places: &[usize], out: &StridedView) {
    let (x, out) = (x.collapsed(), out.collapsed());
    with_bits!(x, T => {
        let mut all = vec![T::default(); x.len()];
        x.read(0, &mut all);
        let chosen: Vec<T> = places.iter().map(|&place| all[place]).collect();
        out.write(0, &chosen);
    });
}

/// Groups of equal rows or elements.
#[derive(Debug)]
pub(crate) struct Distinct {
    pub(crate) first: Vec<usize>,
    pub(crate) inverse: Vec<i64>,
    pub(crate) counts: Vec<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    Sorted,
    /// Only neighbouring equal rows form a group.
    Consecutive,
}

/// Groups all elements without `dim`.
///
/// # Shapes
///
/// `x: [outer.., extent, inner..]`; row `i` has index `i` along `dim`.
pub(crate) fn distinct<L: Lane>(x: &StridedView, dim: Option<usize>, grouping: Grouping) -> Distinct {
    let extent = dim.map_or(x.len(), |dim| x.dims()[dim]);
    let others = (0..x.rank()).filter(|&other| Some(other) != dim);
    let rows_first = x.permute(&dim.into_iter().chain(others).collect::<Vec<_>>());
    let mut values = vec![L::default(); x.len()];
    L::load(&rows_first.collapsed(), 0, &mut values);
    let width = x.len().checked_div(extent).unwrap_or(0);
    let row = |i: usize| &values[i * width..(i + 1) * width];
    let mut places: Vec<usize> = (0..extent).collect();
    if grouping == Grouping::Sorted {
        let by_value = |a: usize, b: usize| {
            let differing = row(a).iter().zip(row(b)).map(|(a, b)| compare(*a, *b));
            differing.into_iter().find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
        };
        places.sort_by(|&a, &b| by_value(a, b));
    }
    let mut found = Distinct { first: Vec::new(), inverse: vec![0; extent], counts: Vec::new() };
    for place in places {
        match (found.first.last(), found.counts.last_mut()) {
            (Some(&group), Some(count)) if row(group) == row(place) => *count += 1,
            _ => {
                found.first.push(place);
                found.counts.push(1);
            }
        }
        found.inverse[place] = found.first.len() as i64 - 1;
    }
    found
}

/// Returns the dims of the result.
pub(crate) fn take_first(
    x: &StridedView,
    dim: Option<usize>,
    found: &Distinct,
    out: &StridedView,
) -> Vec<usize> {
    let Some(dim) = dim else {
        compact(x, &found.first, out);
        return vec![found.first.len()];
    };
    let mut dims = x.dims().to_vec();
    let (extent, kept) = (dims[dim], found.first.len());
    dims[dim] = kept;
    let inner: usize = dims[dim + 1..].iter().product();
    let outer: usize = dims[..dim].iter().product();
    let rows = (0..outer).flat_map(|outer| found.first.iter().map(move |row| outer * extent + row));
    let places: Vec<usize> = rows.flat_map(|row| (0..inner).map(move |at| row * inner + at)).collect();
    compact(x, &places, out);
    dims
}
