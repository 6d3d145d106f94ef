//! Convolutions with fractional offsets for each window element.
//!
//! Shapes: `[batch, channels, H, W]`, offsets `[batch, 3 * parts * window, H', W']`. The offsets of
//! a part of the channels shift right and down, and scale. Samples are rounded to the input type;
//! sums are f32, rounded once. Elements outside the input are zero.

use crate::Tiles;
use crate::convolution::kernels::{Geometry, line};
use crate::dtype::AclType;
use crate::lane::Lane;
use crate::math;
use crate::view::StridedView;

const PLACES: usize = 256;

/// Each part of the channels has offsets.
#[derive(Clone, Debug)]
pub(crate) struct Deformed {
    pub(crate) of: Geometry,
    pub(crate) parts: usize,
    /// Type of the samples.
    pub(crate) dtype: AclType,
}

impl Deformed {
    fn places(&self) -> usize {
        self.of.output.iter().product()
    }

    fn window(&self) -> usize {
        self.of.kernel.iter().product()
    }

    fn plane(&self) -> usize {
        self.of.input.iter().product()
    }

    fn read(&self, plane: &[f32], offsets: &[f32], part: usize, element: usize, place: usize) -> f32 {
        let (of, each, window) = (&self.of, self.places(), self.window());
        let (row, column) = (place / of.output[1], place % of.output[1]);
        let offset = |kind: usize| offsets[((kind * self.parts + part) * window + element) * each + place];
        let start = |dim: usize, at: usize, element: usize| {
            (at * of.stride[dim] + element * of.dilation[dim]) as f32 - of.padding[dim] as f32
        };
        let x = start(1, column, element % of.kernel[1]) + offset(0);
        let y = start(0, row, element / of.kernel[1]) + offset(1);
        let (left, top) = (x.floor(), y.floor());
        let value = |row: f32, column: f32| {
            let is_inside =
                row >= 0.0 && column >= 0.0 && row < of.input[0] as f32 && column < of.input[1] as f32;
            if is_inside { plane[row as usize * of.input[1] + column as usize] } else { 0.0 }
        };
        let (right, below) = (x - left, y - top);
        let above = value(top, left) * (1.0 - right) + value(top, left + 1.0) * right;
        let under = value(top + 1.0, left) * (1.0 - right) + value(top + 1.0, left + 1.0) * right;
        ((above * (1.0 - below) + under * below) * offset(2)).rounded(self.dtype)
    }

    fn offsets(&self, view: &StridedView, at: usize) -> Vec<f32> {
        let mut values = vec![0f32; 3 * self.parts * self.window() * self.places()];
        f32::load(view, at * values.len(), &mut values);
        values
    }

    fn part_of(&self, channel: usize) -> usize {
        channel / (self.of.groups * self.of.channels / self.parts)
    }
}

/// Computes `out = x * weight + bias` on the samples.
pub(crate) fn forward(
    tiles: &dyn Tiles,
    by: &Deformed,
    [x, weight, offset]: [&StridedView; 3],
    bias: Option<&StridedView>,
    out: &StridedView,
) {
    let of = &by.of;
    let (x, offset, out, weights) = (x.collapsed(), offset.collapsed(), out.collapsed(), line(weight));
    let biases = bias.map_or_else(|| vec![0.0; of.groups * of.outputs], line);
    let (places, window, plane) = (by.places(), by.window(), by.plane());
    let (parts, column) = (places.div_ceil(PLACES), of.channels * window);
    tiles.run(of.batch * of.groups * parts, &|tile| {
        let (block, part) = (tile / parts, tile % parts);
        let group = block % of.groups;
        let (first, count) = (part * PLACES, PLACES.min(places - part * PLACES));
        let offsets = by.offsets(&offset, block / of.groups);
        let mut planes = vec![0f32; of.channels * plane];
        f32::load(&x, block * planes.len(), &mut planes);
        let mut columns = vec![0f32; count * column];
        for (at, values) in columns.chunks_mut(column).enumerate() {
            for (i, value) in values.iter_mut().enumerate() {
                let (channel, element) = (i / window, i % window);
                let own = &planes[channel * plane..(channel + 1) * plane];
                *value =
                    by.read(own, &offsets, by.part_of(group * of.channels + channel), element, first + at);
            }
        }
        let mut results = vec![0f32; count];
        for output in 0..of.outputs {
            let channel = group * of.outputs + output;
            let own = &weights[channel * column..(channel + 1) * column];
            for (at, result) in results.iter_mut().enumerate() {
                *result = math::dot(own, &columns[at * column..(at + 1) * column]) + biases[channel];
            }
            f32::store(&out, (block * of.outputs + output) * places + first, &results);
        }
    });
}

/// Stores the samples: `[batch, channels, H' * window rows, W' * window columns]`.
pub(crate) fn sampled(tiles: &dyn Tiles, by: &Deformed, [x, offset]: [&StridedView; 2], out: &StridedView) {
    let of = &by.of;
    let (x, offset, out) = (x.collapsed(), offset.collapsed(), out.collapsed());
    let (channels, window, plane) = (of.groups * of.channels, by.window(), by.plane());
    tiles.run(of.batch * channels, &|tile| {
        let offsets = by.offsets(&offset, tile / channels);
        let mut own = vec![0f32; plane];
        f32::load(&x, tile * plane, &mut own);
        let mut values = vec![0f32; by.places() * window];
        for (at, value) in values.iter_mut().enumerate() {
            let width = of.output[1] * of.kernel[1];
            let ([row, inner_row], [column, inner_column]) = (
                [at / width / of.kernel[0], at / width % of.kernel[0]],
                [at % width / of.kernel[1], at % of.kernel[1]],
            );
            let (place, element) = (row * of.output[1] + column, inner_row * of.kernel[1] + inner_column);
            *value = by.read(&own, &offsets, by.part_of(tile % channels), element, place);
        }
        f32::store(&out, tile * values.len(), &values);
    });
}
