//! Pooling windows over the last dims: maximum, mean, and their gradients.
//!
//! A plane is a volume of depth 1. Computed in f32, rounded once; a volume belongs to one tile. The
//! first of equal maxima wins, and NaN is greatest.

use crate::Tiles;
use crate::lane::Lane;
use crate::reduction::kernels::rows_with;
use crate::view::StridedView;

/// `count` places from `start`, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowSpan {
    pub(crate) start: usize,
    pub(crate) count: usize,
    pub(crate) step: usize,
}

impl WindowSpan {
    fn places(self) -> impl Iterator<Item = usize> + Clone {
        (0..self.count).map(move |at| self.start + at * self.step)
    }
}

/// Spans along each dim.
#[derive(Clone, Debug)]
pub(crate) struct PoolingWindows {
    pub(crate) spans: [Vec<WindowSpan>; 3],
    pub(crate) extents: [usize; 3],
}

impl PoolingWindows {
    pub(crate) fn len(&self) -> usize {
        self.spans.iter().map(Vec::len).product()
    }

    fn volume(&self) -> usize {
        self.extents.iter().product()
    }

    fn spans(&self, at: usize) -> [WindowSpan; 3] {
        let [depth, rows, columns] = &self.spans;
        [
            depth[at / columns.len() / rows.len()],
            rows[at / columns.len() % rows.len()],
            columns[at % columns.len()],
        ]
    }

    const fn place(&self, [depth, row, column]: [usize; 3]) -> usize {
        (depth * self.extents[1] + row) * self.extents[2] + column
    }

    /// Returns the first element of window `at`.
    pub(crate) fn first(&self, at: usize) -> usize {
        self.place(self.spans(at).map(|span| span.start))
    }

    fn elements(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let [depth, rows, columns] = self.spans(at).map(WindowSpan::places);
        let lines = depth.flat_map(move |depth| rows.clone().map(move |row| [depth, row]));
        lines.flat_map(move |[depth, row]| {
            let start = self.place([depth, row, 0]);
            columns.clone().map(move |column| start + column)
        })
    }
}

/// `places` receives each maximum's position in the volume.
pub(crate) fn greatest(
    tiles: &dyn Tiles,
    x: &StridedView,
    of: &PoolingWindows,
    out: &StridedView,
    places: impl Fn(usize, &[i64]) + Sync,
) {
    let (count, volume) = (x.len() / of.volume().max(1), of.volume());
    let (x, out) = (x.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; volume], vec![0f32; of.len()], vec![0i64; of.len()]);
    rows_with(tiles, count, volume + of.len(), buffers, |(elements, values, found), at| {
        f32::load(&x, at * volume, elements);
        for (window, (value, place)) in values.iter_mut().zip(found.iter_mut()).enumerate() {
            let mut covered = of.elements(window);
            let mut best = covered.next().unwrap_or_default();
            for other in covered {
                if elements[other] > elements[best] || elements[other].is_nan() && !elements[best].is_nan() {
                    best = other;
                }
            }
            (*value, *place) = (elements[best], best as i64);
        }
        f32::store(&out, at * of.len(), values);
        places(at * of.len(), found);
    });
}

/// Uses the stored positions.
pub(crate) fn greatest_grad(
    tiles: &dyn Tiles,
    grad: &StridedView,
    of: &PoolingWindows,
    places: &[i64],
    out: &StridedView,
) -> Result<(), String> {
    let (volume, windows) = (of.volume(), of.len());
    if let Some((at, place)) =
        places.iter().enumerate().find(|(_, place)| !(0..volume as i64).contains(*place))
    {
        return Err(format!("indices: {place} of window {at} is outside the pooled volume, 0..{volume}"));
    }
    let count = out.len() / volume.max(1);
    let (grad, out) = (grad.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; volume], vec![0f32; windows]);
    rows_with(tiles, count, volume + windows, buffers, |(elements, grads), at| {
        elements.fill(0.0);
        f32::load(&grad, at * windows, grads);
        for (grad, &place) in grads.iter().zip(&places[at * windows..]) {
            elements[place as usize] += grad;
        }
        f32::store(&out, at * volume, elements);
    });
    Ok(())
}

/// Each sum is divided by its window's divisor.
pub(crate) fn mean(
    tiles: &dyn Tiles,
    x: &StridedView,
    of: &PoolingWindows,
    divisors: &[f32],
    out: &StridedView,
) {
    let (count, volume) = (x.len() / of.volume().max(1), of.volume());
    let (x, out) = (x.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; volume], vec![0f32; of.len()]);
    rows_with(tiles, count, volume + of.len(), buffers, |(elements, values), at| {
        f32::load(&x, at * volume, elements);
        for (window, (value, divisor)) in values.iter_mut().zip(divisors).enumerate() {
            *value = of.elements(window).map(|element| elements[element]).sum::<f32>() / divisor;
        }
        f32::store(&out, at * of.len(), values);
    });
}

pub(crate) fn mean_grad(
    tiles: &dyn Tiles,
    grad: &StridedView,
    of: &PoolingWindows,
    divisors: &[f32],
    out: &StridedView,
) {
    let (count, volume) = (out.len() / of.volume().max(1), of.volume());
    let (grad, out) = (grad.collapsed(), out.collapsed());
    let buffers = || (vec![0f32; volume], vec![0f32; of.len()]);
    rows_with(tiles, count, volume + of.len(), buffers, |(elements, grads), at| {
        elements.fill(0.0);
        f32::load(&grad, at * of.len(), grads);
        for (window, (grad, divisor)) in grads.iter().zip(divisors).enumerate() {
            let share = grad / divisor;
            of.elements(window).for_each(|element| elements[element] += share);
        }
        f32::store(&out, at * volume, elements);
    });
}
