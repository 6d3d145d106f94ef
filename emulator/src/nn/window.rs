//! Windows over the last two dims: the greatest and the mean of each, their gradients, and windows as columns.
//!
//! Input: a view whose last two dims are a plane, and the rows and columns of the plane that each row and column of windows
//! covers. Output: one number a window, or for each element of a plane the sum over the windows that cover it.
//! Invariants: computed in f32 and rounded once; a plane belongs to one tile; of equal maxima the first wins, NaN is greatest.

use std::ops::Range;

use super::Tiles;
use super::lane::Lane;
use super::reduce::rows_with;
use super::view::View;

/// The windows of a plane: for each row of windows the rows they cover, and likewise the columns.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pub(crate) rows: Vec<Range<usize>>,
    pub(crate) columns: Vec<Range<usize>>,
    /// The extents of a plane.
    pub(crate) plane: [usize; 2],
}

impl Windows {
    /// How many there are in a plane.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    fn area(&self) -> usize {
        self.plane[0] * self.plane[1]
    }

    /// The first element of the plane that the window `at` covers.
    pub(crate) fn first(&self, at: usize) -> usize {
        self.rows[at / self.columns.len()].start * self.plane[1] + self.columns[at % self.columns.len()].start
    }

    /// The elements of the plane that the window `at` covers, row by row.
    fn elements(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let (rows, columns) = (&self.rows[at / self.columns.len()], &self.columns[at % self.columns.len()]);
        rows.clone().flat_map(move |row| columns.clone().map(move |column| row * self.plane[1] + column))
    }
}

/// The greatest element of each window into `out`, and its place in the plane into `places`, `out.len()` numbers.
pub(crate) fn greatest(tiles: &dyn Tiles, x: &View, of: &Windows, out: &View, places: impl Fn(usize, &[i64]) + Sync) {
    let (count, area) = (x.len() / of.area().max(1), of.area());
    let (x, out) = (x.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; area], vec![0f32; of.len()], vec![0i64; of.len()]);
    rows_with(tiles, count, area + of.len(), buffers, |(plane, values, found), at| {
        f32::load(&x, at * area, plane);
        for (window, (value, place)) in values.iter_mut().zip(found.iter_mut()).enumerate() {
            let mut elements = of.elements(window);
            let mut best = elements.next().unwrap_or_default();
            for other in elements {
                if plane[other] > plane[best] || plane[other].is_nan() && !plane[best].is_nan() {
                    best = other;
                }
            }
            (*value, *place) = (plane[best], best as i64);
        }
        f32::store(&out, at * of.len(), values);
        places(at * of.len(), found);
    });
}

/// The gradient of [`greatest`]: `places(start, room)` reads the places that it wrote.
///
/// # Errors
/// Names the first place that is not in the plane.
pub(crate) fn greatest_grad(
    tiles: &dyn Tiles,
    grad: &View,
    windows: usize,
    places: &[i64],
    out: &View,
) -> Result<(), String> {
    let area: usize = out.dims().iter().rev().take(2).product();
    if let Some((at, place)) = places.iter().enumerate().find(|(_, place)| !(0..area as i64).contains(*place)) {
        return Err(format!("indices: {place} of window {at} is outside the plane, 0..{area}"));
    }
    let count = out.len() / area.max(1);
    let (grad, out) = (grad.collapsed(), out.collapsed());
    rows_with(
        tiles,
        count,
        area + windows,
        || (vec![0f32; area], vec![0f32; windows]),
        |(plane, grads), at| {
            plane.fill(0.0);
            f32::load(&grad, at * windows, grads);
            for (grad, &place) in grads.iter().zip(&places[at * windows..]) {
                plane[place as usize] += grad;
            }
            f32::store(&out, at * area, plane);
        },
    );
    Ok(())
}

/// The sum of each window over its divisor.
pub(crate) fn mean(tiles: &dyn Tiles, x: &View, of: &Windows, divisors: &[f32], out: &View) {
    let (count, area) = (x.len() / of.area().max(1), of.area());
    let (x, out) = (x.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; area], vec![0f32; of.len()]);
    rows_with(tiles, count, area + of.len(), buffers, |(plane, values), at| {
        f32::load(&x, at * area, plane);
        for (window, (value, divisor)) in values.iter_mut().zip(divisors).enumerate() {
            *value = of.elements(window).map(|element| plane[element]).sum::<f32>() / divisor;
        }
        f32::store(&out, at * of.len(), values);
    });
}

/// The gradient of [`mean`].
pub(crate) fn mean_grad(tiles: &dyn Tiles, grad: &View, of: &Windows, divisors: &[f32], out: &View) {
    let (count, area) = (out.len() / of.area().max(1), of.area());
    let (grad, out) = (grad.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; area], vec![0f32; of.len()]);
    rows_with(tiles, count, area + of.len(), buffers, |(plane, grads), at| {
        plane.fill(0.0);
        f32::load(&grad, at * of.len(), grads);
        for (window, (grad, divisor)) in grads.iter().zip(divisors).enumerate() {
            let share = grad / divisor;
            of.elements(window).for_each(|element| plane[element] += share);
        }
        f32::store(&out, at * area, plane);
    });
}
