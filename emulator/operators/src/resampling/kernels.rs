//! Resampling: a grid element is a weighted sum of a few elements along each of the last dims.
//!
//! A plane is a volume of depth 1. Computed in f32, dim by dim from the last, rounded once; a
//! volume belongs to one tile.

use crate::Tiles;
use crate::lane::Lane;
use crate::reduction::kernels::rows_with;
use crate::view::StridedView;

/// Source elements and weights of each grid position.
pub(crate) type Taps = Vec<Vec<(usize, f32)>>;

#[derive(Clone, Debug)]
pub(crate) struct ResamplingGrid {
    pub(crate) extents: [usize; 3],
    /// `None` leaves the dim unchanged.
    pub(crate) taps: [Option<Taps>; 3],
}

impl ResamplingGrid {
    fn shape(&self) -> [usize; 3] {
        [0, 1, 2].map(|dim| self.taps[dim].as_ref().map_or(self.extents[dim], Vec::len))
    }
}

/// `add` gets grid position, element and weight, `inner` lines at a time.
fn each_tap(taps: &Taps, [outer, extent, inner]: [usize; 3], mut add: impl FnMut(usize, usize, f32)) {
    for block in 0..outer {
        for (at, parts) in taps.iter().enumerate() {
            for &(element, weight) in parts {
                add((block * taps.len() + at) * inner, (block * extent + element) * inner, weight);
            }
        }
    }
}

fn add_line(target: &mut [f32], source: &[f32], weight: f32) {
    target.iter_mut().zip(source).for_each(|(target, source)| *target += weight * source);
}

pub(crate) fn resample(tiles: &dyn Tiles, x: &StridedView, grid: &ResamplingGrid, out: &StridedView) {
    let (volume, room) = (grid.extents.iter().product::<usize>(), grid.shape().iter().product::<usize>());
    let (count, flat, target) = (x.len() / volume.max(1), x.collapsed(), out.collapsed());
    rows_with(tiles, count, volume + room, Vec::new, |values: &mut Vec<f32>, at| {
        values.resize(volume, 0.0);
        f32::load(&flat, at * volume, values);
        let mut shape = grid.extents;
        for dim in (0..3).rev() {
            let Some(taps) = &grid.taps[dim] else { continue };
            let (outer, inner) =
                (shape[..dim].iter().product::<usize>(), shape[dim + 1..].iter().product::<usize>());
            let mut made = vec![0f32; outer * taps.len() * inner];
            each_tap(taps, [outer, shape[dim], inner], |place, element, weight| {
                add_line(&mut made[place..place + inner], &values[element..element + inner], weight);
            });
            *values = made;
            shape[dim] = taps.len();
        }
        f32::store(&target, at * room, values);
    });
}

pub(crate) fn resample_grad(tiles: &dyn Tiles, grad: &StridedView, grid: &ResamplingGrid, out: &StridedView) {
    let (volume, room) = (grid.extents.iter().product::<usize>(), grid.shape().iter().product::<usize>());
    let (count, flat, target) = (out.len() / volume.max(1), grad.collapsed(), out.collapsed());
    rows_with(tiles, count, volume + room, Vec::new, |values: &mut Vec<f32>, at| {
        values.resize(room, 0.0);
        f32::load(&flat, at * room, values);
        let mut shape = grid.shape();
        for dim in 0..3 {
            let Some(taps) = &grid.taps[dim] else { continue };
            let extent = grid.extents[dim];
            let (outer, inner) =
                (shape[..dim].iter().product::<usize>(), shape[dim + 1..].iter().product::<usize>());
            let mut sums = vec![0f32; outer * extent * inner];
            each_tap(taps, [outer, extent, inner], |place, element, weight| {
                add_line(&mut sums[element..element + inner], &values[place..place + inner], weight);
            });
            *values = sums;
            shape[dim] = extent;
        }
        f32::store(&target, at * volume, values);
    });
}
