//! Convolutions over one to three dims and their gradients, as products with window columns.
//!
//! Shapes: `[batch, channels, ..]`, weights `[outputs, channels / groups, ..]`. A transposed
//! convolution is an input gradient. Invariants: f32 sums, rounded once; each output belongs to one
//! tile.

use crate::Tiles;
use crate::lane::Lane;
use crate::math;
use crate::matmul::kernels::OperandRounding;
use crate::reduction::kernels::sum_over_rows;
use crate::view::StridedView;

const PLACES: usize = 512;

/// Each vector has one number per dim.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    /// `channels` and `outputs` are per group.
    pub(crate) batch: usize,
    pub(crate) groups: usize,
    pub(crate) channels: usize,
    pub(crate) outputs: usize,
    pub(crate) input: Vec<usize>,
    pub(crate) output: Vec<usize>,
    pub(crate) kernel: Vec<usize>,
    /// `padding` is before the first element; `dilation` is the distance of window elements.
    pub(crate) stride: Vec<usize>,
    pub(crate) padding: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    /// Rounding of the operands.
    pub(crate) precision: OperandRounding,
}

/// The window element is outside the input.
const OUTSIDE: usize = usize::MAX;

impl Geometry {
    fn read(&self) -> usize {
        self.input.iter().product()
    }

    fn written(&self) -> usize {
        self.output.iter().product()
    }

    fn window(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Returns the window elements in all channels of a group.
    fn column(&self) -> usize {
        self.channels * self.window()
    }

    /// Returns nothing for empty weights, because then no memory bounds the window size.
    fn window_room(&self) -> Vec<usize> {
        vec![0; if self.channels * self.outputs == 0 { 0 } else { self.window() }]
    }

    /// Returns the channel elements of the window at output position `at`.
    fn window_of(&self, at: usize, elements: &mut [usize]) {
        for (position, element) in elements.iter_mut().enumerate() {
            let (mut at, mut position, mut step) = (at, position, 1);
            *element = 0;
            for dim in (0..self.kernel.len()).rev() {
                let place = at % self.output[dim] * self.stride[dim]
                    + position % self.kernel[dim] * self.dilation[dim];
                (at, position) = (at / self.output[dim], position / self.kernel[dim]);
                match place.checked_sub(self.padding[dim]).filter(|&place| place < self.input[dim]) {
                    Some(place) if *element != OUTSIDE => *element += place * step,
                    _ => *element = OUTSIDE,
                }
                step *= self.input[dim];
            }
        }
    }

    /// `plane` has the channels of a group.
    fn fill_column(&self, plane: &[f32], elements: &[usize], column: &mut [f32]) {
        for (channel, part) in column.chunks_mut(elements.len().max(1)).enumerate() {
            let own = &plane[channel * self.read()..(channel + 1) * self.read()];
            for (value, &element) in part.iter_mut().zip(elements) {
                *value = if element == OUTSIDE { 0.0 } else { own[element] };
            }
        }
    }

    fn load(&self, view: &StridedView, start: usize, values: &mut [f32]) {
        f32::load(view, start, values);
        self.precision.apply(values);
    }

    fn whole(&self, view: &StridedView) -> Vec<f32> {
        let mut values = vec![0f32; view.len()];
        self.load(&view.collapsed(), 0, &mut values);
        values
    }
}

/// Computes `out = x * weight + bias`, with one bias per output channel.
pub(crate) fn forward(
    tiles: &dyn Tiles,
    of: &Geometry,
    x: &StridedView,
    weight: &StridedView,
    bias: Option<&StridedView>,
    out: &StridedView,
) {
    let biases = biases(of, bias, out);
    summed(tiles, of, [x, weight], out, |channel, own, column| math::dot(own, column) + biases[channel]);
}

/// Computes `out = (x * weight) * scale + bias` of 8-bit integers, with exact sums.
pub(crate) fn quantised(
    tiles: &dyn Tiles,
    of: &Geometry,
    operands: [&StridedView; 2],
    scale: &StridedView,
    bias: Option<&StridedView>,
    out: &StridedView,
) {
    /// f32 sums this many products of at most 2^14 exactly.
    const EXACT: usize = 1 << 10;
    let (biases, scales) = (biases(of, bias, out), line(scale));
    summed(tiles, of, operands, out, |channel, own, column| {
        let parts =
            own.chunks(EXACT).zip(column.chunks(EXACT)).map(|(own, column)| math::dot(own, column) as i64);
        parts.sum::<i64>() as f32 * scales[channel] + biases[channel]
    });
}

fn biases(of: &Geometry, bias: Option<&StridedView>, out: &StridedView) -> Vec<f32> {
    let count = if out.is_empty() { 0 } else { of.groups * of.outputs };
    bias.map_or_else(|| vec![0.0; count], line)
}

/// Computes `out[.., channel, place] = sum(channel, weights of the channel, column of the place)`.
fn summed(
    tiles: &dyn Tiles,
    of: &Geometry,
    [x, weight]: [&StridedView; 2],
    out: &StridedView,
    sum: impl Fn(usize, &[f32], &[f32]) -> f32 + Sync,
) {
    if out.is_empty() {
        return;
    }
    let (x, out, weights) = (x.collapsed(), out.collapsed(), of.whole(weight));
    let (places, column) = (of.written(), of.column());
    let parts = places.div_ceil(PLACES);
    tiles.run(of.batch * of.groups * parts, &|tile| {
        let (block, part) = (tile / parts, tile % parts);
        let group = block % of.groups;
        let (first, count) = (part * PLACES, PLACES.min(places - part * PLACES));
        let mut plane = vec![0f32; of.channels * of.read()];
        of.load(&x, block * plane.len(), &mut plane);
        let (mut elements, mut columns) = (of.window_room(), vec![0f32; count * column]);
        for (i, values) in columns.chunks_mut(column.max(1)).enumerate() {
            of.window_of(first + i, &mut elements);
            of.fill_column(&plane, &elements, values);
        }
        let mut results = vec![0f32; count];
        for output in 0..of.outputs {
            let channel = group * of.outputs + output;
            let own = &weights[channel * column..(channel + 1) * column];
            for (i, result) in results.iter_mut().enumerate() {
                *result = sum(channel, own, &columns[i * column..(i + 1) * column]);
            }
            f32::store(&out, (block * of.outputs + output) * places + first, &results);
        }
    });
}

/// With `bias`, one number per input channel, the result is the transposed convolution of `grad`.
pub(crate) fn input_grad(
    tiles: &dyn Tiles,
    of: &Geometry,
    grad: &StridedView,
    weight: &StridedView,
    bias: Option<&StridedView>,
    out: &StridedView,
) {
    if out.is_empty() {
        return;
    }
    let (grad, out, weights) = (grad.collapsed(), out.collapsed(), of.whole(weight));
    let biases = bias.map_or_else(|| vec![0.0; of.groups * of.channels], line);
    // Nothing is summed without outputs.
    let (places, column) = if of.outputs == 0 { (0, 0) } else { (of.written(), of.column()) };
    tiles.run(of.batch * of.groups, &|block| {
        let group = block % of.groups;
        let mut grads = vec![0f32; of.outputs * places];
        of.load(&grad, block * grads.len(), &mut grads);
        let mut plane: Vec<f32> = biases[group * of.channels..(group + 1) * of.channels]
            .iter()
            .flat_map(|&bias| std::iter::repeat_n(bias, of.read()))
            .collect();
        let (mut elements, mut sums) = (of.window_room(), vec![0f32; column]);
        for place in 0..places {
            sums.fill(0.0);
            for output in 0..of.outputs {
                let channel = group * of.outputs + output;
                let own = &weights[channel * column..(channel + 1) * column];
                math::add_scaled(&mut sums, own, grads[output * places + place]);
            }
            of.window_of(place, &mut elements);
            for (channel, part) in sums.chunks(of.window().max(1)).enumerate() {
                for (sum, &element) in part.iter().zip(&elements).filter(|(_, element)| **element != OUTSIDE)
                {
                    plane[channel * of.read() + element] += sum;
                }
            }
        }
        f32::store(&out, block * plane.len(), &plane);
    });
}

pub(crate) fn weight_grad(
    tiles: &dyn Tiles,
    of: &Geometry,
    x: &StridedView,
    grad: &StridedView,
    out: &StridedView,
) {
    if out.is_empty() {
        return;
    }
    let (x, grad) = (x.collapsed(), grad.collapsed());
    let (places, column) = (of.written(), of.column());
    let total = sum_over_rows(
        tiles,
        of.batch,
        out.len(),
        || (),
        |(), batch, sums| {
            let (mut plane, mut grads) =
                (vec![0f32; of.channels * of.read()], vec![0f32; of.outputs * places]);
            let (mut elements, mut values) = (of.window_room(), vec![0f32; column]);
            for group in 0..of.groups {
                let block = batch * of.groups + group;
                of.load(&x, block * plane.len(), &mut plane);
                of.load(&grad, block * grads.len(), &mut grads);
                for place in 0..places {
                    of.window_of(place, &mut elements);
                    of.fill_column(&plane, &elements, &mut values);
                    for output in 0..of.outputs {
                        let start = (group * of.outputs + output) * column;
                        math::add_scaled(
                            &mut sums[start..start + column],
                            &values,
                            grads[output * places + place],
                        );
                    }
                }
            }
        },
    );
    f32::store(&out.collapsed(), 0, &total);
}

/// Sums `grad`, `[batch, channels, ..]`, per channel.
pub(crate) fn bias_grad(tiles: &dyn Tiles, grad: &StridedView, out: &StridedView) {
    if out.is_empty() {
        return;
    }
    let (batch, channels) = (grad.dims()[0], grad.dims()[1]);
    let len: usize = grad.dims()[2..].iter().product();
    let grad = grad.collapsed();
    let total = sum_over_rows(
        tiles,
        batch,
        channels,
        || vec![0f32; len],
        |row, at, sums| {
            for (channel, sum) in sums.iter_mut().enumerate() {
                f32::load(&grad, (at * channels + channel) * len, row);
                *sum += math::sum(row);
            }
        },
    );
    f32::store(&out.collapsed(), 0, &total);
}

/// Stores the elements of all windows, `[batch, channels * window elements, windows]`.
pub(crate) fn columns(tiles: &dyn Tiles, of: &Geometry, x: &StridedView, out: &StridedView) {
    if out.is_empty() {
        return;
    }
    let (x, out) = (x.collapsed(), out.collapsed());
    let (places, column) = (of.written(), of.column());
    tiles.run(of.batch, &|batch| {
        let (mut plane, mut elements) = (vec![0f32; of.channels * of.read()], of.window_room());
        let (mut values, mut all) = (vec![0f32; column], vec![0f32; column * places]);
        f32::load(&x, batch * plane.len(), &mut plane);
        for place in 0..places {
            of.window_of(place, &mut elements);
            of.fill_column(&plane, &elements, &mut values);
            values.iter().enumerate().for_each(|(row, value)| all[row * places + place] = *value);
        }
        f32::store(&out, batch * all.len(), &all);
    });
}

/// Sums over all windows that read an element.
pub(crate) fn columns_grad(tiles: &dyn Tiles, of: &Geometry, grad: &StridedView, out: &StridedView) {
    if out.is_empty() {
        return;
    }
    let (grad, out) = (grad.collapsed(), out.collapsed());
    let (places, column) = (of.written(), of.column());
    tiles.run(of.batch, &|batch| {
        let (mut plane, mut elements) = (vec![0f32; of.channels * of.read()], of.window_room());
        let mut all = vec![0f32; column * places];
        f32::load(&grad, batch * all.len(), &mut all);
        for place in 0..places {
            of.window_of(place, &mut elements);
            for row in 0..column {
                let element = elements[row % of.window()];
                if element != OUTSIDE {
                    plane[row / of.window() * of.read() + element] += all[row * places + place];
                }
            }
        }
        f32::store(&out, batch * plane.len(), &plane);
    });
}

pub(crate) fn line(view: &StridedView) -> Vec<f32> {
    let mut values = vec![0f32; view.len()];
    f32::load(&view.collapsed(), 0, &mut values);
    values
}
